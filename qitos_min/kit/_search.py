"""Searches over the candidates of a branch, by the scores that they bring along."""

from __future__ import annotations

from typing import Any

from ..core.decision import Decision
from ..engine.search import Search

__all__ = ["DynamicTreeSearch", "GreedySearch"]


class GreedySearch(Search[Any, Any, Any]):
    """Takes the best candidate: by ``meta["score"]``, else the earlier one.

    ``top_k`` is how many are kept for the choice; None keeps all.
    """

    score_key = "score"

    def __init__(self, top_k: int | None = None) -> None:
        self.top_k = top_k

    def score(self, state: Any, obs: Any, candidates: list[Decision]) -> list[float]:
        """``meta[score_key]`` where it is a number, else more for the earlier ones."""
        given = [one.meta.get(self.score_key) for one in candidates]
        return [
            float(value if isinstance(value, (int, float)) else len(given) - index)
            for index, value in enumerate(given)
        ]

    def prune(self, candidates: list[Decision], scores: list[float]) -> list[Decision]:
        """The ``top_k`` best, the best first."""
        return self._ranked(candidates, scores)[: self.top_k]

    @staticmethod
    def _ranked(candidates: list[Decision], scores: list[float]) -> list[Decision]:
        order = sorted(range(len(candidates)), key=lambda index: -scores[index])
        return [candidates[index] for index in order]


class DynamicTreeSearch(GreedySearch):
    """Keeps what it did not choose as candidates of later branches.

    ``max_frontier`` bounds what is kept. ``exploration_bonus`` is added to a candidate's
    score, divided by one more than the times it was chosen, which
    ``state.metadata["tree_visits"]`` counts by ``meta["id"]`` when ``mark_selected`` is called.
    """

    def __init__(
        self,
        top_k: int = 3,
        max_frontier: int = 64,
        score_key: str = "score",
        exploration_bonus: float = 0.25,
    ) -> None:
        super().__init__(top_k)
        self.max_frontier = max_frontier
        self.score_key = score_key
        self.exploration_bonus = exploration_bonus
        self._frontier: list[Decision] = []

    def expand(self, state: Any, obs: Any, seed_decision: Decision) -> list[Decision]:
        """What was kept, and the candidates of this branch."""
        kept, self._frontier = self._frontier, []
        return [*kept, *seed_decision.candidates]

    def score(self, state: Any, obs: Any, candidates: list[Decision]) -> list[float]:
        """The candidates' own scores with the bonus for what was chosen less often."""
        visits = getattr(state, "metadata", {}).get("tree_visits", {})
        return [
            own + self.exploration_bonus / (1 + visits.get(one.meta.get("id"), 0))
            for own, one in zip(super().score(state, obs, candidates), candidates)
        ]

    def prune(self, candidates: list[Decision], scores: list[float]) -> list[Decision]:
        """The ``top_k`` best; the others wait for a later branch."""
        ranked = self._ranked(candidates, scores)
        self._frontier = ranked[self.top_k :][: self.max_frontier]
        return ranked[: self.top_k]

    def mark_selected(self, state: Any, selected: Decision) -> None:
        """Count a choice in ``state.metadata["tree_visits"]``."""
        visits = state.metadata.setdefault("tree_visits", {})
        own = selected.meta.get("id")
        visits[own] = visits.get(own, 0) + 1
