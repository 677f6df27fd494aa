"""A memory that is a file."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema
from qitos_min.core import MemoryRecord
from qitos_min.kit import MarkdownFileMemory


class Diary(AgentModule[StateSchema, dict[str, Any], Action]):
    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=3)

    def decide(self, state, observation):
        self.memory.append(MemoryRecord("diary", f"day {state.current_step}", state.current_step))
        return Decision.final("written") if state.current_step else Decision.wait()

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    path = folder / "memory.md"
    agent = Diary(memory=MarkdownFileMemory(path=str(path)))
    result = agent.run("Write", return_state=True, trace=False, render=False)
    text = path.read_text(encoding="utf-8")
    return result, {"days": ["day 0" in text, "day 1" in text]}
