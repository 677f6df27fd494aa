"""What a critic says of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..core._contract import Record
from ._plain import plain

__all__ = ["CriticResult"]

_ACTIONS = ("continue", "stop", "retry")


@dataclass
class CriticResult(Record):
    """A verdict: go on, stop the run, or try the step again."""

    action: str = "continue"
    reason: str = ""
    score: float | None = 1.0
    details: dict[str, Any] = field(default_factory=dict)
    modified_prompt: str | None = None  # Is the system prompt of the next model call, once.
    instruction_patch: str | None = None  # Is added to the next model call, once.
    state_patch: dict[str, Any] | None = None  # For existing fields of the state, on a retry.

    def to_dict(self) -> dict[str, Any]:
        """The seven fields as strict JSON, detached."""
        return plain({name: getattr(self, name) for name in _NAMES})

    @classmethod
    def from_value(cls, value: Any) -> CriticResult:
        """Return the verdict that a critic meant by what it returned.

        Takes a CriticResult, a mapping of its fields, ``"stop"`` or ``("retry", reason[,
        instruction_patch])``. Raises ``ValueError`` for anything else: it lets no step pass.
        """
        if isinstance(value, cls):
            result = replace(value)  # The critic may use its own again.
        elif isinstance(value, Mapping):
            result = cls(**{name: value[name] for name in _NAMES if name in value})
        elif isinstance(value, str):
            result = cls(action=value)
        elif isinstance(value, (tuple, list)) and 0 < len(value) < 4:
            result = cls(**dict(zip(("action", "reason", "instruction_patch"), value)))
        else:
            raise ValueError(f"expected a CriticResult, got {type(value).__name__}")
        action = getattr(result.action, "value", result.action)
        word = action.strip().lower() if isinstance(action, str) else action
        if word not in _ACTIONS:
            raise ValueError(f"unknown critic action {action!r}; known: {', '.join(_ACTIONS)}")
        if not isinstance(result.state_patch, (type(None), Mapping)):
            kind = type(result.state_patch).__name__
            raise ValueError(f"state_patch must be a mapping of fields, got {kind}")
        result.action = word
        result.reason = "" if result.reason is None else result.reason
        result.details = {} if result.details is None else result.details
        return result


_NAMES = tuple(f.name for f in fields(CriticResult))
