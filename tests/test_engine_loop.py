"""The loop: stages, events and records of each kind of step, and what agents see."""

import time
from datetime import datetime

import pytest
from engine_doubles import (
    Notes,
    ScriptedAgent,
    ScriptedCritic,
    World,
    add,
    agents,
    check_run,
    play,
    play_agent,
    stages,
    tools,
    untraced,
)

from qitos_min import Action, AgentModule, Decision, Engine, StateSchema, Task
from qitos_min import ToolMeta, ToolRegistry
from qitos_min.core.action import ActionExecutionPolicy
from qitos_min.engine import RuntimeBudget, RuntimePhase, critic
from qitos_min.engine.runtime import RuntimeComposition
from qitos_min.kit.checkpoint import MemoryCheckpointStore
from qitos_min.trace import TraceWriter

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))

INIT = "INIT [task task_id task_meta run_meta env]"
DECIDE = [
    "DECIDE state_ready [observation]",
    "DECIDE start",
    "DECIDE decision_ready [mode rationale actions final_answer]",
]
ACT = [
    "ACT start",
    "ACT action_results [tool_invocations action_results]",
    "ACT observation_ready",
]
REDUCE = ["REDUCE start", "REDUCE state_reduced [state_diff]"]
CRITIC = ["CRITIC start [critic_count]", "CRITIC outputs [critic_outputs]"]
GO_ON = ["CHECK_STOP start", "CHECK_STOP continue"]
STOP = ["CHECK_STOP start", "CHECK_STOP stop [stop_reason final_result stop_detail]"]
HANDOFF = [
    "HANDOFF_START [from to context_strategy messages_passed]",
    "HANDOFF_END [agent context_strategy]",
]
END = "END [stop_reason]"
LAST = [*DECIDE, *REDUCE, *STOP]
FAILED = "[category error]"
RECOVER = "RECOVER [category recovered note error]"


def engine_of(*decisions, **options):
    return Engine(ScriptedAgent(*decisions, tool_registry=tools()), **options)


def failing(place):
    """An engine whose first step fails in a stage."""

    def refuse(*args):
        raise RuntimeError("no")

    agent = ScriptedAgent(refuse if place == "decide" else ADD, tool_registry=tools())
    if place == "reduce":
        agent.reduce = refuse
    if place == "should_stop":
        agent.should_stop = refuse
    return Engine(agent, critics=[ScriptedCritic(refuse)] if place == "critic" else None)


def handing_over(first):
    other = ScriptedAgent(Decision.final("x"), name="other")
    return engine_of(first, agent_registry=agents(other))


GOLDEN = {
    "act": (
        lambda: engine_of(ADD, Decision.final("x")),
        [*DECIDE, *ACT, *REDUCE, *GO_ON, *LAST],
    ),
    "final": (lambda: engine_of(Decision.final("x")), LAST),
    "wait": (lambda: engine_of(Decision.wait(), Decision.final("x")), [*DECIDE, *LAST]),
    "branch": (
        lambda: engine_of(Decision.branch([Decision.final("x"), ADD])),
        LAST,
    ),
    "handoff": (
        lambda: handing_over(Decision.handoff("other")),
        [*DECIDE, *HANDOFF, *LAST],
    ),
    "transfer tool": (
        lambda: handing_over(Decision.act(Action("transfer_to_other"))),
        [*DECIDE, *ACT, *HANDOFF, *LAST],
    ),
    "critic pass": (
        lambda: engine_of(Decision.final("x"), critics=[ScriptedCritic("continue")]),
        [*DECIDE, *REDUCE, *CRITIC, "CRITIC pass [reason]", *STOP],
    ),
    "critic stop": (
        lambda: engine_of(ADD, critics=[ScriptedCritic("stop")]),
        [*DECIDE, *ACT, *REDUCE, *CRITIC, "CRITIC stop [reason]", *STOP],
    ),
    "critic retry": (
        lambda: engine_of(
            Decision.final("x"), Decision.final("y"), critics=[ScriptedCritic("retry", {})]
        ),
        [*DECIDE, *REDUCE, *CRITIC, "CRITIC retry [reason]", *GO_ON]
        + [*DECIDE, *REDUCE, *CRITIC, "CRITIC pass [reason]", *STOP],
    ),
    "decide fails": (
        lambda: failing("decide"),
        [*DECIDE[:2], f"DECIDE_ERROR {FAILED}", RECOVER],
    ),
    "reduce fails": (
        lambda: failing("reduce"),
        [*DECIDE, *ACT, REDUCE[0], f"ACT_ERROR {FAILED}", RECOVER],
    ),
    "critic fails": (
        lambda: failing("critic"),
        [*DECIDE, *ACT, *REDUCE, *CRITIC, "CRITIC stop [reason]"]
        + [f"ACT_ERROR {FAILED}", RECOVER],
    ),
    "check_stop fails": (
        lambda: failing("should_stop"),
        [*DECIDE, *ACT, *REDUCE, STOP[0], f"ACT_ERROR {FAILED}", RECOVER],
    ),
    "handoff fails": (
        lambda: engine_of(Decision.handoff("nobody")),
        [*DECIDE, f"DECIDE_ERROR {FAILED}", RECOVER],
    ),
}


