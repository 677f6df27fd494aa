"""The engine: an agent with all that a run of it needs."""

from __future__ import annotations

from typing import Any

from ..core.action import ActionExecutionPolicy
from ..core.agent_spec import AgentRegistry, AgentSpec
from ..core.task import Task
from ..core.tool_registry import ToolRegistry
from ._protocols import Protocol, resolve_protocol
from ._result import EngineResult, StepSummary
from ._run import Seat
from ._session import EngineSession
from ._transfer import TransferTool
from .cancellation import CancelMode, CancelToken
from .critic import critic_name
from .states import ContextConfig, EngineConfig, RuntimeBudget
from .stop_criteria import FinalResultCriteria

__all__ = ["Engine", "EngineResult", "StepSummary"]

_AGENT_METHODS = ("init_state", "decide", "reduce")


class Engine:
    """Runs an agent: decides, acts, reduces, judges and stops, step by step.

    Nothing of a run stays on the engine but ``last_result``, so that it can run
    again. Raises ``TypeError`` or ``ValueError`` naming the argument for parts
    that cannot work.
    """

    max_handoffs = 10
    """Handoffs in one run; one more is a failure."""

    def __init__(
        self,
        agent: Any,
        *,
        tool_registry: ToolRegistry | None = None,
        budget: RuntimeBudget | None = None,
        critics: list[Any] | None = None,
        stop_criteria: list[Any] | None = None,
        agent_registry: AgentRegistry | None = None,
        env: Any = None,
        hooks: list[Any] | None = None,
        delegate_depth: int = 0,
        shared_memory: Any = None,
        protocol: str | Protocol | None = None,
        parser: Any = None,
        history: Any = None,
        checkpoint_store: Any = None,
        tracing_provider: Any = None,
        trace_writer: Any = None,
        recovery_policy: Any = None,
        context_config: ContextConfig | None = None,
        action_execution_policy: ActionExecutionPolicy | None = None,
        approval_callback: Any = None,
        auto_approve: bool = False,
        runtime: Any = None,
    ) -> None:
        self.agent = _checked_agent(agent)
        registry = tool_registry
        if registry is None:
            registry = getattr(agent, "tool_registry", None)
        self.tool_registry = ToolRegistry() if registry is None else registry
        if not isinstance(self.tool_registry, ToolRegistry):
            raise TypeError(
                f"tool_registry must be a ToolRegistry, got {type(registry).__name__}"
            )
        self.budget = RuntimeBudget() if budget is None else budget
        self.critics = _checked_parts("critics", critics, "evaluate")
        if stop_criteria is None:
            stop_criteria = [FinalResultCriteria()]
        self.stop_criteria = _checked_parts("stop_criteria", stop_criteria, "should_stop")
        self.agent_registry = agent_registry
        self.env = env
        self.hooks = list(hooks or ())
        self.delegate_depth = delegate_depth
        self.shared_memory = shared_memory
        self.protocol = protocol
        self.parser = parser or getattr(agent, "model_parser", None)
        self.history = history if history is not None else getattr(agent, "history", None)
        self.checkpoint_store = checkpoint_store or getattr(runtime, "checkpoint_store", None)
        self.tracing_provider = tracing_provider
        self.trace_writer = trace_writer
        self.recovery_policy = recovery_policy
        self.context_config = context_config or ContextConfig()
        self.action_policy = (
            action_execution_policy
            or getattr(runtime, "action_execution_policy", None)
            or ActionExecutionPolicy()
        )
        self.approval_callback = approval_callback
        self.auto_approve = auto_approve
        self.runtime = runtime
        self.last_result: EngineResult | None = None
        """Result of the latest run, also of one that Ctrl-C ended."""
        self._token = CancelToken()
        self._entry_protocol = self._protocol_of(agent)

    def run(self, task: str | Task, **state_kwargs: Any) -> EngineResult:
        """Run a task and return the result, whatever happens on the way.

        ``state_kwargs`` go to the agent's ``init_state``; what that raises is
        raised here, for nothing has started yet. After that only
        ``KeyboardInterrupt`` comes out, with the result on ``last_result``.
        """
        return self.session(task, **state_kwargs).run()

    def session(self, task: str | Task, **state_kwargs: Any) -> EngineSession:
        """Return a run that has not begun, to be taken step by step."""
        return EngineSession(self, task, state_kwargs)

    def cancel(self, mode: CancelMode | str = CancelMode.IMMEDIATE) -> None:
        """Stop the run under way, or the next one if there is none; any thread may."""
        self._token.cancel(mode)

    def take_token(self, used: CancelToken | None = None) -> CancelToken:
        """Return the token of a run that begins, or put a used one aside."""
        if used is self._token and used.mode is not None:
            self._token = CancelToken()
        return self._token

    def register_hook(self, hook: Any) -> None:
        """Add a hook for runs that begin later."""
        self.hooks.append(hook)

    def unregister_hook(self, hook: Any) -> None:
        """Remove a hook; one that is not there is a ``ValueError``."""
        self.hooks.remove(hook)

    def clear_hooks(self) -> None:
        """Remove every hook."""
        self.hooks.clear()

    def export_config(self) -> EngineConfig:
        """Return the engine as configured: entry agent, its tools, budgets as given."""
        return EngineConfig(
            agent_name=agent_name(self.agent),
            model_id=model_id(getattr(self.agent, "llm", None)),
            budget_max_steps=self.budget.max_steps,
            budget_max_runtime_seconds=self.budget.max_runtime_seconds,
            budget_max_tokens=self.budget.max_tokens,
            critic_names=[critic_name(critic) for critic in self.critics],
            stop_criteria_names=[type(c).__name__ for c in self.stop_criteria],
            has_checkpoint_store=self.checkpoint_store is not None,
            has_tracing_provider=self.tracing_provider is not None
            or self.trace_writer is not None,
            protocol_id=self._entry_protocol.id if self._entry_protocol else None,
            delegate_depth=self.delegate_depth,
            has_shared_memory=self.shared_memory is not None,
            has_env=self.env is not None,
            tool_count=len(self.tool_registry),
        )

    def entry_seat(self) -> Seat:
        """Return who begins a run, with the tools registered now."""
        agent = self.agent
        name = self.agent_registry.name_of(agent) if self.agent_registry else None
        return Seat(
            name=name or agent_name(agent),
            agent=agent,
            registry=self._run_tools(self.tool_registry, agent),
            llm=getattr(agent, "llm", None),
            protocol=self._entry_protocol,
        )

    def seat_of(self, spec: AgentSpec, first_step: int) -> Seat:
        """Return who goes on after a handoff, from the given step."""
        agent = _checked_agent(spec.agent)
        registry = spec.tools_override
        if registry is None:
            registry = getattr(agent, "tool_registry", None) or ToolRegistry()
        most = spec.max_steps_override
        return Seat(
            name=spec.name,
            agent=agent,
            registry=self._run_tools(registry, agent),
            llm=spec.model_override or getattr(agent, "llm", None),
            protocol=self._protocol_of(agent, spec.model_override),
            last_step=None if most is None else first_step + most,
        )

    def _run_tools(self, registry: ToolRegistry, agent: Any) -> ToolRegistry:
        """A copy with the handoff tools, so that the caller's own stays as it is."""
        tools = registry.copy()
        for spec in self.agent_registry or ():
            if spec.agent is not agent and spec.handoff_tool_name not in tools:
                tools.register(TransferTool(spec))
        return tools

    def _protocol_of(self, agent: Any, llm: Any = None) -> Protocol | None:
        chosen = self.protocol or getattr(agent, "model_protocol", None)
        llm = llm or getattr(agent, "llm", None)
        if chosen is None and llm is None:
            return None
        if isinstance(chosen, str) or chosen is None:
            return resolve_protocol(chosen, llm)
        return chosen


