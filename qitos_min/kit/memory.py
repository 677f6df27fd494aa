"""Ready-made memories: the last records, and records in a file that people read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core._limits import check_count
from ..core.memory import Memory, MemoryRecord

__all__ = ["MarkdownFileMemory", "WindowMemory"]


class WindowMemory(Memory):
    """Remembers the last ``window_size`` records."""

    def __init__(self, window_size: int = 20) -> None:
        check_count(window_size, "window_size", least=1)
        super().__init__()
        self.window_size = window_size

    def retrieve(
        self, query: Mapping[str, Any] | None = None, state: Any = None, observation: Any = None
    ) -> list[MemoryRecord]:
        """Those that a query asks for among the last ones, oldest first."""
        return super().retrieve(query, state, observation)[-self.window_size :]

    def evict(self) -> int:
        """Drop what is older than the window, and say how many were."""
        too_many = max(0, len(self._messages) - self.window_size)
        del self._messages[:too_many]
        return too_many


class MarkdownFileMemory(WindowMemory):
    """Adds each record to a Markdown file too, which stays when a run resets the memory.

    The folder of the file must be there; the file is made with the first record.
    """

    def __init__(
        self, path: str | os.PathLike[str] = "memory.md", max_in_memory: int = 200
    ) -> None:
        super().__init__(max_in_memory)
        self.path = Path(path)

    def append(self, record: MemoryRecord) -> None:
        """Remember a record, and write it at the end of the file."""
        super().append(record)
        self.evict()
        notes = f"\n- metadata: {record.metadata}" if record.metadata else ""
        text = str(record.content)
        longest = max((len(run) for run in text.split() if set(run) == {"`"}), default=2)
        fence = "`" * max(3, longest + 1)
        block = f"## Step {record.step_id}: {record.role}{notes}\n\n{fence}text\n{text}\n{fence}\n\n"
        with self.path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(block)
