"""A coding agent on a workspace: it looks, mends, runs the program and is done."""

from dataclasses import dataclass, field
from typing import Any

from qitos_min import Action, AgentModule, StateSchema
from qitos_min.kit import CodingToolSet, REACT_SYSTEM_PROMPT, ReActTextParser, render_prompt
from qitos_min.kit.planning import append_log, format_action


@dataclass
class CodingState(StateSchema):
    log: list[str] = field(default_factory=list)


class CodingAgent(AgentModule[CodingState, dict[str, Any], Action]):
    def __init__(self, llm: Any, workspace_root: str):
        toolset = CodingToolSet(
            workspace_root=workspace_root,
            include_notebook=False,
            enable_lsp=False,
            enable_tasks=False,
            enable_web=False,
        )
        super().__init__(toolset=[toolset], llm=llm, model_parser=ReActTextParser())

    def init_state(self, task: str, **kwargs: Any) -> CodingState:
        return CodingState(task=task, max_steps=int(kwargs.get("max_steps", 8)))

    def build_system_prompt(self, state):
        schema = self.tool_registry.get_tool_descriptions()
        return render_prompt(REACT_SYSTEM_PROMPT, {"tool_schema": schema})

    def prepare(self, state):
        return "\n".join([f"Task: {state.task}", *state.log[-8:]])

    def reduce(self, state, observation, decision):
        for action in decision.actions:
            append_log(state, "log", format_action(action), max_items=16)
        for result in observation["action_results"]:
            append_log(state, "log", str(result)[:200], max_items=16)
        return state


def main(scripted, folder):
    (folder / "sum.py").write_text("print(6 * 6)\n", encoding="utf-8")
    llm = scripted(
        [
            'Thought: look\nAction: view(path="sum.py")',
            'Thought: mend\nAction: str_replace(path="sum.py", old_str="6 * 6", new_str="6 * 7")',
            'Thought: note\nAction: create(path="notes.txt", file_text="mended")',
            'Thought: run\nAction: run_command(command="python sum.py")',
            "Final Answer: it prints 42",
        ]
    )
    agent = CodingAgent(llm, str(folder))
    result = agent.run(
        "Make sum.py print 42",
        return_state=True,
        workspace=str(folder),
        max_steps=8,
        trace=False,
        render=False,
    )
    return result, {
        "file": (folder / "sum.py").read_text(encoding="utf-8"),
        "notes": (folder / "notes.txt").read_text(encoding="utf-8"),
        "printed": "42" in str(result.records[3].action_results[0]),
        "shown": "6 * 6" in str(result.records[0].action_results[0]),
    }
