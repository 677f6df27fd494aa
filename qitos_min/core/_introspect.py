"""What a Python callable says about itself: parameters, types and documentation."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable
from typing import Any

_ARGUMENTS = frozenset(
    "args arguments parameters params".split()
    + ["keyword args", "keyword arguments", "other parameters"]
)
_SECTIONS = _ARGUMENTS | frozenset(
    "attributes example examples note notes raises references return returns warning "
    "warnings yield yields".split() + ["see also"]
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(.*)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:(?:\s+|$)(.*)")


def documented(func: Any) -> Any:
    """The function that carries the annotations and the docstring of a callable."""
    while isinstance(func, functools.partial):
        func = func.func
    return func if inspect.isroutine(func) else type(func).__call__


def parameters(func: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a callable without a method's own ``self``.

    Raises ``ValueError`` for a callable whose signature cannot be read.
    """
    found = list(inspect.signature(func).parameters.values())
    return found[1:] if found and found[0].name == "self" else found


def resolved_hints(owner: Any) -> dict[str, Any]:
    """The annotations of a function or class; what cannot be resolved is ``Any``."""
    found = _evaluated(owner)
    if found is not None:
        return found
    hints: dict[str, Any] = {}
    for scope in reversed(getattr(owner, "__mro__", (owner,))):
        module = sys.modules.get(getattr(scope, "__module__", None) or "")
        names = getattr(inspect.unwrap(scope), "__globals__", None) or vars(module or typing)
        for name, annotation in inspect.get_annotations(scope).items():
            if isinstance(annotation, str):  # Python 3.10 cannot evaluate it.
                annotation = re.sub(r"^(\w+\.)?InitVar\[(.*)\]$", r"\2", annotation)
            alone = type("alone", (), {"__annotations__": {name: annotation}})
            hints[name] = (_evaluated(alone, names) or {}).get(name, Any)
    return hints


def _evaluated(owner: Any, names: dict[str, Any] | None = None) -> dict[str, Any] | None:
    try:
        return typing.get_type_hints(owner, names, include_extras=True)
    except Exception:  # The text of an annotation is foreign code.
        return None


def field_mark(annotation: Any) -> str:
    """The name of what marks a field, such as ``NotRequired``."""
    # By name, because typing gained these marks after 3.10 and a backport has them.
    return str(typing.get_origin(annotation)).rpartition(".")[2]


def unwrapped(annotation: Any) -> tuple[Any, str]:
    """Take off what carries no type of its own; the text of ``Annotated`` is kept."""
    note = ""
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            texts = [text for text in annotation.__metadata__ if isinstance(text, str)]
            note = note or (texts[0] if texts else "")
            annotation = annotation.__origin__
        elif field_mark(annotation) in ("Required", "NotRequired", "ReadOnly", "Final"):
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, dataclasses.InitVar):
            annotation = annotation.type
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        else:
            return annotation, note


def docstring_parts(text: str | None) -> tuple[str, dict[str, str]]:
    """The description and the text of each parameter.

    Reads Google and NumPy sections and ``:param name:`` fields; a text of several
    lines becomes one line.
    """
    lines = inspect.cleandoc(text or "").split("\n")
    notes: dict[str, list[str]] = {}
    style, outer, base, end = "", 0, None, len(lines)
    current: list[list[str]] = []  # The notes that the next line belongs to.
    for place, line in enumerate(lines):
        line, indent = line.strip(), len(line) - len(line.lstrip())
        header, name = _section(line, lines[place + 1].strip() if lines[place + 1 :] else "")
        if header:
            end = min(end, place)
            style = header if header == "field" or name in _ARGUMENTS else ""
            # Below a docstring's first line the entries are as far out as its header.
            outer, base, current = indent if place else -1, None, []
            line = line if header == "field" else ""
        if not line:
            style = "" if style == "field" else style
        elif style == "google":
            base = max(outer + 1, indent) if base is None else base
            style = style if indent >= base else ""
        if style and line:
            names, line = _entry(style, line, indent <= (outer if base is None else base))
            if names is not None:
                current = [notes.setdefault(name, []) for name in names]
            for note in current:
                note.append(line)
    told = {name: " ".join(filter(None, parts)) for name, parts in notes.items()}
    return "\n".join(lines[:end]).strip(), {name: note for name, note in told.items() if note}


def parse_docstring(text: str | None) -> dict[str, str]:
    """The description of each parameter that a docstring names."""
    return docstring_parts(text)[1]


def _section(line: str, below: str) -> tuple[str, str]:
    """Style and name of the section that starts at a line; two empty texts if none."""
    title = line.rstrip(":").lower()
    if title in _SECTIONS and below and not below.strip("-="):
        return "numpy", title
    if title in _SECTIONS and line.endswith(":"):
        return "google", title
    return ("field", "") if _FIELD.match(line) else ("", "")


def _entry(style: str, line: str, outer: bool) -> tuple[list[str] | None, str]:
    """The parameters that a line begins to speak of, if any, and what it says."""
    field = _FIELD.match(line) if style == "field" else None
    if field is not None:
        known = field[2] and field[1] in ("param", "parameter", "arg")
        return [field[2].split()[-1].lstrip("*")] if known else [], field[3]
    if style == "field" or not outer:
        return None, line
    entry = (_GOOGLE_ENTRY if style == "google" else _NUMPY_ENTRY).match(line)
    if style == "google":
        return ([entry[1]], entry[2]) if entry else ([], "")
    if entry is None:
        return None, line.strip("-=") and line
    return [name.strip().lstrip("*") for name in entry[1].split(",")], ""
