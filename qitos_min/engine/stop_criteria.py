"""When a run ends although nobody said final."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core._json import dumps, to_json_value
from ..core.errors import StopReason

__all__ = ["FinalResultCriteria", "MaxRuntimeCriteria", "MaxStepsCriteria", "MaxTokensCriteria"]
__all__ += ["StagnationCriteria", "StopCriteria"]

Info = dict[str, Any] | None
Verdict = tuple[bool, StopReason | None, str | None]


class StopCriteria:
    """Asked after each step; the first that says so ends the run."""

    def should_stop(self, state: Any, step_count: int, runtime_info: Info = None) -> Verdict:
        """Return (stop?, reason, detail) or a bool; without a reason it is ``agent_condition``.

        ``step_count`` is the number of finished steps; ``runtime_info`` has elapsed_seconds,
        total_tokens, budget_max_steps, budget_max_runtime_seconds and budget_max_tokens.
        """
        raise NotImplementedError


class FinalResultCriteria(StopCriteria):
    """Stops when the state holds a final result."""

    def should_stop(self, state: Any, step_count: int, runtime_info: Info = None) -> Verdict:
        found = getattr(state, "final_result", None) is not None
        return found, StopReason.FINAL if found else None, None


class _LimitCriteria(StopCriteria):
    """Stops when a number of the runtime info, or the steps, reaches a limit."""

    key = ""
    reason = StopReason.MAX_STEPS

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def should_stop(self, state: Any, step_count: int, runtime_info: Info = None) -> Verdict:
        used = {"steps": step_count, **(runtime_info or {})}.get(self.key, 0)
        if used < self._limit:
            return False, None, None
        return True, self.reason, f"{self.key}={used} of {self._limit}"


class MaxStepsCriteria(_LimitCriteria):
    """Stops after a number of steps."""

    key = "steps"

    def __init__(self, max_steps: int) -> None:
        super().__init__(max_steps)


class MaxRuntimeCriteria(_LimitCriteria):
    """Stops after a number of seconds."""

    key, reason = "elapsed_seconds", StopReason.BUDGET_TIME

    def __init__(self, max_runtime_seconds: float) -> None:
        super().__init__(max_runtime_seconds)


class MaxTokensCriteria(_LimitCriteria):
    """Stops after a number of tokens."""

    key, reason = "total_tokens", StopReason.BUDGET_TOKENS

    def __init__(self, max_tokens: int) -> None:
        super().__init__(max_tokens)


class StagnationCriteria(StopCriteria):
    """Stops when the state has not changed for a number of steps.

    ``signature_fn(state)`` says what counts as a change; without it the whole state does, but
    for its step counter. It belongs to one run at a time, which ``step_count`` tells.
    """

    def __init__(
        self, max_stagnant_steps: int = 3, signature_fn: Callable[[Any], Any] | None = None
    ) -> None:
        self.max_stagnant_steps = max_stagnant_steps
        self._signature = signature_fn or _state_signature
        self._last: Any = None
        self._step = self._same = 0

    def should_stop(self, state: Any, step_count: int, runtime_info: Info = None) -> Verdict:
        signature = self._signature(state)
        unchanged = step_count > self._step > 0 and signature == self._last
        self._same = self._same + 1 if unchanged else 0
        self._last, self._step = signature, step_count
        if self._same < self.max_stagnant_steps:
            return False, None, None
        return True, StopReason.STAGNATION, f"no change for {self._same} steps"


def _state_signature(state: Any) -> str:
    view = to_json_value(state)
    if isinstance(view, dict):
        view.pop("current_step", None)
    return dumps(view)
