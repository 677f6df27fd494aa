"""What an agent wants to happen next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ._contract import Record
from .action import Action

ActionT = TypeVar("ActionT")
_MODES = ("act", "final", "wait", "branch", "handoff")
_Str = str | None
_Meta = dict[str, Any] | None


@dataclass
class Decision(Record, Generic[ActionT]):
    """One step's choice; make it with the factory of its mode."""

    mode: str
    actions: list[Any] = field(default_factory=list)  # A mapping is read by Action.from_dict.
    final_answer: Any = None
    rationale: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    candidates: list[Decision[Any]] = field(default_factory=list)
    target: str | None = None  # Registry name of the agent that a handoff goes to.

    def __post_init__(self) -> None:
        self.actions = [
            Action.from_dict(one) if type(one) is not Action and isinstance(one, Mapping) else one
            for one in self.actions or ()
        ]

    @classmethod
    def act(cls, actions: Any, rationale: _Str = None, meta: _Meta = None) -> Decision[Any]:
        """Call tools: a list of actions, or a single one."""
        actions = list(actions) if isinstance(actions, (list, tuple)) else [actions]
        return cls("act", actions=actions, rationale=rationale, meta=meta or {})

    @classmethod
    def final(cls, answer: Any = None, rationale: _Str = None, meta: _Meta = None) -> Decision[Any]:
        """End the run with an answer."""
        return cls("final", final_answer=answer, rationale=rationale, meta=meta or {})

    @classmethod
    def wait(cls, rationale: _Str = None, meta: _Meta = None) -> Decision[Any]:
        """Do nothing in this step."""
        return cls("wait", rationale=rationale, meta=meta or {})

    @classmethod
    def branch(cls, candidates: Any, rationale: _Str = None, meta: _Meta = None) -> Decision[Any]:
        """Offer several decisions; the engine takes the first, or its search picks."""
        return cls("branch", candidates=list(candidates), rationale=rationale, meta=meta or {})

    @classmethod
    def handoff(cls, target: str, rationale: _Str = None, meta: _Meta = None) -> Decision[Any]:
        """Give the run to the agent registered under a name."""
        return cls("handoff", target=target, rationale=rationale, meta=meta or {})

    def validate(self) -> None:
        """Raise ``ValueError`` naming what the mode lacks."""
        if self.mode not in _MODES:
            raise ValueError(f"unknown decision mode {self.mode!r}; known: {', '.join(_MODES)}")
        for action in self.actions:
            if not isinstance(action, Action):
                raise ValueError(f"expected an Action, got {type(action).__name__}")
        if self.mode == "act" and not self.actions:
            raise ValueError("a decision to act needs at least one action")
        if self.mode == "branch" and not self.candidates:
            raise ValueError("a decision to branch needs at least one candidate")
        if self.mode == "handoff" and not self.target:
            raise ValueError("a decision to hand off needs the name of an agent")
