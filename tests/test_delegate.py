"""Delegation: a run within the run, its depth, its traces, its failures."""

import pytest

import snowl_compat
from qitos_min import Action, AgentModule, AgentSpec, Decision, Engine, StateSchema, ToolMeta
from qitos_min.engine import CriticResult, RuntimePhase, critic
from qitos_min.engine.delegate import DelegateTool


class Worker(AgentModule):
    """Does what ``work`` returns, then answers with the result."""

    def __init__(self, name, work):
        self.name = name
        super().__init__()
        self.work = work

    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def decide(self, state, observation):
        return self.work(state, observation)

    def reduce(self, state, observation, decision):
        return state


def answer(state, observation):
    return Decision.final(f"did: {state.task}")


def boss_over(spec, critics=None, **kwargs):
    """An engine whose agent delegates once and answers with what came back."""

    def work(state, observation):
        if not observation["action_results"]:
            args = {"task": "count", "context": "up to three"}
            return Decision.act(Action(f"delegate_to_{spec.name}", args))
        return Decision.final(observation["action_results"][0])

    boss = Worker("boss", work)
    boss.tool_registry.register(DelegateTool(spec, critics=critics))
    return Engine(boss, **kwargs)


@critic(name="inner")
def inner(state, decision, results):
    return CriticResult("continue", "fine", 0.75, {"kept": 1})


@critic(name="outer")
def outer(state, decision, results):
    return CriticResult("continue", "fine too", 0.5)


def test_the_answer_comes_back_and_the_events_tell_the_status():
    engine = boss_over(AgentSpec("worker", "works", Worker("worker", answer)))
    result = engine.run("t")
    assert result.final_result == {
        "agent": "worker",
        "final_result": "did: count\n\nContext: up to three",
        "stop_reason": "final",
        "steps": 1,
    }
    told = [
        (event.phase, event.ok, event.payload["agent"], event.payload.get("stop_reason"))
        for event in result.events
        if event.phase in (RuntimePhase.DELEGATE_START, RuntimePhase.DELEGATE_END)
    ]
    assert told == [
        (RuntimePhase.DELEGATE_START, True, "worker", None),
        (RuntimePhase.DELEGATE_END, True, "worker", "final"),
    ]


def test_nested_verdicts_join_the_callers_with_the_agents_name():
    spec = AgentSpec("worker", "works", Worker("worker", answer))
    engine = boss_over(spec, critics=[inner])
    engine.critics.append(outer)
    result = engine.run("t")
    rows = snowl_compat.build_payload(result, engine=engine)["critic_traces"]
    assert [(row["step_id"], row["critic_name"], row["details"]) for row in rows] == [
        (0, "inner", {"agent": "worker", "step": 0, "kept": 1}),
        (0, "outer", {}),
        (1, "outer", {}),
    ]
    assert [trace.critic_name for trace in result.critic_traces] == ["inner", "outer", "outer"]


def test_nested_handoffs_join_the_callers():
    from qitos_min import AgentRegistry

    helper = Worker("helper", answer)
    worker = Worker("worker", lambda state, observation: Decision.handoff("helper"))
    agents = AgentRegistry()
    agents.register(AgentSpec("helper", "helps", helper))
    engine = boss_over(AgentSpec("worker", "works", worker), agent_registry=agents)
    rows = snowl_compat.build_payload(engine.run("t"))["handoff_traces"]
    assert [(row["step_id"], row["from_agent"], row["to_agent"]) for row in rows] == [
        (0, "worker", "helper")
    ]


def test_a_nested_failure_is_the_calls_error():
    def fail(state, observation):
        raise RuntimeError("cannot count")

    result = boss_over(AgentSpec("worker", "works", Worker("worker", fail))).run("t")
    [call] = result.records[0].tool_invocations
    assert (call["status"], call["error_code"], call["error"]) == (
        "error", "delegate_failed", "worker failed: cannot count",
    )
    [end] = [event for event in result.events if event.phase is RuntimePhase.DELEGATE_END]
    assert (end.ok, end.payload["stop_reason"]) == (False, "unrecoverable_error")
    assert result.failure is None


def test_a_nested_run_that_cannot_start_is_the_calls_error():
    class Broken(Worker):
        def init_state(self, task, **kwargs):
            raise ValueError("no state")

    result = boss_over(AgentSpec("worker", "works", Broken("worker", answer))).run("t")
    [call] = result.records[0].tool_invocations
    assert call["error"] == "ValueError: no state"
    assert [e.ok for e in result.events if e.phase is RuntimePhase.DELEGATE_END] == [False]


def test_three_levels_are_the_most():
    spec = AgentSpec("again", "delegates to itself", None)
    levels = []

    def work(state, observation):
        levels.append(None)
        if not observation["action_results"]:
            return Decision.act(Action("delegate_to_again", {"task": "deeper"}))
        return Decision.final(observation["action_results"][0])

    spec.agent = Worker("again", work)
    spec.agent.tool_registry.register(DelegateTool(spec))
    result = Engine(spec.agent).run("t")
    assert len(levels) == 8
    answer = result.final_result
    for _ in range(3):
        answer = answer["final_result"]
    assert answer["error"] == "delegation to 'again' would be deeper than 3 levels"
    assert answer["error_code"] == "delegate_depth_exceeded"


@pytest.mark.parametrize("approve, status", [(None, "skipped"), (lambda *call: True, "success")])
def test_nothing_runs_unapproved_through_delegation(approve, status):
    calls = []

    def erase() -> str:
        """Erase all."""
        calls.append(None)
        return "erased"

    def work(state, observation):
        if not observation["action_results"]:
            return Decision.act(Action("erase"))
        return Decision.final(observation["action_results"][0])

    worker = Worker("worker", work)
    worker.tool_registry.register(erase, meta=ToolMeta(needs_approval=True))
    engine = boss_over(AgentSpec("worker", "works", worker), approval_callback=approve)
    inside = engine.run("t").final_result["final_result"]
    assert len(calls) == (status == "success")
    assert (inside if status == "success" else inside["error_code"]) in (
        "erased", "approval_required",
    )


def test_cancelling_the_caller_reaches_the_nested_run():
    engines = []

    def work(state, observation):
        engines[0].cancel()
        return Decision.wait()

    engine = boss_over(AgentSpec("worker", "works", Worker("worker", work)))
    engines.append(engine)
    result = engine.run("t")
    assert result.task_result.stop_reason == "cancelled_immediate"
    [end] = [event for event in result.events if event.phase is RuntimePhase.DELEGATE_END]
    assert end.payload["stop_reason"] == "cancelled_immediate"
    assert end.payload["steps"] == 1
