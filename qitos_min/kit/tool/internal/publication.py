"""Brings chosen files of a workspace copy back to the folder they were copied from."""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....core.artifact import ArtifactContractError, ArtifactRef
from ....core.tool import BaseTool, ToolPermission
from ....core.tool_result import ToolResult
from ..._folder import FileRefusal, is_protected, read_regular, write_new
from ...env import WorkspaceEnv, entry_of

__all__ = ["SandboxPublicationTool"]


class _RollbackFailed(Exception):
    """Some files are new and some are old, and it could not be helped."""


@dataclass
class _Output:
    """One file on its way: written beside its place, moved there, perhaps back."""

    target: Path
    body: bytes
    mode: int  # of a file that is new; a replaced one keeps its own
    ref: ArtifactRef
    replaces: bool

    def __post_init__(self) -> None:
        tag = uuid.uuid4().hex
        self.name = self.target.name
        self.new = self.target.with_name(f".{tag}.new")
        self.old = self.target.with_name(f".{tag}.old")
        self.inode: int | None = None
        self.stuck = False

    def stage(self) -> None:
        write_new(self.new, self.body, self.target if self.replaces else None)
        if self.replaces:
            os.link(self.target, self.old)
        else:
            os.chmod(self.new, self.mode)
        self.inode = self.new.lstat().st_ino

    def publish(self) -> None:
        """Move the new file to its place; a link fails when there is a file by now."""
        (os.replace if self.replaces else os.link)(self.new, self.target)

    def undo(self) -> None:
        """Put the old file back if the new one is in its place."""
        try:
            if os.path.lexists(self.target) and self.target.lstat().st_ino == self.inode:
                if self.replaces:
                    os.replace(self.old, self.target)
                else:
                    os.unlink(self.target)
        except OSError:
            self.stuck = True

    def clean(self) -> None:
        for path in (self.new,) if self.stuck else (self.new, self.old):
            with suppress(OSError):
                os.unlink(path)