@pytest.mark.parametrize("kind", GOLDEN)
def test_each_kind_of_step_has_its_events_in_order(kind):
    make, expected = GOLDEN[kind]
    result = play(make())
    assert stages(result.events, keys=True) == [INIT, *expected, END]


def test_the_payloads_say_what_happened():
    result = play_agent(
        Decision.act([Action("add", {"a": 1, "b": 2}), Action("boom")], rationale="sum"),
        Decision.final({"sum": 3}),
    )
    said = {
        (event.step_id, event.phase.value, event.payload.get("stage")): event.payload
        for event in result.events
    }
    init = said[0, "INIT", None]
    assert (init["task"], init["task_id"], init["task_meta"]) == ("the task", None, None)
    run_meta = init["run_meta"]
    assert [run_meta[k] for k in ("agent_name", "model_name", "tool_count")] == ["agent", None, 2]
    assert [spec["name"] for spec in run_meta["tools"]] == ["add", "boom"]
    ready = said[0, "DECIDE", "decision_ready"]
    assert (ready["mode"], ready["rationale"], ready["final_answer"]) == ("act", "sum", None)
    assert [(a["name"], a["args"], a["action_id"]) for a in ready["actions"]] == [
        ("add", {"a": 1, "b": 2}, "call_0_0"),
        ("boom", {}, "call_0_1"),
    ]
    acted = said[0, "ACT", "action_results"]
    assert acted["action_results"] == [
        3,
        {
            "tool_name": "boom",
            "status": "error",
            "error": "ValueError: no luck",
            "error_code": "tool_execution_failed",
            "output": None,
        },
    ]
    assert [call["status"] for call in acted["tool_invocations"]] == ["success", "error"]
    assert said[1, "DECIDE", "decision_ready"]["final_answer"] == {"sum": 3}
    stop = said[1, "CHECK_STOP", "stop"]
    assert (stop["stop_reason"], stop["final_result"]) == ("final", {"sum": 3})


def test_the_task_is_described_with_all_it_has():
    task = Task("t1", "count", inputs={"n": 3}, metadata={"when": float("nan")})
    result = play(engine_of(Decision.final("x")), task)
    payload = result.events[0].payload
    assert (payload["task"], payload["task_id"]) == ("count", "t1")
    assert payload["task_meta"] == {"task_id": "t1", **task.to_dict()}
    assert result.task_result.task_id == "t1"


def test_the_record_of_a_step_holds_what_it_did():
    def note(state, observation, decision):
        state.notes.append(observation["action_results"])
        return state

    agent = ScriptedAgent(ADD, Decision.final("x"), reduce=note, tool_registry=tools())
    result = play(Engine(agent))
    record = result.records[0]
    assert record.observation["action_results"] == []
    assert record.decision.mode == "act"
    assert record.actions is record.decision.actions
    assert record.action_results == [3]
    assert [call["tool_name"] for call in record.tool_invocations] == ["add"]
    assert record.action_execution["mode"] == "serial"
    assert record.state_diff == {"notes": {"before": [], "after": [[3]]}}
    assert (record.decision_source, record.agent_id) == ("agent", "agent")
    assert result.tool_calls_by_name == {"add": 1}
    assert [(s.tool_name, s.status, s.result_preview) for s in result.step_summaries] == [
        ("add", "success", "3")
    ]


