"""Handing a run on: the tools for it, and what reaches the next agent."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from ..core.agent_spec import AgentSpec, ContextStrategy
from ..core.history import HistoryMessage
from ..core.tool import BaseTool, ToolSpec
from ..core.tool_result import ToolResult
from ._conversation import calls_of
from ._plain import plain

_SUMMARY_ROUNDS = 3
_SUMMARY_CHARS = 200


def filtered(
    messages: list[HistoryMessage], strategy: ContextStrategy, max_rounds: int | None
) -> list[HistoryMessage]:
    """Return the messages that arrive: all, a summary and 3 rounds, or none."""
    if strategy is ContextStrategy.ISOLATED:
        return []
    if strategy is ContextStrategy.FULL:
        return last_rounds(messages, max_rounds)
    recent = last_rounds(messages, _SUMMARY_ROUNDS)
    older = messages[: len(messages) - len(recent)]
    kept = last_rounds(recent, max_rounds)
    return [_summary(older), *kept] if older else kept


def last_rounds(messages: list[HistoryMessage], rounds: int | None) -> list[HistoryMessage]:
    """Return the messages of the last rounds; None is all, a round is a step.

    A round begins with another step, or where a message follows what was decided: a
    history may hold the steps of earlier runs too, so ids alone do not tell.
    """
    if rounds is None:
        return list(messages)
    start, place = len(messages), len(messages)
    while rounds > 0 and place > 0:
        place -= 1
        before = messages[place - 1] if place else None
        if before is None or _begins(messages[place], before):
            start, rounds = place, rounds - 1
    return messages[start:]


def _begins(message: HistoryMessage, before: HistoryMessage) -> bool:
    decided = before.role in ("assistant", "tool")
    return message.step_id != before.step_id or decided and message.role in ("assistant", "user")


def _summary(messages: list[HistoryMessage]) -> HistoryMessage:
    lines = [f"- step {m.step_id}, {m.role}: {_short(_told(m))}" for m in messages]
    text = "\n".join(["Earlier in this run:", *lines])
    return HistoryMessage("user", text, messages[-1].step_id, {"summary": len(messages)})


def _told(message: HistoryMessage) -> str:
    calls = (f"{name}({args})" for name, args in calls_of(message))
    return " ".join(filter(None, [message.content, *calls]))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SUMMARY_CHARS else line[: _SUMMARY_CHARS - 3] + "..."


def handed_over(state: Any, spec: AgentSpec, task: str) -> Any:
    """Return the state that the next agent begins with.

    The same state goes on, unless the spec adapts it or names the only fields
    to share: then the next agent's own state begins with these.
    """
    context = spec.context
    if spec.state_adapter is not None:
        adapted = spec.state_adapter.adapt(state)
        state = state if adapted is None else adapted
    elif context.shared_state_fields:
        fresh = spec.agent.init_state(task)
        for name in (*context.shared_state_fields, "current_step", "max_steps"):
            if name in _field_names(state) and name in _field_names(fresh):
                setattr(fresh, name, getattr(state, name))
        state = fresh
    metadata = getattr(state, "metadata", None)
    if context.payload and isinstance(metadata, dict):
        metadata["handoff"] = plain(context.payload)
    return state


def _field_names(state: Any) -> set[str]:
    if is_dataclass(state):
        return {f.name for f in fields(state)}
    return set(getattr(state, "__dict__", ()))


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
