"""Actions of a parser read by key, as many agents do for their log."""

from typing import Any

from qitos_min import AgentModule, StateSchema, ToolRegistry, tool
from qitos_min.kit import JsonDecisionParser


@tool(name="weigh")
def weigh(what: str, grams: int = 0) -> dict:
    """Weigh something."""
    return {"what": what, "grams": grams}


class Grocer(AgentModule[StateSchema, dict[str, Any], dict[str, Any]]):
    def __init__(self, llm: Any):
        registry = ToolRegistry()
        registry.register(weigh)
        super().__init__(tool_registry=registry, llm=llm, model_parser=JsonDecisionParser())

    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=int(kwargs.get("max_steps", 4)))

    def prepare(self, state):
        return f"{state.task} {state.metadata.get('log', [])}"

    def reduce(self, state, observation, decision):
        log = state.metadata.setdefault("log", [])
        results = observation.get("action_results", []) if isinstance(observation, dict) else []
        for action, result in zip(decision.actions, results):
            log.append([action["name"], action.get("args", {}).get("what"), result.get("grams")])
            log.append([action.get("colour"), action.get("colour", "none")])
        return state


def main(scripted, folder):
    llm = scripted(
        [
            '{"thought": "t", "action": {"name": "weigh", "args": {"what": "tea", "grams": 50}}}',
            '{"thought": "t", "final_answer": "50"}',
        ]
    )
    result = Grocer(llm).run(
        task="Weigh tea", return_state=True, max_steps=4, trace=False, render=False
    )
    return result, {"log": result.state.metadata["log"]}
