"""The page of one run or several: one HTML file without scripts, which fetches nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from . import _svg
from ._model import Call, Run, Step, calls, duration, printable, words
from ._style import STYLE

__all__ = ["page"]

_LONGEST = 4000
"""Characters of a text of a step; fewer on a page of thousands of steps."""
_ROOM = 6_000_000
"""Characters of all details of steps together, about."""
_MOST_ROWS = 1000
"""Rows of a table of issues or verdicts."""
_LEGEND = {"error": "error", "retry": "sent back by a critic", "stop": "stopped by a critic"}
_VERDICT = "step_id critic_name action score reason"
_HANDOFF = "step_id from_agent to_agent context_strategy messages_passed"


def page(runs: Sequence[Run]) -> str:
    """Return the HTML of runs, with a table of them first when there are several."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    body = [_overview(runs)] if len(runs) > 1 else []
    body += ["".join(_run(run, f"r{n}-", len(runs) > 1)) for n, run in enumerate(runs, 1)]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<main>\n{''.join(body)}</main>\n</body>\n</html>\n"
    )


def _overview(runs: Sequence[Run]) -> str:
    rows = []
    for n, run in enumerate(runs, 1):
        said = run.payload["run"]
        cells = [run.payload["step_count"], said["stop_reason"], run.score, said["total_tokens"]]
        cells += [said["runtime_seconds"], len(said["issues"])]
        rows.append([[f'<a href="#r{n}-run">{_text(run.name)}</a>'], *cells])
    heads = ("run", "steps", "stop reason", "score", "tokens", "seconds", "issues")
    return f"<h1>{len(runs)} runs</h1>\n{_table('Runs', heads, rows)}"


