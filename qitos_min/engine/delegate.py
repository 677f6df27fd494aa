"""Giving a part of the work to other agents and waiting for their answers."""

from __future__ import annotations

from typing import Any

from ..core import AgentRegistry, AgentSpec, BaseTool, StopReason, ToolResult, ToolSpec
from ..core._foreign import error_text, guarded
from ..core._tool_call import raised
from ._plain import plain
from .engine import Engine, first
from .states import RuntimeBudget, RuntimePhase

__all__ = ["DelegateTool", "FanoutTool"]

_MAX_DEPTH = 3
_SHARED = ("agent_registry", "approval_callback", "auto_approve")
_HANDOFF = ("from", "to", "context_strategy", "messages_passed")
_TASK = {"type": "string", "description": "what the agent is to do"}
_NEEDED = {"type": "string", "description": "what it needs to know"}
_WHO = {"type": "string", "description": "who is to do it"}
_PART: dict[str, Any] = {"type": "object", "properties": {"agent": _WHO, "task": _TASK}}
_PART["required"] = ["agent", "task"]
_Context = dict[str, Any] | None


class DelegateTool(BaseTool):
    """``delegate_to_<name>``: a run within the run, at most three levels deep.

    The nested run has the caller's approval, environment (unless the spec says otherwise),
    registry of agents and cancellation. Its critic verdicts and handoffs are added to the
    caller's step, the agent's name in the details. It gets what is left of the budgets of
    the runs around it, which are charged for its tokens when they are used; its steps, as
    many as the caller could take after the one under way, do not shorten the caller's run.
    """

    in_calling_thread = True  # Its own tools can be left behind.

    def __init__(self, spec: AgentSpec, *, critics: list[Any] | None = None) -> None:
        text = f"Let {spec.name} do a part of the task: {spec.description}"
        parameters = {"task": _TASK, "context": _NEEDED}
        own = ToolSpec(f"delegate_to_{spec.name}", text, parameters=parameters, required=["task"])
        super().__init__(own)
        self._agent, self._critics = spec, critics

    def execute(self, args: dict[str, Any], runtime_context: _Context = None) -> ToolResult:
        """Run the agent; its failure is this call's error."""
        context = runtime_context or {}
        run, name, text = context["run"], self._agent.name, args["task"]
        if context["delegate_depth"] >= _MAX_DEPTH:
            why = f"delegation to {name!r} would be deeper than {_MAX_DEPTH} levels"
            return ToolResult.policy_error(code="delegate_depth_exceeded", error=why)
        if args.get("context"):
            text = f"{text}\n\nContext: {args['context']}"
        run.stamp()
        run.emit(RuntimePhase.DELEGATE_START, agent=name, task=text)
        # What keeps a run from starting: its init_state, or the agent itself.
        result, error = guarded(lambda: self._engine(context).run(text))
        run.stamp()
        if error is not None:
            run.emit(RuntimePhase.DELEGATE_END, error=error_text(error), agent=name)
            raise error
        for record in result.records:
            nested = {"agent": name, "step": record.step_id}
            for output in record.critic_outputs:
                own = output["details"] if isinstance(output["details"], dict) else {}
                run.record.critic_outputs.append({**output, "details": {**nested, **own}})
        for event in result.events:
            if event.phase is RuntimePhase.HANDOFF_START:
                run.emit(event.phase, **{key: event.payload[key] for key in _HANDOFF})
        task, failure = result.task_result, result.failure
        said = failure["message"] if failure else None
        told = {"agent": name, "stop_reason": task.stop_reason, "steps": result.step_count}
        run.emit(RuntimePhase.DELEGATE_END, error=said, **told)
        if failure is None:
            answer = {"agent": name, "final_result": plain(task.final_result)}
            return ToolResult(output={**answer, **told})
        why, more = f"{name} failed: {said}", {"traceback": failure["traceback"]}
        return ToolResult.execution_error(code="delegate_failed", error=why, metadata=more)

    def _engine(self, context: dict[str, Any]) -> Engine:
        spec, run = self._agent, context["run"]
        steps = run.left(StopReason.BUDGET_STEPS, StopReason.MAX_STEPS)
        steps = None if steps is None else max(int(steps) - 1, 0)
        most = [limit for limit in (steps, spec.max_steps_override) if limit is not None]
        left = (run.left(StopReason.BUDGET_TIME), run.left(StopReason.BUDGET_TOKENS))
        budget = RuntimeBudget(min(most, default=None), *left)
        engine: Engine = Engine(
            spec.agent,
            budget,
            tool_registry=spec.tools_override,
            critics=self._critics,
            env=context["env"] if spec.shared_env else None,
            delegate_depth=context["delegate_depth"] + 1,
            shared_memory=first(spec.shared_memory, run.seat, "shared_memory"),
            **{name: context[name] for name in _SHARED},
        )
        engine.token, engine.parent = run.token, run
        return engine


class FanoutTool(BaseTool):
    """``fanout``: tasks for several agents, whose outputs or errors it lists in their order.

    Each runs as by ``DelegateTool``; the call fails when all of them did.
    """

    in_calling_thread = True

    def __init__(self, agents: AgentRegistry) -> None:
        who = "; ".join(f"{spec.name}: {spec.description}" for spec in agents)
        text = f"Let several agents work on parts of the task ({who})"
        parameters = {"tasks": {"type": "array", "items": _PART, "minItems": 1}}
        super().__init__(ToolSpec("fanout", text, parameters=parameters, required=["tasks"]))
        self._agents = agents

    def execute(self, args: dict[str, Any], runtime_context: _Context = None) -> ToolResult:
        """Run the agents, one after the other."""
        output, failed = [], []
        for part in args["tasks"]:
            given = {"task": part["task"]}, runtime_context
            result, error = guarded(
                lambda: DelegateTool(self._agents.resolve(part["agent"])).execute(*given)
            )
            result = result if error is None else raised(error)
            output.append({"agent": part["agent"], "output": result.output})
            if not result.is_success:
                output[-1]["error"] = result.error
                failed.append(str(result.error))
        if len(failed) < len(output):
            return ToolResult(output=output)
        why = "; ".join(failed)
        return ToolResult.execution_error(code="fanout_failed", error=why, output=output)
