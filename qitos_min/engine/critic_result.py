"""What a critic says of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..core._contract import Record

__all__ = ["CriticResult"]

_ACTIONS = ("continue", "stop", "retry")


@dataclass
class CriticResult(Record):
    """A verdict: go on, stop the run, or try the step again."""

    action: str = "continue"
    reason: str = ""
    score: float | None = 1.0
    details: dict[str, Any] = field(default_factory=dict)
    modified_prompt: str | None = None
    """Takes the place of the next model call's system prompt, once."""
    instruction_patch: str | None = None
    """Is added to the next model call, once."""
    state_patch: dict[str, Any] | None = None
    """Values for existing fields of the state, applied before a retry."""

    @classmethod
    def from_value(cls, value: Any) -> CriticResult:
        """Return the verdict that a critic meant by what it returned.

        Takes a CriticResult, a mapping of its fields, ``"stop"`` or
        ``("retry", reason[, instruction_patch])``. Anything else, and an action
        that is none, is a ``ValueError``: a critic nobody understands must not
        let a step pass.
        """
        if isinstance(value, cls):
            result = value
        elif isinstance(value, Mapping):
            known = {f.name for f in fields(cls)}
            result = cls(**{k: v for k, v in value.items() if k in known})
        elif isinstance(value, str):
            result = cls(action=value)
        elif isinstance(value, (tuple, list)) and 0 < len(value) < 4:
            names = ("action", "reason", "instruction_patch")
            result = cls(**dict(zip(names, value)))
        else:
            raise ValueError(f"expected a CriticResult, got {type(value).__name__}")
        action = getattr(result.action, "value", result.action)
        word = action.strip().lower() if isinstance(action, str) else action
        if word not in _ACTIONS:
            raise ValueError(f"unknown critic action {action!r}; known: {', '.join(_ACTIONS)}")
        if not isinstance(result.state_patch, (Mapping, type(None))):
            kind = type(result.state_patch).__name__
            raise ValueError(f"state_patch must be a mapping of fields, got {kind}")
        reason = "" if result.reason is None else result.reason
        details = {} if result.details is None else result.details
        return replace(result, action=word, reason=reason, details=details)
