"""What an agent keeps in mind beside its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .history import History, HistoryMessage


@dataclass
class MemoryRecord(HistoryMessage):
    """One thing to remember."""

    content: Any


class Memory(History):
    """The records of an agent; a run forgets them when it begins."""
