"""``InstalledAgent``: an agent that Snowl runs, with hooks on its life."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from typing import Any

from snowl_compat import SnowlCompatError, to_json_value

from ._reading import Config, Row, attempt, described, fill, kind_of, peek, task_of
from ._tools import SnowlTool
from ._trial import Trial, is_agent


class InstalledAgent:
    """A QitOS agent that Snowl runs, packaged with hooks on its life.

    ``factory`` makes an agent for each trial, or is one, whose trials then run one at a time.
    ``agent_id`` is text safe in file names, by default the agent's name. ``hooks`` is an object or
    mapping with any of ``setup(context)``, ``on_trial_start(task, context)``, ``on_trial_end(task,
    result, payload)``, ``on_trial_error(task, error)`` and ``teardown()``, sync or async.
    ``config``: ``max_steps``, the step budget of each run; ``engine_kwargs`` for ``build_engine``,
    ``state_kwargs`` for ``run``; ``event_name`` of the payload's event; ``strict``: the first
    repair of a payload fails its trial. SnowlCompatError or TypeError for what is no such thing.
    """

    def __init__(
        self, factory: Any, *, agent_id: str | None = None, hooks: Any = None, **config: Any
    ) -> None:
        self._config, self._hooks = Config(**config), hooks
        legal = r"\w([\w.@+ -]{0,62}[\w@+-])?"  # Snowl makes file names of it.
        if agent_id is None:
            name = peek(factory, "name", "__name__") or type(factory).__name__
            agent_id = re.sub(r"[^\w.-]+", "-", str(name)).strip(".-")[:64] or "qitos-agent"
        elif not isinstance(agent_id, str) or not re.fullmatch(legal, agent_id):
            text = "expected a file name of at most 64 letters, digits, spaces or any of _.@+-"
            raise SnowlCompatError(f"{text}, got {kind_of(agent_id)}", "agent_id")
        self.agent_id = agent_id
        shared = is_agent(factory)
        if not shared and not callable(factory):
            text = f"expected an agent or a factory of agents, got {kind_of(factory)}"
            raise SnowlCompatError(text)
        self._make = (lambda: factory) if shared else factory
        self._turn = threading.Lock() if shared else nullcontext()
        self._lock = threading.Lock()  # Guards the two fields below.
        self._setup: Future[None] | None = None
        self._torn_down = False

    async def run(self, state: Any, context: Any, tools: Any = None) -> Any:
        """Run one trial and return the same state, filled, as it is before a failed run's error."""
        await self._set_up(context)
        task = task_of(state)
        try:
            await self._hook("on_trial_start", task, context)
            given = [SnowlTool(tool, asyncio.get_running_loop()) for tool in tools or ()]
            trial = Trial(task, self._config, given, self._emitter(context))
            fields, error = await trial.run(self._make, self._turn)
            fill(state, fields)
            if error is not None:
                raise error from trial.cause
        except asyncio.CancelledError as cancelled:
            with suppress(SnowlCompatError):
                await self._hook("on_trial_error", task, cancelled)
            raise
        except Exception as raised:
            await self._hook("on_trial_error", task, raised)
            raise
        # A hook may write to its payload, but not to what Snowl is going to write.
        payload = to_json_value(fields["output"]["trace_events"][0]["payload"])
        await self._hook("on_trial_end", task, trial.result, payload)
        return state

    def _emitter(self, context: Any) -> Callable[[Row], None] | None:
        """What tells Snowl's monitor of an event, with the names that it knows."""
        loop, metadata = asyncio.get_running_loop(), peek(context, "metadata")
        emit = peek(metadata, "__snowl_emit_event")
        ids = {name: peek(context, name) for name in ("task_id", "sample_id")}
        ids |= {"agent_id": self.agent_id, "variant_id": peek(metadata, "variant_id") or "default"}

        def send(event: Row) -> None:
            # A loop that is closed, or a monitor that raises, is no matter of the run.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(attempt, emit, {**event, **ids})

        return None if emit is None else send

    async def _hook(self, name: str, *args: Any) -> None:
        hook = peek(self._hooks, name)
        try:
            made = None if hook is None else hook(*args)
            if inspect.isawaitable(made):
                await made
        except Exception as error:
            raise SnowlCompatError(f"hook {name} raised {described(error)}") from error

    async def _set_up(self, context: Any) -> None:
        """Run the setup hook once, and again after it failed; each trial waits for it."""
        with self._lock:
            if self._torn_down:
                raise SnowlCompatError(f"agent {self.agent_id!r} is torn down")
            setup = self._setup
            if setup is None or (setup.done() and (setup.cancelled() or setup.exception())):
                # A task of its own, so that a cancelled trial costs the others nothing.
                made, loop = self._hook("setup", context), asyncio.get_running_loop()
                setup = self._setup = asyncio.run_coroutine_threadsafe(made, loop)
        await asyncio.shield(asyncio.wrap_future(setup))

    async def teardown(self) -> None:
        """Call the teardown hook, at most once; Snowl 0.1.0 does not. Then no trial may start."""
        with self._lock:
            torn_down, self._torn_down = self._torn_down, True
        if not torn_down:
            await self._hook("teardown")

    async def __aenter__(self) -> InstalledAgent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.teardown()
