"""The class that agents subclass."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from .decision import Decision
from .task import Task
from .tool_registry import ToolRegistry

__all__ = ["AgentModule"]


class AgentModule(ABC):
    """An agent: how it begins, decides and takes in what happened.

    ``name`` may be a class or instance attribute, or a keyword; it is the
    class's name otherwise. Keywords that are not named here are kept in
    ``config``.
    """

    name: str | None = None

    def __init__(
        self,
        tool_registry: Any = None,
        toolset: Any = None,
        llm: Any = None,
        model_parser: Any = None,
        model_protocol: Any = None,
        history: Any = None,
        **config: Any,
    ) -> None:
        self.tool_registry = ToolRegistry() if tool_registry is None else tool_registry
        if toolset is not None:
            many = toolset if isinstance(toolset, (list, tuple)) else [toolset]
            for item in many:
                self.tool_registry.include(item)
        self.toolset = toolset
        self.llm = llm
        self.model_parser = model_parser
        self.model_protocol = model_protocol
        self.history = history
        self.config = config
        if config.get("name") or not self.name:
            self.name = config.get("name") or type(self).__name__

    @abstractmethod
    def init_state(self, task: str, **kwargs: Any) -> Any:
        """Return the state a run of this task begins with."""

    @abstractmethod
    def reduce(self, state: Any, observation: Any, decision: Decision) -> Any:
        """Return the state after a step: the same one changed, or a new one."""

    def decide(self, state: Any, observation: Any) -> Decision | None:
        """Return what to do next, or None to let the model decide."""
        return None

    def should_stop(self, state: Any) -> bool:
        """Whether the run is to end after this step."""
        return False

    def prepare(self, state: Any) -> str:
        """Return the text that shows the state to the model."""
        return f"Task: {getattr(state, 'task', '')}"

    def build_system_prompt(self, state: Any) -> str | None:
        """Return the model's instructions, or None for none."""
        return None

    def build_engine(self, **engine_kwargs: Any) -> Any:
        """Return an ``Engine`` that runs this agent."""
        from ..engine.engine import Engine  # Upward, so not at module level.

        return Engine(self, **engine_kwargs)

    def run(
        self,
        task: str | Task,
        return_state: bool = False,
        *,
        max_steps: int | None = None,
        workspace: str | None = None,
        engine_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Run a task and return its answer, or the result with ``return_state``.

        ``max_steps`` is the budget's, and is told to an ``init_state`` that takes
        it. ``workspace`` is a folder that becomes the run's environment. Options
        that ``Engine`` has (critics, stop_criteria, env, hooks, trace_writer …)
        go to it; others go to ``init_state``. Writes no files and prints nothing;
        a failed run has no answer and is logged as ``Engine.run`` does.
        """
        from ..engine.engine import Engine  # Upward, as above.
        from ..engine.states import RuntimeBudget

        settings = dict(engine_kwargs or {})
        for name in inspect.signature(Engine).parameters:
            if name in options:
                settings[name] = options.pop(name)
        if max_steps is not None:
            budget = settings.get("budget") or RuntimeBudget()
            settings["budget"] = replace(budget, max_steps=max_steps)
            if _takes(self.init_state, "max_steps"):
                options["max_steps"] = max_steps
        if workspace is not None and settings.get("env") is None:
            from ..kit.env import HostEnv  # Only here it is needed.

            settings["env"] = HostEnv(workspace)
        result = self.build_engine(**settings).run(task, **options)
        return result if return_state else result.final_result


def _takes(function: Any, name: str) -> bool:
    """Whether a function can be called with a keyword of that name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )
