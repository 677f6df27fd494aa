"""Small helpers for agents that plan: lines for prompts, logs in a state, a list of steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.action import Action
from ..engine._replies import read_reply
from ._search import DynamicTreeSearch, GreedySearch

__all__ = [
    "DynamicTreeSearch",
    "GreedySearch",
    "NumberedPlanBuilder",
    "PlanCursor",
    "append_log",
    "format_action",
    "parse_numbered_plan",
    "set_final",
]

_NUMBERED = re.compile(r"^[ \t]*\d+[.)][ \t]+(.*\S)", re.MULTILINE)


def format_action(action: Any) -> str:
    """An ``Action``, or a dict that stands for one, as ``name(key=value, ...)``.

    The name of a dict is its ``name``, ``tool`` or ``action``, its arguments are its
    ``args`` or ``arguments``. What is neither is told by ``str``.
    """
    if isinstance(action, Action):
        name, args = action.name, action.args
    elif isinstance(action, dict):
        names = (action.get(key) for key in ("name", "tool", "action"))
        name = next((name for name in names if name), "")
        args = action.get("args") or action.get("arguments") or {}
    else:
        return str(action)
    if not isinstance(args, dict):
        return f"{name}({args!r})"
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"


def append_log(state: Any, field: str, item: str, max_items: int | None = None) -> None:
    """Append to a list field of a state, which is made if need be; keep the last items."""
    log = [*(getattr(state, field, None) or []), item]
    setattr(state, field, log if max_items is None else log[max(len(log) - max_items, 0) :])


def set_final(state: Any, value: str) -> None:
    """Set ``state.final_result``."""
    state.final_result = value


def parse_numbered_plan(text: str) -> list[str]:
    """The texts of the lines that begin with ``1.`` or ``1)``, in their order."""
    return [match[1].strip() for match in _NUMBERED.finditer(text)]


@dataclass(frozen=True)
class PlanCursor:
    """Walks a plan that a state holds: a list field, and the index of the current item."""

    plan_field: str = "plan"
    cursor_field: str = "plan_cursor"

    def init(self, state: Any, plan: list[str]) -> None:
        """Begin a plan."""
        setattr(state, self.plan_field, list(plan))
        setattr(state, self.cursor_field, 0)

    def current(self, state: Any) -> str | None:
        """The item to be done now; None without one."""
        plan, at = self._read(state)
        return plan[at] if 0 <= at < len(plan) else None

    def advance(self, state: Any) -> None:
        """Go on to the next item."""
        setattr(state, self.cursor_field, self._read(state)[1] + 1)

    def done(self, state: Any) -> bool:
        """Whether every item is behind the cursor."""
        plan, at = self._read(state)
        return at >= len(plan)

    def _read(self, state: Any) -> tuple[list[str], int]:
        return getattr(state, self.plan_field, None) or [], getattr(state, self.cursor_field, 0)


@dataclass(frozen=True)
class NumberedPlanBuilder:
    """Asks a model for a plan of numbered lines."""

    system_prompt: str = "Write a plan as numbered lines, one step each, and nothing else."

    def build(
        self,
        llm: Callable[..., Any],
        prompt: str,
        extra_messages: list[dict[str, str]] | None = None,
    ) -> list[str]:
        """The steps that ``llm`` answers ``prompt`` with; an empty list without any."""
        system = {"role": "system", "content": self.system_prompt}
        asked = [system, *(extra_messages or []), {"role": "user", "content": prompt}]
        return parse_numbered_plan(read_reply(llm(asked)).text)
