"""The ready-made critic that asks for another try while results hold an error."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.kit import ReActSelfReflectionCritic


@tool(name="fetch")
def fetch(page: str) -> dict:
    """Fetch a page."""
    if page == "old":
        return {"status": "error", "error": "gone"}
    return {"status": "success", "text": "fresh"}


class Fetcher(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self):
        registry = ToolRegistry()
        registry.register(fetch)
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=5)

    def decide(self, state, observation):
        if state.metadata.get("text"):
            return Decision.final(state.metadata["text"])
        page = "new" if state.metadata.get("failed") else "old"
        return Decision.act([Action("fetch", {"page": page})], rationale=f"try the {page} one")

    def reduce(self, state, observation, decision):
        for result in observation["action_results"]:
            state.metadata["failed"] = "error" in str(result)
            if "text" in result:
                state.metadata["text"] = result["text"]
        return state


def main(scripted, folder):
    result = Fetcher().run(
        "Fetch",
        return_state=True,
        critics=[ReActSelfReflectionCritic(max_retries=2)],
        trace=False,
        render=False,
    )
    return result, {}
