"""What an agent knows while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ._contract import Record
from ._json_schema import Misfit
from ._typed import resolved_hints, restored
from .errors import ErrorCategory, QitosRuntimeError, StopReason


class _StateError(QitosRuntimeError):
    def __init__(self, message: str, field_name: str = "") -> None:
        super().__init__(message, ErrorCategory.STATE)
        self.field_name = field_name


class StateValidationError(_StateError):
    """A state that breaks its own rules; ``field_name`` says where."""


class StateMigrationError(_StateError):
    """A stored state or run that this code cannot read; ``field_name`` may say where."""


@dataclass
class StateSchema(Record):
    """Base of agents' states; subclass it with fields that have defaults."""

    schema_version: int = 1
    task: str = ""
    current_step: int = 0  # Number of steps finished.
    max_steps: int = 10
    final_result: Any = None
    stop_reason: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, payload: dict[str, Any], strict: bool = True) -> StateSchema:
        """Return the state that ``to_dict`` wrote, in the types of its annotations.

        A newer version, or a value that its field cannot take, is a ``StateMigrationError``, no
        dict a ``StateValidationError``; an unknown key too, or it is left out if not ``strict``.
        """
        if not isinstance(payload, dict):
            raise StateValidationError(f"a state must be a dict, got {type(payload).__name__}")
        known = {f.name: f.default for f in fields(cls)}
        version, newest = payload.get("schema_version", 1), known["schema_version"]
        if isinstance(version, int) and version > newest:
            text = f"state version {version} is not known; known: up to {newest}"
            raise StateMigrationError(text)
        if strict and (unknown := sorted(set(payload) - set(known), key=str)):
            text = f"unknown state field {unknown[0]!r} of {cls.__name__}"
            raise StateValidationError(text, unknown[0])
        state = restored_state(cls, {k: v for k, v in payload.items() if k in known})
        state.validate()
        return state

    def validate(self) -> None:
        """Raise ``StateValidationError`` at the first field of a wrong type."""
        for name, (what, kind, least) in _RULES.items():
            value = getattr(self, name)
            if type(value) is not kind and (type(value) is bool or not isinstance(value, kind)):
                told = f"{what}, got {type(value).__name__}"
            elif least is not None and value < least:
                told = f"at least {least}, got {value!r}"
            else:
                continue
            raise StateValidationError(f"state field {name!r} must be {told}", name)

    def set_stop(self, reason: StopReason | str, final_result: Any = None) -> None:
        """Say why the run ends; ``ValueError`` for none of ``StopReason``. An answer stays."""
        self.stop_reason = StopReason(reason).value
        if final_result is not None:
            self.final_result = final_result

    def advance_step(self) -> None:
        """Count one more finished step."""
        self.current_step += 1


def restored_state(kind: type, saved: dict[str, Any]) -> Any:
    """A state of any dataclass from the JSON values of its fields, or ``StateMigrationError``."""
    own, base = resolved_hints(kind), resolved_hints(StateSchema)
    try:  # ``validate`` judges the fields of the base.
        return restored(kind, saved, [n for n in base if own.get(n) == base[n]])
    except Misfit as fault:
        name = fault.place.lstrip(".")
        what = f"field {name!r} of {kind.__name__}" if name else kind.__name__
        raise StateMigrationError(f"state {what} cannot be restored: it {fault}", name) from None


# Per field: its type in words, its type, its least value.
_RULES: dict[str, tuple[str, Any, int | None]] = {
    "schema_version": ("int", int, None),
    "task": ("str", str, None),
    "current_step": ("int", int, 0),
    "max_steps": ("int", int, 1),
    "metadata": ("dict", dict, None),
    "metrics": ("dict", dict, None),
    "stop_reason": ("str or None", (str, type(None)), None),
}
