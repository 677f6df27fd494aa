"""Brings chosen files of a workspace copy back to the folder they were copied from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any

from ....core import BaseTool, ToolPermission, ToolResult
from ....core.artifact import ArtifactContractError, ArtifactRef
from ..._folder import FileRefusal, beside, is_protected, lock_of, need, read_regular
from ...env import WorkspaceEnv, entry_of

_POSIX = os.name == "posix"
# What a path must do, in the order in which it is told.
_PATH_RULES = {
    "publication_path_invalid": "be a plain relative one",
    "publication_protected_path": "have no protected name",
    "nested_publication_unsupported": "lie directly in the workspace",
}


class _RollbackFailed(Exception):
    """Some files are new and some are old: the names, each with where the old file is."""


class SandboxPublicationTool(BaseTool):
    """Publishes files that its creator chose, for the input that its creator saw.

    ``paths`` are names of regular files directly in ``env``, a WorkspaceEnv (else TypeError). A
    call publishes all or none; ``env.artifact_store`` or ``artifact_resolver`` keeps each body.
    """

    name = "publish_workspace"
    description = "Publish the approved files of the workspace to their source folder."
    input_schema = {"type": "object", "properties": {}, "additionalProperties": False}
    permissions = ToolPermission(filesystem_write=True)
    needs_approval = True

    def __init__(self, env: Any, *, paths: Iterable[str], expected_input_digest: str) -> None:
        super().__init__()
        if not isinstance(env, WorkspaceEnv):
            raise TypeError(f"env must be a WorkspaceEnv, got {type(env).__qualname__}")
        self._env: WorkspaceEnv = env
        self._paths, self._digest = tuple(paths), expected_input_digest
        self._generation = env.processes.generation

    def execute(self, args: dict[str, Any], runtime_context: Any = None) -> ToolResult:
        """Publish; a refusal names its reason and leaves every file as it was."""
        effect: dict[str, Any] = {"effect_ref": f"publication:{self._digest}"}
        try:
            refs = self._publish(args, runtime_context or {})
        except (FileRefusal, ArtifactContractError) as error:
            return ToolResult.policy_error(code=error.code, error=str(error))
        except OSError as error:
            text = f"nothing was published: {error.strerror or type(error).__name__}"
            effect["effect_state"] = "rejected"
            return ToolResult.execution_error(code="publication_failed", error=text, **effect)
        except _RollbackFailed as error:
            (kept,) = error.args
            text = f"the publication stopped half way, not rolled back: {', '.join(kept)}"
            effect.update(effect_state="unknown", outcome_unknown=True, metadata={"kept": kept})
            code = "publication_rollback_failed"
            return ToolResult.execution_error(code=code, error=text, **effect)
        rows = [{"path": n, "operation": "publish", "sha256_after": refs[n].sha256} for n in refs]
        effect.update(effect_state="committed", artifact_refs=tuple(refs.values()))
        return ToolResult(output=f"published {', '.join(refs)}", filesystem_changes=rows, **effect)

    def _publish(self, args: Any, context: dict[str, Any]) -> dict[str, ArtifactRef]:
        env, paths = self._env, self._paths
        text = "the call takes no arguments, and the environment it was made for"
        need(not args and context.get("env") is env, "publication_authority_mismatch", text)
        same = env.processes.generation == self._generation
        need(same, "stale_generation", "the environment was stopped after the approval")
        same = env.input_digest == self._digest
        need(same, "publication_input_mismatch", "the environment has another input")
        store: Any = env.artifact_store or context.get("artifact_resolver")
        works = store is not None and store.probe()
        need(works, "artifact_store_unavailable", "no artifact store that can be written")
        faults = {name: _path_fault(name) for name in paths}
        known = sorted(name for name in paths if faults[name] is None)
        entries = {name: entry_of(env.files.root / name) for name in known}
        for name, entry in entries.items():
            fine = entry == "absent" or entry.startswith("file ")
            need(fine, "publication_output_conflict", "not a regular file", name)
        for code, rule in _PATH_RULES.items():
            for name in paths:
                need(faults[name] != code, code, f"a path must {rule}, got {name!r}")
        missing = ", ".join(name for name in known if entries[name] == "absent")
        once = len({name.casefold() for name in paths}) == len(paths) > 0
        need(once, "publication_selection_invalid", "name at least one file, each once")
        need(not missing, "publication_selection_invalid", f"not in the workspace: {missing}")
        bodies = {name: read_regular(env.files.root / name) for name in paths}
        for name in paths:
            self._check_source(name)
        need(not env.processes.running, "publication_workspace_busy", "the workspace is in use")
        need(_POSIX, "publication_platform_unsupported", "publication needs a POSIX system")
        refs = {}
        with lock_of(env.source), ExitStack() as held:
            for number, (name, body) in enumerate(bodies.items()):
                digest, origin = hashlib.sha256(body).hexdigest(), env.input_digest
                # The number is for files with the same content.
                known = f"published-{number}-{digest}", store.resolver_key, digest
                kind = "application/octet-stream", len(body)
                refs[name] = ArtifactRef(*known, *kind, provenance_digest=origin)
                store.put(refs[name], body)
            self._write(bodies, held)
        return refs

    def _write(self, bodies: dict[str, bytes], held: ExitStack) -> None:
        """Write each file beside its place, then move them all there, or back again."""
        kept: dict[str, str | None] = {}  # What could not be moved back, and the old file's name.
        staged, moved = [], []
        try:
            for name, body in bodies.items():
                self._check_source(name)
                target = self._env.source / name
                replaces = name in self._env.input_entries
                path = held.enter_context(beside(target, body, target if replaces else None))
                old = path.with_suffix(".old") if replaces else None
                staged.append((path, target, old))
                if old:
                    os.link(target, old)
                else:
                    os.chmod(path, (self._env.files.root / name).stat().st_mode & 0o777)
            for path, target, old in staged:
                self._check_source(target.name)
                # A link fails when there is a file by now.
                (os.replace if old else os.link)(path, target)
                moved.append((target, old))
        except BaseException as error:
            for target, old in reversed(moved):
                try:
                    os.replace(old, target) if old else os.unlink(target)
                except OSError:
                    kept[target.name] = old.name if old else None
            if kept:
                raise _RollbackFailed(kept) from error
            raise
        finally:
            for _, _, old in staged:
                if old and old.name not in kept.values():
                    with suppress(OSError):
                        old.unlink()

    def _check_source(self, name: str) -> None:
        """A file of the source must be as it was copied, or absent as it was."""
        entry = entry_of(self._env.source / name)
        kind, before = entry.partition(" ")[0], self._env.input_entries.get(name, "absent")
        need(kind != "link", "publication_link_rejected", "a link in the source", name)
        plain = kind in ("file", "absent")
        need(plain, "publication_special_file", "no regular file in the source", name)
        changed = "changed in the source since the workspace was copied"
        need(entry == before, "publication_source_conflict", changed, name)


def _path_fault(name: Any) -> str | None:
    parts = name.split("/") if isinstance(name, str) else [""]
    if any(part in ("", ".", "..") or "\\" in part or not part.isprintable() for part in parts):
        return "publication_path_invalid"
    if any(map(is_protected, parts)):
        return "publication_protected_path"
    return "nested_publication_unsupported" if len(parts) > 1 else None
