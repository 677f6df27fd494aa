"""What is saved after each step, and a run made of it again."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from ..core._json import to_json_value
from ..core.action import Action
from ..core.decision import Decision
from ..core.errors import StopReason
from ..core.history import HistoryMessage
from ..core.state import StateMigrationError, StateSchema
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
        entry = {"format": _FORMAT, "task": task, "state": run.state}
        self._store.append(run.run_id, entry)

    def save(self, run: Run, record: StepRecord) -> None:
        """Save a finished step and where the run stands after it."""
        held, count = self._messages
        same = held is run.messages
        entry = {
            "record": record.to_row(),
            "events": [event.to_dict() for event in run.events[self._events :]],
            "state": run.state,
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
    head, *steps = engine.checkpoint_store.load(run_id)
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
    run = Run(engine, task, _state(fresh, (last or head)["state"]), engine.take_token())
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
        RuntimeEvent(**{**event, "phase": RuntimePhase(event["phase"])})
        for event in step["events"]
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
    run.handoffs = last["handoffs"]
    run.total_tokens = last["total_tokens"]
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


def _state(fresh: Any, saved: dict[str, Any]) -> Any:
    """The saved state in the class of a fresh one.

    A field that could not be saved keeps the fresh state's value.
    """
    if not is_dataclass(fresh):
        raise StateMigrationError(f"a state of type {type(fresh).__name__} cannot be restored")
    values = {
        f.name: saved[f.name]
        for f in fields(fresh)
        if f.name in saved and not _lost(saved[f.name])
    }
    if isinstance(fresh, StateSchema):
        kept = {f.name: getattr(fresh, f.name) for f in fields(fresh) if f.init}
        return type(fresh).from_dict({**kept, **values}, strict=False)
    for name, value in values.items():
        setattr(fresh, name, value)
    return fresh


def _lost(value: Any) -> bool:
    return isinstance(value, dict) and "$unserializable" in value
