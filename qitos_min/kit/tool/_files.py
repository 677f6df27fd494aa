"""File and command operations as tool results; ``files`` is a ``Folder`` or acts like one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from ...core.function_tool_decorator import function_tool
from ...core.tool import FunctionTool, ToolPermission
from ...core.tool_result import ToolResult
from .._folder import FileRefusal
from .._text import lines_of

__all__ = ["changed", "file_tool", "outcome", "ran", "read", "written"]

_READ: dict[str, Any] = {
    "read_only": True,
    "concurrency_safe": True,
    "permissions": ToolPermission(filesystem_read=True),
}
_EDIT = {"permissions": ToolPermission(filesystem_read=True, filesystem_write=True)}
_RUN = {"permissions": ToolPermission(command=True)}
_TRAITS = {"read": _READ, "list": _READ, "edit": _EDIT, "write": _EDIT, "run": _RUN}
_CODES = {"ambiguous_edit", "invalid_edit", "invalid_read_window", "stale_file", "text_not_found"}
_ENV_CODES = {"env_required", "path_outside_workspace", "protected_path"}
_TRIES = 200


def file_tool(verb: str, *, ops: str | None = None) -> Callable[[Any], FunctionTool]:
    """``function_tool`` for a method whose first parameter names a file, or is a command.

    What could not be carried out is an error result: ``file_<verb>_failed`` unless the refusal
    has a code of its own, as those of a path have for tools of an environment with ``ops`` only.
    """
    traits = {**_TRAITS[verb], "required_ops": [ops] if ops else []}
    codes = _CODES | _ENV_CODES if ops else _CODES
    failing = "command_failed" if verb == "run" else f"file_{verb}_failed"

    def decorate(work: Callable[..., ToolResult]) -> FunctionTool:
        first = list(signature(work).parameters)[1]

        @wraps(work)
        def attempt(self: Any, *args: Any, **kwargs: Any) -> ToolResult:
            try:
                return work(self, *args, **kwargs)
            except FileRefusal as error:
                failed, code, reason = ToolResult.semantic_error, error.code, error.reason
            except (OSError, ValueError) as error:
                failed, code = ToolResult.execution_error, ""
                reason = getattr(error, "strerror", None) or str(error)
            name = args[0] if args else kwargs.get(first, ".")
            code = code if code in codes else failing
            return failed(code=code, error=f"cannot {verb} {name!r}: {reason}", recoverable=True)

        return function_tool(**traits)(attempt)

    return decorate


def read(files: Any, name: str, offset: int, limit: int, first: int = 0) -> ToolResult:
    """Numbered lines of a file; ``first`` is what the caller calls the first line."""
    for label, value, least in (("offset", offset, first), ("limit", limit, 1)):
        if type(value) is not int or value < least:
            text = f"{label} must be an int from {least}, got {value!r}"
            raise FileRefusal("invalid_read_window", text)
    data, start = files.read_bytes(name), offset - first
    lines = lines_of(data)
    shown = enumerate(lines[start : start + limit], start + 1)
    more = start + limit < len(lines)
    receipt = {"offset": start, "limit": limit, "total_lines": len(lines), "has_more": more}
    return ToolResult(
        output="\n".join(f"{number}\t{line}" for number, line in shown),
        metadata={
            "path": str(name),
            "sha256": _sha256(data),
            "selection_receipt": {**receipt, "truncated": more},
        },
    )


def changed(
    files: Any,
    name: str,
    change: Callable[..., tuple[bytes, int]],
    *args: Any,
    told: dict[str, Any] | None = None,
) -> ToolResult:
    """Give a file what ``change`` makes of its content and ``args``; it tells how many places."""
    for left in reversed(range(_TRIES)):
        before = files.read_bytes(name)
        after, count = change(before, *args)
        try:
            files.write_bytes(name, after, expected=before)
            break
        except FileRefusal as error:
            if error.code != "stale_file" or not left:
                raise  # else another writer was faster, and its content is changed next
    digest = _sha256(after)
    row = {"operation": "edit", "sha256_before": _sha256(before), "sha256_after": digest}
    return ToolResult(
        output=f"edited {name}: {count} replaced" if told is None else outcome(name, **told),
        metadata={"path": str(name), "replacements": count, "sha256": digest},
        filesystem_changes=[{"path": str(name), **row}],
    )


def written(files: Any, name: str, text: str, *, told: bool = False) -> ToolResult:
    """Write a whole file, new or not."""
    data = text.encode("utf-8")
    files.write_bytes(name, data)
    row = {"operation": "write", "sha256_before": None, "sha256_after": _sha256(data)}
    return ToolResult(
        output=outcome(name, size=len(data)) if told else f"wrote {name}: {len(data)} bytes",
        filesystem_changes=[{"path": str(name), **row}],
    )


def outcome(path: str, **values: Any) -> dict[str, Any]:
    """The output of the tools that QitOS has and whose results agents read as a dict."""
    return {"status": "success", "path": path, **values}


def ran(processes: Any, command: str, timeout: float, *more: str) -> ToolResult:
    """Run a command: its exit status, what it printed and ``more`` of what is told of it."""
    done = processes.run(command, timeout=timeout)
    told: dict[str, Any] = {
        "output": {name: done.get(name) for name in (*more, "returncode", "stdout", "stderr")},
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
