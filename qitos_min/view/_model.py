"""One model of a run for people; both pages are made of it.

Runs are read through ``snowl_compat``'s public names only. The lines of a run may hold any
JSON value anywhere, so that a value of another type than expected reads as one that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, groupby, zip_longest
from typing import Any, NamedTuple

from snowl_compat import build_payload, read_run

from ._words import words

_EDGE = 200  # Steps at either end of a run that are shown whatever happened in them.
_SHOWN = {
    "critic_traces": ("step_id", "critic_name", "action", "score", "reason"),
    "handoff_traces": ("step_id", "from_agent", "to_agent", "context_strategy", "messages_passed"),
}
_OUTSIDE = {"INIT", "END", "SESSION_START", "SESSION_END"}
"""Phases that belong to the run and to no step, like those of toolsets."""
_BUDGETS = ("steps", "runtime_seconds", "tokens")
_SPEC_WORDS = {
    "needs_approval": "asks first",
    "read_only": "read only",
    "concurrency_safe": "parallel",
}


class Call(NamedTuple):
    """One tool call of a step; times in seconds since the run began."""

    name: str
    args: Any
    status: str
    error: str
    result: Any
    began: float
    seconds: float | None


@dataclass(frozen=True)
class Step:
    """One step; ``record`` is None when the page leaves its details out."""

    position: int
    number: Any
    agent: str
    began: float
    ended: float
    marks: tuple[str, ...]  # Of ``error``, ``retry``, ``stop`` and ``handoff``.
    record: Mapping[str, Any] | None
    errors: tuple[str, ...]  # What its events say; errors of calls are theirs.
    critics: tuple[Mapping[str, Any], ...]
    acted: float  # When its tools began.

    @property
    def decision(self) -> Mapping[str, Any]:
        """What was decided; empty without a decision."""
        return _mapping((self.record or {}).get("decision"))


@dataclass(frozen=True)
class Run:
    """What both pages show of a run."""

    payload: Mapping[str, Any]  # The extended payload.
    task: Any
    steps: tuple[Step, ...]
    failures: tuple[Mapping[str, Any], ...]
    timed: bool  # Whether times are seconds; without any in the trace a step is one long.
    length: float  # From the begin of the first step to the end of the last, never 0.

    @property
    def name(self) -> str:
        """The run's id, or else where it was read from."""
        run = self.payload["run"]
        return words(run["run_id"] or run["source"] or "run")

    @property
    def facts(self) -> dict[str, Any]:
        """Label -> value of the head; what is not known is not in it."""
        run, config = self.payload["run"], self.payload["engine_config"]
        counted = (run["tool_calls_by_name"] or {}).items()
        complete = {True: "no: there is no END event", False: "yes"}
        return _said(
            {
                "run": run["run_id"],
                "task": self.task,
                "agent": config["agent_name"],
                "model": config["model_id"],
                "steps": self.payload["step_count"],
                "stop reason": run["stop_reason"],
                "complete": complete.get(run["partial"]),
                "result": run["final_result"],
                "seconds": run["runtime_seconds"],
                "tokens": run["total_tokens"],
                "tool calls": ", ".join(f"{words(count)} {name}" for name, count in counted),
                "success rate": run["success_rate"],
            }
        )

    @property
    def configuration(self) -> dict[str, Any]:
        """Label -> value of how the engine was configured."""
        config = self.payload["engine_config"]
        budget = {name: config[f"budget_max_{name}"] for name in _BUDGETS}
        attached = [name[4:].replace("_", " ") for name, value in config.items() if value is True]
        return _said(
            {
                "budget": ", ".join(
                    f"{most} {name.removeprefix('runtime_')}"
                    for name, most in budget.items()
                    if most is not None
                ),
                "protocol": config["protocol_id"],
                "critics": ", ".join(config["critic_names"]),
                "stop criteria": ", ".join(config["stop_criteria_names"]),
                "attached": ", ".join(attached),
                "delegated": config["delegate_depth"] or None,
            }
        )

    @property
    def tools(self) -> list[tuple[str, str, str, str]]:
        """Name, what it may use, notes and description of each tool."""
        rows = []
        for spec in self.payload["tool_permissions"]:
            allowed = [name.replace("_", " ") for name, flag in spec["permissions"].items() if flag]
            notes = [word for name, word in _SPEC_WORDS.items() if spec[name]]
            notes += [f"needs {name}" for name in spec["required_ops"]]
            rows.append((spec["name"], ", ".join(allowed), ", ".join(notes), spec["description"]))
        return rows

    @property
    def score(self) -> float | None:
        """The last score that a critic gave."""
        scores = [row["score"] for row in self.payload["critic_traces"]]
        return next((score for score in reversed(scores) if score is not None), None)

    @property
    def groups(self) -> list[list[Step]]:
        """The steps in their order: each alone, but stretches that are left out together."""
        keys = (step.agent if step.record is None else step.position for step in self.steps)
        pairs = groupby(zip(keys, self.steps), key=lambda pair: pair[0])
        return [[step for _, step in group] for _, group in pairs]


