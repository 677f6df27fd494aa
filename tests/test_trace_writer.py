"""The trace folder: readable at any moment, exported to the same payload."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import snowl_compat
from qitos_min.__main__ import TASK, build_engine
from qitos_min.engine.states import RuntimeEvent, RuntimePhase, StepRecord
from qitos_min.trace import TraceWriter

ROOT = Path(__file__).resolve().parents[1]


def strict_lines(path):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return [
        json.loads(line, parse_constant=refuse)
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]
    ]


def test_a_folder_exports_to_the_payload_of_its_run(tmp_path):
    engine = build_engine(trace_writer=TraceWriter(tmp_path / "run"))
    result = engine.run(TASK)
    issues = []
    from_folder = snowl_compat.build_payload(tmp_path / "run", extended=True, issues=issues)
    from_result = snowl_compat.build_payload(result, engine=engine, extended=True)
    assert issues == []
    assert from_folder["run"].pop("source") == str(tmp_path / "run")
    assert from_result["run"].pop("source") is None
    assert from_folder == from_result


def test_each_line_is_what_json_makes_of_its_row_alone(tmp_path):
    build_engine(trace_writer=TraceWriter(tmp_path)).run(TASK)
    writer = TraceWriter(tmp_path / "own")
    writer.start("r", {"model_id": "", "protocol_id": None}, [])
    odd = {"a": ['", "', "\n", "\n]"], "b": [[], "", {}]}
    event = RuntimeEvent(0, RuntimePhase.ACT, payload=odd, ts="t")
    for _ in range(3):
        writer.write_event("r", event)
    writer.write_step("r", StepRecord(0, observation=odd))
    writer.write_step("r", StepRecord(1))
    paths = [f / name for f in (tmp_path, tmp_path / "own") for name in ("events.jsonl", "steps.jsonl")]
    for path in paths:
        lines = path.read_bytes().decode("utf-8").split("\n")
        assert lines.pop() == ""
        assert lines == [json.dumps(json.loads(line), ensure_ascii=False) for line in lines]
    assert json.loads(lines[0])["observation"] == odd and len(lines) == 2
    writer._close()


def test_lines_and_manifest_have_the_documented_keys(tmp_path):
    engine = build_engine(trace_writer=TraceWriter(tmp_path))
    result = engine.run(TASK)
    events = strict_lines(tmp_path / "events.jsonl")
    steps = strict_lines(tmp_path / "steps.jsonl")
    assert list(events[0]) == ["run_id", "step_id", "phase", "ok", "payload", "error", "ts"]
    assert len(events) == len(result.events)
    assert [step["step_id"] for step in steps] == list(range(6))
    assert "phase_events" not in steps[0]
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["run_id"] == result.run_id
    assert (manifest["status"], manifest["schema_version"]) == ("completed", "v1")
    assert (manifest["step_count"], manifest["event_count"]) == (6, len(events))
    assert manifest["engine_config"] == engine.export_config().to_dict()
    assert manifest["summary"]["stop_reason"] == "final"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "events.jsonl", "manifest.json", "steps.jsonl",
    ]


def test_a_folder_with_a_run_is_refused(tmp_path):
    build_engine(trace_writer=TraceWriter(tmp_path)).run(TASK)
    with pytest.raises(ValueError) as caught:
        TraceWriter(tmp_path)
    assert str(caught.value) == f"{str(tmp_path)!r} holds a run already (manifest.json)"


def test_a_trace_that_cannot_be_written_does_not_cost_the_run(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = build_engine(trace_writer=TraceWriter(tmp_path / "file" / "run")).run(TASK)
    assert result.failure is None
    told = [event for event in result.events if event.payload.get("stage") == "trace_error"]
    assert len(told) == 1 and told[0].error.startswith("trace stopped: ")


ENDLESS = """
import sys
from qitos_min import Action, AgentModule, Decision, Engine, StateSchema, ToolRegistry
from qitos_min.engine import RuntimeBudget, critic
from qitos_min.trace import TraceWriter

def look(n: int) -> str:
    "Look."
    return "寒潮" * n

class Agent(AgentModule):
    def init_state(self, task, **kwargs):
        return StateSchema(task=task, metadata={"finished": 0})
    def decide(self, state, observation):
        return Decision.act(Action("look", {"n": 40}))
    def reduce(self, state, observation, decision):
        return state

class Teller:
    def on_step_end(self, record, state, engine):
        print(record.step_id, flush=True)

@critic
def judge(state, decision, results):
    return {"score": 0.5, "details": {"nan": float("nan")}}

Engine(
    Agent(tool_registry=ToolRegistry().register(look)),
    budget=RuntimeBudget(max_steps=100_000), critics=[judge],
    hooks=[Teller()], trace_writer=TraceWriter(sys.argv[1]),
).run("go")
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("seed", range(20))
def test_a_killed_run_exports_every_finished_step(seed, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    first = process.stdout.readline()
    time.sleep(random.Random(seed).uniform(0, 0.05))
    process.send_signal(signal.SIGKILL)
    finished = len((first + process.communicate()[0]).split(b"\n")) - 1
    issues = []
    payload = json.loads(snowl_compat.export_json(str(tmp_path), extended=True, issues=issues))
    # The step whose line was written last may not have been told yet.
    assert finished <= payload["step_count"] <= finished + 1
    assert len(payload["critic_traces"]) == payload["step_count"]
    assert payload["engine_config"]["agent_name"] == "Agent"
    assert [spec["name"] for spec in payload["tool_permissions"]] == ["look"]
    assert payload["run"]["partial"] is True
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == "running"
