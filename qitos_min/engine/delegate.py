"""Giving a part of the work to another agent and waiting for its answer."""

from __future__ import annotations

from typing import Any

from ..core._foreign import error_text
from ..core.agent_spec import AgentSpec
from ..core.errors import StopReason
from ..core.tool import BaseTool, ToolSpec
from ..core.tool_result import ToolResult
from ._run import Run
from .engine import Engine
from .states import RuntimeBudget, RuntimePhase

__all__ = ["DelegateTool"]

_MAX_DEPTH = 3

_PARAMETERS = {
    "task": {"type": "string", "description": "what the agent is to do"},
    "context": {"type": "string", "description": "what it needs to know"},
}


class DelegateTool(BaseTool):
    """``delegate_to_<name>``: a run within the run.

    The nested run has the caller's approval, environment (unless the spec says
    otherwise), registry of agents and cancellation. Its critic verdicts and
    handoffs are added to the caller's step, the agent's name in the details.
    Three levels deep is the most.

    It gets what is left of the caller's budget, and with it of the budgets around
    that. Seconds are those of the clock. Tokens are charged to all runs around it when
    they are used, and it ends when they are out of them; delegates side by side
    exceed the budget by one step each at most. Steps are counted for each agent of
    its own: the delegate may take as many as the caller could after the step under way,
    and those it takes do not shorten the caller's run, which has to use its answer.
    With nothing left, the call is refused.
    """

    in_calling_thread = True  # Its own tools can be left behind.

    def __init__(self, spec: AgentSpec, *, critics: list[Any] | None = None) -> None:
        super().__init__(
            ToolSpec(
                name=f"delegate_to_{spec.name}",
                description=f"Let {spec.name} do a part of the task: {spec.description}",
                parameters=_PARAMETERS,
                required=["task"],
            )
        )
        self._agent = spec
        self._critics = critics

    def execute(
        self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None
    ) -> ToolResult:
        """Run the agent; its failure is this call's error."""
        context = runtime_context or {}
        run, name = context["run"], self._agent.name
        refusal = self._refusal(context)
        if refusal is not None:
            return refusal
        text = args["task"]
        if args.get("context"):
            text = f"{text}\n\nContext: {args['context']}"
        run.stamp()
        run.emit(RuntimePhase.DELEGATE_START, agent=name, task=text)
        try:
            result = self._engine(context).run(text)
        except Exception as error:
            # What keeps a run from starting: its init_state, or the agent itself.
            run.stamp()
            run.emit(RuntimePhase.DELEGATE_END, error=error_text(error), agent=name)
            raise
        self._merge(run, result)
        status = result.task_result.stop_reason
        run.stamp()
        said = result.failure["message"] if result.failure else None
        run.emit(
            RuntimePhase.DELEGATE_END,
            error=said,
            agent=name,
            stop_reason=status,
            steps=result.step_count,
        )
        if result.failure is not None:
            return ToolResult.execution_error(
                code="delegate_failed",
                error=f"{name} failed: {said}",
                metadata={"traceback": result.failure["traceback"]},
            )
        return ToolResult(
            output={
                "agent": name,
                "final_result": result.to_dict()["task_result"]["final_result"],
                "stop_reason": status,
                "steps": result.step_count,
            }
        )

    def _refusal(self, context: dict[str, Any]) -> ToolResult | None:
        name = self._agent.name
        if context["delegate_depth"] >= _MAX_DEPTH:
            return ToolResult.policy_error(
                code="delegate_depth_exceeded",
                error=f"delegation to {name!r} would be deeper than {_MAX_DEPTH} levels",
            )
        left = _left(context["run"])
        spent = next((what for what, rest in left.items() if rest == 0), None)
        if spent is None:
            return None
        return ToolResult.policy_error(
            code="delegate_budget_exhausted",
            error=f"delegation to {name!r} refused: nothing is left of {spent}"
            " of the run's budget",
        )

    def _engine(self, context: dict[str, Any]) -> Engine:
        spec, run = self._agent, context["run"]
        left = _left(run)
        if spec.max_steps_override is not None:
            steps = left["max_steps"]
            steps = (
                spec.max_steps_override if steps is None else min(spec.max_steps_override, steps)
            )
            left["max_steps"] = steps
        engine = Engine(
            spec.agent,
            tool_registry=spec.tools_override,
            budget=RuntimeBudget(**left),
            critics=self._critics,
            agent_registry=context["agent_registry"],
            env=context["env"] if spec.shared_env else None,
            delegate_depth=context["delegate_depth"] + 1,
            shared_memory=(
                context["shared_memory"] if spec.shared_memory is None else spec.shared_memory
            ),
            approval_callback=context["approval_callback"],
            auto_approve=context["auto_approve"],
        )
        engine.follow(run.token, run)
        return engine

    def _merge(self, run: Any, result: Any) -> None:
        """Add what the nested run was told by its critics, and its handoffs."""
        for record in result.records:
            for output in record.critic_outputs:
                details = output["details"] if isinstance(output["details"], dict) else {}
                details = {"agent": self._agent.name, "step": record.step_id, **details}
                run.record.critic_outputs.append({**output, "details": details})
        for event in result.events:
            if event.phase is RuntimePhase.HANDOFF_START:
                names = ("from", "to", "context_strategy", "messages_passed")
                run.emit(event.phase, **{name: event.payload[name] for name in names})


def _left(run: Run) -> dict[str, Any]:
    """What is left of a run's budget, by the names of its fields; None: no limit."""
    steps = run.left(StopReason.BUDGET_STEPS, StopReason.MAX_STEPS)
    return {
        "max_steps": None if steps is None else max(int(steps) - 1, 0),
        "max_runtime_seconds": run.left(StopReason.BUDGET_TIME),
        "max_tokens": run.left(StopReason.BUDGET_TOKENS),
    }
