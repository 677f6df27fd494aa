"""What a run records, who is told of it, and what of its budget is left."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

from ..core import ErrorCategory, MemoryRecord, StopReason, Task, TaskBudget
from ..core._foreign import error_text, guarded
from .hooks import listeners
from .states import RuntimeEvent, RuntimePhase, StepRecord

LOG = logging.getLogger("qitos_min")


class Recording:
    """What a run records and who is told; what fails in being told is noted and left out."""

    seat: Any

    def __init__(self, engine: Any, task: str | Task, state: Any) -> None:
        self.engine, self.state = engine, state
        named = getattr(engine.trace_writer, "run_id", None)
        fresh = not isinstance(named, str) or named == getattr(engine.last_result, "run_id", None)
        self.run_id = f"run_{uuid.uuid4().hex[:12]}" if fresh else named
        self.records: list[StepRecord] = []
        self.events: list[RuntimeEvent] = []
        self.record: StepRecord | None = None  # Of the step under way.
        self.step_id = 0  # Of the step under way or just finished.
        self.phase = RuntimePhase.INIT  # What is under way.
        self.ended, self.trace = False, engine.trace_writer
        self.checkpoints: Any = None
        self.memory = getattr(engine.agent, "memory", None)
        sink = getattr(engine.runtime, "event_sink", None)
        heard = [SimpleNamespace(on_event=lambda event, *_: sink(event))] if sink else []
        self.listeners = listeners([*engine.hooks, *heard])
        own = task.budget if isinstance(task, Task) else None
        given = vars(own) if isinstance(own, TaskBudget) else {}
        self.budget = replace(engine.budget, **{k: v for k, v in given.items() if v is not None})
        self.budget_info = {f"budget_{name}": most for name, most in vars(self.budget).items()}
        self.parent: Recording | None = engine.parent  # The run that delegated this one.
        self.total_tokens = 0  # With those of delegates, as they use them.
        self._purse = threading.Lock()
        self.started = time.monotonic()
        self._second = (0, "")
        self.stamp()

    def stamp(self) -> None:
        """Take the time for the events that follow: call it when something long has ended."""
        second, micros = divmod(time.time_ns() // 1000, 1_000_000)
        if second != self._second[0]:
            self._second = (second, datetime.fromtimestamp(second, timezone.utc).isoformat()[:19])
        self.ts = f"{self._second[1]}.{micros:06d}+00:00"

    def emit(
        self, phase: RuntimePhase | None = None, *, error: str | None = None, **payload: Any
    ) -> None:
        """Record an event, by default of the phase under way; the payload is plain and shared."""
        if self.ended:  # A tool that timed out may still be talking.
            return
        phase = phase or self.phase
        event = RuntimeEvent(self.step_id, phase, error is None, payload, error, self.ts)
        if error is not None:
            payload["error"] = error
        payload["run_id"] = self.run_id
        payload["step_id"] = self.step_id
        payload["phase"] = name = phase._value_  # What ``value`` gives, without a property.
        payload["ts"] = self.ts
        self.events.append(event)
        self.ended = name == "END"
        if self.record is not None:
            self.record.phase_events.append(event)
        if self.trace is not None:
            self.keep("trace", "write_event", self.run_id, event)
        if self.listeners:
            self.tell("on_event", event, self.state, self.record, self.engine)

    def note(self, stage: str, text: str) -> None:
        """Record and log what went wrong beside the run; after its END only the log is left."""
        # A program's own handlers and filters may raise; the run is not theirs.
        guarded(LOG.warning, "%s: %s: %s", self.run_id, stage, text)
        category = ErrorCategory.SYSTEM.value
        self.emit(RuntimePhase.RECOVER, error=text, stage=stage, category=category)

    def keep(self, part: str, method: str, *args: Any) -> None:
        """Call ``trace``, ``checkpoints`` or ``memory``, if it is there and still works."""
        try:
            if (keeper := getattr(self, part)) is not None:
                getattr(keeper, method)(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            setattr(self, part, None)
            self.note(f"{part}_error", f"{part} stopped: {error_text(error)}")

    def remember(self, role: str, content: Any) -> None:
        if self.memory is not None:
            self.keep("memory", "append", MemoryRecord(role, content, self.step_id, {}))

    def tell(self, name: str, *args: Any) -> None:
        """Call a method of every hook that has it; a hook that raises is removed."""
        for hook, method in self.listeners.get(name, ()):
            _, error = guarded(method, *args)
            if error is not None:
                heard = {k: [p for p in v if p[0] is not hook] for k, v in self.listeners.items()}
                self.listeners = {known: pairs for known, pairs in heard.items() if pairs}
                text = f"{type(hook).__name__}.{name} raised {error_text(error)}; hook removed"
                self.note("hook_error", text)

    def end_step(self) -> None:
        """Close the step's record: from here on it is history."""
        if (record := self.record) is None:
            return
        # An interrupt may come between any two of these and lead here again.
        if not self.records or self.records[-1] is not record:
            self.records.append(record)
        self.record = None
        self.keep("trace", "write_step", self.run_id, record)
        self.keep("checkpoints", "save", self, record)
        self.tell("on_step_end", record, self.state, self.engine)

    # The budget, and what a delegating run around this one has left

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def _limits(self) -> tuple[tuple[StopReason, float, float | None], ...]:
        """Each limit: its stop reason, what is used of it, and how much may be."""
        steps, budget, tokens = len(self.records), self.budget, StopReason.BUDGET_TOKENS
        own = getattr(self.state, "max_steps", None)
        # ``StateSchema``'s default says nothing: a larger budget would be cut to it.
        own = own if isinstance(own, int) and own != 10 else None
        return (
            (StopReason.BUDGET_STEPS, steps, budget.max_steps),
            (StopReason.BUDGET_STEPS, steps, self.seat.last_step),
            (StopReason.MAX_STEPS, steps, own),
            (StopReason.BUDGET_TIME, self.elapsed(), budget.max_runtime_seconds),
            (tokens, self.total_tokens, budget.max_tokens),
            # What runs beside this one, within the same parent, spends the same tokens.
            (tokens, 0, None if self.parent is None else self.parent.left(tokens)),
        )

    def exhausted(self) -> StopReason | None:
        hit = [reason for reason, used, most in self._limits() if most is not None and used >= most]
        return hit[0] if hit else None

    def left(self, *reasons: StopReason) -> float | None:
        """What is left until a run ends for one of the reasons, at least 0; None: no limit."""
        limits = (limit for limit in self._limits() if limit[0] in reasons)
        left = [max(most - used, 0) for _, used, most in limits if most is not None]
        return min(left, default=None)

    def charge(self, tokens: int) -> None:
        """Count tokens that were used, here and in the runs around this one."""
        with self._purse:  # Delegates may run side by side.
            self.total_tokens += tokens
        if self.parent is not None:
            self.parent.charge(tokens)
