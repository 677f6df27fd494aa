"""The records of a run: positions, defaults, round trips, strict JSON."""

import math
from dataclasses import FrozenInstanceError, fields

import pytest
from engine_doubles import as_json

import snowl_compat
from qitos_min import EngineResult, StepSummary
from qitos_min.core.errors import ErrorCategory, StopReason
from qitos_min.core.tool import ToolPermissionSpec
from qitos_min.engine import (
    CriticTrace,
    EngineConfig,
    HandoffTrace,
    RuntimeBudget,
    RuntimeEvent,
    RuntimePhase,
    StepRecord,
)
from qitos_min.engine.states import ContextConfig, StepResult

LISTED = {
    CriticTrace: (
        "step_id critic_name action reason score details instruction_patch state_patch",
        (0, "c", "continue"),
        ("", 1.0, {}, None, None),
    ),
    HandoffTrace: (
        "step_id from_agent to_agent context_strategy messages_passed",
        (0, "a", "b"),
        ("", 0),
    ),
    EngineConfig: (
        "agent_name model_id budget_max_steps budget_max_runtime_seconds budget_max_tokens"
        " critic_names stop_criteria_names has_checkpoint_store has_tracing_provider protocol_id"
        " delegate_depth has_shared_memory has_env tool_count",
        (),
        ("", "", 10, None, None, [], [], False, False, None, 0, False, False, 0),
    ),
    RuntimeBudget: ("max_steps max_runtime_seconds max_tokens", (), (10, None, None)),
    StepSummary: (
        "step_id tool_name status latency_ms error result_preview",
        (0, "t", "success"),
        (0.0, None, ""),
    ),
    StepResult: (
        "step_id decision record observation action_results stop stop_reason error recovered",
        (0, None, None, None),
        ([], False, None, None, False),
    ),
    StepRecord: (
        "step_id phase_events observation decision model_response actions action_results"
        " tool_invocations action_execution critic_outputs state_diff context prompt_metadata"
        " protocol_id parser_selected parser_fallback_used parser_attempts parser_diagnostics"
        " parser_contract parser_salvage_applied decision_source agent_id native_tool_call_used"
        " native_tool_call_fallback_reason visual_assets observation_modalities"
        " visual_asset_count has_screenshot has_dom has_accessibility_tree"
        " model_input_modalities model_input_visual_count",
        (0,),
        ([], None, None, {}, [], [], [], {}, [], {}, {}, {}, None, None, False, [], {}, None)
        + (False, None, None, False, None, [], [], 0, False, False, False, [], 0),
    ),
    EngineResult: (
        "state records events step_count task_result runtime_seconds total_tokens run_id"
        " critic_traces handoff_traces failure",
        (None, [], [], 0),
        (None, 0.0, 0, "", [], [], None),
    ),
}


@pytest.mark.parametrize("record", LISTED)
def test_a_record_is_built_by_position_with_the_listed_defaults(record):
    names, given, defaults = LISTED[record]
    assert [f.name for f in fields(record)] == names.split()
    built = record(*given)
    assert tuple(getattr(built, name) for name in names.split()) == (*given, *defaults)
    other = record(*given)
    for name in names.split():
        value = getattr(built, name)
        if isinstance(value, (list, dict)) and value not in given:
            assert value is not getattr(other, name)


def test_an_event_is_built_by_position():
    event = RuntimeEvent(3, RuntimePhase.ACT)
    assert (event.ok, event.payload, event.error) == (True, {}, None)
    assert event.ts.endswith("+00:00")
    full = RuntimeEvent(3, RuntimePhase.ACT, False, {"k": math.nan}, "no", "2026-01-01T00:00:00")
    assert as_json(full.to_dict()) == {
        "step_id": 3,
        "phase": "ACT",
        "ok": False,
        "payload": {"k": None},
        "error": "no",
        "ts": "2026-01-01T00:00:00",
    }


def test_the_words_of_phases_reasons_and_categories():
    assert [phase.value for phase in RuntimePhase] == (
        "INIT DECIDE ACT CRITIC REDUCE CHECK_STOP END DECIDE_ERROR ACT_ERROR RECOVER"
        " DELEGATE_START DELEGATE_END HANDOFF_START HANDOFF_END INTERRUPT FANOUT_START"
        " FANOUT_END COMPACT SESSION_START SESSION_END"
    ).split()
    assert {reason.value for reason in StopReason} == set(
        "success final max_steps budget_steps budget_time budget_tokens context_overflow"
        " agent_condition critic_stop stagnation env_terminal task_validation_failed"
        " env_capability_mismatch unrecoverable_error cancelled_immediate cancelled_after_step"
        " interrupt".split()
    )
    assert [category.value for category in ErrorCategory] == (
        "model_error parse_error tool_error state_error task_error env_error system_error"
    ).split()
    assert RuntimePhase.ACT == "ACT"


EXPORTED = [
    CriticTrace(1, "c", "stop", "r", 0.5, {"k": [1]}, "i", {"notes": []}),
    CriticTrace(0, "c", "continue"),
    CriticTrace(0, "c", "continue", score=None),
    HandoffTrace(1, "a", "b", "FULL", 3),
    EngineConfig("a", "m", None, 1.5, 100, ["c"], ["s"], True, True, "p", 2, True, True, 5),
    EngineConfig(),
    ToolPermissionSpec(name="t"),
]


