"""Cancelling a run: at once or after the step, from anywhere."""

import threading

import pytest
from engine_doubles import ScriptedAgent, ScriptedCritic, play, stages, tools

from qitos_min import Action, Decision, Engine
from qitos_min.core.action import ActionExecutionPolicy
from qitos_min.engine import CancelMode, CancelToken

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))
IMMEDIATE, AFTER_STEP = CancelMode.IMMEDIATE, CancelMode.AFTER_STEP


def reason_of(result):
    return result.task_result.stop_reason


def cancelling_engine(mode, place):
    """An engine that is cancelled from within its own step."""

    def cancel(*args):
        engine.cancel(mode)

    def decide(state, observation):
        if place == "decide":
            cancel()
        return ADD

    def judge(state, decision, results):
        cancel()
        return "continue"

    class Agent(ScriptedAgent):
        def should_stop(self, state):
            if place == "should_stop":
                cancel()
            return False

    reduce = cancel if place == "reduce" else None
    agent = Agent(decide, reduce=reduce, tool_registry=tools())
    critics = [ScriptedCritic(judge)] if place == "critic" else []
    engine = Engine(agent, critics=critics)
    return engine


@pytest.mark.parametrize(
    "place, last",
    [
        ("decide", "DECIDE decision_ready"),
        ("reduce", "REDUCE state_reduced"),
        ("critic", "CRITIC pass"),
        ("should_stop", "CHECK_STOP continue"),
    ],
)
def test_immediately_is_before_the_next_stage(place, last):
    result = play(cancelling_engine(IMMEDIATE, place))
    assert stages(result.events)[-2:] == [last, "END"]
    assert (reason_of(result), result.step_count) == ("cancelled_immediate", 1)
    assert (result.failure, result.task_result.success) == (None, False)


@pytest.mark.parametrize("place", ["decide", "reduce", "critic", "should_stop"])
def test_after_the_step_is_when_it_is_complete(place):
    """Fault 13: cancelling after the step crashed."""
    result = play(cancelling_engine(AFTER_STEP, place))
    assert stages(result.events)[-2:] == ["CHECK_STOP continue", "END"]
    assert (reason_of(result), result.step_count) == ("cancelled_after_step", 1)
    assert result.records[0].action_results == [3]


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_immediately_is_before_the_next_call_of_a_batch(mode):
    ran = []

    def call(number: int, runtime_context=None) -> int:
        """Call."""
        ran.append(number)
        if number == 2:
            runtime_context["cancel_token"].cancel()
        return number

    batch = Decision.act([Action("call", {"number": n}) for n in (1, 2, 3, 4)])
    agent = ScriptedAgent(batch, tool_registry=tools(call))
    policy = ActionExecutionPolicy(mode=mode)
    result = play(Engine(agent, action_execution_policy=policy))
    assert ran == [1, 2]
    calls = result.records[0].tool_invocations
    assert [c["status"] for c in calls] == ["success", "success", "cancelled", "cancelled"]
    assert reason_of(result) == "cancelled_immediate"
    assert result.tool_calls_by_name == {"call": 2}


@pytest.mark.parametrize("mode", ["immediate", "after_step"])
def test_a_run_cancelled_before_it_begins_takes_no_step(mode):
    """Fault 13: cancelling before run was lost."""
    agent = ScriptedAgent(Decision.final("x"))
    engine = Engine(agent)
    engine.cancel(mode)
    result = engine.run("t")
    assert (result.step_count, reason_of(result)) == (0, f"cancelled_{mode}")
    assert stages(result.events) == ["INIT", "END"]
    assert play(engine).final_result == "x"


def test_a_session_is_cancelled_between_its_steps():
    engine = Engine(ScriptedAgent(ADD, ADD, tool_registry=tools()))
    session = engine.session("t")
    steps = iter(session)
    next(steps)
    engine.cancel(AFTER_STEP)
    assert list(steps) == []
    assert (session.result.step_count, reason_of(session.result)) == (1, "cancelled_after_step")


def test_an_answer_given_in_the_step_counts_when_the_step_may_be_completed():
    def decide(state, observation):
        engine.cancel(AFTER_STEP)
        return Decision.final("x")

    engine = Engine(ScriptedAgent(decide))
    result = play(engine)
    assert (reason_of(result), result.final_result) == ("final", "x")
    engine.agent.script.entries = [Decision.final("y")]
    assert play(engine).final_result == "y"


@pytest.mark.parametrize("mode", ["immediate", "after_step"])
def test_another_thread_may_cancel(mode):
    working, go = threading.Event(), threading.Event()

    def slow() -> int:
        """Slow."""
        working.set()
        assert go.wait(5)
        return 1

    agent = ScriptedAgent(Decision.act(Action("slow")), tool_registry=tools(slow))
    engine = Engine(agent)
    found = []
    thread = threading.Thread(target=lambda: found.append(engine.run("t")))
    thread.start()
    assert working.wait(5)
    engine.cancel(mode)
    go.set()
    thread.join(5)
    [result] = found
    assert (reason_of(result), result.step_count) == (f"cancelled_{mode}", 1)
    assert result.records[0].action_results == [1]


def test_a_cancelled_retry_does_not_go_on():
    def judge(state, decision, results):
        engine.cancel(AFTER_STEP)
        return ("retry", "r")

    engine = Engine(ScriptedAgent(Decision.final("x")), critics=[ScriptedCritic(judge)])
    result = play(engine)
    assert (reason_of(result), result.final_result) == ("cancelled_after_step", None)


def test_an_engine_can_be_cancelled_by_another_runs_token():
    token = CancelToken()

    def decide(state, observation):
        token.cancel(AFTER_STEP)
        return ADD

    engine = Engine(ScriptedAgent(decide, Decision.final("x"), tool_registry=tools()))
    engine.token = token
    assert reason_of(engine.run("t")) == "cancelled_after_step"
    assert token.mode is AFTER_STEP
    assert play(engine).final_result == "x"


def test_the_stronger_request_counts():
    token = CancelToken()
    assert token.mode is None
    token.cancel("after_step")
    assert token.mode is AFTER_STEP
    token.cancel()
    assert token.mode is IMMEDIATE
    token.cancel(AFTER_STEP)
    assert token.mode is IMMEDIATE


@pytest.mark.parametrize("mode", ["later", None, 5])
def test_an_unknown_mode_is_refused_naming_the_modes(mode):
    expected = f"unknown cancel mode {mode!r}; known: immediate, after_step"
    result = play(Engine(ScriptedAgent(Decision.final("x"))))
    for target in (CancelToken(), Engine(ScriptedAgent()), result):
        with pytest.raises(ValueError) as caught:
            target.cancel(mode)
        assert str(caught.value) == expected


def test_a_finished_run_cannot_be_cancelled_any_more():
    result = play(Engine(ScriptedAgent(Decision.final("x"))))
    assert result.cancel() is False
    assert result.cancel("after_step") is False
    assert reason_of(result) == "final"
