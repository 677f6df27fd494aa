"""Tools that work through the environment of the run, and never on the host."""

from __future__ import annotations

from typing import Any

from ...core.tool import FunctionTool
from ...core.tool_result import ToolResult
from .._folder import FileRefusal
from .._text import edit_bytes
from ._files import changed, file_tool, ran, read, written

__all__ = ["EnvToolSet"]

_Context = dict[str, Any] | None


class EnvToolSet:
    """Files and commands of ``runtime_context["env"]``.

    The environment's ``file`` operations are ``read_bytes``, ``write_bytes`` and
    ``list_files``, its ``process`` operation is ``run``, as in ``kit.env``.
    """

    name = "env"

    def tools(self) -> list[FunctionTool]:
        """The tools of this set."""
        files = [self.read_file, self.edit_file, self.write_file, self.list_files]
        return [*files, self.run_command]

    @file_tool("read", ops="file")
    def read_file(
        self,
        path: str,
        line_offset: int = 1,
        line_limit: int = 400,
        runtime_context: _Context = None,
    ) -> ToolResult:
        """Read lines of a text file, each as its number, a tab and its text.

        Args:
            path: Path of the file, relative to the workspace.
            line_offset: Number of the first line to read, from 1.
            line_limit: How many lines to read at most, from 1.
        """
        return read(_ops(runtime_context, "file"), path, line_offset, line_limit, 1)

    @file_tool("edit", ops="file")
    def edit_file(
        self,
        path: str,
        old_text: str,
        replacement: str,
        expected_sha256: str | None = None,
        replace_all: bool = False,
        runtime_context: _Context = None,
    ) -> ToolResult:
        """Replace a text that occurs once in a file, or every occurrence of it.

        Args:
            path: Path of the file, relative to the workspace.
            old_text: The text to replace, exactly as it is in the file.
            replacement: The text to put in its place.
            expected_sha256: SHA-256 that the file must still have, in hexadecimal.
            replace_all: Replace every occurrence.
        """
        files, texts = _ops(runtime_context, "file"), (old_text, replacement)
        return changed(files, path, edit_bytes, *texts, replace_all, expected_sha256)

    @file_tool("write", ops="file")
    def write_file(self, path: str, content: str, runtime_context: _Context = None) -> ToolResult:
        """Write a whole text file as UTF-8, new or not; missing folders are made."""
        return written(_ops(runtime_context, "file"), path, content)

    @file_tool("list", ops="file")
    def list_files(
        self, path: str = ".", limit: int = 200, runtime_context: _Context = None
    ) -> ToolResult:
        """List up to ``limit`` files below a folder, at any depth."""
        files = _ops(runtime_context, "file")
        if type(limit) is not int or limit < 1:
            raise FileRefusal("", f"limit {limit!r} is not a whole number from 1")
        found = files.list_files(path, limit + 1)
        return ToolResult(output=found[:limit], metadata={"has_more": len(found) > limit})

    @file_tool("run", ops="process")
    def run_command(
        self, command: str, timeout: float = 30, runtime_context: _Context = None
    ) -> ToolResult:
        """Run a shell command in the workspace and wait for it.

        Args:
            command: The command line.
            timeout: Seconds after which the command is killed.
        """
        return ran(_ops(runtime_context, "process"), command, timeout)


def _ops(context: _Context, group: str) -> Any:
    """The environment's operations of a group."""
    env = (context or {}).get("env")
    ops = None if env is None else env.get_ops(group)
    if ops is None:
        text = f"this tool needs an environment with {group!r} operations"
        raise FileRefusal("env_required", text)
    return ops
