"""The page of one run or several: one HTML file without scripts, which fetches nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from . import _svg
from ._model import Run, Step, calls, cells
from ._style import STYLE
from ._words import duration, printable, shortened, words

_LONGEST = 4000  # Characters of a text of a step; fewer on a page of thousands of steps.
_ROOM = 6_000_000  # Characters of all details of steps together, about.
_MOST_ROWS = 1000  # Rows of a table of issues or verdicts.
_LEGEND = {"error": "error", "retry": "sent back by a critic", "stop": "stopped by a critic"}


def page(runs: Sequence[Run]) -> str:
    """Return the HTML of runs, with a table of them first when there are several."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    body = [_overview(runs)] if len(runs) > 1 else []
    body += ["".join(_run(run, f"r{n}-")) for n, run in enumerate(runs, 1)]
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


def _run(run: Run, prefix: str) -> Iterator[str]:
    task = words(run.task) if run.task is not None else run.name
    yield f'<article id="{prefix}run" aria-labelledby="{prefix}title">\n<header>\n'
    yield f'<h1 id="{prefix}title">{_text(shortened(task, 500))}</h1>\n'
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
    heads = ("step", "from", "to", "context", "messages")
    yield _section("Handoffs", _table("Handoffs", heads, cells(run, "handoff_traces")))
    kinds = ("tool", "may use", "notes", "description")
    yield _section("Tools", _table("Tools", kinds, run.tools))
    yield _section("Configuration", _pairs(run.configuration))
    issues = [(issue["path"], issue["message"]) for issue in run.payload["run"]["issues"]]
    yield _section("Issues", _table("Issues", ("where", "what"), issues))
    yield "</article>\n"


def _head(run: Run) -> Iterator[str]:
    said = run.payload["run"]
    if said["final_result"] is not None:
        yield f'<div class="answer">{_block(said["final_result"], _LONGEST)}</div>\n'
    for row in run.failures:
        where = [words(row[key]) for key in ("category", "phase") if row.get(key)]
        where += [f"step {words(row['step_id'])}"] if row.get("step_id") is not None else []
        kind = words(row.get("type") or "failure")
        yield f'<div class="failure"><p><strong>{_text(kind)}</strong>:'
        yield f" {_cell(row.get('message'))} <small>({_text(', '.join(where))})</small></p>\n"
        if row.get("traceback"):
            text = _block(row["traceback"], 4 * _LONGEST)
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
    shown = [row for row in cells(run, "critic_traces") if row[0] not in gone]
    table = _table("Critics", ("step", "critic", "action", "score", "reason"), shown)
    if len(shown) < len(rows):
        told = f"{len(rows) - len(shown):,} verdicts on steps that are left out"
        table += f'<p class="left">{told}.</p>\n'
    if len(shown) > 20:
        table = f"<details><summary>{len(shown):,} verdicts</summary>\n{table}</details>\n"
    return _figure("scores", _svg.scores(rows), keys) + table


def _key(shape: str, text: str) -> str:
    return f'<li><i class="{shape}"></i>{_text(shortened(text, 100))}</li>'


def _figure(shape: str, picture: str, keys: Sequence[str]) -> str:
    legend = f'<figcaption><ul class="key">{"".join(keys)}</ul></figcaption>'
    return f'<figure class="{shape}">{picture}{legend}</figure>\n'


def _steps(run: Run, prefix: str, limit: int) -> Iterator[str]:
    opened = next((step for step in run.steps if {"error", "retry", "stop"} & {*step.marks}), None)
    for first, *more in run.groups:
        if first.record is None:
            last = more[-1] if more else first
            yield (
                f'<p class="left">Steps {first.number} to {last.number} are left out:'
                f" {len(more) + 1:,} steps without error, retry, stop or handoff.</p>\n"
            )
            continue
        is_open = " open" if first is opened else ""
        yield f'<details id="{prefix}s{first.position}"{is_open}><summary>{_summary(run, first)}'
        yield "</summary>\n"
        yield from _step(first, limit)
        yield "</details>\n"


def _summary(run: Run, step: Step) -> str:
    names = dict.fromkeys(call.name for call in calls(step) if call.args is not None)
    what = [words(step.decision.get("mode") or "no decision")]
    what += [", ".join(names)] if names else []
    what += [duration(step.ended - step.began)] if run.timed else []
    marks = "".join(f' <b class="mark {mark}">{mark}</b>' for mark in step.marks)
    told = _text(shortened(" · ".join(what), 200))
    return f"<b>{step.number}</b> <span>{_text(step.agent)}</span> <span>{told}</span>{marks}"


def _step(step: Step, limit: int) -> Iterator[str]:
    for error in step.errors:
        yield f'<p class="error">{_text(shortened(error, limit))}</p>\n'
    for label, key in (("why", "rationale"), ("answer", "final_answer"), ("to", "target")):
        yield _block(step.decision.get(key), limit, label)
    for call in calls(step):
        told = [call.status] if call.status else []
        told += [duration(call.seconds)] if call.seconds is not None else []
        name = _text(shortened(call.name, limit))
        yield f'<div class="call"><h3><code>{name}</code>'
        yield f" <small>{_text(', '.join(told))}</small></h3>"
        if call.error:
            yield f'<p class="error">{_text(shortened(call.error, limit))}</p>'
        yield f"{_block(call.args, limit)}{_block(call.result, limit)}</div>\n"
    rows: list[list[Any]] = []
    changes = (step.record or {}).get("state_diff")
    for name, change in changes.items() if isinstance(changes, dict) else ():
        change = change if isinstance(change, dict) else {"after": change}
        rows.append([name, *([_block(change.get(key), limit // 2)] for key in ("before", "after"))])
    if rows:
        yield "<h3>state</h3>\n" + _table("State changes", ("field", "before", "after"), rows)
    for row in step.critics:
        score = "no score" if row["score"] is None else words(row["score"])
        verdict = f"{row['critic_name']}: {row['action']}, {score}. {words(row['reason'])}"
        kind = row["action"] if row["action"] in _LEGEND else ""
        yield f'<p class="{kind}">{_text(shortened(verdict, limit))}</p>\n'
        yield _block(row["instruction_patch"], limit, "instruction")


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{body}</section>\n"


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


def _pairs(pairs: Mapping[str, Any]) -> str:
    rows = [f"<div><dt>{label}</dt><dd>{_cell(value)}</dd></div>" for label, value in pairs.items()]
    return f"<dl>{''.join(rows)}</dl>\n" if rows else '<p class="left">none</p>\n'


def _cell(value: Any) -> str:
    return _text(shortened(words(value), _LONGEST))


def _block(value: Any, limit: int, label: str = "") -> str:
    """A value as it is, under its label; nothing for None."""
    if value is None:
        return ""
    head = f"<h3>{label}</h3>" if label else ""
    return f"{head}<pre>{_text(shortened(words(value), limit))}</pre>\n"


def _text(text: str) -> str:
    return escape(printable(text, "\n\t"))
