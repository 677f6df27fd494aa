"""Critics that many agents want."""

from __future__ import annotations

from typing import Any

from ..engine.critic import Critic
from ..engine.critic_result import CriticResult

__all__ = ["PassThroughCritic", "ScoreCritic", "SelfReflectionCritic"]

_FAILURE_KEYS = {"tool_name", "status", "error", "error_code", "output"}


class PassThroughCritic(Critic):
    """Lets every step pass."""

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> CriticResult:
        return CriticResult(reason="passed")


class SelfReflectionCritic(Critic):
    """Asks for another try when a tool failed, a few times in a row.

    ``max_retries`` is the number of retries in a row; after that the run stops.
    """

    def __init__(self, max_retries: int = 2) -> None:
        self.max_retries = max_retries
        self._retries = 0

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> CriticResult:
        errors = [
            f"{result['tool_name']}: {result['error']}"
            for result in results
            if isinstance(result, dict) and _FAILURE_KEYS == set(result)
        ]
        if not errors:
            self._retries = 0
            return CriticResult(reason="no tool failed")
        said = "; ".join(errors)
        if self._retries >= self.max_retries:
            self._retries = 0
            return CriticResult("stop", f"still failing: {said}", 0.0)
        self._retries += 1
        return CriticResult(
            "retry",
            said,
            0.0,
            details={"retries": self._retries},
            instruction_patch=f"The last step failed: {said}. Do it differently.",
        )


class ScoreCritic(Critic):
    """Stops the run when the state's score falls below a threshold.

    The score is ``state.metrics["score"]``; a state without one passes.
    """

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> CriticResult:
        score = getattr(state, "metrics", {}).get("score")
        if not isinstance(score, (int, float)) or score >= self.threshold:
            return CriticResult(reason="no score below the threshold", score=score)
        return CriticResult("stop", f"score {score} is below {self.threshold}", score)
