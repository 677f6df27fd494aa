"""When a run ends although nobody said final."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


def _limit(info: Info, key: str, most: float, reason: StopReason) -> Verdict:
    used = (info or {}).get(key, 0)
    return (True, reason, f"{key}={used} of {most}") if used >= most else (False, None, None)


@dataclass(eq=False)
class MaxStepsCriteria(StopCriteria):
    """Stops after a number of steps."""

    max_steps: int

    def should_stop(self, state: Any, step_count: int, runtime_info: Info = None) -> Verdict:
        return _limit({"steps": step_count}, "steps", self.max_steps, StopReason.MAX_STEPS)


@dataclass(eq=False)
class MaxRuntimeCriteria(StopCriteria):
    """Stops after a number of seconds."""

    max_runtime_seconds: float

    def should_stop(self, state: Any, step_count: int, runtime_info: Info = None) -> Verdict:
        most = self.max_runtime_seconds
        return _limit(runtime_info, "elapsed_seconds", most, StopReason.BUDGET_TIME)


@dataclass(eq=False)
class MaxTokensCriteria(StopCriteria):
    """Stops after a number of tokens."""

    max_tokens: int

    def should_stop(self, state: Any, step_count: int, runtime_info: Info = None) -> Verdict:
        return _limit(runtime_info, "total_tokens", self.max_tokens, StopReason.BUDGET_TOKENS)


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
