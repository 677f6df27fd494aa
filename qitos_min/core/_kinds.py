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
    """A type as JSON knows it."""

    schema: Schema | None  # None for a type that JSON cannot say, a function's.
    read: Callable[[Any], Any]
    """The typed value of a JSON value, or ``Misfit``. None and what is of the type
    already stay, for a state may hold None whatever its annotation says."""
    sure: bool = False
    """Whether a value that comes back as the same JSON is hardly of another type."""


ANY = Form({}, lambda value: value)
NULL = Form({"type": "null"}, ANY.read)


def misfit(expected: str, value: Any) -> Misfit:
    """The words for a value that is not what was expected."""
    plain = value is None or isinstance(value, (str, int, float))
    got = reprlib.repr(value) if plain else type(value).__name__
    return Misfit(f"must be {expected}, got {got}")


def scalar(
    kind: Any,
    what: str,
    schema: Schema,
    make: Callable[[Any], Any],
    *given: type,
    sure: bool = False,
) -> Form:
    """The form of a kind that is made of JSON values of the types in ``given``."""

    def read(value: Any) -> Any:
        flag = isinstance(value, bool) and kind is not bool
        if value is None or (isinstance(value, kind) and not flag):
            return value
        if isinstance(value, given) and not flag:
            with suppress(ValueError, ArithmeticError, TypeError, AttributeError, LookupError):
                return make(value)
        raise misfit(what, value)

    return Form(schema, read, sure)


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

    return Form(_enum_schema(words), read, sure=True)


def enum_value(member: Any) -> Any:
    """What stands for a member in JSON: its value, or its name if JSON has no such."""
    value = member.value if isinstance(member, Enum) else member
    if value is None or isinstance(value, (str, int, float)):
        with suppress(ValueError):  # NaN, say
            return detach_json(value)
    return getattr(member, "name", str(member))


def _enum_schema(values: list[Any]) -> Schema:
    kinds = list(dict.fromkeys(SCALARS[type(value)].schema["type"] for value in values))
    distinct: list[Any] = []
    for value in values:
        if not any(same_json(value, other) for other in distinct):
            distinct.append(value)
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": distinct} if values else {}


def union_schema(members: list[Schema]) -> Schema:
    """The schema of what fits one of several; ``{}`` if there is none to choose from."""
    distinct = [m for i, m in enumerate(members) if m not in members[:i]]
    if {} in members or len(distinct) < 2:
        return distinct[0] if len(distinct) == 1 else {}
    first, *others = [member for member in distinct if member != NULL.schema]
    if not others and "enum" in first:
        return {**first, **_enum_schema([*first["enum"], None])}
    if not others and "description" in first:
        # The text of ``Optional[Annotated[X, "text"]]`` is about the whole.
        bare, note = _without_note(first)
        return {"anyOf": [bare if member is first else member for member in distinct], **note}
    return {"anyOf": distinct}


def _without_note(schema: Schema) -> tuple[Schema, Schema]:
    note = {k: v for k, v in schema.items() if k == "description"}
    return {k: v for k, v in schema.items() if k not in note}, note


def with_default(schema: Schema, default: Any) -> Schema:
    """Add a default that JSON can hold; any other is left out, never replaced."""
    if default is ... or default is Parameter.empty:
        return schema
    if default is None and check_value(None, schema) is not None:
        bare, note = _without_note(schema)
        schema = {**union_schema([bare, {"type": "null"}]), **note}
    with suppress(ValueError):
        value = detach_json(enum_value(default) if isinstance(default, Enum) else default)
        return schema if check_value(value, schema) else {**schema, "default": value}
    return schema


def _whole(value: float) -> int:
    if not value.is_integer():
        raise ValueError
    return int(value)


def _iso(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: read(re.sub("[Zz]$", "+00:00", text))  # Python 3.10 knows no Z.


_DURATION = re.compile(
    r"([+-]?)P(?=.)(?:([\d.]+)W)?(?:([\d.]+)D)?"
    r"(?:T(?=.)(?:([\d.]+)H)?(?:([\d.]+)M)?(?:([\d.]+)S)?)?"
)
_UNITS = ("weeks", "days", "hours", "minutes", "seconds")


def _duration(value: Any) -> timedelta:
    if not isinstance(value, str):
        return timedelta(seconds=value)
    sign, *numbers = _DURATION.fullmatch(value).groups()  # type: ignore[union-attr]
    made = timedelta(**{unit: float(number or 0) for unit, number in zip(_UNITS, numbers)})
    return -made if sign == "-" else made


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value if isinstance(value, str) else value["$bytes"], validate=True)


def _text(format: str, *further: str) -> Schema:
    return {"type": ["string", *further] if further else "string", "format": format}


_TEXT = {"type": "string"}
_BASE64 = {**_TEXT, "contentEncoding": "base64"}
_NUMBER, _NUMERIC = _text("decimal", "number"), (str, int, float)
_DURATION_WORDS = "an ISO 8601 duration or a number of seconds"
# The type, in words, its schema, what makes it of which JSON types. A text that reads as
# one of the first is hardly anything else, where a union leaves the choice.
_SURE: tuple[tuple[Any, ...], ...] = (
    (bool, "true or false", {"type": "boolean"}, bool),
    (int, "a whole number", {"type": "integer"}, _whole, float),
    (float, "a number", {"type": "number"}, lambda v: float(v) if float(v) == v else v, int),
    (date, "an ISO 8601 date", _text("date"), date.fromisoformat, str),
    (datetime, "an ISO 8601 date and time", _text("date-time"), _iso(datetime.fromisoformat), str),
    (time, "an ISO 8601 time", _text("time"), _iso(time.fromisoformat), str),
    (UUID, "a UUID", _text("uuid"), UUID, str),
    (bytes, "bytes in base64", _BASE64, _bytes, str, dict),
)
_OTHERS: tuple[tuple[Any, ...], ...] = (
    (str, "a text", _TEXT, str),
    (Path, "a path", _TEXT, Path, str),
    (os.PathLike, "a path", _TEXT, Path, str),
    (Decimal, "a decimal number", _NUMBER, lambda v: Decimal(str(v)), *_NUMERIC),
    (timedelta, _DURATION_WORDS, _text("duration", "number"), _duration, *_NUMERIC),
)
SCALARS: dict[Any, Form] = {
    type(None): NULL,
    **{row[0]: scalar(*row, sure=True) for row in _SURE},
    **{row[0]: scalar(*row) for row in _OTHERS},
}
