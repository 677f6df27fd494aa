"""What a run is composed of besides the agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.action import ActionExecutionPolicy
from .states import RuntimeEvent

__all__ = ["RuntimeComposition"]


@dataclass(frozen=True, kw_only=True)
class RuntimeComposition:
    """The parts that an engine takes as one: ``Engine(agent, runtime=...)``."""

    checkpoint_store: Any = None
    """Keeps the state after each step."""
    action_execution_policy: ActionExecutionPolicy | None = None
    """How the actions of one decision are run; None leaves it to the engine."""
    event_sink: Callable[[RuntimeEvent], None] | None = None
    """Is given every event of the run when it happens."""
    artifact_resolver: Any = None
    """Stores and resolves artifacts, such as ``kit.artifact.FileArtifactStore``."""
