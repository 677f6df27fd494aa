"""Delegation: a run within the run, its depth, its traces, its failures."""

import threading
import time

import pytest
from chat_rules import assert_accepted

import snowl_compat
from qitos_min import (
    Action,
    AgentModule,
    AgentRegistry,
    AgentSpec,
    Decision,
    Engine,
    StateSchema,
    ToolMeta,
    ToolRegistry,
)
from qitos_min.core.action import ActionExecutionPolicy
from qitos_min.engine import CriticResult, RuntimeBudget, RuntimePhase, critic
from qitos_min.engine.delegate import DelegateTool
from qitos_min.kit.checkpoint import MemoryCheckpointStore


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


# What is left of the caller's budget (a delegate spent 30,000 tokens of a budget of 2,000)


class Spender:
    """A model that uses tokens and has its agent go on."""

    def __init__(self, tokens, seconds=0.0):
        self.tokens, self.seconds = tokens, seconds
        self.calls = 0

    def __call__(self, messages, tools=None):
        assert_accepted(messages, tools)
        self.calls += 1
        time.sleep(self.seconds)
        message = {"content": "Thought: on\nAction: go()"}
        return {"choices": [{"message": message}], "usage": {"total_tokens": self.tokens}}


def spender(model, name="worker"):
    worker = Worker(name, lambda state, observation: None)
    worker.llm = model
    worker.tool_registry.register(lambda: "on", name="go")
    return worker


def spending(model, name="worker", **options):
    worker = spender(model, name)
    return AgentSpec(name, "spends", worker, **options)


@pytest.mark.parametrize(
    "budget, calls, reason, boss_ends",
    [
        (RuntimeBudget(max_steps=50, max_tokens=2000), 2, "budget_tokens", "budget_tokens"),
        (RuntimeBudget(max_steps=50, max_tokens=2001), 3, "budget_tokens", "budget_tokens"),
        (RuntimeBudget(max_steps=6), 5, "budget_steps", "final"),
        (RuntimeBudget(max_steps=None, max_runtime_seconds=0.05), None, "budget_time", "budget_time"),
    ],
)
def test_a_delegate_gets_what_is_left(budget, calls, reason, boss_ends):
    model = Spender(1000, seconds=0.01)
    result = boss_over(spending(model), budget=budget).run("t")
    [end] = [e for e in result.events if e.phase is RuntimePhase.DELEGATE_END]
    assert (end.payload["stop_reason"], result.task_result.stop_reason) == (reason, boss_ends)
    assert calls in (None, model.calls)
    assert result.runtime_seconds < 1
    assert result.total_tokens == 1000 * model.calls


@pytest.mark.parametrize("override, steps", [(None, 4), (3, 3), (9, 4)])
def test_an_override_of_the_steps_is_no_way_around_what_is_left(override, steps):
    model = Spender(1)
    spec = spending(model, max_steps_override=override)
    boss_over(spec, budget=RuntimeBudget(max_steps=5)).run("t")
    assert model.calls == steps


def test_tokens_add_up_once_over_three_levels_and_end_all_of_them():
    model = Spender(400)
    inner = spending(model, "inner")

    def work(state, observation):
        return Decision.act(Action("delegate_to_inner", {"task": "spend"}))

    middle = Worker("middle", work)
    middle.tool_registry.register(DelegateTool(inner))
    engine = boss_over(AgentSpec("middle", "delegates", middle))
    engine.budget = RuntimeBudget(max_steps=9, max_tokens=1000)
    result = engine.run("t")
    assert (model.calls, result.total_tokens) == (3, 1200)
    assert result.task_result.stop_reason == "budget_tokens"
    assert result.task_result.metrics["token_usage"] == 1200


def test_delegates_side_by_side_share_what_is_left():
    """Each can exceed the budget by the step that it is in, and not by more."""
    models = [Spender(100, seconds=0.002), Spender(100, seconds=0.002)]
    registry = ToolRegistry()
    for number, model in enumerate(models):
        tool = DelegateTool(spending(model, f"w{number}"))
        registry.register(tool, meta=ToolMeta(concurrency_safe=True))
    acts = [Action(f"delegate_to_w{n}", {"task": "spend"}) for n in (0, 1)]
    boss = Worker("boss", lambda state, observation: Decision.act(acts))
    boss.tool_registry.include(registry)
    result = Engine(
        boss,
        budget=RuntimeBudget(max_steps=40, max_tokens=1000),
        action_execution_policy=ActionExecutionPolicy("parallel"),
    ).run("t")
    assert 1000 <= result.total_tokens <= 1000 + 100
    assert result.total_tokens == 100 * sum(model.calls for model in models)


@pytest.mark.parametrize("budget", [RuntimeBudget(max_steps=1), RuntimeBudget(max_runtime_seconds=0)])
def test_with_nothing_left_a_delegate_does_nothing(budget):
    model = Spender(1)
    boss_over(spending(model), budget=budget).run("t")
    assert model.calls == 0


def test_who_is_handed_the_run_gets_what_is_left_of_it():
    model = Spender(400)
    spec = spending(model)
    agents = AgentRegistry()
    agents.register(spec)
    boss = Worker("boss", lambda state, observation: Decision.handoff("worker"))
    budget = RuntimeBudget(max_steps=50, max_tokens=1000)
    result = Engine(boss, agent_registry=agents, budget=budget).run("t")
    assert (model.calls, result.task_result.stop_reason) == (3, "budget_tokens")


def test_a_resumed_run_goes_on_with_what_was_spent():
    model, store = Spender(400), MemoryCheckpointStore()

    def engine(budget):
        return Engine(spender(model), checkpoint_store=store, budget=budget)

    session = engine(RuntimeBudget(max_steps=9)).session("t")
    for step in session:  # As if the process had died after the second step.
        if step.step_id == 1:
            break
    [run_id] = store.list_runs()
    resumed = engine(RuntimeBudget(max_steps=9, max_tokens=1000)).resume(run_id)
    assert (resumed.total_tokens, resumed.step_count) == (1200, 3)
    again = engine(RuntimeBudget(max_steps=4)).resume(run_id)
    assert (again.total_tokens, again.task_result.stop_reason) == (1600, "budget_steps")


def test_a_delegate_whose_tool_hangs_is_cancelled_with_its_caller():
    release = threading.Event()

    def hang() -> None:
        """Hang."""
        release.wait(10)

    worker = Worker("worker", lambda state, observation: Decision.act(Action("hang")))
    worker.tool_registry.register(hang)
    engine = boss_over(AgentSpec("worker", "hangs", worker))
    threading.Timer(0.05, engine.cancel).start()
    started = time.monotonic()
    result = engine.run("t")
    release.set()
    assert time.monotonic() - started < 2
    [end] = [e for e in result.events if e.phase is RuntimePhase.DELEGATE_END]
    assert end.payload["stop_reason"] == "cancelled_immediate"
    assert result.task_result.stop_reason == "cancelled_immediate"