def test_the_agent_sees_state_results_and_task():
    agent = ScriptedAgent(ADD, Decision.wait(), Decision.final("x"), tool_registry=tools())
    play(Engine(agent))
    first, second, third = agent.observations
    assert list(first) == ["task", "step", "state", "env", "action_results"]
    assert (first["task"], first["step"], first["env"]) == ("the task", 0, {"enabled": False})
    assert first["state"]["current_step"] == 0
    assert (second["step"], second["state"]["current_step"]) == (1, 1)
    assert [o["action_results"] for o in (first, second, third)] == [[], [3], []]
    reduced = agent.reduced[0]
    assert (reduced["action_results"], reduced["decision"].mode) == ([3], "act")


def test_reduce_gets_the_agents_own_decision():
    class Reasoned(Decision):
        pass

    mine = Reasoned("final", final_answer="x")
    seen = []
    agent = ScriptedAgent(mine, reduce=lambda s, o, d: seen.append(d))
    result = play(Engine(agent))
    assert seen == [mine] and seen[0] is mine
    assert type(result.records[0].decision) is Decision


def test_a_reused_decision_gets_new_ids_in_each_record_and_stays_as_it_is():
    result = play_agent(ADD, ADD, Decision.final("x"))
    ids = [action.action_id for record in result.records for action in record.actions]
    assert ids == ["call_0_0", "call_1_0"]
    assert ADD.actions[0].action_id is None


@pytest.mark.parametrize(
    "given, kept",
    [
        (["a", "a", "a"], ["a", "a_2", "a_3"]),
        (["a", "a_2", "a"], ["a", "a_2", "a_3"]),
        ([None, "call_0_2", None], ["call_0_0", "call_0_2", "call_0_2_3"]),
    ],
)
def test_no_two_calls_of_a_step_have_one_id(given, kept):
    calls = [Action("add", {"a": 1, "b": n}, action_id=own) for n, own in enumerate(given)]
    record = engine_of(Decision.act(calls), Decision.final("done")).run("t").records[0]
    assert [action.action_id for action in record.actions] == kept
    assert record.action_results == [1, 2, 3]


@pytest.mark.parametrize("reduce", [lambda s, o, d: None, lambda s, o, d: s])
def test_reduce_may_return_nothing(reduce):
    agent = ScriptedAgent(Decision.final("x"), reduce=reduce)
    assert play(Engine(agent)).state.final_result == "x"


@pytest.mark.parametrize(
    "state", [lambda task: {"task": task}, lambda task: None, lambda task: object()]
)
def test_a_state_may_be_anything(state):
    agent = ScriptedAgent(ADD, Decision.final("x"), state=state, tool_registry=tools())
    result = play(Engine(agent))
    assert (result.final_result, result.task_result.success) == ("x", True)


def test_the_answer_is_the_agents_own_object():
    answer = {"rows": {1, 2}}
    result = play_agent(Decision.final(answer))
    assert result.final_result is answer and result.state.final_result is answer
    assert result.records[0].decision.final_answer == {"rows": [1, 2]}


def test_steps_are_counted_whatever_became_of_them():
    result = play_agent(Decision.wait(), ADD, ValueError("no"))
    assert (result.step_count, result.state.current_step) == (3, 3)


@pytest.mark.parametrize(
    "reason, answer, stop",
    [("success", "x", "success"), ("success", None, "success"), ("stagnation", None, "stagnation")],
)
def test_an_agent_may_end_the_run_with_its_own_reason(reason, answer, stop):
    agent = ScriptedAgent(
        ADD, reduce=lambda s, o, d: s.set_stop(reason, answer), tool_registry=tools()
    )
    result = play(Engine(agent))
    assert (result.task_result.stop_reason, result.final_result) == (stop, answer)
    assert result.state.stop_reason == stop


def test_a_reason_left_by_an_earlier_run_does_not_end_this_one():
    kept = Notes(task="t", stop_reason="budget_steps")
    agent = ScriptedAgent(ADD, Decision.final("x"), state=lambda task: kept, tool_registry=tools())
    assert play(Engine(agent)).task_result.stop_reason == "final"


def test_should_stop_ends_the_run_after_the_step():
    class Enough(ScriptedAgent):
        def should_stop(self, state):
            return True

    result = play(Engine(Enough(ADD, tool_registry=tools())))
    assert result.task_result.stop_reason == "agent_condition"
    assert result.task_result.success is False


# Runs one after another, and one within another


