"""The style of a page: light and dark, wide, narrow and on paper."""

from __future__ import annotations

__all__ = ["DARK", "LIGHT", "STYLE"]

LIGHT = {
    "paper": "#ffffff", "raised": "#f3f5f8", "ink": "#1b2430", "soft": "#566172", "rule": "#d5dbe3",
    "link": "#1d4ed8", "error": "#b42318", "retry": "#925400", "stop": "#7a271a", "handoff": "#475467",
    "c0": "#2563c9", "c1": "#0e7c86", "c2": "#7c3aed", "c3": "#1a7f4b", "c4": "#be185d", "c5": "#5b6472",
}  # fmt: skip
"""Name -> colour; words stand on ``paper`` and ``raised``."""
DARK = {
    "paper": "#14181f", "raised": "#1e2530", "ink": "#e6eaf0", "soft": "#a3aebd", "rule": "#3a4454",
    "link": "#8ab4ff", "error": "#ff8f80", "retry": "#f5b94f", "stop": "#ffa394", "handoff": "#b6c2d2",
    "c0": "#7db0ff", "c1": "#4fd1c9", "c2": "#c4a5ff", "c3": "#7ed492", "c4": "#f59ac4", "c5": "#aab4c2",
}  # fmt: skip


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


STYLE = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}\n"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}\n"
    + "".join(f".c{n}{{--own:var(--c{n})}}" for n in range(6))
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
main{max-width:1120px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:26px;line-height:1.25;margin:0 0 12px}
article>header h2{font-size:22px;margin:40px 0 12px;border-top:2px solid var(--rule);padding-top:20px}
h3{font-size:18px;margin:34px 0 10px}
h4{font-size:13px;margin:12px 0 4px;color:var(--soft);font-weight:600}
a{color:var(--link)}
small,.left,dt,.tick{color:var(--soft)}
pre,code{font:13px/1.45 ui-monospace,monospace}
pre{margin:4px 0;padding:8px 10px;background:var(--raised);border-radius:6px;white-space:pre-wrap}
.answer pre{font:17px/1.5 system-ui,sans-serif;border-left:4px solid var(--c3);padding:12px 16px}
.failure{border-left:4px solid var(--error);background:var(--raised);padding:4px 16px;border-radius:6px;margin:10px 0}
.failure strong,p.error,.verdict.retry,.verdict.stop{color:var(--error)}.verdict.retry{color:var(--retry)}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(210px,1fr));gap:10px 20px;margin:16px 0}
dt{font-size:12px}dd{margin:0}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:5px 12px 5px 0;border-bottom:1px solid var(--rule)}
th{color:var(--soft);font-weight:600}td pre{margin:0}
figure{margin:0;padding:0 8px}figure.scores{padding-left:40px}
svg{display:block;overflow:visible}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .tick{fill:var(--soft)}
.grid{stroke:var(--rule)}.bar{fill:var(--own);rx:2px}.bar.left{opacity:.35}.tool{fill:var(--paper);opacity:.75;stroke:var(--own)}
.dot{fill:var(--own);stroke:var(--paper)}.line{fill:none;stroke:var(--own);stroke-width:1.5}
rect.error{fill:var(--error)}rect.retry{fill:var(--retry)}rect.stop{fill:var(--stop)}
.handoff{stroke:var(--handoff);stroke-width:1.5}.arrow{fill:var(--handoff)}
svg .sign{font-size:16px}svg .sign.retry{fill:var(--retry)}svg .sign.stop{fill:var(--stop)}
b.retry{color:var(--retry)}b.stop{color:var(--stop)}b.error{color:var(--error)}b.handoff{color:var(--handoff)}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;margin:10px 0;font-size:13px}
.key i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:6px;vertical-align:-1px;background:var(--own)}
.key i.tool{background:var(--paper);border:1px solid var(--soft)}.key i.error{background:var(--error)}
.key i.retry{background:var(--retry)}.key i.stop{background:var(--stop)}
section>details{border:1px solid var(--rule);border-radius:8px;margin:6px 0;padding:0 14px}
section>details[open]{padding-bottom:12px}section>details:target{border-color:var(--link)}
summary{cursor:pointer;padding:7px 0}summary span{margin-left:8px}
.mark{font-size:12px;border:1px solid;border-radius:10px;padding:1px 8px;margin-left:8px}
.call{border-left:3px solid var(--rule);padding-left:12px;margin:10px 0}.call code{color:var(--ink);font-weight:600}
@media (max-width:640px){
main{padding:16px 12px 40px}h1{font-size:21px}dl{grid-template-columns:1fr 1fr}
thead{display:none}tr{display:block;border-bottom:1px solid var(--rule);padding:6px 0}
td{display:inline-block;max-width:100%;border:0;padding:1px 14px 1px 0}td:not(:empty)::before{content:attr(data-l) " ";color:var(--soft);font-size:12px}
}
@media print{
body{font-size:11px}details::details-content{content-visibility:visible}details{break-inside:avoid}
}
"""
)
