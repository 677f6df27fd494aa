"""A toolset with a name, registered under a namespace, and a tool class of one's own."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.core import BaseTool, ToolPermission, ToolSpec


class Greetings:
    name = "greetings"
    version = "1"

    def __init__(self):
        self.told = []

    @tool(name="greet", description="Greet somebody.")
    def greet(self, who: str) -> str:
        return f"hello {who}"

    def setup(self, context):
        self.told.append("setup")

    def teardown(self, context):
        self.told.append("teardown")

    def tools(self):
        return [self.greet]


class Reverse(BaseTool):
    def __init__(self):
        super().__init__(
            ToolSpec(
                name="reverse",
                description="Turn a text around.",
                parameters={"text": {"type": "string", "description": "the text"}},
                required=["text"],
                permissions=ToolPermission(),
            )
        )

    def run(self, text: str) -> str:
        return text[::-1]


class Host(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self):
        self.greetings = Greetings()
        registry = ToolRegistry()
        registry.register_toolset(self.greetings)
        registry.register(Reverse())
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def decide(self, state, observation):
        names = self.tool_registry.list_tools()
        greet = next(name for name in names if name.endswith("greet"))
        if state.current_step == 0:
            return Decision.act([Action(greet, {"who": "Ada"})])
        if state.current_step == 1:
            return Decision.act([Action("reverse", {"text": state.metadata["last"]})])
        return Decision.final(state.metadata["last"])

    def reduce(self, state, observation, decision):
        for result in observation["action_results"]:
            state.metadata["last"] = result
        return state


def main(scripted, folder):
    agent = Host()
    result = agent.run("Greet", return_state=True, trace=False, render=False)
    return result, {
        "tools": sorted(agent.tool_registry.list_tools()),
        "told": agent.greetings.told,
        "called": agent.tool_registry.call("reverse", text="abc"),
    }
