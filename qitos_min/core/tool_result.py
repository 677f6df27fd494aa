"""The outcome of one tool call: 35 fields, checked when built and when shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from ._contract import ContractError, FieldCheck, check_fields, detach_json, exact_values
from ._contract import is_a, is_count, is_number, one_of, or_none
from ._foreign import fitted, joined
from ._json import to_json_value
from ._json_schema import check_value
from ._redact import redact
from .artifact import ArtifactContractError, ArtifactRef
from .session import AttemptIdentity

ToolResultStatus = Literal["success", "error", "skipped", "timed_out", "cancelled"]
ToolErrorKind = Literal["semantic", "execution", "policy"]
_Committing = Literal["not_started", "started", "committed", "rejected", "unknown"]
EffectState = Literal["no_effect_declared", _Committing, "reconciliation_required"]
_Blocked = Literal["blocked_worker_running", "requires_reconciliation"]
RetryDisposition = Literal["not_evaluated", "retryable", "non_retryable", _Blocked]

TOOL_RESULT_SCHEMA_VERSION = "qitos.tool_result/v2"


class ToolResultContractError(ContractError):
    """A result that breaks its contract."""

    version_code, form_code = "unknown_schema_version", "invalid_canonical_field"
    no_mapping = "a result must be a mapping"
    other_keys = "a result has exactly the fields of the contract"


@dataclass
class ToolResult:
    """How one call ended. Values are checked and copied; raises ToolResultContractError."""

    status: ToolResultStatus = "success"
    output: Any = None  # What the tool returned: any tree of JSON values.
    error: str | None = None  # What went wrong, for people and models.
    metadata: dict[str, Any] = field(default_factory=dict)
    tool_name: str | None = None
    action_id: str | None = None
    model_output: Any = None  # What a model sees instead of ``output``: its ``model_summary``.
    error_kind: ToolErrorKind | None = None  # At fault: the request, the execution or a rule.
    error_code: str | None = None
    recoverable: bool = False  # Whether another request could succeed.
    recovery_hint: str | None = None
    next_action: dict[str, Any] | None = None  # A call: ``name``, ``args``, ``action_id``.
    complete: bool = True  # Whether the output is all there was to say.
    truncated: bool = False
    omitted: dict[str, int] = field(default_factory=dict)  # By unit: ``{"lines": 120}``.
    attempts: int = 1
    latency_ms: float = 0.0  # Time of the call in milliseconds, over all attempts.
    declared_effects: list[dict[str, Any]] = field(default_factory=list)
    filesystem_changes: list[dict[str, Any]] = field(default_factory=list)
    artifact_refs: tuple[ArtifactRef, ...] = ()  # Bodies kept in a store instead of here.
    normalized_request: dict[str, Any] = field(default_factory=dict)  # As the tool read it.
    provenance: dict[str, Any] = field(default_factory=dict)
    worker_still_running: bool = False  # Whether the worker outlives this result.
    attempt_id: AttemptIdentity | None = None
    effect_ref: str | None = None  # Names the effect that ``effect_state`` speaks of.
    effect_state: EffectState = "no_effect_declared"
    idempotency_ref: str | None = None
    retry_disposition: RetryDisposition = "not_evaluated"
    reconciliation_required: bool = False  # Whether someone must look before a new try.
    outcome_unknown: bool = False  # Whether the effect may or may not have happened.
    late_result: bool = False
    owner_generation: int | None = None
    stale_owner: bool = False
    batch_closure: dict[str, Any] = field(default_factory=dict)  # How the batch was closed.
    schema_version: str = TOOL_RESULT_SCHEMA_VERSION

    def __post_init__(self) -> None:
        vars(self).update(_checked(self))
        if self.model_output is None and isinstance(self.output, dict):
            summary = self.output.get("model_summary")
            self.model_output = summary if isinstance(summary, str) else None

    @classmethod
    def semantic_error(cls, *, code: str, error: str, **values: Any) -> ToolResult:
        """The request made no sense to the tool; ``values`` are further fields."""
        return _failure("semantic", code, error, values)

    @classmethod
    def execution_error(cls, *, code: str, error: str, **values: Any) -> ToolResult:
        """The tool failed while it worked; ``values`` are further fields."""
        return _failure("execution", code, error, values)

    @classmethod
    def policy_error(cls, *, code: str, error: str, **values: Any) -> ToolResult:
        """A rule forbade the call; ``values`` are further fields."""
        return _failure("policy", code, error, values)

    @classmethod
    def from_value(cls, value: Any) -> ToolResult:
        """The success of a tool that returned ``value``, converted where JSON cannot hold it, or
        what a record of a result says; raises ToolResultContractError."""
        if isinstance(value, cls):
            return replace(value)
        metadata: dict[str, Any] = {}
        try:
            output = detach_json(value, tuples=False)
        except Exception:  # Also what the items of a foreign mapping raise.
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            output, metadata = to_json_value(value), {"output_converted": True, "output_type": kind}
        if isinstance(output, dict):
            version = output.get("schema_version")
            if isinstance(version, str) and version.startswith("qitos.tool_result/"):
                return cls.from_dict(value if isinstance(value, dict) else output)
            # A tool's own dict may well have a "status"; the old form says how it ended, too.
            known = output.keys() <= {"status", "output", "error", "metadata"}
            if known and "status" in output and output.keys() & {"output", "error"}:
                return _from_legacy(output, metadata)
        if cls is not ToolResult or isinstance(output, dict) and "model_summary" in output:
            return cls(output=output, metadata=metadata)
        result = cls.__new__(cls)  # The checks are dear, and defaults and copies pass them.
        own = {name: kind() for name, kind in _CONTAINERS}
        result.__dict__ = {**_DEFAULTS, **own, "output": output, "metadata": metadata}
        return result

    @classmethod
    def from_dict(cls, value: Any) -> ToolResult:
        """Read what :meth:`to_dict` wrote, with or without ``success``."""
        given = exact_values(value, cls, ToolResultContractError, "success")
        # What cannot be read is left as it is, for the check whose turn it is.
        with suppress(ValueError):
            given["attempt_id"] = AttemptIdentity.from_dict(given["attempt_id"])
        with suppress(ArtifactContractError, TypeError):
            given["artifact_refs"] = tuple(map(ArtifactRef.from_dict, given["artifact_refs"]))
        result = cls(**given)
        if value.get("success", result.is_success) is not result.is_success:
            raise ToolResultContractError("contradictory_outcome", "success contradicts status")
        return result

    @property
    def is_success(self) -> bool:
        """Whether the call did what it was asked to do."""
        return self.status == "success"

    @property
    def text(self) -> str:
        """Error, if any, and output as one text; values that are no text as JSON."""
        return joined(self.error or self.error_code, self.output)

    @property
    def model_text(self) -> str:
        """Like :attr:`text`, as a model should see it, with the recovery hint."""
        shown = self.output if self.model_output is None else self.model_output
        return joined(self.error or self.error_code, shown, self.recovery_hint)

    def to_dict(self) -> dict[str, Any]:
        """The 35 fields as JSON values, and ``success``; reading it back is exact."""
        record = {name: getattr(self, name) for name in _DEFAULTS} | _checked(self)
        if self.attempt_id is not None:
            record["attempt_id"] = self.attempt_id.to_dict()
        record["artifact_refs"] = [ref.to_dict() for ref in self.artifact_refs]
        return {**record, "success": self.is_success}

    def to_model_dict(self, max_chars: int = 4000) -> dict[str, Any]:
        """What a model may see, within ``max_chars`` characters of JSON over all its parts;
        ``...[TRUNCATED]`` stands in the middle of what is cut."""
        record = self.to_dict()
        if record["model_output"] is None:
            record["model_output"] = record["output"]
        view = {name: record[name] for name in _MODEL_FIELDS}
        whole = ("schema_version", "status", "recoverable")
        # With other arguments the suggested call would be another one.
        return fitted(view, max_chars, whole=whole, flat=["next_action"])

    def to_trace_safe_dict(self) -> dict[str, Any]:
        """All but the output, without secrets and host paths; ``redaction`` counts these."""
        record = self.to_dict()
        output = joined(record.pop("output"))
        safe, removed = redact(record)
        return {**safe, "redaction": {**removed, "output_chars": len(output)}}


_DEFAULTS = {
    item.name: item.default if item.default_factory is MISSING else item.default_factory()
    for item in fields(ToolResult)
}
_CONTAINERS = [(name, type(made)) for name, made in _DEFAULTS.items() if made in ([], {})]
_MODEL_FIELDS = "schema_version status tool_name action_id model_output error error_code".split()
_MODEL_FIELDS += ["recoverable", "recovery_hint", "next_action"]


def _checked(result: ToolResult) -> dict[str, Any]:
    """Copies of the fields that are set, after every check in the order of the contract."""
    copied, told, held = {}, set(), vars(result)
    for name, default in _DEFAULTS.items():
        if (value := held[name]) is default:
            continue
        if type(value) in (dict, list) and value == default:
            value = type(value)()
        else:
            told.add(name)
        copied[name] = value
    # The defaults keep the contract, and an output may be anything.
    judged = told - {"output", "model_output"}
    rows = (row for row in _FIELD_CHECKS if not judged.isdisjoint(row[1].split()))
    check_fields(result, rows if judged else (), ToolResultContractError)
    for name in told - {"attempt_id", "artifact_refs"}:
        try:
            copied[name] = detach_json(copied[name], tuples=False)
        except ValueError as error:
            what = f"{name} holds {error}"
            raise ToolResultContractError("non_serializable_value", what) from None
    if "artifact_refs" in told:
        copied["artifact_refs"] = tuple(copied["artifact_refs"])
    if "next_action" in told:
        copied["next_action"].setdefault("args", {})
    if fault := judged and _state_fault(result):
        raise ToolResultContractError(*fault)
    return copied


def _failure(kind: str, code: str, error: str, values: Mapping[str, Any]) -> ToolResult:
    told: Any = {"error_kind": kind, "error_code": code, "error": error}
    return ToolResult(**{"status": "error", **values, **told})


def _from_legacy(value: dict[str, Any], metadata: dict[str, Any]) -> ToolResult:
    status, error, given = value["status"], value.get("error"), value.get("metadata")
    metadata = {**(given if isinstance(given, dict) else {}), **metadata}
    read: dict[str, Any] = {"output": value.get("output"), "metadata": metadata}
    if status == "success" and not error:
        return ToolResult(**read)
    text = joined(error) or "the tool did not say what went wrong"
    if status not in get_args(ToolResultStatus):
        return _failure("execution", "legacy_status_unknown", text, read)
    status = "error" if status == "success" else status  # A success with an error is none.
    kind = _KIND_OF_STATUS.get(status, "execution")
    return _failure(kind, f"legacy_{status}", text, {**read, "status": status})


_CLOSURE_VERSION = "qitos.tool_batch_closure/v1"


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(n, str) and is_count(value[n]) for n in value)


def _are_refs(value: Any) -> bool:
    known = isinstance(value, (list, tuple)) and all(isinstance(r, ArtifactRef) for r in value)
    return known and len({ref.artifact_id for ref in value}) == len(value)


def _fits(schema: dict[str, Any]) -> Callable[[Any], bool]:
    return lambda value: check_value(value, schema) is None


def _is_closure(value: Any) -> bool:
    if check_value(value, _CLOSURE) is not None:
        return value == {}
    return len({slot["action_id"] for slot in value["slots"]}) == len(value["slots"])


def _choice(code: str, name: str, kind: Any) -> FieldCheck:
    return code, name, one_of(*get_args(kind)), " or ".join(get_args(kind))


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """The schema of an object with these keys and no others."""
    return {"type": "object", "properties": required | optional, "required": list(required)}


_TEXT, _MAPPING = {"type": "string"}, {"type": "object"}
_TEXT_OR_NONE = {"type": ["string", "null"]}
_ACTION = _object({"name": _TEXT}, args=_MAPPING, action_id=_TEXT_OR_NONE)
_ROWS = {"type": "array", "items": _MAPPING}
_SLOT_TEXTS = {"action_id": _TEXT, "state": _TEXT}
_SLOT = _object(_SLOT_TEXTS, result_ref=_TEXT_OR_NONE, attempt_id=_TEXT_OR_NONE)
_BATCH = {"batch_id": _TEXT, "slots": {"type": "array", "items": _SLOT}}
_CLOSURE = _object({"schema_version": {"const": _CLOSURE_VERSION}, **_BATCH})
_FIELD, _VERSION = "invalid_canonical_field", TOOL_RESULT_SCHEMA_VERSION
_TEXTS = "tool_name action_id error error_code recovery_hint effect_ref idempotency_ref"
_FLAGS = "recoverable complete truncated worker_still_running reconciliation_required"
_FLAGS += " outcome_unknown late_result stale_owner"
_KIND = (or_none(one_of(*get_args(ToolErrorKind))), "None, semantic, execution or policy")
_IDENTITY = (or_none(is_a(AttemptIdentity)), "an AttemptIdentity or None")
_CALL = (or_none(_fits(_ACTION)), "None or an object of name, args and action_id")
_CLOSED = (_is_closure, f"empty or a {_CLOSURE_VERSION} with different slots")
_FIELD_CHECKS: tuple[FieldCheck, ...] = (
    ("unknown_schema_version", "schema_version", one_of(_VERSION), _VERSION),
    _choice("invalid_terminal_status", "status", ToolResultStatus),
    ("invalid_error_kind", "error_kind", *_KIND),
    _choice("invalid_effect_state", "effect_state", EffectState),
    _choice("invalid_retry_disposition", "retry_disposition", RetryDisposition),
    (_FIELD, _TEXTS, or_none(is_a(str)), "text or None"),
    ("invalid_attempt_identity", "attempt_id", *_IDENTITY),
    (_FIELD, _FLAGS, is_a(bool), "a bool"),
    (_FIELD, "attempts", is_count, "an int >= 0"),
    # False for NaN, and exact for an int too large for a float.
    (_FIELD, "latency_ms", lambda v: is_number(v) and 0 <= v <= sys.float_info.max, "finite, >= 0"),
    (_FIELD, "owner_generation", or_none(is_count), "an int >= 0 or None"),
    (_FIELD, "omitted", _are_counts, "an object of ints >= 0"),
    (_FIELD, "next_action", *_CALL),
    (_FIELD, "metadata normalized_request provenance", is_a(dict), "an object"),
    (_FIELD, "declared_effects filesystem_changes", _fits(_ROWS), "an array of objects"),
    ("invalid_artifact_ref", "artifact_refs", _are_refs, "ArtifactRefs with different ids"),
    ("invalid_batch_closure", "batch_closure", *_CLOSED),
)
_KIND_OF_STATUS = {"skipped": "policy", "timed_out": "execution", "cancelled": "execution"}
_OUTCOME, _EFFECT = "contradictory_outcome", "contradictory_effect"
_RETRY = "unsafe_retry_disposition"


def _state_fault(r: Any) -> tuple[str, str] | None:
    """Code and words of the first rule that the fields break together, or None."""
    success, running, effect = r.status == "success", r.worker_still_running, r.effect_state
    unknown, reconciled, retry = r.outcome_unknown, r.reconciliation_required, r.retry_disposition
    silent = r.error is r.error_kind is r.error_code is None
    lacks = not success and not (r.error_kind and r.error_code)
    kind = _KIND_OF_STATUS.get(r.status, r.error_kind)
    runs = running and r.status not in ("timed_out", "cancelled")
    alone = (effect == "no_effect_declared") != (r.effect_ref is None)
    closed = unknown and effect not in ("started", "unknown", "reconciliation_required")
    free = r.recoverable and effect in ("no_effect_declared", "not_started", "rejected")
    unsettled = not free or unknown or reconciled or running
    sure, unflagged = not (unknown or reconciled), not (unknown and reconciled)
    # A code, whether its rule is broken, and what the rule is.
    rules = (
        (_OUTCOME, success and not silent, "a success has no error, error_kind or error_code"),
        (_OUTCOME, success and running, "a success has no running worker"),
        (_OUTCOME, lacks, "a failure has an error_kind and an error_code"),
        (_OUTCOME, r.error_kind != kind, f"a {r.status} call has the error_kind {kind}"),
        (_OUTCOME, runs, "only a timed_out or cancelled call has a worker"),
        (_EFFECT, alone, "effect_ref and an effect in effect_state go together"),
        (_EFFECT, effect == "unknown" and not unknown, "an unknown effect needs outcome_unknown"),
        (_EFFECT, effect == "reconciliation_required" and unflagged, f"{effect} needs both flags"),
        (_EFFECT, closed, f"outcome_unknown with the effect {effect}"),
        (_RETRY, retry == "retryable" and unsettled, f"{retry} needs recoverable and no effect"),
        (_RETRY, retry == "blocked_worker_running" and not running, f"{retry} needs a worker"),
        (_RETRY, retry == "requires_reconciliation" and sure, f"{retry} needs uncertainty"),
    )
    return next(((code, what) for code, broken, what in rules if broken), None)
