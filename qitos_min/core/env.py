"""The world an agent acts in: what an environment offers, observes and answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from ._contract import Record
from .errors import ErrorCategory, QitosRuntimeError


class EnvCapabilityError(QitosRuntimeError):
    """An environment of that name lacks a group of operations that a tool needs."""

    def __init__(self, env_name: str, group: str) -> None:
        text = f"environment {env_name!r} offers no {group!r} operations"
        super().__init__(text, ErrorCategory.ENV)
        self.env_name, self.group = env_name, group


@dataclass
class EnvSpec(Record):
    """The environment that a task asks for."""

    type: str
    config: dict[str, Any] = field(default_factory=dict)
    required_tools: list[str] = field(default_factory=list)
    capabilities: list[str] = field(default_factory=list)  # Groups of operations that it must have.
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class EnvObservation(Record):
    """What the environment shows the agent."""

    data: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class EnvStepResult(Record):
    """What one step changed in the environment."""

    observation: EnvObservation = field(default_factory=EnvObservation)
    done: bool = False  # True when the environment itself says that the task is over.
    reward: float | None = None
    info: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


class Env(ABC):
    """Base class of environments: a run calls ``setup`` and ``reset``, then in each step
    ``observe``, ``step`` and ``is_terminal``, then ``teardown``; who made it calls ``close``."""

    name: str = "env"
    version: str = "1.0"

    def setup(self, task: Any = None, workspace: str | None = None, **given: Any) -> None:
        """Get ready for a task; the default has nothing to prepare."""

    @abstractmethod
    def reset(self, task: Any = None, workspace: str | None = None, **given: Any) -> EnvObservation:
        """Start a task and return the first observation."""

    @abstractmethod
    def observe(self, state: Any = None) -> EnvObservation:
        """What can be seen now; changes nothing."""

    @abstractmethod
    def step(self, action: Any, state: Any = None) -> EnvStepResult:
        """Take note of one step of the agent and return what came of it."""

    def is_terminal(self, state: Any = None, last_result: EnvStepResult | None = None) -> bool:
        """Whether the task is over; by default what the last step result says."""
        return last_result is not None and last_result.done

    def get_ops(self, group: str) -> Any:
        """The operations of a group such as ``file`` or ``process``, or None."""
        return None

    def has_ops(self, group: str) -> bool:
        """Whether ``get_ops(group)`` gives operations."""
        return self.get_ops(group) is not None

    def close(self) -> None:
        """Give back what the environment holds; may be called twice."""

    def teardown(self) -> None:
        """Undo ``setup``; the default has nothing to undo."""
