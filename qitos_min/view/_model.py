"""One model of a run for people, and values as words; the page and the terminal print it.

Where a run holds a value of another type than expected, it reads as one that is missing.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from snowl_compat import build_payload, dumps, read_run

Row = Mapping[str, Any]
Table = list[Row]  # Rows with the same keys, which are the heads.
Told = Iterator[tuple[str, Any]]
_EDGE = 200  # Steps at either end of a run that are shown whatever happened in them.
_OUTSIDE = ("INIT", "END", "SESSION_", "TOOLSET")  # So begin the phases of no step.


class Call(NamedTuple):
    """One tool call of a step; times in seconds since the run began."""

    name: str
    args: Any
    status: str
    error: str
    result: Any
    began: float
    seconds: float | None


class Step(NamedTuple):
    """One step, or a stretch of steps, ``left`` of them, whose details are left out."""

    position: int
    number: Any
    last: Any  # The number of the last step of a stretch.
    agent: str
    mode: str
    began: float
    ended: float
    marks: Sequence[str]  # Of ``error``, ``retry``, ``stop`` and ``handoff``.
    calls: Sequence[Call]
    left: int = 0
    told: Sequence[tuple[str, Any]] = ()  # Labels (``call``, ``state`` with a table) and values.


class Run(NamedTuple):
    name: str  # Its id, or else where it was read from.
    payload: Row  # The extended payload.
    facts: Row  # Label -> value of the head; what is not known is not in it.
    failures: Sequence[tuple[str, str]]  # What failed and where, and the traceback.
    steps: Sequence[Step]
    length: float  # Seconds from the begin of the first step to the end of the last; 0 unknown.
    parts: Mapping[str, Table | Row]  # Title -> a table, or values by their labels.


def load(path: str) -> Run:
    """The run that ``snowl_compat.read_run`` finds, else its ``SnowlCompatError``."""
    source = read_run(path)
    payload, rows = build_payload(source, extended=True), enumerate(_objects(source.get("records")))
    records = [row if _is_number(row.get("step_id")) else {**row, "step_id": n} for n, row in rows]
    run, (task, seen) = payload["run"], _seen(source, records)
    first = _as(dict, records[0].get("observation")) if records else {}
    counts = (run["tool_calls_by_name"] or {}).items()
    called = ", ".join(f"{count} {name}" for name, count in counts)
    scores = [row["score"] for row in payload["critic_traces"] if row["score"] is not None]
    facts = {"task": task or source.get("task") or first.get("task"), **run}
    facts |= {"tool_calls_by_name": called, "source": None, "issues": len(run["issues"])}
    facts |= {"model": payload["engine_config"]["model_id"], "steps": payload["step_count"]}
    head = _said({**facts, "last_score": scores[-1] if scores else None})
    steps = _steps(payload, records + [s.record for s in seen.values() if s.record], seen)
    name = words(run["run_id"] or run["source"] or "run")
    length = max((step.ended for step in steps), default=0.0)
    return Run(name, payload, head, [*_failures(source)], steps, length, _parts(payload))


def _parts(payload: Row) -> dict[str, Table | Row]:
    known = {name: v for name, v in payload["engine_config"].items() if v is not False}
    config = {name: ", ".join(v) if isinstance(v, list) else v for name, v in known.items()}
    tools = []
    for spec in payload["tool_permissions"]:
        notes = _flags(spec) + [f"needs {op}" for op in spec["required_ops"]]
        may_use = ", ".join(_flags(spec["permissions"]))
        tools.append({**spec, "may_use": may_use, "notes": ", ".join(notes)})
    critics, moves = "critic_name action score reason", "context_strategy messages_passed"
    return {
        "Configuration": _said(config),
        "Tools": _table(tools, "name may_use notes description"),
        "Critics": _table(payload["critic_traces"], f"step_id {critics}"),
        "Handoffs": _table(payload["handoff_traces"], f"step_id from_agent to_agent {moves}"),
        "Issues": _table(payload["run"]["issues"], "path message"),
    }


def _table(rows: Iterable[Row], names: str) -> Table:
    return [{name.replace("_", " "): row[name] for name in names.split()} for row in rows]


def _flags(row: Row) -> list[str]:
    return [name.replace("_", " ") for name, value in row.items() if value is True]


def _said(pairs: Row) -> Row:
    """The pairs that have a value, under labels for their names."""
    none: tuple[Any, ...] = (None, "", {}, [])
    return {name.replace("_", " "): value for name, value in pairs.items() if value not in none}


def _failures(source: Row) -> Told:
    report = _as(dict, source.get("failure_report"))
    for row in _objects([source.get("failure"), *_as(list, report.get("failures"))]):
        named = (words(row.get(name)) for name in ("type", "message", "phase", "step_id"))
        yield "{}: {} ({}, step {})".format(*named), words(row.get("traceback") or "")


class _Seen(NamedTuple):  # What the events of a step say of it.
    record: dict[str, Any]  # What stands for the record of a step that has none.
    times: list[float]
    acted: list[float]  # When its tools began.
    errors: dict[str, None]  # In their order; a recovery repeats the error.


def _seen(source: Row, records: Sequence[Row]) -> tuple[Any, dict[Any, _Seen]]:
    """The task, and what was seen of each step; those without a record get one."""
    task: Any = None
    steps = {record["step_id"]: _Seen({}, [], [], {}) for record in records}
    held = chain.from_iterable(_as(list, record.get("phase_events")) for record in records)
    for event in _objects(source.get("events", held)):
        phase = words(event.get("phase")).rpartition(".")[2].upper()
        payload, number = _as(dict, event.get("payload")), event.get("step_id")
        if phase == "INIT":
            task = payload.get("task")
        if phase.startswith(_OUTSIDE) or not _is_number(number):
            continue
        seen = steps.setdefault(number, _Seen({"step_id": number}, [], [], {}))
        stage, error, time = payload.get("stage"), event.get("error"), _seconds(event.get("ts"))
        if time is not None:
            seen.times.append(time)
            seen.acted.extend([time] if phase == "ACT" and stage == "start" else [])
        if error or event.get("ok") is False:
            seen.errors[words(error or phase)] = None
        if seen.record and stage in ("decision_ready", "action_results", "state_reduced"):
            seen.record.update(payload, step_id=number)
            if stage == "decision_ready":
                seen.record["decision"] = payload
    return task, steps


def _steps(payload: Row, records: Sequence[Row], seen: Mapping[Any, _Seen]) -> list[Step]:
    verdicts: dict[Any, list[Row]] = {}
    for row in payload["critic_traces"]:
        verdicts.setdefault(row["step_id"], []).append(row)
    handoffs = {row["step_id"]: row["to_agent"] for row in payload["handoff_traces"]}
    start = min(chain.from_iterable(found.times for found in seen.values()), default=0.0)
    agent, ended = payload["engine_config"]["agent_name"], 0.0
    steps: list[Step] = []
    for position, record in enumerate(records):
        number = record["step_id"]
        agent, found = words(record.get("agent_id") or agent), seen[number]
        own, began, acted = verdicts.pop(number, []), ended, ended
        if found.times:
            began, ended = min(found.times) - start, max(found.times) - start
            acted = found.acted[-1] - start if found.acted else began
        mode = words(_as(dict, record.get("decision")).get("mode") or "no decision")
        calls = _calls(record, acted)
        is_bad = found.errors or any(call.error or call.status == "error" for call in calls)
        marks = ["error"] if is_bad else []
        marks += [mark for mark in ("retry", "stop") if any(row["action"] == mark for row in own)]
        marks += ["handoff"] if number in handoffs else []
        step = Step(position, number, number, agent, mode, began, ended, marks, calls)
        if marks or min(position, len(records) - 1 - position) < _EDGE:
            steps.append(step._replace(told=[*_told(record, found, calls, own)]))
        elif steps[-1].left and steps[-1].agent == agent:
            left = steps[-1].left + 1
            steps[-1] = steps[-1]._replace(last=number, ended=ended, left=left)
        else:
            steps.append(step._replace(left=1, calls=()))
        agent = handoffs.get(number) or agent
    return steps


def _told(record: Row, seen: _Seen, calls: list[Call], verdicts: Table) -> Told:
    decision = _as(dict, record.get("decision"))
    said = {"why": "rationale", "answer": "final_answer", "to": "target"}
    yield from (("error", error) for error in seen.errors)
    yield from _said({label: decision.get(name) for label, name in said.items()}).items()
    yield from (("call", call) for call in calls)
    changes = []
    for name, change in _as(dict, record.get("state_diff")).items():
        change = change if isinstance(change, dict) else {"after": change}
        changes.append({"field": name, **{at: change.get(at) for at in ("before", "after")}})
    if changes:
        yield "state", changes
    for row in verdicts:
        score = "no score" if row["score"] is None else words(row["score"])
        text = f"{row['critic_name']}: {row['action']}, {score}. {row['reason']}"
        yield row["action"] if row["action"] in ("retry", "stop") else "critic", text
        if row["instruction_patch"] is not None:
            yield "instruction", row["instruction_patch"]


def _calls(record: Row, acted: float) -> list[Call]:
    """The tool calls of a record, in the order of its decision, whose tools began at a time."""
    names = ("actions", "tool_invocations", "action_results")
    actions, rows, results = (_as(list, record.get(name)) for name in names)
    actions = actions or _as(list, _as(dict, record.get("decision")).get("actions"))
    segments = _as(list, _as(dict, record.get("action_execution")).get("segments"))
    together = [segment for segment in segments if isinstance(segment, list)]
    began = ended = acted
    calls = []
    for n, (action, row, result) in enumerate(zip_longest(actions, rows, results)):
        action, row, said = _as(dict, action), _as(dict, row), _as(dict, result)
        time, error = row.get("latency_ms"), words(row.get("error") or "")
        seconds = time / 1000 if _is_number(time) and time >= 0 else None
        if not any(n in segment and n - 1 in segment for segment in together):
            began = ended
        ended = max(ended, began + (seconds or 0))
        name = words(action.get("name") or row.get("tool_name") or "also returned")
        status = words(row.get("status") or said.get("status") or "")
        if error:
            result = said.get("output", result)  # The rest repeats what the call says.
        calls.append(Call(name, action.get("args"), status, error, result, began, seconds))
    return calls


def _objects(found: Any) -> list[dict[str, Any]]:
    return [row for row in (found if hasattr(found, "__iter__") else ()) if isinstance(row, dict)]


def _as(kind: type, value: Any) -> Any:
    return value if isinstance(value, kind) else kind()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -1e15 < value < 1e15


def _seconds(stamp: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def duration(seconds: float) -> str:
    """Seconds as people say them: ``0.4 ms``, ``12 ms``, ``3.2 s``, ``4 min 5 s``."""
    if seconds < 0.9995:
        value = seconds * 1000
        return f"{value:.0f} ms" if value >= 9.95 or not value else f"{value:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def words(value: Any) -> str:
    """A value as text: numbers short, what is no text as JSON."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.3g}"
    return value if isinstance(value, str) else dumps(value)


def shortened(value: Any, limit: int) -> str:
    """A value as text, or the begin of that and how many characters are left out."""
    text = words(value)
    left = len(text) - limit
    return text if left <= 0 else f"{text[:limit]} ... and {left:,} more characters"


def printable(text: str, keep: str = "") -> str:
    """The text with what a reader could not see, or a terminal obey, as JSON escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else json.dumps(c)[1:-1] for c in text)


def html_text(value: Any, limit: int = 200) -> str:
    """A value, shortened, as text of a page: nothing in it is markup."""
    return html.escape(printable(shortened(value, limit), "\n\t"))
