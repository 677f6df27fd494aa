"""Critics that many agents want."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..engine import Critic, CriticResult, critic
from .planning import format_action

_FAILURE = {"tool_name", "status", "error", "error_code", "output"}


class PassThroughCritic(Critic):
    """Lets every step pass."""

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> CriticResult:
        return CriticResult(reason="passed")


pass_through_critic = critic(name="pass_through_critic")(PassThroughCritic().evaluate)


@dataclass(eq=False)
class SelfReflectionCritic(Critic):
    """Asks for another try when a tool failed, ``max_retries`` times in a run, then stops it."""

    max_retries: int = 2

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> CriticResult:
        failed = [row for row in results if isinstance(row, dict) and _FAILURE <= row.keys()]
        said = "; ".join(f"{row['tool_name']}: {row['error']}" for row in failed)
        return _reflected(state, said, self.max_retries)


class ReActSelfReflectionCritic(SelfReflectionCritic):
    """Writes what went wrong to ``state.metadata["self_reflections"]``, and asks again."""

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> CriticResult:
        said = _error_in(results)
        if said:
            done = ", ".join(map(format_action, getattr(decision, "actions", None) or []))
            said = f"{done or 'The step'} failed: {said}"
            notes = state.metadata.get("self_reflections", [])
            state.metadata["self_reflections"] = [*notes, said]
        return _reflected(state, said, self.max_retries)


@critic
def self_reflection_critic(state: Any, decision: Any, results: list[Any]) -> CriticResult:
    """Asks for another try while results hold an error, at most twice in a run."""
    return _reflected(state, _error_in(results), 2)


@dataclass(eq=False)
class ScoreCritic(Critic):
    """Stops the run when ``state.metrics["score"]`` falls below a threshold; none passes."""

    threshold: float = 0.5

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> CriticResult:
        score = getattr(state, "metrics", {}).get("score")
        if not isinstance(score, (int, float)) or score >= self.threshold:
            return CriticResult(reason="no score below the threshold", score=score)
        return CriticResult("stop", f"score {score} is below {self.threshold}", score)


def _error_in(results: list[Any]) -> str:
    errors = (result.get("error") for result in results if isinstance(result, dict))
    return next((str(error) for error in errors if error), "")


def _reflected(state: Any, said: str, most: int) -> CriticResult:
    if not said:
        return CriticResult(reason="nothing failed")
    retries = state.metadata.get("reflection_retries", 0)
    if retries >= most:
        return CriticResult("stop", f"still failing: {said}", 0.0)
    state.metadata["reflection_retries"] = retries + 1
    patch = f"The last step failed: {said}. Do it differently."
    return CriticResult("retry", said, 0.0, instruction_patch=patch)
