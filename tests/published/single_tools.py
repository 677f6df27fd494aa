"""Single tools and a ready-made registry in one list, as QitOS's README has it."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry
from qitos_min.kit.tool.file import ReadFile, WriteFile
from qitos_min.kit.tool.shell import RunCommand
from qitos_min.kit.toolset import editor_tools

STEPS = [
    Action("write_file", {"filename": "note.txt", "content": "tea"}),
    Action("read_file", {"filename": "note.txt"}),
    Action("str_replace", {"path": "note.txt", "old_str": "tea", "new_str": "green tea"}),
    Action("run_command", {"command": "echo done"}),
]


class Handyman(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, root: str):
        super().__init__(
            tool_registry=ToolRegistry()
            .include_toolset([WriteFile(workspace_root=root)])
            .include_toolset(ReadFile(workspace_root=root))
            .register(RunCommand(workspace_root=root))
        )
        self.editor = editor_tools(workspace_root=root)
        self.tool_registry.register(self.editor.get("str_replace"))

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=6)

    def decide(self, state, observation):
        if state.current_step < len(STEPS):
            return Decision.act([STEPS[state.current_step]])
        return Decision.final("done")

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    result = Handyman(str(folder)).run(
        "Write it down", return_state=True, trace=False, render=False
    )
    told = [str(record.action_results[0]) for record in result.records[:-1]]
    return result, {
        "read": "tea" in told[1],
        "file": (folder / "note.txt").read_text(encoding="utf-8"),
        "echo": "done" in told[3],
    }
