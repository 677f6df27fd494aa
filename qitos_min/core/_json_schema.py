"""Checks of JSON arguments against a JSON schema, with one code per kind of fault."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

from ._contract import detach_json as detach_json


class Fault(NamedTuple):
    """What is wrong with an argument: a code of the call pipeline and its words."""

    code: str
    message: str


_NUMBERS = (int, float)
_TYPES: dict[Any, tuple[type, ...]] = {
    **{"string": (str,), "integer": (int,), "number": _NUMBERS, "boolean": (bool,)},
    **{"null": (type(None),), "array": (list,), "object": (dict,)},
}
# keyword: types it speaks about, whether a value keeps to it, its words
_LIMITS: dict[str, tuple[Any, Callable[[Any, Any], bool], str]] = {
    "minimum": (_NUMBERS, lambda value, limit: value >= limit, "at least {}"),
    "maximum": (_NUMBERS, lambda value, limit: value <= limit, "at most {}"),
    "exclusiveMinimum": (_NUMBERS, lambda value, limit: value > limit, "above {}"),
    "exclusiveMaximum": (_NUMBERS, lambda value, limit: value < limit, "below {}"),
    "minLength": (str, lambda value, limit: len(value) >= limit, "at least {} characters long"),
    "maxLength": (str, lambda value, limit: len(value) <= limit, "at most {} characters long"),
    "minItems": (list, lambda value, limit: len(value) >= limit, "at least {} items long"),
    "maxItems": (list, lambda value, limit: len(value) <= limit, "at most {} items long"),
}


def check_value(value: Any, schema: Any, path: str = "") -> Fault | None:
    """The first fault of a JSON value, or None when it fits.

    ``path`` names the value in messages; "" is the argument object itself. Keywords
    outside the common subset are not judged. An object schema that lists its
    properties allows no others unless ``additionalProperties`` says so.
    """
    if not isinstance(schema, dict) or not schema:
        return None
    fault = _check_type(value, schema, path) if schema.get("type") else None
    if fault is None and ("enum" in schema or "const" in schema):
        fault = _check_choice(value, schema, path)
    if fault is None and "anyOf" in schema:
        fault = _check_any(value, schema["anyOf"], path)
    if fault is None and isinstance(value, dict):
        fault = _check_object(value, schema, path)
    elif fault is None and isinstance(value, list):
        fault = _check_array(value, schema, path)
    return fault or _check_limits(value, schema, path)


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
    if isinstance(value, float):
        return int(value) if schema.get("type") == "integer" and value.is_integer() else value
    if isinstance(value, list):
        rules = [*schema.get("prefixItems", []), *[schema.get("items")] * len(value)]
        return [whole_numbers(item, rule) for item, rule in zip(value, rules)]
    if isinstance(value, dict):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        return {k: whole_numbers(v, properties.get(k, rest)) for k, v in value.items()}
    return value


def _check_type(value: Any, schema: dict[str, Any], path: str) -> Fault | None:
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    for name in names:
        if _is_type(value, name):
            return None
    wanted = " or ".join(map(str, names))
    text = f"{_place(path)} must be of type {wanted}, got {type(value).__name__}"
    return Fault("invalid_argument_type", text)


def _is_type(value: Any, name: Any) -> bool:
    if isinstance(value, bool):
        return bool(name == "boolean")
    if name == "integer" and isinstance(value, float):
        return value.is_integer()  # JSON Schema's rule: 2.0 is an integer.
    return isinstance(value, _TYPES.get(name, object))


def _check_choice(value: Any, schema: dict[str, Any], path: str) -> Fault | None:
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is None or any(same_json(value, item) for item in allowed):
        return None
    listed = ", ".join(map(repr, allowed))
    return _wrong(path, f"must be one of {listed}, got {reprlib.repr(value)}")


def _check_any(value: Any, members: list[Any], path: str) -> Fault | None:
    faults = [check_value(value, member, path) for member in members]
    found = [fault for fault in faults if fault is not None]
    if len(found) < len(faults):
        return None
    # A member of the right type says best what is wrong inside it.
    closer = [fault for fault in found if fault.code != "invalid_argument_type"]
    if len(closer) == 1:
        return closer[0]
    text = f"{_place(path)} fits none of: " + "; ".join(fault.message for fault in found)
    return Fault("invalid_argument_type", text)


def _check_object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Fault | None:
    properties = schema.get("properties", {})
    inside = f"{path}." if path else ""
    for name in schema.get("required", ()):
        if name not in value:
            return Fault(
                "missing_required_argument", f"missing required argument {inside + name!r}"
            )
    further = schema.get("additionalProperties", "properties" not in schema)
    for name, item in value.items():
        if name not in properties and further is False:
            known = ", ".join(properties) or "no arguments"
            text = f"unexpected argument {inside + name!r}, expected {known}"
            return Fault("unexpected_argument", text)
        fault = check_value(item, properties.get(name, further), inside + name)
        if fault is not None:
            return fault
    return None


def _check_array(value: list[Any], schema: dict[str, Any], path: str) -> Fault | None:
    first = schema.get("prefixItems", [])
    for position, item in enumerate(value):
        rule = first[position] if position < len(first) else schema.get("items")
        fault = check_value(item, rule, f"{path}[{position}]")
        if fault is not None:
            return fault
        if schema.get("uniqueItems") and any(same_json(item, o) for o in value[:position]):
            return _wrong(path, "must not hold the same item twice")
    return None


def _check_limits(value: Any, schema: dict[str, Any], path: str) -> Fault | None:
    for keyword in schema:
        if keyword not in _LIMITS:
            continue
        kinds, holds, words = _LIMITS[keyword]
        limit, fits = schema[keyword], isinstance(value, kinds) and not isinstance(value, bool)
        if fits and not holds(value, limit):
            return _wrong(path, f"must be {words.format(limit)}")
    pattern = schema.get("pattern")
    if pattern and isinstance(value, str) and not re.search(pattern, value):
        return _wrong(path, f"must match {pattern!r}")
    return None


def _wrong(path: str, text: str) -> Fault:
    return Fault("invalid_argument_value", f"{_place(path)} {text}")


def _place(path: str) -> str:
    return f"argument {path!r}" if path else "the arguments"
