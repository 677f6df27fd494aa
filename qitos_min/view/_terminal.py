"""The page of a run in a terminal: ASCII apart from the run's own words, wrapped to its width."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

from ._model import Run, Step, calls, duration, printable, words

__all__ = ["terminal"]

_MOST_ROWS = 50
_LONGEST = 1000
_COLOURS = {"part": "1", "error": "31", "retry": "33", "stop": "31", "handoff": "36"}
_LABEL = 16
Column = tuple[str, int, bool]
"""Head, most columns, and whether its cells stand to the right."""


def terminal(run: Run, width: int = 80, *, colour: bool = False) -> str:
    """Return a run as lines of at most ``width`` columns, with colours if wanted."""
    paint = _COLOURS if colour else {}
    verdicts = ("step_id", "critic_name", "action", "score", "reason")
    handoffs = ("step_id", "from_agent", "to_agent", "context_strategy", "messages_passed")
    payload = run.payload
    parts = {
        "Run": [*_pairs(run.facts, width), *_failures(run, width, paint)],
        "Steps": _steps(run, width, paint),
        "Configuration": _pairs(run.configuration, width),
        "Tools": _table(
            [("tool", 24, False), ("may use", 24, False), ("notes", width, False)],
            [row[:3] for row in run.tools], width,
        ),
        "Critics": _table(
            [("step", 7, True), ("critic", 18, False), ("action", 9, False), ("score", 8, True),
             ("reason", width, False)],
            [[row[name] for name in verdicts] for row in payload["critic_traces"]], width,
        ),
        "Handoffs": _table(
            [("step", 7, True), ("from", 21, False), ("to", 21, False), ("context", 9, False),
             ("messages", 8, True)],
            [[row[name] for name in handoffs] for row in payload["handoff_traces"]], width,
        ),
        "Issues": _issues(payload["run"]["issues"], width),
    }  # fmt: skip
    if not run.steps:
        del parts["Steps"]
    return "\n\n".join(
        "\n".join([_painted(name, "part", paint), *(body or ["  none"])])
        for name, body in parts.items()
    )


def _painted(text: str, kind: str, paint: Mapping[str, str]) -> str:
    return f"\x1b[{paint[kind]}m{text}\x1b[0m" if kind in paint else text


def _failures(run: Run, width: int, paint: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    for row in run.failures:
        where = f"{words(row.get('phase'))}, step {words(row.get('step_id'))}"
        text = f"{words(row.get('type'))}: {words(row.get('message'))} ({where})"
        told = _pairs({"failure": text}, width)
        lines += [_painted(line, "error", paint) for line in told]
        for line in words(row.get("traceback") or "").splitlines():
            lines += [f"    {part}" for part in _wrapped(printable(line), width - 4)]
    return lines


def _steps(run: Run, width: int, paint: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    for first, *more in run.groups:
        if first.record is None:
            last = more[-1] if more else first
            text = f"... steps {first.number} to {last.number} are left out: nothing stands out"
            lines += [f"  {line}" for line in _wrapped(text, width - 2)]
        else:
            lines += _step(run, first, width, paint)
    return lines


def _step(run: Run, step: Step, width: int, paint: Mapping[str, str]) -> list[str]:
    decision = (step.record or {}).get("decision")
    decision = decision if isinstance(decision, dict) else {}
    what = [str(step.number), step.agent, words(decision.get("mode") or "no decision")]
    what += [duration(step.ended - step.began)] if run.timed else []
    what += [mark.upper() for mark in step.marks]
    kind = next(iter(step.marks), "")
    head = _wrapped(_cell("  ".join(what), spaces=True), width - 2)
    lines = [_painted(f"  {line}", kind, paint) for line in head]
    told = [("", decision[key]) for key in ("rationale", "final_answer") if decision.get(key)]
    told = [(label, words(value)) for label, value in told]
    for call in calls(step):
        result = f"{call.status}: {call.error}" if call.error else words(call.result)
        args = "" if call.args is None else f" {words(call.args)}"
        told.append((call.name, f"{call.name}{args} -> {result}"))
    told += [("", error) for error in step.errors if not any(error in text for _, text in told)]
    for _, text in told:
        first, *more = _wrapped(_cell(text), width - 10)
        lines += [f"      {first}", *(f"        {line}" for line in more)]
    return lines


def _issues(issues: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    lines = []
    for issue in issues[:_MOST_ROWS]:
        first, *more = _wrapped(_cell(f"{issue['path']}: {issue['message']}"), width - 4)
        lines += [f"  {first}", *(f"    {line}" for line in more)]
    return lines + _rest(issues)


def _pairs(pairs: Mapping[str, Any], width: int) -> list[str]:
    lines = []
    for label, value in pairs.items():
        for part in _wrapped(_cell(value), width - _LABEL - 2):
            lines.append(f"  {label:<{_LABEL}}{part}".rstrip())
            label = ""
    return lines


def _table(columns: Iterable[Column], rows: Sequence[Sequence[Any]], width: int) -> list[str]:
    """Lines of a table whose cells wrap; a column that is empty in every row is left out."""
    if not rows:
        return []
    cells = [[_cell(value) for value in row] for row in rows[:_MOST_ROWS]]
    kept: list[tuple[int, int, bool]] = []
    heads = []
    used = 0
    for index, (head, most, right) in enumerate(columns):
        column = [head, *(row[index] for row in cells)]
        if any(column[1:]):
            wide = max(4, min(most, width - 2 - used, max(map(_columns, column))))
            kept.append((index, wide, right))
            heads.append(head)
            used += wide + 2
    lines = []
    for row in [
        dict(zip([index for index, _, _ in kept], heads)),
        *map(dict, map(enumerate, cells)),
    ]:
        parts = [_wrapped(row[index], wide) for index, wide, _ in kept]
        for number in range(max(map(len, parts))):
            line = ""
            for part, (_, wide, right) in zip(parts, kept):
                text = part[number] if number < len(part) else ""
                room = " " * (wide - _columns(text))
                line += "  " + (room + text if right else text + room)
            lines.append(line.rstrip())
    return [*lines, *_rest(rows)]


def _rest(items: Sequence[Any]) -> list[str]:
    left = len(items) - _MOST_ROWS
    return [f"  ... and {left} more"] if left > 0 else []


def _cell(value: Any, spaces: bool = False) -> str:
    """A value on one line, control characters escaped; says how much of a long one is left out."""
    text = words(value)
    text = text if spaces else " ".join(text[: 2 * _LONGEST].split()) + text[2 * _LONGEST :]
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} ... and {len(text) - _LONGEST} more characters"
    return printable(text)


def _columns(text: str) -> int:
    """Columns on a terminal, where most CJK characters and emoji take two."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


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
    return [*lines, text]
