"""One run in progress: what it has recorded, and who is at work."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from typing import Any

from ..core.decision import Decision
from ..core.errors import (
    ErrorCategory,
    QitosRuntimeError,
    RuntimeErrorInfo,
    StopReason,
)
from ..core.history import HistoryMessage
from ..core.state import StateSchema
from ..core.task import Task, TaskResult
from ..core.tool_registry import ToolRegistry
from ..core.tool_result import ToolResult
from ._handoff_runtime import filtered, handed_over
from ._result import EngineResult
from ._traces import critic_traces, handoff_traces
from .cancellation import CancelMode, CancelToken
from .hooks import EngineHook, HookContext
from .recovery import RecoveryDecision
from .states import RuntimeBudget, RuntimeEvent, RuntimePhase, StepRecord

__all__ = ["Run", "Seat"]

_SUCCESS = (StopReason.SUCCESS, StopReason.FINAL, StopReason.ENV_TERMINAL)


@dataclass(frozen=True)
class Seat:
    """Who is at work: an agent with the tools, model and protocol of its turn."""

    name: str
    agent: Any
    registry: ToolRegistry
    llm: Any
    protocol: Any
    last_step: int | None = None
    """Step id at which its own step limit ends the run."""


class Run:
    """The mutable part of one ``Engine.run``; the engine itself stays as it is."""

    def __init__(self, engine: Any, task: str | Task, state: Any, token: CancelToken) -> None:
        self.engine = engine
        self.task = task
        self.task_text = task.objective if isinstance(task, Task) else task
        self.state = state
        self.token = token
        self.budget = effective_budget(engine.budget, task)
        self.run_id = f"run_{uuid.uuid4().hex[:12]}"
        self.started = time.monotonic()
        self.records: list[StepRecord] = []
        self.events: list[RuntimeEvent] = []
        self.messages: list[HistoryMessage] = []
        self.total_tokens = 0
        self.handoffs = 0
        self.seat: Seat = engine.entry_seat()
        self.stop_reason: StopReason | None = None
        self.failure: dict[str, Any] | None = None
        self.phase = RuntimePhase.INIT
        self.record: StepRecord | None = None
        self.decision: Decision | None = None
        self.observation: dict[str, Any] = {}
        self.results: list[ToolResult] = []
        self.outputs: list[Any] = []
        self.env_result: Any = None
        self.answer: Any = None
        self.retried = False
        self.instruction_patch: str | None = None
        self.modified_prompt: str | None = None
        self.pending_handoff: str | None = None
        self.state_before: dict[str, Any] = {}
        self.writer = engine.trace_writer
        self.hooks = list(engine.hooks)

    def tool_context(self) -> dict[str, Any]:
        """What a step's tools may know and ask for."""
        engine = self.engine
        return {
            "agent": self.seat.agent,
            "agent_registry": engine.agent_registry,
            "approval_callback": engine.approval_callback,
            "auto_approve": engine.auto_approve,
            "cancel_token": self.token,
            "delegate_depth": engine.delegate_depth,
            "env": engine.env,
            "request_handoff": self.request_handoff,
            "run": self,
            "run_id": self.run_id,
            "shared_memory": engine.shared_memory,
            "state": self.state,
            "step_id": self.step_id,
            "task": self.task,
        }

    # What is recorded

    @property
    def final_result(self) -> Any:
        """The answer, as the state has it or as it was given."""
        if isinstance(self.state, StateSchema):
            return self.state.final_result
        return self.answer

    @property
    def step_id(self) -> int:
        """Number of the step under way, from 0."""
        return len(self.records) if self.record is not None else max(len(self.records) - 1, 0)

    def emit(self, phase: RuntimePhase, *, error: str | None = None, **payload: Any) -> None:
        """Record an event; foreign values in ``payload`` must be snapshots."""
        event = RuntimeEvent(self.step_id, phase, error is None, payload, error)
        payload.update(
            run_id=self.run_id, step_id=event.step_id, phase=phase.value, ts=event.ts
        )
        self.events.append(event)
        if self.record is not None:
            self.record.phase_events.append(event)
        if self.writer is not None:
            self.trace("write_event", self.run_id, event)
        for hook in self.hooks:
            self.call_hook(hook, "on_event", event, self.state, self.record, self.engine)

    def trace(self, method: str, *args: Any) -> None:
        """Write to the trace; one that cannot be written must not cost the run."""
        try:
            getattr(self.writer, method)(*args)
        except Exception as error:
            self.writer = None
            text = f"trace stopped: {error_text(error)}"
            self.emit(RuntimePhase.RECOVER, error=text, stage="trace_error")

    def call_hook(self, hook: Any, name: str, *args: Any) -> None:
        """Call one hook method, if the hook has one of its own."""
        if getattr(type(hook), name, None) in (None, getattr(EngineHook, name)):
            return
        try:
            getattr(hook, name)(*args)
        except Exception as error:
            self.hooks = [other for other in self.hooks if other is not hook]
            text = f"{type(hook).__name__}.{name} raised {error_text(error)}; hook removed"
            self.emit(RuntimePhase.RECOVER, error=text, stage="hook_error")

    def hook(self, name: str, error: BaseException | None = None) -> None:
        """Tell all hooks of a moment of the run."""
        for hook in self.hooks:
            self.call_hook(hook, name, self.moment(error), self.engine)

    def moment(self, error: BaseException | None = None) -> HookContext:
        """The context that hooks are shown."""
        return HookContext(
            task=self.task_text,
            step_id=self.step_id,
            phase=self.phase,
            state=self.state,
            observation=self.observation,
            decision=self.decision,
            action_results=self.outputs,
            record=self.record,
            error=error,
            stop_reason=self.stop_reason and self.stop_reason.value,
            run_id=self.run_id,
        )

    # Limits

    def over(self) -> bool:
        """Whether the run ends before the next step, by request or budget."""
        if self.stop_reason is None and self.token.mode is not None:
            at_once = self.token.mode is CancelMode.IMMEDIATE
            self.stop_reason = (
                StopReason.CANCELLED_IMMEDIATE if at_once else StopReason.CANCELLED_AFTER_STEP
            )
        if self.stop_reason is None:
            self.stop_reason = self.exhausted()
        return self.stop_reason is not None

    def exhausted(self) -> StopReason | None:
        """The budget that is used up, if any."""
        steps, budget, own = len(self.records), self.budget, own_limit(self.state)
        if own is not None and steps >= own:
            return StopReason.MAX_STEPS
        limits = (
            (StopReason.BUDGET_STEPS, steps, budget.max_steps),
            (StopReason.BUDGET_STEPS, steps, self.seat.last_step),
            (StopReason.BUDGET_TIME, self.elapsed(), budget.max_runtime_seconds),
            (StopReason.BUDGET_TOKENS, self.total_tokens, budget.max_tokens),
        )
        return next(
            (reason for reason, used, most in limits if most is not None and used >= most),
            None,
        )

    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.started

    # Agents and their conversation

    def say(self, role: str, content: str, **metadata: Any) -> None:
        """Add a message to the conversation, and to the caller's history."""
        message = HistoryMessage(role, content, self.step_id, metadata)
        self.messages.append(message)
        if self.engine.history is not None:
            self.engine.history.append(message)

    def request_handoff(self, target: str) -> str | None:
        """Hand off when the tools of this step are done; what speaks against it."""
        if self.pending_handoff is not None:
            return f"a handoff to {self.pending_handoff!r} is under way already"
        self.pending_handoff = target
        return None

    def hand_off(self, target: str) -> None:
        """Give the run to another agent; what is wrong with it is raised."""
        spec = self.engine.agent_registry.get(target) if self.engine.agent_registry else None
        if spec is None:
            raise QitosRuntimeError(f"handoff to unknown agent {target!r}")
        if spec.agent is self.seat.agent or spec.name == self.seat.name:
            raise QitosRuntimeError(f"agent {target!r} hands off to itself")
        if self.handoffs >= self.engine.max_handoffs:
            raise QitosRuntimeError(
                f"handoff to {target!r} after {self.handoffs} handoffs, the most allowed"
            )
        context = spec.context
        arrived = filtered(self.messages, context.strategy, context.max_history_rounds)
        strategy = context.strategy.name
        self.emit(
            RuntimePhase.HANDOFF_START,
            **{"from": self.seat.name, "to": spec.name},
            context_strategy=strategy,
            messages_passed=len(arrived),
        )
        self.state = handed_over(self.state, spec, self.task_text)
        self.seat = self.engine.seat_of(spec, len(self.records) + 1)
        self.messages = arrived
        self.handoffs += 1
        self.emit(RuntimePhase.HANDOFF_END, agent=spec.name, context_strategy=strategy)

    # Steps and failures

    def begin_step(self) -> None:
        """Open the record of the next step."""
        self.record = StepRecord(len(self.records), agent_id=self.seat.name)
        self.decision, self.results, self.answer = None, [], None
        self.retried, self.env_result, self.pending_handoff = False, None, None

    def end_step(self) -> None:
        """Close the step's record: from here on it is history."""
        record, self.record = self.record, None
        if record is None:
            return
        self.records.append(record)
        if self.writer is not None:
            self.trace("write_step", self.run_id, record)
        for hook in self.hooks:
            self.call_hook(hook, "on_step_end", record, self.state, self.engine)

    def fail(self, error: BaseException) -> None:
        """Record a failure; the policy may let the run go on."""
        category = getattr(error, "category", ErrorCategory.SYSTEM)
        text = error_text(error)
        in_decide = self.phase in (RuntimePhase.INIT, RuntimePhase.DECIDE)
        phase = RuntimePhase.DECIDE_ERROR if in_decide else RuntimePhase.ACT_ERROR
        self.emit(phase, error=text, category=category.value)
        answer = self.recovery(error)
        recovered = answer.handled and answer.continue_run
        self.emit(
            RuntimePhase.RECOVER,
            error=text,
            category=category.value,
            recovered=recovered,
            note=answer.note,
        )
        self.hook("on_recover", error)
        if recovered:
            return
        info = RuntimeErrorInfo(
            category, self.phase.value, self.step_id, type(error).__name__, text
        )
        self.failure = info.to_dict()
        if self.stop_reason is None:
            self.stop_reason = answer.stop_reason or StopReason.UNRECOVERABLE_ERROR

    def recovery(self, error: BaseException) -> RecoveryDecision:
        """What the policy says; critics fail closed, whatever it says."""
        policy = self.engine.recovery_policy
        if policy is None or self.phase in (RuntimePhase.INIT, RuntimePhase.CRITIC):
            return RecoveryDecision(False, False)
        try:
            return policy.handle(self.state, self.phase.value, self.step_id, error)
        except Exception as again:
            return RecoveryDecision(False, False, note=f"policy raised {error_text(again)}")

    # The end

    def finish(self) -> EngineResult:
        """Record END and return the result; nothing here may raise."""
        reason = self.stop_reason or StopReason.UNRECOVERABLE_ERROR
        if isinstance(self.state, StateSchema):
            self.state.stop_reason = reason.value
        self.phase = RuntimePhase.END
        self.emit(RuntimePhase.END, stop_reason=reason.value)
        seconds = self.elapsed()
        result = EngineResult(
            state=self.state,
            records=self.records,
            events=self.events,
            step_count=len(self.records),
            task_result=TaskResult(
                task_id=self.task.id if isinstance(self.task, Task) else "",
                success=reason in _SUCCESS,
                stop_reason=reason.value,
                final_result=self.final_result,
                metrics={
                    "steps": len(self.records),
                    "elapsed_seconds": seconds,
                    "token_usage": self.total_tokens,
                },
            ),
            runtime_seconds=seconds,
            total_tokens=self.total_tokens,
            run_id=self.run_id,
            critic_traces=critic_traces(self.records),
            handoff_traces=handoff_traces(self.events),
            failure=self.failure,
        )
        if self.writer is not None:
            self.trace("finalize", result)
        for hook in self.hooks:
            self.call_hook(hook, "on_run_end", result, self.engine)
        return result


def error_text(error: BaseException) -> str:
    """What an exception says, even if its own text raises."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def effective_budget(budget: RuntimeBudget, task: str | Task) -> RuntimeBudget:
    """The engine's budget with what a task overrides, in a copy."""
    if not isinstance(task, Task):
        return replace(budget)
    own = {
        name: getattr(task.budget, name)
        for name in ("max_steps", "max_runtime_seconds", "max_tokens")
    }
    return replace(budget, **{k: v for k, v in own.items() if v is not None})


def own_limit(state: Any) -> int | None:
    """The step limit that a state sets itself.

    ``StateSchema``'s default says nothing: a larger budget would be cut to it.
    """
    limit = getattr(state, "max_steps", None)
    return limit if isinstance(limit, int) and limit != 10 else None
