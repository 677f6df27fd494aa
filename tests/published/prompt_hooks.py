"""A prompt made of parts: who one is, how to work, hints on tools, what else."""

from typing import Any

from qitos_min import Action, AgentModule, StateSchema, ToolRegistry, tool
from qitos_min.kit import ReActTextParser

PARTS = ["You are a clerk.", "Work slowly.", "Prefer stamps.", "Be polite."]


@tool(name="stamp")
def stamp(paper: str) -> str:
    """Stamp a paper."""
    return f"{paper}: stamped"


class Clerk(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(stamp)
        super().__init__(tool_registry=registry, llm=llm, model_parser=ReActTextParser())

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def base_persona_prompt(self, state):
        return PARTS[0]

    def task_policy_prompt(self, state):
        return PARTS[1]

    def tool_usage_hint_prompt(self, state):
        return PARTS[2]

    def extra_instructions_prompt(self, state):
        return PARTS[3]

    def prepare(self, state):
        return state.task

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    llm = scripted(['Action: stamp(paper="form")', "Final Answer: stamped"])
    agent = Clerk(llm)
    result = agent.run("Stamp it", return_state=True, trace=False, render=False)
    system = llm.asked[0][0]
    return result, {
        "role": system["role"],
        "parts": [part in system["content"] for part in PARTS],
        "names_the_tool": "stamp" in system["content"],
        "composed": "Base." in agent.compose_system_prompt("Base."),
        "schema": "stamp" in agent.render_tool_schema(),
    }
