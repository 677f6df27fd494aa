"""What is saved after each step, and a run made of it again."""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from ..core._foreign import outcome
from ..core._introspect import resolved_hints
from ..core._json import dumps, to_json_value
from ..core._typed import form_of, like
from ..core.action import Action
from ..core.decision import Decision
from ..core.errors import StopReason
from ..core.history import HistoryMessage
from ..core.state import StateMigrationError, StateSchema, restored_state
from ..core.task import Task
from ._run import Run
from .states import RuntimeEvent, RuntimePhase, StepRecord

__all__ = ["Checkpoints", "restore"]

_FORMAT = "qitos_min.checkpoint/1"


class Checkpoints:
    """Writes a run to a store as it goes: each entry holds only what is new."""

    def __init__(self, store: Any, run: Run) -> None:
        self._store = store
        self._events = len(run.events)
        self._messages: tuple[Any, int] = (run.messages, len(run.messages))

    def begin(self, run: Run) -> None:
        """Save what a run begins with."""
        task = run.task.to_dict() if isinstance(run.task, Task) else run.task
        entry = {"format": _FORMAT, "task": task, **_saved(run.state)}
        self._store.append(run.run_id, entry)

    def save(self, run: Run, record: StepRecord) -> None:
        """Save a finished step and where the run stands after it."""
        held, count = self._messages
        same = held is run.messages
        entry = {
            "record": record.to_row(),
            "events": [event.to_dict() for event in run.events[self._events :]],
            **_saved(run.state),
            "messages": [m.to_dict() for m in run.messages[count if same else 0 :]],
            "messages_go_on": same,
            "agent": run.seat.name,
            "last_step": run.seat.last_step,
            "handoffs": run.handoffs,
            "total_tokens": run.total_tokens,
            "elapsed": run.elapsed(),
            "instruction_patch": run.instruction_patch,
            "modified_prompt": run.modified_prompt,
            "stop_reason": run.stop_reason,
            "failure": run.failure,
        }
        self._store.append(run.run_id, entry)
        self._events = len(run.events)
        self._messages = (run.messages, len(run.messages))


def restore(engine: Any, run_id: str, state_kwargs: dict[str, Any]) -> Run:
    """Return a run that stands where its last saved step ended.

    Raises ``KeyError`` for an unknown run and ``StateMigrationError`` for one
    that this code cannot read.
    """
    entries = engine.checkpoint_store.load(run_id)
    if not entries:
        raise StateMigrationError(f"run {run_id!r} ended before its beginning was saved")
    head, *steps = entries
    if head.get("format") != _FORMAT:
        raise StateMigrationError(
            f"unknown checkpoint format {head.get('format')!r}; known: {_FORMAT}"
        )
    task = Task.from_dict(head["task"]) if isinstance(head["task"], dict) else head["task"]
    last = steps[-1] if steps else {}
    seat = engine.entry_seat()
    if last and last["agent"] != seat.name:
        spec = engine.agent_registry.get(last["agent"]) if engine.agent_registry else None
        if spec is None:
            raise StateMigrationError(f"agent {last['agent']!r} of the run is not registered")
        seat = engine.seat_of(spec, 0, last_step=last["last_step"])
    text = task.objective if isinstance(task, Task) else task
    fresh = seat.agent.init_state(text, **state_kwargs)
    state = _state(fresh, (last or head)["state"])
    _set_attributes(state, (last or head).get("attributes", {}))
    run = Run(engine, task, state, engine.take_token())
    run.run_id, run.seat = run_id, seat
    for step in steps:
        _replay(run, step)
    if steps:
        _stand(run, last)
    return run


def _replay(run: Run, step: dict[str, Any]) -> None:
    """Put one saved step back into the run's records."""
    record = StepRecord(**step["record"])
    if record.decision is not None:
        record.decision = _decision(record.decision)
        record.actions = record.decision.actions
    events = [
        RuntimeEvent(**{**event, "phase": RuntimePhase(event["phase"])}) for event in step["events"]
    ]
    run.events += events
    record.phase_events = [e for e in events if e.phase is not RuntimePhase.INIT]
    run.records.append(record)
    if not step["messages_go_on"]:
        run.messages = []
    run.messages += [HistoryMessage(**message) for message in step["messages"]]


