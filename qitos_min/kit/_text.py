"""The lines of text files, and edits that change nothing else.

Lines end at ``\\n``, ``\\r\\n`` or a lone ``\\r``. In a text without ``\\r`` that is looked
for or put in, an LF stands for whichever of these the file has there.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from itertools import chain, repeat

from ._folder import FileRefusal

__all__ = ["edit_bytes", "lines_of", "replace_lines"]

_BOM = "\ufeff"
_LINE_END = re.compile("\r\n|\r|\n")
_LINE = re.compile("[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_MOST_PLACES = 1000


def lines_of(data: bytes) -> list[str]:
    """The lines of a file without BOM and line ends; bytes that are not UTF-8 are U+FFFD."""
    lines = _LINE_END.split(_text_of(data, "replace").removeprefix(_BOM))
    return lines if lines[-1] else lines[:-1]  # what follows the last line end is not a line


def edit_bytes(
    data: bytes, old: str, new: str, replace_all: bool = False, expected_sha256: str | None = None
) -> tuple[bytes, int]:
    """Replace ``old`` by ``new``; returns the new content and the number of places.

    Raises ``FileRefusal``: ``stale_file`` (another SHA-256 than expected), ``invalid_edit``,
    ``text_not_found``, ``ambiguous_edit`` (more than one place, which may overlap),
    ``file_is_binary``, ``file_is_not_utf8``.
    """
    digest = hashlib.sha256(data).hexdigest()
    if expected_sha256 is not None and expected_sha256.lower() != digest:
        raise FileRefusal("stale_file", "the file changed: its SHA-256 is not the expected one")
    if not old or old == new:
        text = "old and new text are the same" if old else "old text is empty"
        raise FileRefusal("invalid_edit", text)
    text = _text_of(data)
    spans = _spans(text, old, replace_all)
    if not spans:
        raise FileRefusal("text_not_found", "old text does not occur in the file")
    if len(spans) > 1 and not replace_all:
        least = "at least " if len(spans) == _MOST_PLACES else ""
        why = f"old text occurs in {least}{len(spans)} places, expected one (or replace all)"
        raise FileRefusal("ambiguous_edit", why)
    own, done = _line_end_of(text), 0
    pieces: list[str] = []
    for start, end in spans:
        pieces += text[done:start], _with_line_ends(new, text[start:end], own)
        done = end
    edited = "".join([*pieces, text[done:]])
    if edited == text:
        raise FileRefusal("invalid_edit", "old and new text are the same in this file")
    return edited.encode("utf-8"), len(spans)


def replace_lines(data: bytes, start: int, end: int, new: str) -> tuple[bytes, int]:
    """The same for the lines ``start`` to ``end``, counted from 1, as one place.

    With ``end`` one below ``start`` it is inserted before the line ``start``, which may be one
    behind the last. Raises as ``edit_bytes``, ``invalid_edit`` for lines that are not there.
    """
    text = _text_of(data)
    bom = _BOM if text.startswith(_BOM) else ""
    lines = _LINE.findall(text.removeprefix(_BOM))
    if not 1 <= start <= end + 1 <= len(lines) + 1:
        wrong = f"lines {start} to {end} are not in the file, it has {len(lines)}"
        raise FileRefusal("invalid_edit", wrong)
    own = _line_end_of(text)
    new = _with_line_ends(new, "", own)
    open_end = bool(lines) and not lines[-1].endswith(("\r", "\n"))
    if open_end and new and start > len(lines):
        new = own + new
    elif lines and new and (end < len(lines) or not open_end):
        new = new if new.endswith(("\r", "\n")) else new + own
    return "".join([bom, *lines[: start - 1], new, *lines[end:]]).encode("utf-8"), 1


def _text_of(data: bytes, errors: str = "strict") -> str:
    # UTF-16 text is binary here: its line ends and matches are no single bytes.
    if b"\0" in data or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileRefusal("file_is_binary", f"binary file of {len(data)} bytes, not text")
    try:
        return data.decode("utf-8", errors)
    except UnicodeDecodeError:
        raise FileRefusal("file_is_not_utf8", "not UTF-8, it can only be read") from None


def _spans(text: str, old: str, every: bool) -> list[tuple[int, int]]:
    """Where ``old`` occurs: at most 1000 places, or ``every`` one that does not overlap."""
    folded, pairs = text, []
    if "\r" not in old:
        # A search with one pattern for all line ends would take the product of both lengths.
        folded = text.replace("\r\n", "\n").replace("\r", "\n")
        pairs = [match.start() - index for index, match in enumerate(re.finditer("\r\n", text))]
    spans: list[tuple[int, int]] = []
    place = len(_BOM) if text.startswith(_BOM) else 0
    while (place := folded.find(old, place)) >= 0 and (every or len(spans) < _MOST_PLACES):
        behind = place + len(old)
        spans.append((place + bisect_left(pairs, place), behind + bisect_left(pairs, behind)))
        place = behind if every else place + 1
    return spans


def _line_end_of(text: str) -> str:
    return Counter(_LINE_END.findall(text) or ["\n"]).most_common(1)[0][0]


def _with_line_ends(new: str, replaced: str, own: str) -> str:
    """``new`` with the line ends of what it replaces, in order, then the file's own."""
    ends = chain(_LINE_END.findall(replaced), repeat(own))
    return new if "\r" in new else re.sub("\n", lambda _: next(ends), new)
