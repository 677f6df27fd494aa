"""The protocol as an option of the run, without a parser of one's own."""

from typing import Any

from qitos_min import Action, AgentModule, StateSchema, ToolRegistry, tool

REPLIES = {
    "react_text_v1": ['Thought: t\nAction: echo(text="a")', "Final Answer: a"],
    "json_decision_v1": [
        '{"thought": "t", "action": {"name": "echo", "args": {"text": "b"}}}',
        '{"thought": "t", "final_answer": "b"}',
    ],
    "xml_decision_v1": [
        '<think>t</think><action name="echo"><arg name="text">7</arg></action>',
        "<decision><think>t</think><final>7</final></decision>",
    ],
}


@tool(name="echo")
def echo(text: str) -> str:
    """Say it again."""
    return text


class Parrot(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(echo)
        super().__init__(tool_registry=registry, llm=llm)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def prepare(self, state):
        return state.task

    def reduce(self, state, observation, decision):
        state.metadata.setdefault("heard", []).extend(observation["action_results"])
        return state


def main(scripted, folder):
    told = {}
    for protocol, replies in REPLIES.items():
        result = Parrot(scripted(replies)).run(
            "Echo", return_state=True, protocol=protocol, trace=False, render=False
        )
        told[protocol] = [result.state.final_result, result.state.metadata["heard"]]
    return result, told
