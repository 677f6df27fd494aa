"""The conversation that a model sees again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["History", "HistoryMessage"]


@dataclass
class HistoryMessage:
    """One message; messages of the same step are one round."""

    role: str
    """``user``, ``assistant``, ``tool`` or ``system``."""
    content: str
    step_id: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The four fields."""
        return {
            "role": self.role,
            "content": self.content,
            "step_id": self.step_id,
            "metadata": dict(self.metadata),
        }


class History:
    """Messages in memory, in order; a subclass may keep them elsewhere."""

    def __init__(self) -> None:
        self._messages: list[HistoryMessage] = []

    def append(self, message: HistoryMessage) -> None:
        """Add one message at the end."""
        self._messages.append(message)

    def retrieve(self) -> list[HistoryMessage]:
        """Return the messages, oldest first, in a new list."""
        return list(self._messages)

    def reset(self) -> None:
        """Forget every message."""
        self._messages.clear()
