"""Limits of a run: steps, time, tokens, and the state's own."""

import time
from dataclasses import dataclass

import pytest
from engine_doubles import Notes, ScriptedAgent, ScriptedModel, play, play_agent, tools

from qitos_min import Action, Decision, Engine, Task, TaskBudget
from qitos_min.engine import RuntimeBudget
from qitos_min.engine.stop_criteria import MaxStepsCriteria

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))


def reason_of(result):
    return result.task_result.stop_reason


def reply(tokens):
    """A model's reply that calls ``add`` and costs tokens."""
    text = '{"mode": "act", "actions": [{"name": "add", "args": {"a": 1, "b": 2}}]}'
    usage = {"prompt_tokens": tokens - 1, "completion_tokens": 1, "total_tokens": tokens}
    return {"choices": [{"message": {"content": text}}], "usage": usage}


def talker(*tokens):
    return ScriptedAgent(
        *[None] * len(tokens),
        llm=ScriptedModel(*map(reply, tokens)),
        model_protocol="json_decision_v1",
        tool_registry=tools(),
    )


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_run_takes_as_many_steps_as_its_budget(steps):
    result = play_agent(*[ADD] * steps, budget=RuntimeBudget(max_steps=steps))
    assert (result.step_count, reason_of(result)) == (steps, "budget_steps")
    assert (result.failure, result.task_result.success) == (None, False)


def test_the_default_is_ten_steps_and_none_is_no_limit():
    assert play_agent(*[ADD] * 10).step_count == 10
    unlimited = RuntimeBudget(max_steps=None)
    result = play_agent(*[ADD] * 30, Decision.final("x"), budget=unlimited)
    assert (result.step_count, result.final_result) == (31, "x")


def test_waiting_counts_as_a_step():
    result = play_agent(Decision.wait(), Decision.wait(), budget=RuntimeBudget(max_steps=2))
    assert (result.step_count, reason_of(result)) == (2, "budget_steps")


def test_an_answer_in_the_last_step_is_an_answer():
    result = play_agent(ADD, Decision.final("x"), budget=RuntimeBudget(max_steps=2))
    assert (reason_of(result), result.task_result.success) == ("final", True)


def test_time_is_looked_at_between_steps():
    def slowly(state, observation):
        time.sleep(0.25)
        return ADD

    budget = RuntimeBudget(max_runtime_seconds=0.2)
    result = play_agent(slowly, budget=budget)
    assert (result.step_count, reason_of(result)) == (1, "budget_time")
    assert result.runtime_seconds >= 0.2
    assert play_agent(budget=RuntimeBudget(max_runtime_seconds=0)).step_count == 0


def test_tokens_add_up_and_end_the_run():
    result = play(Engine(talker(30, 40), budget=RuntimeBudget(max_tokens=60)))
    assert (result.step_count, reason_of(result)) == (2, "budget_tokens")
    assert result.total_tokens == 70
    assert result.task_result.metrics["token_usage"] == 70


@pytest.mark.parametrize(
    "budget, reason",
    [
        (RuntimeBudget(1, 0.2, 5), "budget_steps"),
        (RuntimeBudget(9, 0.2, 5), "budget_time"),
        (RuntimeBudget(9, 60, 5), "budget_tokens"),
    ],
)
def test_steps_then_time_then_tokens(budget, reason):
    agent = talker(30)
    agent.script.entries = [lambda state, observation: time.sleep(0.25)]
    assert reason_of(play(Engine(agent, budget=budget))) == reason


# A task's own budget


@pytest.mark.parametrize(
    "own, steps",
    [(TaskBudget(max_steps=2), 2), (TaskBudget(max_steps=5), 5), (TaskBudget(), 3), (None, 3)],
)
def test_a_tasks_budget_holds_for_its_run_only(own, steps):
    """Fault 14: the caller's RuntimeBudget was changed by a Task."""
    budget = RuntimeBudget(max_steps=3, max_tokens=1000)
    agent = ScriptedAgent(*[ADD] * steps, tool_registry=tools())
    engine = Engine(agent, budget=budget)
    assert play(engine, Task("t", "o", budget=own)).step_count == steps
    assert budget == RuntimeBudget(max_steps=3, max_tokens=1000)
    assert engine.export_config().budget_max_steps == 3
    agent.script.entries = [ADD] * 3
    assert play(engine).step_count == 3


def test_a_task_overrides_time_and_tokens_too():
    task = Task("t", "o", budget=TaskBudget(max_runtime_seconds=0))
    assert reason_of(play(Engine(ScriptedAgent()), task)) == "budget_time"
    task = Task("t", "o", budget=TaskBudget(max_tokens=20))
    assert reason_of(play(Engine(talker(25)), task)) == "budget_tokens"


# The state's own limit


@dataclass
class Short(Notes):
    max_steps: int = 2


def test_a_limit_of_the_state_ends_the_run_as_max_steps():
    agent = ScriptedAgent(ADD, ADD, state=Short, tool_registry=tools())
    result = play(Engine(agent, budget=RuntimeBudget(max_steps=20)))
    assert (result.step_count, reason_of(result)) == (2, "max_steps")


def test_a_limit_that_the_agent_sets_on_the_way_counts():
    def enough(state, observation, decision):
        state.max_steps = 3

    agent = ScriptedAgent(ADD, ADD, ADD, reduce=enough, tool_registry=tools())
    assert reason_of(play(Engine(agent))) == "max_steps"


def test_the_default_of_a_state_says_nothing():
    result = play_agent(*[ADD] * 12, budget=RuntimeBudget(max_steps=12))
    assert (result.step_count, reason_of(result)) == (12, "budget_steps")


def test_the_budget_is_named_when_both_limits_are_the_same():
    agent = ScriptedAgent(ADD, ADD, state=Short, tool_registry=tools())
    assert reason_of(play(Engine(agent, budget=RuntimeBudget(max_steps=2)))) == "budget_steps"


def test_a_criterion_of_steps_ends_the_run_as_max_steps():
    result = play_agent(ADD, ADD, stop_criteria=[MaxStepsCriteria(2)])
    assert (result.step_count, reason_of(result)) == (2, "max_steps")
    assert result.events[-2].payload["stop_detail"] == "steps=2 of 2"


def test_a_limit_that_is_no_number_is_a_recorded_failure():
    def spoil(state, observation, decision):
        state.max_steps = 10.5

    agent = ScriptedAgent(ADD, reduce=spoil, tool_registry=tools())
    result = play(Engine(agent))
    assert result.failure["message"] == "state field 'max_steps' must be int, got float"


def test_a_budget_changed_to_nonsense_after_construction_is_a_recorded_failure():
    engine = Engine(ScriptedAgent(tool_registry=tools()))
    engine.budget.max_steps = "many"
    result = play(engine)
    assert (result.failure["type"], result.step_count) == ("TypeError", 0)
