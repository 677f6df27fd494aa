"""What a run says to Snowl, as strict JSON, and how it gets on Snowl's state.

Snowl writes all trials of an evaluation in one go, and one value that JSON cannot
hold loses them all; so everything is converted before it reaches the state.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from types import SimpleNamespace
from typing import Any

from snowl_compat import SCHEMA_VERSION, Issue, SnowlCompatError, build_payload
from snowl_compat import critic_traces, dumps, to_json_value

Row = dict[str, Any]
Error = BaseException | None
Told = tuple[Row, SnowlCompatError | None]
EVENT_NAME = "qitos.snowl_payload"
_FAILURE = ("category", "type", "message", "phase", "step_id", "traceback")
_MOST_FRAMES = 20


def attempt(call: Callable[..., Any], *args: Any) -> tuple[Any, Error]:
    """Return what a call returns, or what it raises; only Ctrl-C is raised."""
    try:
        return call(*args), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit would end Snowl's whole evaluation.
        return None, error


def peek(source: Any, *names: str) -> Any:
    """Return the first of some keys or attributes that is not None, else None."""
    get = source.get if isinstance(source, Mapping) else lambda name: getattr(source, name, None)
    return next((value for value in map(get, names) if value is not None), None)


def peek_text(source: Any, *names: str) -> str:
    """Return the first of some fields as text; what is no text or number is ``""``."""
    value = to_json_value(peek(source, *names))
    if value is None or isinstance(value, (dict, list)):
        return ""
    return value if isinstance(value, str) else dumps(value)


def _peek_rows(source: Any, name: str) -> list[Any]:
    value = peek(source, name)
    return [row for row in value if row is not None] if isinstance(value, (list, tuple)) else []


def _peek_whole(source: Any, name: str) -> int | None:
    """Return the integer that a field's number says exactly, else None."""
    value = to_json_value(peek(source, name))
    return int(value) if type(value) in (int, float) and value == int(value) else None


def described(error: BaseException) -> str:
    """Return type and message of an exception."""
    return ": ".join(filter(None, (type(error).__name__, str(to_json_value(str(error).strip())))))


def kind_of(value: Any) -> str:
    """Return a value as messages show it: a plain one itself, else its type's name."""
    plain = value is None or isinstance(value, (bool, int, float, str))
    return repr(value)[:80] if plain else type(value).__name__


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the runs of an agent are made; raises ``SnowlCompatError`` for bad values."""

    max_steps: int | None = None
    engine_kwargs: Mapping[str, Any] | None = None
    state_kwargs: Mapping[str, Any] | None = None
    event_name: str = EVENT_NAME
    strict: bool = False

    def __post_init__(self) -> None:
        steps, name, mapping = self.max_steps, self.event_name, (Mapping, type(None))
        for field, good, wanted in (
            ("max_steps", steps is None or (type(steps) is int and steps > 0), "an int >= 1"),
            ("engine_kwargs", isinstance(self.engine_kwargs, mapping), "a mapping"),
            ("state_kwargs", isinstance(self.state_kwargs, mapping), "a mapping"),
            ("event_name", isinstance(name, str) and name.strip(), "a name"),
        ):
            if not good:
                text = f"expected {wanted}, got {kind_of(getattr(self, field))}"
                raise SnowlCompatError(text, field)
        if steps is not None and "budget" in (self.engine_kwargs or ()):
            raise SnowlCompatError("expected no budget beside max_steps", "engine_kwargs")


class SnowlStop(str, Enum):
    # Snowl compares the text and asks for ``.value``: a plain str will not do.
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


def task_of(state: Any) -> str:
    """Return the text of the last user message, its parts as lines."""
    asked = [row for row in _peek_rows(state, "messages") if peek(row, "role") == "user"]
    if not asked:
        raise SnowlCompatError("the state has no user message")
    content = peek(asked[-1], "content")
    parts = content if isinstance(content, (list, tuple)) else [content]
    texts = (part if isinstance(part, str) else peek(part, "text") for part in parts)
    task = "\n".join(text for text in texts if isinstance(text, str))
    if not task.strip():
        raise SnowlCompatError("the last user message has no text")
    return task


def tell(
    result: Any, config: Config, *, engine: Any = None, cause: Error = None, seen: Error = None
) -> Told:
    """Read a result, a bare answer, or what is left after ``cause`` was raised.

    Returns the fields of Snowl's state, and the error of a failed run. ``seen`` is the
    last exception that the engine told a hook of.
    """
    source = result
    if peek(result, "records", "events", "step_count", "task_result") is None:
        source = {"step_count": 0, "final_result": result if cause is None else None}
    issues: list[Issue] = []
    payload: Row = {**build_payload(source, engine=engine, issues=issues)}
    if payload["engine_config"]["budget_max_steps"] is None:
        payload["engine_config"]["budget_max_steps"] = config.max_steps
    records = _peek_rows(source, "records")
    # The payload's rows belong to the records in order, and there all have names.
    rows = iter(payload["critic_traces"])
    verdicts = [[*islice(rows, len(critic_traces([record])))] for record in records]
    steps = [step_event(*step) for step in zip(records, range(len(records)), verdicts)]
    answer, stop, failure = _ending(source, seen)
    if cause is not None:
        failure = _raised(cause)
    elif failure is None and config.strict and issues:
        failure = {"message": f"{issues[0].path}: {issues[0].message}"}
    first = {"event": config.event_name, "schema_version": SCHEMA_VERSION, "payload": payload}
    events = [{**first, "issues": [issue._asdict() for issue in issues]}, *steps]
    if failure is not None:
        events.append({"event": "qitos.failure", **dict.fromkeys(_FAILURE), **failure})
    message = {"role": "assistant", "content": answer or ""}
    fields = {
        "messages": [] if answer is None else [{**message}],
        "actions": [call for record in records for call in _actions(record)],
        "observations": [found for pair in zip(records, steps) for found in _observations(*pair)],
        "output": {
            "message": message,
            "usage": _usage(source),
            "artifacts": _artifacts(source, records),
            "trace_events": events,
        },
        "stop_reason": stop if failure is None else SnowlStop.ERROR,
    }
    return fields, None if failure is None else SnowlCompatError(_failure_text(failure))


def fill(state: Any, fields: Row) -> Any:
    """Put a told run on Snowl's state, in lists of its own, and return the state."""
    for name, value in fields.items():
        kept = isinstance(value, list)
        setattr(state, name, [*getattr(state, name), *value] if kept else value)
    return state


