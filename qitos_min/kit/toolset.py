"""Sets of tools, and registries that hold one, where QitOS has them."""

from .tool.coding import CodingToolSet, EditorToolSet, coding_tools, editor_tools

__all__ = ["CodingToolSet", "EditorToolSet", "coding_tools", "editor_tools"]
