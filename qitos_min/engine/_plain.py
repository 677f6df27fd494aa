"""Values as a record keeps them: made plain once, and shared read-only from there on."""

from __future__ import annotations

import marshal
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any

from ..core._contract import detach_json
from ..core._json import to_json_value

_FIXED = {str, int, float, bool, type(None)}  # Types of values that never change.
_LEVELS = 60  # Whatever a value stands in, the whole is no deeper than JSON may be.


def exact(value: Any) -> Any:
    """A new tree of what is JSON already, at a fraction of the price; else a ValueError."""
    return detach_json(value, levels=_LEVELS)


def plain(value: Any) -> Any:
    """A value as new JSON values, whatever it is."""
    try:
        return detach_json(value, levels=_LEVELS)
    except (ValueError, RuntimeError):  # The second: it changed meanwhile.
        return to_json_value(value)


class StateView:
    """The state of a run in plain values; what did not change is not made again."""

    def __init__(self) -> None:
        self._kind: type | None = None  # Of the state.
        self._view: dict[str, Any] = {}

    def of(self, state: Any) -> Any:
        """The plain values of a state: those of before where they are the same."""
        if type(state) is not self._kind:
            names = [f.name for f in fields(state)] if is_dataclass(state) else []
            self._names = names + names[:1]  # So that a lone value comes in a tuple, too.
            self._values = attrgetter(*self._names) if names else None
            self._seen: tuple[Any, ...] = (self,) * len(self._names)  # What no field holds.
            self._keys: dict[str, bytes] = {}  # What the parts of the view were made of.
            self._kind, self._view = type(state), {}
        if self._values is None:
            return plain(state)
        try:
            seen, self._seen = self._seen, self._values(state)
            changes = {}
            for name, value, old in zip(self._names, self._seen, seen):
                if value is not old or type(value) not in _FIXED:
                    # Bytes tell 1 from True and from 1.0, which == does not.
                    key = marshal.dumps(value, 2)
                    if self._keys.get(name) != key:
                        self._keys[name], changes[name] = key, exact(value)
        except (ValueError, AttributeError, RuntimeError):
            self._kind = None  # What was made of it is not known.
            return to_json_value(state)
        if changes:
            self._view = {**self._view, **changes}
        return self._view
