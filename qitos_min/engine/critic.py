"""Critics: the class to subclass, functions as critics, and what they say of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..core._contract import Record
from ._plain import plain

__all__ = ["Critic"]

_ACTIONS = ("continue", "stop", "retry")


@dataclass
class CriticResult(Record):
    """A verdict: go on, stop the run, or try the step again."""

    action: str = "continue"
    reason: str = ""
    score: float | None = 1.0
    details: dict[str, Any] = field(default_factory=dict)
    modified_prompt: str | None = None  # Is the system prompt of the next model call, once.
    instruction_patch: str | None = None  # Is added to the next model call, once.
    state_patch: dict[str, Any] | None = None  # For existing fields of the state, on a retry.

    def to_dict(self) -> dict[str, Any]:
        """The seven fields as strict JSON, detached."""
        return plain({name: getattr(self, name) for name in _NAMES})

    @classmethod
    def from_value(cls, value: Any) -> CriticResult:
        """Return the verdict that a critic meant by what it returned.

        Takes a CriticResult, a mapping of its fields, ``"stop"`` or ``("retry", reason[,
        instruction_patch])``. Raises ``ValueError`` for anything else: it lets no step pass.
        """
        if isinstance(value, (cls, Mapping)):  # The critic may use its own again.
            told: Any = vars(value) if isinstance(value, cls) else value
            result = cls(**{name: told[name] for name in _NAMES if name in told})
        elif isinstance(value, str):
            result = cls(action=value)
        elif isinstance(value, (tuple, list)) and 0 < len(value) < 4:
            result = cls(**dict(zip(("action", "reason", "instruction_patch"), value)))
        else:
            raise ValueError(f"expected a CriticResult, got {type(value).__name__}")
        action = getattr(result.action, "value", result.action)
        result.action = action.strip().lower() if isinstance(action, str) else action
        if result.action not in _ACTIONS:
            raise ValueError(f"unknown critic action {action!r}; known: {', '.join(_ACTIONS)}")
        if not isinstance(result.state_patch, (type(None), Mapping)):
            kind = type(result.state_patch).__name__
            raise ValueError(f"state_patch must be a mapping of fields, got {kind}")
        result.reason = "" if result.reason is None else result.reason
        result.details = {} if result.details is None else result.details
        return result


_NAMES = tuple(f.name for f in fields(CriticResult))


class Critic:
    """Looks at each step after the state took it in."""

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> Any:
        """Return a ``CriticResult`` or a mapping of its fields.

        ``results`` are the outputs of the step's tool calls, in order; a call
        that failed is a dict with tool_name, status, error, error_code and output.
        """
        return CriticResult()


def named(part: Any, *attributes: str, default: str | None = None) -> str:
    """The first of a part's attributes that is a text; else the default, its class's name."""
    for attribute in attributes:
        found = getattr(part, attribute, None)
        if isinstance(found, str) and found:
            return found
    return type(part).__name__ if default is None else default


class _FunctionCritic(Critic):
    def __init__(self, function: Callable[..., Any], name: str, score: float | None) -> None:
        self._function, self._score, self.critic_name = function, score, name
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
