"""The style of a page: light and dark, wide, narrow and on paper."""

from __future__ import annotations

COLOURS = {
    "paper": ("#ffffff", "#14181f"),
    "raised": ("#f3f5f8", "#1e2530"),
    "rule": ("#d5dbe3", "#3a4454"),
    "ink": ("#1b2430", "#e6eaf0"),
    "soft": ("#566172", "#a3aebd"),
    "link": ("#1d4ed8", "#8ab4ff"),
    "error": ("#b42318", "#ff8f80"),
    "retry": ("#925400", "#f5b94f"),
    "stop": ("#7a271a", "#ffa394"),
    "handoff": ("#475467", "#b6c2d2"),
    "c0": ("#2563c9", "#7db0ff"),
    "c1": ("#0e7c86", "#4fd1c9"),
    "c2": ("#7c3aed", "#c4a5ff"),
    "c3": ("#1a7f4b", "#7ed492"),
    "c4": ("#be185d", "#f59ac4"),
    "c5": ("#5b6472", "#aab4c2"),
}
"""Name -> colour in light and in dark; words stand on ``paper`` and ``raised``."""
_LIGHT, _DARK = (";".join(f"--{name}:{pair[n]}" for name, pair in COLOURS.items()) for n in (0, 1))
_KINDS = "".join(f".{name}{{--own:var(--{name})}}" for name in list(COLOURS)[6:])
STYLE = (
    f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
{_KINDS}"""
    """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 20px 60px;overflow-wrap:anywhere}
h1{font-size:26px;line-height:1.25;margin:0 0 12px}
*+article h1{margin-top:40px;border-top:2px solid var(--rule);padding-top:20px}
h2{font-size:18px;margin:34px 0 10px}h3{font-size:13px;margin:12px 0 4px;color:var(--soft)}
a{color:var(--link)}small,.left,dt,th{color:var(--soft)}
pre,code{font:13px/1.45 ui-monospace,monospace}code{color:var(--ink);font-weight:600}
pre{margin:4px 0;padding:8px 10px;background:var(--raised);border-radius:6px;white-space:pre-wrap}
.answer pre{font:17px/1.5 system-ui,sans-serif;border-left:4px solid var(--c3);padding:12px 16px}
.failure{border-left:4px solid var(--error);background:var(--raised);padding:4px 16px}
.failure .error{font-weight:600}p.error,p.retry,p.stop,b{color:var(--own)}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(210px,1fr));gap:10px 20px}
dt{font-size:12px}dd{margin:0}
table{border-collapse:collapse;width:100%;font-size:14px}td{white-space:pre-wrap}
th,td{text-align:left;vertical-align:top;padding:5px 12px 5px 0;border-bottom:1px solid var(--rule)}
figure{margin:0;padding:0 8px}figure.scores{padding-left:40px}
svg{display:block;overflow:visible}svg .sign{font-size:16px}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .tick{fill:var(--soft)}
.grid{stroke:var(--rule)}.tool{fill:var(--paper);opacity:.75;stroke:var(--rule)}
rect,.dot,.arrow,svg .sign{fill:var(--own)}.bar.left{opacity:.35}.dot{stroke:var(--paper)}
.line,line.handoff{stroke:var(--own);stroke-width:1.5}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;font-size:13px}
.key i{display:inline-block;width:12px;height:12px;margin-right:6px;background:var(--own)}
.key .tool{border:1px solid var(--soft)}
section>details{border:1px solid var(--rule);border-radius:8px;margin:6px 0;padding:0 14px 2px}
summary{cursor:pointer;padding:7px 0}summary span{margin-left:8px}
.mark{font-size:12px;border:1px solid;border-radius:10px;padding:1px 8px;margin-left:8px}
.call{border-left:3px solid var(--rule);padding-left:12px;margin:10px 0}
@media (max-width:640px){
main{padding:16px 12px 40px}h1{font-size:21px}dl{grid-template-columns:1fr 1fr}thead{display:none}
tr{display:block;border-bottom:1px solid var(--rule);padding:6px 0}
td{display:inline-block;max-width:100%;border:0;padding:1px 14px 1px 0}
td:not(:empty)::before{content:attr(data-l) " ";color:var(--soft);font-size:12px}}
@media print{body{font-size:11px}details::details-content{content-visibility:visible}}
"""
)
