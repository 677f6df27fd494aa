"""The page of a run in a terminal: ASCII apart from the run's own words, 80 columns."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

from snowl_compat import SnowlCompatError, build_payload, read_run

__all__ = ["page", "show"]

_WIDTH = 80
_MOST_ROWS = 50
_BUDGET_WORDS = {
    "budget_max_steps": "steps",
    "budget_max_runtime_seconds": "seconds",
    "budget_max_tokens": "tokens",
}
_SPEC_WORDS = {
    "needs_approval": "asks first",
    "read_only": "read only",
    "concurrency_safe": "parallel",
}
Column = tuple[str, int, bool]
"""Head, most columns, and whether its cells stand to the right."""


def show(run: str) -> int:
    """Print the page of a run and return the exit code of a command.

    ``run`` is what ``snowl_compat.read_run`` takes, or ``-`` for standard
    input. 0 is fine, also when the reader closed the pipe; 1 is a run that cannot be
    read, told in one line on standard error.
    """
    if sys.stdout is None:
        return _refused("standard output: cannot be written: it is closed")
    try:
        text = page(build_payload(read_run(run), extended=True))
    except SnowlCompatError as error:
        return _refused(str(error))
    except OSError as error:
        return _refused(f"{error.filename}: {error.strerror}")
    try:
        # UTF-8 whatever the locale says.
        sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has enough; the interpreter's last flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _refused(line: str) -> int:
    if sys.stderr is not None:
        sys.stderr.buffer.write(f"{_printable(line)}\n".encode("utf-8", "backslashreplace"))
    return 1


def page(payload: Mapping[str, Any]) -> str:
    """Return the text of one extended payload for people."""
    parts = {
        "Run": _run_part(payload),
        "Configuration": _config_part(payload["engine_config"]),
        "Tools": _tool_part(payload["tool_permissions"]),
        "Critics": _critic_part(payload["critic_traces"]),
        "Handoffs": _handoff_part(payload["handoff_traces"]),
        "Issues": _issue_part(payload["run"]["issues"]),
    }
    return "\n\n".join("\n".join([name, *(body or ["  none"])]) for name, body in parts.items())


def _run_part(payload: Mapping[str, Any]) -> list[str]:
    run, config = payload["run"], payload["engine_config"]
    calls = (run["tool_calls_by_name"] or {}).items()
    complete = {True: "no: there is no END event", False: "yes"}
    return _pairs(
        {
            "run": run["run_id"],
            "agent": config["agent_name"],
            "model": config["model_id"],
            "steps": payload["step_count"],
            "stop reason": run["stop_reason"],
            "complete": complete.get(run["partial"]),
            "result": run["final_result"],
            "seconds": run["runtime_seconds"],
            "tokens": run["total_tokens"],
            "tool calls": ", ".join(f"{_cell(count)} {name}" for name, count in calls),
            "success rate": run["success_rate"],
        }
    )


def _config_part(config: Mapping[str, Any]) -> list[str]:
    budget = {word: config[name] for name, word in _BUDGET_WORDS.items()}
    attached = [name[4:].replace("_", " ") for name, value in config.items() if value is True]
    return _pairs(
        {
            "budget": ", ".join(f"{n} {word}" for word, n in budget.items() if n is not None),
            "protocol": config["protocol_id"],
            "critics": ", ".join(config["critic_names"]),
            "stop criteria": ", ".join(config["stop_criteria_names"]),
            "attached": ", ".join(attached),
            "delegated": config["delegate_depth"] or None,
        }
    )


def _tool_part(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for spec in specs:
        allowed = [name.replace("_", " ") for name, flag in spec["permissions"].items() if flag]
        notes = [word for name, word in _SPEC_WORDS.items() if spec[name]]
        notes += [f"needs {name}" for name in spec["required_ops"]]
        rows.append((spec["name"], ", ".join(allowed), ", ".join(notes)))
    return _table([("tool", 24, False), ("may use", 24, False), ("notes", 80, False)], rows)


def _critic_part(traces: Sequence[Mapping[str, Any]]) -> list[str]:
    names = ("step_id", "critic_name", "action", "score", "reason")
    columns = [("step", 7, True), ("critic", 18, False), ("action", 9, False)]
    columns += [("score", 8, True), ("reason", 80, False)]
    return _table(columns, [[row[name] for name in names] for row in traces])


def _handoff_part(traces: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for row in traces:
        way = f"{_fit(_cell(row['from_agent']), 21).rstrip()} -> {row['to_agent']}"
        rows.append((row["step_id"], way, row["context_strategy"], row["messages_passed"]))
    columns = [("step", 7, True), ("handoff", 46, False), ("context", 9, False)]
    return _table([*columns, ("messages", 8, True)], rows)


def _issue_part(issues: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for issue in issues[:_MOST_ROWS]:
        first, *more = _wrapped(_cell(f"{issue['path']}: {issue['message']}"), _WIDTH - 4)
        lines += [f"  {first}", *(f"    {line}" for line in more)]
    return lines + _rest(issues)


def _pairs(pairs: Mapping[str, Any]) -> list[str]:
    """Lines of labels and values; what is not known has no line."""
    lines = []
    for label, value in pairs.items():
        if value not in (None, "", {}):
            for part in _wrapped(_cell(value), _WIDTH - 18):
                lines.append(f"  {label:<16}{part}")
                label = ""
    return lines


def _table(columns: Iterable[Column], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a table; a column that is empty in every row is left out."""
    cells = [[_cell(value) for value in row] for row in rows[:_MOST_ROWS]]
    lines = [""] * (len(cells) + 1) if cells else []
    for index, (head, most, right) in enumerate(columns):
        column = [head, *(row[index] for row in cells)]
        if any(column[1:]):
            left = _WIDTH - 2 - _columns(lines[0])
            width = min(most, left, max(map(_columns, column)))
            lines = [f"{line}  {_fit(cell, width, right)}" for line, cell in zip(lines, column)]
    return [*(line.rstrip() for line in lines), *_rest(rows)]


def _rest(items: Sequence[Any]) -> list[str]:
    left = len(items) - _MOST_ROWS
    return [f"  ... and {left} more"] if left > 0 else []


def _cell(value: Any) -> str:
    """A value on one line: numbers short, control characters escaped."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.3g}"
    text = value
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text if len(text) <= 300 else text[:297] + "..."
    return _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _columns(text: str) -> int:
    """Columns on a terminal, where most CJK characters and emoji take two."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _fit(text: str, width: int, right: bool = False) -> str:
    """The text cut to a number of columns, and filled up to it."""
    if _columns(text) > width:
        text = text[:width]
        while _columns(text) > width - 3:
            text = text[:-1]
        text += "..."
    room = " " * (width - _columns(text))
    return room + text if right else text + room


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of so many columns, broken at spaces where it has any."""
    lines = []
    while _columns(text) > width:
        end = width
        while _columns(text[:end]) > width:
            end -= 1
        space = text.rfind(" ", 1, end + 1)
        end = space if space > 0 else end
        lines.append(text[:end])
        text = text[end:].lstrip()
    return [*lines, text]
