"""Faults of QitOS that must not be here, by their number in the project's list.

Those about tools alone are tested with the tools.
"""

import math
import threading
from dataclasses import dataclass

import pytest
from engine_doubles import (
    Notes,
    ScriptedAgent,
    ScriptedCritic,
    agents,
    as_json,
    check_run,
    play,
    play_agent,
    tools,
)

import snowl_compat
from qitos_min import Action, ContextStrategy, Decision, Engine, Task, TaskBudget, ToolMeta
from qitos_min import ToolPermission, ToolRegistry
from qitos_min.engine import RuntimeBudget, critic
from qitos_min.engine.stop_criteria import StopCriteria

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))


@pytest.mark.parametrize("score", [None, "high", math.nan])
def test_fault_1_an_odd_score_does_not_destroy_a_finished_run(score):
    result = play_agent(Decision.final("x"), critics=[ScriptedCritic({"score": score})])
    assert (result.final_result, result.critic_traces[0].score) == ("x", None)


def test_fault_2_nan_and_foreign_details_do_not_leak_into_dicts():
    details = {"n": math.nan, "lock": threading.Lock(), 3: {1, 2}, "deep": [math.inf]}
    result = play_agent(Decision.final("x"), critics=[ScriptedCritic({"details": details})])
    row = as_json(result.critic_traces[0].to_dict())
    assert (row["details"]["n"], row["details"]["deep"]) == (None, [None])


def test_fault_3_a_reused_details_dict_does_not_rewrite_earlier_traces():
    shared = {}

    def judge(state, decision, results):
        shared["step"] = state.current_step
        return {"details": shared}

    result = play_agent(ADD, Decision.final("x"), critics=[ScriptedCritic(judge, judge)])
    assert [trace.details for trace in result.critic_traces] == [{"step": 0}, {"step": 1}]


def test_fault_4_a_state_patch_cannot_overwrite_methods():
    patch = {"action": "retry", "state_patch": {"to_dict": 1, "notes": ["n"]}}
    result = play_agent(
        Decision.final("x"), Decision.final("y"), critics=[ScriptedCritic(patch, "continue")]
    )
    assert result.state.to_dict()["notes"] == ["n"]


class Refusing(StopCriteria):
    def should_stop(self, state, step_count, runtime_info=None):
        raise RuntimeError("criterion")


class Invalid(Notes):
    def validate(self):
        raise RuntimeError("validation")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: {"critics": [ScriptedCritic(RuntimeError("critic"))]}, "critic"),
        (lambda: {"stop_criteria": [Refusing()]}, "criterion"),
        (lambda: {"agent": ScriptedAgent(Decision.handoff("x"))}, "handoff to unknown agent 'x', the engine has no agent_registry"),
        (lambda: {"agent": ScriptedAgent(state=Invalid)}, "validation"),
    ],
)
def test_fault_5_nothing_escapes_from_run(make, message):
    options = make()
    agent = options.pop("agent", None) or ScriptedAgent(ADD, tool_registry=tools())
    result = play(Engine(agent, **options))
    assert result.task_result.stop_reason == "unrecoverable_error"
    assert result.failure["message"] == message


def test_fault_6_a_decorated_critic_has_its_declared_name():
    @critic(name="quality")
    def judge(state, decision, results):
        return "continue"

    engine = Engine(ScriptedAgent(Decision.final("x")), critics=[judge])
    assert engine.export_config().critic_names == ["quality"]
    assert play(engine).critic_traces[0].critic_name == "quality"


def test_fault_7_a_critic_that_stops_does_not_drop_the_answer():
    result = play_agent(Decision.final("x"), critics=[ScriptedCritic("stop")])
    assert (result.task_result.stop_reason, result.state.final_result) == ("critic_stop", "x")


def test_fault_8_model_and_protocol_are_filled():
    class Model:
        model_name = "m-1"

        def __call__(self, messages, tools=None):
            return ""

    config = Engine(ScriptedAgent(llm=Model()), protocol="json_decision_v1").export_config()
    assert (config.model_id, config.protocol_id) == ("m-1", "json_decision_v1")


def test_fault_10_transfer_tools_hand_off():
    other = ScriptedAgent(Decision.final("x"), name="other")
    first = ScriptedAgent(Decision.act(Action("transfer_to_other")))
    result = play(Engine(first, agent_registry=agents(other)))
    assert [record.agent_id for record in result.records] == ["agent", "other"]


