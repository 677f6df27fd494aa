"""A portable pointer to a stored body: what it is, never where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._contract import ContractError, FieldCheck, Record
from ._contract import check_fields, exact_values, is_a, is_count, matches, one_of, or_none

ARTIFACT_REF_SCHEMA_VERSION = "qitos.artifact_ref/v1"


class ArtifactContractError(ContractError):
    """An artifact, or a reference to one, that breaks its contract."""

    version_code, form_code = "unsupported_artifact_schema", "invalid_artifact_reference"
    no_mapping, other_keys = "expected a mapping", "expected exactly the 11 keys of the contract"


@dataclass(frozen=True)
class ArtifactRef(Record):
    """Points to a body by its content, never by a path; raises ArtifactContractError."""

    artifact_id: str  # Unique among the references of one result.
    resolver_key: str  # Names the kind of store that can give the body.
    sha256: str  # Of the body: 64 lower-case hexadecimal digits.
    media_type: str  # ``type/subtype``, without parameters.
    byte_length: int
    encoding: str = "binary"  # ``binary``, or the text encoding of the body.
    sensitivity: str = "internal"  # ``public``, ``internal``, ``confidential`` or ``restricted``.
    provenance_digest: str | None = None  # SHA-256 of what the body was made from, if known.
    model_summary: str | None = None  # What a model may read about the body.
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
        return cls(**exact_values(value, cls, ArtifactContractError))


_REFERENCE, _DIGEST = "invalid_artifact_reference", "invalid_artifact_digest"
_VERSION = ARTIFACT_REF_SCHEMA_VERSION
_is_digest = matches(r"[0-9a-f]{64}")
_NAME_WORDS = "a letter or digit, then letters, digits or . _ : @ + -, at most 256"
_NAME = (matches(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,255}"), _NAME_WORDS)
_MEDIA_WORD = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_LEVELS = ("public", "internal", "confidential", "restricted")
# Not blank, and without lone surrogates, which have no UTF-8 form.
_is_summary = or_none(matches("(?s)(?!\\s*\\Z)[^\ud800-\udfff]{1,1024}"))
_SUMMARY_WORDS = "None or text that is not blank, at most 1024 characters"
_LEVEL_WORDS = "public, internal, confidential or restricted"

# In the order in which a reference is judged: the first broken row gives the code.
_CHECKS: tuple[FieldCheck, ...] = (
    ("unsupported_artifact_schema", "schema_version", one_of(_VERSION), _VERSION),
    (_REFERENCE, "artifact_id resolver_key encoding", *_NAME),
    (_REFERENCE, "media_type", matches(rf"{_MEDIA_WORD}/{_MEDIA_WORD}"), "type/subtype"),
    (_REFERENCE, "required", is_a(bool), "a bool"),
    (_DIGEST, "sha256", _is_digest, "64 lower-case hex digits"),
    (_DIGEST, "provenance_digest", or_none(_is_digest), "None or 64 lower-case hex digits"),
    ("invalid_artifact_size", "byte_length", is_count, "an int >= 0"),
    ("invalid_artifact_sensitivity", "sensitivity", one_of(*_LEVELS), _LEVEL_WORDS),
    ("unsafe_model_projection", "model_summary", _is_summary, _SUMMARY_WORDS),
)
