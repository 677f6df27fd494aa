"""Agents that work together, and what passes between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from ._contract import Record, check_count

SourceT = TypeVar("SourceT")
TargetT = TypeVar("TargetT")


class ContextStrategy(str, Enum):
    """How much of the conversation the next agent sees."""

    FULL = "full"
    SUMMARY = "summary"
    ISOLATED = "isolated"

    @classmethod
    def _missing_(cls, value: object) -> ContextStrategy | None:
        # Events, traces and payloads write the names, in upper case.
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


@dataclass
class HandoffContext(Record):
    """What goes along with a handoff."""

    strategy: ContextStrategy = ContextStrategy.SUMMARY
    payload: dict[str, Any] = field(default_factory=dict)  # Into ``state.metadata["handoff"]``.
    # If any: the next agent begins with its own state and only these fields.
    shared_state_fields: list[str] = field(default_factory=list)
    max_history_rounds: int | None = None  # At most this many rounds, after the strategy.

    def __post_init__(self) -> None:
        self.strategy = ContextStrategy(self.strategy)
        if isinstance(names := self.shared_state_fields, str):
            raise TypeError(f"shared_state_fields must be a list of names, got {names!r}")
        check_count(self.max_history_rounds, "max_history_rounds", least=0, optional=True)


class StateAdapter(Generic[SourceT, TargetT]):
    """Turns the state of one agent into that of the next."""

    def adapt(self, source: Any) -> Any:
        """Return the next agent's state, or None if that is the source, changed in place."""
        return source


@dataclass
class AgentSpec:
    """An agent under a name that others hand off or delegate to."""

    name: str
    description: str
    agent: Any
    context_strategy: ContextStrategy = ContextStrategy.SUMMARY
    max_steps_override: int | None = None  # Steps after a handoff, within the run's own budget.
    shared_env: bool = True
    state_adapter: StateAdapter[Any, Any] | None = None
    handoff_context: HandoffContext | None = None  # Wins over ``context_strategy``.
    shared_memory: Any = None
    model_override: Any = None  # The model it uses here instead of its own.
    tools_override: Any = None  # The tool registry it uses here instead of its own.
    tool_name: str | None = None  # Name of its handoff tool; ``transfer_to_<name>`` if None.

    def __post_init__(self) -> None:
        self.context_strategy = ContextStrategy(self.context_strategy)
        check_count(self.max_steps_override, "max_steps_override", least=1, optional=True)

    @property
    def handoff_tool_name(self) -> str:
        """The tool by which a model hands off to this agent, as a legal tool name."""
        return re.sub(r"[^A-Za-z0-9_.-]", "_", self.tool_name or f"transfer_to_{self.name}")[:64]

    @property
    def context(self) -> HandoffContext:
        """The context of a handoff to this agent."""
        return self.handoff_context or HandoffContext(self.context_strategy)


class AgentRegistry:
    """Agent specs by name, in order of registration."""

    def __init__(self) -> None:
        self._specs: dict[str, AgentSpec] = {}

    def register(self, spec: AgentSpec) -> AgentRegistry:
        """Add an ``AgentSpec``; ``ValueError`` for no name, or a name or tool that is taken."""
        if not isinstance(spec, AgentSpec):
            raise TypeError(f"expected an AgentSpec, got {type(spec).__name__}")
        name, shared = spec.name, spec.handoff_tool_name
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"an agent spec needs a name, got {name!r}")
        if name in self._specs:
            raise ValueError(f"an agent named {name!r} is registered already")
        if taken := [repr(other.name) for other in self if other.handoff_tool_name == shared]:
            both = f"{taken[0]} and {name!r}"
            raise ValueError(f"agents {both} would share the handoff tool {shared!r}")
        self._specs[name] = spec
        return self

    def get(self, name: str) -> AgentSpec | None:
        """Return the spec of a name, or None."""
        return self._specs.get(name)

    def resolve(self, name: str) -> AgentSpec:
        """Return the spec of a name; an unknown one is a ``KeyError`` that lists all."""
        if name not in self._specs:
            known = ", ".join(self._specs) or "none"
            raise KeyError(f"no agent is registered as {name!r}; registered: {known}")
        return self._specs[name]

    def list_available(self) -> list[AgentSpec]:
        """Return the specs in order of registration."""
        return list(self)

    def spec_of(self, agent: Any) -> AgentSpec | None:
        """Return the first spec of an agent object, or None."""
        return next((spec for spec in self if spec.agent is agent), None)

    def get_delegate_tools(self) -> list[Any]:
        """Return a ``delegate_to_<name>`` tool for each agent."""
        from ..engine.delegate import DelegateTool  # Upward, so not at module level.

        return [DelegateTool(spec) for spec in self]

    def get_handoff_tools(self) -> list[Any]:
        """Return a ``transfer_to_<name>`` tool for each agent."""
        from ..engine._handoff import TransferTool

        return [TransferTool(spec) for spec in self]

    def get_fanout_tool(self) -> Any:
        """Return the tool that gives tasks to several agents."""
        from ..engine.delegate import FanoutTool

        return FanoutTool(self)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __len__(self) -> int:
        return len(self._specs)

    def __iter__(self) -> Iterator[AgentSpec]:
        return iter(self._specs.values())
