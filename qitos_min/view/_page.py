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
_LEGEND = (("error", "error"), ("retry", "sent back by a critic"), ("stop", "stopped by a critic"))


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
        rows.append([f'<a href="#r{n}-run">{_text(run.name)}</a>', *map(_cell, cells)])
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
    rows = run.payload["critic_traces"]
    if rows:
        yield _section("Critics", _critics(run, rows, limit))
    if run.steps:
        yield _section("Steps", "".join(_steps(run, prefix, limit)))
    yield _section("Handoffs", _handoffs(run.payload["handoff_traces"]))
    heads = ("tool", "may use", "notes", "description")
    yield _section("Tools", _table("Tools", heads, [[*map(_cell, row)] for row in run.tools]))
    yield _section("Configuration", _pairs(run.configuration))
    issues = run.payload["run"]["issues"]
    found = [[_cell(row["path"]), _cell(row["message"])] for row in issues[:_MOST_ROWS]]
    yield _section("Issues", _table("Issues", ("where", "what"), found) + _more(issues))
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
    keys = [f'<li><i class="c{n % _svg.COLOURS}"></i>{_text(name or "agent")}</li>'
            for n, name in enumerate(agents)]  # fmt: skip
    keys += ['<li><i class="tool"></i>tool</li>'] if run.timed else []
    keys += [f'<li><i class="{name}"></i>{told}</li>' for name, told in _LEGEND if name in marks]
    picture = _svg.timeline(run, lambda step: f"#{prefix}s{step.position}", prefix)
    return (
        f'<figure>{picture}<figcaption><ul class="key">{"".join(keys)}</ul></figcaption></figure>\n'
    )


def _critics(run: Run, rows: Sequence[Any], limit: int) -> str:
    keys = [f'<li><i class="c{n % _svg.COLOURS}"></i>{_text(name)}</li>'
            for n, name in enumerate(dict.fromkeys(row["critic_name"] for row in rows))]  # fmt: skip
    keys += ['<li><b class="retry">↻</b> retry</li>', '<li><b class="stop">■</b> stop</li>']
    picture = (
        f'<figure class="scores">{_svg.scores(rows)}'
        f'<figcaption><ul class="key">{"".join(keys)}</ul></figcaption></figure>\n'
    )
    gone = {step.number for step in run.steps if step.record is None}
    shown = [row for row in rows if row["step_id"] not in gone]
    names = ("step_id", "critic_name", "action", "score", "reason")
    table = [[_cell(row[name]) for name in names] for row in shown[:_MOST_ROWS]]
    told = _more(shown)
    if len(shown) < len(rows):
        told += (
            f'<p class="left">{len(rows) - len(shown):,} verdicts on steps that are left out.</p>\n'
        )
    return (
        picture + _table("Critics", ("step", "critic", "action", "score", "reason"), table) + told
    )


def _steps(run: Run, prefix: str, limit: int) -> Iterator[str]:
    gone = {first.position: (first, last, n) for first, last, n in run.left_out()}
    opened = next((s.position for s in run.steps if {"error", "retry", "stop"} & {*s.marks}), None)
    for step in run.steps:
        if step.position in gone:
            first, last, n = gone[step.position]
            yield (
                f'<p class="left">Steps {first.number} to {last.number} are left out: {n:,} steps'
                " without error, retry, stop or handoff.</p>\n"
            )
        elif step.record is not None:
            yield from _step(run, step, prefix, limit, step.position == opened)


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
        yield _table("State changes", ("field", "before", "after"), _changes(changes, limit))
    for row in step.critics:
        score = "no score" if row["score"] is None else words(row["score"])
        told = f"{row['critic_name']}: {row['action']}, {score}. {words(row['reason'])}"
        yield f'<p class="verdict {_text(row["action"]) if row["action"] in ("retry", "stop") else ""}">'
        yield f"{_text(_short(told, limit))}</p>\n"
        if row["instruction_patch"] is not None:
            yield f"<h4>instruction</h4>{_block(words(row['instruction_patch'], 2), limit)}\n"
    yield "</details>\n"


def _changes(changes: Mapping[str, Any], limit: int) -> Iterator[list[str]]:
    for name, change in changes.items():
        change = change if isinstance(change, dict) else {"after": change}
        sides = [_block(words(change.get(side)), limit // 2) for side in ("before", "after")]
        yield [_text(_short(name, limit)), *sides]


def _call(call: Call, limit: int) -> str:
    told = [call.status] if call.status else []
    told += [duration(call.seconds)] if call.seconds is not None else []
    args = "" if call.args is None else _block(words(call.args), limit)
    result = "" if call.result is None else _block(words(call.result), limit)
    return (
        f'<div class="call"><h4><code>{_text(_short(call.name, limit))}</code>'
        f" <small>{_text(_short(', '.join(told), limit))}</small></h4>{args}{result}</div>\n"
    )


def _handoffs(rows: Sequence[Any]) -> str:
    names = ("step_id", "from_agent", "to_agent", "context_strategy", "messages_passed")
    heads = ("step", "from", "to", "context", "messages")
    shown = [[_cell(row[name]) for name in names] for row in rows[:_MOST_ROWS]]
    return _table("Handoffs", heads, shown) + _more(rows)


def _section(title: str, body: str) -> str:
    return f"<section>\n<h3>{title}</h3>\n{body}</section>\n"


def _table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML; at 400 px each row is a block, so a cell has its label."""
    lines = [
        f"<tr>{''.join(f'<td data-l={head.replace(chr(32), chr(45))}>{cell}</td>' for head, cell in zip(heads, row))}</tr>\n"
        for row in rows
    ]
    if not lines:
        return '<p class="left">none</p>\n'
    head = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<table aria-label="{name}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{''.join(lines)}</tbody></table>\n"
    )


def _pairs(pairs: Mapping[str, Any]) -> str:
    rows = [f"<div><dt>{label}</dt><dd>{_cell(value)}</dd></div>" for label, value in pairs.items()]
    return f"<dl>{''.join(rows)}</dl>\n" if rows else '<p class="left">none</p>\n'


def _more(rows: Sequence[Any]) -> str:
    left = len(rows) - _MOST_ROWS
    return f'<p class="left">… and {left:,} more.</p>\n' if left > 0 else ""


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
