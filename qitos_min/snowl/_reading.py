"""What a run says to Snowl, as strict JSON, and how it gets on Snowl's state.

Snowl writes all trials of an evaluation in one go, and one value that JSON cannot
hold loses them all; so everything is converted before it reaches the state.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

from snowl_compat import SCHEMA_VERSION, Issue, SnowlCompatError, build_payload, to_json_value

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
        steps = self.max_steps
        if steps is not None and (type(steps) is not int or steps < 1):
            raise SnowlCompatError(f"expected an int >= 1, got {kind_of(steps)}", "max_steps")
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
    asked = [row for row in peek(state, "messages") or () if peek(row, "role") == "user"]
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
    verdicts: dict[int, list[Row]] = {}
    for row in payload["critic_traces"]:
        verdicts.setdefault(row["step_id"], []).append(row)
    steps = [Step(record, n) for n, record in enumerate(peek(source, "records") or ())]
    answer, stop, failure = _ending(source, seen)
    if cause is not None:
        failure = _raised(cause)
    elif failure is None and config.strict and issues:
        failure = {"message": f"{issues[0].path}: {issues[0].message}"}
    first = {"event": config.event_name, "schema_version": SCHEMA_VERSION, "payload": payload}
    events = [
        {**first, "issues": [issue._asdict() for issue in issues]},
        *(step.event(verdicts.get(step.number, ())) for step in steps),
    ]
    if failure is not None:
        events.append({"event": "qitos.failure", **dict.fromkeys(_FAILURE), **failure})
    artifacts = {ref["uri"]: ref for step in steps for ref in step.artifacts()}
    message = {"role": "assistant", "content": answer or ""}
    fields = {
        "messages": [] if answer is None else [{**message}],
        "actions": [action for step in steps for action in step.actions()],
        "observations": [found for step in steps for found in step.observations()],
        "output": {
            "message": message,
            "usage": _usage(source),
            "artifacts": [*artifacts.values()],
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


class Step:
    """What a step record tells Snowl: its fields as JSON, of the types that Snowl expects."""

    def __init__(self, record: Any, index: int) -> None:
        number = to_json_value(peek(record, "step_id"))
        decision = _as(dict, to_json_value(peek(record, "decision")))
        actions = to_json_value(peek(record, "actions")) or decision.get("actions")
        calls = _as(list, to_json_value(peek(record, "tool_invocations")))
        self.number = number if type(number) is int else index
        self.agent_id = to_json_value(peek(record, "agent_id"))
        self.mode = decision.get("mode")
        self.decided = [_as(dict, action) for action in _as(list, actions)]
        self.calls = [_as(dict, call) for call in calls]
        self.results = _as(list, to_json_value(peek(record, "action_results")))

    def event(self, verdicts: Iterable[Row]) -> Row:
        """Return the step at a glance, for people who follow the trace."""
        # Its calls say ``tool_name``: rows with ``name`` Snowl's scorers would count a second time.
        shown = ("critic_name", "action", "reason", "score")
        told = ("tool_name", "status", "latency_ms", "error")
        return {
            "event": "qitos.step",
            "step_id": self.number,
            "agent_id": self.agent_id,
            "mode": self.mode,
            "tool_calls": [{name: call.get(name) for name in told} for call in self.calls],
            "critics": [{name: row[name] for name in shown} for row in verdicts],
        }

    def actions(self) -> Iterator[Any]:
        """Yield the calls that the step decided on, in order."""
        for action in self.decided:
            args = action.get("args")
            arguments = args if isinstance(args, dict) else {} if args is None else {"value": args}
            payload = {"tool_name": action.get("name"), "arguments": arguments}
            if action.get("action_id"):
                payload["tool_call_id"] = action["action_id"]
            yield SimpleNamespace(action_type="tool_call", payload=payload)

    def observations(self) -> Iterator[Any]:
        """Yield its results in order, each under the name of the call it belongs to."""
        # They follow the invocations: QitOS appends what the environment says, no tool's result.
        for call, result in zip_longest(self.calls, self.results):
            payload, kind = {"result": result}, "environment"
            if call is not None:
                kind = "tool_result"
                payload = {
                    "tool_name": call.get("tool_name"),
                    **payload,
                    "status": call.get("status"),
                }
            yield SimpleNamespace(observation_type=kind, payload=payload)

    def artifacts(self) -> Iterator[Row]:
        """Yield references to stored bodies, by the store's key and the body's id."""
        for holder in (*self.calls, *self.results):
            for ref in _as(list, _as(dict, holder).get("artifact_refs")):
                name, store = (_as(dict, ref).get(key) for key in ("artifact_id", "resolver_key"))
                if name and store:
                    uri = f"{store}:{name}"
                    yield {"name": name, "uri": uri, "media_type": ref.get("media_type")}


def _as(kind: type, value: Any) -> Any:
    """A value if it is of a type, else an empty one of it."""
    return value if isinstance(value, kind) else kind()


def _usage(result: Any) -> dict[str, int]:
    """Token counts as Snowl has them; QitOS may know only the total."""
    metrics = peek(peek(result, "task_result"), "metrics")
    names = ("prompt_tokens_total", "completion_tokens_total", "token_usage")
    told = to_json_value([peek(result, "total_tokens"), *(peek(metrics, name) for name in names)])
    total, used, made, spent = (
        int(count) if type(count) in (int, float) and count >= 0 else 0 for count in told
    )
    total = total or spent or used + made
    return {"input_tokens": used, "output_tokens": made, "total_tokens": total}


def _ending(source: Any, seen: Error) -> tuple[str | None, SnowlStop, Row | None]:
    """The answer, how the run ended, and the failure if it did so with one."""
    places = (peek(source, "task_result"), peek(source, "state"), source)
    found = (peek(place, "final_result") for place in places)
    answer = to_json_value(next((value for value in found if value is not None), None))
    if not isinstance(answer, (str, type(None))):
        answer = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    reasons = (to_json_value(peek(place, "stop_reason")) for place in reversed(places))
    reason = str(next(filter(None, reasons), "")).lower()
    known = SnowlStop.COMPLETED if not reason and answer is not None else SnowlStop.ERROR
    stop = _STOP_OF.get(reason, known)
    return answer, stop, _failure(source, reason, seen) if stop is SnowlStop.ERROR else None


def _failure(result: Any, reason: str, seen: Error) -> Row:
    """What a failed run ended with: its own word, else its last failed event."""
    failure = _as(dict, to_json_value(peek(result, "failure")))
    if not failure and reason == "unrecoverable_error":
        failure = _last_error(result)
        # QitOS 0.3.0 has no ``failure``, but its hooks are shown the exception; also one of
        # which the run got over.
        told = None if seen is None else _raised(seen)
        if told and failure.get("message") in (None, told["message"], described(seen)):
            failure = {**failure, **told}
    if not failure.get("message") and not failure.get("type"):
        how = f"stop reason {reason!r}" if reason else "neither a stop reason nor an answer"
        failure["message"] = f"the run ended with {how}"
    return {name: failure.get(name) for name in _FAILURE}


def _last_error(result: Any) -> Row:
    """The last failed event, in the phase that the run was in."""
    found: Row = {}
    phase = None
    for event in peek(result, "events") or ():
        if error := peek(event, "error"):
            found = {"message": error, "phase": phase, "step_id": peek(event, "step_id")}
        else:
            phase = peek(event, "phase")
    return _as(dict, to_json_value(found))


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
