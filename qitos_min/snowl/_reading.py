"""What a run says to Snowl, as strict JSON, and how it gets on Snowl's state.

Snowl writes all trials of an evaluation in one go, and one value that JSON cannot
hold loses them all; so everything is converted before it reaches the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from snowl_compat import (
    SCHEMA_VERSION,
    Issue,
    SnowlCompatError,
    build_payload,
    critic_traces,
    to_json_value,
)

from ._peek import described, error_text, peek, peek_rows, peek_text, traced, whole

__all__ = ["Config", "EVENT_NAME", "Told", "fill", "kind_of", "step_event", "task_of", "tell"]

Payload = dict[str, Any]
EVENT_NAME = "qitos.snowl_payload"


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the runs of an agent are made; raises ``SnowlCompatError`` for bad values."""

    max_steps: int | None = None
    engine_kwargs: Mapping[str, Any] | None = None
    state_kwargs: Mapping[str, Any] | None = None
    event_name: str = EVENT_NAME
    strict: bool = False

    def __post_init__(self) -> None:
        steps = self.max_steps
        if steps is not None and (type(steps) is not int or steps < 1):
            raise SnowlCompatError(f"expected an int >= 1, got {kind_of(steps)}", "max_steps")
        for name in ("engine_kwargs", "state_kwargs"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Mapping):
                raise SnowlCompatError(f"expected a mapping, got {kind_of(value)}", name)
        if not isinstance(self.event_name, str) or not self.event_name.strip():
            text = f"expected a name, got {kind_of(self.event_name)}"
            raise SnowlCompatError(text, "event_name")
        if steps is not None and "budget" in (self.engine_kwargs or ()):
            raise SnowlCompatError("expected no budget beside max_steps", "engine_kwargs")


def kind_of(value: Any) -> str:
    """Return a value as messages show it: a plain one itself, else its type's name."""
    plain = value is None or isinstance(value, (bool, int, float, str))
    return repr(value)[:80] if plain else type(value).__name__


class SnowlStop(str, Enum):
    """Snowl compares the text and asks for ``.value``: a plain str will not do."""

    COMPLETED = "completed"
    MAX_STEPS = "max_steps"
    LIMIT_EXCEEDED = "limit_exceeded"
    CANCELLED = "cancelled"
    ERROR = "error"


_STOPS = {
    SnowlStop.COMPLETED: "success final final_result agent_condition critic_stop env_terminal",
    SnowlStop.MAX_STEPS: "max_steps budget_steps stagnation",
    SnowlStop.LIMIT_EXCEEDED: "budget_time budget_tokens context_overflow",
    SnowlStop.CANCELLED: "cancelled_immediate cancelled_after_step interrupt",
}
"""Snowl's stop reasons, each with those of QitOS; any other is an error."""
_STOP_OF = {word: stop for stop, words in _STOPS.items() for word in words.split()}


class SnowlAction(NamedTuple):
    action_type: str
    payload: Payload


class SnowlObservation(NamedTuple):
    observation_type: str
    payload: Payload


class Failure(NamedTuple):
    """What ended a run; None is what nobody knows."""

    category: str | None = None
    type: str | None = None
    message: str | None = None
    phase: str | None = None
    step_id: int | None = None
    traceback: str | None = None

    @property
    def text(self) -> str:
        """What, where and when: ``KeyError: 'zzz' (DECIDE, step 0)``."""
        kind = self.type
        if kind in (SnowlCompatError.__name__, self.message):
            kind = None  # It would say nothing more.
        what = ": ".join(filter(None, (kind, self.message)))
        step = None if self.step_id is None else f"step {self.step_id}"
        where = ", ".join(filter(None, (self.phase, step)))
        return f"{what} ({where})" if where else what


class Told(NamedTuple):
    """All that one run says to Snowl, beside the result itself."""

    result: Any
    payload: Payload
    messages: list[Payload]
    actions: list[SnowlAction]
    observations: list[SnowlObservation]
    output: Payload
    stop: SnowlStop
    failure: Failure | None
    cause: BaseException | None


def task_of(state: Any) -> str:
    """Return the text of the last user message, its parts as lines."""
    for message in reversed(peek_rows(state, "messages")):
        if peek_text(message, "role") == "user":
            content = peek(message, "content")
            parts = content if isinstance(content, (list, tuple)) else [content]
            texts = (p if isinstance(p, str) else peek(p, "text") for p in parts)
            task = "\n".join(text for text in texts if isinstance(text, str))
            if task.strip():
                return task
            raise SnowlCompatError("the last user message has no text")
    raise SnowlCompatError("the state has no user message")


