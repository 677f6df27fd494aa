"""Foreign code, which may raise anything, and foreign values, which may be long: their words."""

from __future__ import annotations

import traceback
from bisect import bisect_right
from collections.abc import Callable, Collection
from typing import Any

from ._json import dumps, to_json_value

_MOST = 20  # Exceptions of a group that a message names, and frames of a traceback.
CUT_MARK = "...[TRUNCATED]"


def outcome(work: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """The value of a call and what it raised; one of the two is None."""
    try:
        return work(*args), None
    except BaseException as error:  # Whatever it is, it becomes part of a record.
        return None, error


def guarded(work: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """Like :func:`outcome`, but an interrupt by the user is raised at once."""
    try:
        return work(*args), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, error


def error_text(error: BaseException) -> str:
    """What an exception says, as JSON can hold it; the type's name if it says nothing."""
    return _said(error) or type(error).__name__


def described(error: BaseException) -> str:
    """Type and message of an exception."""
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


def shortened(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """A text whose ``size`` is at most ``limit``: both ends with the mark between them."""
    if size(text) <= limit:
        return text
    fits = range(min(len(text), max(0, limit - len(CUT_MARK))) + 1)
    found = bisect_right(fits, limit, key=lambda kept: size(both_ends(text, kept)))
    return both_ends(text, found - 1) if found else CUT_MARK[:limit]


def both_ends(text: str, kept: int) -> str:
    """So many characters of a text, half of them from its end, and the mark between."""
    tail = kept // 2
    return text[: kept - tail] + CUT_MARK + text[len(text) - tail :]


def fitted(
    parts: dict[str, Any], limit: int, *, whole: Collection[str] = (), flat: Collection[str] = ()
) -> dict[str, Any]:
    """A copy of an object whose JSON text has at most ``limit`` characters.

    Keys and what ``whole`` names take up to half, long values share the rest, ``flat`` as text.
    """
    view = dict(parts)
    if len(dumps(parts)) <= limit:
        return view
    long = {n: _size(v) for n, v in parts.items() if n not in whole and v is not None}
    room = limit - min(len(dumps({**parts, **dict.fromkeys(long, "")})), limit // 2)
    for index, name in enumerate(sorted(long, key=long.__getitem__)):
        share = room // (len(long) - index)
        if long[name] > share:
            view[name] = within(view[name], share, flat=name in flat)
        room -= _size(view[name])
    return view


def within(value: Any, limit: int, *, flat: bool = False) -> Any:
    """A value cut to ``limit`` characters of JSON text: an object or a text."""
    is_open = isinstance(value, dict) and not flat
    if is_open and len(dumps(dict.fromkeys(value, ""))) <= limit // 2:
        return fitted(value, limit)
    return shortened(joined(value), limit, _size)


def _size(value: Any) -> int:
    """Characters of a value in JSON text; the quotes of a text do not count."""
    return len(dumps(value)) - 2


def joined(*parts: Any) -> str:
    """The parts that are not None, one per line; what is no text as JSON."""
    told = (part for part in parts if part is not None)
    return "\n".join(part if isinstance(part, str) else dumps(part) for part in told)


def brief(value: Any, limit: int = 48) -> str:
    return shortened(repr(value), limit)


def summary(item: object, *values: Any, **named: Any) -> str:
    """What ``repr`` tells of an object: its class and a few plain values, one line."""
    told = [brief(value, 200) for value in values]
    told += [f"{name}={brief(value)}" for name, value in named.items()]
    return f"{type(item).__name__}({', '.join(told)})"
