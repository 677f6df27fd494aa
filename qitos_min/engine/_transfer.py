"""The tools by which a model hands a run to another agent."""

from __future__ import annotations

from typing import Any

from ..core.agent_spec import AgentSpec
from ..core.tool import BaseTool, ToolSpec
from ..core.tool_result import ToolResult

__all__ = ["TransferTool"]


class TransferTool(BaseTool):
    """``transfer_to_<name>``: the run goes on with that agent after this step."""

    def __init__(self, spec: AgentSpec) -> None:
        super().__init__(
            ToolSpec(
                name=spec.handoff_tool_name,
                description=f"Hand the task over to {spec.name}: {spec.description}",
            )
        )
        self._target = spec.name

    def execute(
        self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None
    ) -> ToolResult:
        """Ask the run for the handoff; a second one in a step is refused."""
        refused = (runtime_context or {})["request_handoff"](self._target)
        if refused is None:
            return ToolResult(output={"handoff": self._target})
        return ToolResult.semantic_error(code="handoff_pending", error=refused)
