"""What a tool result must fulfil, as two tables in the order of the contract."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal, get_args

from ._contract import FieldCheck, is_count, is_flag, one_of, or_none
from .artifact import ArtifactRef
from .session import AttemptIdentity

__all__ = [
    "EffectState",
    "FIELD_CHECKS",
    "RetryDisposition",
    "STATE_CHECKS",
    "STATE_FIELDS",
    "TOOL_RESULT_SCHEMA_VERSION",
    "ToolErrorKind",
    "ToolResultStatus",
]

ToolResultStatus = Literal["success", "error", "skipped", "timed_out", "cancelled"]
ToolErrorKind = Literal["semantic", "execution", "policy"]
EffectState = Literal[
    "no_effect_declared",
    "not_started",
    "started",
    "committed",
    "rejected",
    "unknown",
    "reconciliation_required",
]
RetryDisposition = Literal[
    "not_evaluated",
    "retryable",
    "non_retryable",
    "blocked_worker_running",
    "requires_reconciliation",
]

TOOL_RESULT_SCHEMA_VERSION = "qitos.tool_result/v2"
_CLOSURE_VERSION = "qitos.tool_batch_closure/v1"

_Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_array_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_object, value))


def _is_duration(value: Any) -> bool:
    # The comparison is false for NaN, and exact for an int too large for a float.
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value <= sys.float_info.max
    )


def _are_omissions(value: Any) -> bool:
    return (
        _is_object(value)
        and all(map(_is_text, value))
        and all(map(is_count, value.values()))
    )


def _has_form(
    value: Any, required: dict[str, _Check], optional: dict[str, _Check]
) -> bool:
    """Whether ``value`` is an object with these keys and no others."""
    rules = required | optional
    return (
        _is_object(value)
        and required.keys() <= value.keys() <= rules.keys()
        and all(rules[key](item) for key, item in value.items())
    )


def _is_next_action(value: Any) -> bool:
    return _has_form(
        value, {"name": _is_text}, {"args": _is_object, "action_id": or_none(_is_text)}
    )


def _are_unique_refs(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and all(isinstance(ref, ArtifactRef) for ref in value)
        and len({ref.artifact_id for ref in value}) == len(value)
    )


def _is_closure(value: Any) -> bool:
    required = {
        "schema_version": one_of((_CLOSURE_VERSION,)),
        "batch_id": _is_text,
        "slots": _are_slots,
    }
    return _is_object(value) and (not value or _has_form(value, required, {}))


def _are_slots(value: Any) -> bool:
    optional = {"result_ref": or_none(_is_text), "attempt_id": or_none(_is_text)}
    return (
        isinstance(value, list)
        and all(
            _has_form(slot, {"action_id": _is_text, "state": _is_text}, optional)
            for slot in value
        )
        and len({slot["action_id"] for slot in value}) == len(value)
    )


def _is_settled(result: Any) -> bool:
    return (
        result.effect_state in _EFFECT_RETRYABLE
        and not result.worker_still_running
        and not result.outcome_unknown
        and not result.reconciliation_required
    )


def _choices(kind: Any) -> str:
    return " or ".join(get_args(kind))


FIELD_CHECKS: tuple[FieldCheck, ...] = (
    (
        "unknown_schema_version",
        ("schema_version",),
        one_of((TOOL_RESULT_SCHEMA_VERSION,)),
        TOOL_RESULT_SCHEMA_VERSION,
    ),
    (
        "invalid_terminal_status",
        ("status",),
        one_of(get_args(ToolResultStatus)),
        _choices(ToolResultStatus),
    ),
    (
        "invalid_error_kind",
        ("error_kind",),
        or_none(one_of(get_args(ToolErrorKind))),
        "None, " + _choices(ToolErrorKind),
    ),
    (
        "invalid_effect_state",
        ("effect_state",),
        one_of(get_args(EffectState)),
        _choices(EffectState),
    ),
    (
        "invalid_retry_disposition",
        ("retry_disposition",),
        one_of(get_args(RetryDisposition)),
        _choices(RetryDisposition),
    ),
    (
        "invalid_canonical_field",
        (
            "tool_name",
            "action_id",
            "error",
            "error_code",
            "recovery_hint",
            "effect_ref",
            "idempotency_ref",
        ),
        or_none(_is_text),
        "text or None",
    ),
    (
        "invalid_attempt_identity",
        ("attempt_id",),
        lambda value: value is None or isinstance(value, AttemptIdentity),
        "an AttemptIdentity or None",
    ),
    (
        "invalid_canonical_field",
        (
            "recoverable",
            "complete",
            "truncated",
            "worker_still_running",
            "reconciliation_required",
            "outcome_unknown",
            "late_result",
            "stale_owner",
        ),
        is_flag,
        "a bool",
    ),
    ("invalid_canonical_field", ("attempts",), is_count, "an int >= 0"),
    (
        "invalid_canonical_field",
        ("latency_ms",),
        _is_duration,
        "a finite number >= 0",
    ),
    (
        "invalid_canonical_field",
        ("owner_generation",),
        or_none(is_count),
        "an int >= 0 or None",
    ),
    (
        "invalid_canonical_field",
        ("omitted",),
        _are_omissions,
        "an object of ints >= 0",
    ),
    (
        "invalid_canonical_field",
        ("next_action",),
        or_none(_is_next_action),
        "None or an object of name, args and action_id",
    ),
    (
        "invalid_canonical_field",
        ("metadata", "normalized_request", "provenance"),
        _is_object,
        "an object",
    ),
    (
        "invalid_canonical_field",
        ("declared_effects", "filesystem_changes"),
        _is_array_of_objects,
        "an array of objects",
    ),
    (
        "invalid_artifact_ref",
        ("artifact_refs",),
        _are_unique_refs,
        "ArtifactRefs with different ids",
    ),
    (
        "invalid_batch_closure",
        ("batch_closure",),
        _is_closure,
        f"empty or a {_CLOSURE_VERSION} with different slots",
    ),
)
"""What each field must be on its own."""

_EFFECT_OPEN = ("started", "unknown", "reconciliation_required")
_EFFECT_RETRYABLE = ("no_effect_declared", "not_started", "rejected")

STATE_CHECKS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "contradictory_outcome",
        lambda r: r.status == "success"
        and not (r.error is r.error_kind is r.error_code is None),
        "a success has no error, error_kind or error_code",
    ),
    (
        "contradictory_outcome",
        lambda r: r.status == "success" and r.worker_still_running,
        "a success has no running worker",
    ),
    (
        "contradictory_outcome",
        lambda r: r.status != "success" and not (r.error_kind and r.error_code),
        "what is no success has an error_kind and an error_code",
    ),
    (
        "contradictory_outcome",
        lambda r: r.status == "skipped" and r.error_kind != "policy",
        "a skipped call has the error_kind policy",
    ),
    (
        "contradictory_outcome",
        lambda r: r.status in ("timed_out", "cancelled")
        and r.error_kind != "execution",
        "a timed_out or cancelled call has the error_kind execution",
    ),
    (
        "contradictory_outcome",
        lambda r: r.worker_still_running and r.status not in ("timed_out", "cancelled"),
        "only a timed_out or cancelled call has a running worker",
    ),
    (
        "contradictory_effect",
        lambda r: (r.effect_ref is None) != (r.effect_state == "no_effect_declared"),
        "effect_ref is there exactly when effect_state tells of an effect",
    ),
    (
        "contradictory_effect",
        lambda r: r.effect_state == "unknown" and not r.outcome_unknown,
        "an unknown effect needs outcome_unknown",
    ),
    (
        "contradictory_effect",
        lambda r: r.effect_state == "reconciliation_required"
        and not (r.reconciliation_required and r.outcome_unknown),
        "an effect to reconcile needs reconciliation_required and outcome_unknown",
    ),
    (
        "contradictory_effect",
        lambda r: r.outcome_unknown and r.effect_state not in _EFFECT_OPEN,
        f"outcome_unknown needs an effect that is {', '.join(_EFFECT_OPEN)}",
    ),
    (
        "unsafe_retry_disposition",
        lambda r: r.retry_disposition == "retryable"
        and not (r.recoverable and _is_settled(r)),
        "retryable needs recoverable, no running worker, and an effect that is known "
        "not to have happened",
    ),
    (
        "unsafe_retry_disposition",
        lambda r: r.retry_disposition == "blocked_worker_running"
        and not r.worker_still_running,
        "blocked_worker_running needs a running worker",
    ),
    (
        "unsafe_retry_disposition",
        lambda r: r.retry_disposition == "requires_reconciliation"
        and not (r.outcome_unknown or r.reconciliation_required),
        "requires_reconciliation needs outcome_unknown or reconciliation_required",
    ),
)
"""What the fields must be together: code, whether it is broken, and what is wrong."""

STATE_FIELDS = frozenset(
    {
        "status",
        "error",
        "error_kind",
        "error_code",
        "recoverable",
        "worker_still_running",
        "effect_ref",
        "effect_state",
        "retry_disposition",
        "reconciliation_required",
        "outcome_unknown",
    }
)
"""The fields that the checks of the state look at."""
