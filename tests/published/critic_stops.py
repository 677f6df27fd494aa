"""A critic that ends the run, and one that only watches."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.engine.critic import Critic
from qitos_min.kit.critic import PassThroughCritic


@tool(name="spend")
def spend(amount: int) -> int:
    """Spend money."""
    return amount


class Purse(Critic):
    def __init__(self, limit: int):
        self.limit = limit
        self.spent = 0

    def evaluate(self, state, decision, results):
        self.spent += sum(results)
        if self.spent > self.limit:
            return {"action": "stop", "reason": "purse is empty", "score": 0.0}
        return {"action": "continue", "reason": "", "score": 1.0}


class Buyer(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self):
        registry = ToolRegistry()
        registry.register(spend)
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=9)

    def decide(self, state, observation):
        return Decision.act([Action("spend", {"amount": 4})])

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    purse = Purse(10)
    result = Buyer().run(
        "Buy", return_state=True, critics=[PassThroughCritic(), purse], trace=False, render=False
    )
    return result, {"spent": purse.spent}
