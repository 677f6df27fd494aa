"""File operations as tool results, as the tools of host and environment share them."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from ...core.tool_result import ToolResult
from .._folder import FileRefusal
from .._text import edit_bytes, require_digest, select_lines

__all__ = [
    "EditRequest",
    "FileOps",
    "ReadRequest",
    "edit_result",
    "file_change",
    "read_result",
    "refusal_result",
]


class FileOps(Protocol):
    """What these tools need of the files they work on."""

    def read_bytes(self, name: str) -> bytes:
        """The content of a file."""

    def write_bytes(
        self, name: str, data: bytes, *, expected: bytes | None = None
    ) -> None:
        """Give a file new content, if it still has the expected one."""


@dataclass(frozen=True)
class ReadRequest:
    """One requested window, as a model sent it."""

    offset: int
    limit: int
    first: int = 0
    """What the caller calls the first line."""


@dataclass(frozen=True)
class EditRequest:
    """One requested replacement, as a model sent it."""

    old: str
    new: str
    replace_all: bool = False
    expected_sha256: str | None = None
    """Of the whole file, in hexadecimal; None accepts any content."""


def read_result(
    files: FileOps, name: str, request: ReadRequest, *, codes: frozenset[str]
) -> ToolResult:
    """Numbered lines of a file.

    A refusal keeps its code if ``codes`` holds it, else it is ``file_read_failed``.
    """
    try:
        data = files.read_bytes(name)
        chosen = select_lines(data, request.offset, request.limit, first=request.first)
    except (FileRefusal, OSError) as error:
        return refusal_result(error, "read", name, codes)
    return ToolResult(
        output=chosen.text,
        metadata={
            "path": str(name),
            "sha256": _sha256(data),
            "encoding": chosen.encoding,
            "selection_receipt": chosen.receipt,
        },
    )


def edit_result(
    files: FileOps, name: str, request: EditRequest, *, codes: frozenset[str]
) -> ToolResult:
    """Replace text in a file.

    A refusal keeps its code if ``codes`` holds it, else it is ``file_edit_failed``.
    """
    try:
        # Environments of others may have no lock; the check on writing stays to them.
        with getattr(files, "locked", nullcontext)(name):
            data = files.read_bytes(name)
            require_digest(data, request.expected_sha256)
            edited, count = edit_bytes(
                data, request.old, request.new, request.replace_all
            )
            files.write_bytes(name, edited, expected=data)
    except (FileRefusal, OSError) as error:
        return refusal_result(error, "edit", name, codes)
    return ToolResult(
        output=f"edited {name}: {count} replaced",
        metadata={"path": str(name), "replacements": count, "sha256": _sha256(edited)},
        filesystem_changes=[file_change(name, "edit", data, edited)],
    )


def file_change(
    name: str, operation: str, before: bytes | None, after: bytes
) -> dict[str, str | None]:
    """The record of one changed file; ``before`` is None when it is not known."""
    return {
        "path": str(name),
        "operation": operation,
        "sha256_before": None if before is None else _sha256(before),
        "sha256_after": _sha256(after),
    }


def refusal_result(
    error: OSError | ValueError, verb: str, name: object, codes: frozenset[str]
) -> ToolResult:
    """The error result of a file operation that was not carried out."""
    if isinstance(error, FileRefusal):
        failed, code, reason = ToolResult.semantic_error, error.code, error.reason
    else:
        failed, code = ToolResult.execution_error, ""
        reason = getattr(error, "strerror", None) or str(error)
    return failed(
        code=code if code in codes else f"file_{verb}_failed",
        error=f"cannot {verb} {name!r}: {reason}",
        recoverable=True,
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