def cells(run: Run, part: str) -> list[list[Any]]:
    """Return what tables show of the rows of ``critic_traces`` or ``handoff_traces``."""
    return [[row[name] for name in _SHOWN[part]] for row in run.payload[part]]


def load(path: str) -> Run:
    """Return the run that ``snowl_compat.read_run`` finds at a path.

    Raises ``SnowlCompatError`` for what cannot be read.
    """
    run = read_run(path)
    payload = build_payload(run, extended=True)
    records = _lines(run, "records")
    alone = next(iter(records), None) is None
    seen = _Seen(_events(run, records), alone)
    if alone:
        records = list(seen.made.values())
    steps = tuple(_steps(payload, records, seen))
    report = _mapping(run.get("failure_report"))
    failures = [run.get("failure"), *_list(report.get("failures"))]
    first = steps[0].record if steps and steps[0].record else {}
    task = seen.task or run.get("task") or _mapping(first.get("observation")).get("task")
    return Run(
        payload,
        task,
        steps,
        tuple(row for row in failures if isinstance(row, dict)),
        bool(seen.spans),
        max((step.ended for step in steps), default=0.0) or 1e-6,
    )


class _Seen:
    """What the events of a run say of its steps.

    ``every`` makes a record of each step, and not only of the last: a run may be cut off.
    """

    def __init__(self, events: Iterable[Any], every: bool) -> None:
        self.task: Any = None
        self.spans: dict[Any, list[Any]] = {}
        """Step -> when it began, when it ended, when its tools began."""
        self.errors: dict[Any, list[str]] = {}
        self.made: dict[Any, dict[str, Any]] = {}
        for event in events:
            if isinstance(event, dict):
                phase = words(event.get("phase")).rpartition(".")[2].upper()
                self._take(event, phase, every)
        for step, span in list(self.spans.items()):
            times = [_seconds(stamp) for stamp in span]
            known = [value for value in times if value is not None]
            if known:
                began, ended = min(known), max(known)
                self.spans[step] = [began, ended, began if times[2] is None else times[2]]
            else:
                del self.spans[step]

    def _take(self, event: Mapping[str, Any], phase: str, every: bool) -> None:
        payload, number = _mapping(event.get("payload")), event.get("step_id")
        if phase == "INIT":
            self.task = payload.get("task")
        if phase in _OUTSIDE or phase.startswith("TOOLSET") or not _is_number(number):
            return
        stamp, stage, error = event.get("ts"), payload.get("stage"), event.get("error")
        span = self.spans.setdefault(number, [stamp, stamp, None])
        span[1] = stamp
        if phase == "ACT" and stage == "start":
            span[2] = stamp
        if error or event.get("ok") is False:
            self.errors.setdefault(number, []).append(words(error or phase))
        if number not in self.made and not every:
            self.made.clear()
        made = self.made.setdefault(number, {"step_id": number})
        if stage in ("decision_ready", "action_results", "state_reduced"):
            made.update(payload, step_id=number)
            if stage == "decision_ready":
                made["decision"] = payload


def _lines(run: Mapping[str, Any], name: str) -> Any:
    """What can be gone over several times under a name of a run that was read."""
    found = run.get(name)
    if name == "records" and "decision" in run:
        return [run]  # It is one record.
    found = list(found.values()) if isinstance(found, dict) else found
    return found if hasattr(found, "__iter__") and not isinstance(found, str) else []


