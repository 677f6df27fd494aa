"""What an agent sees at the beginning of a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Observation(dict[str, Any]):
    """A dict whose keys are attributes too: task, step, state (a snapshot as a dict), env,
    action_results (what the tools of the last step returned; of this step, and with the decision,
    for ``reduce``). As attribute ``action_results`` has the whole ``ToolResult`` of each."""

    def __init__(self, values: Any = None, *, results: Iterable[Any] = ()) -> None:
        super().__init__(values or {})
        vars(self)["_results"] = list(results)

    @property
    def action_results(self) -> list[Any]:
        """The ``ToolResult`` of each call, in the order of the actions."""
        return vars(self)["_results"] or list(self.get("action_results") or ())

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"the observation has no {name!r}")
