"""A portable pointer to a stored body: what it is, never where it lies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ._contract import ContractError, FieldCheck, Record
from ._contract import check_fields, exact_values, is_a, is_count, one_of, or_none

__all__ = ["ARTIFACT_REF_SCHEMA_VERSION", "ArtifactContractError", "ArtifactRef"]

ARTIFACT_REF_SCHEMA_VERSION = "qitos.artifact_ref/v1"

_SUMMARY_LIMIT = 1024
_MEDIA_WORD = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"


class ArtifactContractError(ContractError):
    """An artifact, or a reference to one, that breaks its contract."""


@dataclass(frozen=True)
class ArtifactRef(Record):
    """Points to a body by its content; holds neither the body nor a host path.

    Raises ArtifactContractError when a field breaks the contract.
    """

    artifact_id: str  # Unique among the references of one result.
    resolver_key: str  # Names the kind of store that can give the body.
    sha256: str  # Of the body: 64 lower-case hexadecimal digits.
    media_type: str  # ``type/subtype``, without parameters.
    byte_length: int
    encoding: str = "binary"  # ``binary``, or the text encoding of the body.
    sensitivity: str = "internal"  # ``public``, ``internal``, ``confidential`` or ``restricted``.
    provenance_digest: str | None = None
    """SHA-256 of what the body was made from, if that is known."""
    model_summary: str | None = None
    """What a model may read about the body: at most 1024 characters."""
    required: bool = True  # Whether a missing body is an error.
    schema_version: str = ARTIFACT_REF_SCHEMA_VERSION

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS, ArtifactContractError)

    def to_model_projection(self) -> dict[str, Any]:
        """What a model may know: no digests, and not where the body is kept."""
        names = ("artifact_id", "media_type", "byte_length", "model_summary")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, value: Any) -> ArtifactRef:
        """Reads a mapping with exactly the 11 keys; raises ArtifactContractError."""
        code = "invalid_artifact_reference"
        if not isinstance(value, Mapping):
            raise ArtifactContractError(code, f"expected a mapping, got {type(value).__qualname__}")
        if value.get("schema_version") != ARTIFACT_REF_SCHEMA_VERSION:
            raise ArtifactContractError(
                _VERSION_CHECK[0], f"schema_version must be {_VERSION_CHECK[3]}"
            )
        try:
            return cls(**exact_values(value, cls.__dataclass_fields__))
        except ArtifactContractError:
            raise
        except ValueError as error:
            what = f"expected exactly the 11 keys of the contract, {error}"
            raise ArtifactContractError(code, what) from None


def _matches(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value))


def _is_summary(value: Any) -> bool:
    # A lone surrogate has no UTF-8 form, so no JSON file could hold it.
    fits = isinstance(value, str) and bool(value.strip()) and len(value) <= _SUMMARY_LIMIT
    return fits and not re.search("[\ud800-\udfff]", value)


_is_digest = _matches(r"[0-9a-f]{64}")
_SENSITIVITIES = ("public", "internal", "confidential", "restricted")
_VERSION_CHECK: FieldCheck = (
    "unsupported_artifact_schema",
    "schema_version",
    one_of(ARTIFACT_REF_SCHEMA_VERSION),
    ARTIFACT_REF_SCHEMA_VERSION,
)
_REFERENCE, _DIGEST = "invalid_artifact_reference", "invalid_artifact_digest"
_NAME_WORDS = "a letter or digit, then letters, digits or . _ : @ + -, at most 256"
_SUMMARY_WORDS = f"None or text that is not blank, at most {_SUMMARY_LIMIT} characters"
_is_name = _matches(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,255}")

# In the order in which a reference is judged: the first broken row gives the code.
_CHECKS: tuple[FieldCheck, ...] = (
    _VERSION_CHECK,
    (_REFERENCE, "artifact_id resolver_key encoding", _is_name, _NAME_WORDS),
    (_REFERENCE, "media_type", _matches(rf"{_MEDIA_WORD}/{_MEDIA_WORD}"), "type/subtype"),
    (_REFERENCE, "required", is_a(bool), "a bool"),
    (_DIGEST, "sha256", _is_digest, "64 lower-case hex digits"),
    (_DIGEST, "provenance_digest", or_none(_is_digest), "None or 64 lower-case hex digits"),
    ("invalid_artifact_size", "byte_length", is_count, "an int >= 0"),
    (
        "invalid_artifact_sensitivity",
        "sensitivity",
        one_of(*_SENSITIVITIES),
        "public, internal, confidential or restricted",
    ),
    ("unsafe_model_projection", "model_summary", or_none(_is_summary), _SUMMARY_WORDS),
)
