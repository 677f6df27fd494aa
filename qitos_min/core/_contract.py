"""What records share: their JSON, coded errors, tables of checks, strict copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._json import to_json_value

__all__ = [
    "ContractError",
    "FieldCheck",
    "Record",
    "check_fields",
    "exact_values",
    "is_count",
    "is_flag",
    "is_text",
    "one_of",
    "or_none",
    "strict_copy",
]

# Above what the JSON-safe conversion lets through, so that its results always pass.
_MAX_DEPTH = 200
# Python refuses to write an int of more decimal digits than this.
_INT_LIMIT = 10**4300

FieldCheck = tuple[str, str, Callable[[Any], bool], str]
"""A row of a table of checks: code, fields, what each must pass, and that in words."""


class Record:
    """Base of the dataclasses that are written as JSON objects."""

    def to_dict(self) -> dict[str, Any]:
        """Every field as strict JSON, detached."""
        return to_json_value(self)


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
        for name in names.split():
            value = getattr(record, name)
            if not holds(value):
                kind = type(value).__qualname__
                raise error(code, f"{name} must be {expected}, got a value of type {kind}")


def exact_values(value: Mapping[Any, Any], names: Iterable[str]) -> dict[str, Any]:
    """The values of a mapping with exactly these keys.

    Raises ValueError, whose text says which keys are missing and how many are unknown.
    """
    missing = [name for name in names if name not in value]
    found = {name: value[name] for name in names if name in value}
    if missing or len(value) > len(found):
        raise ValueError(
            f"missing: {', '.join(missing) or 'none'}, " f"unknown: {len(value) - len(found)}"
        )
    return found


def is_count(value: Any) -> bool:
    """Whether ``value`` is an int >= 0, and no bool, that JSON text can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT_LIMIT


def is_flag(value: Any) -> bool:
    """Whether ``value`` is a bool."""
    return isinstance(value, bool)


def is_text(value: Any) -> bool:
    """Whether ``value`` is a str."""
    return isinstance(value, str)


def one_of(options: tuple[str, ...]) -> Callable[[Any], bool]:
    """A check for one of these texts."""
    return lambda value: isinstance(value, str) and value in options


def or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The same check, which None passes too."""
    return lambda value: value is None or check(value)


def strict_copy(value: Any, *, tuples: bool = False) -> Any:
    """A detached, plain copy of a tree of JSON values.

    Only None, bool, int, finite float, str, lists and dicts with text keys are such
    values, and with ``tuples`` a tuple stands for a list; what ``to_json_value`` would
    convert is refused. A text keeps all but its lone surrogates, which no JSON file can
    hold. Raises ValueError, which does not hold the value, for anything else.
    """
    return _copied(value, (dict, list, tuple) if tuples else (dict, list), _MAX_DEPTH)


def _copied(value: Any, containers: tuple[type, ...], levels: int) -> Any:
    kind = type(value)
    # These few are nearly all there is, and the rest of the tests is not cheap.
    if value is None or kind is bool or (kind is str and value.isascii()):
        return value
    if not isinstance(value, containers):
        return _plain(value)
    if levels == 0:
        raise ValueError(f"itself or more than {_MAX_DEPTH} levels")
    levels -= 1
    if not isinstance(value, dict):
        return [_copied(item, containers, levels) for item in value]
    copied = {
        key if type(key) is str and key.isascii() else _key(key): _copied(item, containers, levels)
        for key, item in value.items()
    }
    if len(copied) < len(value):
        raise ValueError("keys that differ in lone surrogates only")
    return copied


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key of type {type(key).__qualname__}")
    return to_json_value(key)


def _plain(value: Any) -> str | int | float:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is not finite")
    if isinstance(value, int) and abs(value) >= _INT_LIMIT:
        raise ValueError("an integer of more than 4300 digits")
    if type(value) in (int, float):
        return value
    if isinstance(value, (str, int, float)):
        return to_json_value(value)
    raise ValueError(f"a value of type {type(value).__qualname__}")