def step_event(record: Any, index: int, verdicts: Sequence[Mapping[str, Any]]) -> Row:
    """Return one step at a glance, for people who follow the trace."""
    # Its calls say ``tool_name``: rows with ``name`` Snowl's scorers would count a second time.
    step_id, shown = _peek_whole(record, "step_id"), ("critic_name", "action", "reason", "score")
    return {
        "event": "qitos.step",
        "step_id": index if step_id is None else step_id,
        "agent_id": peek_text(record, "agent_id") or None,
        "mode": peek_text(peek(record, "decision"), "mode") or None,
        "tool_calls": [_call(call) for call in _peek_rows(record, "tool_invocations")],
        "critics": [{name: row[name] for name in shown} for row in verdicts],
    }


def _call(call: Any) -> Row:
    latency, error = to_json_value(peek(call, "latency_ms")), peek_text(call, "error")
    row = {
        "tool_name": peek_text(call, "tool_name", "name"),
        "status": peek_text(call, "status") or None,
        "latency_ms": latency if type(latency) in (int, float) else None,
    }
    return {**row, "error": error} if error else row


def _actions(record: Any) -> Iterator[Any]:
    """The calls that a step decided on, in order."""
    decided = _peek_rows(record, "actions") or _peek_rows(peek(record, "decision"), "actions")
    for action in decided:
        args, call_id = to_json_value(peek(action, "args")), peek_text(action, "action_id")
        if not isinstance(args, dict):
            args = {} if args is None else {"value": args}
        payload = {"tool_name": peek_text(action, "name"), "arguments": args}
        payload |= {"tool_call_id": call_id} if call_id else {}
        yield SimpleNamespace(action_type="tool_call", payload=payload)


def _observations(record: Any, step: Row) -> Iterator[Any]:
    """A step's results in order, each under the name of the call it belongs to."""
    # They follow the invocations: QitOS appends what the environment says, no tool's result.
    calls, results = step["tool_calls"], [*(peek(record, "action_results") or ())]
    results += [{"error": call.get("error")} for call in calls[len(results) :]]
    for index, result in enumerate(results):
        call = calls[index] if index < len(calls) else {}
        name = call.get("tool_name")
        if not isinstance(result, Mapping) and peek(result, "status") is not None:
            name = peek_text(result, "tool_name", "name") or name
            error, result = peek_text(result, "error"), peek(result, "output")
            if error:
                result = {"error": error, **({} if result is None else {"output": result})}
        payload = {"result": to_json_value(result)}
        if name:
            payload = {"tool_name": name, **payload, "status": call.get("status")}
        kind = "tool_result" if name else "environment"
        yield SimpleNamespace(observation_type=kind, payload=payload)


