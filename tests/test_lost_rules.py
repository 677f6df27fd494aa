"""Rules that shortening had lost, or that no test had looked at."""

import collections
import json
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, Optional

import pytest
from engine_doubles import ScriptedAgent, World, add, tools

import snowl_compat
from qitos_min import (
    Action,
    AgentModule,
    AgentRegistry,
    AgentSpec,
    BaseTool,
    Decision,
    Engine,
    StateSchema,
    ToolMeta,
    ToolRegistry,
)
from qitos_min.core import ActionExecutionPolicy
from qitos_min.core.history import History, HistoryPolicy
from qitos_min.engine import RuntimeBudget
from qitos_min.engine.delegate import DelegateTool
from qitos_min.kit.checkpoint import FileCheckpointStore, MemoryCheckpointStore
from qitos_min.kit.critic import SelfReflectionCritic
from qitos_min.trace import TraceWriter

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))
DELEGATE = Decision.act(Action("delegate_to_w", {"task": "sub"}))


class Box:
    name = "box"

    def __init__(self):
        self.is_open, self.log = False, []

    def setup(self, context):
        self.is_open = True
        self.log.append("setup")

    def teardown(self, context):
        self.is_open = False
        self.log.append("teardown")

    def look(self):
        return self.is_open

    def tools(self):
        return [self.look]


def test_a_delegate_leaves_the_environment_of_its_caller_alone():
    worker = AgentSpec("w", "w", ScriptedAgent(Decision.final("did")))
    registry = ToolRegistry().register(DelegateTool(worker))
    boss, world = ScriptedAgent(DELEGATE, Decision.final(1), tool_registry=registry), World()
    result = Engine(boss, env=world).run("x")
    marks = [call for call in world.calls if call.startswith(("setup", "reset", "teardown"))]
    assert (result.state.stop_reason, marks) == ("final", ["setup x", "reset x", "teardown"])


def test_a_delegate_leaves_the_toolset_of_its_caller_open():
    box, look = Box(), Decision.act(Action("look"))
    own = ToolRegistry().include(box)
    worker = AgentSpec("w", "w", ScriptedAgent(look, Decision.final(1), tool_registry=own))
    registry = ToolRegistry().include(box).register(DelegateTool(worker))
    boss = ScriptedAgent(look, DELEGATE, look, Decision.final(1), tool_registry=registry)
    records = Engine(boss).run("x").records
    assert [records[n].action_results for n in (0, 2)] == [[True], [True]]
    assert box.log == ["setup", "teardown"]


def test_two_runs_of_one_engine_are_two(tmp_path):
    store = FileCheckpointStore(tmp_path / "kept")
    agent, writer = ScriptedAgent(*[Decision.final("done")] * 2), TraceWriter(tmp_path / "t")
    engine = Engine(agent, trace_writer=writer, checkpoint_store=store)
    ids = [engine.run(task).run_id for task in ("one", "two")]
    assert len({*ids}) == 2 and sorted(store.list_runs()) == sorted(ids)
    assert [engine.resume(name).final_result for name in ids] == ["done", "done"]


def test_of_two_runs_with_one_id_the_last_is_resumed(tmp_path):
    store = MemoryCheckpointStore()
    for n, answer in enumerate(("first", "last")):
        writer = TraceWriter(tmp_path / str(n), "exp1")
        agent = ScriptedAgent(Decision.final(answer))
        engine = Engine(agent, trace_writer=writer, checkpoint_store=store)
        engine.run("x")
    assert Engine(agent, checkpoint_store=store).resume("exp1").final_result == "last"


@dataclass
class Counted(StateSchema):
    counts: dict[str, int] = field(default_factory=collections.Counter)


def counted(state, observation, decision):
    state.counts[str(observation["step"])] += 1
    return state


def test_a_resumed_counter_is_one():
    store = MemoryCheckpointStore()

    def engine(steps):
        options = {"reduce": counted, "state": Counted, "tool_registry": tools(add)}
        agent = ScriptedAgent(*[ADD] * 2, **options)
        return Engine(agent, budget=RuntimeBudget(max_steps=steps), checkpoint_store=store)

    result = engine(3).resume(engine(2).run("x").run_id)
    assert (result.failure, result.state.counts) == (None, collections.Counter("012"))


@dataclass
class Plain:
    task: str = ""


def test_a_reflecting_critic_takes_a_state_without_metadata():
    agent = ScriptedAgent(Decision.final("x"), state=Plain)
    result = Engine(agent, critics=[SelfReflectionCritic()]).run("t")
    assert (result.final_result, result.failure) == ("x", None)


def test_a_finished_run_keeps_its_answer_when_resumed():
    agent = ScriptedAgent(Decision.final("x"), state=Plain)
    engine = Engine(agent, checkpoint_store=MemoryCheckpointStore())
    assert engine.resume(engine.run("t").run_id).final_result == "x"