@pytest.mark.parametrize("record", EXPORTED, ids=repr)
def test_an_exported_record_comes_back_from_its_dict(record):
    row = as_json(record.to_dict())
    assert type(record).from_dict(row) == record
    again = type(record).from_dict(record.to_dict())
    assert again == record and again is not record


def test_a_record_read_from_a_dict_does_not_share_it():
    row = {"step_id": 0, "critic_name": "c", "action": "stop", "details": {"k": [1]}}
    trace = CriticTrace.from_dict(row)
    row["details"]["k"].append(2)
    assert trace.details == {"k": [1]}
    trace.to_dict()["details"]["k"].append(3)
    assert trace.details == {"k": [1]}


@pytest.mark.parametrize(
    "record, row, message",
    [
        (CriticTrace, {}, "field 'step_id' of CriticTrace is missing"),
        (HandoffTrace, {"step_id": 0}, "field 'from_agent' of HandoffTrace is missing"),
        (EngineConfig, {"colour": 1}, "unknown field 'colour' of EngineConfig"),
        (EngineConfig, {1: 1, "x": 2}, "unknown field 1 of EngineConfig"),
        (CriticTrace, [1], "CriticTrace needs a dict, got list"),
    ],
)
def test_a_dict_that_does_not_fit_is_refused(record, row, message):
    with pytest.raises(ValueError) as caught:
        record.from_dict(row)
    assert str(caught.value) == message


def test_a_critic_trace_leaves_out_what_is_empty():
    assert CriticTrace(0, "c", "continue").to_dict() == {
        "step_id": 0,
        "critic_name": "c",
        "action": "continue",
        "reason": "",
        "score": 1.0,
    }
    full = CriticTrace(0, "c", "retry", details={"k": 1}, instruction_patch="i", state_patch={})
    assert list(full.to_dict())[5:] == ["details", "instruction_patch", "state_patch"]


@pytest.mark.parametrize("score", [None, math.nan, "high", object()])
def test_a_trace_built_by_hand_is_strict_json_too(score):
    trace = CriticTrace(0, "c", "continue", "", score, {"n": math.inf, "o": object()})
    row = as_json(trace.to_dict())
    assert (row["score"], row["details"]["n"]) == (None, None)
    assert row == {
        k: v for k, v in snowl_compat.critic_traces([trace])[0].items() if "patch" not in k
    }


def test_the_configuration_is_frozen_and_its_dict_detached():
    config = EngineConfig(critic_names=["c"])
    with pytest.raises(FrozenInstanceError):
        config.agent_name = "other"
    config.to_dict()["critic_names"].append("late")
    assert config.critic_names == ["c"]


def test_small_records_have_dicts():
    assert RuntimeBudget(3).to_dict() == {
        "max_steps": 3,
        "max_runtime_seconds": None,
        "max_tokens": None,
    }
    assert ContextConfig().to_dict() == {"max_history_rounds": None, "max_result_chars": 4000}
    assert StepSummary(0, "t", "success").to_dict()["tool_name"] == "t"


# The result


def invocation(name, status, attempts=1):
    return {"tool_name": name, "status": status, "attempts": attempts, "latency_ms": 1.5}


def result_with(*calls, outputs=None):
    record = StepRecord(
        0,
        tool_invocations=list(calls),
        action_results=outputs or ["out"] * len(calls),
    )
    return EngineResult(None, [record], [], 1)


def test_calls_that_never_ran_do_not_count_as_calls():
    """Fault 18: denied and unknown calls counted."""
    result = result_with(
        invocation("a", "success"),
        invocation("a", "error", attempts=3),
        invocation("b", "skipped", attempts=0),
        invocation("nope", "error", attempts=0),
    )
    assert result.tool_calls_by_name == {"a": 2}
    assert result.success_rate == 0.25


def test_without_calls_the_success_rate_is_zero():
    result = EngineResult(None, [], [], 0)
    assert (result.success_rate, result.tool_calls_by_name, result.step_summaries) == (0.0, {}, [])
    assert (result.error_code, result.final_result) == (None, None)


def test_a_summary_shows_the_beginning_of_the_output():
    result = result_with(
        invocation("a", "success"), invocation("b", "success"), outputs=["x" * 500, {"n": 1}]
    )
    first, second = result.step_summaries
    assert (len(first.result_preview), first.result_preview[-3:]) == (200, "...")
    assert (second.result_preview, second.latency_ms) == ('{"n": 1}', 1.5)


def test_the_dict_of_a_result_has_the_listed_keys_and_is_strict():
    result = EngineResult(
        {"score": math.nan, "lock": object()},
        [],
        [],
        0,
        critic_traces=[CriticTrace(0, "c", "stop", score=math.nan)],
        failure={"category": "tool_error", "detail": math.nan},
    )
    row = as_json(result.to_dict())
    assert list(row) == (
        "step_count runtime_seconds total_tokens tool_calls_by_name success_rate step_summaries"
        " critic_traces handoff_traces failure error_code task_result state"
    ).split()
    assert (row["error_code"], row["state"]["score"]) == ("tool_error", None)
    assert row["critic_traces"][0]["score"] is None
