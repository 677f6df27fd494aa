"""Functions as critics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .critic import Critic
from .critic_result import CriticResult

__all__ = ["critic"]


class _FunctionCritic(Critic):
    """A function with a critic's name; it stays callable."""

    def __init__(self, function: Callable[..., Any], name: str, score: float | None) -> None:
        self._function, self._score = function, score
        self.critic_name = name
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> CriticResult:
        """The verdict of the function; a ``ValueError`` when it gave none."""
        value = self._function(state, decision, results)
        result = CriticResult.from_value(value)
        scored = isinstance(value, CriticResult) or isinstance(value, dict) and "score" in value
        return result if scored or self._score is None else replace(result, score=self._score)


def critic(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    score: float | None = None,
) -> Any:
    """Make a critic of ``function(state, decision, results)``, with or without parentheses.

    ``name`` is the declared name, the function's own if None; ``score`` is for verdicts that
    have none. The function returns a CriticResult, a dict of its fields, ``"stop"`` or
    ``("retry", reason[, instruction_patch])``. Anything but a function is a ``TypeError``.
    """

    def wrap(inner: Callable[..., Any]) -> _FunctionCritic:
        if isinstance(inner, type) or not callable(inner):
            what = "a class" if isinstance(inner, type) else type(inner).__name__
            raise TypeError(f"@critic needs a function, got {what}")
        own = getattr(inner, "__name__", type(inner).__name__)
        return _FunctionCritic(inner, name or own, score)

    return wrap if function is None else wrap(function)
