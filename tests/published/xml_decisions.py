"""Decisions in XML."""

from typing import Any

from qitos_min import Action, AgentModule, StateSchema, ToolRegistry, tool
from qitos_min.kit import XML_DECISION_SYSTEM_PROMPT, XmlDecisionParser, render_prompt


class CountAgent(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(self.count)
        super().__init__(tool_registry=registry, llm=llm, model_parser=XmlDecisionParser())

    @tool(name="count", description="Count a letter in a text.")
    def count(self, text: str, letter: str) -> int:
        return text.count(letter)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def build_system_prompt(self, state):
        schema = self.tool_registry.get_tool_descriptions()
        return render_prompt(XML_DECISION_SYSTEM_PROMPT, {"tool_schema": schema})

    def prepare(self, state):
        return state.task

    def reduce(self, state, observation, decision):
        state.metadata.setdefault("seen", []).extend(observation["action_results"])
        return state


def main(scripted, folder):
    llm = scripted(
        [
            '<decision mode="act"><think>count</think><action name="count">'
            '<arg name="text">strawberry</arg><arg name="letter">r</arg></action></decision>',
            '<decision mode="final"><think>told</think><final_answer>3</final_answer></decision>',
        ]
    )
    result = CountAgent(llm).run("How many r?", return_state=True, trace=False, render=False)
    return result, {"seen": result.state.metadata["seen"]}
