"""The page of one run or several: one HTML file without scripts, which fetches nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _svg
from ._model import Row, Run, Step, duration, html_text

_LONGEST, _MOST_ROWS = 4000, 1000  # Of a text in characters, of a table.
_ROOM = 6_000_000  # Characters of all details of steps together, about; so texts are shorter.
_COMPARED = ("steps", "stop reason", "last score", "total tokens", "runtime seconds", "issues")
_NONE = '<p class="left">none</p>\n'
_MARKS = {"error": "error", "retry": "sent back by a critic", "stop": "stopped by a critic"}


def page(runs: Sequence[Run]) -> str:
    """The HTML of runs, with a table of them first when there are several."""
    title, body = html_text(runs[0].name), ""
    if len(runs) > 1:
        title = f"{len(runs)} runs"
        rows = [{"run": run.name, **{n: run.facts.get(n) for n in _COMPARED}} for run in runs]
        body = f"<h1>{title}</h1>\n{_table('Runs', rows, linked=True)}"
    body += "".join("".join(_run(run, f"r{n}-")) for n, run in enumerate(runs, 1))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_style()}</style>\n</head>\n<body>\n"
        f"<main>\n{body}</main>\n</body>\n</html>\n"
    )


def _run(run: Run, prefix: str) -> Iterator[str]:
    facts = {**run.facts}
    task, answer = facts.pop("task", run.name), facts.pop("final result", None)
    yield f'<article id="{prefix}run" aria-labelledby="{prefix}title">\n<header>\n'
    yield f'<h1 id="{prefix}title">{html_text(task, 500)}</h1>\n'
    if answer is not None:
        yield f'<div class="answer">{_block(answer)}</div>\n'
    for what, traceback in run.failures:
        fold = f"<details><summary>traceback</summary>{_block(traceback, 4 * _LONGEST)}</details>\n"
        told = _line("error", what, _LONGEST) + (fold if traceback else "")
        yield f'<div class="failure">{told}</div>\n'
    yield f"{_pairs(facts)}</header>\n"
    parts = {"Timeline": "", "Critics": _critics(run), "Steps": "".join(_steps(run, prefix))}
    if run.length:
        marks = {mark for step in run.steps for mark in step.marks}
        keys = [("tool", "tool"), *(key for key in _MARKS.items() if key[0] in marks)]
        parts["Timeline"] = _figure("times", _svg.timeline(run, prefix), keys)
    for name, part in run.parts.items():
        if name not in parts:
            parts[name] = _table(name, part) if isinstance(part, list) else _pairs(part)
    for name, text in parts.items():
        yield f"<section>\n<h2>{name}</h2>\n{text}</section>\n" if text else ""
    yield "</article>\n"


def _critics(run: Run) -> str:
    rows = run.payload["critic_traces"]
    table = _table("Critics", run.parts["Critics"])
    if not rows:
        return table
    if len(rows) > 20:
        table = f"<details><summary>{len(rows):,} verdicts</summary>\n{table}</details>\n"
    names = dict.fromkeys(row["critic_name"] for row in rows)
    actions = {row["action"] for row in rows}
    keys = [(_svg.colour(n), name) for n, name in enumerate(names)]
    keys += [(name, f"{sign} {name}") for name, sign in _svg.SIGNS.items() if name in actions]
    return _figure("scores", _svg.scores(rows), keys) + table


def _figure(shape: str, picture: str, keys: Iterable[tuple[str, str]]) -> str:
    told = "".join(f'<li><i class="{key}"></i>{html_text(text, 100)}</li>' for key, text in keys)
    legend = f'<figcaption><ul class="key">{told}</ul></figcaption>'
    return f'<figure class="{shape}">{picture}{legend}</figure>\n'


def _steps(run: Run, prefix: str) -> Iterator[str]:
    shown = sum(not step.left for step in run.steps)
    limit = max(100, min(_LONGEST, _ROOM // (8 * max(shown, 1))))
    opened = next((step for step in run.steps if _MARKS.keys() & {*step.marks}), None)
    for step in run.steps:
        if step.left:
            yield f'<p class="left">Steps {step.number} to {step.last} are left out:'
            yield f" {step.left:,} steps without error, retry, stop or handoff.</p>\n"
            continue
        is_open = " open" if step is opened else ""
        names = dict.fromkeys(call.name for call in step.calls if call.args is not None)
        told = [step.mode, *([", ".join(names)] if names else [])]
        told += [duration(step.ended - step.began)] if run.length else []
        marks = "".join(f' <b class="mark {mark}">{mark}</b>' for mark in step.marks)
        yield f'<details id="{prefix}s{step.position}"{is_open}><summary><b>{step.number}</b>'
        yield f" <span>{html_text(step.agent)}</span> <span>{html_text(' · '.join(told))}</span>"
        yield f"{marks}</summary>\n{''.join(_details(step, limit))}</details>\n"


def _details(step: Step, limit: int) -> Iterator[str]:
    for label, value in step.told:
        if label == "call":
            told = [value.status, "" if value.seconds is None else duration(value.seconds)]
            yield f'<div class="call"><h3><code>{html_text(value.name, limit)}</code>'
            yield f" <small>{html_text(', '.join(filter(None, told)))}</small></h3>"
            yield _line("error", value.error, limit) if value.error else ""
            yield "".join(_block(v, limit) for v in (value.args, value.result) if v is not None)
            yield "</div>\n"
        elif label in ("error", "retry", "stop", "critic"):
            yield _line(label, value, limit)
        else:
            table = _table(label, value, limit // 2) if label == "state" else ""
            yield f"<h3>{label}</h3>{table or _block(value, limit)}"


def _line(kind: str, text: str, limit: int) -> str:
    return f'<p class="{kind}">{html_text(text, limit)}</p>\n'


def _block(value: Any, limit: int = _LONGEST) -> str:
    return f"<pre>{html_text(value, limit)}</pre>\n"


def _table(name: str, rows: Any, limit: int = _LONGEST, linked: bool = False) -> str:
    """A table; the cells ``run`` lead to the article of their run if ``linked``."""
    if not rows:
        return _NONE
    lines = []
    for n, row in enumerate(rows[:_MOST_ROWS], 1):
        cells = {head: html_text(value, limit) for head, value in row.items()}
        if linked:
            cells["run"] = f'<a href="#r{n}-run">{cells["run"]}</a>'
        line = "".join(f'<td data-l="{head}">{cell}</td>' for head, cell in cells.items())
        lines.append(f"<tr>{line}</tr>\n")
    heads = "".join(f'<th scope="col">{head}</th>' for head in rows[0])
    head = f'<table aria-label="{name}"><thead><tr>{heads}</tr></thead>'
    left = len(rows) - _MOST_ROWS
    more = f'<p class="left">… and {left:,} more.</p>\n' if left > 0 else ""
    return f"{head}\n<tbody>{''.join(lines)}</tbody></table>\n{more}"


def _pairs(pairs: Row) -> str:
    told = [f"<dt>{label}</dt><dd>{html_text(v, _LONGEST)}</dd>" for label, v in pairs.items()]
    return f"<dl><div>{'</div><div>'.join(told)}</div></dl>\n" if told else _NONE


def _style() -> str:
    """The style sheet, its colours in light and in dark, and what is painted in which."""
    light, dark = (";".join(f"--{n}:{pair[k]}" for n, pair in COLOURS.items()) for k in (0, 1))
    kinds = "".join(f".{name}{{--own:var(--{name})}}" for name in list(COLOURS)[6:])
    modes = f":root{{color-scheme:light dark;{light}}}\n"
    modes += f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
    sheet = Path(__file__).with_name("page.css").read_text("utf-8")
    return f"\n{modes}{kinds}\n{sheet}"


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
