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

_ARGUMENTS = {"keyword args", "keyword arguments", "other parameters"}
_ARGUMENTS |= set("args arguments parameters params".split())
_SECTIONS = _ARGUMENTS | {"see also", "warning", "warnings", "yield", "yields"}
_SECTIONS |= set("attributes example examples note notes raises references return returns".split())
_FIELD = re.compile(r":\w+(?:\s+[^:]*)?:(?:\s|$)")
_ENTRIES = {  # The names of parameters, and what a line says of them.
    "google": re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(.*)"),
    "numpy": re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$()"),
    "field": re.compile(r":(?:param|parameter|arg)\s(?:[^:]*\s)?\*{0,2}(\w+):(?:\s+|$)(.*)"),
}


def documented(func: Any) -> Any:
    """The function that carries the annotations and the docstring of a callable."""
    while isinstance(func, functools.partial):
        func = func.func
    return func if inspect.isroutine(func) else type(func).__call__


def parameters(func: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters but a method's own ``self``; ``ValueError`` if they cannot be read."""
    found = list(inspect.signature(func).parameters.values())
    return found[1:] if found and found[0].name == "self" else found


def defaults_of(found: list[inspect.Parameter]) -> dict[str, Any]:
    """The default of each parameter but ``*args`` and ``**kwargs``."""
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {item.name: item.default for item in found if item.kind not in stars}


def resolved_hints(owner: Any) -> dict[str, Any]:
    """The annotations of a function or class; what cannot be resolved is ``Any``."""
    if (found := _evaluated(owner)) is not None:
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
        elif field_mark(annotation) in ("Required", "NotRequired", "Final"):
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, dataclasses.InitVar):
            annotation = annotation.type
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        else:
            return annotation, note


def docstring_parts(text: str | None) -> tuple[str, dict[str, str]]:
    """The description, and what Google, NumPy or ``:param`` entries say of each parameter."""
    lines = inspect.cleandoc(text or "").split("\n")
    notes: dict[str, list[str]] = {}
    style, base, end = "", None, len(lines)
    names: list[str] = []  # The parameters that the next line may speak of.
    for place, line in enumerate(lines):
        line, indent = line.strip(), len(line) - len(line.lstrip())
        title, found = _section(line, "".join(lines[place + 1 : place + 2]).strip())
        if found:
            end = min(end, place)
            style = found if title in _ARGUMENTS or found == "field" else ""
            base, names = None if found == "google" else indent, []
        if not style or not line or (found and found != "field") or not line.strip("-="):
            continue
        base = indent if base is None else base
        style = style if indent >= base else ""
        entry = _ENTRIES[style].match(line) if style and indent == base else None
        if indent <= base:
            names = re.findall(r"\w+", entry[1]) if entry else []
        line = entry[2] if entry else line
        for name in names:
            notes.setdefault(name, []).append(line)
    told = {name: " ".join(filter(None, parts)) for name, parts in notes.items()}
    return "\n".join(lines[:end]).strip(), {name: note for name, note in told.items() if note}


def parse_docstring(text: str | None) -> dict[str, str]:
    """The description of each parameter that a docstring names."""
    return docstring_parts(text)[1]


def _section(line: str, below: str) -> tuple[str, str]:
    """Title and style of the section that starts at a line; two empty texts if none."""
    title = line.rstrip(":").lower()
    if title in _SECTIONS and below and not below.strip("-="):
        return title, "numpy"
    if title in _SECTIONS and line.endswith(":"):
        return title, "google"
    return ("", "field") if _FIELD.match(line) else ("", "")
