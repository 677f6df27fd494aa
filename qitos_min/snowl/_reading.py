"""What a run says to Snowl, as strict JSON, and how it gets on Snowl's state.

Snowl writes all trials of an evaluation in one go, and one value that JSON cannot
hold loses them all; so everything is converted before it reaches the state.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Mapping
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
    answer, stop, failure = _ending(source, seen)
    if cause is not None:
        failure = _raised(cause)
    elif failure is None and config.strict and issues:
        failure = {"message": f"{issues[0].path}: {issues[0].message}"}
    first = {"event": config.event_name, "schema_version": SCHEMA_VERSION, "payload": payload}
    events = [{**first, "issues": [issue._asdict() for issue in issues]}]
    message = {"role": "assistant", "content": answer or ""}
    output = {"message": message, "usage": _usage(source), "trace_events": events}
    fields: Row = {"output": output, "stop_reason": stop if failure is None else SnowlStop.ERROR}
    fields.update(messages=[] if answer is None else [{**message}], actions=[], observations=[])
    artifacts: Row = {}
    verdicts: dict[int, list[Row]] = {}
    for row in payload["critic_traces"]:
        verdicts.setdefault(row["step_id"], []).append(row)
    for index, record in enumerate(peek(source, "records") or ()):
        step = Step(record, index)
        events.append(step.event(verdicts.get(step.number, ())))
        fields["actions"] += step.actions()
        fields["observations"] += step.observations()
        artifacts.update((ref["uri"], ref) for ref in step.artifacts())
    output["artifacts"] = [*artifacts.values()]
    if failure is None:
        return fields, None
    events.append({"event": "qitos.failure", **dict.fromkeys(_FAILURE), **failure})
    return fields, SnowlCompatError(_failure_text(failure))


def fill(state: Any, fields: Row) -> Any:
    """Put a told run on Snowl's state, in lists of its own, and return the state."""
    for name, value in fields.items():
        kept = isinstance(value, list)
        setattr(state, name, [*getattr(state, name), *value] if kept else value)
    return state


class Step:
    """What a step record tells Snowl: its fields as JSON, of the types that Snowl expects."""

    def __init__(self, record: Any, index: int) -> None:
        names = ("decision", "actions", "tool_invocations", "action_results", "step_id", "agent_id")
        found = {name: to_json_value(peek(record, name)) for name in names}
        self.number = found["step_id"] if type(found["step_id"]) is int else index
        self.agent_id = found["agent_id"]
        self.decision = _as(dict, found["decision"])
        self.decided = _rows(found["actions"]) or _rows(self.decision.get("actions"))
        self.calls = _rows(found["tool_invocations"])
        self.results = _as(list, found["action_results"])

    def event(self, verdicts: Iterable[Row]) -> Row:
        """Return the step at a glance, for people who follow the trace."""
        # Its calls say ``tool_name``: rows with ``name`` Snowl's scorers would count a second time.
        called = ("tool_name", "status", "latency_ms", "error")
        judged = ("critic_name", "action", "reason", "score")
        return {
            "event": "qitos.step",
            "step_id": self.number,
            "agent_id": self.agent_id,
            "mode": self.decision.get("mode"),
            "tool_calls": [{name: call.get(name) for name in called} for call in self.calls],
            "critics": [{name: row[name] for name in judged} for row in verdicts],
        }

    def actions(self) -> list[Any]:
        """Return the calls that the step decided on, in order."""
        made = []
        for action in self.decided:
            args = action.get("args")
            args = args if isinstance(args, dict) else {} if args is None else {"value": args}
            payload = {"tool_name": action.get("name"), "arguments": args}
            if action.get("action_id"):
                payload["tool_call_id"] = action["action_id"]
            made.append(SimpleNamespace(action_type="tool_call", payload=payload))
        return made

    def observations(self) -> list[Any]:
        """Return its results in order, each under the name of the call it belongs to."""
        made = []
        for call, result in zip_longest(self.calls, self.results):
            # Behind those of the calls QitOS appends what the environment says.
            payload, kind = {"result": result}, "environment"
            if call is not None:
                payload = {
                    "tool_name": call.get("tool_name"),
                    **payload,
                    "status": call.get("status"),
                }
                kind = "tool_result"
            made.append(SimpleNamespace(observation_type=kind, payload=payload))
        return made

    def artifacts(self) -> list[Row]:
        """Return references to stored bodies, by the store's key and the body's id."""
        holders = (*self.calls, *self.results)
        return [
            {
                "name": ref["artifact_id"],
                "uri": f"{ref['resolver_key']}:{ref['artifact_id']}",
                "media_type": ref.get("media_type"),
            }
            for holder in holders
            for ref in _rows(_as(dict, holder).get("artifact_refs"))
            if ref.get("artifact_id") and ref.get("resolver_key")
        ]


def _as(kind: type, value: Any) -> Any:
    """A value if it is of a type, else an empty one of it."""
    return value if isinstance(value, kind) else kind()


def _rows(value: Any) -> list[Row]:
    return [_as(dict, row) for row in _as(list, value)]


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
    reason = str(next(filter(None, reasons), ""))
    known = (stop for stop, words in _STOPS.items() if reason in words.split())
    is_whole = not reason and answer is not None
    stop = next(known, SnowlStop.COMPLETED if is_whole else SnowlStop.ERROR)
    return answer, stop, _failure(source, reason, seen) if stop is SnowlStop.ERROR else None


def _failure(result: Any, reason: str, seen: Error) -> Row:
    """What a failed run ended with: its own word, else its last failed event."""
    failure: Row = _as(dict, to_json_value(peek(result, "failure")))
    if not failure and reason == "unrecoverable_error":
        failure = _last_error(result)
        # QitOS 0.3.0 shows its hooks the exception, also one that the run got over.
        raised = {} if seen is None else _raised(seen)
        if failure.get("message") in (None, raised.get("message"), _failure_text(raised)):
            failure = {**failure, **raised}
    if not failure.get("message") and not failure.get("type"):
        how = f"stop reason {reason!r}" if reason else "neither a stop reason nor an answer"
        failure["message"] = f"the run ended with {how}"
    return failure


def _last_error(result: Any) -> Row:
    """The last failed event, in the phase that the run was in."""
    found, phase = {}, None
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


def described(error: BaseException) -> str:
    """Return type and message of an exception."""
    return _failure_text(_raised(error))


def _failure_text(failure: Row) -> str:
    """What, where and when: ``KeyError: 'zzz' (DECIDE, step 0)``."""
    kind, message, step_id = (failure.get(name) for name in ("type", "message", "step_id"))
    repeats = kind in (SnowlCompatError.__name__, message)
    what = ": ".join(filter(None, (None if repeats else kind, message)))
    step = None if step_id is None else f"step {step_id}"
    where = ", ".join(filter(None, (failure.get("phase"), step)))
    return f"{what} ({where})" if where else what
