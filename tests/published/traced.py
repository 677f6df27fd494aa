"""A run that writes its trace because ``trace=True`` says so, with a memory beside."""

import json
from dataclasses import dataclass
from typing import Any

from qitos_min import Action, AgentModule, Decision, StateSchema, ToolRegistry, tool
from qitos_min.kit import WindowMemory


@dataclass
class PlainState(StateSchema):
    colour: str = ""


@tool(name="mix")
def mix(first: str, second: str) -> str:
    """Mix two colours."""
    return f"{first}{second}"


class Mixer(AgentModule[PlainState, dict[str, Any], Action]):
    name = "mixer"

    def __init__(self, **config: Any):
        registry = ToolRegistry()
        registry.register(mix)
        super().__init__(tool_registry=registry, **config)

    def init_state(self, task: str, colour: str = "", max_steps: int = 3) -> PlainState:
        return PlainState(task=task, colour=colour, max_steps=max_steps)

    def decide(self, state, observation):
        if state.current_step:
            return Decision.final(state.colour)
        return Decision.act([Action("mix", {"first": state.colour, "second": "green"})])

    def reduce(self, state, observation, decision):
        for result in observation["action_results"]:
            state.colour = result
        return state


def main(scripted, folder):
    logdir = folder / "runs"
    result = Mixer(memory=WindowMemory()).run(
        "Mix",
        return_state=True,
        trace=True,
        render=False,
        theme="research",
        trace_logdir=str(logdir),
        trace_prefix="mixing",
        max_steps=3,
        colour="blue",
    )
    (run,) = logdir.iterdir()
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    steps = (run / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    return result, {
        "prefix": run.name.startswith("mixing"),
        "files": sorted(p.name for p in run.iterdir() if p.name.endswith(("json", "jsonl"))),
        "run_id": manifest["run_id"] == run.name,
        "status": manifest["status"],
        "steps": len(steps),
    }
