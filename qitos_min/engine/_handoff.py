"""Handing a run on: the tools for it, and what reaches the next agent."""

from __future__ import annotations

from typing import Any

from ..core import AgentSpec, ContextStrategy, HistoryMessage, ToolResult
from ..core._foreign import shortened
from ..core.tool import BaseTool, ToolSpec
from ._conversation import calls_of
from ._plain import plain

_SUMMARY_ROUNDS, _SUMMARY_CHARS = 3, 200
_Context = dict[str, Any] | None


def filtered(
    messages: list[HistoryMessage], strategy: ContextStrategy, max_rounds: int | None
) -> list[HistoryMessage]:
    """Return the messages that arrive: all, a summary and 3 rounds, or none."""
    if strategy is ContextStrategy.ISOLATED:
        return []
    full = strategy is ContextStrategy.FULL
    recent = messages if full else last_rounds(messages, _SUMMARY_ROUNDS)
    older = messages[: len(messages) - len(recent)]
    kept = last_rounds(recent, max_rounds)
    return [_summary(older), *kept] if older else kept


def last_rounds(messages: list[HistoryMessage], most: int | None) -> list[HistoryMessage]:
    """Return the messages of the last rounds; None is all, a round is a step."""
    if most is None:
        return list(messages)
    return [message for one in rounds_of(messages, most) for message in one]


def rounds_of(messages: list[HistoryMessage], most: int | None = None) -> list[Any]:
    """Return the last rounds, lists of messages: a step each, or a decision and its results."""
    rounds: list[list[HistoryMessage]] = []
    end = len(messages)
    # From the end, so that a long conversation costs no more than what is asked for.
    for place in reversed(range(len(messages))):
        if len(rounds) == most:
            break
        if place == 0 or _begins(messages[place], messages[place - 1]):
            rounds.append(messages[place:end])
            end = place
    return rounds[::-1]


def _begins(message: HistoryMessage, before: HistoryMessage) -> bool:
    # A history may hold the steps of earlier runs too, so ids alone do not tell.
    decided = before.role in ("assistant", "tool")
    return message.step_id != before.step_id or decided and message.role in ("assistant", "user")


def _summary(messages: list[HistoryMessage]) -> HistoryMessage:
    lines = ["Earlier in this run:"]
    for message in messages:
        calls = (f"{name}({args})" for name, args in calls_of(message))
        told = " ".join(" ".join(filter(None, [message.content, *calls])).split())
        lines.append(f"- step {message.step_id}, {message.role}: {shortened(told, _SUMMARY_CHARS)}")
    metadata = {"summary": len(messages)}
    return HistoryMessage("user", "\n".join(lines), messages[-1].step_id, metadata)


def handed_over(state: Any, spec: AgentSpec, task: str) -> Any:
    """The state the next agent begins with: the same, as adapted, or its own and what is shared."""
    context = spec.context
    if spec.state_adapter is not None:
        adapted = spec.state_adapter.adapt(state)
        state = state if adapted is None else adapted
    elif context.shared_state_fields:
        fresh = spec.agent.init_state(task)
        for name in (*context.shared_state_fields, "current_step", "max_steps"):
            if hasattr(state, name) and hasattr(fresh, name):
                setattr(fresh, name, getattr(state, name))
        state = fresh
    metadata = getattr(state, "metadata", None)
    if context.payload and isinstance(metadata, dict):
        metadata["handoff"] = plain(context.payload)
    return state


class TransferTool(BaseTool):
    """``transfer_to_<name>``: the run goes on with that agent after this step."""

    def __init__(self, spec: AgentSpec) -> None:
        text = f"Hand the task over to {spec.name}: {spec.description}"
        super().__init__(ToolSpec(spec.handoff_tool_name, text))
        self._target = spec.name

    def execute(self, args: dict[str, Any], runtime_context: _Context = None) -> ToolResult:
        """Ask the run for the handoff; a second one in a step is refused."""
        refused = (runtime_context or {})["request_handoff"](self._target)
        if refused is None:
            return ToolResult(output={"handoff": self._target})
        return ToolResult.semantic_error(code="handoff_pending", error=refused)
