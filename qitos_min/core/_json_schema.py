"""JSON schemas: checks of values, and one table of the kinds of values that have one."""

from __future__ import annotations

import base64
import os
import re
import reprlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from ._contract import detach_json
from ._json import to_json_value

Schema = dict[str, Any]


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
    """The first fault of a JSON value, which messages call by its ``path``, or None.

    Of an object that lists its properties others are faults without ``additionalProperties``.
    """
    return next(_faults(value, schema, path), None)


def is_plain_fit(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether the parts are exactly of the types asked for, as nearly all; False says nothing."""
    if not isinstance(schema, dict) or not schema.keys() <= _RECORD:
        return False
    parts, needed = schema.get("properties", {}), schema.get("required", ())
    fits = schema.get("type") == "object" and value.keys() >= set(needed)
    for name, item in value.items():
        part = parts.get(name, False)
        asked = part.get("type") if isinstance(part, dict) and part.keys() <= _SAYING else part
        fits = fits and asked == _EXACT.get(type(item))
    return fits


def _faults(value: Any, schema: Any, path: str) -> Iterator[Fault]:
    if not isinstance(schema, dict) or not schema:
        return
    place = f"argument {path!r}" if path else "the arguments"
    names = schema.get("type")
    if names and not _is_type(value, names):
        wanted = " or ".join(map(str, names)) if isinstance(names, list) else names
        yield Fault(_TYPE, f"{place} must be of type {wanted}, got {type(value).__name__}")
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is not None and not any(same_json(value, item) for item in allowed):
        listed = ", ".join(map(repr, allowed))
        yield Fault(_VALUE, f"{place} must be one of {listed}, got {reprlib.repr(value)}")
    if "anyOf" in schema:
        found = [check_value(value, member, path) for member in schema["anyOf"]]
        if all(found):
            # A member of the right type says best what is wrong inside it.
            closer = [fault for fault in found if fault and fault.code != _TYPE]
            told = "; ".join(fault.message for fault in found if fault)
            yield closer[0] if len(closer) == 1 else Fault(_TYPE, f"{place} fits none of: {told}")
    if isinstance(value, dict):
        yield from _faults_of_object(value, schema, path)
    if isinstance(value, list):
        rules = [*schema.get("prefixItems", []), *[schema.get("items")] * len(value)]
        for index, (item, rule) in enumerate(zip(value, rules)):
            yield from _faults(item, rule, f"{path}[{index}]")
    for keyword in filter(_LIMITS.get, schema):
        kinds, holds, words = _LIMITS[keyword]
        fits = isinstance(value, kinds) and not isinstance(value, bool)
        if fits and not holds(value, schema[keyword]):
            yield Fault(_VALUE, f"{place} must {words.format(schema[keyword])}")


def _is_type(value: Any, name: Any) -> bool:
    if isinstance(name, list):
        return any(_is_type(value, each) for each in name)
    if isinstance(value, bool):
        return bool(name == "boolean")
    if name == "integer" and isinstance(value, float):
        return value.is_integer()  # JSON Schema's rule: 2.0 is an integer.
    return isinstance(value, _TYPES.get(name, object))


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


def same_json(left: Any, right: Any) -> bool:
    """Equality as JSON sees it: ``true`` is not 1 (but within a list it is), 1.0 is."""
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


class Misfit(ValueError):
    """A value that a type cannot take; the text goes on after the value's name."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text)
        self.place = place  # Where it is below the value that was read, such as ``.notes[0]``.


@dataclass(frozen=True)
class Form:
    schema: Schema | None  # None for a type that JSON cannot say, a function's.
    read: Callable[[Any], Any]
    """The typed value of a JSON value, or ``Misfit``. None and what is of the type
    already stay, for a state may hold None whatever its annotation says."""


ANY = Form({}, lambda value: value)
NULL = Form({"type": "null"}, ANY.read)


def misfit(expected: str, value: Any) -> Misfit:
    plain = value is None or isinstance(value, (str, int, float))
    got = reprlib.repr(value) if plain else type(value).__name__
    return Misfit(f"must be {expected}, got {got}")


def scalar(kind: Any, what: str, schema: Schema, make: Callable[[Any], Any], *given: type) -> Form:
    """The form of a kind that is made of JSON values of the types in ``given``."""

    def read(value: Any) -> Any:
        flag = isinstance(value, bool) and kind is not bool
        if value is None or (isinstance(value, kind) and not flag):
            return value
        if isinstance(value, given) and not flag:
            with suppress(ValueError, ArithmeticError, TypeError, AttributeError, LookupError):
                return make(value)
        raise misfit(what, value)

    return Form(schema, read)


def choice(options: tuple[Any, ...]) -> Form:
    """The form of the members of an Enum or the values of a ``Literal``."""
    words = [enum_value(option) for option in options]

    def read(value: Any) -> Any:
        for option, word in zip(options, words):
            if option is value or same_json(word, value) or same_json(to_json_value(option), value):
                return option
        if value is None:
            return value
        raise misfit(f"one of {', '.join(map(repr, words))}", value)

    kinds = list(dict.fromkeys(SCALARS[type(word)].schema["type"] for word in words))
    distinct = [w for i, w in enumerate(words) if not any(same_json(w, v) for v in words[:i])]
    kind = kinds[0] if len(kinds) == 1 else kinds
    return Form({"type": kind, "enum": distinct} if words else {}, read)


def enum_value(member: Any) -> Any:
    """What stands for a member in JSON: its value, or its name if JSON has no such."""
    value = member.value if isinstance(member, Enum) else member
    if value is None or isinstance(value, (str, int, float)):
        with suppress(ValueError):  # NaN, say
            return detach_json(value)
    return getattr(member, "name", str(member))


def union_schema(members: list[Schema]) -> Schema:
    """The schema of what fits one of several; ``{}`` if there is none to choose from."""
    distinct = [m for i, m in enumerate(members) if m not in members[:i]]
    if {} in members or len(distinct) < 2:
        return distinct[0] if len(distinct) == 1 else {}
    first, *others = [member for member in distinct if member != NULL.schema]
    if not others and "enum" in first:
        return {**first, **(choice((*first["enum"], None)).schema or {})}
    if others or "description" not in first:
        return {"anyOf": distinct}
    # The text of ``Optional[Annotated[X, "text"]]`` is about the whole.
    bare = {key: value for key, value in first.items() if key != "description"}
    return {"anyOf": [bare, NULL.schema], "description": first["description"]}


def record_schema(forms: dict[str, Form], defaults: dict[str, Any], told: dict[str, str]) -> Schema:
    """The schema of an object of the parts in ``defaults`` that JSON can say."""
    parts, required = {}, []
    for name, form in forms.items():
        schema, default = form.schema, defaults.get(name)
        if name not in defaults or schema is None:
            continue
        if default is Parameter.empty:
            required.append(name)
        elif default is not ...:
            if default is None and check_value(None, schema) is not None:
                schema = union_schema([schema, {"type": "null"}])
            with suppress(ValueError):  # What JSON cannot hold is left out, never replaced.
                value = detach_json(enum_value(default) if isinstance(default, Enum) else default)
                if check_value(value, schema) is None:
                    schema = {**schema, "default": value}
        parts[name] = {**({"description": told[name]} if name in told else {}), **schema}
    return {"type": "object", "properties": parts, "required": required}


def _whole(value: float) -> int:
    if not value.is_integer():
        raise ValueError
    return int(value)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text))  # Python 3.10 knows no Z.


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value if isinstance(value, str) else value["$bytes"], validate=True)