def test_fault_11_isolated_passes_nothing_and_counts_what_arrived():
    other = ScriptedAgent(Decision.final("x"), name="other")
    registry = agents(other, context_strategy=ContextStrategy.ISOLATED)
    first = ScriptedAgent(ADD, ADD, Decision.handoff("other"), tool_registry=tools())
    result = play(Engine(first, agent_registry=registry))
    assert result.handoff_traces[0].messages_passed == 0


def test_fault_12_configuration_and_handoff_step_belong_to_the_entry_agent():
    other = ScriptedAgent(Decision.final("x"), name="other", tool_registry=tools())
    engine = Engine(ScriptedAgent(Decision.handoff("other")), agent_registry=agents(other))
    result = play(engine)
    config = engine.export_config()
    assert (config.agent_name, config.tool_count) == ("agent", 0)
    assert result.records[0].agent_id == "agent"
    assert snowl_compat.build_payload(result, engine=engine)["engine_config"]["tool_count"] == 0


def test_fault_13_cancelling_after_the_step_and_before_the_run_works():
    def decide(state, observation):
        engine.cancel("after_step")
        return ADD

    engine = Engine(ScriptedAgent(decide, tool_registry=tools()))
    assert play(engine).task_result.stop_reason == "cancelled_after_step"
    engine.cancel("immediate")
    assert engine.run("t").task_result.stop_reason == "cancelled_immediate"


def test_fault_14_a_task_does_not_change_the_callers_budget():
    budget = RuntimeBudget(max_steps=5)
    task = Task("t", "o", budget=TaskBudget(max_steps=1))
    play(Engine(ScriptedAgent(ADD, tool_registry=tools()), budget=budget), task)
    assert budget == RuntimeBudget(max_steps=5)


def test_fault_15_exported_permissions_are_copies():
    permission = ToolPermission(network=True)
    registry = ToolRegistry().register(
        lambda: 1, name="t", meta=ToolMeta(permissions=permission, required_ops=["file"])
    )
    [spec] = registry.export_permissions()
    spec.required_ops.append("late")
    assert registry.export_permissions()[0].required_ops == ["file"]
    assert spec.permissions == permission


def test_fault_16_a_callable_needs_approval_is_exported_as_true():
    registry = ToolRegistry().register(
        lambda: 1, name="t", meta=ToolMeta(needs_approval=lambda args: False)
    )
    engine = Engine(ScriptedAgent(Decision.final("x"), tool_registry=registry))
    result = play(engine)
    tool = result.events[0].payload["run_meta"]["tools"][0]
    assert tool["needs_approval"] is True
    assert snowl_compat.build_payload(result, engine=engine)["tool_permissions"] == [tool]


def test_fault_17_a_second_engine_on_the_same_agent_works():
    registry = agents(ScriptedAgent(Decision.final("x"), name="other"))
    agent = ScriptedAgent(Decision.handoff("other"))
    Engine(agent, agent_registry=registry)
    assert play(Engine(agent, agent_registry=registry)).final_result == "x"


def test_fault_18_denied_and_unknown_calls_are_no_calls_and_keep_their_reason():
    def secret() -> int:
        """Secret."""
        return 1

    registry = tools().register(secret, meta=ToolMeta(needs_approval=True))
    turn = Decision.act([Action("add", {"a": 1, "b": 2}), Action("secret"), Action("ad")])
    agent = ScriptedAgent(turn, Decision.final("x"), tool_registry=registry)
    result = play(Engine(agent, approval_callback=lambda *args: (False, "not today")))
    assert result.tool_calls_by_name == {"add": 1}
    assert result.success_rate == pytest.approx(1 / 3)
    told = [(s.status, s.error) for s in result.step_summaries]
    assert told == [
        ("success", None),
        ("skipped", "approval of tool 'secret' was denied: not today"),
        ("error", "no tool is named 'ad', did you mean 'add'?"),
    ]


@dataclass
class Locked(Notes):
    lock: object = None


def test_fault_24_a_lock_in_the_state_costs_nothing():
    """mlflow #21667: asdict deep-copied the lock and died."""
    lock = threading.Lock()
    agent = ScriptedAgent(ADD, Decision.final(lock), state=Locked, tool_registry=tools())
    engine = Engine(agent)
    result = engine.run("t", lock=lock)
    check_run(result, engine)
    assert result.state.lock is lock and result.final_result is lock
    assert result.step_count == 2
