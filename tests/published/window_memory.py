"""A memory: the engine resets it once a run and appends to it, the agent reads it."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.kit import WindowMemory
from qitos_min.core import MemoryRecord


@tool(name="note")
def note(text: str) -> str:
    """Note a text."""
    return text


class NotingAgent(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, memory: Any):
        registry = ToolRegistry()
        registry.register(note)
        super().__init__(tool_registry=registry, memory=memory)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def decide(self, state, observation):
        mine = [r.content for r in self.memory.retrieve() if r.role == "lesson"]
        if len(mine) == 2:
            return Decision.final(" and ".join(mine))
        return Decision.act([Action("note", {"text": f"lesson {len(mine)}"})])

    def reduce(self, state, observation, decision):
        for said in observation["action_results"]:
            self.memory.append(
                MemoryRecord(role="lesson", content=said, step_id=state.current_step)
            )
        return state


def main(scripted, folder):
    memory = WindowMemory(window_size=50)
    memory.append(MemoryRecord("lesson", "of an earlier run", 0))
    agent = NotingAgent(memory)
    result = agent.run("Learn", return_state=True, trace=False, render=False)
    return result, {
        "same": agent.memory is memory,
        "lessons": [r.content for r in memory.retrieve() if r.role == "lesson"],
        "summary": bool(memory.summarize(max_items=2)),
    }
