"""Long values made short: both ends stay, for what matters may stand at either."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection
from typing import Any

from ._json import dumps

CUT_MARK = "...[TRUNCATED]"


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
