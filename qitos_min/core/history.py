"""The conversation that a model sees again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._contract import Record


@dataclass
class HistoryMessage(Record):
    """One message; messages of the same step are one round."""

    role: str  # ``user``, ``assistant``, ``tool`` or ``system``.
    content: str
    step_id: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class HistoryPolicy:
    """Which messages a model is sent again."""

    roles: list[str] = field(default_factory=lambda: ["user", "assistant"])
    max_messages: int = 24
    step_window: int | None = None  # Only messages of so many last steps.
    max_tokens: int | None = None

    def build_query(self, step_id: int, **kwargs: Any) -> dict[str, Any]:
        """The query for ``History.retrieve`` at a step."""
        first = None if self.step_window is None else max(0, step_id - self.step_window + 1)
        query = {"roles": list(self.roles), "max_items": self.max_messages}
        query |= {"step_min": first, "max_tokens": self.max_tokens}
        return {name: value for name, value in query.items() if value is not None} | kwargs


class History:
    """The messages of a conversation, or records, in order; a subclass may keep them elsewhere."""

    def __init__(self) -> None:
        self._messages: list[Any] = []

    def append(self, message: Any) -> None:
        """Add one at the end."""
        self._messages.append(message)

    def retrieve(
        self, query: Mapping[str, Any] | None = None, state: Any = None, observation: Any = None
    ) -> list[Any]:
        """Those of the ``roles`` and from ``step_min`` on, of these the last ``max_items``."""
        roles, first, most = map((query or {}).get, ("roles", "step_min", "max_items"))
        found = [one for one in self._messages if not roles or one.role in roles]
        found = [one for one in found if first is None or one.step_id >= first]
        return found if most is None else found[max(0, len(found) - most) :]

    def summarize(self, max_items: int = 5) -> str:
        """The last ones as text, a line each."""
        last = self.retrieve({"max_items": max_items})
        return "\n".join(f"[{item.step_id}] {item.role}: {item.content}" for item in last)

    def evict(self) -> int:
        """Drop what is too much, and say how many were; here nothing is."""
        return 0

    def reset(self, run_id: str | None = None) -> None:
        """Forget everything, for a new run."""
        self._messages.clear()
