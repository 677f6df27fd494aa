"""What somebody is asked to approve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ToolApprovalItem"]


@dataclass
class ToolApprovalItem:
    """One tool call that waits for a person's word."""

    tool_name: str
    tool_args: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    tool_spec: Any = None  # The tool's ``ToolPermissionSpec``, where there is one.
