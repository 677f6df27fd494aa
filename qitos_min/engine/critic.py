"""The class that critics subclass."""

from __future__ import annotations

from typing import Any

from .critic_result import CriticResult

__all__ = ["Critic"]


class Critic:
    """Looks at each step after the state took it in."""

    def evaluate(self, state: Any, decision: Any, results: list[Any]) -> Any:
        """Return a ``CriticResult`` or a mapping of its fields.

        ``results`` are the outputs of the step's tool calls, in order; a call
        that failed is a dict with tool_name, status, error, error_code and output.
        """
        return CriticResult()


def critic_name(critic: Any) -> str:
    """The declared name: what ``@critic`` was given, else the class's name."""
    name = getattr(critic, "critic_name", None)
    return name if isinstance(name, str) and name else type(critic).__name__
