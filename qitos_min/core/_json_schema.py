"""Checks of JSON arguments against a JSON schema, with one code per kind of fault."""

from __future__ import annotations

import operator
import re
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

from ._contract import detach_json as detach_json


class Fault(NamedTuple):
    """What is wrong with an argument: a code of the call pipeline and its words."""

    code: str
    message: str


_TYPES = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
# keyword: types it speaks about, what is measured, the comparison, its words
_LIMITS: dict[str, tuple[Any, Callable[..., Any], Callable[..., Any], str]] = {
    "minimum": ((int, float), operator.pos, operator.ge, "at least {}"),
    "maximum": ((int, float), operator.pos, operator.le, "at most {}"),
    "exclusiveMinimum": ((int, float), operator.pos, operator.gt, "above {}"),
    "exclusiveMaximum": ((int, float), operator.pos, operator.lt, "below {}"),
    "minLength": ((str,), len, operator.ge, "at least {} characters long"),
    "maxLength": ((str,), len, operator.le, "at most {} characters long"),
    "minItems": ((list,), len, operator.ge, "at least {} items long"),
    "maxItems": ((list,), len, operator.le, "at most {} items long"),
}


def check_value(value: Any, schema: Any, path: str = "") -> Fault | None:
    """The first fault of a JSON value, or None when it fits.

    ``path`` names the value in messages; "" is the argument object itself. Keywords
    outside the common subset are not judged. An object schema that lists its
    properties allows no others unless ``additionalProperties`` says so.
    """
    if not isinstance(schema, dict) or not schema:
        return None
    fault = _check_type(value, schema, path) or _check_choice(value, schema, path)
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
        kinds = schema.get("type")
        return int(value) if kinds == "integer" and value.is_integer() else value
    if isinstance(value, list):
        first, rest = schema.get("prefixItems", []), schema.get("items")
        rules = [*first, *[rest] * len(value)]
        return [whole_numbers(item, rule) for item, rule in zip(value, rules)]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        rest = schema.get("additionalProperties")
        return {k: whole_numbers(v, properties.get(k, rest)) for k, v in value.items()}
    return value


def _check_type(value: Any, schema: dict[str, Any], path: str) -> Fault | None:
    names = schema.get("type", [])
    names = names if isinstance(names, list) else [names]
    if not names or any(_is_type(value, name) for name in names):
        return None
    wanted = " or ".join(map(str, names))
    text = f"{_place(path)} must be of type {wanted}, got {type(value).__name__}"
    return Fault("invalid_argument_type", text)


def _is_type(value: Any, name: Any) -> bool:
    if isinstance(value, bool):
        return bool(name == "boolean")
    if name == "integer" and isinstance(value, float):
        return value.is_integer()  # JSON Schema's rule: 2.0 is an integer.
    return name not in _TYPES or isinstance(value, _TYPES[name])


def _check_choice(value: Any, schema: dict[str, Any], path: str) -> Fault | None:
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is None or any(same_json(value, item) for item in allowed):
        return None
    listed = ", ".join(map(repr, allowed))
    text = f"{_place(path)} must be one of {listed}, got {reprlib.repr(value)}"
    return Fault("invalid_argument_value", text)


def _check_any(value: Any, members: list[Any], path: str) -> Fault | None:
    faults = []
    for member in members:
        fault = check_value(value, member, path)
        if fault is None:
            return None
        faults.append(fault)
    # A member of the right type says best what is wrong inside it.
    closer = [f for f in faults if f.code != "invalid_argument_type"]
    if len(closer) == 1:
        return closer[0]
    text = f"{_place(path)} fits none of: " + "; ".join(f.message for f in faults)
    return Fault("invalid_argument_type", text)


def _check_object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Fault | None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            text = f"missing required argument {_join(path, name)!r}"
            return Fault("missing_required_argument", text)
    further = schema.get("additionalProperties", "properties" not in schema)
    for name, item in value.items():
        if name not in properties and further is False:
            known = ", ".join(properties) or "no arguments"
            text = f"unexpected argument {_join(path, name)!r}, expected {known}"
            return Fault("unexpected_argument", text)
        fault = check_value(item, properties.get(name, further), _join(path, name))
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
    if schema.get("uniqueItems") is True:
        for position, item in enumerate(value):
            if any(same_json(item, other) for other in value[:position]):
                text = f"{_place(path)} must not hold the same item twice"
                return Fault("invalid_argument_value", text)
    return None


def _check_limits(value: Any, schema: dict[str, Any], path: str) -> Fault | None:
    for keyword in _LIMITS.keys() & schema.keys():
        kinds, measure, holds, words = _LIMITS[keyword]
        if not isinstance(value, kinds) or isinstance(value, bool):
            continue
        if not holds(measure(value), schema[keyword]):
            text = f"{_place(path)} must be {words.format(schema[keyword])}"
            return Fault("invalid_argument_value", text)
    pattern = schema.get("pattern")
    if pattern and isinstance(value, str) and not re.search(pattern, value):
        text = f"{_place(path)} must match {pattern!r}"
        return Fault("invalid_argument_value", text)
    return None


def _place(path: str) -> str:
    return f"argument {path!r}" if path else "the arguments"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