def _artifacts(source: Any, records: list[Any]) -> list[Row]:
    """References to stored bodies, each once, by the store's key and the body's id."""
    holders, found = [peek(source, "task_result")], {}
    for record in records:
        holders += [*_peek_rows(record, "tool_invocations"), *_peek_rows(record, "action_results")]
    for holder in holders:
        for ref in (*_peek_rows(holder, "artifact_refs"), *_peek_rows(holder, "artifacts")):
            names = ("artifact_id", "resolver_key", "media_type")
            name, store, kind = (peek_text(ref, field) for field in names)
            if name and store:
                uri = f"{store}:{name}"
                found[uri] = {"name": name, "uri": uri, "media_type": kind or None}
    return list(found.values())


def _usage(result: Any) -> dict[str, int]:
    """Token counts as Snowl has them; QitOS may know only the total."""
    metrics = peek(peek(result, "task_result"), "metrics")
    names = ("prompt_tokens_total", "completion_tokens_total", "token_usage")
    told = [_peek_whole(result, "total_tokens"), *(_peek_whole(metrics, name) for name in names)]
    total, used, made, spent = (max(count or 0, 0) for count in told)
    total = total or spent or used + made
    return {"input_tokens": used, "output_tokens": made, "total_tokens": total}


def _ending(source: Any, seen: Error) -> tuple[str | None, SnowlStop, Row | None]:
    """The answer, how the run ended, and the failure if it did so with one."""
    places = (peek(source, "task_result"), peek(source, "state"), source)
    found = (peek(place, "final_result") for place in places)
    answer = to_json_value(next((value for value in found if value is not None), None))
    if not isinstance(answer, (str, type(None))):
        answer = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    reasons = (peek_text(place, "stop_reason") for place in reversed(places))
    reason = next(filter(None, reasons), "").strip().lower()
    known = SnowlStop.COMPLETED if not reason and answer is not None else SnowlStop.ERROR
    stop = _STOP_OF.get(reason, known)
    return answer, stop, _failure(source, reason, seen) if stop is SnowlStop.ERROR else None


def _failure(result: Any, reason: str, seen: Error) -> Row:
    """What a failed run ended with: its own word, else its last failed event."""
    # QitOS 0.3.0 has no ``failure``, but its hooks are shown the exception.
    crashed = reason == "unrecoverable_error"
    told = peek(result, "failure") or (_last_error(result) if crashed else None)
    failure: Row = {name: text for name in _FAILURE if (text := peek_text(told, name))}
    failure["step_id"] = _peek_whole(told, "step_id")
    if seen is not None and crashed:
        raised = _raised(seen)
        # A hook is shown errors too that the run got over.
        if failure.get("message", raised["message"]) in (raised["message"], described(seen)):
            failure = {**raised, **failure, "message": raised["message"]}
    if not failure.get("message") and not failure.get("type"):
        how = f"stop reason {reason!r}" if reason else "neither a stop reason nor an answer"
        failure["message"] = f"the run ended with {how}"
    return failure


def _last_error(result: Any) -> Row:
    """The last failed event, in the phase that the run was in."""
    found: Row = {}
    phase = None
    for event in _peek_rows(result, "events"):
        if error := peek_text(event, "error"):
            found = {"message": error, "phase": phase, "step_id": peek(event, "step_id")}
        else:
            phase = peek_text(event, "phase")
    return found


def _raised(error: BaseException) -> Row:
    lines = traceback.format_exception(error, limit=-_MOST_FRAMES)
    message, traced = to_json_value([str(error).strip(), "".join(lines).rstrip()])
    return {"type": type(error).__name__, "message": message, "traceback": traced}


def _failure_text(failure: Row) -> str:
    """What, where and when: ``KeyError: 'zzz' (DECIDE, step 0)``."""
    kind, message, step_id = (failure.get(name) for name in ("type", "message", "step_id"))
    repeats = kind in (SnowlCompatError.__name__, message)
    what = ": ".join(filter(None, (None if repeats else kind, message)))
    step = None if step_id is None else f"step {step_id}"
    where = ", ".join(filter(None, (failure.get("phase"), step)))
    return f"{what} ({where})" if where else what
