"""What results show: exact records, detached, and what a model sees."""

from __future__ import annotations

import json
import random
import re
from typing import Any, get_args

import pytest

from qitos_min.core.session import AttemptIdentity
from qitos_min.core.tool_result import (
    TOOL_RESULT_SCHEMA_VERSION,
    EffectState,
    RetryDisposition,
    ToolErrorKind,
    ToolResult,
    ToolResultStatus,
)
from tool_results import (
    CLOSURE,
    DEFAULTS,
    MARK,
    VIEWS,
    failed,
    nested,
    ref,
    strict,
)


@pytest.mark.parametrize(
    "values",
    [
        failed(error="boom", effect_ref="e", effect_state="started"),
        failed(
            status="timed_out",
            worker_still_running=True,
            outcome_unknown=True,
            effect_ref="e",
            effect_state="unknown",
            retry_disposition="blocked_worker_running",
        ),
        failed(
            reconciliation_required=True,
            outcome_unknown=True,
            effect_ref="e",
            effect_state="reconciliation_required",
            retry_disposition="requires_reconciliation",
        ),
        failed(recoverable=True, retry_disposition="retryable"),
        failed(
            recoverable=True,
            retry_disposition="retryable",
            effect_ref="e",
            effect_state="rejected",
        ),
        failed(status="skipped", error_kind="policy"),
        {"effect_ref": "e", "effect_state": "committed"},
        {"artifact_refs": [ref("a"), ref("b")], "attempts": 0, "latency_ms": 7},
        {"attempt_id": AttemptIdentity(f"attempt_{7:032x}"), "owner_generation": 0},
        {"next_action": {"name": "x", "args": {}, "action_id": None}},
        {
            "batch_closure": {
                "schema_version": CLOSURE,
                "batch_id": "b",
                "slots": [
                    {"action_id": "a", "state": "done", "result_ref": "r"},
                    {"action_id": "b", "state": "done", "attempt_id": "attempt_1"},
                ],
            }
        },
        {"output": {"nested": [1, 2.5, None, True, "\u5bd2 \U0001f98a \u2028 \x00"]}},
        {"output": nested(150)},
        {"output": 2**63 - 1},
    ],
)
def test_a_valid_result_round_trips_exactly(values: dict[str, Any]) -> None:
    result = ToolResult(**values)
    again = ToolResult.from_dict(strict(result.to_dict()))
    assert again == result
    assert repr(again) == repr(result)
    assert again.to_dict() == result.to_dict()


