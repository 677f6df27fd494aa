"""Values as a record keeps them: made plain once, and shared read-only from there on."""

from __future__ import annotations

import marshal
from dataclasses import fields, is_dataclass
from typing import Any

from ..core._contract import strict_copy
from ..core._json import to_json_value

_LEVELS = 60  # Whatever a value stands in, the whole is no deeper than JSON may be.


def exact(value: Any) -> Any:
    """A new tree of a value that is JSON already; a ValueError for any other.

    Exactly what ``to_json_value`` makes of such a value, at a fraction of its price.
    """
    return strict_copy(value, True, _LEVELS)


def plain(value: Any) -> Any:
    """A value as new JSON values, whatever it is."""
    try:
        return strict_copy(value, True, _LEVELS)
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
            changes = self._changes(state)
        except (ValueError, AttributeError, RuntimeError):
            self._kind = None  # The keys may be of another moment than the view.
            return to_json_value(state)
        if changes:
            self._view = {**self._view, **changes}
        return self._view

    def _changes(self, state: Any) -> dict[str, Any]:
        changes = {}
        for name in self._names:
            value, held = getattr(state, name), self._view.get(name, self)
            if type(value) in (dict, list):
                # Bytes tell 1 from True and from 1.0, which == does not.
                key = marshal.dumps(value, 2)
                if self._keys.get(name) != key:
                    changes[name], self._keys[name] = exact(value), key
            elif value is not held:
                changes[name] = exact(value)
                self._keys.pop(name, None)
        return changes
