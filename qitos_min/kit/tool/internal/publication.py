"""Brings chosen files of a workspace copy back to the folder they were copied from."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ....core.artifact import ArtifactContractError, ArtifactRef
from ....core.tool import BaseTool, ToolPermission
from ....core.tool_result import ToolResult
from ..._folder import FileRefusal, is_protected, read_regular
from ...env import WorkspaceEnv, entry_of
from ._swap import NewFile, RollbackFailed, swap_files

__all__ = ["SandboxPublicationTool"]

_Output = tuple[NewFile, ArtifactRef]


class SandboxPublicationTool(BaseTool):
    """Publishes files that its creator chose, for the input that its creator saw.

    ``paths`` are names of regular files directly in the workspace. The call takes no
    arguments, works only in a run whose environment is ``env``, and publishes all
    files or none. ``env.artifact_store``, or ``artifact_resolver`` of the runtime
    context, keeps each body. POSIX only.

    Raises:
        TypeError: ``env`` is no WorkspaceEnv, or ``paths`` is a single text.
    """

    name = "publish_workspace"
    description = "Publish the approved files of the workspace to their source folder."
    input_schema = {"type": "object", "properties": {}, "additionalProperties": False}
    permissions = ToolPermission(filesystem_write=True)
    needs_approval = True

    def __init__(
        self, env: WorkspaceEnv, *, paths: Iterable[str], expected_input_digest: str
    ) -> None:
        super().__init__()
        if not isinstance(env, WorkspaceEnv):
            raise TypeError(f"env must be a WorkspaceEnv, got {type(env).__qualname__}")
        if isinstance(paths, (str, bytes)):
            raise TypeError(f"paths must be a list of paths, got one text {paths!r}")
        self._env = env
        self._paths = tuple(paths)
        self._expected_input_digest = expected_input_digest
        self._generation = env.processes.generation

    def execute(
        self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None
    ) -> ToolResult:
        """Publish; a refusal names its reason and leaves every file as it was."""
        effect = f"publication:{self._expected_input_digest}"
        try:
            outputs = self._publish(args, runtime_context or {})
        except (FileRefusal, ArtifactContractError) as error:
            return ToolResult.policy_error(code=error.code, error=str(error))
        except OSError as error:
            return ToolResult.execution_error(
                code="publication_failed",
                error=f"nothing was published: {error.strerror or type(error).__name__}",
                effect_ref=effect,
                effect_state="rejected",
            )
        except RollbackFailed as error:
            return ToolResult.execution_error(
                code="publication_rollback_failed",
                error=f"the publication stopped half way, {error}",
                metadata={"kept": error.kept},
                effect_ref=effect,
                effect_state="unknown",
                outcome_unknown=True,
                reconciliation_required=True,
                retry_disposition="requires_reconciliation",
            )
        done = {new.name: ref for new, ref in outputs}
        return ToolResult(
            output=f"published {', '.join(done)}",
            artifact_refs=tuple(done.values()),
            filesystem_changes=[
                {"path": name, "operation": "publish", "sha256_after": ref.sha256}
                for name, ref in done.items()
            ],
            effect_ref=effect,
            effect_state="committed",
        )

    def _publish(self, args: dict[str, Any], context: dict[str, Any]) -> list[_Output]:
        """All checks in their order, then the files."""
        self._require_authority(args, context)
        store = self._require_store(context)
        found = [
            self._read_output(index, name, store)
            for index, name in enumerate(self._paths)
            if not any(is_fault(name) for _, is_fault, _ in _PATH_FAULTS)
        ]
        outputs = [output for output in found if output is not None]
        self._require_selection(outputs)
        self._require_sources(*self._paths)
        with _locked(self._env):
            for new, ref in outputs:
                store.put(ref, new.body)
            files = [new for new, _ in outputs]
            swap_files(self._env.source, files, self._require_sources)
        return outputs

    def _require_authority(self, args: Any, context: dict[str, Any]) -> None:
        env = self._env
        if args or context.get("env") is not env:
            raise FileRefusal(
                "publication_authority_mismatch",
                "the call takes no arguments, and the environment it was made for",
            )
        if env.processes.generation != self._generation:
            raise FileRefusal("stale_generation", "the environment was stopped after the approval")
        if env.input_digest != self._expected_input_digest:
            raise FileRefusal("publication_input_mismatch", "the environment has another input")

    def _require_store(self, context: dict[str, Any]) -> Any:
        store = self._env.artifact_store or context.get("artifact_resolver")
        if store is None or not store.probe():
            raise FileRefusal("artifact_store_unavailable", "no artifact store that can be written")
        return store

    def _read_output(self, index: int, name: str, store: Any) -> _Output | None:
        """One file of the workspace, or None when there is none of this name."""
        root = self._env.files.root
        path = root / name
        entry = entry_of(path)
        if entry == "absent":
            return None
        conflict = FileRefusal(
            "publication_output_conflict", "not one unchanging regular file", name
        )
        if root.resolve() != root or not entry.startswith("file "):
            raise conflict
        body, mode = read_regular(path), path.lstat().st_mode
        digest = hashlib.sha256(body).hexdigest()
        if entry != f"file {digest}" or not stat.S_ISREG(mode):
            raise conflict
        ref = ArtifactRef(
            artifact_id=f"published-{index}-{digest}",
            resolver_key=store.resolver_key,
            sha256=digest,
            media_type="application/octet-stream",
            byte_length=len(body),
            provenance_digest=self._env.input_digest,
        )
        # What the source holds by then must be what was copied, or nothing.
        replaces = name in self._env.input_entries
        return NewFile(name, body, stat.S_IMODE(mode) & 0o777, replaces), ref

    def _require_selection(self, outputs: list[_Output]) -> None:
        for code, is_fault, reason in _PATH_FAULTS:
            for name in self._paths:
                if is_fault(name):
                    raise FileRefusal(code, f"{reason}, got {name!r}")
        distinct = {name.casefold() for name in self._paths}
        if not distinct or len(distinct) < len(self._paths):
            raise FileRefusal("publication_selection_invalid", "name at least one file, each once")
        missing = set(self._paths) - {new.name for new, _ in outputs}
        if missing:
            raise FileRefusal(
                "publication_selection_invalid",
                f"not in the workspace: {', '.join(sorted(missing))}",
            )

    def _require_sources(self, *names: str) -> None:
        """Files of the source must be as they were copied."""
        source = self._env.source
        if source.resolve() != source:
            raise FileRefusal("publication_link_rejected", "the source became a link")
        entries = {name: entry_of(source / name) for name in names}
        inputs = self._env.input_entries
        for code, is_fault, reason in _SOURCE_FAULTS:
            for name, entry in entries.items():
                if is_fault(entry, inputs.get(name, "absent")):
                    raise FileRefusal(code, reason, name)


def _is_path(name: Any) -> bool:
    if not isinstance(name, str) or not name.isprintable() or "\\" in name:
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))


_PATH_FAULTS = (
    (
        "publication_path_invalid",
        lambda name: not _is_path(name),
        "a path must be a plain relative one",
    ),
    (
        "publication_protected_path",
        lambda name: any(map(is_protected, name.split("/"))),
        "a path must have no protected name",
    ),
    (
        "nested_publication_unsupported",
        lambda name: "/" in name,
        "a path must lie directly in the workspace",
    ),
)


# A link or special file has no content that could have changed; it has its own code.
_SOURCE_FAULTS = (
    (
        "publication_source_conflict",
        lambda entry, before: entry != before and entry.startswith(("file ", "absent")),
        "changed in the source since the workspace was copied",
    ),
    (
        "publication_link_rejected",
        lambda entry, before: entry.startswith("link "),
        "a link in the source",
    ),
    (
        "publication_special_file",
        lambda entry, before: entry in ("folder", "special"),
        "no regular file in the source",
    ),
)


@contextmanager
def _locked(env: WorkspaceEnv) -> Iterator[None]:
    """Keep other publications away from the source folder."""
    busy = FileRefusal("publication_workspace_busy", "the workspace is in use")
    if env.processes.running:
        raise busy
    try:
        import fcntl  # exists on POSIX only
    except ImportError:
        raise FileRefusal(
            "publication_platform_unsupported", "publication needs a POSIX system"
        ) from None
    descriptor = os.open(env.source, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        yield
    finally:
        os.close(descriptor)
