"""What a run may use, and what is left of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from ..core.errors import StopReason
from ..core.task import Task, TaskBudget
from ._recording import Recording
from .states import RuntimeBudget


class Budgeted(Recording):
    """A run's budget, and what a delegating run around it has left."""

    seat: Any

    def __init__(self, engine: Any, task: str | Task, state: Any) -> None:
        super().__init__(engine, state)
        self.budget = effective_budget(engine.budget, task)
        self.parent: Budgeted | None = engine.parent
        """The run that delegated this one."""
        self._tokens, self._purse = 0, threading.Lock()

    def exhausted(self) -> StopReason | None:
        """The limit that is used up, if any."""
        for reason, used, most in self._limits():
            if most is not None and used >= most:
                return reason
        # What runs beside this one, within the same parent, spends the same tokens.
        within, tokens = self.parent, StopReason.BUDGET_TOKENS
        return tokens if within is not None and within.left(tokens) == 0 else None

    def _limits(self) -> tuple[tuple[StopReason, float, float | None], ...]:
        """Each limit: its stop reason, what is used of it, and how much may be."""
        steps, budget = len(self.records), self.budget
        return (
            (StopReason.BUDGET_STEPS, steps, budget.max_steps),
            (StopReason.BUDGET_STEPS, steps, self.seat.last_step),
            (StopReason.MAX_STEPS, steps, own_limit(self.state)),
            (StopReason.BUDGET_TIME, self.elapsed(), budget.max_runtime_seconds),
            (StopReason.BUDGET_TOKENS, self._tokens, budget.max_tokens),
        )

    def left(self, *reasons: StopReason) -> float | None:
        """What is left until a run ends for one of the reasons, at least 0; None: no limit.

        Tokens are bounded by the runs around it too, which are charged for them.
        """
        found = [
            max(most - used, 0)
            for reason, used, most in self._limits()
            if reason in reasons and most is not None
        ]
        if self.parent is not None and StopReason.BUDGET_TOKENS in reasons:
            around = self.parent.left(StopReason.BUDGET_TOKENS)
            found += [] if around is None else [around]
        return min(found, default=None)

    def time_left(self) -> float | None:
        """Seconds until the run's time is used up; None without a limit."""
        return self.left(StopReason.BUDGET_TIME)

    @property
    def total_tokens(self) -> int:
        """Tokens that this run used, its delegates' included as they use them."""
        return self._tokens

    def charge(self, tokens: int) -> None:
        """Count tokens that were used, here and in the runs around this one."""
        with self._purse:  # Delegates may run side by side.
            self._tokens += tokens
        if self.parent is not None:
            self.parent.charge(tokens)


def effective_budget(budget: RuntimeBudget, task: str | Task) -> RuntimeBudget:
    """The engine's budget with what a task overrides, in a copy."""
    own = task.budget if isinstance(task, Task) else None
    given = vars(own) if isinstance(own, TaskBudget) else {}
    return replace(budget, **{k: v for k, v in given.items() if v is not None})


def own_limit(state: Any) -> int | None:
    """The step limit that a state sets itself.

    ``StateSchema``'s default says nothing: a larger budget would be cut to it.
    """
    limit = getattr(state, "max_steps", None)
    return limit if isinstance(limit, int) and limit != 10 else None
