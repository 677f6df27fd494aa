"""Two agents: the first hands the task on to the one who knows."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, Engine, StateSchema
from qitos_min.core.agent_spec import AgentRegistry, AgentSpec


class Desk(AgentModule[StateSchema, dict[str, Any], Action]):
    name = "desk"

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=5)

    def decide(self, state, observation):
        return Decision.act([Action("transfer_to_expert", {"reason": "hard"})])

    def reduce(self, state, observation, decision):
        return state


class Expert(AgentModule[StateSchema, dict[str, Any], Action]):
    name = "expert"

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=5)

    def decide(self, state, observation):
        return Decision.final(f"{state.task}: 42")

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    desk = Desk()
    registry = AgentRegistry()
    registry.register(AgentSpec(name="expert", description="Knows", agent=Expert()))
    result = Engine(agent=desk, agent_registry=registry).run("Answer")
    return result, {
        "available": len(registry.list_available()),
        "resolved": registry.resolve("expert").name,
        "handoffs": [tool.spec.name for tool in registry.get_handoff_tools()],
    }
