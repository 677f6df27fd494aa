"""Memories to choose from, and a history."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..core import History, Memory as Memory, MemoryRecord as MemoryRecord
from ..core._contract import check_count


class WindowHistory(History):
    """Keeps the last ``window_size`` messages."""

    def __init__(self, window_size: int = 24) -> None:
        check_count(window_size, "window_size", least=1)
        super().__init__()
        self.window_size = window_size

    @property
    def messages(self) -> list[Any]:
        """Those kept, oldest first, in a new list."""
        return list(self._messages)

    def append(self, message: Any) -> None:
        super().append(message)
        self.evict()

    def evict(self) -> int:
        dropped = max(0, len(self._messages) - self.window_size)
        del self._messages[:dropped]
        return dropped


class WindowMemory(WindowHistory, Memory):
    """Keeps the last ``window_size`` records."""

    def __init__(self, window_size: int = 20) -> None:
        super().__init__(window_size)

    records = WindowHistory.messages


class MarkdownFileMemory(WindowMemory):
    """Writes each record to a Markdown file too, which no run ever shortens."""

    def __init__(self, path: str | Path = "memory.md", max_in_memory: int = 200) -> None:
        super().__init__(max_in_memory)
        self.path = Path(path)

    def append(self, record: Any) -> None:
        super().append(record)
        text = str(record.content)
        # A fence is longer than any that the text itself has.
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
        head = f"## Step {record.step_id}: {record.role}\n"
        about = f"- metadata: {record.metadata!r}\n" if record.metadata else ""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{head}{about}\n{fence}text\n{text}\n{fence}\n\n")
