"""A run from INIT to END, whole or step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core._json import to_json_value
from ..core.errors import ErrorCategory, QitosRuntimeError, StopReason
from ..core.task import Task
from ._result import EngineResult
from ._run import Run
from ._stages import run_step
from .states import RuntimePhase, StepResult

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["EngineSession"]


class EngineSession:
    """One run of an engine. ``run()`` takes it to its end; iterating, step by step."""

    def __init__(self, engine: Engine, task: str | Task, state_kwargs: dict[str, Any]) -> None:
        if not isinstance(task, (str, Task)):
            raise TypeError(f"task must be text or a Task, got {type(task).__name__}")
        text = task.objective if isinstance(task, Task) else task
        state = engine.agent.init_state(text, **state_kwargs)
        self._engine = engine
        self._run = Run(engine, task, state, engine.take_token())
        self._started = False
        self.result: EngineResult | None = None
        """The result, once the run is over."""

    def run(self) -> EngineResult:
        """Take all the steps that are left and return the result."""
        for _ in self:
            pass
        assert self.result is not None
        return self.result

    def __iter__(self) -> Iterator[StepResult]:
        """Yield a ``StepResult`` after each step until the run is over."""
        run = self._run
        while self.result is None:
            step = None
            try:
                if not self._started:
                    self._start()
                if not run.over():
                    run_step(run)
                    step = self._step_result()
            except KeyboardInterrupt:
                run.end_step()
                run.stop_reason = StopReason.INTERRUPT
                run.emit(RuntimePhase.INTERRUPT, error="KeyboardInterrupt")
                self._finish()
                raise
            if step is None:
                self._finish()
            else:
                yield step

    def _start(self) -> None:
        """Record INIT and get tools and environment ready."""
        run, engine = self._run, self._engine
        self._started = True
        if engine.recovery_policy is not None:
            engine.recovery_policy.reset()
        if run.writer is not None:
            config = engine.export_config().to_dict()
            specs = [s.to_dict() for s in engine.tool_registry.export_permissions()]
            run.trace("start", run.run_id, config, specs)
        run.emit(RuntimePhase.INIT, **self._init_payload())
        for hook in run.hooks:
            run.call_hook(hook, "on_run_start", run.task_text, run.state, engine)
        try:
            self._check_task()
            run.seat.registry.setup(run.tool_context())
            if engine.env is not None:
                engine.env.setup(run.task)
                engine.env.reset(run.task)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            run.fail(error)

    def _init_payload(self) -> dict[str, Any]:
        run, engine = self._run, self._engine
        config = engine.export_config()
        meta = None
        if isinstance(run.task, Task):
            meta = {"task_id": run.task.id, **run.task.to_dict()}
        return {
            "task": run.task_text,
            "task_id": run.task.id if isinstance(run.task, Task) else None,
            "task_meta": meta,
            "run_meta": {
                "agent_name": run.seat.name,
                "model_name": config.model_id or None,
                "protocol": config.protocol_id,
                "tool_count": config.tool_count,
                "tools": [s.to_dict() for s in engine.tool_registry.export_permissions()],
            },
            "env": None if engine.env is None else to_json_value(engine.env.name),
        }

    def _check_task(self) -> None:
        """Refuse a task or environment that the run cannot work with."""
        run, env = self._run, self._engine.env
        if isinstance(run.task, Task):
            try:
                run.task.validate()
            except ValueError as error:
                run.stop_reason = StopReason.TASK_VALIDATION_FAILED
                raise QitosRuntimeError(str(error), ErrorCategory.TASK) from None
        if env is None:
            return
        for name in run.seat.registry.list_tools():
            for group in run.seat.registry.get(name).spec.required_ops or ():
                if not env.has_ops(group):
                    run.stop_reason = StopReason.ENV_CAPABILITY_MISMATCH
                    raise QitosRuntimeError(
                        f"tool {name!r} needs {group!r} operations,"
                        f" which environment {env.name!r} does not offer",
                        ErrorCategory.ENV,
                    )

    def _step_result(self) -> StepResult:
        run = self._run
        record = run.records[-1]
        failed = [event for event in record.phase_events if not event.ok]
        return StepResult(
            step_id=record.step_id,
            decision=record.decision,
            record=record,
            observation=record.observation,
            action_results=record.action_results,
            stop=run.stop_reason is not None,
            stop_reason=run.stop_reason and run.stop_reason.value,
            error=failed[0].error if failed else None,
            recovered=bool(failed) and run.failure is None,
        )

    def _finish(self) -> None:
        run, engine = self._run, self._engine
        try:
            run.seat.registry.teardown(run.tool_context())
        except Exception as error:
            run.emit(RuntimePhase.RECOVER, error=str(error), stage="teardown_error")
        self.result = engine.last_result = run.finish()
        engine.take_token(run.token)
