"""The page of one run or several: one HTML file without scripts, which fetches nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from . import _svg
from ._model import Row, Run, Step
from ._style import STYLE
from ._words import duration, html_text

_LONGEST = 4000  # Characters of a text of a step; fewer on a page of thousands of steps.
_ROOM = 6_000_000  # Characters of all details of steps together, about.
_MOST_ROWS = 1000
_COMPARED = ("steps", "stop reason", "last score", "total tokens", "runtime seconds", "issues")
_NONE = '<p class="left">none</p>\n'
_MARKS = {"error": "error", "retry": "sent back by a critic", "stop": "stopped by a critic"}


def page(runs: Sequence[Run]) -> str:
    """Return the HTML of runs, with a table of them first when there are several."""
    title, body = html_text(runs[0].name), ""
    if len(runs) > 1:
        title = f"{len(runs)} runs"
        rows = [
            {"run": run.name, **{name: run.facts.get(name) for name in _COMPARED}} for run in runs
        ]
        links = [f"#r{n}-run" for n in range(1, len(runs) + 1)]
        body = f"<h1>{title}</h1>\n{_table('Runs', rows, links=links)}"
    body += "".join("".join(_run(run, f"r{n}-")) for n, run in enumerate(runs, 1))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
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
        yield f'<div class="failure">{_line("error", what, _LONGEST)}'
        if traceback:
            text = _block(traceback, 4 * _LONGEST)
            yield f"<details><summary>traceback</summary>{text}</details>\n"
        yield "</div>\n"
    yield f"{_pairs(facts)}</header>\n"
    if run.length:
        marks = {mark for step in run.steps for mark in step.marks}
        keys = [("tool", "tool"), *(key for key in _MARKS.items() if key[0] in marks)]
        yield _section("Timeline", _figure("times", _svg.timeline(run, prefix), keys))
    yield _section("Critics", _critics(run))
    if run.steps:
        yield _section("Steps", "".join(_steps(run, prefix)))
    for name, part in run.parts.items():
        if name != "Critics":
            yield _section(name, _table(name, part) if isinstance(part, list) else _pairs(part))
    yield "</article>\n"


def _section(name: str, text: str) -> str:
    return f"<section>\n<h2>{name}</h2>\n{text}</section>\n"


def _critics(run: Run) -> str:
    rows = run.payload["critic_traces"]
    table = _table("Critics", run.parts["Critics"])
    if not rows:
        return table
    if len(rows) > 20:
        table = f"<details><summary>{len(rows):,} verdicts</summary>\n{table}</details>\n"
    names, actions = (
        dict.fromkeys(row[name] for row in rows) for name in ("critic_name", "action")
    )
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
            is_table = label == "state"
            text = _table(label, value, limit // 2) if is_table else _block(value, limit)
            yield f"<h3>{label}</h3>{text}"


def _line(kind: str, text: str, limit: int) -> str:
    return f'<p class="{kind}">{html_text(text, limit)}</p>\n'


def _block(value: Any, limit: int = _LONGEST) -> str:
    return f"<pre>{html_text(value, limit)}</pre>\n"


def _table(name: str, rows: Any, limit: int = _LONGEST, links: Sequence[str] = ()) -> str:
    """A table; at 400 px each cell has its head before it.

    ``links`` are where the first cells of the rows lead.
    """
    if not rows:
        return _NONE
    lines = []
    for row, link in zip_longest(rows[:_MOST_ROWS], links[:_MOST_ROWS]):
        cells = {head: html_text(value, limit) for head, value in row.items()}
        if link:
            cells["run"] = f'<a href="{link}">{cells["run"]}</a>'
        line = "".join(f'<td data-l="{head}">{cell}</td>' for head, cell in cells.items())
        lines.append(f"<tr>{line}</tr>\n")
    heads = "".join(f'<th scope="col">{head}</th>' for head in rows[0])
    head = f'<table aria-label="{name}"><thead><tr>{heads}</tr></thead>'
    left = len(rows) - _MOST_ROWS
    more = f'<p class="left">… and {left:,} more.</p>\n' if left > 0 else ""
    return f"{head}\n<tbody>{''.join(lines)}</tbody></table>\n{more}"


def _pairs(pairs: Row) -> str:
    told = ((label, html_text(value, _LONGEST)) for label, value in pairs.items())
    rows = "".join(f"<div><dt>{label}</dt><dd>{text}</dd></div>" for label, text in told)
    return f"<dl>{rows}</dl>\n" if rows else _NONE
