"""One agent asks two others and puts their answers together."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry
from qitos_min.core.agent_spec import AgentRegistry, AgentSpec


class Scout(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, place: str):
        super().__init__()
        self.place = place

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=2)

    def decide(self, state, observation):
        return Decision.final(f"{self.place} {state.task}")

    def reduce(self, state, observation, decision):
        return state


class Leader(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, agents: AgentRegistry):
        registry = ToolRegistry()
        for one in agents.get_delegate_tools():
            registry.register(one)
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def decide(self, state, observation):
        if state.current_step == 0:
            names = sorted(self.tool_registry.list_tools())
            return Decision.act([Action(name, {"task": "is clear"}) for name in names])
        return Decision.final(" and ".join(state.metadata["told"]))

    def reduce(self, state, observation, decision):
        state.metadata.setdefault("told", []).extend(
            next(place for place in ("north is clear", "south is clear") if place in str(result))
            for result in observation["action_results"]
        )
        return state


def main(scripted, folder):
    agents = AgentRegistry()
    for place in ("north", "south"):
        agents.register(AgentSpec(name=place, description=f"Looks {place}", agent=Scout(place)))
    result = Leader(agents).run("Look", return_state=True, trace=False, render=False)
    return result, {"fan_out": agents.get_fanout_tool() is not None}
