"""The outcome of one tool call: 35 fields, checked when built and when shown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, get_args

from ._contract import ContractError, check_fields, exact_values, is_count, strict_copy
from ._json import to_json_value
from ._redact import redact
from ._shorten import fitted, joined
from ._tool_result_checks import (
    FIELD_CHECKS,
    STATE_FIELDS,
    TOOL_RESULT_SCHEMA_VERSION,
    EffectState,
    RetryDisposition,
    ToolErrorKind,
    ToolResultStatus,
    state_fault,
)
from .artifact import ArtifactContractError, ArtifactRef
from .session import AttemptIdentity

__all__ = [
    "EffectState",
    "RetryDisposition",
    "TOOL_RESULT_SCHEMA_VERSION",
    "ToolErrorKind",
    "ToolResult",
    "ToolResultContractError",
    "ToolResultStatus",
]

_SCHEMA_FAMILY = "qitos.tool_result/"


class ToolResultContractError(ContractError):
    """A result that breaks its contract."""


@dataclass
class ToolResult:
    """How one call ended, in full.

    Every value is checked and copied here, so that the caller's later changes do not
    reach the result; the ``to_`` views check again. Raises ToolResultContractError.
    """

    status: ToolResultStatus = "success"
    output: Any = None  # What the tool returned: any tree of JSON values.
    error: str | None = None  # What went wrong, for people and models.
    metadata: dict[str, Any] = field(default_factory=dict)
    tool_name: str | None = None
    action_id: str | None = None
    model_output: Any = None
    """What a model sees instead of ``output``: by default its ``model_summary``."""
    error_kind: ToolErrorKind | None = None
    """Whose fault it was: the request's, the execution's or a rule's."""
    error_code: str | None = None
    recoverable: bool = False  # Whether another request could succeed.
    recovery_hint: str | None = None
    next_action: dict[str, Any] | None = None
    """A suggested call: ``name``, ``args`` and perhaps ``action_id``."""
    complete: bool = True  # Whether the output is all there was to say.
    truncated: bool = False
    omitted: dict[str, int] = field(default_factory=dict)
    """How much was left out, by unit: ``{"lines": 120}``."""
    attempts: int = 1
    latency_ms: float = 0.0  # Time of the call in milliseconds, over all attempts.
    declared_effects: list[dict[str, Any]] = field(default_factory=list)
    filesystem_changes: list[dict[str, Any]] = field(default_factory=list)
    artifact_refs: tuple[ArtifactRef, ...] = ()  # Bodies kept in a store instead of here.
    normalized_request: dict[str, Any] = field(default_factory=dict)
    """The request as the tool understood it."""
    provenance: dict[str, Any] = field(default_factory=dict)
    worker_still_running: bool = False
    """Whether the worker outlives this result, as after a timeout."""
    attempt_id: AttemptIdentity | None = None
    effect_ref: str | None = None  # Names the effect that ``effect_state`` speaks of.
    effect_state: EffectState = "no_effect_declared"
    idempotency_ref: str | None = None
    retry_disposition: RetryDisposition = "not_evaluated"
    reconciliation_required: bool = False
    """Whether someone must look before anything is tried again."""
    outcome_unknown: bool = False  # Whether the effect may or may not have happened.
    late_result: bool = False
    owner_generation: int | None = None
    stale_owner: bool = False
    batch_closure: dict[str, Any] = field(default_factory=dict)
    """How the batch of this call was closed, slot by slot."""
    schema_version: str = TOOL_RESULT_SCHEMA_VERSION

    def __post_init__(self) -> None:
        vars(self).update(_checked(self))
        if self.model_output is None and isinstance(self.output, dict):
            summary = self.output.get("model_summary")
            self.model_output = summary if isinstance(summary, str) else None

    @classmethod
    def semantic_error(cls, *, code: str, error: str, **values: Any) -> ToolResult:
        """The request made no sense to the tool; ``values`` are further fields."""
        return cls(**_failure("semantic", code, error, **values))

    @classmethod
    def execution_error(cls, *, code: str, error: str, **values: Any) -> ToolResult:
        """The tool failed while it worked; ``values`` are further fields."""
        return cls(**_failure("execution", code, error, **values))

    @classmethod
    def policy_error(cls, *, code: str, error: str, **values: Any) -> ToolResult:
        """A rule forbade the call; ``values`` are further fields."""
        return cls(**_failure("policy", code, error, **values))

    @classmethod
    def from_value(cls, value: Any) -> ToolResult:
        """The result of a tool that returned ``value``.

        A result is copied and a mapping with a schema version of results is read
        strictly; both raise ToolResultContractError. The older mapping of ``status``,
        ``output``, ``error`` and ``metadata`` is read too. Anything else is the output
        of a success; if JSON cannot hold it, it is converted and ``metadata`` says so.
        """
        if isinstance(value, cls):
            return replace(value)
        metadata: dict[str, Any] = {}
        try:
            output = strict_copy(value)
        except Exception:  # Also what the items of a foreign mapping raise.
            output = to_json_value(value)
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            metadata = {"output_converted": True, "output_type": kind}
        if isinstance(output, dict):
            version = output.get("schema_version")
            if isinstance(version, str) and version.startswith(_SCHEMA_FAMILY):
                return cls.from_dict(value if isinstance(value, dict) else output)
            if _is_legacy(output):
                return cls(**_from_legacy(output, metadata))
        return cls(output=output, metadata=metadata)

    @classmethod
    def from_dict(cls, value: Any) -> ToolResult:
        """Reads what :meth:`to_dict` wrote; ``success`` may be absent.

        Raises ToolResultContractError, also for a missing or an unknown key.
        """
        code = "invalid_canonical_field"
        if not isinstance(value, Mapping):
            what = f"a result must be a mapping, got {type(value).__qualname__}"
            raise ToolResultContractError(code, what)
        if value.get("schema_version") != TOOL_RESULT_SCHEMA_VERSION:
            what = f"schema_version must be {TOOL_RESULT_SCHEMA_VERSION}"
            raise ToolResultContractError("unknown_schema_version", what)
        try:
            given = exact_values(value, [*_DEFAULTS, *(n for n in ("success",) if n in value)])
        except ValueError as error:
            what = f"a result has exactly the fields of the contract, {error}"
            raise ToolResultContractError(code, what) from None
        # What cannot be read is left as it is, for the check whose turn it is.
        with suppress(ValueError):
            given["attempt_id"] = AttemptIdentity.from_dict(given["attempt_id"])
        with suppress(ArtifactContractError, TypeError):
            refs = given["artifact_refs"]
            given["artifact_refs"] = tuple(map(ArtifactRef.from_dict, refs))
        success = given.pop("success", None)
        result = cls(**given)
        if "success" in value and success is not result.is_success:
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
        values = {**vars(self), **_checked(self)}
        record = {name: values[name] for name in _DEFAULTS}
        if self.attempt_id is not None:
            record["attempt_id"] = self.attempt_id.to_dict()
        record["artifact_refs"] = [ref.to_dict() for ref in self.artifact_refs]
        record["success"] = self.is_success
        return record

    def to_model_dict(self, max_chars: int = 4000) -> dict[str, Any]:
        """What a model may see, within ``max_chars`` characters over all its parts.

        ``model_output`` falls back to the output. A part counts as long as it is in
        JSON text. Keys and fixed words count too, up to half of the budget; short parts
        stay whole, the long ones share the rest, and so do the parts of an output that
        is an object. What is cut becomes text that keeps its beginning and its end,
        with ``...[TRUNCATED]`` between them.
        """
        if not is_count(max_chars):
            raise ValueError(f"max_chars must be an int >= 0, got {max_chars!r}")
        record = self.to_dict()
        if record["model_output"] is None:
            record["model_output"] = record["output"]
        view = {name: record[name] for name in _MODEL_FIELDS}
        # With other arguments the suggested call would be another one.
        return fitted(view, max_chars, whole=_NEVER_CUT, flat=["next_action"])

    def to_trace_safe_dict(self) -> dict[str, Any]:
        """Everything but the output, without secrets and host paths.

        ``redaction`` counts what was removed: values under secret names, secrets in
        texts, host paths, and characters of output.
        """
        record = self.to_dict()
        output = record.pop("output")
        safe, removed = redact(record)
        removed["output_chars"] = len(joined(output))
        safe["redaction"] = removed
        return safe


