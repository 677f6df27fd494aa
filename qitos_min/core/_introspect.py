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

from ._foreign import outcome

__all__ = [
    "documented",
    "field_mark",
    "is_alias",
    "parameters",
    "parse_docstring",
    "resolved_hints",
    "unwrapped",
]

_ARGUMENTS = (
    "args",
    "arguments",
    "keyword args",
    "keyword arguments",
    "other parameters",
    "parameters",
    "params",
)
_SECTIONS = (
    *_ARGUMENTS,
    "attributes",
    "example",
    "examples",
    "note",
    "notes",
    "raises",
    "references",
    "return",
    "returns",
    "see also",
    "warning",
    "warnings",
    "yield",
    "yields",
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
    if sys.version_info >= (3, 14):
        # As texts, because one unknown name fails the evaluation of all of them.
        import annotationlib

        texts = annotationlib.Format.STRING
        signature = inspect.signature(func, annotation_format=texts)
    else:
        signature = inspect.signature(func)
    found = list(signature.parameters.values())
    return found[1:] if found and found[0].name == "self" else found


def resolved_hints(owner: Any) -> dict[str, Any]:
    """The annotations of a function or class; what cannot be resolved is ``Any``."""
    evaluated = _evaluated(owner)
    if evaluated is not None:
        return evaluated
    hints: dict[str, Any] = {}
    for scope in reversed(getattr(owner, "__mro__", (owner,))):
        module = sys.modules.get(getattr(scope, "__module__", None) or "")
        names = getattr(inspect.unwrap(scope), "__globals__", None)
        for name, annotation in _annotations(scope).items():
            if isinstance(annotation, str):  # Python 3.10 cannot evaluate it.
                annotation = re.sub(r"^(\w+\.)?InitVar\[(.*)\]$", r"\2", annotation)

            def stand_in() -> None: ...

            stand_in.__annotations__ = {name: annotation}
            found = _evaluated(stand_in, names or getattr(module, "__dict__", {}))
            hints[name] = (found or {}).get(name, Any)
    return hints


def _evaluated(owner: Any, names: dict[str, Any] | None = None) -> dict[str, Any] | None:
    # The text of an annotation is foreign code.
    hints: dict[str, Any] | None
    hints, _ = outcome(lambda: typing.get_type_hints(owner, names, include_extras=True))
    return hints


def _annotations(scope: Any) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        texts = annotationlib.Format.STRING
        return annotationlib.get_annotations(scope, format=texts)
    # A class without annotations of its own would answer with those of its base.
    if isinstance(scope, type):
        return dict(vars(scope).get("__annotations__", {}))
    return dict(getattr(scope, "__annotations__", {}))


def is_alias(annotation: Any) -> bool:
    """Whether it is a ``type X = ...`` of Python 3.12."""
    return type(annotation).__name__ == "TypeAliasType"


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
        elif is_alias(annotation):
            value, error = outcome(getattr, annotation, "__value__")
            annotation = Any if error else value
        else:
            return annotation, note


def parse_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description and the text of each parameter.

    Reads Google and NumPy sections and ``:param name:`` fields; a text of several
    lines becomes one line.
    """
    lines = inspect.cleandoc(text or "").split("\n")
    notes: dict[str, list[str]] = {}
    described = [place for place in range(len(lines)) if _section(lines, place)[0]]
    style, outer, base = "", 0, None
    current: list[list[str]] = []  # The notes that the next line belongs to.
    for place, line in enumerate(lines):
        line, indent = line.strip(), len(line) - len(line.lstrip())
        header, name = _section(lines, place)
        if header:
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
    joined = {name: " ".join(filter(None, parts)) for name, parts in notes.items()}
    return (
        "\n".join(lines[: min(described, default=len(lines))]).strip(),
        {name: note for name, note in joined.items() if note},
    )


def _section(lines: list[str], place: int) -> tuple[str, str]:
    """Style and name of the section that starts at a line; two empty texts if none."""
    line = lines[place].strip()
    below = lines[place + 1].strip() if place + 1 < len(lines) else ""
    if line.lower() in _SECTIONS and below and not below.strip("-="):
        return "numpy", line.lower()
    if line.endswith(":") and line[:-1].lower() in _SECTIONS:
        return "google", line[:-1].lower()
    return ("field", "") if _FIELD.match(line) else ("", "")


def _entry(style: str, line: str, outer: bool) -> tuple[list[str] | None, str]:
    """The parameters that a line begins to speak of, if any, and what it says."""
    if style == "field":
        field = _FIELD.match(line)
        if field is None:
            return None, line
        known = field[2] and field[1] in ("param", "parameter", "arg")
        return [field[2].split()[-1].lstrip("*")] if known else [], field[3]
    if not outer:
        return None, line
    if style == "google":
        entry = _GOOGLE_ENTRY.match(line)
        return ([entry[1]], entry[2]) if entry else ([], "")
    if not line.strip("-="):
        return None, ""
    entry = _NUMPY_ENTRY.match(line)
    if entry is None:
        return None, line
    return [name.strip().lstrip("*") for name in entry[1].split(",")], ""