def _run(run: Run, prefix: str, several: bool) -> Iterator[str]:
    task = words(run.task) if run.task is not None else run.name
    level = "h2" if several else "h1"
    yield f'<article id="{prefix}run" aria-labelledby="{prefix}title">\n<header>\n'
    yield f'<{level} id="{prefix}title">{_text(_short(task, 500))}</{level}>\n'
    yield "".join(_head(run))
    yield "</header>\n"
    shown = [step for step in run.steps if step.record is not None]
    limit = max(100, min(_LONGEST, _ROOM // (8 * max(len(shown), 1))))
    if run.steps:
        yield _section("Timeline", _timeline(run, prefix))
    if run.payload["critic_traces"]:
        yield _section("Critics", _critics(run))
    if run.steps:
        yield _section("Steps", "".join(_steps(run, prefix, limit)))
    handoffs = _columns(run.payload["handoff_traces"], _HANDOFF)
    heads = ("step", "from", "to", "context", "messages")
    yield _section("Handoffs", _table("Handoffs", heads, handoffs))
    heads = ("tool", "may use", "notes", "description")
    yield _section("Tools", _table("Tools", heads, run.tools))
    yield _section("Configuration", _pairs(run.configuration))
    issues = _columns(run.payload["run"]["issues"], "path message")
    yield _section("Issues", _table("Issues", ("where", "what"), issues))
    yield "</article>\n"


def _head(run: Run) -> Iterator[str]:
    said = run.payload["run"]
    if said["final_result"] is not None:
        yield f'<div class="answer">{_block(words(said["final_result"], 2), _LONGEST)}</div>\n'
    for row in run.failures:
        where = [words(row[key]) for key in ("category", "phase") if row.get(key)]
        where += [f"step {words(row['step_id'])}"] if row.get("step_id") is not None else []
        kind = words(row.get("type") or "failure")
        yield f'<div class="failure"><p><strong>{_text(kind)}</strong>: {_text(words(row.get("message")))}'
        yield f" <small>({_text(', '.join(where))})</small></p>\n"
        if row.get("traceback"):
            text = _block(words(row["traceback"]), 4 * _LONGEST)
            yield f"<details><summary>traceback</summary>{text}</details>\n"
        yield "</div>\n"
    hidden = ("task", "result")
    yield _pairs({label: value for label, value in run.facts.items() if label not in hidden})


def _timeline(run: Run, prefix: str) -> str:
    agents = dict.fromkeys(step.agent for step in run.steps)
    marks = {mark for step in run.steps for mark in step.marks}
    keys = [_key(f"c{n % _svg.COLOURS}", name or "agent") for n, name in enumerate(agents)]
    keys += [_key("tool", "tool")] if run.timed else []
    keys += [_key(name, told) for name, told in _LEGEND.items() if name in marks]
    picture = _svg.timeline(run, lambda step: f"#{prefix}s{step.position}", prefix)
    return _figure("times", picture, keys)


def _critics(run: Run) -> str:
    rows = run.payload["critic_traces"]
    names = dict.fromkeys(row["critic_name"] for row in rows)
    keys = [_key(f"c{n % _svg.COLOURS}", name) for n, name in enumerate(names)]
    actions = {row["action"] for row in rows}
    keys += [f'<li><b class="{name}">{sign}</b> {name}</li>'
             for name, sign in _svg.SIGNS.items() if name in actions]  # fmt: skip
    gone = {step.number for step in run.steps if step.record is None}
    shown = _columns([row for row in rows if row["step_id"] not in gone], _VERDICT)
    table = _table("Critics", ("step", "critic", "action", "score", "reason"), shown)
    if len(shown) < len(rows):
        told = f"{len(rows) - len(shown):,} verdicts on steps that are left out"
        table += f'<p class="left">{told}.</p>\n'
    if len(shown) > 20:
        table = f"<details><summary>{len(shown):,} verdicts</summary>\n{table}</details>\n"
    return _figure("scores", _svg.scores(rows), keys) + table


def _key(shape: str, text: str) -> str:
    return f'<li><i class="{shape}"></i>{_text(_short(text, 100))}</li>'


def _figure(shape: str, picture: str, keys: Sequence[str]) -> str:
    legend = f'<figcaption><ul class="key">{"".join(keys)}</ul></figcaption>'
    return f'<figure class="{shape}">{picture}{legend}</figure>\n'


def _steps(run: Run, prefix: str, limit: int) -> Iterator[str]:
    opened = next((s.position for s in run.steps if {"error", "retry", "stop"} & {*s.marks}), None)
    for first, *more in run.groups:
        if first.record is None:
            last = more[-1] if more else first
            yield (
                f'<p class="left">Steps {first.number} to {last.number} are left out:'
                f" {len(more) + 1:,} steps without error, retry, stop or handoff.</p>\n"
            )
        else:
            yield from _step(run, first, prefix, limit, first.position == opened)


def _step(run: Run, step: Step, prefix: str, limit: int, is_open: bool) -> Iterator[str]:
    decision = step.record.get("decision") if step.record else None
    decision = decision if isinstance(decision, dict) else {}
    made = calls(step)
    names = dict.fromkeys(call.name for call in made if call.args is not None)
    what = [words(decision.get("mode") or "no decision")]
    what += [", ".join(names)] if names else []
    what += [duration(step.ended - step.began)] if run.timed else []
    marks = "".join(f' <b class="mark {mark}">{mark}</b>' for mark in step.marks)
    yield f'<details id="{prefix}s{step.position}"{" open" if is_open else ""}><summary>'
    yield f"<b>{step.number}</b> <span>{_text(step.agent)}</span> "
    yield f"<span>{_text(_short(' · '.join(what), 200))}</span>{marks}</summary>\n"
    for error in step.errors:
        yield f'<p class="error">{_text(_short(error, limit))}</p>\n'
    for label, key in (("why", "rationale"), ("answer", "final_answer"), ("to", "target")):
        if decision.get(key) is not None:
            yield f"<h4>{label}</h4>{_block(words(decision[key], 2), limit)}\n"
    for call in made:
        yield _call(call, limit)
    changes = step.record.get("state_diff") if step.record else None
    if isinstance(changes, dict) and changes:
        yield "<h4>state</h4>\n"
        yield _table("State changes", ("field", "before", "after"), [*_changes(changes, limit)])
    for row in step.critics:
        score = "no score" if row["score"] is None else words(row["score"])
        told = f"{row['critic_name']}: {row['action']}, {score}. {words(row['reason'])}"
        yield f'<p class="verdict {_text(row["action"]) if row["action"] in ("retry", "stop") else ""}">'
        yield f"{_text(_short(told, limit))}</p>\n"
        if row["instruction_patch"] is not None:
            yield f"<h4>instruction</h4>{_block(words(row['instruction_patch'], 2), limit)}\n"
    yield "</details>\n"


def _changes(changes: Mapping[str, Any], limit: int) -> Iterator[list[Any]]:
    for name, change in changes.items():
        change = change if isinstance(change, dict) else {"after": change}
        sides = [[_block(words(change.get(side)), limit // 2)] for side in ("before", "after")]
        yield [name, *sides]


def _call(call: Call, limit: int) -> str:
    told = [call.status] if call.status else []
    told += [duration(call.seconds)] if call.seconds is not None else []
    args = "" if call.args is None else _block(words(call.args), limit)
    result = "" if call.result is None else _block(words(call.result), limit)
    return (
        f'<div class="call"><h4><code>{_text(_short(call.name, limit))}</code>'
        f" <small>{_text(_short(', '.join(told), limit))}</small></h4>{args}{result}</div>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section>\n<h3>{title}</h3>\n{body}</section>\n"


def _table(name: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table of values, of which those in a list are HTML; each cell knows its head at 400 px."""
    if not rows:
        return '<p class="left">none</p>\n'
    lines = []
    for row in rows[:_MOST_ROWS]:
        cells = [cell[0] if isinstance(cell, list) else _cell(cell) for cell in row]
        pairs = zip(heads, cells)
        lines.append("".join(f'<td data-l="{head}">{cell}</td>' for head, cell in pairs))
    head = "".join(f'<th scope="col">{head}</th>' for head in heads)
    left = len(rows) - _MOST_ROWS
    return (
        f'<table aria-label="{name}"><thead><tr>{head}</tr></thead>\n<tbody>'
        + "".join(f"<tr>{line}</tr>\n" for line in lines)
        + "</tbody></table>\n"
        + (f'<p class="left">… and {left:,} more.</p>\n' if left > 0 else "")
    )


def _columns(rows: Sequence[Any], names: str) -> list[list[Any]]:
    return [[row[name] for name in names.split()] for row in rows]


def _pairs(pairs: Mapping[str, Any]) -> str:
    rows = [f"<div><dt>{label}</dt><dd>{_cell(value)}</dd></div>" for label, value in pairs.items()]
    return f"<dl>{''.join(rows)}</dl>\n" if rows else '<p class="left">none</p>\n'


def _cell(value: Any) -> str:
    return _text(_short(words(value), _LONGEST))


def _block(text: str, limit: int) -> str:
    return f"<pre>{_text(_short(text, limit))}</pre>"


def _short(text: str, limit: int) -> str:
    """The text, or its begin and how many characters are left out."""
    return (
        text
        if len(text) <= limit
        else f"{text[:limit]} … and {len(text) - limit:,} more characters"
    )


def _text(text: str) -> str:
    return escape(printable(text, "\n\t"))
