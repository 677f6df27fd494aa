"""The page of a run in a terminal: ASCII apart from the run's own words, wrapped to its width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

from ._model import Run, Step, calls, cells
from ._words import duration, printable, shortened, words

_MOST_ROWS = 50
_LONGEST = 1000
_COLOURS = {"part": "1", "error": "31", "retry": "33", "stop": "31", "handoff": "36"}
_LABEL = 16
_TOOLS = {"tool": 24, "may use": 24, "notes": 999}
_CRITICS = {"step": -7, "critic": 18, "action": 9, "score": -8, "reason": 999}
_HANDOFFS = {"step": -7, "from": 21, "to": 21, "context": 9, "messages": -8}
"""Head -> most columns of a table's column; negative when its cells stand to the right."""


def terminal(run: Run, width: int = 80, *, colour: bool = False) -> str:
    """Return a run as lines of at most ``width`` columns, with colours if wanted."""
    paint, issues = _COLOURS if colour else {}, run.payload["run"]["issues"]
    told = [_cell(f"{issue['path']}: {issue['message']}") for issue in issues[:_MOST_ROWS]]
    parts = {
        "Run": [*_pairs(run.facts, width), *_failures(run, width, paint)],
        "Steps": [line for group in run.groups for line in _group(run, group, width, paint)],
        "Configuration": _pairs(run.configuration, width),
        "Tools": _table(_TOOLS, run.tools, width),
        "Critics": _table(_CRITICS, cells(run, "critic_traces"), width),
        "Handoffs": _table(_HANDOFFS, cells(run, "handoff_traces"), width),
        "Issues": [*(line for text in told for line in _hanging(text, width, 2)), *_rest(issues)],
    }
    if not run.steps:
        del parts["Steps"]
    return "\n\n".join(
        "\n".join([_painted(name, "part", paint), *(body or ["  none"])])
        for name, body in parts.items()
    )


def _painted(text: str, kind: str, paint: Mapping[str, str]) -> str:
    return f"\x1b[{paint[kind]}m{text}\x1b[0m" if kind in paint else text


def _failures(run: Run, width: int, paint: Mapping[str, str]) -> Iterator[str]:
    for row in run.failures:
        where = f"{words(row.get('phase'))}, step {words(row.get('step_id'))}"
        text = f"{words(row.get('type'))}: {words(row.get('message'))} ({where})"
        for line in _pairs({"failure": text}, width):
            yield _painted(line, "error", paint)
        for line in words(row.get("traceback") or "").splitlines():
            yield from _hanging(printable(line), width, 4)


def _group(run: Run, group: Sequence[Step], width: int, paint: Mapping[str, str]) -> Iterator[str]:
    first, last = group[0], group[-1]
    if first.record is None:
        text = f"... steps {first.number} to {last.number} are left out: nothing stands out"
        yield from _hanging(text, width, 2)
        return
    decision = first.decision
    what = [str(first.number), first.agent, words(decision.get("mode") or "no decision")]
    what += [duration(first.ended - first.began)] if run.timed else []
    what += [mark.upper() for mark in first.marks]
    for line in _hanging("  ".join(_cell(text) for text in what), width, 2):
        yield _painted(line, next(iter(first.marks), ""), paint)
    told = [decision[key] for key in ("rationale", "final_answer") if decision.get(key)]
    for call in calls(first):
        result = f"{call.status}: {call.error}" if call.error else words(call.result)
        args = "" if call.args is None else f" {words(call.args)}"
        told.append(f"{call.name}{args} -> {result}")
    for value in (*told, *first.errors):
        yield from _hanging(_cell(value), width, 6)


def _pairs(pairs: Mapping[str, Any], width: int) -> list[str]:
    lines = []
    for label, value in pairs.items():
        first, *more = _wrapped(_cell(value), width - _LABEL - 2)
        lines += [f"  {label:<{_LABEL}}{first}".rstrip(), *(" " * (_LABEL + 2) + p for p in more)]
    return lines


def _table(columns: Mapping[str, int], rows: Sequence[Sequence[Any]], width: int) -> list[str]:
    """Lines of a table; a column that is empty in every row is left out, what is long wraps."""
    texts = [[*columns], *([_cell(value) for value in row] for row in rows[:_MOST_ROWS])]
    lines = [""] * len(texts) if rows else []
    for most, column in zip(columns.values(), zip(*texts)):
        if any(column[1:]):
            wide = min(abs(most), max(map(_columns, column)))
            for n, text in enumerate(column):
                room = " " * (wide - _columns(text))
                lines[n] += "  " + (room + text if most < 0 else text + room)
    return [part for line in lines for part in _hanging(line[2:].rstrip(), width, 2)] + _rest(rows)


def _rest(items: Sequence[Any]) -> list[str]:
    left = len(items) - _MOST_ROWS
    return [f"  ... and {left} more"] if left > 0 else []


def _cell(value: Any) -> str:
    """A value on one line, control characters escaped."""
    return printable(" ".join(shortened(words(value), _LONGEST, "...").split()))


def _columns(text: str) -> int:
    """Columns on a terminal, where most CJK characters and emoji take two."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _hanging(text: str, width: int, indent: int) -> Iterable[str]:
    """The text in lines that begin at a column, from the second on two further to the right."""
    first, *more = _wrapped(text, width - indent - 2)
    return [" " * indent + first, *(" " * (indent + 2) + line for line in more)]


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of so many columns, broken at spaces where it has any."""
    lines = []
    while _columns(text) > width:
        end = width
        while _columns(text[:end]) > width:
            end -= 1
        space = text.rfind(" ", 1, end + 1)
        end = space if space > 0 else end
        lines.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return [line for line in (*lines, text) if line] or [""]
