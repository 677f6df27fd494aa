"""Checks of JSON arguments against a JSON schema, with one code per kind of fault."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """What is wrong with an argument: a code of the call pipeline and its words."""

    code: str
    message: str


_TYPE, _VALUE = "invalid_argument_type", "invalid_argument_value"
_NUMBERS = (int, float)
_TYPES: dict[Any, Any] = {"string": str, "integer": int, "number": _NUMBERS, "boolean": bool}
_TYPES |= {"null": type(None), "array": list, "object": dict}
_EXACT = {str: "string", int: "integer", bool: "boolean"}
_RECORD = {"type", "properties", "required"}
_SAYING = {"type", "description", "default", "title"}  # Keywords that forbid nothing more.
# keyword: types it speaks about, whether a value keeps to it, its words
_LIMITS: dict[str, tuple[Any, Callable[[Any, Any], Any], str]] = {
    "minimum": (_NUMBERS, lambda value, limit: value >= limit, "be at least {}"),
    "maximum": (_NUMBERS, lambda value, limit: value <= limit, "be at most {}"),
    "exclusiveMinimum": (_NUMBERS, lambda value, limit: value > limit, "be above {}"),
    "exclusiveMaximum": (_NUMBERS, lambda value, limit: value < limit, "be below {}"),
    "minLength": (str, lambda value, limit: len(value) >= limit, "be at least {} characters long"),
    "maxLength": (str, lambda value, limit: len(value) <= limit, "be at most {} characters long"),
    "minItems": (list, lambda value, limit: len(value) >= limit, "be at least {} items long"),
    "maxItems": (list, lambda value, limit: len(value) <= limit, "be at most {} items long"),
    "pattern": (str, lambda value, limit: re.search(limit, value), "match {!r}"),
}


def check_value(value: Any, schema: Any, path: str = "") -> Fault | None:
    """The first fault of a JSON value, or None when it fits.

    ``path`` names the value in messages; "" is the argument object itself. Keywords
    outside the common subset are not judged. An object schema that lists its
    properties allows no others unless ``additionalProperties`` says so.
    """
    return next(_faults(value, schema, path), None)


def is_plain_fit(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether a value needs no further look: its parts are exactly of the types asked for.

    That is what nearly all arguments are. False says nothing.
    """
    if not isinstance(schema, dict) or not schema.keys() <= _RECORD:
        return False
    parts, needed = schema.get("properties", {}), schema.get("required", ())
    fits = schema.get("type") == "object" and all(name in value for name in needed)
    for name, item in value.items():
        part = parts.get(name, False)
        asked = part.get("type") if isinstance(part, dict) and part.keys() <= _SAYING else part
        fits = fits and asked == _EXACT.get(type(item))
    return fits


def _faults(value: Any, schema: Any, path: str) -> Iterator[Fault]:
    if not isinstance(schema, dict) or not schema:
        return
    place = _place(path)
    names = schema.get("type")
    if names and not _is_type(value, names):
        wanted = " or ".join(map(str, names)) if isinstance(names, list) else names
        yield Fault(_TYPE, f"{place} must be of type {wanted}, got {type(value).__name__}")
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is not None and not any(same_json(value, item) for item in allowed):
        listed = ", ".join(map(repr, allowed))
        yield Fault(_VALUE, f"{place} must be one of {listed}, got {reprlib.repr(value)}")
    if "anyOf" in schema:
        yield from _faults_of_any(value, schema["anyOf"], path)
    if isinstance(value, dict):
        yield from _faults_of_object(value, schema, path)
    if isinstance(value, list):
        for index, (item, rule) in enumerate(zip(value, _rules(value, schema))):
            yield from _faults(item, rule, f"{path}[{index}]")
    for keyword in filter(_LIMITS.get, schema):
        kinds, holds, words = _LIMITS[keyword]
        fits = isinstance(value, kinds) and not isinstance(value, bool)
        if fits and not holds(value, schema[keyword]):
            yield Fault(_VALUE, f"{place} must {words.format(schema[keyword])}")


def _place(path: str) -> str:
    return f"argument {path!r}" if path else "the arguments"


def _is_type(value: Any, name: Any) -> bool:
    if isinstance(name, list):
        return any(_is_type(value, each) for each in name)
    if isinstance(value, bool):
        return bool(name == "boolean")
    if name == "integer" and isinstance(value, float):
        return value.is_integer()  # JSON Schema's rule: 2.0 is an integer.
    return isinstance(value, _TYPES.get(name, object))


def _faults_of_any(value: Any, members: list[Any], path: str) -> Iterator[Fault]:
    faults = [check_value(value, member, path) for member in members]
    found = [fault for fault in faults if fault is not None]
    # A member of the right type says best what is wrong inside it.
    closer = [fault for fault in found if fault.code != _TYPE]
    if len(found) == len(faults):
        told = f"{_place(path)} fits none of: {'; '.join(fault.message for fault in found)}"
        yield closer[0] if len(closer) == 1 else Fault(_TYPE, told)


def _faults_of_object(value: dict[str, Any], schema: Any, path: str) -> Iterator[Fault]:
    properties = schema.get("properties", {})
    inside = f"{path}." if path else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield Fault("missing_required_argument", f"missing required argument {inside + name!r}")
    further = schema.get("additionalProperties", "properties" not in schema)
    for name, item in value.items():
        place = f"{inside}{name}"
        if name not in properties and further is False:
            known = ", ".join(properties) or "no arguments"
            yield Fault("unexpected_argument", f"unexpected argument {place!r}, expected {known}")
        yield from _faults(item, properties.get(name, further), place)


def _rules(value: list[Any], schema: dict[str, Any]) -> list[Any]:
    return [*schema.get("prefixItems", []), *[schema.get("items")] * len(value)]


def same_json(left: Any, right: Any) -> bool:
    """Equality as JSON sees it: ``true`` is not 1, but 1.0 is."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        same_keys = left.keys() == right.keys()
        return same_keys and all(same_json(left[key], right[key]) for key in left)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def whole_numbers(value: Any, schema: Any) -> Any:
    """The value, in whose copy 2.0 is an int where the schema has an integer."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, float) and value.is_integer() and schema.get("type") == "integer":
        return int(value)
    if isinstance(value, list):
        return [whole_numbers(item, rule) for item, rule in zip(value, _rules(value, schema))]
    if isinstance(value, dict):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        return {k: whole_numbers(v, properties.get(k, rest)) for k, v in value.items()}
    return value