def test_the_last_round_is_always_sent():
    sent = []

    def model(messages, tools=None):
        sent.append([message["role"] for message in messages])
        arguments = json.dumps({"a": 1, "b": 1})
        calls = [
            {"id": f"c{n}", "function": {"name": "add", "arguments": arguments}} for n in range(3)
        ]
        return {"choices": [{"message": {"content": None, "tool_calls": calls}}]}

    Engine(
        ScriptedAgent(None, None, llm=model, tool_registry=tools(add)), protocol="native_tool_call_v1",
        history_policy=HistoryPolicy(max_messages=3), budget=RuntimeBudget(max_steps=2),
    ).run("t")
    assert sent[-1].count("tool") == 3 and "assistant" in sent[-1]


def test_a_parser_that_gives_nothing_is_told():
    agent = ScriptedAgent(*[None] * 10, llm=lambda messages: "x")
    failure = Engine(agent, parser=lambda text: None).run("x").failure
    assert "expected a Decision" in failure["message"] and "attribute" not in failure["message"]


def test_an_agent_without_the_base_constructor_runs():
    class Bare(AgentModule):
        def __init__(self):
            self.started = True

        def init_state(self, task, **kwargs):
            return StateSchema(task=task)

        def decide(self, state, observation):
            return Decision.final("x")

        def reduce(self, state, observation, decision):
            return state

    assert Bare().run("t") == "x"


INIT = {
    "phase": "INIT", "step_id": 0,
    "payload": {
        "run_meta": {"agent_name": "A", "model_name": "m", "tools": [{"name": "add"}], "tool_count": 1},
        "task_meta": {"budget": {"max_steps": 5}},
    },
}


@pytest.mark.parametrize("manifest", [None, b"", b'{"run_id'])
@pytest.mark.parametrize("events", [[INIT], [INIT, {"phase": "HANDOFF_START", "step_id": 0, "payload": {}}]])
def test_without_a_manifest_a_folder_says_what_its_events_say(tmp_path, manifest, events):
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (tmp_path / "events.jsonl").write_text(lines, encoding="utf-8")
    if manifest is not None:
        (tmp_path / "manifest.json").write_bytes(manifest)
    payload = snowl_compat.build_payload(tmp_path)
    config = payload["engine_config"]
    told = [config[name] for name in ("agent_name", "model_id", "budget_max_steps", "tool_count")]
    assert told == ["A", "m", 5, 1]
    assert [row["name"] for row in payload["tool_permissions"]] == ["add"]


@pytest.mark.parametrize("data", [b"", b"\n", b" "])
def test_an_empty_file_is_no_valid_payload(tmp_path, data, capfd):
    path = tmp_path / "p.json"
    path.write_bytes(data)
    assert snowl_compat.main(["check", str(path)]) == 1
    assert capfd.readouterr().err.startswith(f"{path}: expected JSON: ")


class Remembering:
    def __init__(self):
        self.roles = []

    def append(self, record):
        self.roles.append(record.role)

    def reset(self, run_id=None):
        self.roles.append("reset")


@pytest.mark.parametrize("levels", [1, 2])
def test_a_delegate_leaves_what_its_callers_remember(levels):
    memory, agent = Remembering(), ScriptedAgent(Decision.final("did"))
    agent.memory = memory
    for level in range(levels):
        registry = ToolRegistry().register(DelegateTool(AgentSpec("w", "w", agent)))
        agent = ScriptedAgent(DELEGATE, Decision.final(1), tool_registry=registry)
    agent.memory = memory
    Engine(agent).run("x")
    assert memory.roles.count("reset") == 1 and memory.roles.count("task") == 2


def test_an_approval_that_is_no_flag_is_refused():
    with pytest.raises(TypeError) as caught:
        Engine(ScriptedAgent(), auto_approve="yes")
    assert str(caught.value) == "auto_approve must be of type bool, got str"


def halt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_ctrl_c_keeps_the_results_of_the_calls_that_had_finished(mode):
    registry = ToolRegistry().register(add).register(halt)
    registry.register(lambda: 5, name="later", meta=ToolMeta(concurrency_safe=True))
    calls = [Action("add", {"a": 1, "b": 2}), Action("halt"), Action("later")]
    agent = ScriptedAgent(Decision.act(calls), tool_registry=registry)
    engine = Engine(agent, action_execution_policy=ActionExecutionPolicy(mode))
    with pytest.raises(KeyboardInterrupt):
        engine.run("x")
    result = engine.last_result
    [record] = result.records
    assert [(call["tool_name"], call["status"]) for call in record.tool_invocations] == [("add", "success")]
    assert record.action_results == [3]
    assert result.task_result.stop_reason == "interrupt"
    assert result.tool_calls_by_name == {"add": 1}
    told = [event.payload for event in result.events if event.payload.get("stage") == "action_results"]
    assert [payload["action_results"] for payload in told] == [[3]]


