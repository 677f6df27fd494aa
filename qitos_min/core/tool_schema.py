"""From a Python signature to a JSON schema, and from JSON arguments to its values."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ._json_schema import ANY, Fault, Form, Misfit, record_schema
from ._typed import defaults_of, form_of, parameters, resolved_hints

_EMPTY = inspect.Parameter.empty
# Parameters that the runtime fills, and whether what it passes is a mapping.
_INJECTED = dict(runtime_context=True, ops=True, env=False, file_ops=False, process_ops=False)
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


def type_to_json_schema(annotation: Any) -> dict[str, Any]:
    """The JSON schema of the values of a type; ``{}`` when the type says nothing."""
    return form_of(annotation).schema or {}


@dataclass(frozen=True)
class CallSignature:
    """What a function takes, split by who fills it."""

    schema: dict[str, Any]  # JSON schema of the arguments that a caller fills.
    injected: dict[str, Any]  # Defaults of the parameters that the runtime fills.
    positional: dict[str, Any]  # Defaults of those that cannot be passed by name, in order.
    forms: dict[str, Form]  # How the arguments are read, by name.

    @classmethod
    def of(cls, func: Callable[..., Any], tool: str = "", described: bool = False) -> CallSignature:
        """Read the signature of a callable; ``described`` means that the tool has its own schema.

        Raises ``ValueError`` if there is none, or if it needs a function, which none can send.
        """
        hints, found = resolved_hints(documented(func)), parameters(func)
        forms = {item.name: form_of(hints.get(item.name, Any)) for item in found}
        further = next((forms[p.name] for p in found if p.kind is p.VAR_KEYWORD), None)
        positional = {p.name: p.default for p in found if p.kind is p.POSITIONAL_ONLY}
        taken = defaults_of(found)
        injected = {n: d for n, d in taken.items() if _is_injected(n, d, forms[n].schema or {})}
        forms = {name: forms[name] for name in taken if name not in injected}
        for name, form in forms.items():
            if form.schema is None and taken[name] is _EMPTY and not described:
                tool = tool or getattr(func, "__name__", type(func).__name__)
                what = f"tool {tool!r} cannot be called by a model: its parameter {name!r} takes"
                why = "which JSON cannot hold; give it a default, then it is left out of the schema"
                raise ValueError(f"{what} a function, {why}")
        schema = record_schema(forms, taken, parse_docstring(documented(func).__doc__))
        if further is not None:
            schema["additionalProperties"] = further.schema or True
        return cls(schema, injected, positional, forms)

    def misfit(self, args: Mapping[str, Any]) -> Fault | None:
        """The first argument that its type cannot take."""
        for name, value in args.items():
            try:
                self.forms.get(name, ANY).read(value)
            except Misfit as fault:
                return Fault("invalid_argument_value", f"argument {name + fault.place!r} {fault}")
        return None

    def bind(self, args: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[list[Any], Any]:
        """The positional and named values of one call; what no type can take is passed as it is."""
        values = dict(args)
        for name, value in args.items():
            try:
                values[name] = self.forms.get(name, ANY).read(value)
            except Misfit:
                continue
        for name, default in self.injected.items():
            env: Any = context.get("env")
            offered = context.get("ops") or {}
            known = {**context, "env": env, "ops": offered, "runtime_context": dict(context)}
            value, group = known.get(name), name.removesuffix("_ops")
            if name not in known:
                offers = group in offered or env is None
                value = offered.get(group) if offers else env.get_ops(group)
            if value is not None or default is _EMPTY:
                values[name] = value
        given = {n: d for n, d in self.positional.items() if n in values or d is not _EMPTY}
        return [values.pop(name, default) for name, default in given.items()], values


def function_schema(func: Callable[..., Any]) -> dict[str, Any]:
    """What a caller of ``func`` fills: JSON schemas by name as ``parameters``, ``required``, and
    ``descriptions``; ``ValueError`` where there is no signature, or a function is needed."""
    schema = CallSignature.of(func).schema
    parts = schema["properties"]
    notes = {name: part["description"] for name, part in parts.items() if "description" in part}
    return {"parameters": parts, "required": schema["required"], "descriptions": notes}


def _is_injected(name: str, default: Any, schema: dict[str, Any]) -> bool:
    """Whether the runtime fills a parameter: by name, unless its type is plain data."""
    if name not in _INJECTED or default not in (_EMPTY, None, {}):
        return False
    members = [m for m in schema.get("anyOf", [schema]) if m != {"type": "null"}]
    if _INJECTED[name] and len(members) == 1 and members[0].get("type") == "object":
        return "properties" not in members[0]
    return not schema


def documented(func: Any) -> Any:
    """The function that carries the annotations and the docstring of a callable."""
    while isinstance(func, functools.partial):
        func = func.func
    return func if inspect.isroutine(func) else type(func).__call__


def docstring_parts(text: str | None) -> tuple[str, dict[str, str]]:
    """The description, and what Google, NumPy or ``:param`` entries say of each parameter."""
    lines = inspect.cleandoc(text or "").split("\n")
    notes: dict[str, list[str]] = {}
    style, base, end = "", None, len(lines)
    names: list[str] = []  # The parameters that the next line may speak of.
    for place, line in enumerate(lines):
        line, indent = line.strip(), len(line) - len(line.lstrip())
        title, below = line.rstrip(":").lower(), "".join(lines[place + 1 : place + 2]).strip()
        found = "field" if _FIELD.match(line) else ""
        if title in _SECTIONS and below and not below.strip("-="):
            found = "numpy"
        elif title in _SECTIONS and line.endswith(":"):
            found = "google"
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
