"""A tool that raises: the agent is told and goes another way."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool


@tool(name="divide")
def divide(a: int, b: int) -> float:
    """Divide."""
    return a / b


class Divider(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self):
        registry = ToolRegistry()
        registry.register(divide)
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def decide(self, state, observation):
        if state.current_step == 0:
            return Decision.act([Action("divide", {"a": 1, "b": 0})])
        if state.current_step == 1:
            return Decision.act([Action("divide", {"a": 84, "b": 2})])
        return Decision.final(str(state.metadata["last"]))

    def reduce(self, state, observation, decision):
        for result in observation["action_results"]:
            state.metadata["last"] = result
        return state


def main(scripted, folder):
    result = Divider().run("Divide", return_state=True, trace=False, render=False)
    first = result.records[0].action_results[0]
    return result, {"told": "division by zero" in str(first)}
