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

    checkpoint_store: Any = None  # Keeps the state after each step.
    action_execution_policy: ActionExecutionPolicy | None = None  # The engine's own if None.
    event_sink: Callable[[RuntimeEvent], None] | None = None  # Hears every event as it happens.
    artifact_resolver: Any = None  # Such as ``kit.artifact.FileArtifactStore``.
