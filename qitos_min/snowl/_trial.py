"""One trial: a run of an agent in a thread of its own, and how it is told to stop."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from snowl_compat import SnowlCompatError

from ._reading import Config, Error, Row, Told, attempt, kind_of, peek, read_step, tell
from ._tools import SnowlTool, awaited, framework_part, team_with_tools, with_tools


def is_agent(value: Any) -> bool:
    return not isinstance(value, type) and peek(value, "build_engine", "run") is not None


@dataclass
class Trial:
    """What to run, and what is known of the run; a hook that calls ``emit`` for each step."""

    task: str
    config: Config
    tools: Sequence[SnowlTool]
    emit: Callable[[Row], None] | None
    engine: Any = None
    result: Any = None
    cancelled: bool = False
    steps: int = 0
    cause: Error = None
    seen: Error = None

    def on_step_end(self, record: Any, state: Any, engine: Any) -> None:
        if self.cancelled or self.emit is None:
            return
        event = read_step(record, self.steps)[0]
        self.steps += 1
        called = ", ".join(str(call["tool_name"]) for call in event["tool_calls"])
        message = f"step {event['step_id']}: {called or event['mode'] or 'done'}"
        # Under its own name QitOS's agent would be a task that the monitor waits for.
        own = {"event": "runtime.agent.step", "qitos_agent": event.pop("agent_id")}
        self.emit({**event, **own, "message": message[:120]})

    def on_recover(self, context: Any, engine: Any) -> None:
        """Keep the exception, of which a result may hold the words only."""
        self.seen = peek(context, "error")

    async def run(self, make: Callable[[], Any], turn: AbstractContextManager[Any]) -> Told:
        """Run the agent in a thread, holding ``turn`` meanwhile, and tell all of it."""
        done: Future[Told] = Future()
        done.set_running_or_notify_cancel()

        def work() -> None:
            try:
                with turn:
                    done.set_result(self._tell(make))
            except BaseException as error:  # Raised where it is awaited, Ctrl-C too.
                done.set_exception(error)

        # No exit waits for it, as it would for those of ``asyncio.to_thread``.
        threading.Thread(target=work, name="qitos-trial", daemon=True).start()
        try:
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            self.cancelled = True  # From here on the trial says nothing more.
            with suppress(Exception):
                if peek(self.engine, "cancel") is not None:
                    self.engine.cancel("immediate")
                elif peek(self.engine, "budget") is not None:
                    # QitOS 0.3.0 cannot be cancelled, but it looks at its budget.
                    self.engine.budget = copy.copy(self.engine.budget)
                    self.engine.budget.max_steps = 0
            raise

    def _tell(self, make: Callable[[], Any]) -> Told:
        agent, self.cause = attempt(make)
        own = peek(agent, "tool_registry")
        if self.cause is None:
            self.result, self.cause = attempt(self._run_agent, agent)
        if self.cause is not None:
            self.result = peek(self.engine, "last_result") or self.engine
        if self.tools and is_agent(agent):
            agent.tool_registry = own
        return tell(self.result, self.config, engine=self.engine, cause=self.cause, seen=self.seen)

    def _run_agent(self, agent: Any) -> Any:
        if not is_agent(agent):
            raise SnowlCompatError(f"expected an agent, the factory gave {kind_of(agent)}")
        settings = {**(self.config.engine_kwargs or {})}
        options = {**(self.config.state_kwargs or {})}
        steps, has_engine = self.config.max_steps, peek(agent, "build_engine") is not None
        if steps is not None and _takes(peek(agent, "init_state"), "max_steps"):
            options["max_steps"] = steps
        if steps is not None and has_engine:
            # The state's own limit alone would end the run as a failure.
            kind = framework_part(agent, ".engine", "RuntimeBudget") or SimpleNamespace
            settings["budget"] = kind(max_steps=steps)
        if self.tools:
            given = "tool_registry" in settings
            own = peek(settings if given else agent, "tool_registry")
            agent.tool_registry = with_tools(agent, own, self.tools)
            settings.update({"tool_registry": agent.tool_registry} if given else {})
        if not has_engine:
            options.update({"engine_kwargs": settings} if settings else {})
            options.update({"return_state": True} if _takes(agent.run, "return_state") else {})
            return awaited(agent.run(task=self.task, **options))
        self.engine = engine = agent.build_engine(**settings)
        team = peek(engine, "agent_registry")
        if self.tools and team is not None:
            engine.agent_registry = team_with_tools(team, agent.tool_registry, self.tools)
        if peek(engine, "register_hook") is not None:
            engine.register_hook(self)
        return None if self.cancelled else engine.run(self.task, **options)


def _takes(function: Any, name: str) -> bool:
    """Whether a function takes a keyword; one that is not there does."""
    if function is None:
        return True
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
