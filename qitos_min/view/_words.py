"""Values as words."""

from __future__ import annotations

import html
import json
from typing import Any

from snowl_compat import dumps


def duration(seconds: float) -> str:
    """Return seconds as people say them: ``0.4 ms``, ``12 ms``, ``3.2 s``, ``4 min 5 s``."""
    if seconds < 0.9995:
        value = seconds * 1000
        return f"{value:.0f} ms" if value >= 9.95 or not value else f"{value:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def words(value: Any) -> str:
    """Return a value as text: numbers short, what is no text as JSON."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.3g}"
    return value if isinstance(value, str) else dumps(value)


def shortened(value: Any, limit: int) -> str:
    """Return a value as text, or the begin of that and how many characters are left out."""
    text = words(value)
    left = len(text) - limit
    return text if left <= 0 else f"{text[:limit]} ... and {left:,} more characters"


def printable(text: str, keep: str = "") -> str:
    """Return the text with what a reader could not see, or a terminal obey, as JSON escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else json.dumps(c)[1:-1] for c in text)


def html_text(value: Any, limit: int = 200) -> str:
    """Return a value, shortened, as text of a page: nothing in it is markup."""
    return html.escape(printable(shortened(value, limit), "\n\t"))
