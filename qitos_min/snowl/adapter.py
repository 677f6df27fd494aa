"""``QitOSAdapter``: how Snowl gets an agent, a task, a filled state and tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ._reading import EVENT_NAME, Config, fill, task_of, tell
from ._tools import SnowlTool
from .installed_agent import InstalledAgent

__all__ = ["QitOSAdapter"]


class QitOSAdapter:
    """Makes QitOS agents into agents that Snowl can run."""

    framework_name = "qitos"

    def wrap(
        self,
        agent_or_factory: Any,
        *,
        agent_id: str | None = None,
        max_steps: int | None = None,
        engine_kwargs: Mapping[str, Any] | None = None,
        state_kwargs: Mapping[str, Any] | None = None,
        event_name: str = EVENT_NAME,
        strict: bool = False,
    ) -> InstalledAgent:
        """Return a Snowl agent: ``agent_id`` and ``async run(state, context, tools)``.

        A factory (class or zero-argument callable) gives each trial a fresh
        agent; an agent object runs its trials one at a time. ``agent_id`` is
        text safe in file names, by default the agent's name. ``max_steps``
        (at least 1) is the step budget of each run; ``engine_kwargs`` go to
        ``build_engine``, ``state_kwargs`` to ``run``. ``event_name`` is that of
        the payload's event. With ``strict`` the first thing that had to be
        repaired in a payload fails its trial. Raises ``SnowlCompatError`` for
        what it cannot use.
        """
        return InstalledAgent(
            agent_or_factory,
            agent_id=agent_id,
            max_steps=max_steps,
            engine_kwargs=engine_kwargs,
            state_kwargs=state_kwargs,
            event_name=event_name,
            strict=strict,
        )

    def unwrap_state(self, state: Any) -> str:
        """Return the task: the text of the last user message, its parts as lines.

        Raises ``SnowlCompatError`` when the state has no such text.
        """
        return task_of(state)

    def wrap_result(
        self, result: Any, state: Any, *, engine: Any = None, event_name: str = EVENT_NAME
    ) -> Any:
        """Fill Snowl's state with all that a result tells, and return it.

        ``result`` is an engine result or a bare answer; ``engine`` tells the
        configuration. A failed run only sets ``stop_reason`` here.
        """
        return fill(state, tell(result, Config(event_name=event_name), engine=engine))

    def wrap_tools(self, tools: Iterable[Any] | None) -> list[SnowlTool]:
        """Return one callable for each Snowl tool, for QitOS's registry to register.

        Each has the tool's name, description and parameter schema; a tool
        whose callable is async is awaited by it.
        """
        return [SnowlTool(tool) for tool in tools or ()]
