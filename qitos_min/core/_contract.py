"""What records share: their JSON, coded errors, checks of values, strict copies."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._json import to_json_value

_MAX_DEPTH = 200  # Above what ``to_json_value`` lets through, so that its results always pass.
_INT_LIMIT = 10**4300  # Python refuses to write an int of more decimal digits than this.

FieldCheck = tuple[str, str, Callable[[Any], bool], str]
"""A row of a table of checks: code, fields, what each must pass, and that in words."""


class Record:
    """Base of the dataclasses that are written as JSON objects."""

    __slots__ = ()  # Or those with slots would have room for a dict as well.

    def to_dict(self) -> dict[str, Any]:
        """Every field as strict JSON, detached."""
        return to_json_value(self)


class ContractError(ValueError):
    """A record that breaks its contract; ``code`` names the check. No text holds a value."""

    # What a record of another version, no mapping and one with other keys are called.
    version_code = form_code = no_mapping = other_keys = ""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(code, what)
        self.code = code

    def __str__(self) -> str:
        return ": ".join(self.args)


def check_fields(record: object, checks: Iterable[FieldCheck], error: type[ContractError]) -> None:
    """Raises ``error`` with the code of the first row that a field does not pass."""
    for code, names, holds, expected in checks:
        for name in names.split():
            if not holds(value := getattr(record, name)):
                kind = type(value).__qualname__
                raise error(code, f"{name} must be {expected}, got a value of type {kind}")


def exact_values(value: Any, kind: Any, error: type[ContractError], *more: str) -> dict[str, Any]:
    """The fields of a kind of record of this version in a mapping of these and ``more`` keys."""
    if not isinstance(value, Mapping):
        raise error(error.form_code, f"{error.no_mapping}, got {type(value).__qualname__}")
    if value.get("schema_version") != kind.schema_version:
        raise error(error.version_code, f"schema_version must be {kind.schema_version}")
    names = kind.__dataclass_fields__
    missing = ", ".join(name for name in names if name not in value)
    unknown = len([name for name in value if name not in names and name not in more])
    if missing or unknown:
        told = f"{error.other_keys}, missing: {missing or 'none'}, unknown: {unknown}"
        raise error(error.form_code, told)
    return {name: value[name] for name in names}


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Whether ``value`` is an int >= 0, and no bool, that JSON text can hold."""
    return isinstance(value, int) and is_number(value) and 0 <= value < _INT_LIMIT


def is_a(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def one_of(*options: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in options


def matches(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value))


def or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def check_count(value: Any, name: str, *, least: int, optional: bool = False) -> None:
    fits = isinstance(value, int) and is_number(value) and value >= least
    if not (fits or optional and value is None):
        raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")


def check_seconds(value: Any, name: str, *, optional: bool = False) -> None:
    # What is optional may be unlimited.
    fits = is_number(value) and value >= 0 and (optional or value < math.inf)
    if not (fits or optional and value is None):
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")


def check_timeout(value: Any) -> None:
    if value is not None and not (is_number(value) and 0 < value < math.inf):
        raise ValueError(f"timeout_s must be a number of seconds above 0, got {value!r}")


def detach_json(value: Any, tuples: bool = True, levels: int = _MAX_DEPTH) -> Any:
    """A detached copy of a JSON tree (a tuple may be a list), less its lone surrogates.

    Raises ValueError, which does not hold the value, for what ``to_json_value`` would convert.
    """
    kind = type(value)
    # These few are nearly all there is, and the rest of the tests is not cheap.
    if value is None or kind is bool or kind is str and value.isascii():
        return value
    if kind is int and value.bit_length() < 64:
        return value
    if not levels and isinstance(value, (dict, list, tuple)):
        raise ValueError(f"itself or more than {_MAX_DEPTH} levels")
    if kind is dict or isinstance(value, dict):
        copied, levels = {}, levels - 1
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                if not isinstance(key, str):
                    raise ValueError(f"a key of type {type(key).__qualname__}")
                key = to_json_value(key)
            kind = type(item)
            leaf = kind is str and item.isascii() or kind is int and item.bit_length() < 64
            copied[key] = item if leaf or item is None else detach_json(item, tuples, levels)
        return copied
    if kind is list or isinstance(value, list) or tuples and isinstance(value, tuple):
        return [detach_json(item, tuples, levels - 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is not finite")
    if isinstance(value, int) and abs(value) >= _INT_LIMIT:
        raise ValueError("an integer of more than 4300 digits")
    if isinstance(value, (str, int, float)):
        return value if kind in (int, float) else to_json_value(value)
    raise ValueError(f"a value of type {kind.__qualname__}")