def _stand(run: Run, last: dict[str, Any]) -> None:
    """Let the run stand where its last step left it."""
    run.outputs = to_json_value(run.records[-1].action_results)
    run.step_id = len(run.records) - 1
    run.handoffs = last["handoffs"]
    run.charge(last["total_tokens"])
    run.started -= last["elapsed"]
    run.instruction_patch = last["instruction_patch"]
    run.modified_prompt = last["modified_prompt"]
    run.failure = last["failure"]
    if last["stop_reason"] is not None:
        run.stop_reason = StopReason(last["stop_reason"])


def _decision(row: dict[str, Any]) -> Decision:
    actions = [Action.from_dict(action) for action in row["actions"]]
    candidates = [_decision(candidate) for candidate in row["candidates"]]
    return Decision(**{**row, "actions": actions, "candidates": candidates})


def _saved(state: Any) -> dict[str, Any]:
    """The fields of a state, and what else was set on it under a public name."""
    own = getattr(state, "__dataclass_fields__", {})
    further = getattr(state, "__dict__", {}).items()
    attributes = {n: v for n, v in further if n not in own and not n.startswith("_")}
    return {"state": _spelled(state), "attributes": _spelled(attributes)}


def _state(fresh: Any, saved: dict[str, Any]) -> Any:
    """The saved state in the class of a fresh one, in the types of its annotations.

    What could not be saved - locks, clients - and private attributes come from the
    fresh state.
    """
    kind = type(fresh)
    if not is_dataclass(fresh):
        raise StateMigrationError(f"a state of type {kind.__name__} cannot be restored")
    own = {f.name: f for f in fields(fresh)}
    values = {n: _unspelled(saved[n]) for n in own if n in saved and not _lost(saved[n])}
    held = {n: getattr(fresh, n, None) for n in own} | getattr(fresh, "__dict__", {})
    kept = {n: v for n, v in held.items() if n not in values}
    needed = {
        n: v
        for n, v in kept.items()
        if n in own and own[n].default is own[n].default_factory is MISSING
    }
    if isinstance(fresh, StateSchema):
        state = kind.from_dict({**needed, **values}, strict=False)
    else:
        state = restored_state(kind, {**needed, **values})
    for name, value in kept.items():
        object.__setattr__(state, name, value)
    for name in values:
        value = getattr(state, name)
        object.__setattr__(state, name, like(value, held[name]))
    return state


def _set_attributes(state: Any, saved: dict[str, Any]) -> None:
    """Set what is no field, in the type of its annotation or of its fresh value."""
    hints = resolved_hints(type(state))
    for name, value in saved.items():
        if "$unserializable" in dumps(value):
            continue  # The fresh one works, half of one does not.
        value = _unspelled(value)
        hint = hints.get(name, type(getattr(state, name, None)))
        typed, error = outcome(form_of(hint, saved=True).read, value)
        if error is not None and name in hints:
            what = f"attribute {name!r} of {type(state).__name__} cannot be restored"
            raise StateMigrationError(f"state {what}: it {error}", name)
        setattr(state, name, typed if error is None else value)


def _lost(value: Any) -> bool:
    return isinstance(value, dict) and "$unserializable" in value


def _spelled(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A value with words for the numbers that JSON has none for.

    In sets, as in what is deep or holds itself, they stay, and are saved as null.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, complex):
        return {"$complex": str(value)}
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
    plain = isinstance(value, (list, tuple, deque))
    return [_spelled(v, above) for v in value] if plain else value


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


_WORDS: dict[str, Callable[[str], Any]] = {
    "$float": float,
    "$complex": complex,
    "$bytes": base64.b64decode,
}
