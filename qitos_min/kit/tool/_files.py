"""Files and commands as tool results; ``files`` is a ``Folder`` or acts like one.

In a text without CR that is looked for or put in, an LF stands for the file's line end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from inspect import signature
from itertools import chain, repeat
from typing import Any

from ...core import FunctionTool, ToolPermission, ToolResult, function_tool
from .._folder import FileRefusal, need

_BOM = "\ufeff"
_LINE_END = re.compile("\r\n|\r|\n")
_LINE = re.compile("[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_LOOK = ToolPermission(filesystem_read=True)
_EDIT = ToolPermission(filesystem_read=True, filesystem_write=True)
_MAY = dict(read=_LOOK, list=_LOOK, edit=_EDIT, write=_EDIT, run=ToolPermission(command=True))
_TRIES = 200


def file_tool(verb: str, *, ops: str | None = None) -> Callable[[Any], FunctionTool]:
    """``function_tool`` for a method whose first parameter names what an error result is about."""
    traits: dict[str, Any] = {"permissions": _MAY[verb], "required_ops": [ops] if ops else []}
    traits |= {"read_only": True, "concurrency_safe": True} if _MAY[verb] is _LOOK else {}
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
            text = f"cannot {verb} {name!r}: {reason}"
            return failed(code=code or failing, error=text, recoverable=True)

        return function_tool(**traits)(attempt)

    return decorate


def read(files: Any, name: str, offset: int, limit: int, first: int = 0) -> ToolResult:
    """Numbered lines of a file; ``first`` is what the caller calls the first line."""
    for label, value, least in (("offset", offset, first), ("limit", limit, 1)):
        text = f"{label} must be an int from {least}, got {value!r}"
        need(type(value) is int and value >= least, "invalid_read_window", text)
    data, start = files.read_bytes(name), offset - first
    lines = lines_of(data)
    more = start + limit < len(lines)
    seen = {"offset": start, "limit": limit, "total_lines": len(lines)}
    receipt = {**seen, "has_more": more, "truncated": more}
    known = {"sha256": sha256(data).hexdigest(), "selection_receipt": receipt}
    shown = enumerate(lines[start : start + limit], start + 1)
    text = "\n".join(f"{number}\t{line}" for number, line in shown)
    return ToolResult(output=text, metadata={"path": name, **known})


def changed(files: Any, name: str, change: Callable[..., Any], *args: Any) -> ToolResult:
    """Give a file what ``change`` makes of its content and ``args``, with how many places."""
    for left in reversed(range(_TRIES)):
        before = files.read_bytes(name)
        after, count = change(before, *args)
        try:
            files.write_bytes(name, after, expected=before)
            break
        except FileRefusal as error:
            if error.code != "stale_file" or not left:
                raise  # else another writer was faster, and its content is changed next
    return told(name, {"replacements": count}, "edit", after)


def written(files: Any, name: str, text: str) -> ToolResult:
    data = text.encode("utf-8")
    files.write_bytes(name, data)
    return told(name, {"size": len(data)}, "write", data)


def told(path: str, values: dict[str, Any], operation: str = "", after: bytes = b"") -> ToolResult:
    """A success with an output that agents read as QitOS writes it, and what was changed."""
    result = ToolResult(output={"status": "success", "path": path, **values})
    if operation:
        result.metadata = {"path": path, "sha256": sha256(after).hexdigest()}
        result.filesystem_changes = [{"path": path, "operation": operation}]
    return result


def ran(processes: Any, command: str, timeout: float, *more: str) -> ToolResult:
    """Run a command: its exit status, what it printed and ``more`` of what is told of it."""
    done = processes.run(command, timeout=timeout)
    output = {name: done.get(name) for name in (*more, "returncode", "stdout", "stderr")}
    told: dict[str, Any] = {"output": output}
    told["metadata"] = {"truncated": bool(done.get("truncated"))}
    if done["status"] == "success":
        return ToolResult(**told)
    told.update(code="command_failed", error=f"command ended with exit status {done['returncode']}")
    if done["status"] == "error":  # What it did is not known.
        told.update(error=done["error"], effect_ref="run_command")
        told.update(effect_state="unknown", outcome_unknown=True)
        if done.get("timed_out"):
            told.update(status="timed_out", code="command_timed_out")
    return ToolResult.execution_error(**told)


def lines_of(data: bytes) -> list[str]:
    """The lines of a file without BOM and line ends; bytes that are not UTF-8 are U+FFFD."""
    lines = _LINE_END.split(_text_of(data, "replace")[1])
    return lines if lines[-1] else lines[:-1]  # what follows the last line end is not a line


def edited(
    data: bytes, old: str, new: str, replace_all: bool = False, expected_sha256: str | None = None
) -> tuple[bytes, int]:
    """A file with ``new`` for ``old``, and the number of places: one unless ``replace_all``."""
    same = expected_sha256 is None or expected_sha256.lower() == sha256(data).hexdigest()
    need(same, "stale_file", "the file changed: its SHA-256 is not the expected one")
    need(old != "", "invalid_edit", "old text is empty")
    need(old != new, "invalid_edit", "old and new text are the same")
    bom, text = _text_of(data)
    parts = [old] if "\r" in old else old.split("\n")
    pattern = "(?:\r\n|\r|(?<!\r)\n)".join(map(re.escape, parts))
    places = len(re.findall(f"(?={pattern})", text))
    need(places > 0, "text_not_found", "old text does not occur in the file")
    why = f"old text occurs in {places} places, expected one (or replace all)"
    need(places == 1 or replace_all, "ambiguous_edit", why)
    own = _line_end_of(text)
    after, count = re.subn(pattern, lambda match: _with_line_ends(new, match[0], own), text)
    need(after != text, "invalid_edit", "old and new text are the same in this file")
    return (bom + after).encode("utf-8"), count


def with_lines(data: bytes, start: int, end: int, new: str) -> tuple[bytes, int]:
    """The same with ``new`` for the lines ``start`` to ``end``, or inserted if that is one less."""
    bom, text = _text_of(data)
    lines = _LINE.findall(text)
    wrong = f"no such range of lines, the file has {len(lines)}"
    need(1 <= start <= end + 1 <= len(lines) + 1, "invalid_edit", wrong)
    own, closed = _line_end_of(text), not text or text.endswith(("\r", "\n"))
    lines[start - 1 : end] = _LINE.findall(_with_line_ends(new, "", own))
    after = "".join(line if line.endswith(("\r", "\n")) else line + own for line in lines)
    return (bom + (after if closed else after.removesuffix(own))).encode("utf-8"), 1


def _text_of(data: bytes, errors: str = "strict") -> tuple[str, str]:
    # UTF-16 text is binary here: its line ends and matches are no single bytes.
    binary = b"\0" in data or data.startswith((b"\xff\xfe", b"\xfe\xff"))
    need(not binary, "", f"binary file of {len(data)} bytes, not text")
    try:
        text = data.decode("utf-8", errors)
    except UnicodeDecodeError:
        raise FileRefusal("", "not UTF-8, it can only be read") from None
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _line_end_of(text: str) -> str:
    return Counter(_LINE_END.findall(text) or ["\n"]).most_common(1)[0][0]


def _with_line_ends(new: str, replaced: str, own: str) -> str:
    """``new`` with the line ends of what it replaces, in order, then the file's own."""
    ends = chain(_LINE_END.findall(replaced), repeat(own))
    return new if "\r" in new else re.sub("\n", lambda _: next(ends), new)
