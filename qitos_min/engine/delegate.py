"""Giving a part of the work to other agents and waiting for their answers."""

from __future__ import annotations

from typing import Any

from ..core._execution import raised
from ..core._foreign import error_text, guarded
from ..core.agent_spec import AgentRegistry, AgentSpec
from ..core.errors import StopReason
from ..core.tool import BaseTool, ToolSpec
from ..core.tool_result import ToolResult
from ._run import Run
from .engine import Engine
from .states import RuntimeBudget, RuntimePhase

__all__ = ["DelegateTool", "FanoutTool"]

_MAX_DEPTH = 3
_TASK = {"type": "string", "description": "what the agent is to do"}
_PARAMETERS = {"task": _TASK, "context": {"type": "string", "description": "what it needs to know"}}
_PART = {
    "type": "object",
    "properties": {"agent": {"type": "string", "description": "who is to do it"}, "task": _TASK},
    "required": ["agent", "task"],
}


class DelegateTool(BaseTool):
    """``delegate_to_<name>``: a run within the run, at most three levels deep.

    The nested run has the caller's approval, environment (unless the spec says
    otherwise), registry of agents and cancellation. Its critic verdicts and
    handoffs are added to the caller's step, the agent's name in the details.

    It gets what is left of the caller's budget, and with it of the budgets around
    that. Tokens are charged to all runs around it when they are used; delegates side by
    side exceed the budget by one step each at most. It may take as many steps as the
    caller could after the step under way, and those do not shorten the caller's run.
    With nothing left, the call is refused.
    """

    in_calling_thread = True  # Its own tools can be left behind.

    def __init__(self, spec: AgentSpec, *, critics: list[Any] | None = None) -> None:
        text = f"Let {spec.name} do a part of the task: {spec.description}"
        name = f"delegate_to_{spec.name}"
        super().__init__(ToolSpec(name, text, parameters=_PARAMETERS, required=["task"]))
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
            run.emit(RuntimePhase.DELEGATE_END, error=error_text(error), agent=name)
            raise
        self._merge(run, result)
        status = result.task_result.stop_reason
        run.stamp()
        said = result.failure["message"] if result.failure else None
        told = {"agent": name, "stop_reason": status, "steps": result.step_count}
        run.emit(RuntimePhase.DELEGATE_END, error=said, **told)
        if result.failure is not None:
            return ToolResult.execution_error(
                code="delegate_failed",
                error=f"{name} failed: {said}",
                metadata={"traceback": result.failure["traceback"]},
            )
        answer = result.to_dict()["task_result"]["final_result"]
        return ToolResult(output={"agent": name, "final_result": answer, **told})

    def _refusal(self, context: dict[str, Any]) -> ToolResult | None:
        name, left = self._agent.name, _left(context["run"])
        code = "delegate_budget_exhausted"
        spent = next((what for what, rest in left.items() if rest == 0), None)
        why = f"refused: nothing is left of {spent} of the run's budget"
        if context["delegate_depth"] >= _MAX_DEPTH:
            code, why = "delegate_depth_exceeded", f"would be deeper than {_MAX_DEPTH} levels"
        elif spent is None:
            return None
        return ToolResult.policy_error(code=code, error=f"delegation to {name!r} {why}")

    def _engine(self, context: dict[str, Any]) -> Engine:
        spec, run = self._agent, context["run"]
        left, most = _left(run), spec.max_steps_override
        if most is not None:
            left["max_steps"] = min(filter(lambda n: n is not None, (most, left["max_steps"])))
        shared = context["shared_memory"] if spec.shared_memory is None else spec.shared_memory
        engine: Engine = Engine(
            spec.agent,
            tool_registry=spec.tools_override,
            budget=RuntimeBudget(**left),
            critics=self._critics,
            agent_registry=context["agent_registry"],
            env=context["env"] if spec.shared_env else None,
            delegate_depth=context["delegate_depth"] + 1,
            shared_memory=shared,
            approval_callback=context["approval_callback"],
            auto_approve=context["auto_approve"],
        )
        engine.token, engine.parent = run.token, run
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


class FanoutTool(BaseTool):
    """``fanout``: runs a task by each of several agents, as ``DelegateTool`` does.

    The output is the list of their outputs, in the order of the tasks; one that failed
    has its error there, and fails the call only when all of them did.
    """

    in_calling_thread = True

    def __init__(self, agents: AgentRegistry) -> None:
        who = "; ".join(f"{spec.name}: {spec.description}" for spec in agents)
        text = f"Let several agents work on parts of the task ({who})"
        parameters = {"tasks": {"type": "array", "items": _PART, "minItems": 1}}
        super().__init__(ToolSpec("fanout", text, parameters=parameters, required=["tasks"]))
        self._agents = agents

    def validate_input(
        self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None
    ) -> str | None:
        """Name the first agent that is not registered."""
        unknown = [part["agent"] for part in args["tasks"] if part["agent"] not in self._agents]
        known = ", ".join(self._agents.list_agents()) or "none"
        return f"no agent is named {unknown[0]!r}; known: {known}" if unknown else None

    def execute(
        self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None
    ) -> ToolResult:
        """Run the agents, one after the other."""
        results, output = [], []
        for part in args["tasks"]:
            tool = DelegateTool(self._agents.resolve(part["agent"]))
            result, error = guarded(tool.execute, {"task": part["task"]}, runtime_context)
            result = result if error is None else raised(error)
            failed = {} if result.is_success else {"error": result.error}
            output.append({"agent": part["agent"], "output": result.output, **failed})
            results.append(result)
        if any(result.is_success for result in results):
            return ToolResult(output=output)
        text = "; ".join(str(result.error) for result in results)
        return ToolResult.execution_error(code="fanout_failed", error=text, output=output)
