"""The engine: an agent with all that a run of it needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic

from ..core import ActionExecutionPolicy, AgentRegistry, AgentSpec, Task, ToolRegistry
from ..core._contract import check_count
from ..core._foreign import brief, summary
from ..core.agent_module import ObservationT, StateT
from ..core.decision import ActionT
from ..core.task import check_limits
from ._checkpoint import restore
from ._handoff import TransferTool
from ._protocols import Protocol, resolve_protocol
from ._result import EngineResult, StepSummary
from ._run import Run, Seat
from ._session import EngineSession
from .action_executor import ActionExecutor
from .cancellation import CancelMode, CancelToken
from .critic import named
from .hooks import HOOK_METHODS
from .states import ContextConfig, EngineConfig, RuntimeBudget
from .stop_criteria import FinalResultCriteria

__all__ = ["Engine", "EngineResult", "StepSummary"]

_PLAIN = (str, bytes, int, float, os.PathLike, list, tuple, dict, set)
# What a part is called, and what a run uses of it; with ``|`` any of that will do.
_KINDS = {
    "agent": ("an AgentModule", "init_state decide reduce should_stop"),
    "checkpoint_store": ("a checkpoint store, as FileCheckpointStore(folder),", "append"),
    "critics": ("a Critic", "evaluate"),
    "env": ("an Env, as HostEnv(folder),", "setup reset observe step is_terminal teardown"),
    "history": ("a History", "append retrieve"),
    "history_policy": ("a HistoryPolicy", "roles max_messages"),
    "hooks": ("an EngineHook or have some of its methods", "|".join(HOOK_METHODS)),
    "parser": ("a function or have parse()", "parse|__call__"),
    "protocol": ("a Protocol or the name of one", "id system_prompt tools_argument parse"),
    "recovery_policy": ("a RecoveryPolicy", "reset handle"),
    "search": ("a Search", "expand score select prune backtrack"),
    "stop_criteria": ("a StopCriteria", "should_stop"),
    "trace_writer": ("a TraceWriter(folder)", "start write_event write_step finalize"),
}


class Engine(Generic[StateT, ObservationT, ActionT]):
    """Runs an agent: decides, acts, reduces, judges and stops, step by step.

    Nothing of a run stays on the engine but ``last_result``, so that it can run again.
    Raises ``TypeError`` or ``ValueError`` naming the argument for parts that cannot work.
    """

    max_handoffs = 10  # In one run; one more is a failure, as is a circle in which nobody acts.

    def __init__(
        self,
        agent: Any,
        budget: RuntimeBudget | None = None,
        *,
        tool_registry: ToolRegistry | None = None,
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
        history_policy: Any = None,
        search: Any = None,
        render_hooks: list[Any] | None = None,
    ) -> None:
        self.agent = checked_part("agent", agent)
        tools = first(tool_registry, agent, "tool_registry", ToolRegistry())
        self.tool_registry = checked("tool_registry", tools, ToolRegistry)
        self.budget = checked("budget", budget, RuntimeBudget) or RuntimeBudget()
        check_limits(self.budget)
        self.agent_registry = checked("agent_registry", agent_registry, AgentRegistry)
        self.context_config = checked("context_config", context_config, ContextConfig)
        self.context_config = self.context_config or ContextConfig()
        name = "action_execution_policy"
        policy = first(action_execution_policy, runtime, name, ActionExecutionPolicy())
        # Runs batches of actions outside of a run, too.
        self.executor = ActionExecutor(tools, checked(name, policy, ActionExecutionPolicy))
        self.approval_callback = checked("approval_callback", approval_callback, Callable)
        self.critics = checked_list("critics", critics)
        default = [FinalResultCriteria()] if stop_criteria is None else stop_criteria
        self.stop_criteria = checked_list("stop_criteria", default)
        self.env = checked_part("env", env)
        self.hooks = checked_list("hooks", hooks)
        self.hooks += checked_list("render_hooks", render_hooks, kind="hooks")
        check_count(delegate_depth, "delegate_depth", least=0)
        self.delegate_depth = delegate_depth
        self.shared_memory = shared_memory
        self.protocol = protocol
        self.parser = checked_part("parser", first(parser, agent, "model_parser"))
        self.history_policy = checked_part("history_policy", history_policy)
        self.search = checked_part("search", search)
        self.history = checked_part("history", first(history, agent, "history"))
        store = first(checkpoint_store, runtime, "checkpoint_store")
        self.checkpoint_store = checked_part("checkpoint_store", store)
        self.tracing_provider = tracing_provider
        self.trace_writer = checked_part("trace_writer", trace_writer)
        self.recovery_policy = checked_part("recovery_policy", recovery_policy)
        self.artifact_resolver = getattr(runtime, "artifact_resolver", None)
        self.auto_approve = checked("auto_approve", auto_approve, bool)
        self.runtime = runtime
        self.last_result: EngineResult | None = None  # Also of a run that Ctrl-C ended.
        self.token = CancelToken()  # Stops the run under way; a delegate's is its caller's.
        self.parent: Run | None = None  # The run around this one, charged for its tokens too.
        self._entry_protocol = self._protocol_of(agent, getattr(agent, "llm", None))

    def __repr__(self) -> str:
        told = {"tools": len(self.tool_registry), "max_steps": self.budget.max_steps}
        return summary(self, agent=named(self.agent, "name"), **told)

    def run(self, task: str | Task, **state_kwargs: Any) -> EngineResult:
        """Run a task and return the result, whatever happens on the way.

        What the agent's ``init_state(task, **state_kwargs)`` raises is raised; after it only
        ``KeyboardInterrupt``, with the result on ``last_result``. A failed run is logged once.
        """
        return self.session(task, **state_kwargs).run()

    def session(self, task: str | Task, **state_kwargs: Any) -> EngineSession:
        """Return a run that has not begun, to be taken step by step."""
        if not isinstance(task, (str, Task)):
            raise TypeError(f"task must be text or a Task, got {type(task).__name__}")
        text = task.objective if isinstance(task, Task) else task
        state = self.agent.init_state(text, **state_kwargs)
        return EngineSession(self, Run(self, task, state, self.token))

    def resume(self, run_id: str, **state_kwargs: Any) -> EngineResult:
        """Go on with a saved run where its last finished step ended.

        Raises ``ValueError`` without a checkpoint store, ``KeyError`` for an unknown run and
        ``StateMigrationError`` for one that cannot be read.
        """
        if (store := self.checkpoint_store) is None:
            raise ValueError("resume needs an engine with a checkpoint_store")
        runs = list(store.list_runs()) if hasattr(store, "list_runs") else [run_id]
        if run_id not in runs:
            others = f"{len(runs) - 10} others and " if len(runs) > 10 else ""
            held = others + (", ".join(map(brief, runs[-10:])) or "none")
            raise KeyError(f"no run {brief(run_id)} in {store!r}, which has {held}")
        return EngineSession(self, restore(self, run_id, state_kwargs), resumed=True).run()

    def cancel(self, mode: CancelMode | str = CancelMode.IMMEDIATE) -> None:
        """Stop the run under way, or the next one if there is none; any thread may."""
        self.token.cancel(mode)

    def register_hook(self, hook: Any) -> None:
        """Add a hook for runs that begin later."""
        self.hooks.append(checked_part("hooks", hook, label="hook"))

    def unregister_hook(self, hook: Any) -> None:
        """Remove a hook; one that is not there is a ``ValueError``."""
        self.hooks.remove(hook)

    def clear_hooks(self) -> None:
        """Remove every hook."""
        self.hooks.clear()

    def export_config(self) -> EngineConfig:
        """Return the engine as configured: entry agent, its tools, budgets as given."""
        llm = getattr(self.agent, "llm", None)
        return EngineConfig(
            agent_name=named(self.agent, "name"),
            model_id=named(llm, "model_id", "model", "model_name", default=""),
            budget_max_steps=self.budget.max_steps,
            budget_max_runtime_seconds=self.budget.max_runtime_seconds,
            budget_max_tokens=self.budget.max_tokens,
            critic_names=[named(critic, "critic_name") for critic in self.critics],
            stop_criteria_names=[type(c).__name__ for c in self.stop_criteria],
            has_checkpoint_store=self.checkpoint_store is not None,
            has_tracing_provider=self.tracing_provider is not None or self.trace_writer is not None,
            protocol_id=self._entry_protocol.id if self._entry_protocol else None,
            delegate_depth=self.delegate_depth,
            has_shared_memory=self.shared_memory is not None,
            has_env=self.env is not None,
            tool_count=len(self.tool_registry),
        )

    def seat_of(self, spec: AgentSpec | None = None) -> Seat:
        """Return who goes on after a handoff, or who begins a run, with the tools of now."""
        if spec is None:
            agent, llm, env, memory = self.agent, None, self.env, self.shared_memory
            source = self.tool_registry
            own = self.agent_registry.spec_of(agent) if self.agent_registry else None
        else:
            agent, llm, own = checked_part("agent", spec.agent), spec.model_override, spec
            source = first(spec.tools_override, agent, "tool_registry", ToolRegistry())
            env = self.env if spec.shared_env else None
            memory = first(spec.shared_memory, self, "shared_memory")
        # A copy with the handoff tools, so that the caller's own stays as it is.
        registry = source.copy()
        for other in self.agent_registry or ():
            if other is not own and other.handoff_tool_name not in registry:
                registry.register(TransferTool(other))
        llm = first(llm, agent, "llm")
        parts: dict[str, Any] = {"registry": registry, "llm": llm, "env": env}
        parts |= {"shared_memory": memory, "protocol": self._protocol_of(agent, llm)}
        name = own.name if own else named(agent, "name")
        return Seat(name=name, agent=agent, spec=own, **parts)

    def _protocol_of(self, agent: Any, llm: Any) -> Protocol | None:
        chosen = first(self.protocol, agent, "model_protocol")
        if isinstance(chosen, str) or (chosen is None and llm is not None):
            return resolve_protocol(chosen, llm)
        return checked_part("protocol", chosen)


def first(given: Any, source: Any, name: str, default: Any = None) -> Any:
    """What was given, else what a source has under a name, else the default."""
    found = getattr(source, name, None) if given is None else given
    return default if found is None else found


def checked(argument: str, value: Any, kind: Any) -> Any:
    """A value of a kind, or None; else a ``TypeError``."""
    if value is None or isinstance(value, kind):
        return value
    raise TypeError(f"{argument} must be of type {kind.__name__}, got {type(value).__name__}")


def checked_part(argument: str, part: Any, *, label: str = "") -> Any:
    """A part that has what a run uses of it, or None; else a ``TypeError``."""
    what, uses = _KINDS[argument]
    has = [any(getattr(part, n, None) is not None for n in one.split("|")) for one in uses.split()]
    if all(has) and not isinstance(part, type) or part is None and argument != "agent":
        return part
    got = brief(part) if isinstance(part, _PLAIN) else type(part).__name__
    got = "a class" if isinstance(part, type) else got
    needs = "" if "|" in uses else f" with {', '.join(uses.split())}"
    raise TypeError(f"{label or argument} must be {what}{needs}, got {got}")


def checked_list(argument: str, parts: Any, *, kind: str = "") -> list[Any]:
    """A new list of such parts; a ``TypeError`` for any other value but None."""
    if not isinstance(parts, (list, tuple, type(None))):
        raise TypeError(f"{argument} must be a list, got {type(parts).__name__}")
    return [
        checked_part(kind or argument, part, label=f"{argument}[{index}]")
        for index, part in enumerate(parts or ())
    ]
