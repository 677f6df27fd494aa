"""What published agents use of core: each option of a run, dict actions, memories, errors."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, field

import pytest
from engine_doubles import as_json


from qitos_min import Action, AgentModule, AgentRegistry, AgentSpec, Decision, Observation
from qitos_min import StateAdapter, StateSchema, StopReason, ToolRegistry
from qitos_min.core.errors import (
    ErrorCategory,
    ModelExecutionError,
    ParseExecutionError,
    QitosRuntimeError,
    RuntimeErrorInfo,
    StateExecutionError,
    SystemExecutionError,
    ToolExecutionError,
    classify_exception,
)
from qitos_min.core.history import History, HistoryMessage, HistoryPolicy
from qitos_min.core.memory import Memory, MemoryRecord
from qitos_min.core.shared_memory import InMemorySharedMemory, SharedMemoryManager
from qitos_min.core.spec import BenchmarkRunResult, ExperimentSpec, RunSpec
from qitos_min.core.tool import ToolMeta, build_tool_spec
from qitos_min.core.tool_result import ToolResult
from qitos_min.engine.engine import Engine
from qitos_min.trace import TraceWriter


@dataclass
class State(StateSchema):
    seen: list = field(default_factory=list)


class Adder(AgentModule[State, dict, Action]):
    """Adds once by a dict, as published agents do, and says the sum."""

    def __init__(self, **options):
        registry = ToolRegistry()
        registry.register(lambda a, b=2: a + b, name="add")
        super().__init__(tool_registry=registry, **options)
        self.given = None

    def init_state(self, task: str, **kwargs) -> State:
        self.given = kwargs
        return State(task=task, max_steps=5)

    def decide(self, state: State, observation: dict) -> Decision[Action]:
        if not state.seen:
            return Decision.act([{"name": "add", "args": {"a": 1}}])
        return Decision.final(str(state.seen[0]))

    def reduce(self, state, observation, decision):
        state.seen += observation["action_results"]
        return state


@pytest.mark.parametrize("kind", [AgentModule, Decision, StateAdapter])
def test_a_class_can_be_subscripted(kind):
    parts = (State, dict, Action)[: len(kind.__parameters__)]
    assert kind[parts] is not None


@pytest.mark.parametrize(
    "given, wanted",
    [
        ({"name": "add", "args": {"a": 1}}, Action("add", {"a": 1})),
        ({"name": "add", "arguments": {"a": 1}, "id": "c1"}, Action("add", {"a": 1}, action_id="c1")),
        ({"action": "add", "action_id": "c2"}, Action("add", action_id="c2")),
        ({"name": "add", "action": "other", "args": None, "further": 1}, Action("add")),
    ],
)
def test_an_action_may_be_a_dict(given, wanted):
    decision = Decision.act([given])
    decision.validate()
    assert decision.actions == Decision.act(given).actions == [wanted]
    assert Decision("act", [given]).actions == [wanted]


@pytest.mark.parametrize("given", [{}, {"name": ""}, {"args": {}}, {"name": 5}])
def test_a_dict_without_a_name_is_no_action(given):
    with pytest.raises(ValueError) as caught:
        Decision.act([given])
    name = given.get("name")
    assert str(caught.value) == f"an action needs a non-empty text 'name', got {name!r}"


# The options of a run


class Caught(Adder):
    """Keeps what an engine would be made of."""

    def build_engine(self, **settings):
        self.settings, self.remembered = settings, self.memory
        return self

    def run_it(self, **options):
        return AgentModule.run(self, "t", **options)


class Settings(Caught):
    def run(self, task, **state_kwargs):
        self.state_kwargs = state_kwargs
        return Done()


class Done:
    final_result = "done"


OPTIONS = ["hooks", "render_hooks", "env", "parser", "protocol", "search", "critics"]
OPTIONS += ["stop_criteria", "history_policy", "context_config"]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_the_engine_goes_to_the_engine_only(option):
    agent, value = Settings(), ["x"]
    assert agent.run_it(**{option: value}) == "done"
    assert (agent.settings, agent.state_kwargs) == ({option: value}, {})


KNOWN = set(OPTIONS) | {"engine_kwargs", "workspace", "max_steps", "trace", "render", "memory"}
KNOWN |= {"trace_logdir", "trace_prefix", "theme", "run_spec", "experiment_spec"}


def test_every_option_of_a_run_is_named():
    names = list(inspect.signature(AgentModule.run).parameters)
    assert names[:3] == ["self", "task", "return_state"] and names[-1] == "state_kwargs"
    assert set(names[3:-1]) == KNOWN


def test_no_option_reaches_init_state(tmp_path):
    # The silent loss: trace, render and theme were passed on to init_state.
    agent = Settings()
    options = dict.fromkeys(OPTIONS, ["x"])
    agent.run_it(
        **options, engine_kwargs={"auto_approve": True}, workspace=str(tmp_path / "new"),
        trace=False, render=False, trace_logdir="x", trace_prefix="y", theme="neon",
        memory=Memory(), own=1,
    )
    assert agent.state_kwargs == {"own": 1}
    assert (tmp_path / "new").is_dir()
    assert set(agent.settings) == {*OPTIONS, "auto_approve"}


def test_a_workspace_that_is_not_there_is_made(tmp_path):
    agent = Settings()
    agent.run_it(workspace=str(tmp_path / "a" / "b"))
    assert type(agent.settings["env"]).__name__ == "HostEnv"
    assert (tmp_path / "a" / "b").is_dir()


def test_max_steps_is_the_budgets_and_told_to_the_state():
    agent = Settings()
    agent.run_it(max_steps=3)
    assert agent.settings["budget"].max_steps == 3
    assert agent.state_kwargs == {"max_steps": 3}


writes_where_asked = pytest.mark.skipif(
    "metadata" not in inspect.signature(TraceWriter).parameters, reason="an older trace writer"
)


def manifests(folder):
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*/manifest.json"))]


@writes_where_asked
def test_a_trace_is_written_where_it_is_asked_for(tmp_path, monkeypatch):
    # The silent loss: agent.run(trace=True) wrote no trace.
    monkeypatch.chdir(tmp_path)
    agent = Adder(name="sum / of")
    assert agent.run("t") == "3" and list(tmp_path.iterdir()) == []
    assert agent.run("t", trace=True) == "3"
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("sum___of_")
    assert len(manifests(tmp_path / "runs")) == 1
    agent.run("t", trace=True, trace_logdir=str(tmp_path / "x"), trace_prefix="mine")
    (folder,) = (tmp_path / "x").iterdir()
    assert folder.name.startswith("mine_")


@writes_where_asked
def test_a_spec_turns_the_trace_on_and_stands_in_its_manifest(tmp_path):
    spec = RunSpec(model_name="m", seed=7)
    Adder().run("t", run_spec=spec, experiment_spec={"name": "e"}, trace_logdir=str(tmp_path))
    (manifest,) = manifests(tmp_path)
    assert manifest["run_spec"]["seed"] == 7
    assert manifest["experiment_spec"]["name"] == "e"
    Adder().run("t", run_spec=spec, trace=False, trace_logdir=str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_a_run_is_shown_when_asked_for(capsys):
    pytest.importorskip("qitos_min.render")
    agent = Settings()
    mine = object()
    agent.run_it(render=True, render_hooks=[mine], theme="minimal")
    first, second = agent.settings["render_hooks"]
    assert first is mine and type(second).__name__ == "ClaudeStyleHook"
    with pytest.raises(ValueError, match="plaid"):
        agent.run_it(render=True, theme="plaid")
    assert capsys.readouterr() == ("", "")


def test_a_memory_is_the_agents():
    # The silent loss: AgentModule(memory=...) vanished.
    own, other = Memory(), Memory()
    agent = Settings(memory=own)
    assert agent.memory is own and agent.config == {}
    agent.run_it()
    assert agent.remembered is own
    agent.run_it(memory=other)
    assert agent.remembered is other and agent.memory is own


def test_an_unknown_keyword_of_an_agent_is_its_configuration():
    assert Adder(colour="red").config == {"colour": "red"}


def test_an_agent_of_dicts_runs():
    result = Adder().run("t", return_state=True)
    assert (result.state.final_result, result.state.stop_reason) == ("3", "final")


# Prompts and tools


class Persona(Adder):
    def base_persona_prompt(self, state):
        return "You add."

    def extra_instructions_prompt(self, state):
        return "Be brief."


def test_the_system_prompt_is_made_of_the_hooks():
    assert Persona().build_system_prompt(State()) == "You add.\n\nBe brief."
    assert Adder().build_system_prompt(State()) is None
    assert Persona().compose_system_prompt("base") == "base"


def search(query: str, limit: int = 3) -> list:
    """Find texts.

    Args:
        query: what to look for
    """
    return [query] * limit


def test_the_tools_as_text():
    registry = ToolRegistry().register(search)
    text = "- search: Find texts.\n  - query (string): what to look for\n  - limit (integer, optional)"
    assert registry.get_tool_descriptions() == registry.render_tool_schema("json_decision_v1") == text
    assert registry.get_tool_descriptions(renderer=lambda tools: tools.list_tools()) == "['search']"
    agent = Adder()
    assert agent.render_tool_schema() == agent.tool_registry.render_tool_schema()


def test_a_spec_of_a_function():
    spec = build_tool_spec(search, ToolMeta(name="find", read_only=True))
    assert (spec.name, spec.description, spec.read_only) == ("find", "Find texts.", True)
    assert spec.required == ["query"]


def boom():
    raise KeyError("five")


class Odd:
    """No JSON."""


def test_call_gives_the_value_and_raises_what_the_tool_raised():
    odd = Odd()
    registry = ToolRegistry().register(search).register(boom)
    registry.register(lambda: odd, name="odd")
    registry.register(boom, name="mended", meta=ToolMeta(on_failure=lambda error: "mended"))
    registry.register(boom, name="asks", meta=ToolMeta(needs_approval=True))
    registry.register(lambda: ToolResult(output=1), name="own")
    assert registry.call("search", query="a", limit=2) == ["a", "a"]
    assert registry.call("odd") is odd
    assert registry.call("mended") == "mended"
    assert registry.call("own") == ToolResult(output=1)
    with pytest.raises(KeyError, match="five"):
        registry.call("boom")
    with pytest.raises(ValueError) as unknown:
        registry.call("serch")
    assert str(unknown.value) == "no tool is named 'serch', did you mean 'search'?"
    for name, args, code in (
        ("search", {}, "missing_required_argument"),
        ("asks", {}, "approval_required"),
    ):
        with pytest.raises(ToolExecutionError) as refused:
            registry.call(name, **args)
        assert refused.value.info.details == {"code": code}
        assert refused.value.category is ErrorCategory.TOOL


def test_execute_gives_the_result():
    registry = ToolRegistry().register(search).register(boom)
    done = registry.execute(Action("search", {"query": "a", "limit": 1}, action_id="c"))
    assert (done.output, done.action_id, done.is_success) == (["a"], "c", True)
    assert registry.execute(Action("boom")).error == "KeyError: 'five'"
    assert registry.execute(Action("serch")).error_code == "tool_not_found"


# Observations, histories, memories


def test_the_keys_of_an_observation_are_attributes():
    whole = ToolResult(output={"n": 1})
    observation = Observation({"step": 2, "action_results": [{"n": 1}]}, results=[whole])
    assert observation["action_results"][0] == {"n": 1}
    assert observation.action_results[0] is whole
    assert (observation.step, dict(observation)) == (2, {"step": 2, "action_results": [{"n": 1}]})
    assert Observation({"action_results": [5]}).action_results == [5]
    assert as_json(observation) == {"step": 2, "action_results": [{"n": 1}]}
    with pytest.raises(AttributeError) as caught:
        observation.colour
    assert str(caught.value) == "the observation has no 'colour'"


@pytest.mark.parametrize(
    "query, wanted",
    [
        (None, "abcd"),
        ({}, "abcd"),
        ({"roles": ["user"]}, "ac"),
        ({"step_min": 2}, "cd"),
        ({"max_items": 3}, "bcd"),
        ({"max_items": 0}, ""),
        ({"roles": ["user"], "max_items": 1}, "c"),
    ],
)
@pytest.mark.parametrize("kind, record", [(History, HistoryMessage), (Memory, MemoryRecord)])
def test_what_is_kept_can_be_asked_for(kind, record, query, wanted):
    log = kind()
    for step, word in enumerate("abcd"):
        log.append(record(("user", "assistant")[step % 2], word, step))
    assert "".join(item.content for item in log.retrieve(query, None, None)) == wanted
    assert log.summarize(2) == "[2] user: c\n[3] assistant: d"
    assert log.evict() == 0
    log.reset(run_id="r")
    assert log.retrieve() == []


def test_a_policy_makes_a_query():
    assert HistoryPolicy().build_query(9) == {"roles": ["user", "assistant"], "max_items": 24}
    made = HistoryPolicy(["user"], 2, step_window=3, max_tokens=9).build_query(5, more=1)
    assert made == {"roles": ["user"], "max_items": 2, "step_min": 3, "max_tokens": 9, "more": 1}


def test_memory_that_agents_share():
    memory = InMemorySharedMemory()
    memory.write("a", 1)
    memory.write("ab", None)
    assert (memory.read("a"), memory.read("x"), memory.read("x", 5)) == (1, None, 5)
    assert memory.list_keys() == ["a", "ab"] and memory.list_keys("ab") == ["ab"]
    assert (memory.delete("ab"), memory.delete("ab")) == (True, False)
    memory.clear()
    assert memory.list_keys() == []


def test_memories_by_name():
    manager = SharedMemoryManager()
    manager.namespace("one").write("k", 1)
    manager.global_namespace.write("k", 0)
    assert manager.namespace("one") is manager.namespace("one")
    assert manager.namespace("two").read("k") is None
    assert manager.list_namespaces() == ["one", "two"]
    manager.clear_all()
    assert (manager.namespace("one").read("k"), manager.global_namespace.read("k")) == (None, None)


# Errors, specs, registries


@pytest.mark.parametrize(
    "error, phase, category, again",
    [
        (TimeoutError("late"), "decide", ErrorCategory.MODEL, True),
        (ConnectionError("lost"), "DECIDE", ErrorCategory.MODEL, True),
        (ValueError("odd"), "decide", ErrorCategory.SYSTEM, False),
        (ValueError("odd"), "ACT", ErrorCategory.TOOL, True),
        (TimeoutError("late"), "reduce", ErrorCategory.SYSTEM, False),
        (QitosRuntimeError("no", ErrorCategory.PARSE), "decide", ErrorCategory.PARSE, True),
    ],
)
def test_what_an_exception_means(error, phase, category, again):
    info = classify_exception(error, phase, 4)
    assert (info.category, info.recoverable) == (category, again)
    assert (info.phase, info.step_id, info.message) == (phase, 4, str(error))


SIBLINGS = [ModelExecutionError, ParseExecutionError, ToolExecutionError]
SIBLINGS += [StateExecutionError, SystemExecutionError]


@pytest.mark.parametrize("kind", SIBLINGS)
def test_an_error_carries_its_info(kind):
    info = RuntimeErrorInfo(ErrorCategory.PARSE, "no JSON", "decide", 1, details={"code": "c"})
    error = kind(info)
    assert isinstance(error, QitosRuntimeError)
    assert (error.info, error.message, error.category) == (info, "no JSON", ErrorCategory.PARSE)
    assert classify_exception(error, "act", 9) is info


@pytest.mark.parametrize("reason", [StopReason.FINAL, "final"])
def test_a_state_takes_known_reasons_only(reason):
    state = StateSchema()
    state.set_stop(reason, "x")
    assert (state.stop_reason, state.final_result) == ("final", "x")
    with pytest.raises(ValueError):
        state.set_stop("tired")


def test_a_spec_is_read_from_a_mapping():
    spec = RunSpec.from_value({"seed": 3, "colour": "red"})
    assert (spec.seed, spec.metadata, spec.package_version) == (3, {"colour": "red"}, "0.1.0")
    assert RunSpec.from_value(spec) is spec
    assert as_json(ExperimentSpec(name="e").to_dict())["name"] == "e"
    with pytest.raises(TypeError, match="ExperimentSpec or a mapping, got int"):
        ExperimentSpec.from_value(5)
    row = ("t", "b", "s", None, True, None, 1, 0.1, 5, 0.0, None, None)
    assert BenchmarkRunResult(*row).metadata == {}


def agents():
    registry = AgentRegistry()
    for name in ("ann", "bob"):
        registry.register(AgentSpec(name, f"{name} adds", Adder()))
    return registry


def test_a_registry_gives_tools_for_its_agents():
    registry = agents()
    assert registry.resolve("bob").name == "bob"
    assert [spec.name for spec in registry.list_available()] == ["ann", "bob"]
    with pytest.raises(KeyError) as caught:
        registry.resolve("zoe")
    assert caught.value.args == ("no agent is registered as 'zoe'; registered: ann, bob",)
    names = [tool.name for tool in (*registry.get_delegate_tools(), *registry.get_handoff_tools())]
    assert names == ["delegate_to_ann", "delegate_to_bob", "transfer_to_ann", "transfer_to_bob"]


class Leader(Adder):
    """Gives tasks to both, once."""

    def __init__(self, tasks):
        super().__init__()
        self.tool_registry = ToolRegistry().register(agents().get_fanout_tool())
        self.tasks = tasks

    def decide(self, state, observation):
        if not state.seen:
            return Decision.act(Action("fanout", {"tasks": self.tasks}))
        return Decision.final("done")


UNKNOWN = "KeyError: \"no agent is registered as 'zoe'; registered: ann, bob\""


@pytest.mark.parametrize(
    "who, status, error",
    [(["ann", "bob"], "success", None), (["ann", "zoe"], "success", None), (["zoe"], "error", UNKNOWN)],
)
def test_tasks_for_several_agents(who, status, error):
    tasks = [{"agent": name, "task": "add"} for name in who]
    result = Engine(agent=Leader(tasks), agent_registry=agents()).run("t")
    (called,) = result.records[0].tool_invocations
    assert (called["status"], called.get("error")) == (status, error)
    if status == "success":
        rows = [
            (row["agent"], (row["output"] or {}).get("final_result"), row.get("error"))
            for row in result.records[0].action_results[0]
        ]
        second = ("bob", "3", None) if "bob" in who else ("zoe", None, UNKNOWN)
        assert rows == [("ann", "3", None), second]
