"""The page of a run in a terminal: ASCII apart from the run's own words, wrapped to its width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unicodedata import combining, east_asian_width

from ._model import Row, Run, Step, Table, duration, printable, shortened, words

_MOST_ROWS, _LONGEST = 50, 1000
_COLOURS = {"part": "1", "error": "31", "retry": "33", "stop": "31", "handoff": "36"}
Lines = Iterator[tuple[str, str]]  # Each with the kind that says its colour.


def terminal(run: Run, width: int = 80, *, colour: bool = False) -> str:
    """A run as lines of at most ``width`` columns, with colours if wanted."""
    parts = {"Run": [*_pairs(run.facts, width)]}
    for what, traceback in run.failures:
        parts["Run"] += _wrapped(_cell(what), width, kind="error")
        for line in traceback.splitlines():
            parts["Run"] += _wrapped(printable(line), width, 4)
    if run.steps:
        parts["Steps"] = [line for step in run.steps for line in _step(step, run.length > 0, width)]
    for name, part in run.parts.items():
        made = _table(part, width) if isinstance(part, list) else _pairs(part, width)
        parts[name] = [*made] or [("  none", "")]
    paint = _COLOURS if colour else {}
    lines = [line for name, body in parts.items() for line in (("", ""), (name, "part"), *body)]
    told = (f"\x1b[{paint[kind]}m{text}\x1b[0m" if kind in paint else text for text, kind in lines)
    return "\n".join(told)[1:]


def _step(step: Step, timed: bool, width: int) -> Lines:
    if step.left:
        text = f"... steps {step.number} to {step.last} are left out: nothing stands out"
        yield from _wrapped(text, width)
        return
    spent = [duration(step.ended - step.began)] if timed else []
    head = [str(step.number), _cell(step.agent), _cell(step.mode), *spent]
    head += [mark.upper() for mark in step.marks]
    yield from _wrapped("  ".join(head), width, kind=next(iter(step.marks), ""))
    for label, value in step.told:
        text = value if label in step.marks else f"{label}: {words(value)}"
        if label == "call":
            args = "" if value.args is None else f" {words(value.args)}"
            result = f"{value.status}: {value.error}" if value.error else words(value.result)
            text = f"{value.name}{args} -> {result}"
        if label not in ("state", "critic"):  # Too wide, and in the table of critics.
            yield from _wrapped(_cell(text), width, 6)


def _pairs(pairs: Row, width: int) -> Lines:
    wide = max(map(len, pairs), default=0) + 2
    for label, value in pairs.items():
        yield from _wrapped(_cell(value), width, label=label.ljust(wide))


def _table(table: Table, width: int) -> Lines:
    """A table without the columns that are empty in every row; what is long wraps."""
    rows = table[:_MOST_ROWS]
    lines = [""] * (len(rows) + 1) if rows else []
    for head in rows[0] if rows else ():
        column = [row[head] for row in rows]
        cells = [head, *map(_cell, column)]
        if any(cells[1:]):
            wide = min(width // 2, max(map(_columns, cells)))
            is_number = all(isinstance(value, (int, float, type(None))) for value in column)
            for n, cell in enumerate(cells):
                room = " " * (wide - _columns(cell))
                lines[n] += "  " + (room + cell if is_number else cell + room)
    for line in lines:
        yield from _wrapped(line[2:].rstrip(), width)
    if len(table) > _MOST_ROWS:
        yield f"  ... and {len(table) - _MOST_ROWS} more", ""


def _cell(value: Any) -> str:
    return printable(" ".join(shortened(value, _LONGEST).split()))


def _columns(text: str) -> int:
    """Columns on a terminal, where most CJK characters and emoji take two."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _wrapped(text: str, width: int, indent: int = 2, *, label: str = "", kind: str = "") -> Lines:
    """The text in lines that are broken at spaces where it has any, behind its label if given."""
    begin = " " * indent + label
    rest = " " * (len(begin) if label else indent + 2)
    room = width - len(rest)
    while True:
        end = len(text)
        if _columns(text) > room:
            end = room
            while _columns(text[:end]) > room:
                end -= 1
            space = text.rfind(" ", 1, end + 1)
            end = space if space > 0 else end
        yield (begin + text[:end]).rstrip(), kind
        begin, text = rest, text[end:].lstrip()
        if not text:
            return
