"""An agent whose task says how its run shall go."""

import datetime
from dataclasses import dataclass, field

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry
from qitos_min.snowl import QitOSAdapter


def awkward():
    cycle = {"text": "lone \ud800"}
    cycle["self"] = cycle
    return {
        **{"nan": float("nan"), "when": datetime.datetime(2026, 1, 2), "raw": b"\xff"},
        **{"cycle": cycle, "object": object(), "set": {1}, "keys": {(1, 2): 3}},
    }


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def boom() -> str:
    """Fail."""
    raise ValueError("the tool broke")


def strange() -> dict:
    """Give what JSON cannot hold."""
    return awkward()


@dataclass
class WayState(StateSchema):
    notes: dict = field(default_factory=dict)


class WayAgent(AgentModule):
    name = "way agent"

    def __init__(self):
        registry = ToolRegistry()
        for function in (add, boom, strange):
            registry.register(function)
        super().__init__(tool_registry=registry)

    def build_engine(self, **kwargs):
        self.engine = super().build_engine(**kwargs)
        return self.engine

    def init_state(self, task, **kwargs):
        return WayState(task=task, **kwargs)

    def decide(self, state, observation):
        if state.task == "crash":
            raise RuntimeError("the agent broke")
        if state.task == "cancelled":
            self.engine.cancel("immediate")
        first = Action("add", {"a": 40, "b": 2})
        second = {"tool crash": "boom", "awkward": "strange"}.get(state.task)
        if state.current_step == 0 or state.task == "steps":
            return Decision.act([first, *([Action(second)] if second else ())])
        return Decision.final("41" if state.task == "wrong" else "42")

    def reduce(self, state, observation, decision):
        if state.task == "awkward":
            # QitOS copies the state after each step, and a cycle ends its run.
            state.notes = {k: v for k, v in awkward().items() if k != "cycle"}
        return state


class NotingCritic:
    def evaluate(self, state, decision, results):
        details = awkward() if state.task == "awkward" else {"task": state.task}
        return {
            "action": "continue",
            "reason": "noted",
            "score": 0.5,
            "details": details,
        }


ENGINE_KWARGS = {"critics": [NotingCritic()]}

agent = QitOSAdapter().wrap(
    WayAgent, agent_id="way-agent", max_steps=3, engine_kwargs=ENGINE_KWARGS
)
