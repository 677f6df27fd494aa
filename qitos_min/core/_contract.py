"""What records with a contract share: coded errors, tables of checks, strict JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ._json import to_json_value

__all__ = [
    "ContractError",
    "FieldCheck",
    "check_fields",
    "is_count",
    "is_flag",
    "one_of",
    "or_none",
    "strict_copy",
]

# Above what the JSON-safe conversion lets through, so that its results always pass.
_MAX_DEPTH = 200
_MAX_VALUES = 1_100_000
# Python refuses to write an int of more decimal digits than this.
_INT_LIMIT = 10**4300
_INT_LEAST = 1 - _INT_LIMIT

FieldCheck = tuple[str, tuple[str, ...], Callable[[Any], bool], str]
"""A row of a table of checks: code, fields, what each must pass, and that in words."""


class ContractError(ValueError):
    """A record that breaks its contract; ``code`` names the broken check.

    The text never holds the offending value, which may be a secret.
    """

    def __init__(self, code: str, what: str) -> None:
        super().__init__(code, what)
        self.code = code

    def __str__(self) -> str:
        return ": ".join(self.args)


def check_fields(
    record: object, checks: tuple[FieldCheck, ...], error: type[ContractError]
) -> None:
    """Raises ``error`` with the code of the first row that a field does not pass."""
    for code, names, holds, expected in checks:
        for name in names:
            value = getattr(record, name)
            if not holds(value):
                kind = type(value).__qualname__
                raise error(
                    code, f"{name} must be {expected}, got a value of type {kind}"
                )


def is_count(value: Any) -> bool:
    """Whether ``value`` is an int >= 0, and no bool, that JSON text can hold."""
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and 0 <= value < _INT_LIMIT
    )


def is_flag(value: Any) -> bool:
    """Whether ``value`` is a bool."""
    return isinstance(value, bool)


def one_of(options: tuple[str, ...]) -> Callable[[Any], bool]:
    """A check for one of these texts."""
    return lambda value: isinstance(value, str) and value in options


def or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The same check, which None passes too."""
    return lambda value: value is None or check(value)


def strict_copy(value: Any, *, tuples: bool = False) -> Any:
    """A detached copy of a tree of JSON values.

    Only None, bool, int, finite float, str, lists and dicts with text keys are such
    values, and with ``tuples`` a tuple stands for a list; a text keeps all but its lone
    surrogates, which no JSON file can hold. Raises ValueError, which does not hold the
    value, for anything else.
    """
    values_left = _MAX_VALUES

    def copy(value: Any, depth: int) -> Any:
        nonlocal values_left
        kind = type(value)
        # These few are nearly all there is, and the rest of the tests is not cheap.
        if kind is str:
            return value if value.isascii() else _text(value)
        if value is None or kind is bool:
            return value
        if kind is int and _INT_LEAST <= value < _INT_LIMIT:
            return value
        if isinstance(value, (str, int, float)):
            return _plain(value)
        if tuples and isinstance(value, tuple):
            value = list(tuple.__iter__(value))
        if not isinstance(value, (dict, list)):
            raise ValueError(f"a value of type {kind.__qualname__}")
        if depth == _MAX_DEPTH:
            raise ValueError(f"itself or more than {_MAX_DEPTH} levels")
        is_list = isinstance(value, list)
        values_left -= list.__len__(value) if is_list else dict.__len__(value)
        if values_left < 0:
            raise ValueError(f"more than {_MAX_VALUES} values")
        depth += 1
        if is_list:
            return [copy(item, depth) for item in list.__iter__(value)]
        copied = {
            key if type(key) is str and key.isascii() else _key(key): copy(item, depth)
            for key, item in dict.items(value)
        }
        if len(copied) != dict.__len__(value):
            raise ValueError("keys that differ in lone surrogates only")
        return copied

    return copy(value, 0)


def _plain(value: str | int | float) -> str | int | float:
    # The methods of the base types are called by name: those of a subclass are foreign
    # code, and an enum member or a NumPy float has to become plain.
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, float):
        if math.isfinite(value):
            return float.__float__(value)
        raise ValueError("a number that is not finite")
    number = int.__index__(value)
    if _INT_LEAST <= number < _INT_LIMIT:
        return number
    raise ValueError("an integer of more than 4300 digits")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key of type {type(key).__qualname__}")
    return _text(str.__str__(key))


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return to_json_value(text)
    return text
