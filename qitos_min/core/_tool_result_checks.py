"""What a tool result must fulfil, in the order of the contract."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal, get_args

from ._contract import FieldCheck, is_count, is_flag, is_text, one_of, or_none
from ._limits import is_number
from .artifact import ArtifactRef
from .session import AttemptIdentity

__all__ = [
    "EffectState",
    "FIELD_CHECKS",
    "RetryDisposition",
    "STATE_FIELDS",
    "TOOL_RESULT_SCHEMA_VERSION",
    "ToolErrorKind",
    "ToolResultStatus",
    "state_fault",
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

_Checks = dict[str, Callable[[Any], bool]]


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_duration(value: Any) -> bool:
    # The comparison is false for NaN, and exact for an int too large for a float.
    return is_number(value) and 0 <= value <= sys.float_info.max


def _are_counts(value: Any) -> bool:
    return _is_object(value) and all(
        is_text(name) and is_count(count) for name, count in value.items()
    )


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_object, value))


def _has_form(value: Any, required: _Checks, optional: _Checks) -> bool:
    """Whether ``value`` is an object with these keys and no others."""
    rules = required | optional
    return (
        _is_object(value)
        and required.keys() <= value.keys() <= rules.keys()
        and all(rules[key](item) for key, item in value.items())
    )


_TEXT_OR_NONE = or_none(is_text)
_ACTION = {"name": is_text}
_ACTION_MORE = {"args": _is_object, "action_id": _TEXT_OR_NONE}
_SLOT = {"action_id": is_text, "state": is_text}
_SLOT_MORE = {"result_ref": _TEXT_OR_NONE, "attempt_id": _TEXT_OR_NONE}


def _is_action(value: Any) -> bool:
    return _has_form(value, _ACTION, _ACTION_MORE)


def _are_refs(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and all(isinstance(ref, ArtifactRef) for ref in value)
        and len({ref.artifact_id for ref in value}) == len(value)
    )


def _are_slots(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(_has_form(slot, _SLOT, _SLOT_MORE) for slot in value)
        and len({slot["action_id"] for slot in value}) == len(value)
    )


_CLOSURE: _Checks = {
    "schema_version": one_of((_CLOSURE_VERSION,)),
    "batch_id": is_text,
    "slots": _are_slots,
}


def _is_closure(value: Any) -> bool:
    return value == {} or _has_form(value, _CLOSURE, {})


def _choice(code: str, name: str, kind: Any) -> FieldCheck:
    words = get_args(kind)
    return code, name, one_of(words), " or ".join(words)


_FIELD = "invalid_canonical_field"

FIELD_CHECKS: tuple[FieldCheck, ...] = (
    (
        "unknown_schema_version",
        "schema_version",
        one_of((TOOL_RESULT_SCHEMA_VERSION,)),
        TOOL_RESULT_SCHEMA_VERSION,
    ),
    _choice("invalid_terminal_status", "status", ToolResultStatus),
    (
        "invalid_error_kind",
        "error_kind",
        or_none(one_of(get_args(ToolErrorKind))),
        "None, " + " or ".join(get_args(ToolErrorKind)),
    ),
    _choice("invalid_effect_state", "effect_state", EffectState),
    _choice("invalid_retry_disposition", "retry_disposition", RetryDisposition),
    (
        _FIELD,
        "tool_name action_id error error_code recovery_hint effect_ref idempotency_ref",
        _TEXT_OR_NONE,
        "text or None",
    ),
    (
        "invalid_attempt_identity",
        "attempt_id",
        or_none(lambda value: isinstance(value, AttemptIdentity)),
        "an AttemptIdentity or None",
    ),
    (
        _FIELD,
        "recoverable complete truncated worker_still_running reconciliation_required "
        "outcome_unknown late_result stale_owner",
        is_flag,
        "a bool",
    ),
    (_FIELD, "attempts", is_count, "an int >= 0"),
    (_FIELD, "latency_ms", _is_duration, "a finite number >= 0"),
    (_FIELD, "owner_generation", or_none(is_count), "an int >= 0 or None"),
    (_FIELD, "omitted", _are_counts, "an object of ints >= 0"),
    (_FIELD, "next_action", or_none(_is_action), "None or an object of name, args and action_id"),
    (_FIELD, "metadata normalized_request provenance", _is_object, "an object"),
    (_FIELD, "declared_effects filesystem_changes", _are_objects, "an array of objects"),
    ("invalid_artifact_ref", "artifact_refs", _are_refs, "ArtifactRefs with different ids"),
    (
        "invalid_batch_closure",
        "batch_closure",
        _is_closure,
        f"empty or a {_CLOSURE_VERSION} with different slots",
    ),
)
"""What each field must be on its own."""

STATE_FIELDS = frozenset(
    "status error error_kind error_code recoverable worker_still_running effect_ref "
    "effect_state retry_disposition reconciliation_required outcome_unknown".split()
)
"""The fields that ``state_fault`` looks at; at their defaults they have no fault."""

_KIND_OF_STATUS = {"skipped": "policy", "timed_out": "execution", "cancelled": "execution"}
_EFFECT_OPEN = ("started", "unknown", "reconciliation_required")
_EFFECT_RETRYABLE = ("no_effect_declared", "not_started", "rejected")


def state_fault(result: Any) -> tuple[str, str] | None:
    """Code and words of the first rule that the fields break together, or None."""
    for code, find in (
        ("contradictory_outcome", _outcome_fault),
        ("contradictory_effect", _effect_fault),
        ("unsafe_retry_disposition", _retry_fault),
    ):
        what = find(result)
        if what is not None:
            return code, what
    return None


def _outcome_fault(r: Any) -> str | None:
    if r.status == "success":
        if not (r.error is r.error_kind is r.error_code is None):
            return "a success has no error, error_kind or error_code"
        return "a success has no running worker" if r.worker_still_running else None
    if not (r.error_kind and r.error_code):
        return "what is no success has an error_kind and an error_code"
    kind = _KIND_OF_STATUS.get(r.status, r.error_kind)
    if r.error_kind != kind:
        return f"a {r.status} call has the error_kind {kind}"
    if r.worker_still_running and r.status not in ("timed_out", "cancelled"):
        return "only a timed_out or cancelled call has a running worker"
    return None


def _effect_fault(r: Any) -> str | None:
    state, unknown = r.effect_state, r.outcome_unknown
    if (r.effect_ref is None) != (state == "no_effect_declared"):
        return "effect_ref is there exactly when effect_state tells of an effect"
    if state == "unknown" and not unknown:
        return "an unknown effect needs outcome_unknown"
    if state == "reconciliation_required" and not (r.reconciliation_required and unknown):
        return "an effect to reconcile needs reconciliation_required and outcome_unknown"
    if unknown and state not in _EFFECT_OPEN:
        return f"outcome_unknown needs an effect that is {', '.join(_EFFECT_OPEN)}"
    return None


def _retry_fault(r: Any) -> str | None:
    uncertain = r.outcome_unknown or r.reconciliation_required
    if r.retry_disposition == "retryable":
        settled = r.effect_state in _EFFECT_RETRYABLE and not uncertain
        if not (r.recoverable and settled) or r.worker_still_running:
            return (
                "retryable needs recoverable, no running worker, and an effect that is "
                "known not to have happened"
            )
    if r.retry_disposition == "blocked_worker_running" and not r.worker_still_running:
        return "blocked_worker_running needs a running worker"
    if r.retry_disposition == "requires_reconciliation" and not uncertain:
        return "requires_reconciliation needs outcome_unknown or reconciliation_required"
    return None
