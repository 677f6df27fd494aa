"""ReAct over text: a thought, one action a step, a final answer."""

from dataclasses import dataclass, field
from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.kit import REACT_SYSTEM_PROMPT, ReActTextParser, format_action, render_prompt
from qitos_min.kit.planning import append_log


@dataclass
class ReactState(StateSchema):
    scratchpad: list[str] = field(default_factory=list)


class ReactAgent(AgentModule[ReactState, dict[str, Any], Action]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(self.add)
        super().__init__(tool_registry=registry, llm=llm, model_parser=ReActTextParser())

    @tool(name="add", description="Add two integers.")
    def add(self, a: int, b: int) -> int:
        return a + b

    def init_state(self, task: str, **kwargs: Any) -> ReactState:
        return ReactState(task=task, max_steps=kwargs.get("max_steps", 6))

    def build_system_prompt(self, state: ReactState) -> str:
        tools = self.tool_registry.get_tool_descriptions()
        return render_prompt(REACT_SYSTEM_PROMPT, {"tool_schema": tools})

    def prepare(self, state: ReactState) -> str:
        lines = [f"Task: {state.task}", f"Step: {state.current_step}/{state.max_steps}"]
        return "\n".join([*lines, *state.scratchpad[-6:]])

    def reduce(self, state, observation, decision):
        if decision.rationale:
            append_log(state, "scratchpad", f"Thought: {decision.rationale}", max_items=20)
        for action in decision.actions:
            append_log(state, "scratchpad", f"Action: {format_action(action)}", max_items=20)
        for result in observation["action_results"]:
            append_log(state, "scratchpad", f"Observation: {result}", max_items=20)
        return state


def main(scripted, folder):
    llm = scripted(
        [
            "Thought: add the first two\nAction: add(a=19, b=21)",
            "Thought: and two more\nAction: add(a=40, b=2)",
            "Thought: done\nFinal Answer: 42",
        ]
    )
    result = ReactAgent(llm).run("19 + 21 + 2", return_state=True, trace=False, render=False)
    asked = llm.asked[-1]
    return result, {
        "scratchpad": result.state.scratchpad,
        "system_names_the_tool": "add" in asked[0]["content"],
        "last_prompt_shows": "Observation: 42" in asked[-1]["content"],
    }