def test_an_engine_runs_again_and_nothing_of_the_first_run_stays():
    agent = ScriptedAgent(ADD, Decision.final("x"), ADD, Decision.final("y"), tool_registry=tools())
    engine = Engine(agent)
    first, second = engine.run("one"), engine.run("two")
    assert (first.final_result, second.final_result) == ("x", "y")
    assert first.run_id != second.run_id
    assert (first.step_count, second.step_count) == (2, 2)
    assert first.events[0].payload["task"] == "one"
    check_run(second, engine)


def test_a_run_uses_the_tools_registered_when_it_starts():
    registry = tools()

    def late(state, observation):
        registry.register(lambda: "late", name="late")
        return Decision.act(Action("late"))

    agent = ScriptedAgent(late, Decision.final("x"), tool_registry=registry)
    engine = Engine(agent)
    result = play(engine)
    assert result.records[0].tool_invocations[0]["error_code"] == "tool_not_found"
    agent.script.entries = [Decision.act(Action("late")), Decision.final("x")]
    assert play(engine).records[0].action_results == ["late"]


def test_the_engines_tool_registry_wins_over_the_agents_own():
    agent = ScriptedAgent(Decision.act(Action("mine")), Decision.final("x"), tool_registry=tools())
    engine = Engine(agent, tool_registry=ToolRegistry().register(lambda: 7, name="mine"))
    assert play(engine).records[0].action_results == [7]
    assert engine.export_config().tool_count == 1


def test_a_session_goes_step_by_step_and_run_takes_the_rest():
    engine = engine_of(ADD, Decision.wait(), Decision.final("x"))
    session = engine.session("t")
    step = next(iter(session))
    assert (step.step_id, step.action_results, step.stop, step.error) == (0, [3], False, None)
    assert step.record is not None and session.result is None
    result = session.run()
    assert session.result is result and session.run() is result
    assert list(session) == []
    check_run(result, engine)
    assert result.final_result == "x"


def test_the_last_step_of_a_session_says_why_it_was_the_last():
    steps = list(engine_of(ADD, Decision.final("x")).session("t"))
    assert [(s.stop, s.stop_reason) for s in steps] == [(False, None), (True, "final")]
    assert steps[1].to_dict()["decision"]["final_answer"] == "x"


# Environments


    def close(self):
        self.calls.append("close")


def test_an_environment_is_set_up_asked_and_torn_down_but_stays_the_callers():
    world = World()
    agent = ScriptedAgent(ADD, Decision.final("x"), tool_registry=tools())
    result = play(Engine(agent, env=world))
    assert world.calls == [
        *("setup the task", "reset the task", "observe", "step act [3]", "observe", "teardown")
    ]
    views = [observation["env"] for observation in agent.observations]
    assert [view["observation"]["data"] for view in views] == [{"seen": 3}, {"seen": 5}]
    assert views[0]["last_result"] is None and views[1]["last_result"]["reward"] == 0.5
    assert (views[0]["enabled"], views[0]["name"]) == (True, "world")
    assert result.events[0].payload["env"] == "world"


def test_an_environment_ends_the_run():
    result = play(engine_of(ADD, env=World(done=True)))
    assert (result.task_result.stop_reason, result.task_result.success) == ("env_terminal", True)


def test_an_environment_without_the_operations_of_a_tool_is_refused():
    registry = ToolRegistry().register(add, meta=ToolMeta(required_ops=["file"]))
    engine = Engine(ScriptedAgent(), tool_registry=registry, env=World())
    result = play(engine)
    assert result.task_result.stop_reason == "env_capability_mismatch"
    assert untraced(result.failure) == {
        "category": "env_error",
        "phase": "INIT",
        "step_id": 0,
        "type": "QitosRuntimeError",
        "message": "tool 'add' needs 'file' operations, which environment 'world' does not offer",
    }


# Snapshots


def spoil(thing):
    """Change everything that somebody was given and can reach."""
    if isinstance(thing, Decision):
        thing.rationale = "spoilt"
        spoil([thing.meta, thing.final_answer, [a.args for a in thing.actions]])
        thing.actions.clear()
    elif type(thing) is dict:
        spoil(list(thing.values()))
        thing["spoilt"] = "spoilt"
    elif type(thing) is list:
        for item in thing:
            spoil(item)
        thing.append("spoilt")


