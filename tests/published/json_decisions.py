"""Decisions in JSON, with the parser as an option of the run."""

from dataclasses import dataclass
from typing import Any

from qitos_min import Action, AgentModule, StateSchema, ToolRegistry, tool
from qitos_min.kit import JSON_DECISION_SYSTEM_PROMPT, JsonDecisionParser, render_prompt


@dataclass
class LookupState(StateSchema):
    found: str = ""


class LookupAgent(AgentModule[LookupState, dict[str, Any], Action]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(self.lookup)
        super().__init__(tool_registry=registry, llm=llm)

    @tool(name="lookup", description="Find a capital.", read_only=True)
    def lookup(self, country: str) -> dict:
        return {"status": "success", "capital": {"France": "Paris"}.get(country, "?")}

    def init_state(self, task: str, **kwargs: Any) -> LookupState:
        return LookupState(task=task, max_steps=kwargs.get("max_steps", 4))

    def build_system_prompt(self, state):
        schema = self.tool_registry.get_tool_descriptions()
        return render_prompt(JSON_DECISION_SYSTEM_PROMPT, {"tool_schema": schema})

    def prepare(self, state):
        return f"{state.task}\nfound: {state.found}"

    def reduce(self, state, observation, decision):
        for result in observation["action_results"]:
            state.found = result["capital"]
        return state


def main(scripted, folder):
    llm = scripted(
        [
            '{"thought": "look", "action": {"name": "lookup", "args": {"country": "France"}}}',
            '```json\n{"thought": "told", "final_answer": "Paris"}\n```',
        ]
    )
    result = LookupAgent(llm).run(
        "The capital of France?",
        return_state=True,
        parser=JsonDecisionParser(),
        max_steps=4,
        trace=False,
        render=False,
    )
    return result, {"found": result.state.found}
