"""How a run chooses among the candidates of a branch."""

from __future__ import annotations

from typing import Any, Generic

from ..core.agent_module import ObservationT, StateT
from ..core.decision import ActionT, Decision

__all__ = ["Search"]


class Search(Generic[StateT, ObservationT, ActionT]):
    """The stages of a choice, called in this order for each branch; all may be overridden.

    As they stand here they take every candidate, score all alike and choose the first.
    """

    def expand(self, state: Any, obs: Any, seed_decision: Decision) -> list[Decision]:
        """The candidates to choose among."""
        return list(seed_decision.candidates)

    def score(self, state: Any, obs: Any, candidates: list[Decision]) -> list[float]:
        """A score for each candidate, in their order; more is better."""
        return [0.0] * len(candidates)

    def prune(self, candidates: list[Decision], scores: list[float]) -> list[Decision]:
        """The candidates worth keeping; those are scored once more."""
        return candidates

    def select(self, candidates: list[Decision], scores: list[float]) -> Decision:
        """The one to go on with."""
        return candidates[scores.index(max(scores))]

    def backtrack(self, state: Any) -> Any:
        """The state to go back to when no candidate is left."""
        return state
