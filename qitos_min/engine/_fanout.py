"""Giving parts of the work to several agents."""

from __future__ import annotations

from typing import Any

from ..core._foreign import guarded
from ..core._tool_output import raised
from ..core.agent_spec import AgentRegistry
from ..core.tool import BaseTool, ToolSpec
from ..core.tool_result import ToolResult
from .delegate import DelegateTool

__all__ = ["FanoutTool"]

_PART = {
    "type": "object",
    "properties": {
        "agent": {"type": "string", "description": "who is to do it"},
        "task": {"type": "string", "description": "what the agent is to do"},
    },
    "required": ["agent", "task"],
}
_PARAMETERS = {"tasks": {"type": "array", "items": _PART, "minItems": 1}}


class FanoutTool(BaseTool):
    """``fanout``: runs a task by each of several agents, as ``DelegateTool`` does.

    The output is the list of their outputs, in the order of the tasks; one that failed
    has its error there, and fails the call only when all of them did.
    """

    in_calling_thread = True

    def __init__(self, agents: AgentRegistry) -> None:
        who = "; ".join(f"{spec.name}: {spec.description}" for spec in agents)
        text = f"Let several agents work on parts of the task ({who})"
        super().__init__(ToolSpec("fanout", text, parameters=_PARAMETERS, required=["tasks"]))
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
        results = []
        for part in args["tasks"]:
            tool = DelegateTool(self._agents.resolve(part["agent"]))
            result, error = guarded(tool.execute, {"task": part["task"]}, runtime_context)
            results.append(result if error is None else raised(error))
        output = [
            {
                "agent": part["agent"],
                "output": result.output,
                **({} if result.is_success else {"error": result.error}),
            }
            for part, result in zip(args["tasks"], results)
        ]
        if any(result.is_success for result in results):
            return ToolResult(output=output)
        text = "; ".join(str(result.error) for result in results)
        return ToolResult.execution_error(code="fanout_failed", error=text, output=output)
