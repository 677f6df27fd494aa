"""Windows into text files and edits of them that change no other byte.

Lines end at ``\\n``, ``\\r\\n`` or a lone ``\\r``. An edit works on bytes: an LF that
was asked for stands for whichever of these the file has there, all else is literal.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat

from ._folder import FileRefusal

__all__ = ["Selection", "edit_bytes", "require_digest", "select_lines"]

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(b"\r\n|\r|\n")
_MOST_PLACES = 1000
_SAME_LINE_END = rb"(?:\r\n|\r(?!\n)|(?<!\r)\n)"


@dataclass(frozen=True)
class Selection:
    """Some lines of a file, numbered for a reader."""

    text: str
    encoding: str
    """``utf-8``, or ``unknown`` when some bytes had to be shown as U+FFFD."""
    receipt: dict[str, int | bool]
    """``offset`` (lines before the first one), ``limit``, ``total_lines``, ``has_more``
    (lines follow the last one) and ``truncated`` (the limit cut them off)."""


def _require_text(data: bytes) -> None:
    # UTF-16 text is binary here: its line ends and matches are no single bytes.
    if b"\0" in data or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileRefusal(
            "file_is_binary", f"binary file of {len(data)} bytes, not text"
        )


def select_lines(data: bytes, offset: int, limit: int, *, first: int = 0) -> Selection:
    """Up to ``limit`` lines from ``offset`` on as ``number<tab>text``, without a BOM.

    ``first`` is the offset of the first line; the numbers always start at 1.

    Raises:
        FileRefusal: ``invalid_read_window`` for what is no int, an offset below
            ``first`` or a limit below 1; ``file_is_binary``.
    """
    for label, value, least in (("offset", offset, first), ("limit", limit, 1)):
        if type(value) is not int or value < least:
            raise FileRefusal(
                "invalid_read_window",
                f"{label} must be an int from {least}, got {value!r}",
            )
    _require_text(data)
    lines = _LINE_END.split(data.removeprefix(_BOM))
    if not lines[-1]:
        lines.pop()  # what follows the last line end is not a line
    start = offset - first
    chosen = lines[start : start + limit]
    try:
        texts = [line.decode("utf-8") for line in chosen]
        encoding = "utf-8"
    except UnicodeDecodeError:
        texts = [line.decode("utf-8", "replace") for line in chosen]
        encoding = "unknown"
    has_more = start + limit < len(lines)
    return Selection(
        "\n".join(f"{number}\t{text}" for number, text in enumerate(texts, start + 1)),
        encoding,
        {
            "offset": start,
            "limit": limit,
            "total_lines": len(lines),
            "has_more": has_more,
            "truncated": has_more,
        },
    )


def require_digest(data: bytes, expected_sha256: str | None) -> None:
    """Refuse ``data`` as ``stale_file`` unless it has this SHA-256 (None: any)."""
    if expected_sha256 is None:
        return
    if not isinstance(expected_sha256, str):
        kind = type(expected_sha256).__name__
        raise FileRefusal("invalid_edit", f"expected_sha256 must be text, got {kind}")
    if hashlib.sha256(data).hexdigest() != expected_sha256.lower():
        raise FileRefusal(
            "stale_file", "the file changed: its SHA-256 is not the expected one"
        )


def edit_bytes(
    data: bytes, old: str, new: str, replace_all: bool = False
) -> tuple[bytes, int]:
    """Replace ``old`` by ``new``; returns the new content and the number of places.

    Raises:
        FileRefusal: ``invalid_edit``, ``text_not_found``, ``ambiguous_edit`` (without
            ``replace_all``, more than one place, which may overlap),
            ``file_is_binary`` or ``file_is_not_utf8``.
    """
    _require_edit(old, new, replace_all)
    _require_text(data)
    spans = list(_spans(data, old, None if replace_all else _MOST_PLACES))
    if not _is_utf8(data):
        _require_ascii(data, old + new, [start for start, _ in spans])
    if not spans:
        raise FileRefusal("text_not_found", "old text does not occur in the file")
    if len(spans) > 1 and not replace_all:
        least = "at least " if len(spans) == _MOST_PLACES else ""
        raise FileRefusal(
            "ambiguous_edit",
            f"old text occurs in {least}{len(spans)} places, "
            "expected one (or replace all)",
        )
    own = _own_line_end(data)
    pieces, done = [], 0
    for start, end in spans:
        pieces += data[done:start], _with_line_ends(new, data[start:end], own)
        done = end
    edited = b"".join([*pieces, data[done:]])
    if edited == data:
        raise FileRefusal("invalid_edit", "old and new text are the same in this file")
    return edited, len(spans)


def _spans(data: bytes, old: str, most: int | None) -> Iterator[tuple[int, int]]:
    """Where ``old`` occurs: the first ``most`` places, which may overlap, or (None) all
    that can be replaced together.

    A search with one pattern for all line ends would take the product of both lengths.
    """
    parts = _split_at_lf(old)
    text, wanted, folded, exact = data, parts[0], [], None
    if len(parts) > 1:
        text, wanted = _with_lf(data), _with_lf(old.encode("utf-8"))
        found = re.finditer(b"\r\n", data)
        folded = [match.start() - index for index, match in enumerate(found)]
        if b"\r" in old.encode("utf-8"):
            exact = re.compile(_SAME_LINE_END.join(map(re.escape, parts)))
    place, count = len(_BOM) if data.startswith(_BOM) else 0, 0
    while (place := text.find(wanted, place)) >= 0 and count != most:
        behind = place + len(wanted)
        start, end = (at + bisect_left(folded, at) for at in (place, behind))
        place += 1
        if exact is None or exact.fullmatch(data, start, end):
            yield start, end
            count += 1
            place = behind if most is None else place


def _with_lf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _require_edit(old: str, new: str, replace_all: bool) -> None:
    for label, value, kind in (
        ("old", old, str),
        ("new", new, str),
        ("replace_all", replace_all, bool),
    ):
        if not isinstance(value, kind):
            got = type(value).__name__
            raise FileRefusal(
                "invalid_edit", f"{label} must be of type {kind.__name__}, got {got}"
            )
    if not old:
        raise FileRefusal("invalid_edit", "old text is empty")
    if old == new:
        raise FileRefusal("invalid_edit", "old and new text are the same")
    try:
        (old + new).encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileRefusal(
            "invalid_edit", "old or new text holds a lone surrogate"
        ) from error


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _require_ascii(data: bytes, text: str, places: list[int]) -> None:
    if not text.isascii():
        raise FileRefusal(
            "file_is_not_utf8", "not UTF-8: only ASCII text can be edited in it"
        )
    # In GBK or Shift-JIS such a byte may be the first half of a character.
    if any(data[place - 1 : place] > b"\x7f" for place in places):
        raise FileRefusal(
            "file_is_not_utf8",
            "not UTF-8, and old text follows a byte that is not ASCII",
        )


def _split_at_lf(text: str) -> list[bytes]:
    # An LF behind a CR is a CRLF that was written out, and literal.
    return re.split(rb"(?<!\r)\n", text.encode("utf-8"))


def _own_line_end(data: bytes) -> bytes:
    """The most frequent line end of a file, the first among equals; LF without any."""
    counts = Counter(_LINE_END.findall(data))
    return counts.most_common(1)[0][0] if counts else b"\n"


def _with_line_ends(new: str, replaced: bytes, own: bytes) -> bytes:
    """``new`` with the line ends of what it replaces, in order, then the file's own."""
    first, *rest = _split_at_lf(new)
    ends = chain(_LINE_END.findall(replaced), repeat(own))
    return first + b"".join(end + part for end, part in zip(ends, rest))
