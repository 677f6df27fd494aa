"""Actions, their results, and the policies of batches and retries."""

from __future__ import annotations

import dataclasses
import json

import pytest

from qitos_min.core.action import (
    Action,
    ActionExecutionPolicy,
    ActionKind,
    ActionResult,
    ActionStatus,
)
from qitos_min.core.tool import RetryPolicy


def test_an_action_has_the_documented_defaults():
    assert Action("t") == Action(
        "t", {}, ActionKind.TOOL, None, None, 0, True, "default", {}
    )
    assert ActionKind.TOOL == "tool"


def test_an_action_survives_a_round_trip():
    action = Action("t", {"a": [1]}, "tool", "c1", 2.5, 3, False, "slow", {"k": 1})
    assert Action.from_dict(json.loads(json.dumps(action.to_dict()))) == action


def test_the_record_of_an_action_is_detached_and_strict():
    action = Action("t", {"a": [1], "n": float("nan"), "o": object()})
    record = action.to_dict()
    action.args["a"].append(2)
    assert record["args"]["a"] == [1]
    json.dumps(record, allow_nan=False)


def test_a_call_from_a_model_keeps_wrong_arguments_for_the_checks():
    assert Action.from_dict({"name": "t", "args": "oops", "thought": 1}).args == "oops"
    assert Action.from_dict({"name": "t", "args": None, "metadata": None}).args == {}


BAD_ACTIONS = [
    ([], TypeError, "an action must be a mapping, got list"),
    ({}, ValueError, "an action needs a non-empty text 'name', got None"),
    ({"name": ""}, ValueError, "an action needs a non-empty text 'name', got ''"),
    ({"name": "t", "kind": "odd"}, ValueError, "'odd' is not a valid ActionKind"),
    (
        {"name": "t", "timeout_s": 0},
        ValueError,
        "timeout_s must be a number of seconds above 0, got 0",
    ),
    (
        {"name": "t", "timeout_s": True},
        ValueError,
        "timeout_s must be a number of seconds above 0, got True",
    ),
    (
        {"name": "t", "max_retries": -1},
        ValueError,
        "max_retries must be an int of at least 0, got -1",
    ),
]


@pytest.mark.parametrize("payload, kind, message", BAD_ACTIONS)
def test_a_bad_action_is_refused_with_its_reason(payload, kind, message):
    with pytest.raises(kind) as caught:
        Action.from_dict(payload)
    assert str(caught.value) == message


def test_an_action_result_is_written_as_json():
    result = ActionResult("t", ActionStatus.SUCCESS, {"a": {1}}, metadata={"n": None})
    record = result.to_dict()
    assert list(record) == [item.name for item in dataclasses.fields(ActionResult)]
    assert record["status"] == "success"
    json.dumps(record, allow_nan=False)


BAD_POLICIES = [
    # Fault 21: any mode but "serial" ran in parallel.
    (
        {"mode": "Parallel"},
        ValueError,
        "unknown mode 'Parallel', expected one of serial, sequential, parallel",
    ),
    (
        {"max_concurrency": 0},
        ValueError,
        "max_concurrency must be an int of at least 1, got 0",
    ),
    (
        {"parallel_tool_names": "search"},
        TypeError,
        "parallel_tool_names must be a collection of names, got 'search'",
    ),
]


@pytest.mark.parametrize("values, kind, message", BAD_POLICIES)
def test_fault_21_an_unknown_mode_or_bad_number_is_refused(values, kind, message):
    with pytest.raises(kind) as caught:
        ActionExecutionPolicy(**values)
    assert str(caught.value) == message


def test_a_policy_keeps_a_frozen_copy_of_the_names():
    names = ["a", "b"]
    policy = ActionExecutionPolicy("parallel", True, 2, names)
    names.append("c")
    assert policy.parallel_tool_names == frozenset({"a", "b"})


def test_a_retry_policy_doubles_its_waits_up_to_a_limit():
    policy = RetryPolicy(max_attempts=9, backoff_factor=1, max_backoff=5, jitter=False)
    assert [policy.delay(n) for n in (1, 2, 3, 4, 2000)] == [1, 2, 4, 5, 5]
    jittered = RetryPolicy(backoff_factor=1)
    assert all(0.5 <= jittered.delay(1) <= 1 for _ in range(50))


BAD_RETRIES = [
    ({"retryable_exceptions": ("x",)}, TypeError, "must contain exception types"),
    ({"retryable_exceptions": (int,)}, TypeError, "must contain exception types"),
    ({"retryable_exceptions": 5}, TypeError, "must contain exception types"),
    ({"max_attempts": 0}, ValueError, "max_attempts must be an int of at least 1"),
    ({"max_attempts": True}, ValueError, "max_attempts must be an int of at least 1"),
    ({"backoff_factor": -1}, ValueError, "backoff_factor must be a number of at least 0"),
    ({"max_backoff": "1"}, ValueError, "max_backoff must be a number of at least 0"),
    ({"backoff_factor": float("inf")}, ValueError, "backoff_factor must be a number of at least 0"),
    ({"max_backoff": float("inf")}, ValueError, "max_backoff must be a number of at least 0"),
]


@pytest.mark.parametrize("values, kind, message", BAD_RETRIES)
def test_a_bad_retry_policy_is_refused(values, kind, message):
    with pytest.raises(kind, match=message):
        RetryPolicy(**values)


def test_one_exception_type_may_stand_alone():
    kinds = RetryPolicy(retryable_exceptions=OSError).retryable_exceptions
    assert kinds == (OSError,)
