"""Looking at foreign objects and mappings without being hurt by them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from snowl_compat import dumps, to_json_value

__all__ = [
    "attempt",
    "described",
    "error_text",
    "peek",
    "peek_rows",
    "peek_text",
    "traced",
    "whole",
]

_MOST_FRAMES = 20


def attempt(call: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """Return what a call returns, or what it raises; only Ctrl-C is raised.

    An agent's ``SystemExit`` or its own ``CancelledError`` would otherwise end
    Snowl's whole evaluation.
    """
    try:
        return call(*args), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, error


def peek(source: Any, *names: str) -> Any:
    """Return the first of some keys or attributes that is not None, else None.

    An attribute counts only where it really is: a mock answers to any name.
    """
    for name in names:
        try:
            if isinstance(source, Mapping):
                value = source.get(name)
            elif name in getattr(source, "__dict__", ()) or hasattr(type(source), name):
                value = getattr(source, name)
            else:
                continue
        except Exception:
            continue
        if value is not None:
            return value
    return None


def peek_text(source: Any, *names: str) -> str:
    """Return the first of some fields as text; what is no text or number is ``""``."""
    value = to_json_value(peek(source, *names))
    if value is None or isinstance(value, (dict, list)):
        return ""
    return value if isinstance(value, str) else dumps(value)


def peek_rows(source: Any, name: str) -> list[Any]:
    """Return a field that is a list, without what is None; a lone row is a list of one."""
    value = peek(source, name)
    if isinstance(value, (list, tuple)):
        return [row for row in value if row is not None]
    return [value] if isinstance(value, Mapping) or hasattr(value, "__dict__") else []


def whole(value: Any) -> int | None:
    """Return the integer that a number says exactly, else None."""
    value = to_json_value(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def error_text(error: BaseException) -> str:
    """Return what an exception says, as JSON can hold it; ``""`` if it says nothing."""
    said, _ = attempt(str, error)
    return str(to_json_value((said or "").strip()))


def described(error: BaseException) -> str:
    """Return type and message of an exception."""
    text, kind = error_text(error), type(error).__name__
    return f"{kind}: {text}" if text else kind


def traced(error: BaseException) -> str:
    """Return the last 20 frames of an exception as text that JSON can hold."""
    lines = traceback.format_exception(error, limit=-_MOST_FRAMES)
    return str(to_json_value("".join(lines).rstrip()))
