"""Going on after a failure, where a policy says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.errors import ErrorCategory, StopReason

__all__ = ["RecoveryDecision", "RecoveryPolicy"]

_RECOVERABLE = (
    ErrorCategory.MODEL,
    ErrorCategory.PARSE,
    ErrorCategory.TOOL,
    ErrorCategory.ENV,
)


@dataclass(frozen=True)
class RecoveryDecision:
    """What to do about a failure."""

    handled: bool
    continue_run: bool
    stop_reason: StopReason | None = None
    note: str | None = None


class RecoveryPolicy:
    """Goes on after failures of model, parser, tools or environment, a few times.

    Failures of the agent's own code are not recovered: running it again gives
    them again. Subclass and override ``handle`` for other rules.
    """

    def __init__(self, max_recoveries_per_run: int = 3) -> None:
        self.max_recoveries_per_run = max_recoveries_per_run
        self._used = 0

    def reset(self) -> None:
        """A new run begins."""
        self._used = 0

    def handle(
        self, state: Any, phase: str, step_id: int, exc: BaseException
    ) -> RecoveryDecision:
        """Return what to do about ``exc``, raised in a phase of a step."""
        category = getattr(exc, "category", ErrorCategory.SYSTEM)
        if category not in _RECOVERABLE:
            return RecoveryDecision(False, False, note="not recoverable")
        if self._used >= self.max_recoveries_per_run:
            return RecoveryDecision(False, False, note="too many recoveries")
        self._used += 1
        return RecoveryDecision(True, True, note=f"recovery {self._used}")
