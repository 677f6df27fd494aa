"""What a run is asked to do, and how it went."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ._contract import Record, check_count, check_seconds
from .env import EnvSpec


@dataclass
class TaskBudget(Record):
    """Limits that a task sets for its own run; None leaves the engine's."""

    max_steps: int | None = None
    max_runtime_seconds: float | None = None
    max_tokens: int | None = None


@dataclass
class TaskResource(Record):
    """A file, folder or address that a task brings along."""

    kind: str
    path: str | None = None
    uri: str | None = None
    mount_to: str | None = None
    required: bool = True
    description: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Task(Record):
    """A task with more to it than its text."""

    id: str
    objective: str
    inputs: dict[str, Any] = field(default_factory=dict)
    resources: list[TaskResource] = field(default_factory=list)
    env_spec: EnvSpec | None = None
    constraints: dict[str, Any] = field(default_factory=dict)
    success_criteria: list[str] = field(default_factory=list)
    budget: TaskBudget = field(default_factory=TaskBudget)
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, payload: dict[str, Any]) -> Task:
        """Return the task that ``to_dict`` wrote; unknown keys are a ValueError."""
        if unknown := sorted(set(payload) - {f.name for f in fields(cls)}):
            raise ValueError(f"unknown task field {unknown[0]!r}")
        values = dict(payload)
        values["budget"] = TaskBudget(**(values.get("budget") or {}))
        values["resources"] = [TaskResource(**r) for r in values.get("resources") or ()]
        if isinstance(values.get("env_spec"), dict):
            values["env_spec"] = EnvSpec(**values["env_spec"])
        return cls(**values)

    def validate(self) -> None:
        """Raise ``ValueError`` when there is nothing to do, or for a bad budget."""
        for name, value in (("id", self.id), ("objective", self.objective)):
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"a task needs a text {name!r}, got {value!r}")
        if self.budget is not None:
            check_limits(self.budget)


@dataclass
class TaskResult(Record):
    """How a task's run went."""

    task_id: str
    success: bool  # Whether the stop reason is success, final or env_terminal.
    stop_reason: str | None
    final_result: Any
    criteria: list[Any] = field(default_factory=list)
    artifacts: list[Any] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


def check_limits(budget: Any) -> None:
    """Raise ``ValueError`` for the first limit that is neither None nor a number >= 0."""
    check_count(budget.max_steps, "max_steps", least=0, optional=True)
    check_count(budget.max_tokens, "max_tokens", least=0, optional=True)
    check_seconds(budget.max_runtime_seconds, "max_runtime_seconds", optional=True)
