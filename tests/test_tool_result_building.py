"""How results come about: constructors, records, values of tools."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import replace
from datetime import datetime, timezone
from enum import Enum
from types import MappingProxyType
from typing import Any, get_args

import pytest

from qitos_min.core._json import to_json_value
from qitos_min.core.session import AttemptIdentity
from qitos_min.core.tool_result import (
    ToolErrorKind,
    ToolResult,
    ToolResultContractError,
)
from tool_results import SECRET, endless, nested, strict


@pytest.mark.parametrize("kind", get_args(ToolErrorKind))
def test_constructors_of_errors(kind: str) -> None:
    build = getattr(ToolResult, f"{kind}_error")
    result = build(code="c", error="it broke", recoverable=True, tool_name="t")
    assert result == ToolResult(
        status="error",
        error_kind=kind,  # type: ignore[arg-type]
        error_code="c",
        error="it broke",
        recoverable=True,
        tool_name="t",
    )


@pytest.mark.parametrize(
    ("build", "status"),
    [
        (ToolResult.execution_error, "timed_out"),
        (ToolResult.execution_error, "cancelled"),
        (ToolResult.policy_error, "skipped"),
    ],
)
def test_constructors_of_errors_take_another_status(build: Any, status: str) -> None:
    assert build(code="c", error="e", status=status).status == status


def test_positional_use() -> None:
    result = ToolResult("success", {"title": "Session"})
    assert (result.status, result.output) == ("success", {"title": "Session"})
    assert result.outcome_unknown is False


class Word(str, Enum):
    """What agents often have where a text is expected."""

    SUCCESS = "success"
    RETRY = "retry"


def test_subclasses_of_plain_types_become_plain() -> None:
    class Count(int):
        pass

    class Ratio(float):
        pass

    result = ToolResult(
        status=Word.SUCCESS,  # type: ignore[arg-type]
        output={Word.RETRY: [Word.RETRY, Count(3), Ratio(0.5)]},
        metadata=OrderedDict(defaultdict(int, {"a": 1})),
        attempts=Count(2),
    )
    assert repr(result) == repr(
        ToolResult(output={"retry": ["retry", 3, 0.5]}, metadata={"a": 1}, attempts=2)
    )


# U1 (UKGovernmentBEIS/inspect_ai #3802 and others): file names and broken pipes give
# lone surrogates, which no UTF-8 file can hold.
def test_lone_surrogates_are_replaced_and_the_rest_of_the_text_stays() -> None:
    result = ToolResult.execution_error(
        code="missing",
        error="no file bad\udcff.txt",
        output={"k\ud835": "bad \ud835 \u5bd2\U0001f98a"},
    )
    record = strict(result.to_dict())
    assert record["error"] == "no file bad\ufffd.txt"
    assert record["output"] == {"k\ufffd": "bad \ufffd \u5bd2\U0001f98a"}


@pytest.mark.parametrize(
    ("output", "model_output", "expected"),
    [
        ({"model_summary": "short", "rows": [1]}, None, "short"),
        ({"model_summary": "short"}, "given", "given"),
        ({"model_summary": {"not": "text"}}, None, None),
        ({"rows": [1]}, None, None),
        ("text", None, None),
    ],
)
def test_model_output_defaults_to_the_summary(
    output: Any, model_output: Any, expected: Any
) -> None:
    result = ToolResult(output=output, model_output=model_output)
    assert result.model_output == expected


def test_args_of_the_next_action_default_to_none_at_all() -> None:
    result = ToolResult(next_action={"name": "read"})
    assert result.next_action == {"name": "read", "args": {}}


def test_replace_checks_again() -> None:
    result = replace(ToolResult(output=1), tool_name="t", latency_ms=2.5)
    assert (result.output, result.tool_name, result.latency_ms) == (1, "t", 2.5)
    with pytest.raises(ToolResultContractError):
        replace(result, status="error")


def changed(**values: Any) -> dict[str, Any]:
    return {**ToolResult(output=1).to_dict(), **values}


def without(name: str) -> dict[str, Any]:
    record = changed()
    del record[name]
    return record


@pytest.mark.parametrize("read", [ToolResult.from_dict, ToolResult.from_value])
@pytest.mark.parametrize(
    ("code", "record"),
    [
        ("unknown_schema_version", changed(schema_version="qitos.tool_result/v3")),
        ("invalid_canonical_field", without("status")),
        ("invalid_canonical_field", without("output")),
        ("invalid_canonical_field", changed(**{SECRET: 1})),
        ("invalid_terminal_status", changed(status=SECRET, artifact_refs=[{}])),
        ("invalid_attempt_identity", changed(attempt_id={"value": SECRET})),
        ("invalid_attempt_identity", changed(attempt_id=SECRET, artifact_refs=[{}])),
        ("invalid_artifact_ref", changed(artifact_refs=[{"artifact_id": SECRET}])),
        ("invalid_artifact_ref", changed(artifact_refs=5)),
        ("non_serializable_value", changed(output=float("nan"))),
        ("non_serializable_value", changed(output=object())),
        ("contradictory_outcome", changed(success=False)),
        ("contradictory_outcome", changed(success=1)),
        ("contradictory_outcome", changed(success=None)),
    ],
)
def test_a_record_is_read_strictly(
    code: str, record: dict[str, Any], read: Any
) -> None:
    with pytest.raises(ToolResultContractError) as caught:
        read(record)
    assert caught.value.code == code
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "text", 5])
def test_what_is_no_mapping_is_no_record(value: Any) -> None:
    with pytest.raises(ToolResultContractError) as caught:
        ToolResult.from_dict(value)
    kind = type(value).__qualname__
    assert str(caught.value) == (
        f"invalid_canonical_field: a result must be a mapping, got {kind}"
    )


def test_a_record_without_a_version_has_an_unknown_one() -> None:
    with pytest.raises(ToolResultContractError) as caught:
        ToolResult.from_dict({"status": "success"})
    assert caught.value.code == "unknown_schema_version"


def test_success_may_be_absent_and_reading_leaves_the_record_alone() -> None:
    record = MappingProxyType(without("success"))
    assert ToolResult.from_dict(record) == ToolResult(output=1)
    assert "success" not in record


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        0,
        [1, {"a": None}],
        {},
        {"status": "idle"},
        {"output": 1},
        # P12 (reproduced in QitOS): the keys of a tool's own dict are not the result's.
        {"status": "error", "value": 1},
        {"status": "error", "output": 1, "exit_code": 2},
        {"schema_version": "my.tool/v1", "status": "error"},
    ],
)
def test_a_plain_value_is_the_output_of_a_success(value: Any) -> None:
    result = ToolResult.from_value(value)
    assert result == ToolResult(output=value)
    assert list(vars(result)) == list(vars(ToolResult()))
    others = (ToolResult.from_value(value), value, ToolResult())
    held = {id(made) for made in vars(result).values() if isinstance(made, (dict, list))}
    for other in others:
        parts = vars(other).values() if isinstance(other, ToolResult) else [other]
        assert held.isdisjoint(id(part) for part in parts)


class Unreadable(dict[str, int]):
    """A mapping that cannot be read, as one whose connection is lost."""

    def items(self) -> Any:
        raise OSError("connection lost")

    keys = values = __iter__ = items


@pytest.mark.parametrize(
    "build",
    [
        object,
        lambda: Unreadable(a=1),
        lambda: {"when": datetime(2026, 1, 1, tzinfo=timezone.utc)},
        lambda: (1, 2),
        lambda: {3: "three"},
        lambda: float("nan"),
        lambda: b"\x89PNG",
        lambda: ValueError("bad arg"),
        lambda: {"self": endless()},
        lambda: {"foreign": object(), "fine": 1},
        lambda: nested(300),
    ],
)
def test_a_foreign_value_is_converted_and_metadata_says_so(build: Any) -> None:
    value = build()
    result = ToolResult.from_value(value)
    kind = type(value)
    assert result.is_success
    assert result.output == to_json_value(value)
    assert result.metadata == {
        "output_converted": True,
        "output_type": f"{kind.__module__}.{kind.__qualname__}",
    }
    strict(result.to_dict())


def test_a_result_is_copied() -> None:
    given = ToolResult(output={"rows": [1]}, metadata={"a": 1})
    read = ToolResult.from_value(given)
    given.output["rows"].append(2)
    given.metadata.clear()
    assert read == ToolResult(output={"rows": [1]}, metadata={"a": 1})


def test_a_result_that_was_spoiled_is_refused() -> None:
    given = ToolResult()
    given.status = "error"
    with pytest.raises(ToolResultContractError):
        ToolResult.from_value(given)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {"status": "success", "output": 5, "error": None, "metadata": {"a": 1}},
            ToolResult(output=5, metadata={"a": 1}),
        ),
        (
            {"status": "error", "error": "boom", "output": "half"},
            ToolResult.execution_error(
                code="legacy_error", error="boom", output="half"
            ),
        ),
        (
            {"status": "skipped", "error": {"why": "denied"}, "metadata": None},
            ToolResult.policy_error(
                code="legacy_skipped", error='{"why": "denied"}', status="skipped"
            ),
        ),
        (
            {"status": "timed_out", "output": None},
            ToolResult.execution_error(
                code="legacy_timed_out",
                error="the tool did not say what went wrong",
                status="timed_out",
            ),
        ),
        (
            {"status": "success", "output": 1, "error": "boom"},
            ToolResult.execution_error(code="legacy_error", error="boom", output=1),
        ),
    ],
)
def test_the_older_mapping_of_four_fields(value: Any, expected: ToolResult) -> None:
    assert ToolResult.from_value(value) == expected


@pytest.mark.parametrize("status", ["ok", "SUCCESS", "", None, True, 1, ["success"]])
def test_an_older_mapping_with_an_unknown_status_is_no_success(status: Any) -> None:
    result = ToolResult.from_value({"status": status, "output": 1})
    assert (result.status, result.error_code) == ("error", "legacy_status_unknown")
    assert result.output == 1


@pytest.mark.parametrize("digits", ["0" * 16, "0123456789abcdef" * 4])
def test_an_attempt_round_trips(digits: str) -> None:
    attempt = AttemptIdentity(f"attempt_{digits}")
    record = {"kind": "attempt", "value": f"attempt_{digits}"}
    assert attempt.to_dict() == record
    assert AttemptIdentity.from_dict(record) == attempt


@pytest.mark.parametrize(
    "value",
    [
        "attempt_" + "0" * 15,
        "attempt_" + "0" * 65,
        "attempt_" + "A" * 16,
        "0" * 16,
        "attempt_" + "0" * 16 + "\n",
        None,
        b"attempt_0000000000000000",
    ],
)
def test_an_attempt_of_another_form_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="an attempt identity must be"):
        AttemptIdentity(value)


@pytest.mark.parametrize(
    "record",
    [
        None,
        "attempt_" + "0" * 16,
        {"value": "attempt_" + "0" * 16},
        {"kind": "run", "value": "attempt_" + "0" * 16},
        {"kind": "attempt", "value": "attempt_" + "0" * 16, "more": 1},
        {"kind": "attempt", "value": 5},
    ],
)
def test_a_record_of_an_attempt_is_read_strictly(record: Any) -> None:
    with pytest.raises(ValueError, match="an attempt identity"):
        AttemptIdentity.from_dict(record)
