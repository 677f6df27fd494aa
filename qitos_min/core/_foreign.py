"""Running foreign code, which may raise anything, and the words for what it raised."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from ._json import to_json_value
from ._shorten import shortened

_MOST = 20  # Exceptions of a group that a message names, and frames of a traceback.


def outcome(work: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """The value of a call and what it raised; one of the two is None."""
    try:
        return work(*args), None
    except BaseException as error:  # Whatever it is, it becomes part of a record.
        return None, error


def guarded(work: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """Like :func:`outcome`, but an interrupt by the user is raised at once."""
    value, error = outcome(work, *args)
    if isinstance(error, KeyboardInterrupt):
        raise error
    return value, error


def error_text(error: BaseException) -> str:
    """What an exception says, as JSON can hold it; the type's name if it says nothing."""
    return _said(error) or type(error).__name__


def described(error: BaseException) -> str:
    text, kind = _said(error), type(error).__name__
    return f"{kind}: {text}" if text else kind


def _said(error: BaseException) -> str:
    text = to_json_value(outcome(str, error)[0]) or ""
    # By attribute: the class of groups is built in from 3.11 on and a package before.
    inner = getattr(error, "exceptions", None)
    inner = inner if isinstance(inner, (list, tuple)) else ()
    told = [described(e) for e in inner[:_MOST] if isinstance(e, BaseException)]
    told += [f"and {len(inner) - _MOST} more"] if len(inner) > _MOST else []
    return f"{text}: {'; '.join(told)}" if told else text


def traced(error: BaseException) -> str:
    """The last 20 frames of an exception and its causes as text, as JSON can hold it."""
    told, _ = guarded(traceback.format_exception, type(error), error, error.__traceback__, -_MOST)
    return to_json_value(shortened("".join(told or ()).rstrip(), 20_000)) or described(error)
