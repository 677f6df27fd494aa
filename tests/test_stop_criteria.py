"""What ends a run although nobody said final, and in which order it is asked."""

from dataclasses import dataclass

import pytest
from engine_doubles import Notes, Script, ScriptedAgent, play, play_agent, tools

from qitos_min import Action, Decision, Engine, StopReason
from qitos_min.engine import RuntimeBudget
from qitos_min.engine.stop_criteria import (
    FinalResultCriteria,
    MaxRuntimeCriteria,
    MaxStepsCriteria,
    MaxTokensCriteria,
    StagnationCriteria,
    StopCriteria,
)

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))


class Scripted(StopCriteria):
    """Answers what its script says; ``asked`` holds what it was told."""

    def __init__(self, *answers):
        self.script = Script("a criterion", answers)
        self.asked = []

    def should_stop(self, state, step_count, runtime_info=None):
        self.asked.append((step_count, runtime_info))
        return self.script.take()


def reason_of(result):
    return result.task_result.stop_reason


@pytest.mark.parametrize(
    "criterion, state, steps, info, expected",
    [
        (FinalResultCriteria(), Notes(), 1, {}, (False, None, None)),
        (FinalResultCriteria(), Notes(final_result=0), 1, {}, (True, StopReason.FINAL, None)),
        (FinalResultCriteria(), {"any": 1}, 1, {}, (False, None, None)),
        (MaxStepsCriteria(3), None, 2, {}, (False, None, None)),
        (MaxStepsCriteria(3), None, 3, {}, (True, StopReason.MAX_STEPS, "steps=3 of 3")),
        (MaxRuntimeCriteria(2), None, 1, {"elapsed_seconds": 1.9}, (False, None, None)),
        (
            MaxRuntimeCriteria(2),
            None,
            1,
            {"elapsed_seconds": 2.5},
            (True, StopReason.BUDGET_TIME, "elapsed_seconds=2.5 of 2"),
        ),
        (MaxTokensCriteria(10), None, 1, None, (False, None, None)),
        (
            MaxTokensCriteria(10),
            None,
            1,
            {"total_tokens": 10},
            (True, StopReason.BUDGET_TOKENS, "total_tokens=10 of 10"),
        ),
    ],
)
def test_the_bundled_criteria(criterion, state, steps, info, expected):
    assert criterion.should_stop(state, steps, info) == expected


def test_criteria_are_asked_in_order_until_one_says_stop():
    criteria = [
        Scripted((False, None, None), False),
        Scripted(None, (True, StopReason.STAGNATION, "here")),
        Scripted(False),
    ]
    result = play_agent(ADD, ADD, stop_criteria=criteria)
    assert reason_of(result) == "stagnation"
    assert result.events[-2].payload["stop_detail"] == "here"
    for criterion in criteria:
        criterion.script.check()
    steps = [[count for count, _ in criterion.asked] for criterion in criteria]
    assert steps == [[1, 2], [1, 2], [1]]


def test_a_criterion_is_told_what_was_used_and_what_may_be():
    criterion = Scripted(True)
    play_agent(ADD, stop_criteria=[criterion], budget=RuntimeBudget(5, 60, 100))
    [(count, info)] = criterion.asked
    assert (count, info.pop("elapsed_seconds") >= 0) == (1, True)
    assert info == {
        "total_tokens": 0,
        "budget_max_steps": 5,
        "budget_max_runtime_seconds": 60,
        "budget_max_tokens": 100,
    }


@pytest.mark.parametrize(
    "answer, reason, detail",
    [
        (True, "agent_condition", None),
        ((True,), "agent_condition", None),
        ((True, "success"), "success", None),
        ((True, StopReason.SUCCESS, "why"), "success", "why"),
        ((True, None, {"n": float("nan")}), "agent_condition", {"n": None}),
    ],
)
def test_a_criterion_may_answer_briefly(answer, reason, detail):
    result = play_agent(ADD, stop_criteria=[Scripted(answer)])
    assert reason_of(result) == reason
    assert result.events[-2].payload["stop_detail"] == detail


def test_an_unknown_reason_is_a_recorded_failure():
    result = play_agent(ADD, stop_criteria=[Scripted((True, "bored", None))])
    assert reason_of(result) == "unrecoverable_error"
    known = ", ".join(reason.value for reason in StopReason)
    assert result.failure["message"] == f"unknown stop reason 'bored'; known: {known}"


def test_final_comes_before_the_agent_before_the_criteria():
    class Ready(ScriptedAgent):
        def should_stop(self, state):
            return True

    untouched = Scripted()
    agent = Ready(Decision.final("x"))
    assert reason_of(play(Engine(agent, stop_criteria=[untouched]))) == "final"
    agent = Ready(ADD, tool_registry=tools())
    assert reason_of(play(Engine(agent, stop_criteria=[untouched]))) == "agent_condition"
    assert untouched.asked == []


def test_an_answer_that_the_state_holds_ends_the_run_by_default_only():
    def answer(state, observation, decision):
        state.final_result = "found"

    agent = ScriptedAgent(ADD, reduce=answer, tool_registry=tools())
    result = play(Engine(agent))
    assert (reason_of(result), result.final_result, result.step_count) == ("final", "found", 1)
    agent = ScriptedAgent(ADD, ADD, reduce=answer, tool_registry=tools())
    result = play(Engine(agent, stop_criteria=[MaxStepsCriteria(2)]))
    assert (reason_of(result), result.final_result) == ("max_steps", "found")


def test_no_criteria_at_all_is_a_choice():
    result = play_agent(ADD, ADD, stop_criteria=[], budget=RuntimeBudget(max_steps=2))
    assert reason_of(result) == "budget_steps"


# Stagnation


def test_a_state_that_does_not_change_ends_the_run():
    result = play_agent(*[ADD] * 4, stop_criteria=[StagnationCriteria(3)])
    assert (result.step_count, reason_of(result)) == (4, "stagnation")
    assert result.events[-2].payload["stop_detail"] == "no change for 3 steps"


def test_a_change_starts_the_count_again():
    def note_once(state, observation, decision):
        if state.current_step == 1:
            state.notes.append(1)

    agent = ScriptedAgent(*[ADD] * 4, reduce=note_once, tool_registry=tools())
    result = play(Engine(agent, stop_criteria=[StagnationCriteria(2)]))
    assert (result.step_count, reason_of(result)) == (4, "stagnation")


def test_a_new_run_starts_the_count_again():
    criterion = StagnationCriteria(2)
    agent = ScriptedAgent(*[ADD] * 3, tool_registry=tools())
    engine = Engine(agent, stop_criteria=[criterion])
    assert play(engine).step_count == 3
    agent.script.entries = [Decision.wait(), *[ADD] * 3]
    assert play(engine).step_count == 4


def test_a_signature_says_what_counts_as_a_change():
    criterion = StagnationCriteria(1, signature_fn=lambda state: state.metadata.get("page"))

    def note(state, observation, decision):
        state.notes.append(1)

    agent = ScriptedAgent(ADD, ADD, reduce=note, tool_registry=tools())
    assert reason_of(play(Engine(agent, stop_criteria=[criterion]))) == "stagnation"


@dataclass
class Slotted:
    __slots__ = ("page",)
    page: int


@pytest.mark.parametrize("make", [Slotted, lambda page: {"page": page, "current_step": page}])
def test_states_of_any_kind_can_stagnate(make):
    criterion = StagnationCriteria(1)
    answers = [criterion.should_stop(make(page), n + 1)[0] for n, page in enumerate([1, 2, 2])]
    assert answers == [False, False, True]
