"""File and command operations as tool results; ``files`` is a ``Folder`` or acts like one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from inspect import signature
from typing import Any

from ...core.function_tool_decorator import function_tool
from ...core.tool import FunctionTool, ToolPermission
from ...core.tool_result import ToolResult
from .._folder import FileRefusal
from .._text import select_lines

__all__ = ["EDITS", "READS", "changed", "file_tool", "ran", "read", "written"]

READS: dict[str, Any] = {
    "read_only": True,
    "concurrency_safe": True,
    "permissions": ToolPermission(filesystem_read=True),
}
EDITS: dict[str, Any] = {"permissions": ToolPermission(filesystem_read=True, filesystem_write=True)}

_CODES = {
    "read": ("invalid_read_window",),
    "edit": ("ambiguous_edit", "invalid_edit", "stale_file", "text_not_found"),
}
_PATH_CODES = ("env_required", "path_outside_workspace", "protected_path")


def file_tool(verb: str, *, paths: bool = False, **spec: Any) -> Callable[[Any], FunctionTool]:
    """``function_tool`` for a method whose first parameter names a file.

    What could not be carried out is an error result: ``file_<verb>_failed`` if the refusal has
    no code for this verb, as those of a path have with ``paths`` only.
    """
    codes = _CODES.get(verb, ()) + (_PATH_CODES if paths else ())

    def decorate(work: Callable[..., ToolResult]) -> FunctionTool:
        first = list(signature(work).parameters)[1]

        @wraps(work)
        def attempt(self: Any, *args: Any, **kwargs: Any) -> ToolResult:
            try:
                return work(self, *args, **kwargs)
            except FileRefusal as error:
                failed, code, reason = ToolResult.semantic_error, error.code, error.reason
            except (OSError, UnicodeError) as error:
                failed, code = ToolResult.execution_error, ""
                reason = getattr(error, "strerror", None) or str(error)
            name = args[0] if args else kwargs.get(first, ".")
            code = code if code in codes else f"file_{verb}_failed"
            text = f"cannot {verb} {name!r}: {reason}"
            return failed(code=code, error=text, recoverable=True)

        return function_tool(**spec)(attempt)

    return decorate


def read(files: Any, name: str, offset: int, limit: int, first: int = 0) -> ToolResult:
    """Numbered lines of a file; ``first`` is what the caller calls the first line."""
    data = files.read_bytes(name)
    text, known = select_lines(data, offset, limit, first=first)
    return ToolResult(output=text, metadata={"path": str(name), "sha256": _sha256(data), **known})


def changed(
    files: Any, name: str, change: Callable[[bytes], tuple[bytes, int]], output: Any = None
) -> ToolResult:
    """Give a file what ``change`` makes of its content, and the number of places."""
    # Environments of others may have no lock; the check on writing stays to them.
    with getattr(files, "locked", nullcontext)(name):
        before = files.read_bytes(name)
        after, count = change(before)
        files.write_bytes(name, after, expected=before)
    known = {"path": str(name), "replacements": count, "sha256": _sha256(after)}
    output = f"edited {name}: {count} replaced" if output is None else output
    hashes = {"sha256_before": _sha256(before), "sha256_after": _sha256(after)}
    changes = [{"path": str(name), "operation": "edit", **hashes}]
    return ToolResult(output=output, metadata=known, filesystem_changes=changes)


def written(files: Any, name: str, text: str, output: Any = None) -> ToolResult:
    """Write a whole file, new or not."""
    data = text.encode("utf-8")
    files.write_bytes(name, data)
    output = f"wrote {name}: {len(data)} bytes" if output is None else output
    change = {"path": str(name), "operation": "write", "sha256_before": None}
    return ToolResult(output=output, filesystem_changes=[{**change, "sha256_after": _sha256(data)}])


def ran(
    processes: Any,
    command: str,
    timeout: float,
    names: tuple[str, ...] = ("returncode", "stdout", "stderr"),
) -> ToolResult:
    """Run a command; of what ``Processes.run`` tells, ``names`` are the output."""
    try:
        done = processes.run(command, timeout=timeout)
    except (OSError, ValueError) as error:
        text = f"cannot run the command: {error}"
        return ToolResult.execution_error(code="command_failed", error=text)
    told: dict[str, Any] = {
        "output": {name: done.get(name) for name in names},
        "metadata": {"truncated": bool(done.get("truncated"))},
    }
    if done["status"] == "success":
        return ToolResult(**told)
    if done["status"] != "error":
        text = f"command ended with exit status {done['returncode']}"
        return ToolResult.execution_error(code="command_failed", error=text, **told)
    late = bool(done.get("timed_out"))
    return ToolResult.execution_error(
        status="timed_out" if late else "error",
        code="command_timed_out" if late else "command_failed",
        error=done["error"],
        # What it did before it was killed is not known.
        effect_ref="run_command",
        effect_state="unknown",
        outcome_unknown=True,
        **told,
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
