"""Watching a run from outside."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..core._foreign import guarded
from .states import RuntimeEvent, RuntimePhase, StepRecord, utc_now

__all__ = ["EngineHook", "HookContext", "ToolHookContext", "listeners"]


@dataclass
class HookContext:
    """What a hook is shown of the moment; state and record are the run's own."""

    task: str
    step_id: int
    phase: RuntimePhase
    state: Any
    env_view: dict[str, Any] | None = None
    observation: Any = None
    decision: Any = None
    model_response: dict[str, Any] | None = None
    action_results: list[Any] = field(default_factory=list)
    record: StepRecord | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    stop_reason: str | None = None
    run_id: str = ""
    ts: str = field(default_factory=utc_now)


@dataclass
class ToolHookContext:
    """What a hook is shown of one tool call; the arguments are a copy."""

    tool_name: str
    tool_args: dict[str, Any] = field(default_factory=dict)
    action_id: str | None = None
    step_id: int = 0
    state: Any = None
    result: Any = None  # The ``ToolResult``, when there is one.
    error: str | None = None
    run_id: str = ""


class EngineHook:
    """Override what you want to see; any object with some of the methods will do.

    A method is called by position or, where it has only some of the names below, by name. A
    hook that raises is recorded as a RECOVER event with its name, and called no more.
    """

    def on_run_start(self, task: str, state: Any, engine: Any) -> None: ...
    def on_run_end(self, result: Any, engine: Any) -> None: ...
    def on_event(self, event: RuntimeEvent, state: Any, record: Any, engine: Any) -> None: ...
    def on_step_end(self, record: StepRecord, state: Any, engine: Any) -> None: ...

    # Each stage of a step, before and after: ``ctx`` is the moment.
    def on_before_step(self, ctx: HookContext, engine: Any) -> None: ...
    def on_after_step(self, ctx: HookContext, engine: Any) -> None: ...
    def on_before_decide(self, ctx: HookContext, engine: Any) -> None: ...
    def on_after_decide(self, ctx: HookContext, engine: Any) -> None: ...
    def on_before_act(self, ctx: HookContext, engine: Any) -> None: ...
    def on_after_act(self, ctx: HookContext, engine: Any) -> None: ...
    def on_before_reduce(self, ctx: HookContext, engine: Any) -> None: ...
    def on_after_reduce(self, ctx: HookContext, engine: Any) -> None: ...
    def on_before_critic(self, ctx: HookContext, engine: Any) -> None: ...
    def on_after_critic(self, ctx: HookContext, engine: Any) -> None: ...
    def on_before_check_stop(self, ctx: HookContext, engine: Any) -> None: ...
    def on_after_check_stop(self, ctx: HookContext, engine: Any) -> None: ...

    # Each tool call, in the thread that makes it.
    def on_before_tool_use(self, ctx: ToolHookContext, engine: Any) -> None: ...
    def on_after_tool_use(self, ctx: ToolHookContext, engine: Any) -> None: ...
    def on_permission_denied(self, ctx: ToolHookContext, engine: Any) -> None: ...

    # Something failed; ``ctx.error`` says what.
    def on_recover(self, ctx: HookContext, engine: Any) -> None: ...


HOOK_METHODS = {  # The names of a hook's methods, with those of their arguments.
    name: list(inspect.signature(method).parameters)[1:]
    for name, method in vars(EngineHook).items()
    if name.startswith("on_")
}


def listeners(hooks: Iterable[Any]) -> dict[str, list[tuple[Any, Callable[..., Any]]]]:
    """Return hooks with their method, by the name of the method, if it does something."""
    found: dict[str, list[tuple[Any, Callable[..., Any]]]] = {}
    for hook in hooks:
        for name, arguments in HOOK_METHODS.items():
            method = getattr(hook, name, None)
            own = getattr(method, "__func__", None) is not getattr(EngineHook, name)
            if callable(method) and own:
                found.setdefault(name, []).append((hook, _by_position(method, arguments)))
    return found


def taken(call: Callable[..., Any], names: list[str]) -> list[str]:
    """Return those of the names that are parameters of ``call``; all if it takes any."""
    signature, _ = guarded(inspect.signature, call)
    known = signature.parameters if signature else {}
    takes_all = any(p.kind is p.VAR_KEYWORD for p in known.values())
    return [name for name in names if takes_all or name in known]


def _by_position(method: Callable[..., Any], arguments: list[str]) -> Callable[..., Any]:
    """The method, or what calls it by those of the arguments' names that it has."""
    known = taken(method, arguments)
    bound, _ = guarded(lambda: inspect.signature(method).bind(**dict.fromkeys(known)))
    if not known or bound is None or list(bound.arguments) == arguments:
        return method
    return lambda *values: method(**{n: v for n, v in zip(arguments, values) if n in known})