def tell(
    result: Any,
    config: Config,
    *,
    engine: Any = None,
    cause: BaseException | None = None,
    seen: BaseException | None = None,
) -> Told:
    """Read a result, a bare answer, or what is left after ``cause`` was raised.

    ``seen`` is the last exception that the engine told a hook of.
    """
    source = result
    if peek(result, "records", "events", "step_count", "task_result") is None:
        source = {"step_count": 0, "final_result": result if cause is None else None}
    issues: list[Issue] = []
    payload: Payload = {**build_payload(source, engine=engine, issues=issues)}
    if payload["engine_config"]["budget_max_steps"] is None:
        payload["engine_config"]["budget_max_steps"] = config.max_steps
    records = peek_rows(source, "records")
    steps = list(_step_events(records, payload["critic_traces"]))
    answer, stop, failure = _ending(source, seen)
    if cause is not None:
        failure = Failure(None, type(cause).__name__, error_text(cause), traceback=traced(cause))
    elif failure is None and config.strict and issues:
        error = SnowlCompatError(issues[0].message, issues[0].path)
        failure = Failure(type=type(error).__name__, message=str(error))
    first = {"event": config.event_name, "schema_version": SCHEMA_VERSION, "payload": payload}
    events = [{**first, "issues": [issue._asdict() for issue in issues]}, *steps]
    if failure is not None:
        events.append({"event": "qitos.failure", **failure._asdict()})
    output: Payload = {
        "message": {"role": "assistant", "content": answer or ""},
        "usage": _usage(source),
        "artifacts": _artifacts(source, records),
        "trace_events": events,
    }
    return Told(
        result=result,
        payload=payload,
        messages=[] if answer is None else [{**output["message"]}],
        actions=[call for record in records for call in _actions(record)],
        observations=[found for pair in zip(records, steps) for found in _observations(*pair)],
        output=output,
        stop=stop if failure is None else SnowlStop.ERROR,
        failure=failure,
        cause=cause,
    )


def fill(state: Any, told: Told) -> Any:
    """Put a told run on Snowl's state, in lists of its own, and return the state."""
    for name in ("messages", "actions", "observations"):
        setattr(state, name, [*getattr(state, name), *getattr(told, name)])
    state.output, state.stop_reason = told.output, told.stop
    return state


def _ending(
    source: Any, seen: BaseException | None
) -> tuple[str | None, SnowlStop, Failure | None]:
    """The answer, how the run ended, and the failure if it did so with one."""
    places = (peek(source, "task_result"), peek(source, "state"), source)
    found = (peek(place, "final_result") for place in places)
    answer = to_json_value(next((a for a in found if a is not None), None))
    if not isinstance(answer, (str, type(None))):
        answer = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    reasons = (peek_text(place, "stop_reason") for place in reversed(places))
    reason = next(filter(None, reasons), "").strip().lower()
    known = SnowlStop.COMPLETED if not reason and answer is not None else SnowlStop.ERROR
    stop = _STOP_OF.get(reason, known)
    failed = stop is SnowlStop.ERROR
    return answer, stop, _failure_of(source, reason, seen) if failed else None


