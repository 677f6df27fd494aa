"""Keeps the bodies of artifacts in a folder, each under its own digest."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..core._contract import check_count
from ..core._foreign import summary
from ..core.artifact import ArtifactContractError, ArtifactRef
from ._folder import beside, read_regular

_UNAVAILABLE = "artifact_store_unavailable"


@dataclass(frozen=True)
class ResolvedArtifact:
    """A reference with its body; None for a missing one that is not required."""

    reference: ArtifactRef
    body: bytes | None


class FileArtifactStore:
    """A folder of bodies of up to ``max_artifact_bytes``, which stores and processes may share."""

    resolver_key = "file-artifact-store"  # of the references to bodies in such a store

    def __init__(self, root: str | Path, max_artifact_bytes: int = 16 * 1024 * 1024) -> None:
        check_count(max_artifact_bytes, "max_artifact_bytes", least=1)
        self.root, self.max_artifact_bytes = Path(root), max_artifact_bytes

    def __repr__(self) -> str:
        return summary(self, str(self.root))

    def put(self, ref: ArtifactRef, body: bytes) -> ArtifactRef:
        """Stores ``body``, which must be as ``ref`` says (else ArtifactContractError)."""
        path = self._path(ref, body)
        try:
            if not self.probe(ref):
                path.parent.mkdir(parents=True, exist_ok=True)
                with beside(path, body) as new:
                    os.replace(new, path)
        except OSError as error:
            # On Windows another thread that stores the same body may be in the way.
            if not self.probe(ref):
                raise _refused(ref, _UNAVAILABLE, f"cannot be stored, {error.strerror}") from error
        return ref

    def resolve(self, ref: ArtifactRef) -> ResolvedArtifact:
        """Reads and verifies a body; ArtifactContractError for none that is required and right."""
        path = self._path(ref)
        try:
            # One byte more than there should be is enough to see that it is too long.
            body = read_regular(path, ref.byte_length + 1)
        except FileNotFoundError:
            if ref.required:
                raise _refused(ref, "missing_required_artifact", "is not in the store") from None
            return ResolvedArtifact(ref, None)
        except OSError as error:
            raise _refused(ref, _UNAVAILABLE, f"cannot be read, {error.strerror}") from error
        self._path(ref, body)
        return ResolvedArtifact(ref, body)

    def probe(self, ref: ArtifactRef | None = None) -> bool:
        """Whether ``ref`` resolves to its body; without it, whether ``put`` could."""
        try:
            if ref is not None:
                return self.resolve(ref).body is not None
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                return True
        except (ArtifactContractError, OSError):
            return False

    def _path(self, ref: ArtifactRef, body: bytes | None = None) -> Path:
        """Where a body is, if it may be in this store and is what the reference says."""
        size = ref.byte_length if body is None else len(body)
        if ref.resolver_key != self.resolver_key:
            raise _refused(ref, "invalid_artifact_reference", "belongs to a store of another kind")
        if size > self.max_artifact_bytes:
            what = f"has {size} bytes, more than {self.max_artifact_bytes}"
            raise _refused(ref, "artifact_store_limit", what)
        digest = ref.sha256 if body is None else hashlib.sha256(body).hexdigest()
        if (size, digest) != (ref.byte_length, ref.sha256):
            raise _refused(ref, "artifact_integrity_mismatch", "has another length or digest")
        return self.root / ref.sha256[:2] / ref.sha256


def _refused(ref: ArtifactRef, code: str, what: str) -> ArtifactContractError:
    return ArtifactContractError(code, f"artifact {ref.artifact_id} {what}")
