"""Who tried: the identity of one attempt at one action."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class AttemptIdentity:
    """Names one attempt, so that its late result is never taken for another's; ``ValueError``."""

    value: str  # ``attempt_`` and 16 to 64 lower-case hexadecimal digits.

    def __post_init__(self) -> None:
        form = r"attempt_[0-9a-f]{16,64}"
        if not isinstance(self.value, str) or not re.fullmatch(form, self.value):
            words = "'attempt_' followed by 16 to 64 lower-case hexadecimal digits"
            raise ValueError(f"an attempt identity must be {words}")

    def to_dict(self) -> dict[str, str]:
        """``{"kind": "attempt", "value": ...}``."""
        return {"kind": "attempt", "value": self.value}

    @classmethod
    def from_dict(cls, value: object) -> AttemptIdentity:
        """Reads what :meth:`to_dict` wrote; anything else is a ValueError."""
        if isinstance(value, dict) and value == {"kind": "attempt", "value": value.get("value")}:
            return cls(value["value"])
        raise ValueError("an attempt identity has the keys 'kind', which is 'attempt', and 'value'")
