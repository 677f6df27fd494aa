"""Folders that the tests of file tools and environments work in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tool_results import result_of

from qitos_min.core.env import Env, EnvObservation, EnvStepResult
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.core.tool_result import ToolResult
from qitos_min.kit.tool import CodingToolSet, EnvToolSet

posix_only = pytest.mark.skipif(os.name != "posix", reason="POSIX file system")


def make_source(place: Path) -> Path:
    """A folder with two text files, one below another folder, and a secret."""
    folder = place / "ws"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "src" / "b.txt").write_bytes(b"b\n")
    (folder / ".env").write_bytes(b"KEY=secret")
    return folder


def make_outside(workspace: Path) -> Path:
    """A folder whose name begins like the workspace's, with a secret in it."""
    folder = workspace.with_name("ws-evil")
    folder.mkdir()
    (folder / "x").write_bytes(b"secret")
    return folder


class Minimal(Env):
    """An environment without operations."""

    name = "minimal"

    def reset(self, task=None, workspace=None, **kwargs):
        return EnvObservation({"task": task})

    def observe(self, state=None):
        return EnvObservation({"seen": state})

    def step(self, action, state=None):
        return EnvStepResult(EnvObservation({"did": action}), done=action == "last")


def tree(folder: Path) -> dict[str, object]:
    """What is below a folder: bytes of files, targets of links."""
    return {
        path.relative_to(folder).as_posix(): (
            f"-> {os.readlink(path)}"
            if path.is_symlink()
            else path.read_bytes() if path.is_file() else None
        )
        for path in folder.rglob("*")
    }


def read(workspace, *args, **kwargs) -> ToolResult:
    """What ``Read`` of the host tools gives in a workspace."""
    result = CodingToolSet(workspace).Read(*args, **kwargs)
    assert isinstance(result, ToolResult)
    return result


def edit(workspace, *args, **kwargs) -> ToolResult:
    """The same for ``Edit``."""
    result = CodingToolSet(workspace).Edit(*args, **kwargs)
    assert isinstance(result, ToolResult)
    return result


def call(env, name, **args) -> ToolResult:
    """The result of one tool that works through ``env``."""
    registry = ToolRegistry().include_toolset(EnvToolSet())
    result = result_of(registry, name, runtime_context={"env": env}, **args)
    assert ToolResult.from_dict(result.to_dict()) == result
    return result