def random_tree(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 3 else 7)
    if kind == 7:
        return [random_tree(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 8:
        return random_object(rng, depth + 1)
    return (
        None,
        rng.random() < 0.5,
        rng.randint(-(2**70), 2**70),
        rng.uniform(-1e9, 1e9),
        float(rng.randint(-5, 5)),
        "".join(rng.choices("ab /\\\"'\n\x00\u5bd2\U0001f98a\u2028=:-", k=9)),
        "",
    )[kind]


def random_object(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    return {
        "".join(rng.choices("abk_- \u5bd2", k=3)): random_tree(rng, depth + 1)
        for _ in range(rng.randrange(4))
    }


def random_outcome(rng: random.Random) -> dict[str, Any]:
    status = rng.choice(get_args(ToolResultStatus))
    if status == "success":
        return {"status": status}
    kinds = {"error": get_args(ToolErrorKind), "skipped": ("policy",)}
    return {
        "status": status,
        "error": rng.choice([None, "", "it broke"]),
        "error_kind": rng.choice(kinds.get(status, ("execution",))),
        "error_code": "code",
        "worker_still_running": status in ("timed_out", "cancelled")
        and rng.random() < 0.5,
    }


def random_effect(rng: random.Random) -> dict[str, Any]:
    state = rng.choice(get_args(EffectState))
    surely = state in ("unknown", "reconciliation_required")
    return {
        "effect_state": state,
        "effect_ref": None if state == "no_effect_declared" else "effect",
        "outcome_unknown": surely or (state == "started" and rng.random() < 0.5),
        "reconciliation_required": state == "reconciliation_required"
        or rng.random() < 0.2,
    }


def random_result(rng: random.Random) -> ToolResult:
    values = {**random_outcome(rng), **random_effect(rng)}
    dispositions = ["not_evaluated", "non_retryable"]
    if values.get("worker_still_running"):
        dispositions.append("blocked_worker_running")
    if values["outcome_unknown"] or values["reconciliation_required"]:
        dispositions.append("requires_reconciliation")
    elif not values.get("worker_still_running") and values["effect_state"] in (
        "no_effect_declared",
        "not_started",
        "rejected",
    ):
        dispositions.append("retryable")
    disposition = rng.choice(dispositions)
    return ToolResult(
        **values,
        retry_disposition=disposition,
        recoverable=disposition == "retryable" or rng.random() < 0.5,
        output=random_tree(rng),
        model_output=random_tree(rng),
        metadata=random_object(rng),
        tool_name=rng.choice([None, "read"]),
        action_id=rng.choice([None, "a1"]),
        recovery_hint=rng.choice([None, "try again"]),
        next_action=rng.choice([None, {"name": "x", "args": random_object(rng)}]),
        complete=rng.random() < 0.5,
        truncated=rng.random() < 0.5,
        omitted=rng.choice([{}, {"lines": rng.randrange(9)}]),
        attempts=rng.randrange(4),
        latency_ms=rng.choice([0, 0.0, rng.uniform(0, 1e6)]),
        declared_effects=[random_object(rng) for _ in range(rng.randrange(3))],
        filesystem_changes=[random_object(rng) for _ in range(rng.randrange(3))],
        artifact_refs=tuple(ref(f"a{n}") for n in range(rng.randrange(3))),
        normalized_request=random_object(rng),
        provenance=random_object(rng),
        attempt_id=rng.choice([None, AttemptIdentity(f"attempt_{'0f' * 8}")]),
        idempotency_ref=rng.choice([None, "i1"]),
        late_result=rng.random() < 0.5,
        owner_generation=rng.choice([None, 0, 7]),
        stale_owner=rng.random() < 0.5,
    )


@pytest.mark.parametrize("seed", range(4))
def test_random_results_round_trip_and_show_strict_json(seed: int) -> None:
    rng = random.Random(seed)
    dispositions = set()
    for _ in range(200):
        result = random_result(rng)
        record = result.to_dict()
        again = ToolResult.from_dict(strict(record))
        assert again == result and repr(again) == repr(result)
        assert repr(again.to_dict()) == repr(record)
        assert ToolResult.from_value(record) == result
        assert list(record)[:-1] == list(DEFAULTS)
        assert record["success"] is result.is_success is (result.status == "success")
        for view in VIEWS:
            shown = getattr(result, view)()
            assert repr(strict(shown)) == repr(shown)
        max_chars = rng.randrange(500)
        assert model_chars(result.to_model_dict(max_chars)) <= max_chars
        dispositions.add(result.retry_disposition)
    assert dispositions == set(get_args(RetryDisposition))


def test_later_changes_of_the_caller_do_not_reach_the_result() -> None:
    given: dict[str, Any] = {
        "output": {"rows": [1]},
        "metadata": {"deep": {"x": 1}},
        "next_action": {"name": "x", "args": {"y": [1]}},
        "omitted": {"lines": 1},
        "filesystem_changes": [{"path": "a"}],
        "artifact_refs": [ref()],
    }
    result = ToolResult(**given)
    before = result.to_dict()
    given["output"]["rows"].append(2)
    given["metadata"]["deep"]["x"] = 2
    given["next_action"]["args"]["y"].clear()
    given["omitted"]["lines"] = 9
    given["filesystem_changes"][0]["path"] = "b"
    given["artifact_refs"].clear()
    assert result.to_dict() == before


@pytest.mark.parametrize("view", VIEWS)
def test_changing_a_view_does_not_reach_the_result(view: str) -> None:
    result = ToolResult(
        output={"rows": [1]},
        model_output={"rows": [1]},
        metadata={"deep": {"x": 1}},
        next_action={"name": "x", "args": {"y": [1]}},
    )
    before = result.to_dict()
    shown = getattr(result, view)()
    shown["model_output"]["rows"].append(2)
    shown["next_action"]["args"]["y"].append(2)
    shown.get("metadata", {}).clear()
    assert result.to_dict() == before


@pytest.mark.parametrize(
    ("result", "text", "model_text"),
    [
        (ToolResult(), "", ""),
        (ToolResult(output="hi"), "hi", "hi"),
        (ToolResult(output={"a": "\u5bd2"}), '{"a": "\u5bd2"}', '{"a": "\u5bd2"}'),
        (ToolResult(output="long", model_output="short"), "long", "short"),
        (ToolResult(output="long", model_output=[1]), "long", "[1]"),
        (ToolResult.semantic_error(code="c", error="boom"), "boom", "boom"),
        (ToolResult(**failed()), "broken", "broken"),
        (
            ToolResult(**failed(error="boom", output="half", recovery_hint="wait")),
            "boom\nhalf",
            "boom\nhalf\nwait",
        ),
    ],
)
def test_texts(result: ToolResult, text: str, model_text: str) -> None:
    assert (result.text, result.model_text) == (text, model_text)


MODEL_KEYS = [
    "schema_version",
    "status",
    "tool_name",
    "action_id",
    "model_output",
    "error",
    "error_code",
    "recoverable",
    "recovery_hint",
    "next_action",
]


def model_chars(view: dict[str, Any]) -> int:
    """Characters of all that can grow: texts as they are, trees as JSON."""
    parts = [
        value
        for name, value in view.items()
        if name not in ("schema_version", "status", "recoverable") and value is not None
    ]
    return sum(
        len(
            part
            if isinstance(part, str)
            else json.dumps(part, ensure_ascii=False, separators=(",", ":"))
        )
        for part in parts
    )


def test_the_model_sees_ten_keys_and_small_parts_as_they_are() -> None:
    result = ToolResult.semantic_error(
        code="c",
        error="boom",
        model_output={"rows": [1]},
        output="raw",
        next_action={"name": "read"},
        metadata={"a": 1},
    )
    view = result.to_model_dict()
    assert view == {
        "schema_version": TOOL_RESULT_SCHEMA_VERSION,
        "status": "error",
        "tool_name": None,
        "action_id": None,
        "model_output": {"rows": [1]},
        "error": "boom",
        "error_code": "c",
        "recoverable": False,
        "recovery_hint": None,
        "next_action": {"name": "read", "args": {}},
    }
    assert list(view) == MODEL_KEYS


def test_without_a_model_output_the_model_sees_the_output() -> None:
    assert ToolResult(output=[1]).to_model_dict()["model_output"] == [1]
    assert ToolResult(output=[1], model_output="").to_model_dict()["model_output"] == ""


@pytest.mark.parametrize("max_chars", [0, 5, 50, 100, 300, 1000, 4000, 100_000])
def test_one_budget_covers_all_parts(max_chars: int) -> None:
    result = ToolResult.execution_error(
        code="c",
        error="e" * 9000,
        output="o" * 9000,
        recovery_hint="h" * 9000,
        tool_name="t" * 9000,
        next_action={"name": "n" * 9000},
    )
    view = result.to_model_dict(max_chars=max_chars)
    assert model_chars(view) <= max_chars
    if max_chars >= 1000:
        assert len(json.dumps(view, separators=(",", ":"))) <= max_chars
    if max_chars >= 200:
        assert view["error_code"] == "c"
    for name in ("error", "model_output", "recovery_hint", "tool_name", "next_action"):
        if 200 <= max_chars <= 4000:
            assert MARK in view[name]


@pytest.mark.parametrize("piece", ['"', "\n", "\\", "\x01", "a\n", "\u5bd2", "\U0001f98a"])
@pytest.mark.parametrize("max_chars", [1000, 4000])
def test_what_json_escapes_counts_as_it_is_written(piece: str, max_chars: int) -> None:
    tree = {"name": "again", "args": {"text": piece * 3000}}
    result = ToolResult.execution_error(
        code="c", error=piece * 3000, output=piece * 3000, next_action=tree
    )
    view = result.to_model_dict(max_chars=max_chars)
    written = json.dumps(view, ensure_ascii=False)
    assert max_chars - 100 < len(written) <= max_chars
    for name in ("error", "model_output", "next_action"):
        assert MARK in view[name]


def test_short_parts_stay_whole_beside_a_long_one() -> None:
    result = ToolResult.execution_error(
        code="exit_status", error="it broke", recovery_hint="wait", output="o" * 9000
    )
    view = result.to_model_dict(max_chars=600)
    assert (view["error"], view["error_code"], view["recovery_hint"]) == (
        "it broke",
        "exit_status",
        "wait",
    )
    assert len(view["model_output"]) > 200
    assert "o" + MARK + "o" in view["model_output"]


def test_of_a_tree_that_does_not_fit_both_ends_stay() -> None:
    tree = {"name": "x", "args": {"rows": list(range(5000))}}
    view = ToolResult(next_action=tree).to_model_dict(max_chars=400)
    assert re.fullmatch(r'\{"name": "x".*\.\.\.\[TRUNCATED].*, 4999]}}', view["next_action"])
    view = ToolResult(model_output=tree).to_model_dict(max_chars=400)
    rows = view["model_output"]["args"].pop("rows")
    assert re.fullmatch(r"\[0, 1.*\.\.\.\[TRUNCATED].*, 4999]", rows)
    assert view["model_output"] == {"name": "x", "args": {}}
