"""What a run says to Snowl, and how it gets on Snowl's state.

All of it is strict JSON by then: one other value would lose Snowl all trials of an evaluation.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

from snowl_compat import Issue, SnowlCompatError, build_payload, critic_traces, dumps, to_json_value

Row = dict[str, Any]
Error = BaseException | None
Told = tuple[Row, SnowlCompatError | None]
EVENT_NAME = "qitos.snowl_payload"
_FAILURE = ("category", "type", "message", "phase", "step_id", "traceback")
_RECORD = ("step_id", "agent_id", "decision", "actions", "tool_invocations", "action_results")
_CALL = ("tool_name", "status", "latency_ms", "error")
_VERDICT = ("critic_name", "action", "reason", "score")


def attempt(call: Callable[..., Any], *args: Any) -> tuple[Any, Error]:
    """What a call returns, or what it raises; only Ctrl-C is raised."""
    try:
        return call(*args), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit would end Snowl's whole evaluation.
        return None, error


def peek(source: Any, *names: str) -> Any:
    """The first of some keys or attributes that is not None, else None."""
    get = source.get if isinstance(source, Mapping) else lambda name: getattr(source, name, None)
    return next((value for value in map(get, names) if value is not None), None)


def kind_of(value: Any) -> str:
    """A value as messages show it: a plain one itself, else its type's name."""
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
        if not isinstance(self.event_name, str):
            raise SnowlCompatError(f"expected text, got {kind_of(self.event_name)}", "event_name")


class SnowlStop(str, Enum):
    # Snowl compares the text and asks for ``.value``: a plain str will not do.
    COMPLETED, MAX_STEPS, ERROR = "completed", "max_steps", "error"
    LIMIT_EXCEEDED, CANCELLED = "limit_exceeded", "cancelled"


# Snowl's stop reasons, each with those of QitOS; any other is an error.
_MEANT = {
    SnowlStop.COMPLETED: "success final final_result agent_condition critic_stop env_terminal",
    SnowlStop.MAX_STEPS: "max_steps budget_steps stagnation",
    SnowlStop.LIMIT_EXCEEDED: "budget_time budget_tokens context_overflow",
    SnowlStop.CANCELLED: "cancelled_immediate cancelled_after_step interrupt",
}
_STOPS = {reason: stop for stop, reasons in _MEANT.items() for reason in reasons.split()}


def task_of(state: Any) -> str:
    """The text of the last user message, its parts as lines."""
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
    """The fields of Snowl's state that a result or a bare answer gives, and a failed run's error.

    ``cause`` is what the run raised, ``seen`` the last exception that a hook was told of.
    """
    source = result
    if peek(result, "records", "events", "step_count", "task_result") is None:
        source = {"step_count": 0, "final_result": result if cause is None else None}
    issues: list[Issue] = []
    payload: Row = {**build_payload(source, engine=engine, extended=True, issues=issues)}
    run, version = payload.pop("run"), payload.pop("schema_version")
    if payload["engine_config"]["budget_max_steps"] is None:
        payload["engine_config"]["budget_max_steps"] = config.max_steps
    answer, reason = run["final_result"], run["stop_reason"]
    stop = _STOPS.get("final" if reason is None and answer is not None else reason, SnowlStop.ERROR)
    failure = _failure(source, reason, seen) if stop is SnowlStop.ERROR else {}
    if cause is not None:
        failure = _raised(cause)
    elif not failure and config.strict and issues:
        failure = {"message": f"{issues[0].path}: {issues[0].message}"}
    told = {"issues": [issue._asdict() for issue in issues]}
    events = [{"event": config.event_name, "schema_version": version, "payload": payload, **told}]
    content = answer if isinstance(answer, str) else "" if answer is None else dumps(answer)
    message = {"role": "assistant", "content": content}
    output = {"message": message, "usage": _usage(source, run["total_tokens"] or 0)}
    fields: Row = {"output": output, "stop_reason": SnowlStop.ERROR if failure else stop}
    fields["messages"] = [] if answer is None else [{**message}]
    fields.update(actions=[], observations=[])
    # The payload's rows belong to the records in order, and there all have names.
    rows = iter(payload["critic_traces"])
    artifacts: Row = {}
    for index, record in enumerate(peek(source, "records") or ()):
        step, actions, observations, refs = read_step(record, index)
        for verdict, row in zip(step["critics"], rows):
            verdict["critic_name"] = row["critic_name"]
        events.append(step)
        fields["actions"] += actions
        fields["observations"] += observations
        artifacts |= refs
    output.update(trace_events=events, artifacts=[*artifacts.values()])
    if not failure:
        return fields, None
    events.append({"event": "qitos.failure", **dict.fromkeys(_FAILURE), **failure})
    return fields, SnowlCompatError(_failure_text(failure))


