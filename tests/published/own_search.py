"""A search of one's own: all of its stages are called, and the last word is its own."""

from typing import Any

from qitos_min import Action, AgentModule, Decision, Engine, StateSchema, ToolRegistry, tool
from qitos_min.engine import RuntimeBudget
from qitos_min.engine.search import Search


class Shortest(Search):
    def __init__(self):
        self.called = []

    def expand(self, state, obs, seed_decision):
        self.called.append("expand")
        return list(seed_decision.candidates)

    def score(self, state, obs, candidates):
        self.called.append("score")
        return [-len(str(one.rationale)) for one in candidates]

    def prune(self, candidates, scores):
        self.called.append("prune")
        return [one for one, score in zip(candidates, scores) if score > -8]

    def select(self, candidates, scores):
        self.called.append("select")
        return candidates[scores.index(max(scores))]

    def backtrack(self, state):
        return state


@tool(name="say")
def say(word: str) -> str:
    """Say a word."""
    return word.upper()


class BranchingAgent(AgentModule[StateSchema, dict[str, Any], Action]):
    def __init__(self):
        registry = ToolRegistry()
        registry.register(say)
        super().__init__(tool_registry=registry)

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=3)

    def decide(self, state, observation):
        if state.metadata.get("said"):
            return Decision.final(state.metadata["said"])
        return Decision.branch(
            candidates=[
                Decision.act([Action("say", {"word": word})], rationale=word)
                for word in ("branching", "bough", "twig")
            ]
        )

    def reduce(self, state, observation, decision):
        for said in observation["action_results"]:
            state.metadata["said"] = said
        return state


def main(scripted, folder):
    search = Shortest()
    engine = Engine(agent=BranchingAgent(), search=search, budget=RuntimeBudget(max_steps=3))
    result = engine.run("Say the shortest")
    return result, {"called": sorted(set(search.called))}
