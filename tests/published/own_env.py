"""An environment of one's own that is observed each step and says when it is over."""

from dataclasses import dataclass
from typing import Any

from qitos_min import Action, AgentModule, Decision, Env, StateSchema, ToolRegistry, tool
from qitos_min.core.env import EnvObservation, EnvStepResult


class Corridor(Env):
    name = "corridor"

    def __init__(self):
        self.place = 0
        self.resets = 0

    def reset(self, task=None, workspace=None, **kwargs):
        self.place = 0
        self.resets += 1
        return self.observe()

    def observe(self, state=None):
        return EnvObservation(data={"place": self.place})

    def step(self, action, state=None):
        return EnvStepResult(observation=self.observe(), done=self.is_terminal())

    def is_terminal(self, state=None, last_result=None):
        return self.place >= 2


class Walker(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, corridor: Corridor):
        registry = ToolRegistry()
        registry.register(self.walk)
        super().__init__(tool_registry=registry)
        self.corridor = corridor

    @tool(name="walk")
    def walk(self) -> int:
        """One place on."""
        self.corridor.place += 1
        return self.corridor.place

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=6)

    def decide(self, state, observation):
        return Decision.act([Action("walk")])

    def reduce(self, state, observation, decision):
        state.metadata["place"] = self.corridor.place
        return state


def main(scripted, folder):
    corridor = Corridor()
    result = Walker(corridor).run(
        "Walk", return_state=True, env=corridor, trace=False, render=False
    )
    return result, {"place": corridor.place, "resets": corridor.resets}
