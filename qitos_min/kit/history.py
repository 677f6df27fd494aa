"""Histories to choose from."""

from __future__ import annotations

from typing import Any

from ..core._limits import check_count
from ..core.history import History, HistoryMessage, MessageLog

__all__ = ["History", "HistoryMessage", "WindowHistory"]


class Window(MessageLog):
    """Keeps the last ``window_size``, a positive int."""

    def __init__(self, window_size: int) -> None:
        check_count(window_size, "window_size", least=1)
        super().__init__()
        self.window_size = window_size

    def append(self, message: Any) -> None:
        """Add one, and drop the oldest when there are too many."""
        super().append(message)
        self.evict()

    def evict(self) -> int:
        """Drop the oldest beyond the window, and say how many those were."""
        dropped = max(0, len(self._messages) - self.window_size)
        del self._messages[:dropped]
        return dropped


class WindowHistory(Window, History):
    """Keeps the last ``window_size`` messages."""

    def __init__(self, window_size: int = 24) -> None:
        super().__init__(window_size)

    @property
    def messages(self) -> list[HistoryMessage]:
        """The messages kept, oldest first, in a new list."""
        return list(self._messages)
