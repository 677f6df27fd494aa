"""The contract of ToolResult: its fields, every check, and their order."""

from __future__ import annotations

import pickle
import timeit
from dataclasses import MISSING, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any

import pytest

from qitos_min.core.tool_result import ToolResult, ToolResultContractError
from tool_results import (
    CLOSURE,
    DEFAULTS,
    SECRET,
    VIEWS,
    endless,
    failed,
    nested,
    ref,
)


def test_fields_order_and_defaults_are_those_of_the_guide() -> None:
    found = {
        item.name: item.default
        if item.default_factory is MISSING
        else item.default_factory()
        for item in fields(ToolResult)
    }
    assert list(found.items()) == list(DEFAULTS.items())


def test_dict_has_the_35_fields_and_success() -> None:
    expected = {**DEFAULTS, "artifact_refs": [], "success": True}
    assert list(ToolResult().to_dict().items()) == list(expected.items())


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("invalid_terminal_status", {"status": ""}),
        ("invalid_canonical_field", {"metadata": dict}),
        ("invalid_canonical_field", {"declared_effects": list}),
        ("invalid_canonical_field", {"declared_effects": ()}),
        ("invalid_canonical_field", {"metadata": []}),
        ("invalid_canonical_field", {"latency_ms": False}),
        ("invalid_canonical_field", {"attempts": True}),
        ("invalid_canonical_field", {"attempts": 1.0}),
        ("invalid_canonical_field", {"complete": 1}),
        ("invalid_artifact_ref", {"artifact_refs": ""}),
        ("invalid_batch_closure", {"batch_closure": []}),
    ],
)
def test_what_only_resembles_a_default_is_checked(
    code: str, values: dict[str, Any]
) -> None:
    assert code_of(**values) == code


def test_an_empty_container_of_the_caller_is_not_kept() -> None:
    mine: dict[str, Any] = {}
    result = ToolResult(metadata=mine)
    mine["late"] = 1
    assert result.metadata == {}


def test_a_plain_result_is_cheap() -> None:
    once = min(timeit.repeat(lambda: ToolResult(output=1), number=200, repeat=5)) / 200
    assert once < 100e-6  # a tenth of that where nothing else runs


def test_results_do_not_share_their_defaults() -> None:
    one, other = ToolResult(), ToolResult()
    one.metadata["note"] = 1
    assert other.metadata == {}


# Code and fields, in the order in which the checks are made.
FIELD_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("unknown_schema_version", {"schema_version": "qitos.tool_result/v1"}),
    ("invalid_terminal_status", {"status": SECRET}),
    ("invalid_error_kind", {"error_kind": SECRET}),
    ("invalid_effect_state", {"effect_state": SECRET}),
    ("invalid_retry_disposition", {"retry_disposition": SECRET}),
    ("invalid_canonical_field", {"tool_name": 5}),
    ("invalid_canonical_field", {"action_id": [SECRET]}),
    ("invalid_canonical_field", {"error": {"text": SECRET}}),
    ("invalid_canonical_field", {"error_code": b"x"}),
    ("invalid_canonical_field", {"recovery_hint": 1.5}),
    ("invalid_canonical_field", {"effect_ref": True}),
    ("invalid_canonical_field", {"idempotency_ref": ()}),
    ("invalid_attempt_identity", {"attempt_id": "attempt_0123456789abcdef"}),
    ("invalid_canonical_field", {"recoverable": 1}),
    ("invalid_canonical_field", {"complete": None}),
    ("invalid_canonical_field", {"truncated": "yes"}),
    ("invalid_canonical_field", {"worker_still_running": 0}),
    ("invalid_canonical_field", {"reconciliation_required": 1.0}),
    ("invalid_canonical_field", {"outcome_unknown": []}),
    ("invalid_canonical_field", {"late_result": "false"}),
    ("invalid_canonical_field", {"stale_owner": 2}),
    ("invalid_canonical_field", {"attempts": -1}),
    ("invalid_canonical_field", {"latency_ms": float("nan")}),
    ("invalid_canonical_field", {"owner_generation": True}),
    ("invalid_canonical_field", {"omitted": {"lines": -1}}),
    ("invalid_canonical_field", {"next_action": {"name": "x", SECRET: 1}}),
    ("invalid_canonical_field", {"metadata": [SECRET]}),
    ("invalid_canonical_field", {"normalized_request": None}),
    ("invalid_canonical_field", {"provenance": "text"}),
    ("invalid_canonical_field", {"declared_effects": {"kind": "write"}}),
    ("invalid_canonical_field", {"filesystem_changes": [SECRET]}),
    ("invalid_artifact_ref", {"artifact_refs": (ref(), ref())}),
    ("invalid_batch_closure", {"batch_closure": {"batch_id": SECRET}}),
    ("non_serializable_value", {"output": object()}),
]

