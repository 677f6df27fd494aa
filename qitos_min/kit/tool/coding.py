"""Tools for the files and commands of a folder of this machine, without an environment."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from ...core.function_tool_decorator import function_tool
from ...core.tool import FunctionTool, ToolPermission
from ...core.tool_result import ToolResult
from .._folder import FileRefusal, Folder
from .._text import lines_of, replace_lines
from ..env import Processes
from ._files import EDITS, READS, attempt, changed, edited, ran, read, written
from .web import HTMLExtractText, HTTPGet

__all__ = ["CodingToolSet", "EditorToolSet", "ReadFile", "RunCommand", "WriteFile"]

_Root = str | os.PathLike[str]
_EDITOR = ("view", "create", "str_replace", "insert", "search", "replace_lines")
_PROFILES = {
    "editor": _EDITOR,
    "full": ("Read", "Edit", *_EDITOR)
    + ("read_file", "write_file", "append_file", "list_files", "run_command"),
}
_MOST_LISTED = 1000
_MOST_MATCHES = 100


class CodingToolSet:
    """Tools for the files below ``workspace_root``, and for commands in that folder.

    ``shell_timeout`` is the time limit of a command in seconds. ``auto_approve=False``
    makes every tool that changes files or runs commands ask for approval. ``profile``
    is ``full``, or ``editor`` without ``Read``, ``Edit``, whole files and commands.
    ``include_web`` adds ``HTTPGet`` and ``HTMLExtractText``; the other options are
    QitOS's, and True asks for what is not here.

    Raises:
        NotADirectoryError: ``workspace_root`` is not an existing folder.
        ValueError: An option that is not here is asked for, or the profile is unknown.
    """

    name = "coding"

    def __init__(
        self,
        workspace_root: _Root = ".",
        shell_timeout: float = 30,
        include_notebook: bool = False,
        *,
        include_web: bool = False,
        include_tasks: bool = False,
        enable_lsp: bool = False,
        enable_tasks: bool = False,
        enable_web: bool = False,
        include_http_tools: bool = False,
        auto_approve: bool = True,
        profile: str = "full",
    ) -> None:
        asked = {"include_notebook": include_notebook, "include_tasks": include_tasks}
        asked |= {"enable_lsp": enable_lsp, "enable_tasks": enable_tasks}
        for option, value in asked.items():
            if value:
                raise ValueError(f"{option}={value!r}: qitos_min has no such tools, give False")
        if profile not in _PROFILES:
            known = ", ".join(_PROFILES)
            raise ValueError(f"unknown profile {profile!r}, expected one of {known}")
        self._files = Folder(workspace_root)
        self._processes = Processes(self._files.root)
        self._timeout = shell_timeout
        self._names = _PROFILES[profile]
        self._web = include_web or enable_web or include_http_tools
        self._auto_approve = auto_approve

    def tools(self) -> list[Any]:
        """The tools of this set."""
        found = [getattr(self, name) for name in self._names]
        if not self._auto_approve:
            found = [tool if tool.spec.read_only else _asking(tool) for tool in found]
        if self._web:
            found += [HTTPGet(), HTMLExtractText()]
        return found

    @function_tool(**READS)
    def Read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ToolResult:
        """Read lines of a text file, each as its number, a tab and its text.

        Args:
            file_path: Path of the file, inside the workspace.
            offset: How many lines to skip, from 0.
            limit: How many lines to read at most, from 1.
        """
        return attempt("read", file_path, lambda: read(self._files, file_path, offset, limit))

    @function_tool(**EDITS)
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
        options = {"replace_all": replace_all, "expected_sha256": expected_sha256}
        return attempt(
            "edit",
            file_path,
            lambda: edited(self._files, file_path, old_string, new_string, **options),
        )

    @function_tool(**READS)
    def view(self, path: str, view_range: list[int] | None = None) -> ToolResult:
        """Show lines of a text file, or the names in a folder.

        Args:
            path: Path of the file or folder, inside the workspace.
            view_range: First and last line, from 1; -1 is the last of the file.
        """
        return attempt("read", path, lambda: self._view(path, view_range))

    def _view(self, path: str, wanted: list[int] | None) -> ToolResult:
        if self._files.find(path).is_dir():
            return self._list(path, "entries")
        lines, _ = lines_of(self._files.read_bytes(path))
        first, last = (wanted if len(wanted) == 2 else (0, 0)) if wanted else (1, -1)
        last = max(len(lines), 1) if last == -1 else last
        if not 1 <= first <= last:
            raise FileRefusal("invalid_read_window", f"no range of lines: {wanted!r}")
        shown = list(enumerate(lines[first - 1 : last], first))
        return _success(
            path=path,
            content="\n".join(text for _, text in shown),
            lines=[{"line": number, "text": text} for number, text in shown],
            total_lines=len(lines),
            has_more=last < len(lines),
        )

    @function_tool(**EDITS)
    def create(self, path: str, file_text: str = "") -> ToolResult:
        """Write a text file, new or not; missing folders are made.

        Args:
            path: Path of the file, inside the workspace.
            file_text: The whole content.
        """
        return self._write(path, file_text, message=f"Created file: {path}")

    @function_tool(**EDITS)
    def str_replace(self, path: str, old_str: str, new_str: str = "") -> ToolResult:
        """Replace a text that occurs once in a file.

        Args:
            path: Path of the file, inside the workspace.
            old_str: The text to replace, exactly as it is in the file.
            new_str: The text to put in its place.
        """
        told = _told(path=path, message=f"Replaced one occurrence in {path}")
        return attempt(
            "edit", path, lambda: edited(self._files, path, old_str, new_str, output=told)
        )

    @function_tool(**EDITS)
    def insert(self, path: str, insert_line: int, new_str: str) -> ToolResult:
        """Insert text as lines of its own behind a line of a file.

        Args:
            path: Path of the file, inside the workspace.
            insert_line: Number of that line, or 0 for the beginning.
            new_str: The text.
        """
        where = f"Inserted after line {insert_line} in {path}"
        return self._lines(path, insert_line + 1, insert_line, new_str, where)

    @function_tool(**EDITS)
    def replace_lines(
        self, path: str, start_line: int, end_line: int, replacement: str = ""
    ) -> ToolResult:
        """Replace whole lines of a file.

        Args:
            path: Path of the file, inside the workspace.
            start_line: Number of the first line, from 1.
            end_line: Number of the last line, which is replaced too.
            replacement: The text to put in their place; without any they are removed.
        """
        where = f"Replaced lines {start_line} to {end_line} in {path}"
        end_line = end_line if end_line >= start_line else -1
        return self._lines(path, start_line, end_line, replacement, where)

    def _lines(self, path: str, start: int, end: int, new: str, message: str) -> ToolResult:
        told = _told(path=path, message=message)

        def change(data: bytes) -> tuple[bytes, int]:
            return replace_lines(data, start, end, new), 1

        return attempt("edit", path, lambda: changed(self._files, path, change, told))

    @function_tool(**READS)
    def search(self, path: str, keyword: str) -> ToolResult:
        """Find the lines of a file, or of the files below a folder, that hold a text.

        Args:
            path: Path of the file or folder, inside the workspace.
            keyword: The text; upper and lower case are the same.
        """
        return attempt("read", path, lambda: self._search(path, keyword))

    def _search(self, path: str, keyword: str) -> ToolResult:
        found: list[dict[str, Any]] = []
        if self._files.find(path).is_dir():
            names = self._files.list_files(path, _MOST_LISTED)
        else:
            names = [path]
        for name in names:
            try:
                lines, _ = lines_of(self._files.read_bytes(name))
            except (FileRefusal, OSError):
                if name == path:
                    raise
                continue  # Among others, binary files have no lines.
            found += [
                {"path": name, "line": number, "text": text}
                for number, text in enumerate(lines, 1)
                if keyword.casefold() in text.casefold()
            ]
        more = len(found) > _MOST_MATCHES or len(names) == _MOST_LISTED
        matches = found[:_MOST_MATCHES]
        return _success(path=path, matches=matches, match_count=len(found), truncated=more)

    @function_tool(**READS)
    def read_file(self, filename: str) -> ToolResult:
        """Read a whole text file.

        Args:
            filename: Path of the file, inside the workspace.
        """

        def work() -> ToolResult:
            data = self._files.read_bytes(filename)
            lines, _ = lines_of(data)
            return _success(path=filename, content="\n".join(lines), size=len(data))

        return attempt("read", filename, work)

    @function_tool(**EDITS)
    def write_file(self, filename: str, content: str) -> ToolResult:
        """Write a whole text file, new or not; missing folders are made.

        Args:
            filename: Path of the file, inside the workspace.
            content: The whole content.
        """
        return self._write(filename, content)

    def _write(self, path: str, text: str, **more: str) -> ToolResult:
        def work() -> ToolResult:
            told = _told(path=path, **more, size=len(text.encode("utf-8")))
            return written(self._files, path, text, told)

        return attempt("write", path, work)

    @function_tool(**EDITS)
    def append_file(self, filename: str, content: str) -> ToolResult:
        """Add text to the end of a file, which is made if there is none.

        Args:
            filename: Path of the file, inside the workspace.
            content: The text.
        """

        def work() -> ToolResult:
            added = content.encode("utf-8")
            told = _told(path=filename, appended_size=len(added))
            with self._files.locked(filename):
                if not self._files.exists(filename):
                    return written(self._files, filename, content, told)
                return changed(self._files, filename, lambda data: (data + added, 1), told)

        return attempt("write", filename, work)

    @function_tool(**READS)
    def list_files(self, path: str = ".") -> ToolResult:
        """List what is in a folder.

        Args:
            path: Path of the folder, inside the workspace.
        """
        return attempt("list", path, lambda: self._list(path, "files"))

    def _list(self, path: str, label: str) -> ToolResult:
        entries = sorted(self._files.find(path).iterdir())
        found = [
            {"name": entry.name, "type": "directory" if entry.is_dir() else "file"}
            for entry in entries[:_MOST_LISTED]
        ]
        return _success(path=path, count=len(entries), **{label: found})

    @function_tool(permissions=ToolPermission(command=True))
    def run_command(self, command: str) -> ToolResult:
        """Run a shell command in the workspace and wait for it.

        Args:
            command: The command line.
        """
        names = ("status", "command", "returncode", "stdout", "stderr")
        return ran(self._processes, command, self._timeout, names)


class EditorToolSet(CodingToolSet):
    """The profile ``editor`` of ``CodingToolSet``."""

    name = "editor"

    def __init__(self, workspace_root: _Root = ".") -> None:
        super().__init__(workspace_root, profile="editor")


def ReadFile(workspace_root: _Root = ".") -> FunctionTool:
    """The tool ``read_file`` of ``CodingToolSet``."""
    return CodingToolSet(workspace_root).read_file


def WriteFile(workspace_root: _Root = ".") -> FunctionTool:
    """The tool ``write_file`` of ``CodingToolSet``."""
    return CodingToolSet(workspace_root).write_file


def RunCommand(workspace_root: _Root = ".", shell_timeout: float = 30) -> FunctionTool:
    """The tool ``run_command`` of ``CodingToolSet``, with its time limit in seconds."""
    return CodingToolSet(workspace_root, shell_timeout).run_command


def _asking(tool: FunctionTool) -> FunctionTool:
    return FunctionTool(tool.func, replace(tool.meta, needs_approval=True))


def _told(**values: Any) -> dict[str, Any]:
    return {"status": "success", **values}


def _success(**values: Any) -> ToolResult:
    return ToolResult(output=_told(**values))