class SandboxPublicationTool(BaseTool):
    """Publishes files that its creator chose, for the input that its creator saw.

    ``paths`` are names of regular files directly in the workspace. The call takes no arguments,
    works only where ``env`` is the environment, and publishes all or none (POSIX only).
    ``env.artifact_store`` or the context's ``artifact_resolver`` keeps each body. TypeError
    when ``env`` is no WorkspaceEnv, or ``paths`` a single text.
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
        self._digest = expected_input_digest
        self._generation = env.processes.generation

    def execute(
        self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None
    ) -> ToolResult:
        """Publish; a refusal names its reason and leaves every file as it was."""
        effect = f"publication:{self._digest}"
        outputs: list[_Output] = []
        try:
            self._publish(args, runtime_context or {}, outputs)
        except (FileRefusal, ArtifactContractError) as error:
            return ToolResult.policy_error(code=error.code, error=str(error))
        except OSError as error:
            text = f"nothing was published: {error.strerror or type(error).__name__}"
            state = {"effect_ref": effect, "effect_state": "rejected"}
            return ToolResult.execution_error(code="publication_failed", error=text, **state)
        except _RollbackFailed:
            kept = {o.name: o.old.name if o.replaces else None for o in outputs if o.stuck}
            return ToolResult.execution_error(
                code="publication_rollback_failed",
                error=f"the publication stopped half way, not rolled back: {', '.join(kept)}",
                metadata={"kept": kept},
                effect_ref=effect,
                effect_state="unknown",
                outcome_unknown=True,
                reconciliation_required=True,
                retry_disposition="requires_reconciliation",
            )
        return ToolResult(
            output=f"published {', '.join(new.name for new in outputs)}",
            artifact_refs=tuple(new.ref for new in outputs),
            filesystem_changes=[
                {"path": new.name, "operation": "publish", "sha256_after": new.ref.sha256}
                for new in outputs
            ],
            effect_ref=effect,
            effect_state="committed",
        )

    def _publish(self, args: Any, context: dict[str, Any], outputs: list[_Output]) -> None:
        """All checks in their order, then the files; ``outputs`` are told meanwhile."""
        env, paths = self._env, self._paths
        if args or context.get("env") is not env:
            text = "the call takes no arguments, and the environment it was made for"
            raise FileRefusal("publication_authority_mismatch", text)
        if env.processes.generation != self._generation:
            raise FileRefusal("stale_generation", "the environment was stopped after the approval")
        if env.input_digest != self._digest:
            raise FileRefusal("publication_input_mismatch", "the environment has another input")
        store = env.artifact_store or context.get("artifact_resolver")
        if store is None or not store.probe():
            text = "no artifact store that can be written"
            raise FileRefusal("artifact_store_unavailable", text)
        faults = [_path_fault(name) for name in paths]
        for index, name in enumerate(paths):
            if faults[index] is None and entry_of(env.files.root / name) != "absent":
                outputs.append(self._read_output(index, name, store.resolver_key))
        _raise_first(faults)
        missing = sorted(set(paths) - {new.name for new in outputs})
        if not paths or len({name.casefold() for name in paths}) < len(paths):
            text = "name at least one file, each once"
            raise FileRefusal("publication_selection_invalid", text)
        if missing:
            text = f"not in the workspace: {', '.join(missing)}"
            raise FileRefusal("publication_selection_invalid", text)
        self._require_sources(*paths)
        with _locked(env):
            for new in outputs:
                store.put(new.ref, new.body)
            try:
                for put in (_Output.stage, _Output.publish):
                    for new in outputs:
                        self._require_sources(new.name)
                        put(new)
            except BaseException as error:
                for new in reversed(outputs):
                    new.undo()
                if any(new.stuck for new in outputs):
                    raise _RollbackFailed from error
                raise
            finally:
                for new in outputs:
                    new.clean()

    def _read_output(self, index: int, name: str, resolver_key: str) -> _Output:
        env, path = self._env, self._env.files.root / name
        entry = entry_of(path)
        regular = entry.startswith("file ") and env.files.root.resolve() == env.files.root
        body, mode = (read_regular(path), path.lstat().st_mode) if regular else (b"", 0)
        digest = hashlib.sha256(body).hexdigest()
        if entry != f"file {digest}" or not stat.S_ISREG(mode):
            text = "not one unchanging regular file"
            raise FileRefusal("publication_output_conflict", text, name)
        ref = ArtifactRef(
            artifact_id=f"published-{index}-{digest}",
            resolver_key=resolver_key,
            sha256=digest,
            media_type="application/octet-stream",
            byte_length=len(body),
            provenance_digest=env.input_digest,
        )
        # What the source holds by then must be what was copied, or nothing.
        replaces = name in env.input_entries
        return _Output(env.source / name, body, mode & 0o777, ref, replaces)

    def _require_sources(self, *names: str) -> None:
        """Files of the source must be as they were copied."""
        source, inputs = self._env.source, self._env.input_entries
        faults: list[_Fault] = []
        if source.resolve() != source:
            raise FileRefusal("publication_link_rejected", "the source became a link")
        for name in names:
            entry = entry_of(source / name)
            if entry.startswith("link "):
                fault = 1, "publication_link_rejected", "a link in the source"
            elif entry in ("folder", "special"):
                fault = 2, "publication_special_file", "no regular file in the source"
            elif entry != inputs.get(name, "absent"):
                text = "changed in the source since the workspace was copied"
                fault = 0, "publication_source_conflict", text
            else:
                continue
            faults.append((fault[0], FileRefusal(*fault[1:], name)))
        _raise_first(faults)


_Fault = tuple[int, FileRefusal] | None  # its rank among the faults of the other files


def _raise_first(faults: list[_Fault]) -> None:
    if found := [fault for fault in faults if fault is not None]:
        raise min(found, key=lambda fault: fault[0])[1]


def _path_fault(name: Any) -> _Fault:
    parts = name.split("/") if isinstance(name, str) else [""]
    if any(part in ("", ".", "..") or "\\" in part or not part.isprintable() for part in parts):
        rank, code, rule = 0, "publication_path_invalid", "be a plain relative one"
    elif any(map(is_protected, parts)):
        rank, code, rule = 1, "publication_protected_path", "have no protected name"
    elif len(parts) > 1:
        rank, code, rule = 2, "nested_publication_unsupported", "lie directly in the workspace"
    else:
        return None
    return rank, FileRefusal(code, f"a path must {rule}, got {name!r}")


@contextmanager
def _locked(env: WorkspaceEnv) -> Iterator[None]:
    """Keep other publications away from the source folder."""
    busy = FileRefusal("publication_workspace_busy", "the workspace is in use")
    if env.processes.running:
        raise busy
    try:
        import fcntl  # exists on POSIX only
    except ImportError:
        text = "publication needs a POSIX system"
        raise FileRefusal("publication_platform_unsupported", text) from None
    descriptor = os.open(env.source, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise busy from None
    finally:
        os.close(descriptor)
