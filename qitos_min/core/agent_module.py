"""The class that agents subclass."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from .decision import ActionT
from .task import Task
from .tool_registry import ToolRegistry

StateT = TypeVar("StateT")
ObservationT = TypeVar("ObservationT")


class AgentModule(ABC, Generic[StateT, ObservationT, ActionT]):
    """An agent: how it begins, decides and takes in; other keywords are its ``config``."""

    name: str | None = None  # An attribute or a keyword, else the class's name.

    def __init__(
        self,
        tool_registry: Any = None,
        toolset: Any = None,
        llm: Any = None,
        model_parser: Any = None,
        model_protocol: Any = None,
        memory: Any = None,
        history: Any = None,
        **config: Any,
    ) -> None:
        self.tool_registry = ToolRegistry() if tool_registry is None else tool_registry
        if toolset is not None:
            self.tool_registry.include(toolset)
        self.toolset, self.llm, self.config = toolset, llm, config
        self.model_parser, self.model_protocol = model_parser, model_protocol
        self.memory, self.history = memory, history
        if config.get("name") or not self.name:
            self.name = config.get("name") or type(self).__name__

    @abstractmethod
    def init_state(self, task: str, **kwargs: Any) -> Any:
        """Return the state a run of this task begins with."""

    @abstractmethod
    def reduce(self, state: Any, observation: Any, decision: Any) -> Any:
        """Return the state after a step: the same one changed, or a new one."""

    def decide(self, state: Any, observation: Any) -> Any:
        """Return what to do next, or None to let the model decide."""
        return None

    def should_stop(self, state: Any) -> bool:
        """Whether the run is to end after this step."""
        return False

    def prepare(self, state: Any) -> str:
        """Return the text that shows the state to the model."""
        return f"Task: {getattr(state, 'task', '')}"

    def build_system_prompt(self, state: Any) -> str | None:
        """Return the model's instructions, or None; by default the texts of the hooks below."""
        hooks = [self.base_persona_prompt, self.task_policy_prompt]
        hooks += [self.tool_usage_hint_prompt, self.extra_instructions_prompt]
        return "\n\n".join(text for hook in hooks if (text := hook(state))) or None

    def base_persona_prompt(self, state: Any) -> str:
        """Return who the model is to be."""
        return ""

    def task_policy_prompt(self, state: Any) -> str:
        """Return how it is to go about its task."""
        return ""

    def tool_usage_hint_prompt(self, state: Any) -> str:
        """Return what it should know about its tools."""
        return ""

    def extra_instructions_prompt(self, state: Any) -> str:
        """Return what else it should know."""
        return ""

    def compose_system_prompt(self, base_prompt: str, protocol: Any = None) -> str:
        """Return what is sent of a prompt; the engine itself adds tools and protocol."""
        return base_prompt

    def render_tool_schema(self, protocol: Any = None) -> str:
        """Return the agent's tools as text for a prompt."""
        return str(self.tool_registry.render_tool_schema(protocol))

    def build_engine(self, **engine_kwargs: Any) -> Any:
        """Return an ``Engine`` that runs this agent."""
        from ..engine.engine import Engine  # Upward, so not at module level.

        return Engine(self, **engine_kwargs)

    def run(
        self,
        task: str | Task,
        return_state: bool = False,
        hooks: list[Any] | None = None,
        render_hooks: list[Any] | None = None,
        engine_kwargs: dict[str, Any] | None = None,
        workspace: str | None = None,
        max_steps: int | None = None,
        env: Any = None,
        parser: Any = None,
        protocol: Any = None,
        search: Any = None,
        critics: list[Any] | None = None,
        stop_criteria: list[Any] | None = None,
        history_policy: Any = None,
        context_config: Any = None,
        trace: Any = None,
        render: Any = None,
        trace_logdir: str = "./runs",
        trace_prefix: str | None = None,
        theme: str = "research",
        run_spec: Any = None,
        experiment_spec: Any = None,
        memory: Any = None,
        **state_kwargs: Any,
    ) -> Any:
        """Run a task and return its answer (None if it failed); with ``return_state`` the result.

        ``workspace`` is a folder that becomes the environment; it is made if need be. ``trace`` is
        a writer, or True for a new folder below ``trace_logdir``, as with ``run_spec`` or
        ``experiment_spec``. ``render=True`` prints the run. Others go to ``init_state``.
        """
        options = locals()
        kept = getattr(self, "memory", None)
        self.memory = kept if memory is None else memory
        try:
            result = self.build_engine(**_engine_settings(self, options)).run(task, **state_kwargs)
        finally:
            self.memory = kept
        return result if return_state else result.final_result


def _engine_settings(agent: AgentModule[Any, Any, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What the options of ``run`` are to ``Engine``; takes its own out of state_kwargs."""
    from ..engine import Engine, RuntimeBudget
    from ..engine.hooks import taken
    from .spec import ExperimentSpec, RunSpec

    others, max_steps = given["state_kwargs"], given["max_steps"]
    names, own = (inspect.signature(f).parameters for f in (Engine, agent.init_state))
    settings = {name: given[name] for name in names if given.get(name) is not None}
    settings |= given["engine_kwargs"] or {}
    settings |= {name: others.pop(name) for name in names if name in others and name not in own}
    kinds: Any = (("run_spec", RunSpec), ("experiment_spec", ExperimentSpec))
    specs = {n: kind.from_value(given[n]).to_dict() for n, kind in kinds if given[n] is not None}
    trace, render = given["trace"], given["render"]
    if trace is True or (specs and trace is None):
        from ..trace.writer import TraceWriter

        own_name = "".join(c if c.isalnum() or c in "_-" else "_" for c in str(agent.name))
        folder = f"{given['trace_prefix'] or own_name}_{datetime.now():%Y%m%d_%H%M%S_%f}"
        settings["trace_writer"] = TraceWriter(given["trace_logdir"], folder, metadata=specs)
    elif trace:
        settings["trace_writer"] = trace
    if render:
        from ..render import ClaudeStyleHook

        shown = ClaudeStyleHook(theme=given["theme"]) if render is True else render
        shown = shown if isinstance(shown, (list, tuple)) else [shown]
        settings["render_hooks"] = [*settings.get("render_hooks", ()), *shown]
    if max_steps is not None:
        settings["budget"] = replace(settings.get("budget") or RuntimeBudget(), max_steps=max_steps)
        if taken(agent.init_state, ["max_steps"]):
            others["max_steps"] = max_steps
    if (workspace := given["workspace"]) is not None:
        Path(workspace).mkdir(parents=True, exist_ok=True)
        if settings.get("env") is None:
            from ..kit.env import HostEnv

            settings["env"] = HostEnv(workspace)
    return settings
