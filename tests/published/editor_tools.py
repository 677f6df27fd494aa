"""The file tools by name, called without a model."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema
from qitos_min.kit import coding_tools

CALLS = [
    ("write_file", {"filename": "a/b.txt", "content": "one\ntwo\nthree\n"}),
    ("append_file", {"filename": "a/b.txt", "content": "four\n"}),
    ("insert", {"path": "a/b.txt", "insert_line": 1, "new_str": "half"}),
    ("replace_lines", {"path": "a/b.txt", "start_line": 2, "end_line": 3, "replacement": "2"}),
    ("read_file", {"filename": "a/b.txt"}),
    ("list_files", {"path": "."}),
    ("search", {"path": ".", "keyword": "three"}),
]


class Clerk(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, root: str):
        super().__init__(tool_registry=coding_tools(root))

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=len(CALLS) + 1)

    def decide(self, state, observation):
        if state.current_step < len(CALLS):
            name, args = CALLS[state.current_step]
            return Decision.act([Action(name=name, args=args)])
        return Decision.final("done")

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    result = Clerk(str(folder)).run(
        "Keep the files", return_state=True, max_steps=8, trace=False, render=False
    )
    told = [str(record.action_results[0]) for record in result.records[:-1]]
    return result, {
        "file": (folder / "a" / "b.txt").read_text(encoding="utf-8").split(),
        "read": "three" in told[4],
        "listed": "a" in told[5],
        "searched": "b.txt" in told[6],
    }
