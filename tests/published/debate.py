"""Two sides in turn, each reading the other's last word from a shared memory."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema
from qitos_min.core.shared_memory import InMemorySharedMemory, SharedMemoryManager


class Side(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self, side: str, board: Any):
        super().__init__()
        self.side, self.board = side, board

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=2)

    def decide(self, state, observation):
        before = self.board.read("last")
        word = f"{self.side} after {before}" if before else f"{self.side} first"
        self.board.write("last", word)
        self.board.write(f"{self.side}-{len(self.board.list_keys())}", word)
        return Decision.final(word)

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    manager = SharedMemoryManager()
    board = manager.namespace("debate")
    for side in ("for", "against", "for"):
        result = Side(side, board).run("Debate", return_state=True, trace=False, render=False)
    keys = sorted(board.list_keys())
    spaces = manager.list_namespaces()
    board.delete("last")
    gone = board.read("last")
    manager.clear_all()
    alone = InMemorySharedMemory()
    alone.write("a", 1)
    alone.clear()
    return result, {
        "keys": keys,
        "debate": "debate" in spaces,
        "gone": gone is None,
        "left": alone.list_keys(),
    }
