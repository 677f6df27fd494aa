"""A run that is shown as it goes: by a hook of one's own choice, and by an option."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.render import ClaudeStyleHook


@tool(name="shout")
def shout(text: str) -> str:
    """Shout."""
    return text.upper()


class Shouter(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self):
        registry = ToolRegistry()
        registry.register(shout)
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        if set(kwargs) - {"max_steps"}:
            raise TypeError(f"unexpected: {sorted(kwargs)}")
        return StateSchema(task=task, max_steps=kwargs.get("max_steps", 3))

    def decide(self, state, observation):
        if state.current_step:
            return Decision.final("HELLO")
        return Decision.act([Action("shout", {"text": "hello"})], rationale="say it loud")

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    hook = ClaudeStyleHook(max_preview_chars=300, theme="research")
    Shouter().run("Greet", render=False, render_hooks=[hook], trace=False, max_steps=3)
    result = Shouter().run(
        "Greet", return_state=True, render=True, theme="research", trace=False, max_steps=3
    )
    return result, {}