def test_what_is_changed_later_does_not_rewrite_records_and_events():
    """Cases A1 (langsmith-sdk #706, opik PR #1685) and fault 3."""
    verdict = {"action": "continue", "details": {"rows": []}}
    held = [verdict]

    def take(items: list, runtime_context=None) -> dict:
        """Take."""
        result = {"items": items}
        held.extend([items, result, runtime_context])
        spoil(items)
        return result

    def decide(state, observation):
        spoil(observation)
        decision = Decision.act(Action("take", {"items": [1]}), meta={"m": [1]})
        held.extend([observation, decision])
        return decision

    def reduce(state, observation, decision):
        held.extend([observation, decision])
        spoil(observation["action_results"])
        state.notes.append({"at": [state.current_step]})
        return state

    def judge(state, decision, results):
        spoil(results)
        held.append(results)
        verdict["details"]["rows"].append(state.current_step)
        return verdict

    agent = ScriptedAgent(
        decide, Decision.final({"a": [1]}), reduce=reduce, tool_registry=tools(take)
    )
    engine = Engine(agent, critics=[ScriptedCritic(judge, judge)])
    session = engine.session("t")
    before = []
    for step in session:
        before.append(step.record.to_dict())
        spoil(held)
        verdict["action"] = "continue"
        spoil(session.result)
    result = session.result
    spoil([held, result.state.notes])
    assert [record.to_dict() for record in result.records] == before
    first, second = result.records
    assert first.observation["state"]["notes"] == first.observation["action_results"] == []
    assert first.actions[0].args == {"items": [1]}
    assert first.action_results == [{"items": [1, "spoilt"]}]
    assert first.decision.meta == {"m": [1]}
    assert first.state_diff["notes"]["after"] == [{"at": [0]}]
    assert second.decision.final_answer == {"a": [1]}
    assert [trace.details["rows"] for trace in result.critic_traces] == [[0], [0, "spoilt", 1]]
    shown = [e.payload["observation"] for e in result.events if "observation" in e.payload]
    assert shown == [first.observation, second.observation]
    check_run(result, engine)


def test_a_hook_gets_the_record_itself_but_no_alias_of_its_values():
    taken = []

    class Meddler:
        def on_after_reduce(self, ctx, engine):
            ctx.observation["state"]["task"] = "changed"
            ctx.action_results.append("changed")
            taken.append(ctx.record)

    result = play(engine_of(ADD, Decision.final("x"), hooks=[Meddler()]))
    assert taken == result.records
    assert result.records[0].observation["state"]["task"] == "the task"
    assert result.records[0].action_results == [3]


# The engine as configured


class Quality:
    def evaluate(self, state, decision, results):
        return {}


@critic
def plain(state, decision, results):
    return "continue"


@critic(name="declared")
def named(state, decision, results):
    return "continue"


def test_export_config_names_everything_as_configured(tmp_path):
    class Model:
        model = "small-1"

        def __call__(self, messages, tools=None):
            return ""

    engine = Engine(
        ScriptedAgent(name="tester", tool_registry=tools(), llm=Model()),
        budget=RuntimeBudget(max_steps=7, max_runtime_seconds=1.5, max_tokens=100),
        critics=[Quality(), plain, named],
        env=World(),
        delegate_depth=2,
        shared_memory={},
        protocol="json_decision_v1",
        checkpoint_store=MemoryCheckpointStore(),
        trace_writer=TraceWriter(tmp_path),
    )
    assert engine.export_config().to_dict() == {
        "agent_name": "tester",
        "model_id": "small-1",
        "budget_max_steps": 7,
        "budget_max_runtime_seconds": 1.5,
        "budget_max_tokens": 100,
        "critic_names": ["Quality", "plain", "declared"],
        "stop_criteria_names": ["FinalResultCriteria"],
        "has_checkpoint_store": True,
        "has_tracing_provider": True,
        "protocol_id": "json_decision_v1",
        "delegate_depth": 2,
        "has_shared_memory": True,
        "has_env": True,
        "tool_count": 2,
    }


def test_export_config_of_a_bare_engine_has_the_defaults():
    config = Engine(ScriptedAgent()).export_config()
    assert (config.agent_name, config.model_id, config.protocol_id) == ("agent", "", None)
    assert (config.budget_max_steps, config.tool_count, config.has_env) == (10, 0, False)


