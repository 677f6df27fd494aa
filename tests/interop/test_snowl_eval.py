"""``snowl eval`` of whole projects: wrapped agents, and unwrapped ones beside them."""

import importlib

import pytest

import snowl_compat

EXPECTED = {
    "right": ("success", "completed", "42"),
    "wrong": ("incorrect", "completed", "41"),
    "steps": ("limit_exceeded", "max_steps", ""),
    "crash": ("error", "error", ""),
    "tool crash": ("success", "completed", "42"),
    "cancelled": ("cancelled", "cancelled", ""),
    "awkward": ("success", "completed", "42"),
}


def told(outcome):
    done = outcome["task_result"]
    content = done["final_output"]["content"]
    return done["status"], done["payload"]["stop_reason"], content


def payload_of(outcome):
    first = outcome["trace"]["trace_events"][0]
    assert first["event"] == "qitos.snowl_payload"
    return first["payload"]


def run_alone(framework, project, task):
    """The payload of the same run outside of Snowl."""
    steps = {"max_steps": 3}
    budget = importlib.import_module(f"{framework}.engine").RuntimeBudget(**steps)
    engine = project.WayAgent().build_engine(**project.ENGINE_KWARGS, budget=budget)
    result = engine.run(task, **steps)
    payload = snowl_compat.build_payload(result, engine=engine)
    if payload["engine_config"]["budget_max_steps"] is None:
        payload["engine_config"]["budget_max_steps"] = 3
    return payload


@pytest.fixture(scope="module", params=["qitos_min", "qitos"])
def ways(request, evaluate):
    """(framework, its evaluation of the project)."""
    return request.param, evaluate(request.param)


def test_one_evaluation_of_all_ways_a_trial_can_go(ways):
    framework, done = ways
    expected = dict(EXPECTED)
    if framework == "qitos":
        # QitOS 0.3.0 has no cancel(): asking for it is a crash of the agent.
        expected["cancelled"] = ("error", "error", "")
    outcomes = done.outcomes()
    assert {way: told(outcome) for way, outcome in outcomes.items()} == expected
    assert done.returncode == 1, done.said  # Because a trial ended in an error.
    assert outcomes["crash"]["task_result"]["error"]["message"] == (
        "RuntimeError: the agent broke (DECIDE, step 0)"
    )


def test_a_crash_can_be_found_in_snowls_files(ways):
    *_, last = ways[1].outcomes()["crash"]["trace"]["trace_events"]
    assert (last["event"], last["type"], last["message"], last["phase"], last["step_id"]) == (
        "qitos.failure",
        "RuntimeError",
        "the agent broke",
        "DECIDE",
        0,
    )
    assert 'raise RuntimeError("the agent broke")' in last["traceback"]


def test_every_file_of_an_evaluation_parses_strictly(ways):
    assert len(ways[1].documents()) > 20


def test_the_payload_in_snowls_files_is_that_of_the_same_run_alone(ways, project):
    framework, done = ways
    module = project(framework)
    for way, outcome in done.outcomes().items():
        payload = payload_of(outcome)
        assert snowl_compat.validate_payload(payload) == []
        assert payload == run_alone(framework, module, way), way
        names = [spec["name"] for spec in payload["tool_permissions"]]
        assert names == ["add", "boom", "strange"]
        tasks = [row["details"].get("task") for row in payload["critic_traces"]]
        assert way == "awkward" or set(tasks) <= {way}


def test_snowls_trace_scorer_sees_each_call_once(ways):
    outcomes = ways[1].outcomes()
    policy = {way: o["scores"]["tool_trace_policy"]["value"] for way, o in outcomes.items()}
    # Wanted is "add" and at most one call: "steps" makes three, "crash" none.
    assert policy["right"] == policy["wrong"] == 1.0
    assert policy["steps"] == policy["crash"] == policy["tool crash"] == 0.0
    calls = [a["payload"]["tool_name"] for a in outcomes["tool crash"]["trace"]["actions"]]
    assert calls == ["add", "boom"]
    add, boom = (o["payload"] for o in outcomes["tool crash"]["trace"]["observations"])
    assert add == {"tool_name": "add", "result": 42, "status": "success"}
    assert "the tool broke" in boom["result"]["error"] and boom["status"] == "error"


