"""Giving a part of the work to another agent and waiting for its answer."""

from __future__ import annotations

from typing import Any

from ..core.agent_spec import AgentSpec
from ..core.tool import BaseTool, ToolSpec
from ..core.tool_result import ToolResult
from ._recording import error_text
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
    """

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
        if context["delegate_depth"] >= _MAX_DEPTH:
            return ToolResult.policy_error(
                code="delegate_depth_exceeded",
                error=f"delegation to {name!r} would be deeper than {_MAX_DEPTH} levels",
            )
        text = args["task"]
        if args.get("context"):
            text = f"{text}\n\nContext: {args['context']}"
        run.emit(RuntimePhase.DELEGATE_START, agent=name, task=text)
        try:
            result = self._engine(context).run(text)
        except Exception as error:
            # What keeps a run from starting: its init_state, or the agent itself.
            run.emit(RuntimePhase.DELEGATE_END, error=error_text(error), agent=name)
            raise
        self._merge(run, result)
        status = result.task_result.stop_reason
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

    def _engine(self, context: dict[str, Any]) -> Engine:
        spec, run = self._agent, context["run"]
        steps = spec.max_steps_override or run.budget.max_steps
        engine = Engine(
            spec.agent,
            tool_registry=spec.tools_override,
            budget=RuntimeBudget(max_steps=steps),
            critics=self._critics,
            agent_registry=context["agent_registry"],
            env=context["env"] if spec.shared_env else None,
            delegate_depth=context["delegate_depth"] + 1,
            shared_memory=context["shared_memory"]
            if spec.shared_memory is None
            else spec.shared_memory,
            approval_callback=context["approval_callback"],
            auto_approve=context["auto_approve"],
        )
        engine.follow(run.token)
        return engine

    def _merge(self, run: Any, result: Any) -> None:
        """Add what the nested run was told by its critics, and its handoffs."""
        run.total_tokens += result.total_tokens
        for record in result.records:
            for output in record.critic_outputs:
                details = output["details"] if isinstance(output["details"], dict) else {}
                details = {"agent": self._agent.name, "step": record.step_id, **details}
                run.record.critic_outputs.append({**output, "details": details})
        for event in result.events:
            if event.phase is RuntimePhase.HANDOFF_START:
                names = ("from", "to", "context_strategy", "messages_passed")
                run.emit(event.phase, **{name: event.payload[name] for name in names})