@pytest.mark.parametrize(
    "attribute, value, expected",
    [("model_id", "a", "a"), ("model", "b", "b"), ("model_name", "c", "c"), ("model", 5, "")],
)
def test_the_model_id_is_what_the_model_says(attribute, value, expected):
    def model(messages, tools=None):
        return ""

    setattr(model, attribute, value)
    assert Engine(ScriptedAgent(llm=model)).export_config().model_id == expected


def test_a_protocol_is_resolved_by_the_model_when_none_is_named():
    def model(messages, tools=None):
        return ""

    assert Engine(ScriptedAgent(llm=model)).export_config().protocol_id == "react_text_v1"
    agent = ScriptedAgent(llm=model, model_protocol="json_decision_v1")
    assert Engine(agent).export_config().protocol_id == "json_decision_v1"


AGENT = "agent must be an AgentModule with init_state, decide, reduce, should_stop"
BAD_PARTS = [
    ({"agent": ScriptedAgent}, TypeError, f"{AGENT}, got a class"),
    ({"agent": "me"}, TypeError, f"{AGENT}, got 'me'"),
    ({"budget": 5}, TypeError, "budget must be of type RuntimeBudget, got int"),
    ({"tool_registry": []}, TypeError, "tool_registry must be of type ToolRegistry, got list"),
    ({"agent_registry": {}}, TypeError, "agent_registry must be of type AgentRegistry, got dict"),
    ({"context_config": {}}, TypeError, "context_config must be of type ContextConfig, got dict"),
    (
        {"action_execution_policy": "serial"},
        TypeError,
        "action_execution_policy must be of type ActionExecutionPolicy, got str",
    ),
    ({"critics": Quality()}, TypeError, "critics must be a list, got Quality"),
    ({"critics": [Quality]}, TypeError, "critics[0] must be a Critic with evaluate, got a class"),
    ({"critics": [plain, 5]}, TypeError, "critics[1] must be a Critic with evaluate, got 5"),
    ({"stop_criteria": [5]}, TypeError, "stop_criteria[0] must be a StopCriteria with should_stop, got 5"),
    ({"hooks": World()}, TypeError, "hooks must be a list, got World"),
    ({"approval_callback": True}, TypeError, "approval_callback must be of type Callable, got bool"),
    ({"delegate_depth": -1}, ValueError, "delegate_depth must be an int of at least 0, got -1"),
    (
        {"budget": RuntimeBudget(max_steps="5")},
        ValueError,
        "max_steps must be an int of at least 0, got '5'",
    ),
    (
        {"budget": RuntimeBudget(max_runtime_seconds=float("nan"))},
        ValueError,
        "max_runtime_seconds must be a number of at least 0, got nan",
    ),
]


@pytest.mark.parametrize("options, kind, message", BAD_PARTS)
def test_parts_that_cannot_work_are_refused_by_name(options, kind, message):
    with pytest.raises(kind) as caught:
        Engine(**{"agent": ScriptedAgent(), **options})
    assert str(caught.value) == message


def test_an_unknown_keyword_and_an_unknown_protocol_are_named():
    with pytest.raises(TypeError, match="'tool_registy'"):
        Engine(ScriptedAgent(), tool_registy=None)
    with pytest.raises(ValueError, match="'morse'"):
        Engine(ScriptedAgent(), protocol="morse")


@pytest.mark.parametrize("task", [None, 5, b"t", ["t"]])
def test_a_task_is_text_or_a_task(task):
    with pytest.raises(TypeError) as caught:
        Engine(ScriptedAgent()).run(task)
    assert str(caught.value) == f"task must be text or a Task, got {type(task).__name__}"


def test_what_init_state_raises_is_raised_because_nothing_has_started():
    class Refusing(ScriptedAgent):
        def init_state(self, task, **kwargs):
            raise ValueError("not today")

    engine = Engine(Refusing())
    with pytest.raises(ValueError, match="not today"):
        engine.run("t")
    assert engine.last_result is None


def test_a_runtime_gives_its_parts_and_keywords_win():
    told = []
    policy = ActionExecutionPolicy(mode="parallel")
    runtime = RuntimeComposition(
        action_execution_policy=policy, event_sink=told.append, artifact_resolver="store"
    )

    def where(runtime_context=None) -> str:
        """Say where artifacts are."""
        return runtime_context["artifact_resolver"]

    agent = ScriptedAgent(
        Decision.act(Action("where")), Decision.final("x"), tool_registry=tools(where)
    )
    result = play(Engine(agent, runtime=runtime))
    assert told == result.events
    assert result.records[0].action_results == ["store"]
    assert result.records[0].action_execution["mode"] == "parallel"
    serial = Engine(
        ScriptedAgent(), runtime=runtime, action_execution_policy=ActionExecutionPolicy()
    )
    assert serial.executor.policy.mode == "serial"


