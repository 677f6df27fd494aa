"""Tools that work through the environment of the run, and never on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.function_tool_decorator import function_tool
from ...core.tool import FunctionTool, ToolPermission
from ...core.tool_result import ToolResult
from .._folder import FileRefusal
from ._files import (
    EditRequest,
    ReadRequest,
    edit_result,
    file_change,
    read_result,
    refusal_result,
)

__all__ = ["EnvToolSet"]

_PATH_CODES = frozenset({"path_outside_workspace", "protected_path"})
_READ_CODES = _PATH_CODES | {"invalid_read_window"}
_EDIT_CODES = _PATH_CODES | {
    "ambiguous_edit",
    "invalid_edit",
    "stale_file",
    "text_not_found",
}

_Context = dict[str, Any]


class EnvToolSet:
    """Files and commands of ``runtime_context["env"]``.

    The environment's ``file`` operations are ``read_bytes``, ``write_bytes`` and
    ``list_files``, its ``process`` operation is ``run``, as in ``kit.env``.
    """

    name = "env"

    def tools(self) -> list[FunctionTool]:
        """The tools of this set."""
        return [
            self.read_file,
            self.edit_file,
            self.write_file,
            self.list_files,
            self.run_command,
        ]

    @function_tool(
        read_only=True,
        concurrency_safe=True,
        permissions=ToolPermission(filesystem_read=True),
        required_ops=["file"],
    )
    def read_file(
        self,
        path: str,
        line_offset: int = 1,
        line_limit: int = 400,
        runtime_context: _Context | None = None,
    ) -> ToolResult:
        """Read lines of a text file, each as its number, a tab and its text.

        Args:
            path: Path of the file, relative to the workspace.
            line_offset: Number of the first line to read, from 1.
            line_limit: How many lines to read at most, from 1.
        """
        request = ReadRequest(line_offset, line_limit, first=1)
        return _through(
            runtime_context,
            "file",
            lambda files: read_result(files, path, request, codes=_READ_CODES),
        )

    @function_tool(
        permissions=ToolPermission(filesystem_read=True, filesystem_write=True),
        required_ops=["file"],
    )
    def edit_file(
        self,
        path: str,
        old_text: str,
        replacement: str,
        expected_sha256: str | None = None,
        replace_all: bool = False,
        runtime_context: _Context | None = None,
    ) -> ToolResult:
        """Replace a text that occurs once in a file, or every occurrence of it.

        Args:
            path: Path of the file, relative to the workspace.
            old_text: The text to replace, exactly as it is in the file.
            replacement: The text to put in its place.
            expected_sha256: SHA-256 that the file must still have, in hexadecimal.
            replace_all: Replace every occurrence.
        """
        request = EditRequest(old_text, replacement, replace_all, expected_sha256)
        return _through(
            runtime_context,
            "file",
            lambda files: edit_result(files, path, request, codes=_EDIT_CODES),
        )

    @function_tool(
        permissions=ToolPermission(filesystem_write=True), required_ops=["file"]
    )
    def write_file(
        self, path: str, content: str, runtime_context: _Context | None = None
    ) -> ToolResult:
        """Write a whole text file, new or not; missing folders are made.

        Args:
            path: Path of the file, relative to the workspace.
            content: The new content, written as UTF-8.
        """
        return _through(
            runtime_context, "file", lambda files: _write(files, path, content)
        )

    @function_tool(
        read_only=True,
        concurrency_safe=True,
        permissions=ToolPermission(filesystem_read=True),
        required_ops=["file"],
    )
    def list_files(
        self,
        path: str = ".",
        limit: int = 200,
        runtime_context: _Context | None = None,
    ) -> ToolResult:
        """List the files below a folder, at any depth.

        Args:
            path: Path of the folder, relative to the workspace.
            limit: How many files to list at most, from 1.
        """
        return _through(
            runtime_context, "file", lambda files: _list(files, path, limit)
        )

    @function_tool(permissions=ToolPermission(command=True), required_ops=["process"])
    def run_command(
        self,
        command: str,
        timeout: float = 30,
        runtime_context: _Context | None = None,
    ) -> ToolResult:
        """Run a shell command in the workspace and wait for it.

        Args:
            command: The command line.
            timeout: Seconds after which the command is killed.
        """
        return _through(
            runtime_context, "process", lambda ops: _run(ops, command, timeout)
        )


def _through(
    context: _Context | None, group: str, work: Callable[[Any], ToolResult]
) -> ToolResult:
    """What ``work`` makes of the environment's operations, if there are any."""
    env = (context or {}).get("env")
    ops = None if env is None else env.get_ops(group)
    if ops is None:
        return ToolResult.semantic_error(
            code="env_required",
            error=f"this tool needs an environment with {group!r} operations",
        )
    return work(ops)


def _write(files: Any, path: str, content: str) -> ToolResult:
    try:
        data = content.encode("utf-8")
        files.write_bytes(path, data)
    except (FileRefusal, OSError, UnicodeEncodeError) as error:
        return refusal_result(error, "write", path, _PATH_CODES)
    return ToolResult(
        output=f"wrote {path}: {len(data)} bytes",
        filesystem_changes=[file_change(path, "write", None, data)],
    )


def _list(files: Any, path: str, limit: int) -> ToolResult:
    try:
        if type(limit) is not int or limit < 1:
            raise FileRefusal("", f"limit {limit!r} is not a whole number from 1")
        found = files.list_files(path, limit + 1)
    except (FileRefusal, OSError) as error:
        return refusal_result(error, "list", path, _PATH_CODES)
    return ToolResult(output=found[:limit], metadata={"has_more": len(found) > limit})


def _run(processes: Any, command: str, timeout: float) -> ToolResult:
    try:
        ran = processes.run(command, timeout=timeout)
    except (OSError, ValueError) as error:
        return ToolResult.execution_error(
            code="command_failed", error=f"cannot run the command: {error}"
        )
    output = {name: ran.get(name) for name in ("returncode", "stdout", "stderr")}
    metadata = {"truncated": bool(ran.get("truncated"))}
    if ran["status"] == "success":
        return ToolResult(output=output, metadata=metadata)
    if ran["status"] != "error":
        return ToolResult.execution_error(
            code="command_failed",
            error=f"command ended with exit status {ran['returncode']}",
            output=output,
            metadata=metadata,
        )
    # What it did before it was killed is not known.
    late = bool(ran.get("timed_out"))
    return ToolResult.execution_error(
        status="timed_out" if late else "error",
        code="command_timed_out" if late else "command_failed",
        error=ran["error"],
        output=output,
        metadata=metadata,
        effect_ref="run_command",
        effect_state="unknown",
        outcome_unknown=True,
    )
