"""For agents that plan: lines for prompts, logs in a state, lists of steps, searches."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ..core import Action, Decision
from ..engine._replies import read_reply
from ..engine.search import Search

_NUMBERED = re.compile(r"^[ \t]*\d+[.)][ \t]+(.*\S)", re.MULTILINE)


def format_action(action: Any) -> str:
    """An ``Action``, or a dict that stands for one, as ``name(key=value, ...)``."""
    if not isinstance(action, (Action, dict)):
        return str(action)
    name = action.get("name") or action.get("tool") or action.get("action") or ""
    args = action.get("args") or action.get("arguments") or {}
    if isinstance(args, dict):
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"
    return f"{name}({args!r})"


def append_log(state: Any, field: str, item: str, max_items: int | None = None) -> None:
    """Append to a list field of a state, which is made if need be; keep the last items."""
    log = [*(getattr(state, field, None) or []), item]
    setattr(state, field, log if max_items is None else log[max(len(log) - max_items, 0) :])


def set_final(state: Any, value: str) -> None:
    """Set ``state.final_result``."""
    state.final_result = value


def parse_numbered_plan(text: str) -> list[str]:
    """The texts of the lines that begin with ``1.`` or ``1)``, in their order."""
    return [match[1].strip() for match in _NUMBERED.finditer(text)]


@dataclass(frozen=True)
class PlanCursor:
    """Walks a plan in a state: a list field, and the index of the current item."""

    plan_field: str = "plan"
    cursor_field: str = "plan_cursor"

    def init(self, state: Any, plan: list[str]) -> None:
        setattr(state, self.plan_field, list(plan))
        setattr(state, self.cursor_field, 0)

    def current(self, state: Any) -> str | None:
        """The item to be done now; None without one."""
        plan, at = getattr(state, self.plan_field, None) or [], getattr(state, self.cursor_field, 0)
        return plan[at] if 0 <= at < len(plan) else None

    def advance(self, state: Any) -> None:
        setattr(state, self.cursor_field, getattr(state, self.cursor_field, 0) + 1)

    def done(self, state: Any) -> bool:
        return self.current(state) is None


@dataclass(frozen=True)
class NumberedPlanBuilder:
    """Asks a model for a plan of numbered lines."""

    system_prompt: str = "Write a plan as numbered lines, one step each, and nothing else."

    def build(self, llm: Any, prompt: str, extra_messages: list[Any] | None = None) -> list[str]:
        """The steps that ``llm`` answers ``prompt`` with; an empty list without any."""
        system = {"role": "system", "content": self.system_prompt}
        asked = [system, *(extra_messages or []), {"role": "user", "content": prompt}]
        return parse_numbered_plan(read_reply(llm(asked)).text)


@dataclass(eq=False)
class DynamicTreeSearch(Search[Any, Any, Any]):
    """Takes the best candidate, and keeps what it did not choose for later branches.

    A score is ``meta[score_key]``, else more for the earlier ones, and ``exploration_bonus`` by one
    more than the visits. ``top_k`` are kept for the choice; of the others ``max_frontier`` wait.
    """

    top_k: int = 3
    max_frontier: int = 64
    score_key: str = "score"
    exploration_bonus: float = 0.25
    _frontier: list[Decision] = field(default_factory=list, init=False)

    def expand(self, state: Any, obs: Any, seed_decision: Decision) -> list[Decision]:
        kept, self._frontier = self._frontier, []
        return [*kept, *seed_decision.candidates]

    def score(self, state: Any, obs: Any, candidates: list[Decision]) -> list[float]:
        visits, scores = getattr(state, "metadata", {}).get("tree_visits", {}), []
        for index, one in enumerate(candidates):
            own = one.meta.get(self.score_key)
            own = own if isinstance(own, (int, float)) else len(candidates) - index
            scores.append(own + self.exploration_bonus / (1 + visits.get(one.meta.get("id"), 0)))
        return scores

    def prune(self, candidates: list[Decision], scores: list[float]) -> list[Decision]:
        ranked = [one for _, one in sorted(zip(scores, candidates), key=lambda pair: -pair[0])]
        self._frontier = ranked[self.top_k :][: self.max_frontier]
        return ranked[: self.top_k]

    def mark_selected(self, state: Any, selected: Decision) -> None:
        """Count a choice in ``state.metadata["tree_visits"]``, by ``meta["id"]``."""
        visits, own = state.metadata.setdefault("tree_visits", {}), selected.meta.get("id")
        visits[own] = visits.get(own, 0) + 1
