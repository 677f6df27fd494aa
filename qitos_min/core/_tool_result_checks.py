"""What a tool result must fulfil, in the order of the contract."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal, get_args

from ._contract import FieldCheck, is_a, is_count, one_of, or_none
from ._limits import is_number
from .artifact import ArtifactRef
from .session import AttemptIdentity

ToolResultStatus = Literal["success", "error", "skipped", "timed_out", "cancelled"]
ToolErrorKind = Literal["semantic", "execution", "policy"]
_Committing = Literal["not_started", "started", "committed", "rejected", "unknown"]
EffectState = Literal["no_effect_declared", _Committing, "reconciliation_required"]
_Blocked = Literal["blocked_worker_running", "requires_reconciliation"]
RetryDisposition = Literal["not_evaluated", "retryable", "non_retryable", _Blocked]

TOOL_RESULT_SCHEMA_VERSION = "qitos.tool_result/v2"
_CLOSURE_VERSION = "qitos.tool_batch_closure/v1"

_Check = Callable[[Any], bool]
_is_text, _is_object = is_a(str), is_a(dict)
_is_text_or_none = or_none(_is_text)


def _is_duration(value: Any) -> bool:
    # The comparison is false for NaN, and exact for an int too large for a float.
    return is_number(value) and 0 <= value <= sys.float_info.max


def _are_counts(value: Any) -> bool:
    return _is_object(value) and all(_is_text(name) and is_count(n) for name, n in value.items())


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_object, value))


def _has_form(required: dict[str, _Check], optional: dict[str, _Check]) -> _Check:
    """A check for an object with these keys and no others."""
    rules = required | optional
    return lambda value: (
        _is_object(value)
        and required.keys() <= value.keys() <= rules.keys()
        and all(rules[key](item) for key, item in value.items())
    )


_is_action = _has_form({"name": _is_text}, {"args": _is_object, "action_id": _is_text_or_none})
_is_slot = _has_form(
    {"action_id": _is_text, "state": _is_text},
    {"result_ref": _is_text_or_none, "attempt_id": _is_text_or_none},
)


def _are_refs(value: Any) -> bool:
    known = isinstance(value, (list, tuple)) and all(isinstance(r, ArtifactRef) for r in value)
    return known and len({ref.artifact_id for ref in value}) == len(value)


def _are_slots(value: Any) -> bool:
    known = isinstance(value, list) and all(map(_is_slot, value))
    return known and len({slot["action_id"] for slot in value}) == len(value)


_CLOSURE_FORM = {"schema_version": one_of(_CLOSURE_VERSION), "batch_id": _is_text}
_is_filled_closure = _has_form({**_CLOSURE_FORM, "slots": _are_slots}, {})


def _choice(code: str, name: str, kind: Any) -> FieldCheck:
    words = get_args(kind)
    return code, name, one_of(*words), " or ".join(words)


_FIELD = "invalid_canonical_field"
_TEXTS = "tool_name action_id error error_code recovery_hint effect_ref idempotency_ref"
_FLAGS = (
    "recoverable complete truncated worker_still_running reconciliation_required "
    "outcome_unknown late_result stale_owner"
)
_VERSION = (one_of(TOOL_RESULT_SCHEMA_VERSION), TOOL_RESULT_SCHEMA_VERSION)
_KINDS = get_args(ToolErrorKind)
_IDENTITY = (or_none(is_a(AttemptIdentity)), "an AttemptIdentity or None")
_ACTION = (or_none(_is_action), "None or an object of name, args and action_id")
_CLOSURE = (
    lambda value: value == {} or _is_filled_closure(value),
    f"empty or a {_CLOSURE_VERSION} with different slots",
)

FIELD_CHECKS: tuple[FieldCheck, ...] = (
    ("unknown_schema_version", "schema_version", *_VERSION),
    _choice("invalid_terminal_status", "status", ToolResultStatus),
    ("invalid_error_kind", "error_kind", or_none(one_of(*_KINDS)), f"None, {' or '.join(_KINDS)}"),
    _choice("invalid_effect_state", "effect_state", EffectState),
    _choice("invalid_retry_disposition", "retry_disposition", RetryDisposition),
    (_FIELD, _TEXTS, _is_text_or_none, "text or None"),
    ("invalid_attempt_identity", "attempt_id", *_IDENTITY),
    (_FIELD, _FLAGS, is_a(bool), "a bool"),
    (_FIELD, "attempts", is_count, "an int >= 0"),
    (_FIELD, "latency_ms", _is_duration, "a finite number >= 0"),
    (_FIELD, "owner_generation", or_none(is_count), "an int >= 0 or None"),
    (_FIELD, "omitted", _are_counts, "an object of ints >= 0"),
    (_FIELD, "next_action", *_ACTION),
    (_FIELD, "metadata normalized_request provenance", _is_object, "an object"),
    (_FIELD, "declared_effects filesystem_changes", _are_objects, "an array of objects"),
    ("invalid_artifact_ref", "artifact_refs", _are_refs, "ArtifactRefs with different ids"),
    ("invalid_batch_closure", "batch_closure", *_CLOSURE),
)
_KIND_OF_STATUS = {"skipped": "policy", "timed_out": "execution", "cancelled": "execution"}
_EFFECT_OPEN = ("started", "unknown", "reconciliation_required")
_EFFECT_RETRYABLE = ("no_effect_declared", "not_started", "rejected")
_OUTCOME, _EFFECT = "contradictory_outcome", "contradictory_effect"
_RETRY = "unsafe_retry_disposition"


def state_fault(r: Any) -> tuple[str, str] | None:
    """Code and words of the first rule that the fields break together, or None."""
    success, running = r.status == "success", r.worker_still_running
    told = bool(r.error_kind and r.error_code)
    silent = r.error is r.error_kind is r.error_code is None
    kind = _KIND_OF_STATUS.get(r.status, r.error_kind)
    effect, unknown, retry = r.effect_state, r.outcome_unknown, r.retry_disposition
    uncertain = unknown or r.reconciliation_required
    settled = effect in _EFFECT_RETRYABLE and not uncertain and not running
    may_run = r.status in ("timed_out", "cancelled")
    has_ref, has_effect = r.effect_ref is not None, effect != "no_effect_declared"
    reconciled = effect != "reconciliation_required" or (unknown and r.reconciliation_required)
    closed = unknown and effect not in _EFFECT_OPEN
    unsettled = retry == "retryable" and not (r.recoverable and settled)
    blocked = retry == "blocked_worker_running" and not running
    certain = retry == "requires_reconciliation" and not uncertain
    flags = "reconciliation_required and outcome_unknown"
    rules = (
        (_OUTCOME, success and not silent, "a success has no error, error_kind or error_code"),
        (_OUTCOME, success and running, "a success has no running worker"),
        (_OUTCOME, not success and not told, "a failure has an error_kind and an error_code"),
        (_OUTCOME, r.error_kind != kind, f"a {r.status} call has the error_kind {kind}"),
        (_OUTCOME, running and not may_run, "only a timed_out or cancelled call has a worker"),
        (_EFFECT, has_ref != has_effect, "effect_ref and an effect in effect_state go together"),
        (_EFFECT, effect == "unknown" and not unknown, "an unknown effect needs outcome_unknown"),
        (_EFFECT, not reconciled, f"an effect to reconcile needs {flags}"),
        (_EFFECT, closed, f"outcome_unknown needs an effect that is {', '.join(_EFFECT_OPEN)}"),
        (_RETRY, unsettled, "retryable needs recoverable, no running worker, and no effect"),
        (_RETRY, blocked, "blocked_worker_running needs a running worker"),
        (
            _RETRY,
            certain,
            "requires_reconciliation needs outcome_unknown or reconciliation_required",
        ),
    )
    return next(((code, what) for code, broken, what in rules if broken), None)