class Failing(History):
    def append(self, message):
        if message.role == "tool":
            raise OSError("disk full")
        super().append(message)


def test_a_history_that_fails_at_ctrl_c_does_not_hide_it():
    registry = ToolRegistry().register(add).register(halt)
    calls = [Action("add", {"a": 1, "b": 2}), Action("halt")]
    engine = Engine(ScriptedAgent(Decision.act(calls), tool_registry=registry), history=Failing())
    with pytest.raises(KeyboardInterrupt):
        engine.run("x")
    assert engine.last_result.task_result.stop_reason == "interrupt"


def test_a_state_that_is_kept_between_runs_is_heard_in_each():
    class Keeping(ScriptedAgent):
        kept = StateSchema()

        def init_state(self, task):
            return self.kept

    def reduced(state, observation, decision):
        if state.current_step % 2:
            state.set_stop("success")
        else:
            state.stop_reason = None
        return state

    agent = Keeping(*[ADD] * 9, tool_registry=tools(), reduce=reduced)
    engine = Engine(agent, stop_criteria=[])
    for _ in range(2):
        agent.kept.current_step = 0
        result = engine.run("x")
        assert (result.task_result.stop_reason, result.step_count) == ("success", 2)


def test_what_an_agent_that_waits_says_of_its_end_is_heard_at_the_next_step():
    class Waiting(ScriptedAgent):
        def decide(self, state, observation):
            decision = super().decide(state, observation)
            if decision.mode == "wait":
                state.set_stop("success", final_result="done")
            return decision

    agent = Waiting(Decision.wait(), *[ADD] * 3, tool_registry=tools())
    result = Engine(agent, stop_criteria=[]).run("x")
    found = (result.task_result.stop_reason, result.final_result, result.step_count)
    assert found == ("success", "done", 2)


def test_what_init_state_names_itself_goes_to_it():
    class Taking(ScriptedAgent):
        def init_state(self, task, shared_memory=None, budget=0):
            self.taken = (shared_memory, budget)
            return super().init_state(task)

    agent = Taking(Decision.final("x"))
    assert (agent.run("t", shared_memory="m", budget=7), agent.taken) == ("x", ("m", 7))


@pytest.mark.parametrize("wrong", ["coding", ["coding"], {"a": add}])
def test_a_text_is_no_toolset(wrong):
    told = "expected a function, a method or an object with execute() or run(), got str"
    with pytest.raises(TypeError) as caught:
        ToolRegistry().include(wrong)
    assert str(caught.value) == told


@pytest.mark.parametrize("name, kind", [("retry_policy", "RetryPolicy"), ("permissions", "ToolPermission")])
def test_a_part_of_a_tool_is_checked_where_it_is_declared(name, kind):
    with pytest.raises(TypeError) as caught:
        ToolMeta(**{name: {"max_attempts": 2}})
    assert str(caught.value) == f"{name} must be a {kind}, got dict"


def test_the_text_of_tools_names_every_type_and_choice():
    def look(a: Optional[str] = None, b: Literal["r", "w"] = "r", c: int | str = 1, d: date | str = ""):
        """Look."""

    text = ToolRegistry().register(look).get_tool_descriptions()
    assert text.splitlines() == [
        "- look: Look.",
        "  - a (string or null, optional)",
        '  - b ("r" or "w", optional)',
        "  - c (integer or string, optional)",
        "  - d (string, optional)",
    ]


class Adds(BaseTool):
    name = "adds"

    def run(self, a: int):
        """Add.

        Args:
            a: first
        """


class Runs:
    name = "runs"
    run = Adds.run


class Called:
    name = "called"
    __call__ = Adds.run


@pytest.mark.parametrize("item", [Adds(), Runs(), Called()], ids=lambda item: item.name)
def test_the_text_of_what_is_called_describes_a_tool_that_has_no_other(item):
    [entry] = ToolRegistry().register(item).get_all_specs()
    assert entry["function"]["description"] == "Add."


def test_a_handoff_that_ctrl_c_kept_from_being_made_is_not_told_as_done():
    worker, registry = ScriptedAgent(Decision.final("x"), name="w"), ToolRegistry().register(halt)
    agents = AgentRegistry().register(AgentSpec("w", "w", worker))
    calls = [Action("transfer_to_w"), Action("halt")]
    boss = ScriptedAgent(Decision.act(calls), tool_registry=registry)
    engine = Engine(boss, agent_registry=agents)
    with pytest.raises(KeyboardInterrupt):
        engine.run("x")
    result = engine.last_result
    assert (result.records[0].tool_invocations, result.handoff_traces) == ([], [])
