"""Actions as dicts, two in one step, and a tool of a class with state."""

from typing import Any

from qitos_min import AgentModule, Decision, StateSchema, ToolRegistry, tool


class Ledger:
    def __init__(self):
        self.total = 0

    @tool(name="deposit", description="Add to the account.")
    def deposit(self, amount: int) -> int:
        self.total += amount
        return self.total

    @tool(name="balance", description="What is there.", read_only=True)
    def balance(self) -> dict:
        return {"balance": self.total}


class Teller(AgentModule[StateSchema, dict[str, Any], Any]):
    def __init__(self):
        self.ledger = Ledger()
        registry = ToolRegistry()
        registry.include(self.ledger)
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=kwargs.get("max_steps", 3))

    def decide(self, state, observation):
        if state.current_step == 0:
            return Decision.act(
                [
                    {"name": "deposit", "args": {"amount": 30}},
                    {"name": "deposit", "args": {"amount": 12}},
                    {"name": "balance", "args": {}},
                ]
            )
        return Decision.final(str(state.metadata["balance"]))

    def reduce(self, state, observation, decision):
        for result in observation["action_results"]:
            if isinstance(result, dict):
                state.metadata["balance"] = result["balance"]
        return state


def main(scripted, folder):
    agent = Teller()
    result = agent.run("Pay in", return_state=True, max_steps=3, trace=False, render=False)
    return result, {"total": agent.ledger.total, "results": result.records[0].action_results}
