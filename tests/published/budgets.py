"""A run that ends at its budget."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, Engine, StateSchema, ToolRegistry, tool
from qitos_min.engine import RuntimeBudget
from qitos_min.engine.stop_criteria import FinalResultCriteria, MaxStepsCriteria


@tool(name="tick")
def tick() -> str:
    """Tick."""
    return "tick"


class Clock(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self):
        registry = ToolRegistry()
        registry.register(tick)
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=kwargs.get("max_steps", 9))

    def decide(self, state, observation):
        return Decision.act([Action("tick")])

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    engine = Engine(
        Clock(),
        RuntimeBudget(max_steps=3),
        stop_criteria=[MaxStepsCriteria(max_steps=3), FinalResultCriteria()],
    )
    return engine.run("Tick"), {}