def agent_name(agent: Any) -> str:
    """The agent's own name, else its class's."""
    name = getattr(agent, "name", None)
    return name if isinstance(name, str) and name else type(agent).__name__


def model_id(llm: Any) -> str:
    """The model's identifier: its ``model_id``, ``model`` or ``model_name``, else empty."""
    for name in ("model_id", "model", "model_name"):
        value = getattr(llm, name, None)
        if isinstance(value, str) and value:
            return value
    return ""


def _checked_agent(agent: Any) -> Any:
    lacking = [name for name in _AGENT_METHODS if not callable(getattr(agent, name, None))]
    if lacking or isinstance(agent, type):
        what = "a class" if isinstance(agent, type) else type(agent).__name__
        raise TypeError(f"agent must be an AgentModule, got {what}")
    return agent


def _checked_parts(argument: str, parts: Any, method: str) -> list[Any]:
    if parts is None:
        return []
    if not isinstance(parts, (list, tuple)):
        raise TypeError(f"{argument} must be a list, got {type(parts).__name__}")
    for index, part in enumerate(parts):
        if isinstance(part, type) or not callable(getattr(part, method, None)):
            what = "a class" if isinstance(part, type) else type(part).__name__
            raise TypeError(f"{argument}[{index}] has no {method}() method, got {what}")
    return list(parts)
