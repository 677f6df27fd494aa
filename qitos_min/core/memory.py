"""What an agent keeps in mind beside its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .history import HistoryMessage, MessageLog


@dataclass
class MemoryRecord(HistoryMessage):
    """One thing to remember."""

    content: Any


class Memory(MessageLog):
    """The records of an agent; a run forgets them when it begins."""
