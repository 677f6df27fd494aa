"""A state that ends the run itself, and plain dict inputs to the state."""

from dataclasses import dataclass, field
from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool


@dataclass
class Queue(StateSchema):
    open: list[str] = field(default_factory=list)
    closed: dict[str, int] = field(default_factory=dict)


class Worker(AgentModule[Queue, dict[str, Any], Action]):
    def __init__(self):
        registry = ToolRegistry()
        registry.register(self.work)
        super().__init__(tool_registry=registry)

    @tool(name="work", description="Do one item.", timeout_s=5, max_retries=1)
    def work(self, item: str) -> int:
        return len(item)

    def init_state(self, task: str, **kwargs: Any) -> Queue:
        return Queue(task=task, open=list(kwargs["items"]), max_steps=kwargs.get("max_steps", 5))

    def decide(self, state, observation):
        return Decision.act([Action(name="work", args={"item": state.open[0]})])

    def should_stop(self, state):
        return not state.open

    def reduce(self, state, observation, decision):
        state.closed[state.open.pop(0)] = observation["action_results"][0]
        if not state.open:
            state.final_result = ", ".join(f"{k}={v}" for k, v in state.closed.items())
        return state


def main(scripted, folder):
    result = Worker().run(
        "Work", return_state=True, items=["one", "three"], max_steps=5, trace=False, render=False
    )
    return result, {"closed": result.state.closed}
