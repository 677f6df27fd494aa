"""What is saved after each step, and a run made of it again."""

from __future__ import annotations

import base64
import math
from collections import deque
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from ..core import Action, Decision, HistoryMessage, StopReason, Task
from ..core._foreign import outcome
from ..core._typed import like
from ..core.state import StateMigrationError, StateSchema, restored_state
from ._plain import plain
from ._run import Run
from .states import RuntimeEvent, RuntimePhase, StepRecord

_FORMAT = "qitos_min.checkpoint/1"
_WORDS: dict[str, Any] = {"$float": float, "$bytes": base64.b64decode}
# Attributes of a run that an entry holds as they are, and gives back.
_STANDING = ("handoffs", "instruction_patch", "modified_prompt", "failure")


class Checkpoints:
    """Writes a run to a store as it goes: each entry holds only what is new."""

    def __init__(self, store: Any, run: Run) -> None:
        self._store = store
        self._events = len(run.events)
        self._messages: tuple[Any, int] = (run.messages, len(run.messages))

    def begin(self, run: Run) -> None:
        task = run.task.to_dict() if isinstance(run.task, Task) else run.task
        entry = {"format": _FORMAT, "task": task, "state": _spelled(run.state)}
        self._store.append(run.run_id, entry)

    def save(self, run: Run, record: StepRecord) -> None:
        """Save a finished step and where the run stands after it."""
        held, count = self._messages
        same = held is run.messages
        new = run.messages[count if same else 0 :]
        entry: dict[str, Any] = {"record": record.to_row()}
        entry["events"] = [event.to_dict() for event in run.events[self._events :]]
        entry |= {"state": _spelled(run.state), "messages": [message.to_dict() for message in new]}
        entry |= {"messages_go_on": same, "agent": run.seat.name, "last_step": run.seat.last_step}
        entry |= {"total_tokens": run.total_tokens, "elapsed": run.elapsed()}
        entry |= {name: getattr(run, name) for name in ("stop_reason", *_STANDING)}
        self._store.append(run.run_id, entry)
        self._events = len(run.events)
        self._messages = (run.messages, len(run.messages))


def restore(engine: Any, run_id: str, state_kwargs: dict[str, Any]) -> Run:
    """Return a run that stands where its last saved step ended, or raise as ``resume`` does."""
    entries = engine.checkpoint_store.load(run_id)
    if not entries:
        raise StateMigrationError(f"run {run_id!r} ended before its beginning was saved")
    begun = max(n for n, entry in enumerate(entries) if not n or "format" in entry)
    head, *steps = entries[begun:]  # Of several runs with one id the last.
    if (found := head.get("format")) != _FORMAT:
        raise StateMigrationError(f"unknown checkpoint format {found!r}; known: {_FORMAT}")
    task = Task.from_dict(head["task"]) if isinstance(head["task"], dict) else head["task"]
    last = entries[-1]
    seat = engine.seat_of()
    if steps and last["agent"] != seat.name:
        spec = engine.agent_registry.get(last["agent"]) if engine.agent_registry else None
        if spec is None:
            raise StateMigrationError(f"agent {last['agent']!r} of the run is not registered")
        seat = replace(engine.seat_of(spec), last_step=last["last_step"])
    text = task.objective if isinstance(task, Task) else task
    state = _state(seat.agent.init_state(text, **state_kwargs), last["state"])
    run = Run(engine, task, state, engine.token)
    run.run_id, run.seat = run_id, seat
    for step in steps:
        _replay(run, step)
    if steps:
        run.step_id = len(steps) - 1
        run.outputs = plain(run.records[-1].action_results)
        run.charge(last["total_tokens"])
        run.started -= last["elapsed"]
        run.stop_reason = last["stop_reason"] and StopReason(last["stop_reason"])
        run.answer = run.stop_reason and getattr(run.records[-1].decision, "final_answer", None)
        for name in _STANDING:
            setattr(run, name, last[name])
    return run


def _replay(run: Run, step: dict[str, Any]) -> None:
    """Put one saved step back into the run's records."""
    record = StepRecord(**step["record"])
    if (row := record.decision) is not None:
        actions = [Action.from_dict(action) for action in row["actions"]]
        record.decision = Decision(**{**row, "actions": actions})
        record.actions = record.decision.actions
    events = [RuntimeEvent(**{**e, "phase": RuntimePhase(e["phase"])}) for e in step["events"]]
    run.events += events
    record.phase_events = [e for e in events if e.phase is not RuntimePhase.INIT]
    run.records.append(record)
    if not step["messages_go_on"]:
        run.messages = []
    run.messages += [HistoryMessage(**message) for message in step["messages"]]


def _state(fresh: Any, saved: dict[str, Any]) -> Any:
    """The saved state, in a fresh one's class and types; what was not saved is the fresh one's."""
    kind = type(fresh)
    if not is_dataclass(fresh):
        raise StateMigrationError(f"a state of type {kind.__name__} cannot be restored")
    own = {f.name: f.default is f.default_factory is MISSING for f in fields(fresh)}
    lost = [n for n in own if isinstance(saved.get(n), dict) and "$unserializable" in saved[n]]
    values = {n: _unspelled(saved[n]) for n in own if n in saved and n not in lost}
    held = {n: getattr(fresh, n, None) for n in own} | getattr(fresh, "__dict__", {})
    kept = {n: v for n, v in held.items() if n not in values}
    given = {n: v for n, v in kept.items() if own.get(n)} | values
    if isinstance(fresh, StateSchema):
        state = kind.from_dict(given, strict=False)
    else:
        state = restored_state(kind, given)
    restored = {name: like(getattr(state, name), held[name]) for name in values}
    for name, value in {**kept, **restored}.items():
        object.__setattr__(state, name, value)
    return state


def _spelled(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A value with words for numbers JSON lacks; in sets, in circles and deep down they stay."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if id(value) in above or len(above) > 50:
        return value
    above = (*above, id(value))
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: outcome(getattr, value, f.name) for f in fields(value)}
        return {n: _spelled(v, above) for n, (v, error) in found.items() if error is None}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {k: _spelled(v, above) for k, v in value.items()}
    return [_spelled(v, above) for v in value] if isinstance(value, (list, tuple, deque)) else value


def _unspelled(value: Any) -> Any:
    """What JSON and ``_spelled`` made words of, bytes too, in values just loaded."""
    if isinstance(value, list):
        return [_unspelled(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(word, text)] = value.items()
        if word in _WORDS and isinstance(text, str):
            with suppress(ValueError):
                return _WORDS[word](text)
    return {name: _unspelled(item) for name, item in value.items()}