def step_event(
    record: Any, index: int, verdicts: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return one step at a glance, for people who follow the trace.

    Its calls say ``tool_name``: rows with ``name`` are calls to Snowl's
    scorers, which would then count each a second time.
    """
    step_id = whole(peek(record, "step_id"))
    shown = ("critic_name", "action", "reason", "score")
    rows: Sequence[Mapping[str, Any]] = (
        verdicts if verdicts is not None else critic_traces([record])
    )
    return {
        "event": "qitos.step",
        "step_id": index if step_id is None else step_id,
        "agent_id": peek_text(record, "agent_id") or None,
        "mode": peek_text(peek(record, "decision"), "mode") or None,
        "tool_calls": [_call(call) for call in peek_rows(record, "tool_invocations")],
        "critics": [{name: row[name] for name in shown} for row in rows],
    }


def _step_events(
    records: list[Any], verdicts: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The payload's rows belong to the records in order, and there all have names."""
    first = 0
    for index, record in enumerate(records):
        last = first + len(critic_traces([record]))
        yield step_event(record, index, verdicts[first:last])
        first = last


def _call(call: Any) -> dict[str, Any]:
    latency = to_json_value(peek(call, "latency_ms"))
    is_number = isinstance(latency, (int, float)) and not isinstance(latency, bool)
    row = {
        "tool_name": peek_text(call, "tool_name", "name"),
        "status": peek_text(call, "status") or None,
        "latency_ms": latency if is_number else None,
    }
    error = peek_text(call, "error")
    return {**row, "error": error} if error else row


def _actions(record: Any) -> Iterator[SnowlAction]:
    """The calls that a step decided on, in order."""
    decided = peek_rows(record, "actions")
    for action in decided or peek_rows(peek(record, "decision"), "actions"):
        args = to_json_value(peek(action, "args"))
        if not isinstance(args, dict):
            args = {} if args is None else {"value": args}
        payload = {"tool_name": peek_text(action, "name"), "arguments": args}
        call_id = peek_text(action, "action_id")
        yield SnowlAction("tool_call", {**payload, "tool_call_id": call_id} if call_id else payload)


def _observations(record: Any, step: Payload) -> Iterator[SnowlObservation]:
    """A step's results in order, each under the name of the call it belongs to.

    Results follow the invocations, not the actions: QitOS appends what the
    environment says, and that is no tool's result.
    """
    results, calls = peek(record, "action_results"), step["tool_calls"]
    results = list(results) if isinstance(results, (list, tuple)) else []
    results += [{"error": call.get("error")} for call in calls[len(results) :]]
    for index, result in enumerate(results):
        call = calls[index] if index < len(calls) else {}
        name = call.get("tool_name")
        if not isinstance(result, Mapping) and peek(result, "status") is not None:
            name = peek_text(result, "tool_name", "name") or name
            error, output = peek_text(result, "error"), peek(result, "output")
            if error:
                result = {"error": error} if output is None else {"error": error, "output": output}
            else:
                result = output
        payload = {"result": to_json_value(result)}
        if name:
            payload = {"tool_name": name, **payload, "status": call.get("status")}
        yield SnowlObservation("tool_result" if name else "environment", payload)


def _artifacts(source: Any, records: list[Any]) -> list[dict[str, Any]]:
    """References to stored bodies, each once, by the store's key and the body's id."""
    holders = [peek(source, "task_result")]
    for record in records:
        holders += [*peek_rows(record, "tool_invocations"), *peek_rows(record, "action_results")]
    found = {}
    for holder in holders:
        for ref in (*peek_rows(holder, "artifact_refs"), *peek_rows(holder, "artifacts")):
            name, store = peek_text(ref, "artifact_id"), peek_text(ref, "resolver_key")
            if name and store:
                uri, kind = f"{store}:{name}", peek_text(ref, "media_type") or None
                found[uri] = {"name": name, "uri": uri, "media_type": kind}
    return list(found.values())


def _usage(result: Any) -> dict[str, int]:
    """Token counts as Snowl has them; QitOS may know only the total."""
    metrics = peek(peek(result, "task_result"), "metrics")

    def count(source: Any, name: str) -> int:
        return max(whole(peek(source, name)) or 0, 0)

    used = count(metrics, "prompt_tokens_total")
    made = count(metrics, "completion_tokens_total")
    total = count(result, "total_tokens") or count(metrics, "token_usage")
    return {"input_tokens": used, "output_tokens": made, "total_tokens": total or used + made}


def _failure_of(result: Any, reason: str, seen: BaseException | None) -> Failure:
    """What a failed run ended with: its own word, else its last failed event.

    QitOS 0.3.0 has no ``failure``, and its events have neither type nor traceback;
    those are the exception's that its hooks were shown.
    """
    told = peek(result, "failure")
    if told is None and reason == "unrecoverable_error":
        told = _last_error(peek_rows(result, "events"))
    texts = {name: peek_text(told, name) or None for name in Failure._fields}
    failure = Failure(**{**texts, "step_id": whole(peek(told, "step_id"))})  # type: ignore[arg-type]
    # A hook is shown errors too that the run got over.
    said = failure.message or (None if reason == "unrecoverable_error" else "")
    if seen is not None and said in (None, error_text(seen), described(seen)):
        failure = failure._replace(
            type=failure.type or type(seen).__name__,
            message=error_text(seen),
            traceback=failure.traceback or traced(seen),
        )
    if failure.message or failure.type:
        return failure
    if reason:
        return failure._replace(message=f"the run ended with stop reason {reason!r}")
    return failure._replace(message="the run ended with neither a stop reason nor an answer")


def _last_error(events: list[Any]) -> dict[str, Any]:
    """The last failed event, in the phase that the run was in."""
    found: dict[str, Any] = {}
    phase = None
    for event in events:
        error = peek_text(event, "error")
        if error:
            found = {"message": error, "phase": phase, "step_id": peek(event, "step_id")}
        else:
            phase = peek_text(event, "phase") or None
    return found
