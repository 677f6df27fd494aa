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
from itertools import chain, repeat

from ._folder import FileRefusal

__all__ = ["edit_bytes", "lines_of", "replace_lines", "select_lines"]

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(b"\r\n|\r|\n")
_MOST_PLACES = 1000
_SAME_LINE_END = rb"(?:\r\n|\r(?!\n)|(?<!\r)\n)"


def lines_of(data: bytes) -> tuple[list[str], str]:
    """The lines of a file without BOM and line ends, and its encoding.

    The encoding is ``utf-8``, or ``unknown`` when some bytes are shown as U+FFFD.
    Raises ``FileRefusal`` with the code ``file_is_binary``.
    """
    _require_text(data)
    lines = _LINE_END.split(data.removeprefix(_BOM))
    if not lines[-1]:
        lines.pop()  # what follows the last line end is not a line
    try:
        return [line.decode("utf-8") for line in lines], "utf-8"
    except UnicodeDecodeError:
        return [line.decode("utf-8", "replace") for line in lines], "unknown"


def select_lines(
    data: bytes, offset: int, limit: int, *, first: int = 0
) -> tuple[str, dict[str, str | dict[str, int | bool]]]:
    """Up to ``limit`` lines as ``number<tab>text``, ``encoding`` and ``selection_receipt``.

    ``first`` is what the caller calls the first line; the numbers always start at 1.
    Raises ``FileRefusal``: ``invalid_read_window`` for what is no int, an offset below
    ``first`` or a limit below 1; ``file_is_binary``.
    """
    for label, value, least in (("offset", offset, first), ("limit", limit, 1)):
        if type(value) is not int or value < least:
            text = f"{label} must be an int from {least}, got {value!r}"
            raise FileRefusal("invalid_read_window", text)
    lines, encoding = lines_of(data)
    start = offset - first
    more = start + limit < len(lines)
    receipt = {"offset": start, "limit": limit, "total_lines": len(lines)}
    shown = enumerate(lines[start : start + limit], start + 1)
    return "\n".join(f"{number}\t{text}" for number, text in shown), {
        "encoding": encoding,
        "selection_receipt": {**receipt, "has_more": more, "truncated": more},
    }


def edit_bytes(
    data: bytes, old: str, new: str, replace_all: bool = False, expected_sha256: str | None = None
) -> tuple[bytes, int]:
    """Replace ``old`` by ``new``; returns the new content and the number of places.

    Raises ``FileRefusal``: ``stale_file`` (another SHA-256 than expected), ``invalid_edit``,
    ``text_not_found``, ``ambiguous_edit`` (more than one place, which may overlap),
    ``file_is_binary``, ``file_is_not_utf8``.
    """
    if expected_sha256 is not None:
        _require_types(("expected_sha256", expected_sha256, str))
        if hashlib.sha256(data).hexdigest() != expected_sha256.lower():
            raise FileRefusal("stale_file", "the file changed: its SHA-256 is not the expected one")
    _require_types(("old", old, str), ("new", new, str), ("replace_all", replace_all, bool))
    if not old or old == new:
        text = "old and new text are the same" if old else "old text is empty"
        raise FileRefusal("invalid_edit", text)
    _require_text(data)
    spans = list(_spans(data, old, None if replace_all else _MOST_PLACES))
    _require_encoding(data, old + new, [start for start, _ in spans])
    if not spans:
        raise FileRefusal("text_not_found", "old text does not occur in the file")
    if len(spans) > 1 and not replace_all:
        least = "at least " if len(spans) == _MOST_PLACES else ""
        text = f"old text occurs in {least}{len(spans)} places, expected one (or replace all)"
        raise FileRefusal("ambiguous_edit", text)
    own = Counter(_LINE_END.findall(data) or [b"\n"]).most_common(1)[0][0]
    done = 0
    pieces: list[bytes] = []
    for start, end in spans:
        pieces += data[done:start], _with_line_ends(new, data[start:end], own)
        done = end
    edited = b"".join([*pieces, data[done:]])
    if edited == data:
        raise FileRefusal("invalid_edit", "old and new text are the same in this file")
    return edited, len(spans)


def replace_lines(data: bytes, start: int, end: int, new: str) -> tuple[bytes, int]:
    """The same for the lines ``start`` to ``end``, counted from 1, as one place.

    With ``end`` one below ``start`` it is inserted before the line ``start``, which may be one
    behind the last. Raises as ``edit_bytes``, ``invalid_edit`` for lines that are not there.
    """
    _require_types(("start_line", start, int), ("end_line", end, int), ("new text", new, str))
    _require_text(data)
    _require_encoding(data, new, [])
    bom = data[: len(_BOM)] if data.startswith(_BOM) else b""
    ends = [match.end() for match in _LINE_END.finditer(data)]
    marks = [len(bom), *(place for place in ends if place < len(data))]
    lines = [data[a:b] for a, b in zip(marks, [*marks[1:], len(data)]) if b > a]
    if not 1 <= start <= end + 1 <= len(lines) + 1:
        wrong = f"lines {start} to {end} are not in the file, it has {len(lines)}"
        raise FileRefusal("invalid_edit", wrong)
    own = Counter(_LINE_END.findall(data) or [b"\n"]).most_common(1)[0][0]
    text = _with_line_ends(new, b"", own)
    whole = not lines or lines[-1].endswith((b"\r", b"\n"))
    if text and lines and not text.endswith((b"\r", b"\n")) and (whole or end < len(lines)):
        text += own
    if text and not whole and start > len(lines):
        text = own + text
    return bom + b"".join([*lines[: start - 1], text, *lines[end:]]), 1


def _spans(data: bytes, old: str, most: int | None) -> Iterator[tuple[int, int]]:
    """Where ``old`` occurs: the first ``most`` places, or (None) all that do not overlap."""
    # A search with one pattern for all line ends would take the product of both lengths.
    parts = _split_at_lf(old)
    text, wanted, folded, exact = data, parts[0], [], None
    if len(parts) > 1:
        text, wanted = (
            part.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            for part in (data, old.encode("utf-8"))
        )
        found = re.finditer(b"\r\n", data)
        folded = [match.start() - index for index, match in enumerate(found)]
        if "\r" in old:
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


def _require_types(*checks: tuple[str, object, type]) -> None:
    for label, value, kind in checks:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            text = f"{label} must be of type {kind.__name__}, got {type(value).__name__}"
            raise FileRefusal("invalid_edit", text)
        if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
            raise FileRefusal("invalid_edit", f"{label} holds a lone surrogate")


def _require_text(data: bytes) -> None:
    # UTF-16 text is binary here: its line ends and matches are no single bytes.
    if b"\0" in data or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileRefusal("file_is_binary", f"binary file of {len(data)} bytes, not text")


def _require_encoding(data: bytes, text: str, places: list[int]) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        # In GBK or Shift-JIS a byte before a place may be the first half of a character.
        if not text.isascii() or any(data[at - 1 : at] > b"\x7f" for at in places):
            why = "not UTF-8: only ASCII text that follows ASCII can be edited in it"
            raise FileRefusal("file_is_not_utf8", why) from None


def _split_at_lf(text: str) -> list[bytes]:
    # An LF behind a CR is a CRLF that was written out, and literal.
    return re.split(rb"(?<!\r)\n", text.encode("utf-8"))


def _with_line_ends(new: str, replaced: bytes, own: bytes) -> bytes:
    """``new`` with the line ends of what it replaces, in order, then the file's own."""
    first, *rest = _split_at_lf(new)
    ends = chain(_LINE_END.findall(replaced), repeat(own))
    return first + b"".join(end + part for end, part in zip(ends, rest))