MORE_FIELD_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("unknown_schema_version", {"schema_version": None}),
    ("unknown_schema_version", {"schema_version": []}),
    ("invalid_terminal_status", {"status": None}),
    ("invalid_terminal_status", {"status": ["success"]}),
    ("invalid_terminal_status", {"status": "SUCCESS"}),
    ("invalid_error_kind", {"error_kind": {}}),
    ("invalid_attempt_identity", {"attempt_id": {"kind": "attempt", "value": "x"}}),
    ("invalid_canonical_field", {"attempts": True}),
    ("invalid_canonical_field", {"attempts": 1.0}),
    ("invalid_canonical_field", {"attempts": 10**5000}),
    ("invalid_canonical_field", {"latency_ms": float("inf")}),
    ("invalid_canonical_field", {"latency_ms": 10**400}),
    ("invalid_canonical_field", {"latency_ms": -0.5}),
    ("invalid_canonical_field", {"latency_ms": True}),
    ("invalid_canonical_field", {"latency_ms": "1"}),
    ("invalid_canonical_field", {"owner_generation": -1}),
    ("invalid_canonical_field", {"omitted": {1: 1}}),
    ("invalid_canonical_field", {"omitted": {"lines": True}}),
    ("invalid_canonical_field", {"omitted": []}),
    ("invalid_canonical_field", {"next_action": {}}),
    ("invalid_canonical_field", {"next_action": {"name": 1}}),
    ("invalid_canonical_field", {"next_action": {"name": "x", "args": []}}),
    ("invalid_canonical_field", {"next_action": {"name": "x", "action_id": 1}}),
    ("invalid_canonical_field", {"next_action": "read"}),
    ("invalid_canonical_field", {"declared_effects": ({"kind": "write"},)}),
    ("invalid_artifact_ref", {"artifact_refs": [ref().to_dict()]}),
    ("invalid_artifact_ref", {"artifact_refs": None}),
    ("invalid_artifact_ref", {"artifact_refs": ref()}),
    ("invalid_batch_closure", {"batch_closure": []}),
    ("invalid_batch_closure", {"batch_closure": None}),
    *(
        ("invalid_batch_closure", {"batch_closure": closure})
        for closure in (
            {"schema_version": "v0", "batch_id": "b", "slots": []},
            {"schema_version": CLOSURE, "batch_id": 1, "slots": []},
            {"schema_version": CLOSURE, "batch_id": "b", "slots": {}},
            {"schema_version": CLOSURE, "batch_id": "b", "slots": [], "more": 1},
            *(
                {"schema_version": CLOSURE, "batch_id": "b", "slots": slots}
                for slots in (
                    ["text"],
                    [{"action_id": "a"}],
                    [{"action_id": [], "state": "done"}],
                    [{"action_id": "a", "state": "done", "more": 1}],
                    [{"action_id": "a", "state": "done", "attempt_id": 1}],
                    [{"action_id": "a", "state": "done"}] * 2,
                )
            ),
        )
    ),
    *(
        ("non_serializable_value", {"output": value})
        for value in (
            float("inf"),
            [1, {"deep": float("nan")}],
            {1: "a"},
            {None: "a"},
            (1, 2),
            {1, 2},
            [b"bytes"],
            datetime(2026, 1, 1),
            MappingProxyType({}),
            10**5000,
            endless(),
            nested(300),
        )
    ),
    *(
        ("non_serializable_value", {name: value})
        for name, value in (
            ("model_output", (1,)),
            ("metadata", {"when": datetime(2026, 1, 1)}),
            ("next_action", {"name": "x", "args": {"y": {1}}}),
            ("declared_effects", [{"x": float("nan")}]),
            ("filesystem_changes", [{1: 2}]),
            ("normalized_request", {"x": object()}),
            ("provenance", {"x": b""}),
        )
    ),
]

