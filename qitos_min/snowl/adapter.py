"""``QitOSAdapter``: how Snowl gets an agent, a task, a filled state and tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._reading import EVENT_NAME, Config, fill, task_of, tell
from ._tools import SnowlTool
from .installed_agent import InstalledAgent


class QitOSAdapter:
    """Makes QitOS agents into agents that Snowl can run."""

    framework_name = "qitos"

    def wrap(
        self, agent_or_factory: Any, *, agent_id: str | None = None, **config: Any
    ) -> InstalledAgent:
        """Return a Snowl agent: ``agent_id`` and ``async run(state, context, tools)``.

        Takes what ``InstalledAgent`` takes, without hooks, and raises as it does.
        """
        return InstalledAgent(agent_or_factory, agent_id=agent_id, hooks=None, **config)

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
        fields, _ = tell(result, Config(event_name=event_name), engine=engine)
        return fill(state, fields)

    def wrap_tools(self, tools: Iterable[Any] | None) -> list[SnowlTool]:
        """Return one callable for each Snowl tool, for QitOS's registry to register.

        Each has the tool's name, description and parameter schema; a tool
        whose callable is async is awaited by it.
        """
        return [SnowlTool(tool) for tool in tools or ()]