def _events(run: Mapping[str, Any], records: Iterable[Any]) -> Iterator[Any]:
    held = (_list(record.get("phase_events")) for record in filter(_mapping, records))
    return chain(_lines(run, "events"), *([] if "events" in run else held))


def _steps(payload: Mapping[str, Any], records: Iterable[Any], seen: _Seen) -> list[Step]:
    critics: dict[Any, list[Any]] = {}
    for row in payload["critic_traces"]:
        critics.setdefault(row["step_id"], []).append(row)
    handoffs = {row["step_id"]: row for row in payload["handoff_traces"]}
    start = min((span[0] for span in seen.spans.values()), default=0.0)
    steps: list[Step] = []
    agent = payload["engine_config"]["agent_name"]
    unseen = dict(seen.made)
    # What is still unseen when the records are at their end.
    rest = (made for number, made in seen.made.items() if number in unseen)
    for record in filter(_mapping, chain(records, rest)):
        number = record.get("step_id")
        number = number if _is_number(number) else len(steps)
        unseen.pop(number, None)
        agent = words(record.get("agent_id") or agent)
        # A recovery repeats the error.
        errors = tuple(dict.fromkeys(seen.errors.get(number, ())))
        rows = critics.pop(number, [])
        failed = any(row.get("error") or row.get("status") == "error" for row in _rows(record))
        marks = ["error"] if errors or failed else []
        actions = {row["action"] for row in rows}
        marks += [name for name in ("retry", "stop") if name in actions]
        marks += ["handoff"] if number in handoffs else []
        ended = steps[-1].ended if steps else 0.0
        times = [ended, ended, ended] if seen.spans else [ended, ended + 1, ended]
        if number in seen.spans:
            times = [value - start for value in seen.spans[number]]
        steps.append(
            Step(len(steps), number, agent, times[0], times[1], tuple(marks), record,
                 errors, tuple(rows), times[2])
        )  # fmt: skip
        middle = len(steps) - 1 - _EDGE
        if middle >= _EDGE and not steps[middle].marks:  # Nothing stands out in it.
            steps[middle] = replace(steps[middle], record=None, critics=())
        agent = handoffs.get(number, {}).get("to_agent") or agent
    return steps


def _rows(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [_mapping(row) for row in _list(record.get("tool_invocations"))]


def calls(step: Step) -> list[Call]:
    """Return the tool calls of a step that is shown, in the order of its decision."""
    record = step.record or {}
    actions = _list(record.get("actions")) or _list(step.decision.get("actions"))
    results, rows = _list(record.get("action_results")), _rows(record)
    times = [row.get("latency_ms") for row in rows]
    taken = [ms / 1000 if _is_number(ms) and ms >= 0 else None for ms in times]
    begins = _begins(step.acted, taken, _mapping(record.get("action_execution")).get("segments"))
    found = []
    for n, (action, row, result) in enumerate(zip_longest(actions, rows, results)):
        action, row = _mapping(action), row or {}
        name = words(action.get("name") or row.get("tool_name") or "also returned")
        status = words(row.get("status") or _mapping(result).get("status") or "")
        error = words(row.get("error") or "")
        if error and isinstance(result, dict):
            result = result.get("output", result)  # The rest repeats what the call says.
        began, seconds = (begins[n], taken[n]) if n < len(rows) else (step.acted, None)
        found.append(Call(name, action.get("args"), status, error, result, began, seconds))
    return found


def _begins(acted: float, seconds: list[float | None], segments: Any) -> list[float]:
    """When each call began: those of a segment together, one segment after the other."""
    begins = [acted] * len(seconds)
    order = [group for group in _list(segments) if isinstance(group, list)]
    for group in order or [[index] for index in range(len(seconds))]:
        own = [n for n in group if type(n) is int and 0 <= n < len(seconds)]
        for index in own:
            begins[index] = acted
        acted += max((seconds[index] or 0 for index in own), default=0)
    return begins


def _said(pairs: Mapping[str, Any]) -> dict[str, Any]:
    return {label: value for label, value in pairs.items() if value not in (None, "", {}, [])}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -1e15 < value < 1e15


def _seconds(stamp: Any) -> float | None:
    if _is_number(stamp):
        return float(stamp)
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    except (AttributeError, TypeError, ValueError, OverflowError, OSError):
        return None