def fill(state: Any, fields: Row) -> Any:
    """Put a told run on Snowl's state, in lists of its own, and return the state."""
    for name, value in fields.items():
        setattr(state, name, [*getattr(state, name), *value] if isinstance(value, list) else value)
    return state


def read_step(record: Any, index: int) -> tuple[Row, list[Any], list[Any], Row]:
    """A step at a glance, its actions, its observations and its artifacts by their addresses."""
    found = {name: to_json_value(peek(record, name)) for name in _RECORD}
    calls, results = _rows(found["tool_invocations"]), _as(list, found["action_results"])
    decision = _as(dict, found["decision"])
    verdicts: Any = critic_traces([record])
    event = {
        "event": "qitos.step",
        "step_id": found["step_id"] if type(found["step_id"]) is int else index,
        "agent_id": found["agent_id"],
        "mode": decision.get("mode"),
        # Not as ``name``: Snowl's scorers would count the calls a second time.
        "tool_calls": [{name: call.get(name) for name in _CALL} for call in calls],
        "critics": [{name: row[name] for name in _VERDICT} for row in verdicts],
    }
    actions = []
    for action in _rows(found["actions"]) or _rows(decision.get("actions")):
        payload = {"tool_name": action.get("name"), "arguments": _as(dict, action.get("args"))}
        payload |= {"tool_call_id": action["action_id"]} if action.get("action_id") else {}
        actions.append(SimpleNamespace(action_type="tool_call", payload=payload))
    observations = []
    for call, result in zip_longest(calls, results):
        # Behind those of the calls QitOS appends what the environment says.
        payload, kind = {"result": result}, "environment"
        if call is not None:
            payload = {"tool_name": call.get("tool_name"), **payload, "status": call.get("status")}
            kind = "tool_result"
        observations.append(SimpleNamespace(observation_type=kind, payload=payload))
    artifacts: Row = {}
    for holder in (*calls, *results):
        for ref in _rows(_as(dict, holder).get("artifact_refs")):
            name, store = ref.get("artifact_id"), ref.get("resolver_key")
            if name and store:
                made = {"name": name, "uri": f"{store}:{name}", "media_type": ref.get("media_type")}
                artifacts[made["uri"]] = made
    return event, actions, observations, artifacts


def _as(kind: type, value: Any) -> Any:
    return value if isinstance(value, kind) else kind()


def _rows(value: Any) -> list[Row]:
    return [_as(dict, row) for row in _as(list, value)]


def _usage(source: Any, total: int) -> dict[str, int]:
    """Token counts as Snowl has them; QitOS may know only the total."""
    metrics = peek(peek(source, "task_result"), "metrics")
    names = ("prompt_tokens_total", "completion_tokens_total")
    told = (to_json_value(peek(metrics, name)) for name in names)
    used, made = (int(n) if type(n) in (int, float) and n >= 0 else 0 for n in told)
    total = max(total, 0) or used + made
    return {"input_tokens": used, "output_tokens": made, "total_tokens": total}


def _failure(source: Any, reason: str | None, seen: Error) -> Row:
    """What a failed run ended with: its own word, else its last failed event."""
    failure: Row = _as(dict, to_json_value(peek(source, "failure")))
    if not failure and reason == "unrecoverable_error":
        phase = None  # That of the last failed event is the one that the run was in.
        for event in peek(source, "events") or ():
            if error := peek(event, "error"):
                failure = {"message": error, "phase": phase, "step_id": peek(event, "step_id")}
            else:
                phase = peek(event, "phase")
        failure = _as(dict, to_json_value(failure))
        # QitOS 0.3.0 shows its hooks the exception, also one that the run got over.
        raised = {} if seen is None else _raised(seen)
        if failure.get("message") in (None, raised.get("message"), _failure_text(raised)):
            failure = {**failure, **raised}
    if not failure.get("message") and not failure.get("type"):
        how = f"stop reason {reason!r}" if reason else "neither a stop reason nor an answer"
        failure["message"] = f"the run ended with {how}"
    return failure


def _raised(error: BaseException) -> Row:
    lines = traceback.format_exception(error, limit=-20)
    message, traced = to_json_value([str(error).strip(), "".join(lines).rstrip()])
    return {"type": type(error).__name__, "message": message, "traceback": traced}


def described(error: BaseException) -> str:
    return _failure_text(_raised(error))


def _failure_text(failure: Row) -> str:
    """What, where and when: ``KeyError: 'zzz' (DECIDE, step 0)``."""
    kind, message, step_id = (failure.get(name) for name in ("type", "message", "step_id"))
    repeats = kind in (SnowlCompatError.__name__, message)
    what = ": ".join(filter(None, (None if repeats else kind, message)))
    step = "" if step_id is None else f"step {step_id}"
    where = ", ".join(filter(None, (failure.get("phase"), step)))
    return f"{what} ({where})" if where else what