_DEFAULTS = {
    item.name: item.default_factory() if item.default is MISSING else item.default
    for item in fields(ToolResult)
}
_HOLDS = {name: holds for _, names, holds, _ in FIELD_CHECKS for name in names.split()}
_MODEL_FIELDS = (
    "schema_version status tool_name action_id model_output error error_code "
    "recoverable recovery_hint next_action".split()
)
_NEVER_CUT = ("schema_version", "status", "recoverable")


def _checked(result: ToolResult) -> dict[str, Any]:
    """Copies of the fields that are not their default, after every check in its order.

    A default fulfils the contract and cannot change, so it is passed over; an empty
    container can be filled, so it is always replaced.
    """
    given: dict[str, Any] = {}
    copied: dict[str, Any] = {}
    for name, value in vars(result).items():
        default = _DEFAULTS.get(name, value)
        if value is default:
            continue
        if type(value) is type(default) and not value and value == default:
            copied[name] = type(default)()
        else:
            given[name] = value
    if not all(_HOLDS[name](given[name]) for name in given if name in _HOLDS):
        check_fields(result, FIELD_CHECKS, ToolResultContractError)
    copied.update({name: _copied(name, value) for name, value in given.items()})
    fault = None if STATE_FIELDS.isdisjoint(given) else state_fault(result)
    if fault is not None:
        raise ToolResultContractError(*fault)
    return copied


def _copied(name: str, value: Any) -> Any:
    if name in ("artifact_refs", "attempt_id"):
        return tuple(value) if name == "artifact_refs" else value
    try:
        copy = strict_copy(value)
    except ValueError as error:
        raise ToolResultContractError("non_serializable_value", f"{name} holds {error}") from None
    return {**copy, "args": copy.get("args", {})} if name == "next_action" and copy else copy


def _failure(kind: str, code: str, error: str, /, **values: Any) -> dict[str, Any]:
    told = {"error_kind": kind, "error_code": code, "error": error}
    return {"status": "error", **values, **told}


def _is_legacy(value: dict[str, Any]) -> bool:
    # A tool's own dict may well have a "status"; the old form says how it ended, too.
    known = value.keys() <= {"status", "output", "error", "metadata"}
    return known and "status" in value and bool(value.keys() & {"output", "error"})


def _from_legacy(value: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    status, error = value["status"], value.get("error")
    given = value.get("metadata")
    read = {
        "output": value.get("output"),
        "metadata": {**(given if isinstance(given, dict) else {}), **metadata},
    }
    if status == "success" and not error:
        return read
    text = joined(error) or "the tool did not say what went wrong"
    if status not in get_args(ToolResultStatus):
        return read | _failure("execution", "legacy_status_unknown", text)
    # A success with an error is none.
    status = "error" if status == "success" else status
    kind = "policy" if status == "skipped" else "execution"
    return read | _failure(kind, f"legacy_{status}", text, status=status)
