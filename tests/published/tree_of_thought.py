"""Tree of thought: the agent offers branches, the search picks the best."""

from dataclasses import dataclass, field
from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.kit import DynamicTreeSearch


@dataclass
class TreeState(StateSchema):
    path: list[int] = field(default_factory=list)


@tool(name="take", description="Take a number.")
def take(number: int) -> int:
    return number


class TreeAgent(AgentModule[TreeState, dict[str, Any], Action]):
    def __init__(self):
        super().__init__(tool_registry=ToolRegistry().register(take))

    def init_state(self, task: str, **kwargs: Any) -> TreeState:
        return TreeState(task=task, max_steps=kwargs.get("max_steps", 5))

    def decide(self, state, observation):
        if sum(state.path) >= 10:
            return Decision.final(str(sum(state.path)))
        candidates = [
            Decision.act(
                actions=[Action(name="take", args={"number": number})],
                rationale=f"take {number}",
                meta={"id": f"{state.current_step}-{number}", "score": score},
            )
            for number, score in ((1, 0.1), (7, 0.9), (3, 0.5))
        ]
        return Decision.branch(candidates=candidates, rationale="three ways")

    def reduce(self, state, observation, decision):
        state.path.extend(observation["action_results"])
        return state


def main(scripted, folder):
    result = TreeAgent().run(
        "Reach ten",
        return_state=True,
        max_steps=5,
        search=DynamicTreeSearch(top_k=2),
        trace=False,
        render=False,
    )
    return result, {"path": result.state.path}
