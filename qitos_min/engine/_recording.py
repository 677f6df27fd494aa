"""What a run records, and who is told of it."""

from __future__ import annotations

import logging
import uuid
from typing import Any

from ..core._foreign import error_text, guarded
from ..core.errors import ErrorCategory
from .hooks import listeners
from .states import RuntimeEvent, RuntimePhase, StepRecord

__all__ = ["LOG", "Recording", "error_text"]

LOG = logging.getLogger("qitos_min")


class Recording:
    """Records and events of a run; tells them to trace, checkpoints and hooks.

    None of these may cost the run: one that fails is noted and left out.
    """

    def __init__(self, engine: Any, state: Any) -> None:
        self.engine = engine
        self.state = state
        self.run_id = f"run_{uuid.uuid4().hex[:12]}"
        self.records: list[StepRecord] = []
        self.events: list[RuntimeEvent] = []
        self.record: StepRecord | None = None
        """The record of the step under way."""
        self.ended = False
        self.trace = engine.trace_writer
        self.checkpoints: Any = None
        self.listeners = listeners(engine.watchers())

    @property
    def step_id(self) -> int:
        """Number of the step under way or just finished, from 0."""
        record = self.record
        return max(len(self.records) - 1, 0) if record is None else record.step_id

    def emit(self, phase: RuntimePhase, *, error: str | None = None, **payload: Any) -> None:
        """Record an event; foreign values in ``payload`` must be snapshots.

        Nothing is recorded after END: a tool that timed out may still be talking.
        """
        if self.ended:
            return
        event = RuntimeEvent(self.step_id, phase, error is None, payload, error)
        if error is not None:
            payload["error"] = error
        payload["run_id"] = self.run_id
        payload["step_id"] = event.step_id
        payload["phase"] = phase.value
        payload["ts"] = event.ts
        self.events.append(event)
        self.ended = phase is RuntimePhase.END
        if self.record is not None:
            self.record.phase_events.append(event)
        self.keep("trace", "write_event", self.run_id, event)
        self.tell("on_event", event, self.state, self.record, self.engine)

    def note(self, stage: str, text: str) -> None:
        """Record what went wrong beside the run; after its END only the log is left."""
        if self.ended:
            LOG.warning("%s: %s: %s", self.run_id, stage, text)
        else:
            category = ErrorCategory.SYSTEM.value
            self.emit(RuntimePhase.RECOVER, error=text, stage=stage, category=category)

    def keep(self, part: str, method: str, *args: Any) -> None:
        """Call ``trace`` or ``checkpoints``, if there is one that still works."""
        if (keeper := getattr(self, part)) is None:
            return
        _, error = guarded(lambda: getattr(keeper, method)(*args))
        if error is not None:
            setattr(self, part, None)
            self.note(f"{part}_error", f"{part} stopped: {error_text(error)}")

    def tell(self, name: str, *args: Any) -> None:
        """Call a method of every hook that has it; a hook that raises is removed."""
        for hook, method in self.listeners.get(name, ()):
            _, error = guarded(method, *args)
            if error is None:
                continue
            self.listeners = {
                known: [pair for pair in pairs if pair[0] is not hook]
                for known, pairs in self.listeners.items()
            }
            text = f"{type(hook).__name__}.{name} raised {error_text(error)}; hook removed"
            self.note("hook_error", text)

    def end_step(self) -> None:
        """Close the step's record: from here on it is history."""
        record = self.record
        if record is None:
            return
        # An interrupt may come between any two of these and lead here again.
        if not self.records or self.records[-1] is not record:
            self.records.append(record)
        self.record = None
        self.keep("trace", "write_step", self.run_id, record)
        self.keep("checkpoints", "save", self, record)
        self.tell("on_step_end", record, self.state, self.engine)
