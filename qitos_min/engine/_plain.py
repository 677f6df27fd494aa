"""Values as a record keeps them: made plain once, and shared read-only from there on."""

from __future__ import annotations

import marshal
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import Any

from ..core._contract import strict_copy
from ..core._json import to_json_value

_LEVELS = 60  # Whatever a value stands in, the whole is no deeper than JSON may be.


def exact(value: Any) -> Any:
    """A new tree of what is JSON already, at a fraction of the price; else a ValueError."""
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
        self._names: list[str] = []
        self._keys: list[bytes] = []  # What the parts of the view were made of.
        self._view: dict[str, Any] = {}

    def of(self, state: Any) -> Any:
        """The plain values of a state: those of before where they are the same."""
        if type(state) is not self._kind:
            self._kind, self._keys, self._view = type(state), [], {}
            self._names = [f.name for f in fields(state)] if is_dataclass(state) else []
        try:
            # Bytes tell 1 from True and from 1.0, which == does not.
            keys = [marshal.dumps(getattr(state, name), 2) for name in self._names]
            if keys != self._keys:
                held = zip_longest(self._names, keys, self._keys)
                changes = {n: exact(getattr(state, n)) for n, key, old in held if key != old}
                self._keys, self._view = keys, {**self._view, **changes}
        except (ValueError, AttributeError, RuntimeError):
            return to_json_value(state)
        return self._view if self._names else plain(state)
