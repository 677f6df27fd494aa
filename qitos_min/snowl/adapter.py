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
        """A Snowl agent: what ``InstalledAgent`` makes of these, without hooks."""
        return InstalledAgent(agent_or_factory, agent_id=agent_id, hooks=None, **config)

    def unwrap_state(self, state: Any) -> str:
        """The text of the last user message, its parts as lines; SnowlCompatError without any."""
        return task_of(state)

    def wrap_result(
        self, result: Any, state: Any, *, engine: Any = None, event_name: str = EVENT_NAME
    ) -> Any:
        """Fill Snowl's state with all that a result, or a bare answer, tells, and return it.

        ``engine`` tells the configuration. A failed run only sets ``stop_reason`` here.
        """
        return fill(state, tell(result, Config(event_name=event_name), engine=engine)[0])

    def wrap_tools(self, tools: Iterable[Any] | None) -> list[SnowlTool]:
        """A callable for each Snowl tool, which QitOS's registry takes with the tool's schema."""
        return [SnowlTool(tool) for tool in tools or ()]
