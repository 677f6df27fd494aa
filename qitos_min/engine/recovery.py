"""Going on after a failure, where a policy says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..core._foreign import described, guarded
from ..core.errors import ErrorCategory, StopReason

__all__ = ["RecoveryDecision", "RecoveryPolicy", "asked", "category_of"]

_RECOVERABLE = (ErrorCategory.MODEL, ErrorCategory.PARSE, ErrorCategory.TOOL, ErrorCategory.ENV)


def category_of(error: BaseException) -> ErrorCategory:
    """What an exception says of itself in ``category``, else a system error."""
    found = getattr(error, "category", None)
    return found if isinstance(found, ErrorCategory) else ErrorCategory.SYSTEM


@dataclass(frozen=True)
class RecoveryDecision:
    """What to do about a failure; only ``handled`` with ``continue_run`` goes on."""

    handled: bool
    continue_run: bool
    stop_reason: StopReason | None = None  # Why the run ends, an unrecoverable error if None.
    note: str | None = None

    def __post_init__(self) -> None:
        if self.stop_reason is not None:
            object.__setattr__(self, "stop_reason", StopReason(self.stop_reason))


class RecoveryPolicy:
    """Goes on after failures of model, parser, tools or environment, a few times.

    ``max_recoveries_per_run`` is 3 if None. An exception whose ``info.details`` have
    ``max_recoveries`` has a limit of its own, for all with the same ``code``. Failures of the
    agent's own code are not recovered. Override ``handle`` for other rules.
    """

    def __init__(self, max_recoveries_per_run: int | None = None) -> None:
        self.max_recoveries_per_run = max_recoveries_per_run
        self._used: Counter[Any] = Counter()

    def reset(self) -> None:
        """A new run begins."""
        self._used.clear()

    def handle(self, state: Any, phase: str, step_id: int, exc: BaseException) -> RecoveryDecision:
        """Return what to do about ``exc``, raised in a phase of a step."""
        details = getattr(getattr(exc, "info", None), "details", None) or {}
        code, own = details.get("code"), details.get("max_recoveries")
        if category_of(exc) not in _RECOVERABLE:
            return RecoveryDecision(False, False, note="not recoverable")
        most = self.max_recoveries_per_run
        most = 3 if most is None and own is None else most
        used = self._used
        if own is not None and used[code] >= own or most is not None and used.total() >= most:
            return RecoveryDecision(False, False, note="max_recovery_exhausted")
        used[code] += 1
        return RecoveryDecision(True, True, note=f"recovery {used.total()}")


def asked(policy: Any, *failure: Any) -> RecoveryDecision:
    """What a policy decides; one that raises or decides nothing ends the run."""
    answer, error = guarded(policy.handle, *failure)
    if isinstance(answer, RecoveryDecision):
        return answer
    error = error or TypeError(f"expected a RecoveryDecision, got {type(answer).__name__}")
    return RecoveryDecision(False, False, note=f"recovery failed: {described(error)}")