STATE_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("contradictory_outcome", {"error": SECRET}),
    ("contradictory_outcome", {"error": ""}),
    ("contradictory_outcome", {"error_kind": "policy"}),
    ("contradictory_outcome", {"error_code": SECRET}),
    ("contradictory_outcome", {"worker_still_running": True}),
    ("contradictory_outcome", {"status": "error"}),
    ("contradictory_outcome", failed(error_kind=None)),
    ("contradictory_outcome", failed(error_code=None)),
    ("contradictory_outcome", failed(error_code="")),
    ("contradictory_outcome", failed(status="skipped")),
    ("contradictory_outcome", failed(status="timed_out", error_kind="policy")),
    ("contradictory_outcome", failed(status="cancelled", error_kind="semantic")),
    ("contradictory_outcome", failed(worker_still_running=True)),
    (
        "contradictory_outcome",
        failed(status="skipped", error_kind="policy", worker_still_running=True),
    ),
    ("contradictory_effect", {"effect_ref": SECRET}),
    ("contradictory_effect", {"effect_state": "committed"}),
    ("contradictory_effect", {"effect_state": "unknown", "effect_ref": "e"}),
    (
        "contradictory_effect",
        {
            "effect_state": "reconciliation_required",
            "effect_ref": "e",
            "outcome_unknown": True,
        },
    ),
    (
        "contradictory_effect",
        {
            "effect_state": "reconciliation_required",
            "effect_ref": "e",
            "reconciliation_required": True,
        },
    ),
    ("contradictory_effect", {"outcome_unknown": True}),
    (
        "contradictory_effect",
        {"outcome_unknown": True, "effect_state": "committed", "effect_ref": "e"},
    ),
    ("unsafe_retry_disposition", failed(retry_disposition="retryable")),
    (
        "unsafe_retry_disposition",
        failed(
            retry_disposition="retryable",
            recoverable=True,
            status="timed_out",
            worker_still_running=True,
        ),
    ),
    *(
        (
            "unsafe_retry_disposition",
            failed(
                retry_disposition="retryable",
                recoverable=True,
                effect_ref="e",
                **effect,
            ),
        )
        for effect in (
            {"effect_state": "committed"},
            {"effect_state": "started"},
            {"effect_state": "unknown", "outcome_unknown": True},
            {"effect_state": "not_started", "reconciliation_required": True},
        )
    ),
    ("unsafe_retry_disposition", failed(retry_disposition="blocked_worker_running")),
    ("unsafe_retry_disposition", failed(retry_disposition="requires_reconciliation")),
]


@pytest.mark.parametrize(
    ("code", "values"), FIELD_FAULTS + MORE_FIELD_FAULTS + STATE_FAULTS
)
def test_each_fault_has_its_code_and_is_not_echoed(
    code: str, values: dict[str, Any]
) -> None:
    with pytest.raises(ToolResultContractError) as caught:
        ToolResult(**values)
    assert caught.value.code == code
    assert str(caught.value).startswith(f"{code}: ")
    assert SECRET not in str(caught.value)
    assert " at 0x" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"status": SECRET},
            "invalid_terminal_status: status must be success or error or skipped or "
            "timed_out or cancelled, got a value of type str",
        ),
        (
            {"attempts": -1},
            "invalid_canonical_field: attempts must be an int >= 0, "
            "got a value of type int",
        ),
        (
            {"metadata": {"key": object()}},
            "non_serializable_value: metadata holds a value of type object",
        ),
        (
            {"output": endless()},
            "non_serializable_value: output holds itself or more than 200 levels",
        ),
        (
            {"error": SECRET},
            "contradictory_outcome: a success has no error, error_kind or error_code",
        ),
    ],
)
def test_the_whole_text_of_an_error(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ToolResultContractError) as caught:
        ToolResult(**values)
    assert str(caught.value) == text


def code_of(**values: Any) -> str:
    with pytest.raises(ToolResultContractError) as caught:
        ToolResult(**values)
    return caught.value.code


def test_of_two_faults_the_one_checked_first_is_told() -> None:
    faults = [*FIELD_FAULTS, *STATE_FAULTS]
    for index, (code, values) in enumerate(FIELD_FAULTS):
        for _, later in faults[index + 1 :]:
            if values.keys().isdisjoint(later):
                assert code_of(**values, **later) == code, (values, later)


@pytest.mark.parametrize(
    ("code", "values"),
    [
        (
            "contradictory_outcome",
            {"error": "x", "effect_ref": "e", "retry_disposition": "retryable"},
        ),
        (
            "contradictory_effect",
            failed(effect_ref="e", retry_disposition="retryable"),
        ),
    ],
)
def test_outcome_then_effect_then_retry(code: str, values: dict[str, Any]) -> None:
    assert code_of(**values) == code


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("code", "values"), [*FIELD_FAULTS, STATE_FAULTS[0], STATE_FAULTS[-1]]
)
def test_views_check_what_was_changed_since(
    code: str, values: dict[str, Any], view: str
) -> None:
    result = ToolResult()
    for name, value in values.items():
        setattr(result, name, value)
    with pytest.raises(ToolResultContractError) as caught:
        getattr(result, view)()
    assert caught.value.code == code


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(ToolResultContractError("a_code", "a text")))
    assert (error.code, str(error)) == ("a_code", "a_code: a text")
