"""Sets of tools, and registries that hold one, where QitOS has them."""

from .tool.coding import CodingToolSet as CodingToolSet, EditorToolSet as EditorToolSet
from .tool.coding import coding_tools as coding_tools, editor_tools as editor_tools