def test_awkward_values_cost_themselves_only(ways):
    outcome = ways[1].outcomes()["awkward"]
    expected = {
        "nan": None,
        "when": "2026-01-02T00:00:00",
        "raw": {"$bytes": "/w=="},
        "cycle": {"text": "lone \ufffd", "self": {"$cycle": True}},
        "object": {"$unserializable": "builtins.object"},
        "set": [1],
        "keys": {"[1,2]": 3},
    }
    assert payload_of(outcome)["critic_traces"][0]["details"] == expected
    assert outcome["trace"]["observations"][1]["payload"]["result"] == expected


# What an agent that hands the same values to Snowl does to the evaluation

UNWRAPPED = """
from snowl import StopReason


class Unwrapped:
    agent_id = "unwrapped"

    async def run(self, state, context, tools=None):
        value = awkward()[context.metadata["sample"]["metadata"]["key"]]
        state.output = {
            "message": {"role": "assistant", "content": "42"},
            "trace_events": [{"event": "critic", "details": value}],
        }
        state.stop_reason = StopReason.COMPLETED
        return state


agent = Unwrapped()
"""
WRAPPED = """
from qitos_min import AgentModule, Decision, StateSchema
from qitos_min.snowl import QitOSAdapter


class Wrapped(AgentModule):
    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def decide(self, state, observation):
        return Decision.final("42")

    def reduce(self, state, observation, decision):
        return state


class Critic:
    def evaluate(self, state, decision, results):
        return {"action": "continue", "details": awkward()[state.task]}


agent = QitOSAdapter().wrap(Wrapped, engine_kwargs={"critics": [Critic()]})
"""
TASKS = """
from snowl import EnvSpec, Task

KEYS = ["{key}", "fine"]
SAMPLES = [{{"id": k, "input": k, "metadata": {{"key": k, "target": "42"}}}} for k in KEYS]
task = Task("values", EnvSpec("local"), lambda: iter(SAMPLES))
"""
VALUES = """
import datetime


def awkward():
    cycle = {}
    cycle["self"] = cycle
    return {
        **{"nan": {"x": float("nan")}, "when": {"x": datetime.datetime(2026, 1, 2)}},
        **{"raw": {"x": b"raw"}, "cycle": cycle, "lone": {"x": "lone \\ud800"}},
        **{"object": {"x": object()}, "fine": {"x": 1}},
    }
"""
ABORTS = [
    ("when", "Object of type datetime is not JSON serializable"),
    ("raw", "Object of type bytes is not JSON serializable"),
    ("cycle", "Circular reference detected"),
    ("lone", "surrogates not allowed"),
    ("object", "Object of type object is not JSON serializable"),
]


@pytest.mark.parametrize("key, error", ABORTS)
def test_unwrapped_one_value_ends_the_evaluation(key, error, evaluate):
    done = evaluate(agent=VALUES + UNWRAPPED, task=TASKS.format(key=key))
    assert done.returncode == 1 and error in done.said
    assert not (done.folder / "outcomes.json").exists()


def test_unwrapped_nan_leaves_files_that_no_strict_reader_takes(evaluate):
    done = evaluate(agent=VALUES + UNWRAPPED, task=TASKS.format(key="nan"))
    assert done.returncode == 0, done.said
    with pytest.raises(ValueError, match="NaN is no strict JSON"):
        done.outcomes()


@pytest.mark.parametrize("framework", ["qitos_min", "qitos"])
@pytest.mark.parametrize("key", [*(key for key, _ in ABORTS), "nan"])
def test_wrapped_the_same_value_costs_itself_only(key, framework, evaluate):
    done = evaluate(framework, agent=VALUES + WRAPPED, task=TASKS.format(key=key))
    assert done.returncode == 0, done.said
    outcomes = done.outcomes()
    assert [told(outcomes[sample])[0] for sample in (key, "fine")] == ["success"] * 2
    rows = {k: payload_of(o)["critic_traces"] for k, o in outcomes.items()}
    assert rows["fine"][0]["details"] == {"x": 1}
    assert len(rows[key]) == 1
    done.documents()
