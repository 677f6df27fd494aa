"""A trace writer of one's own making, passed to the engine."""

import json
from typing import Any

from qitos_min import Action, AgentModule, Decision, Engine, StateSchema
from qitos_min.trace import TraceWriter


class Waiting(AgentModule[StateSchema, dict[str, Any], Action]):
    def init_state(self, task: str, **kwargs: Any) -> StateSchema:
        return StateSchema(task=task, max_steps=4)

    def decide(self, state, observation):
        return Decision.final("waited") if state.current_step == 2 else Decision.wait()

    def reduce(self, state, observation, decision):
        return state


def main(scripted, folder):
    writer = TraceWriter(
        output_dir=str(folder),
        run_id="run-7",
        schema_version="v1",
        metadata={"model_id": "scripted", "seed": 7},
        strict_validate=False,
    )
    result = Engine(agent=Waiting(), trace_writer=writer).run("Wait twice")
    manifest = json.loads((folder / "run-7" / "manifest.json").read_text(encoding="utf-8"))
    wanted = (
        "prompt_hash tool_versions seed run_config_hash git_sha package_version benchmark_name"
        " benchmark_split model_family prompt_protocol parser_name tool_manifest run_spec"
        " experiment_spec official_run token_usage latency_seconds cost"
    )
    held = {**manifest, **manifest.get("summary", {})}
    return result, {
        "folder": str(writer.run_dir) == str(folder / "run-7"),
        "run_id": [writer.run_id, manifest["run_id"]],
        "version": manifest["schema_version"],
        "missing": [key for key in wanted.split() if key not in held],
    }