# Agents that run themselves


def test_an_agent_runs_itself():
    agent = ScriptedAgent(Decision.final("x"), Decision.final("y"))
    assert agent.run("t") == "x"
    result = agent.run("t", return_state=True)
    assert (result.final_result, result.state.task) == ("y", "t")


def test_options_of_the_engine_and_of_the_state_find_their_way():
    agent = ScriptedAgent(ADD, ADD, tool_registry=tools())
    budget = RuntimeBudget(max_steps=9, max_tokens=50)
    result = agent.run(
        "t", True, max_steps=2, budget=budget, critics=[plain], metadata={"k": 1}, notes=["n"]
    )
    assert (result.step_count, result.task_result.stop_reason) == (2, "budget_steps")
    assert (result.state.notes, result.state.metadata) == (["n"], {"k": 1})
    assert result.state.max_steps == 2
    assert len(result.critic_traces) == 2
    assert budget == RuntimeBudget(max_steps=9, max_tokens=50)


def test_max_steps_is_told_only_to_an_init_state_that_takes_it():
    class Strict(ScriptedAgent):
        def init_state(self, task):
            return StateSchema(task=task)

    agent = Strict(ADD, ADD, tool_registry=tools())
    assert agent.run("t", True, max_steps=2).step_count == 2


def test_a_workspace_becomes_the_environment(tmp_path):
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    agent = ScriptedAgent(Decision.final("x"))
    agent.run("t", workspace=str(tmp_path))
    assert agent.observations[0]["env"]["observation"]["data"]["files"] == ["a.txt"]


def test_running_writes_and_prints_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ScriptedAgent(Decision.final("x")).run("t")
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_the_name_of_an_agent():
    class Plain(AgentModule):
        def init_state(self, task, **kwargs):
            return StateSchema(task=task)

        def reduce(self, state, observation, decision):
            return state

    class Named(Plain):
        name = "from the class"

    class Computed(Plain):
        @property
        def name(self):
            return "computed"

    class Bare(Plain):
        def __init__(self):
            self.other = 1

    names = [Engine(a).export_config().agent_name for a in (Plain(), Named(), Computed(), Bare())]
    assert names == ["Plain", "from the class", "computed", "Bare"]
    kept = Named(name="given", extra=5)
    assert (kept.name, kept.config) == ("given", {"name": "given", "extra": 5})


def test_events_carry_aware_utc_times_in_order():
    """Case Z9 (langchain PR #15187): no naive times."""
    times = [event.ts for event in play_agent(ADD, Decision.final("x")).events]
    assert times == sorted(times)
    assert all(ts.endswith("+00:00") for ts in times)


def test_an_event_has_the_time_at_which_what_it_tells_of_had_ended():
    class Slow(ScriptedAgent):
        def decide(self, state, observation):
            time.sleep(0.02)
            return super().decide(state, observation)

        def reduce(self, state, observation, decision):
            time.sleep(0.03)
            return super().reduce(state, observation, decision)

    events = play(Engine(Slow(ADD, Decision.final("x"), tool_registry=tools(add)))).events
    at = [datetime.fromisoformat(event.ts).timestamp() for event in events]
    stage = [event.payload.get("stage") for event in events]
    for told, seconds in (("decision_ready", 0.02), ("state_reduced", 0.03)):
        places = [n for n, name in enumerate(stage) if name == told]
        assert len(places) == 2
        assert all(at[n] - at[n - 1] > 0.9 * seconds for n in places)


def test_a_lone_agent_keeps_no_conversation_that_nobody_reads():
    seen = []

    def look(runtime_context=None) -> int:
        """Look."""
        seen.append(runtime_context["run"])
        return 1

    look_once = Decision.act(Action("look"))
    play(Engine(ScriptedAgent(look_once, Decision.final("x"), tool_registry=tools(look))))
    assert seen[0].messages == []
    assert seen[0].events[-1].phase is RuntimePhase.END
