"""Tools for files and commands: of a folder of this machine, or of an environment."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from ...core import FunctionTool, ToolRegistry, ToolResult
from .._folder import FileRefusal, Folder, need
from ..env import Processes
from ._files import changed, edited, file_tool, lines_of, ran, read, told, with_lines, written
from .web import HTMLExtractText, HTTPGet

_Root = str | os.PathLike[str]
_Context = dict[str, Any] | None
_EDITOR = ("view", "create", "str_replace", "insert", "search", "replace_lines")
_WHOLE = ("read_file", "write_file", "append_file", "list_files", "run_command")
_PROFILES = {"editor": _EDITOR, "full": ("Read", "Edit", *_EDITOR, *_WHOLE)}
_ABSENT = ("include_notebook", "include_tasks", "enable_lsp", "enable_tasks")
_WEB = ("enable_web", "include_http_tools")
_MOST_LISTED, _MOST_MATCHES = 1000, 100

# Arguments that several tools take.
_Path = Annotated[str, "Path inside the workspace."]
_Skip = Annotated[int, "How many lines to skip, from 0."]
_Most = Annotated[int, "How many lines to read at most, from 1."]
_Old = Annotated[str, "The text to replace, exactly as it is in the file."]
_New = Annotated[str, "The text to put in its place."]
_Range = Annotated[list[int] | None, "First and last line, from 1; -1 is the end of the file."]
_Every = Annotated[bool, "Replace every occurrence."]
_Seconds = Annotated[float, "Seconds after which it is killed."]
_Digest = Annotated[str | None, "SHA-256 that the file must still have, in hexadecimal."]


class CodingToolSet:
    """Tools for the files below ``workspace_root``, and for commands in that folder.

    ``shell_timeout`` is in seconds. ``auto_approve=False`` makes tools that change files or run
    commands ask. ``profile`` is ``full``, or ``editor`` without ``Read``, ``Edit``, whole files and
    commands. NotADirectoryError for no existing folder, ValueError for what there is not.
    """

    name = "coding"

    def __init__(
        self,
        workspace_root: _Root = ".",
        shell_timeout: float = 30,
        include_notebook: bool = False,
        *,
        include_web: bool = False,
        auto_approve: bool = True,
        profile: str = "full",
        **options: bool,
    ) -> None:
        for option, value in {"include_notebook": include_notebook, **options}.items():
            if option not in (*_ABSENT, *_WEB):
                raise TypeError(f"CodingToolSet takes no option {option!r}")
            if value and option in _ABSENT:
                raise ValueError(f"{option}={value!r}: qitos_min has no such tools, give False")
        if profile not in _PROFILES:
            raise ValueError(f"unknown profile {profile!r}, expected one of {', '.join(_PROFILES)}")
        self._files, self._timeout = Folder(workspace_root), shell_timeout
        self._processes = Processes(self._files.root)
        found = [getattr(self, name) for name in _PROFILES[profile]]
        if not auto_approve:
            asking = [FunctionTool(t.func, replace(t.meta, needs_approval=True)) for t in found]
            found = [a if a.spec.read_only else b for a, b in zip(found, asking)]
        web = include_web or any(options.get(name) for name in _WEB)
        self._tools = [*found, HTTPGet(), HTMLExtractText()] if web else found

    def tools(self) -> list[Any]:
        return list(self._tools)

    @file_tool("read")
    def Read(self, file_path: _Path, offset: _Skip = 0, limit: _Most = 2000) -> ToolResult:
        """Read lines of a text file, each as its number, a tab and its text."""
        return read(self._files, file_path, offset, limit)

    @file_tool("edit")
    def Edit(
        self,
        file_path: _Path,
        old_string: _Old,
        new_string: _New,
        replace_all: _Every = False,
        *,
        expected_sha256: _Digest = None,
    ) -> ToolResult:
        """Replace a text that occurs once in a file, or every occurrence of it."""
        change = old_string, new_string, replace_all, expected_sha256
        return changed(self._files, file_path, edited, *change)

    @file_tool("read")
    def view(self, path: _Path, view_range: _Range = None) -> ToolResult:
        """Show a text file, or the names in a folder."""
        if self._files.find(path).is_dir():
            return self._list(path, "entries")
        lines, ends = lines_of(self._files.read_bytes(path)), view_range or [1, -1]
        first, last = ends[0], max(len(lines), 1) if ends[-1] == -1 else ends[-1]
        need(1 <= first <= last, "invalid_read_window", f"no range of lines: {view_range!r}")
        shown = lines[first - 1 : last]
        numbered = [{"line": n, "text": text} for n, text in enumerate(shown, first)]
        more = {"total_lines": len(lines), "has_more": last < len(lines)}
        return told(path, {"content": "\n".join(shown), "lines": numbered, **more})

    @file_tool("write")
    def create(self, path: _Path, file_text: str = "") -> ToolResult:
        """Write a whole text file inside the workspace, new or not."""
        return written(self._files, path, file_text)

    @file_tool("edit")
    def str_replace(self, path: _Path, old_str: str, new_str: str = "") -> ToolResult:
        """Replace a text that occurs once in a file, exactly as it is there."""
        return changed(self._files, path, edited, old_str, new_str)

    @file_tool("edit")
    def insert(self, path: _Path, insert_line: int, new_str: str) -> ToolResult:
        """Insert lines of text behind the line ``insert_line`` of a file, or (0) before all."""
        return changed(self._files, path, with_lines, insert_line + 1, insert_line, new_str)

    @file_tool("edit")
    def replace_lines(
        self, path: _Path, start_line: int, end_line: int, replacement: str = ""
    ) -> ToolResult:
        """Replace the lines ``start_line`` (from 1) to ``end_line`` of a file, or remove them."""
        where = start_line, end_line if end_line >= start_line else -1  # else an insertion
        return changed(self._files, path, with_lines, *where, replacement)

    @file_tool("read")
    def search(self, path: _Path, keyword: str) -> ToolResult:
        """Find the lines that hold a text in any case, in a file or the files below a folder."""
        below = self._files.find(path).is_dir()
        names = self._files.list_files(path, _MOST_LISTED) if below else [path]
        found, skipped = [], (FileRefusal, OSError) if below else ()
        for name in names:
            with suppress(*skipped):  # Among others, binary files have no lines.
                lines = enumerate(lines_of(self._files.read_bytes(name)), 1)
                hits = ((n, text) for n, text in lines if keyword.casefold() in text.casefold())
                found += [{"path": name, "line": n, "text": text} for n, text in hits]
        cut = len(found) > _MOST_MATCHES or len(names) == _MOST_LISTED
        known = {"matches": found[:_MOST_MATCHES], "match_count": len(found)}
        return told(path, {**known, "truncated": cut})

    @file_tool("read")
    def read_file(self, filename: _Path) -> ToolResult:
        """Read a whole text file inside the workspace."""
        data = self._files.read_bytes(filename)
        return told(filename, {"content": "\n".join(lines_of(data)), "size": len(data)})

    @file_tool("write")
    def write_file(self, filename: _Path, content: str) -> ToolResult:
        """Write a whole text file inside the workspace, new or not."""
        return written(self._files, filename, content)

    @file_tool("write")
    def append_file(self, filename: _Path, content: str) -> ToolResult:
        """Add text to the end of a file, which is made if there is none."""
        path, added = self._files.find(filename), content.encode("utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        result = changed(self._files, filename, lambda data: (data + added, 1))
        result.output["appended_size"] = len(added)
        return result

    @file_tool("list")
    def list_files(self, path: _Path = ".") -> ToolResult:
        """List what is in a folder inside the workspace."""
        return self._list(path, "files")

    @file_tool("run")
    def run_command(self, command: str) -> ToolResult:
        """Run a shell command in the workspace and wait for it."""
        return ran(self._processes, command, self._timeout, "status", "command")

    def _list(self, path: _Path, label: str) -> ToolResult:
        entries = sorted(self._files.find(path).iterdir())
        kinds = {e.name: "directory" if e.is_dir() else "file" for e in entries[:_MOST_LISTED]}
        found = [{"name": name, "type": kind} for name, kind in kinds.items()]
        return told(path, {"count": len(entries), label: found})


class EnvToolSet:
    """Files and commands of ``runtime_context["env"]``, and never those of the host.

    Its ``file`` has ``read_bytes``, ``write_bytes`` and ``list_files``, its ``process`` ``run``.
    """

    name = "env"

    def tools(self) -> list[FunctionTool]:
        return [self.read_file, self.edit_file, self.write_file, self.list_files, self.run_command]

    @file_tool("read", ops="file")
    def read_file(
        self,
        path: _Path,
        line_offset: Annotated[int, "Number of the first line to read, from 1."] = 1,
        line_limit: _Most = 400,
        runtime_context: _Context = None,
    ) -> ToolResult:
        """Read lines of a text file, each as its number, a tab and its text."""
        return read(_ops(runtime_context, "file"), path, line_offset, line_limit, 1)

    @file_tool("edit", ops="file")
    def edit_file(
        self,
        path: _Path,
        old_text: _Old,
        replacement: _New,
        expected_sha256: _Digest = None,
        replace_all: _Every = False,
        runtime_context: _Context = None,
    ) -> ToolResult:
        """Replace a text that occurs once in a file, or every occurrence of it."""
        options = old_text, replacement, replace_all, expected_sha256
        return changed(_ops(runtime_context, "file"), path, edited, *options)

    @file_tool("write", ops="file")
    def write_file(self, path: _Path, content: str, runtime_context: _Context = None) -> ToolResult:
        """Write a whole text file as UTF-8, new or not; missing folders are made."""
        return written(_ops(runtime_context, "file"), path, content)

    @file_tool("list", ops="file")
    def list_files(
        self, path: _Path = ".", limit: int = 200, runtime_context: _Context = None
    ) -> ToolResult:
        """List up to ``limit`` files below a folder, at any depth."""
        most = max(limit, 1)
        found = _ops(runtime_context, "file").list_files(path, most + 1)
        return ToolResult(output=found[:most], metadata={"has_more": len(found) > most})

    @file_tool("run", ops="process")
    def run_command(
        self, command: str, timeout: _Seconds = 30, runtime_context: _Context = None
    ) -> ToolResult:
        """Run a shell command in the workspace and wait for it."""
        return ran(_ops(runtime_context, "process"), command, timeout)


def _ops(context: _Context, group: str) -> Any:
    env = (context or {}).get("env")
    ops = None if env is None else env.get_ops(group)
    text = f"this tool needs an environment with {group!r} operations"
    need(ops is not None, "env_required", text)
    return ops


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


def coding_tools(workspace_root: _Root, shell_timeout: float = 30, **options: Any) -> ToolRegistry:
    """A registry with the tools of ``CodingToolSet``, which takes the ``options`` too."""
    return ToolRegistry().include_toolset(CodingToolSet(workspace_root, shell_timeout, **options))


def editor_tools(workspace_root: _Root) -> ToolRegistry:
    """A registry with the tools of ``EditorToolSet``."""
    return ToolRegistry().include_toolset(EditorToolSet(workspace_root))
