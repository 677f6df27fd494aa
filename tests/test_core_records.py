"""Decisions, tasks and messages: positions, defaults, factories, round trips."""

import math
from dataclasses import fields

import pytest
from engine_doubles import as_json

from qitos_min import Action, ContextStrategy, Decision, HandoffContext, StateAdapter
from qitos_min import EnvSpec, Task, TaskBudget, TaskResult
from qitos_min.core.agent_spec import AgentSpec
from qitos_min.core.env import EnvSpec
from qitos_min.core.errors import ErrorCategory, QitosRuntimeError, RuntimeErrorInfo
from qitos_min.core.history import History, HistoryMessage
from qitos_min.core.task import TaskResource
from qitos_min.engine import CriticResult

LISTED = {
    Task: (
        "id objective inputs resources env_spec constraints success_criteria budget metadata",
        ("t", "o"),
        ({}, [], None, {}, [], TaskBudget(), {}),
    ),
    TaskBudget: ("max_steps max_runtime_seconds max_tokens", (), (None, None, None)),
    TaskResource: (
        "kind path uri mount_to required description metadata",
        ("file",),
        (None, None, None, True, "", {}),
    ),
    TaskResult: (
        "task_id success stop_reason final_result criteria artifacts metrics metadata",
        ("t", True, "final", "x"),
        ([], [], {}, {}),
    ),
    Decision: (
        "mode actions final_answer rationale meta candidates target",
        ("wait",),
        ([], None, None, {}, [], None),
    ),
    HistoryMessage: ("role content step_id metadata", ("user", "hi"), (0, {})),
    HandoffContext: (
        "strategy payload shared_state_fields max_history_rounds",
        (),
        (ContextStrategy.SUMMARY, {}, [], None),
    ),
    AgentSpec: (
        "name description agent context_strategy max_steps_override shared_env state_adapter"
        " handoff_context shared_memory model_override tools_override tool_name",
        ("a", "d", None),
        (ContextStrategy.SUMMARY, None, True, None, None, None, None, None, None),
    ),
    CriticResult: (
        "action reason score details modified_prompt instruction_patch state_patch",
        (),
        ("continue", "", 1.0, {}, None, None, None),
    ),
}


@pytest.mark.parametrize("record", LISTED)
def test_a_record_is_built_by_position_with_the_listed_defaults(record):
    names, given, defaults = LISTED[record]
    assert [f.name for f in fields(record)] == names.split()
    built = record(*given)
    assert tuple(vars(built).values()) == (*given, *defaults)
    if record is not AgentSpec:  # It holds an agent, which is no data.
        assert list(as_json(built.to_dict())) == names.split()


def test_the_factories_of_a_decision():
    action = Action("add")
    meta = {"k": 1}
    made = {
        "act": Decision.act([action], "why", meta),
        "final": Decision.final("x", rationale="why", meta=meta),
        "wait": Decision.wait("why", meta),
        "branch": Decision.branch([Decision.wait()], "why", meta),
        "handoff": Decision.handoff("worker", "why", meta=meta),
    }
    for mode, decision in made.items():
        decision.validate()
        assert (decision.mode, decision.rationale, decision.meta) == (mode, "why", meta)
    assert made["act"].actions == [action] == Decision.act(action).actions
    assert made["final"].final_answer == "x"
    assert made["branch"].candidates == [Decision.wait()]
    assert made["handoff"].target == "worker"
    assert Decision.wait().meta == {} and Decision.wait().meta is not Decision.wait().meta


def test_the_lists_of_a_decision_are_its_own():
    actions = [Action("add")]
    decision = Decision.act(actions)
    actions.clear()
    assert len(decision.actions) == 1


def test_a_decision_as_json():
    decision = Decision.branch([Decision.final(math.nan, meta={"o": object()})])
    row = as_json(decision.to_dict())
    assert row["candidates"][0]["final_answer"] is None
    assert list(row["candidates"][0]["meta"]["o"]) == ["$unserializable"]


def test_a_task_comes_back_from_its_dict():
    task = Task(
        "t",
        "o",
        {"n": 1},
        [TaskResource("file", "a.txt")],
        EnvSpec("host"),
        {"c": 1},
        ["done"],
        TaskBudget(3, 1.5, 100),
        {"m": 1},
    )
    row = as_json(task.to_dict())
    assert Task.from_dict(row) == task
    row["inputs"]["n"] = 2
    assert task.inputs == {"n": 1}
    assert Task.from_dict({"id": "t", "objective": "o"}) == Task("t", "o")
    with pytest.raises(ValueError) as caught:
        Task.from_dict({"id": "t", "objective": "o", "colour": 1})
    assert str(caught.value) == "unknown task field 'colour'"


@pytest.mark.parametrize(
    "task, message",
    [
        (Task("", "o"), "a task needs a text 'id', got ''"),
        (Task("t", None), "a task needs a text 'objective', got None"),
        (
            Task("t", "o", budget=TaskBudget(max_tokens=-1)),
            "max_tokens must be an int of at least 0, got -1",
        ),
        (
            Task("t", "o", budget=TaskBudget(max_runtime_seconds=True)),
            "max_runtime_seconds must be a number of at least 0, got True",
        ),
    ],
)
def test_a_task_that_cannot_be_worked_on_says_why(task, message):
    with pytest.raises(ValueError) as caught:
        task.validate()
    assert str(caught.value) == message


def test_a_budget_is_checked_with_its_task():
    Task("i", "o", budget=TaskBudget(0, 0, 0)).validate()
    with pytest.raises(ValueError):
        Task("i", "o", budget=TaskBudget(max_steps=1.5)).validate()


def test_a_history_keeps_messages_in_order():
    history = History()
    first, second = HistoryMessage("user", "a", 0), HistoryMessage("assistant", "b", 1, {"k": 1})
    history.append(first)
    history.append(second)
    kept = history.retrieve()
    assert kept == [first, second]
    kept.clear()
    assert len(history.retrieve()) == 2
    history.reset()
    assert history.retrieve() == []
    assert second.to_dict() == {
        "role": "assistant",
        "content": "b",
        "step_id": 1,
        "metadata": {"k": 1},
    }


def test_an_adapter_passes_the_state_on_by_default():
    state = object()
    assert StateAdapter().adapt(state) is state


@pytest.mark.parametrize("word, member", [("full", "FULL"), ("Summary", "SUMMARY")])
def test_a_strategy_is_found_in_any_case(word, member):
    assert ContextStrategy(word).name == member
    with pytest.raises(ValueError):
        ContextStrategy(None)


def test_a_failure_as_plain_values():
    info = RuntimeErrorInfo(ErrorCategory.ENV, "gone", "ACT", 2, type="OSError")
    assert info.to_dict() == {
        "category": "env_error",
        "phase": "ACT",
        "step_id": 2,
        "type": "OSError",
        "message": "gone",
        "traceback": "",
    }
    error = QitosRuntimeError("no")
    assert (str(error), error.message, error.category) == ("no", "no", ErrorCategory.SYSTEM)
