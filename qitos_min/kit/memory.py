"""Memories to choose from."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ..core.memory import Memory, MemoryRecord
from .history import Window

__all__ = ["MarkdownFileMemory", "Memory", "MemoryRecord", "WindowMemory"]


class WindowMemory(Window, Memory):
    """Keeps the last ``window_size`` records."""

    def __init__(self, window_size: int = 20) -> None:
        super().__init__(window_size)

    @property
    def records(self) -> list[MemoryRecord]:
        """The records kept, oldest first, in a new list."""
        return list(self._messages)


class MarkdownFileMemory(WindowMemory):
    """Writes each record to a Markdown file too, which no run ever shortens.

    The folder of ``path`` is made with the first record; ``max_in_memory`` records are
    kept for ``retrieve``. An ``OSError`` comes out of ``append``.
    """

    def __init__(
        self, path: str | os.PathLike[str] = "memory.md", max_in_memory: int = 200
    ) -> None:
        super().__init__(max_in_memory)
        self.path = Path(path)

    def append(self, record: Any) -> None:
        """Add a record, in memory and at the end of the file."""
        super().append(record)
        text = str(record.content)
        # A fence is longer than any that the text itself has.
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
        lines = [f"## Step {record.step_id}: {record.role}", "", fence + "text", text, fence, ""]
        if record.metadata:
            lines.insert(1, f"- metadata: {record.metadata!r}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(lines) + "\n")
