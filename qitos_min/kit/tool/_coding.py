"""File tools that work on a folder of this machine, without an environment."""

from __future__ import annotations

import os

from ...core.function_tool_decorator import function_tool
from ...core.tool import FunctionTool, ToolPermission
from ...core.tool_result import ToolResult
from .._folder import Folder
from ._files import EditRequest, ReadRequest, edit_result, read_result

__all__ = ["CodingToolSet"]

_READ_CODES = frozenset({"invalid_read_window"})
_EDIT_CODES = frozenset(
    {"ambiguous_edit", "invalid_edit", "stale_file", "text_not_found"}
)


class CodingToolSet:
    """``Read`` and ``Edit`` for the files below ``workspace_root``.

    Raises NotADirectoryError when ``workspace_root`` is not an existing folder.
    """

    name = "coding"

    def __init__(self, workspace_root: str | os.PathLike[str] = ".") -> None:
        self._files = Folder(workspace_root)

    def tools(self) -> list[FunctionTool]:
        """The tools of this set."""
        return [self.Read, self.Edit]

    @function_tool(
        name="Read",
        read_only=True,
        concurrency_safe=True,
        permissions=ToolPermission(filesystem_read=True),
    )
    def Read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ToolResult:
        """Read lines of a text file, each as its number, a tab and its text.

        Args:
            file_path: Path of the file, inside the workspace.
            offset: How many lines to skip, from 0.
            limit: How many lines to read at most, from 1.
        """
        return read_result(
            self._files, file_path, ReadRequest(offset, limit), codes=_READ_CODES
        )

    @function_tool(
        name="Edit",
        permissions=ToolPermission(filesystem_read=True, filesystem_write=True),
    )
    def Edit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,
        *,
        expected_sha256: str | None = None,
    ) -> ToolResult:
        """Replace a text that occurs once in a file, or every occurrence of it.

        Args:
            file_path: Path of the file, inside the workspace.
            old_string: The text to replace, exactly as it is in the file.
            new_string: The text to put in its place.
            replace_all: Replace every occurrence.
            expected_sha256: SHA-256 that the file must still have, in hexadecimal.
        """
        request = EditRequest(old_string, new_string, replace_all, expected_sha256)
        return edit_result(self._files, file_path, request, codes=_EDIT_CODES)
