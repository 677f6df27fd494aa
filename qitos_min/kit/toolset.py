"""Sets of tools, and registries that hold one."""

from __future__ import annotations

import os

from ..core.tool_registry import ToolRegistry
from .tool import CodingToolSet, EditorToolSet

__all__ = ["CodingToolSet", "EditorToolSet", "coding_tools", "editor_tools"]


def coding_tools(
    workspace_root: str | os.PathLike[str],
    shell_timeout: float = 30,
    include_notebook: bool = False,
) -> ToolRegistry:
    """A registry with the tools of ``CodingToolSet``."""
    tools = CodingToolSet(workspace_root, shell_timeout, include_notebook)
    return ToolRegistry().include_toolset(tools)


def editor_tools(workspace_root: str | os.PathLike[str]) -> ToolRegistry:
    """A registry with the tools of ``EditorToolSet``."""
    return ToolRegistry().include_toolset(EditorToolSet(workspace_root))
