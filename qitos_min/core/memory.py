"""What an agent keeps in mind beside its state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ._contract import Record
from .history import MessageLog


@dataclass
class MemoryRecord(Record):
    """One thing to remember."""

    role: str
    content: Any
    step_id: int
    metadata: dict[str, Any] = field(default_factory=dict)


class Memory(MessageLog):
    """The records of an agent; a run forgets them when it begins."""