_TEXT = {"type": "string"}
_DECIMAL = {"type": ["string", "number"], "format": "decimal"}
_SECONDS = {"type": "number", "title": "seconds"}
# Per type: in words, its schema, what makes it of which JSON types.
_TABLE: dict[Any, tuple[Any, ...]] = {
    bool: ("true or false", {"type": "boolean"}, bool),
    int: ("a whole number", {"type": "integer"}, _whole, float),
    float: ("a number", {"type": "number"}, lambda v: float(v) if float(v) == v else v, int),
    str: ("a text", _TEXT, str),
    date: ("an ISO 8601 date", {**_TEXT, "format": "date"}, date.fromisoformat, str),
    datetime: ("an ISO 8601 date and time", {**_TEXT, "format": "date-time"}, _instant, str),
    time: ("an ISO 8601 time", {**_TEXT, "format": "time"}, time.fromisoformat, str),
    timedelta: ("a number of seconds", _SECONDS, lambda v: timedelta(seconds=v), int, float),
    UUID: ("a UUID", {**_TEXT, "format": "uuid"}, UUID, str),
    bytes: ("bytes in base64", {**_TEXT, "contentEncoding": "base64"}, _bytes, str, dict),
    Decimal: ("a decimal number", _DECIMAL, lambda v: Decimal(str(v)), str, int, float),
    Path: ("a path", _TEXT, Path, str),
    os.PathLike: ("a path", _TEXT, Path, str),
}
SCALARS = {type(None): NULL, **{kind: scalar(kind, *row) for kind, row in _TABLE.items()}}
