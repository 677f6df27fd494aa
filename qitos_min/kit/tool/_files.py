"""File and command operations as tool results; ``files`` is a ``Folder`` or acts like one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ...core.tool import ToolPermission
from ...core.tool_result import ToolResult
from .._folder import FileRefusal
from .._text import select_lines

__all__ = ["EDITS", "READS", "attempt", "changed", "ran", "read", "written"]

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
_PATH_CODES = ("path_outside_workspace", "protected_path")


def attempt(
    verb: str, name: object, work: Callable[[], ToolResult], *, paths: bool = False
) -> ToolResult:
    """What ``work`` gives, or an error: ``file_<verb>_failed`` without a code of its own."""
    codes = _CODES.get(verb, ()) + (_PATH_CODES if paths else ())
    try:
        return work()
    except FileRefusal as error:
        failed, code, reason = ToolResult.semantic_error, error.code, error.reason
    except (OSError, UnicodeError) as error:
        failed, code = ToolResult.execution_error, ""
        reason = getattr(error, "strerror", None) or str(error)
    return failed(
        code=code if code in codes else f"file_{verb}_failed",
        error=f"cannot {verb} {name!r}: {reason}",
        recoverable=True,
    )


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
