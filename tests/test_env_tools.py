"""The tools that work through an environment: what they do and refuse."""

from __future__ import annotations

import os

import pytest

from tool_results import result_of

from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.kit.env import HostEnv, WorkspaceEnv
from qitos_min.kit.tool import EnvToolSet
from workspaces import Minimal, call, make_source, posix_only


@pytest.fixture
def source(tmp_path):
    return make_source(tmp_path)


@pytest.fixture(params=[HostEnv, WorkspaceEnv])
def env(request, source):
    made = request.param(source)
    yield made
    made.close()


TOOLS = {
    "read_file": {"path": "a.txt"},
    "edit_file": {"path": "a.txt", "old_text": "one", "replacement": "x"},
    "write_file": {"path": "a.txt", "content": "x"},
    "list_files": {},
    "run_command": {"command": "exit 0"},
}


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("context", [None, {}, {"env": None}, {"env": Minimal()}])
def test_without_operations_of_an_environment_nothing_happens(
    source, monkeypatch, name, context
):
    monkeypatch.chdir(source)
    before = (source / "a.txt").read_bytes()
    group = "process" if name == "run_command" else "file"
    words = f"this tool needs an environment with {group!r} operations"
    method = getattr(EnvToolSet(), name)
    direct = method.execute(TOOLS[name], context)
    assert (direct.status, direct.error_code) == ("error", "env_required")
    assert direct.error.endswith(f": {words}")
    registry = ToolRegistry().include_toolset(EnvToolSet())
    called = result_of(registry, name, runtime_context=context, **TOOLS[name])
    assert (called.status, called.error_code) == ("error", "env_required")
    assert (source / "a.txt").read_bytes() == before


def test_read_file_counts_lines_from_one(env):
    result = call(env, "read_file", path="a.txt", line_offset=2, line_limit=1)
    assert (result.status, result.output) == ("success", "2\ttwo")
    assert result.metadata["selection_receipt"]["total_lines"] == 2
    assert call(env, "read_file", path="a.txt").output == "1\tone\n2\ttwo"
    assert call(env, "read_file", path="a.txt", line_limit=1).metadata[
        "selection_receipt"
    ]["has_more"]
    for window in ({"line_offset": 0}, {"line_offset": -1}, {"line_limit": 0}):
        result = call(env, "read_file", path="a.txt", **window)
        assert (result.status, result.error_code) == ("error", "invalid_read_window")


def test_edit_file_keeps_the_line_ends(env):
    result = call(
        env, "edit_file", path="a.txt", old_text="one\ntwo", replacement="1\n2"
    )
    assert result.status == "success"
    assert env.files.read_bytes("a.txt") == b"1\r\n2\r\n"
    assert call(
        env, "edit_file", path="a.txt", old_text="\n", replacement="!", replace_all=True
    ).is_success
    assert env.files.read_bytes("a.txt") == b"1!2!"


BAD_EDITS = {
    "stale_file": {"old_text": "one", "expected_sha256": "0" * 64},
    "text_not_found": {"old_text": "three"},
    "ambiguous_edit": {"old_text": "o"},
    "invalid_edit": {"old_text": "x"},
}


@pytest.mark.parametrize("code", BAD_EDITS)
def test_edit_file_refuses(env, code):
    args = {"path": "a.txt", "replacement": "x", **BAD_EDITS[code]}
    result = call(env, "edit_file", **args)
    assert (result.status, result.error_code) == ("error", code)
    assert result.error.startswith("cannot edit 'a.txt': ")
    assert env.files.read_bytes("a.txt") == b"one\r\ntwo\r\n"


@pytest.mark.parametrize(
    "path, code",
    [
        ("../x", "path_outside_workspace"),
        (".env", "protected_path"),
        ("none/.git/x", "protected_path"),
    ],
)
@pytest.mark.parametrize("name", [name for name in TOOLS if name != "run_command"])
def test_no_tool_leaves_the_workspace_or_touches_what_is_protected(
    env, name, path, code
):
    result = call(env, name, **{**TOOLS[name], "path": path})
    assert (result.status, result.error_code) == ("error", code)
    assert repr(path) in result.error
    assert (env.files.root / ".env").read_bytes() == b"KEY=secret"


@pytest.mark.parametrize(
    "name, args, code",
    [
        ("read_file", {"path": "none"}, "file_read_failed"),
        ("read_file", {"path": "src"}, "file_read_failed"),
        (
            "edit_file",
            {"path": "none", "old_text": "a", "replacement": "b"},
            "file_edit_failed",
        ),
        ("write_file", {"path": "src", "content": ""}, "file_write_failed"),
        ("write_file", {"path": ".", "content": ""}, "file_write_failed"),
        ("write_file", {"path": "a.txt/b", "content": ""}, "file_write_failed"),
        ("list_files", {"path": "none"}, "file_list_failed"),
        ("run_command", {"command": "exit 0", "timeout": 0}, "command_failed"),
        ("run_command", {"command": "a\0b"}, "command_failed"),
    ],
)
def test_what_cannot_be_done_is_an_error_result(env, name, args, code):
    result = call(env, name, **args)
    assert (result.status, result.error_code) == ("error", code)


def test_write_file_writes_text_as_it_is(env):
    result = call(env, "write_file", path="x/y.txt", content="a\r\nb\n\u5bd2")
    assert (result.status, result.output["size"]) == ("success", 8)
    assert env.files.read_bytes("x/y.txt") == "a\r\nb\n\u5bd2".encode()
    result = EnvToolSet().write_file("x/y.txt", "\ud800", {"env": env})
    assert (result.status, result.error_code) == ("error", "file_write_failed")
    assert env.files.read_bytes("x/y.txt") == "a\r\nb\n\u5bd2".encode()


def test_list_files_says_when_there_are_more(env):
    result = call(env, "list_files", limit=1)
    assert (result.output, result.metadata) == (["a.txt"], {"has_more": True})
    result = call(env, "list_files", limit=2)
    assert result.output == ["a.txt", "src/b.txt"]
    assert result.metadata == {"has_more": False}


@posix_only
def test_a_file_name_that_is_not_utf8_can_be_listed(env):
    try:
        open(os.fsencode(env.files.root) + b"/\xff.txt", "wb").close()
    except OSError:
        pytest.skip("this file system wants UTF-8 names")
    assert call(env, "list_files").output == ["a.txt", "\ufffd.txt", "src/b.txt"]


def test_run_command_tells_how_the_command_ended(env):
    result = call(env, "run_command", command="echo hi")
    assert (result.status, result.output["stdout"].strip()) == ("success", "hi")
    result = call(env, "run_command", command="exit 3")
    assert (result.status, result.error_code) == ("error", "command_failed")
    assert result.error == "command ended with exit status 3"
    assert result.output == {"returncode": 3, "stdout": "", "stderr": ""}


@posix_only
def test_run_command_admits_that_it_does_not_know(env):
    result = call(env, "run_command", command="echo hi; sleep 9", timeout=0.2)
    assert (result.status, result.error_code) == ("timed_out", "command_timed_out")
    assert (result.outcome_unknown, result.effect_state) == (True, "unknown")
    assert not result.worker_still_running
    assert result.output["stdout"] == "hi\n"


@posix_only
def test_a_command_that_would_fill_the_disk_is_killed(env):
    result = call(env, "run_command", command="yes", timeout=20)
    assert (result.status, result.error_code) == ("error", "command_failed")
    assert result.error == "command wrote more than 100000000 bytes of output"
    assert result.output["stdout"].startswith("y\ny\n")
    assert (result.outcome_unknown, result.effect_state) == (True, "unknown")
