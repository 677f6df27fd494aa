"""A run from INIT to END, whole or step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..core import ErrorCategory, QitosRuntimeError, StateSchema, StopReason, Task
from ..core._foreign import error_text, outcome
from ._checkpoint import Checkpoints
from ._plain import plain
from ._result import EngineResult, result_of
from ._run import Run
from ._stages import run_step
from .cancellation import CancelToken
from .states import RuntimePhase, StepResult

Interrupt = KeyboardInterrupt | None
_FAILURES = (RuntimePhase.DECIDE_ERROR, RuntimePhase.ACT_ERROR)


class EngineSession:
    """One run of an engine. ``run()`` takes it to its end; iterating, step by step.

    An interrupt ends the run and is raised when the result is there.
    """

    def __init__(self, engine: Any, run: Run, *, resumed: bool = False) -> None:
        self._engine = engine
        self._run = run
        self._resumed = resumed
        self._started = False
        self.result: EngineResult | None = None  # Once the run is over.

    def run(self) -> EngineResult:
        """Take all the steps that are left and return the result."""
        try:
            self._take_all()
        except KeyboardInterrupt as interrupt:
            self._finish(interrupt)
            raise
        assert self.result is not None
        return self.result

    def __iter__(self) -> Iterator[StepResult]:
        """Yield a ``StepResult`` after each step until the run is over."""
        return iter(self._next, None)

    def _next(self) -> StepResult | None:
        try:
            return self._step_result() if self._advance() else None
        except KeyboardInterrupt as interrupt:
            self._finish(interrupt)
            raise

    def _take_all(self) -> None:
        # Apart, as from Python 3.13 on the jump of a loop stands outside of a ``try`` around it.
        while self._advance():
            pass

    def _advance(self) -> bool:
        """Take a step; False when there was none left and the run is finished."""
        run = self._run
        if self.result is not None:
            return False
        if not self._started:
            self._started = True
            run.attempt(self._start)
        if run.attempt(run.over) is False:
            run_step(run)
            return True
        interrupt = self._finish()
        if interrupt is not None:
            raise interrupt
        return False

    def _start(self) -> None:
        """Record INIT and get tools and environment ready."""
        run, engine = self._run, self._engine
        self._record_start()
        run.tell("on_run_start", run.task_text, run.state, engine)
        if engine.recovery_policy is not None:
            engine.recovery_policy.reset()
        self._check_task()
        if run.opens(run.memory):
            run.keep("memory", "reset", run.run_id)
        run.remember("task", {"objective": run.task_text, "task_id": getattr(run.task, "id", None)})
        if engine.history is not None and not self._resumed:
            run.messages = list(engine.history.retrieve())
        if isinstance(run.state, StateSchema):
            run.state.validate()
        run.open_tools(run.seat)
        if (env := run.seat.env) is not None and run.opens(env):
            run.closers.append(lambda: env.teardown())
            run.foreign(ErrorCategory.ENV, lambda: env.setup(task=run.task))
            run.foreign(ErrorCategory.ENV, lambda: env.reset(task=run.task))

    def _record_start(self) -> None:
        run, engine = self._run, self._engine
        config = engine.export_config()
        specs = [spec.to_dict() for spec in engine.tool_registry.export_permissions()]
        _, error = outcome(self._start_trace, config.to_dict(), specs)
        if error is not None:
            run.trace = None
        if engine.checkpoint_store is not None:
            run.checkpoints = Checkpoints(engine.checkpoint_store, run)
        if not run.events:
            task = run.task if isinstance(run.task, Task) else None
            told: dict[str, Any] = {"task": run.task_text, "task_id": task and task.id}
            told["task_meta"] = task and {"task_id": task.id, **task.to_dict()}
            meta = {"agent_name": run.seat.name, "model_name": config.model_id or None}
            told["run_meta"] = {**meta, "protocol": config.protocol_id}
            told["run_meta"] |= {"tool_count": config.tool_count, "tools": specs}
            run.emit(RuntimePhase.INIT, **told, env=plain(getattr(engine.env, "name", None)))
        if not self._resumed:
            run.keep("checkpoints", "begin", run)
        if isinstance(error, KeyboardInterrupt):
            raise error  # Only now, so that INIT comes first in any case.
        if error is not None:
            run.note("trace_error", f"trace stopped: {error_text(error)}")

    def _start_trace(self, config: dict[str, Any], specs: list[dict[str, Any]]) -> None:
        """Begin the trace with what a resumed run did before."""
        run = self._run
        if run.trace is None:
            return
        run.trace.start(run.run_id, config, specs)
        for event in run.events:
            run.trace.write_event(run.run_id, event)
        for record in run.records:
            run.trace.write_step(run.run_id, record)

    def _check_task(self) -> None:
        """Refuse a task or environment that the run cannot work with."""
        run, env = self._run, self._engine.env
        if isinstance(run.task, Task):
            try:
                run.task.validate()
            except ValueError as error:
                run.stop_reason = StopReason.TASK_VALIDATION_FAILED
                raise QitosRuntimeError(str(error), ErrorCategory.TASK) from None
        for name in run.seat.registry.list_tools() if env is not None else ():
            for group in run.seat.registry.resolve(name).spec.required_ops or ():
                if not run.foreign(ErrorCategory.ENV, env.has_ops, group):
                    run.stop_reason = StopReason.ENV_CAPABILITY_MISMATCH
                    fault = f"tool {name!r} needs {group!r} operations, which environment"
                    fault += f" {env.name!r} does not offer"
                    raise QitosRuntimeError(fault, ErrorCategory.ENV)

    def _step_result(self) -> StepResult:
        run, record = self._run, self._run.records[-1]
        failed = [event for event in record.phase_events if event.phase in _FAILURES]
        return StepResult(
            *(record.step_id, record.decision, record, record.observation, record.action_results),
            stop=run.stop_reason is not None,
            stop_reason=run.stop_reason and run.stop_reason.value,
            error=failed[0].error if failed else None,
            recovered=bool(failed) and run.failure is None,
        )

    def _finish(self, interrupt: Interrupt = None) -> Interrupt:
        """End the run; return the interrupt that came before or meanwhile, put off till then."""
        run, engine = self._run, self._engine
        if self.result is not None:
            return interrupt
        interrupt = self._interrupt_of(run.end_step) or interrupt
        while run.closers:
            interrupt = self._interrupt_of(run.closers.pop(), "teardown_error") or interrupt
        if interrupt is not None and not run.ended:
            self._interrupt_of(run.interrupted)
        interrupt = self._interrupt_of(run.end) or interrupt
        self.result = engine.last_result = result_of(run)
        if run.token is engine.token and run.token.mode is not None:
            engine.token = CancelToken()  # The next run is not cancelled.
        told = self._interrupt_of(lambda: run.keep("trace", "finalize", self.result))
        last = self._interrupt_of(lambda: run.tell("on_run_end", self.result, engine))
        return last or told or interrupt

    def _interrupt_of(self, work: Callable[[], Any], stage: str = "end_error") -> Interrupt:
        _, error = outcome(work)
        if isinstance(error, KeyboardInterrupt):
            return error
        if error is not None:
            self._run.note(stage, error_text(error))
        return None
