"""Watching a run from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..core._foreign import guarded
from .states import RuntimeEvent, RuntimePhase, StepRecord, utc_now

__all__ = ["EngineHook", "HookContext", "Listeners", "listeners"]


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


class EngineHook:
    """Override what you want to see; any object with some of the methods will do.

    A hook that raises never ends a run: what it raised is recorded as a RECOVER
    event with the hook's name, and the run calls that hook no more.
    """

    def on_run_start(self, task: str, state: Any, engine: Any) -> None:
        """The run begins."""

    def on_run_end(self, result: Any, engine: Any) -> None:
        """The run is over."""

    def on_event(
        self, event: RuntimeEvent, state: Any, record: StepRecord | None, engine: Any
    ) -> None:
        """Something was recorded."""

    def on_step_end(self, record: StepRecord, state: Any, engine: Any) -> None:
        """A step is over and its record complete."""

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

    def on_recover(self, ctx: HookContext, engine: Any) -> None:
        """Something failed; ``ctx.error`` says what."""


Listeners = dict[str, list[tuple[Any, Callable[..., Any]]]]
"""Hooks with their method, by the method's name."""


def listeners(hooks: Iterable[Any]) -> Listeners:
    """Return the methods of hooks that do something, in the order of the hooks."""
    found: Listeners = {}
    for hook in hooks:
        for name in vars(EngineHook):
            if not name.startswith("on_"):
                continue
            method, _ = guarded(getattr, hook, name, None)
            own = getattr(method, "__func__", None) is not getattr(EngineHook, name)
            if callable(method) and own:
                found.setdefault(name, []).append((hook, method))
    return found
