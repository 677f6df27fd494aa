"""One run in progress: what it has recorded, and who is at work."""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..core import Action, AgentSpec, Decision, HistoryMessage, ToolRegistry, ToolResult
from ..core._foreign import described, error_text, guarded, outcome, traced
from ..core._threads import RunThreads
from ..core.errors import ErrorCategory, QitosRuntimeError, RuntimeErrorInfo, StopReason
from ..core.state import StateSchema
from ..core.task import Task
from ._handoff import filtered, handed_over
from ._plain import StateView, plain
from ._recording import LOG, Recording
from .cancellation import CancelToken
from .hooks import HookContext, ToolHookContext
from .recovery import RecoveryDecision, asked, category_of
from .states import RuntimePhase

_OF_ENGINE = ("agent_registry", "approval_callback", "artifact_resolver", "auto_approve")
_OF_HOOKS = ("step_id", "phase", "state", "observation", "decision", "run_id")
_DENIED = ("approval_denied", "approval_required", "permission_denied")


class _Threads(RunThreads):
    """The threads of a run, which makes calls where it is while it is alone.

    Nobody but a tool itself could cancel a run in a process of one thread without handlers of
    signals: nothing is lost by waiting, and a change of threads costs more than all the step.
    """

    def __init__(self, token: CancelToken, time_left: Callable[[], float | None]) -> None:
        super().__init__(token, time_left)
        handlers = map(signal.getsignal, signal.valid_signals())
        # Ctrl-C as Python handles it comes through anyway.
        handled = any(callable(h) and h is not signal.default_int_handler for h in handlers)
        self._alone = time_left() is None and not handled

    def run(
        self, call: Callable[[], Any], limit: float | None = None, *, patient: bool = False
    ) -> Any:
        # What a toolset opens may belong to its thread, so these stay in one.
        alone = self._alone and limit is None and not patient and threading.active_count() == 1
        self._alone = alone and threading.current_thread() is threading.main_thread()
        if self._alone:
            return contextvars.copy_context().run(outcome, call)
        return super().run(call, limit, patient=patient)


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Who is at work: an agent with the tools, model and protocol of its turn."""

    name: str
    agent: Any
    spec: AgentSpec | None  # None for an entry agent that is not in the registry of agents.
    registry: ToolRegistry  # The tools of this run.
    llm: Any
    protocol: Any
    env: Any
    shared_memory: Any
    last_step: int | None = None  # Step id at which its own step limit ends the run.


class Run(Recording):
    """The mutable part of one ``Engine.run``; the engine itself stays as it is."""

    def __init__(self, engine: Any, task: str | Task, state: Any, token: CancelToken) -> None:
        super().__init__(engine, task, state)
        self.task = task
        self.task_text = task.objective if isinstance(task, Task) else task
        self.token = token
        self.messages: list[HistoryMessage] = []
        self.said = False  # Whether a message of this run is in the conversation.
        self.stop_reason: StopReason | None = None
        self.stop_known = getattr(state, "stop_reason", None)  # At the latest CHECK_STOP.
        self.failure: dict[str, Any] | None = None
        self.seat: Seat = engine.seat_of()
        self.seats = {self.seat.name: self.seat} if self.seat.spec else {}
        self.handoffs = 0
        self.idle: list[str] = []  # Who handed the run on since something was done.
        self.opened: list[Any] = list(getattr(engine.parent, "opened", ()))  # By callers, too.
        self.threads = _Threads(token, lambda: self.left(StopReason.BUDGET_TIME))
        # What tools may know and ask for at any time.
        own = {"run": self, "cancel_token": token, "threads": self.threads, "task": task}
        own |= {"delegate_depth": engine.delegate_depth, "request_handoff": self.request_handoff}
        self.offered = own | {name: getattr(engine, name) for name in _OF_ENGINE}
        self.closers: list[Callable[[], Any]] = [self.threads.close]  # For the end, last first.
        # Nobody reads the conversation of a lone agent that decides by itself.
        self.talks = bool(engine.agent_registry) or (engine.history, self.seat.llm) != (None, None)
        self.decision: Decision | None = None
        self.calls: list[Action] = []  # What the tools get of the actions of the decision.
        self.observation: dict[str, Any] = {}
        self.view = StateView()
        self.state_before: Any = None
        self.outputs: list[Any] = []
        self.results: list[Any] = []  # Of the latest tools; the outputs were taken of them.
        self.env_result: Any = None
        self.answer: Any = None
        self.retried = False
        self.instruction_patch: str | None = None
        self.modified_prompt: str | None = None
        self.pending_handoff: str | None = None
        self.transfers = 0  # Calls of handoff tools in this step.

    def tool_context(self, seat: Seat | None = None) -> dict[str, Any]:
        """What a seat's tools may know and ask for; by default the seat at work."""
        seat = seat or self.seat
        own = {"agent": seat.agent, "env": seat.env, "shared_memory": seat.shared_memory}
        now = {"run_id": self.run_id, "state": self.state, "step_id": self.step_id}
        return {**self.offered, **own, **now}

    @property
    def final_result(self) -> Any:
        found, _ = guarded(getattr, self.state, "final_result", None)
        return self.answer if found is None else found

    def over(self) -> bool:
        """Whether the run ends before the next step, by request or budget."""
        if self.stop_reason is None and self.token.mode is not None:
            self.stop_reason = StopReason(f"cancelled_{self.token.mode.value}")
        self.stop_reason = self.stop_reason or self.exhausted()
        return self.stop_reason is not None

    # Agents and their conversation

    def say(self, role: str, content: str, **metadata: Any) -> None:
        """Add a message to the conversation and the caller's history; the first names the task."""
        if not self.said:
            metadata["task"] = self.task_text
            self.said = True
        message = HistoryMessage(role, content, self.step_id, metadata)
        self.messages.append(message)
        if self.engine.history is not None:
            self.engine.history.append(message)

    def request_handoff(self, target: str) -> str | None:
        """Hand off when the tools of this step are done; what speaks against it."""
        self.transfers += 1
        earlier, self.pending_handoff = self.pending_handoff, self.pending_handoff or target
        return earlier and f"a handoff to {earlier!r} is under way already"

    def hand_off(self, target: str) -> None:
        """Give the run to another agent; what is wrong with it is raised."""
        spec = self._next_agent(target)
        context, name = spec.context, self.seat.name
        arrived = filtered(self.messages, context.strategy, context.max_history_rounds)
        most, known = spec.max_steps_override, self.seats.get(spec.name)
        last = None if most is None else self.step_id + 1 + most
        seat = replace(known or self.engine.seat_of(spec), last_step=last)
        self.open_tools(seat)
        state = handed_over(self.state, spec, self.task_text)
        told: dict[str, Any] = {"context_strategy": context.strategy.name}
        passed = {"from": name, "to": spec.name, **told, "messages_passed": len(arrived)}
        self.emit(RuntimePhase.HANDOFF_START, **passed)
        self.state, self.seat, self.messages = state, seat, arrived
        self.seats[spec.name] = seat
        self.handoffs += 1
        self.idle.append(name)
        self.emit(RuntimePhase.HANDOFF_END, agent=spec.name, **told)

    def _next_agent(self, target: str) -> AgentSpec:
        """The spec of the agent to hand off to, if that may be."""
        registry, most = self.engine.agent_registry, self.engine.max_handoffs
        spec = registry.get(target) if registry else None
        if len(self.record.tool_invocations) > self.transfers:
            self.idle.clear()
        if spec is None:
            fault = f"handoff to unknown agent {target!r}"
            fault += ", the engine has no agent_registry" if registry is None else ""
        elif spec is self.seat.spec:
            fault = f"agent {target!r} hands off to itself"
        elif target in self.idle:
            chain = " -> ".join([*self.idle, self.seat.name, target])
            fault = f"handoff loop: {target!r} is handed the run again and nothing was done since"
            fault += f" ({chain})"
        elif self.handoffs >= most:
            fault = f"handoff to {target!r} after {self.handoffs} handoffs, the most allowed"
        else:
            return spec
        raise QitosRuntimeError(fault)

    def opens(self, part: Any) -> bool:
        """Whether a toolset, environment or memory was not in use; from then on it is."""
        if any(part is other for other in self.opened):
            return False
        self.opened.append(part)
        return True

    def open_tools(self, seat: Seat) -> None:
        """Set up the toolsets of a seat, unless that was done in this run or a caller's."""
        tools = seat.registry.copy()
        tools._toolsets = [toolset for toolset in tools._toolsets if self.opens(toolset)]
        if not tools._toolsets:
            return
        # Where the tools work: what a toolset opens may belong to a thread.
        context, do = self.tool_context(seat), self.threads.do
        self.closers.append(lambda: do(tools.teardown, context))
        self.foreign(ErrorCategory.TOOL, do, tools.setup, context)

    def foreign(self, category: ErrorCategory, work: Callable[..., Any], *args: Any) -> Any:
        """Call a part of the run; what it raises says that it belongs to a category."""
        try:
            return work(*args)
        except BaseException as error:
            if category_of(error) is ErrorCategory.SYSTEM:
                guarded(setattr, error, "category", category)
            raise

    def hook(self, name: str, error: BaseException | None = None) -> None:
        if name not in self.listeners:
            return
        record = self.record or (self.records[-1] if self.records else None)
        context = HookContext(
            task=self.task_text,
            env_view=self.observation.get("env"),
            model_response=record.model_response if record else None,
            action_results=self.outputs,
            record=record,
            error=error,
            stop_reason=self.stop_reason and self.stop_reason.value,
            **{name: getattr(self, name) for name in _OF_HOOKS},
        )
        self.tell(name, context, self.engine)
        self.stamp()

    def tool_hook(self, moment: str, action: Action, result: ToolResult | None) -> None:
        denied = result is not None and result.error_code in _DENIED
        context = ToolHookContext(
            *(action.name, plain(action.args), action.action_id, self.step_id, self.state, result),
            error=None if result is None else result.error,
            run_id=self.run_id,
        )
        name = "on_permission_denied" if denied else f"on_{moment}_tool_use"
        self.tell(name, context, self.engine)

    # Steps and failures

    def attempt(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call a part of the run, whose failure it is if it raises; interrupts pass."""
        value, error = guarded(work, *args)
        if error is not None:
            self.fail(error)
        return value

    def fail(self, error: BaseException) -> None:
        """Record a failure; the policy may let the run go on. What ends it is logged, once."""
        self.stamp()
        category, text, phase = category_of(error), error_text(error), self.phase
        in_decide = phase in (RuntimePhase.INIT, RuntimePhase.DECIDE)
        failed = RuntimePhase.DECIDE_ERROR if in_decide else RuntimePhase.ACT_ERROR
        self.emit(failed, error=text, category=category.value)
        policy, answer = self.engine.recovery_policy, RecoveryDecision(False, False)
        # Critics fail closed, whatever a policy says.
        if policy is not None and phase not in (RuntimePhase.INIT, RuntimePhase.CRITIC):
            answer = asked(policy, self.state, phase.value, self.step_id, error)
        recovered = bool(answer.handled and answer.continue_run)
        told = {"recovered": recovered, "note": plain(answer.note)}
        self.emit(RuntimePhase.RECOVER, error=text, category=category.value, **told)
        if not recovered and self.failure is None:
            given = self.stop_reason or answer.stop_reason
            self.stop_reason = given or StopReason.UNRECOVERABLE_ERROR
            place, kind = (phase.value, self.step_id), type(error).__name__
            info = RuntimeErrorInfo(category, text, *place, type=kind, traceback=traced(error))
            self.failure = info.to_dict()
            words = (self.run_id, *place, described(error))
            # A program's own handlers and filters may raise; the run is not theirs.
            guarded(lambda: LOG.error("%s failed in %s of step %d: %s", *words, exc_info=error))
        self.hook("on_recover", error)

    def interrupted(self) -> None:
        self.stop_reason = StopReason.INTERRUPT
        self.token.cancel()  # Tools that were left behind may look at it.
        self.emit(RuntimePhase.INTERRUPT, error="KeyboardInterrupt")

    def end(self) -> None:
        reason = self.stop_reason = self.stop_reason or StopReason.UNRECOVERABLE_ERROR
        if isinstance(self.state, StateSchema):
            _, error = guarded(setattr, self.state, "stop_reason", reason.value)
            if error is not None:
                self.note("state_error", error_text(error))
        self.stamp()
        self.phase = RuntimePhase.END
        self.emit(RuntimePhase.END, stop_reason=reason.value)
