"""How much of the past a model is sent: a policy on the run, a history on the agent."""

from typing import Any

from qitos_min import Action, AgentModule, HistoryPolicy, StateSchema, ToolRegistry, tool
from qitos_min.kit import ReActTextParser, WindowHistory


@tool(name="roll")
def roll(sides: int) -> int:
    """Roll a die that always shows its number of sides."""
    return sides


class Player(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(roll)
        super().__init__(
            tool_registry=registry,
            llm=llm,
            model_parser=ReActTextParser(),
            history=WindowHistory(window_size=12),
        )

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=6)

    def prepare(self, state):
        return f"{state.task} ({state.current_step})"

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    llm = scripted([*(f"Action: roll(sides={n})" for n in (4, 6, 8, 12)), "Final Answer: 30"])
    result = Player(llm).run(
        "Roll four dice",
        return_state=True,
        history_policy=HistoryPolicy(max_messages=4),
        trace=False,
        render=False,
    )
    sizes = [len(messages) for messages in llm.asked]
    return result, {"bounded": max(sizes) <= 7, "calls": len(sizes)}
