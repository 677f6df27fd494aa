"""Values as a record keeps them: made plain once, and shared read-only from there on."""

from __future__ import annotations

import marshal
from dataclasses import fields, is_dataclass
from typing import Any

from ..core._json import to_json_value

_LEVELS = 60
_MOST_ITEMS = 100_000
_INT = 2**63


def exact(value: Any, levels: int = _LEVELS) -> Any:
    """A new tree of a value that is JSON already; a ValueError for any other.

    Exactly what ``to_json_value`` makes of such a value, at a fraction of its price.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        if not value.isascii():
            value.encode("utf-8")  # Raises for lone surrogates.
        return value
    if kind is int and -_INT < value < _INT or kind is float and value - value == 0.0:
        return value
    if not levels or kind not in (dict, list, tuple) or len(value) > _MOST_ITEMS:
        raise ValueError(f"{kind.__name__} is not plain")
    levels -= 1
    if kind is not dict:
        return [exact(item, levels) for item in value]
    made = {}
    for key, item in value.items():
        if type(key) is not str or not key.isascii():
            raise ValueError("a key is not plain")
        # What is most of all values needs no call.
        leaf = item is None or (kind := type(item)) is bool or kind is str and item.isascii()
        made[key] = item if leaf else exact(item, levels)
    return made


def plain(value: Any) -> Any:
    """A value as new JSON values, whatever it is."""
    try:
        return exact(value)
    except (ValueError, RuntimeError):  # The second: it changed meanwhile.
        return to_json_value(value)


class StateView:
    """The state of a run in plain values; what did not change is not made again."""

    def __init__(self) -> None:
        self._kind: type | None = None
        self._names: tuple[str, ...] = ()
        self._keys: dict[str, bytes] = {}
        """By field, the bytes of the list or dict that the view was made of."""
        self._view: dict[str, Any] = {}

    def of(self, state: Any) -> Any:
        """The plain values of a state: those of before where they are the same."""
        kind = type(state)
        if kind is not self._kind:
            self._kind, self._keys, self._view = kind, {}, {}
            found = fields(state) if is_dataclass(state) else ()
            self._names = tuple(field.name for field in found)
        if not self._names:
            return plain(state)
        try:
            view, changed = {}, False
            for name in self._names:
                view[name] = made = self._field(name, getattr(state, name))
                changed = changed or made is not self._view.get(name, self)
        except (ValueError, AttributeError, RuntimeError):
            self._kind = None  # The keys may be of another moment than the view.
            return to_json_value(state)
        if changed:
            self._view = view
        return self._view

    def _field(self, name: str, value: Any) -> Any:
        if type(value) not in (dict, list):
            return exact(value)
        # Bytes tell 1 from True and from 1.0, which == does not.
        key = marshal.dumps(value, 2)
        if self._keys.get(name) != key:
            made, self._keys[name] = exact(value), key
            return made
        return self._view[name]
