"""Single values in JSON: one table of the kinds that have a schema and are restored."""

from __future__ import annotations

import base64
import os
import re
import reprlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Any
from uuid import UUID

from ._contract import detach_json
from ._json import to_json_value
from ._json_schema import check_value, same_json

Schema = dict[str, Any]


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


def with_default(schema: Schema, default: Any) -> Schema:
    """Add a default that JSON can hold; any other is left out, never replaced."""
    if default is ... or default is Parameter.empty:
        return schema
    if default is None and check_value(None, schema) is not None:
        schema = union_schema([schema, {"type": "null"}])
    with suppress(ValueError):
        value = detach_json(enum_value(default) if isinstance(default, Enum) else default)
        return schema if check_value(value, schema) else {**schema, "default": value}
    return schema


def record_schema(
    forms: dict[str, Form], defaults: dict[str, Any], notes: dict[str, str]
) -> Schema:
    """The schema of an object of the parts in ``defaults`` that JSON can say."""
    parts, required = {}, []
    for name, form in forms.items():
        if name in defaults and form.schema is not None:
            note = {"description": notes[name]} if name in notes else {}
            parts[name] = {**note, **with_default(form.schema, defaults[name])}
            required += [name] if defaults[name] is Parameter.empty else []
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
