"""Environments: a folder of the host, and a private copy of one."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from qitos_min.core.env import Env, EnvCapabilityError, EnvObservation, EnvStepResult
from qitos_min.core.errors import ErrorCategory, QitosRuntimeError
from qitos_min.kit._folder import FileRefusal
from qitos_min.kit.env import HostEnv, WorkspaceEnv
from workspaces import Minimal, call, make_source, posix_only


@pytest.fixture
def source(tmp_path):
    return make_source(tmp_path)


@pytest.fixture(params=[HostEnv, WorkspaceEnv])
def env(request, source):
    made = request.param(source)
    yield made
    made.close()


@pytest.fixture
def copy(source):
    made = WorkspaceEnv(source)
    yield made
    made.close()


def test_records_of_an_environment_have_their_defaults():
    assert asdict(EnvObservation()) == {"data": {}, "metadata": {}}
    assert asdict(EnvStepResult()) == {
        "observation": {"data": {}, "metadata": {}},
        "done": False,
        "reward": None,
        "info": {},
        "error": None,
    }
    assert EnvObservation().data is not EnvObservation().data


def test_an_environment_needs_three_methods_only():
    env = Minimal()
    assert (env.name, env.version) == ("minimal", "1.0")
    assert env.reset("t").data == {"task": "t"}
    assert env.get_ops("file") is None and not env.has_ops("file")
    assert env.is_terminal() is False
    assert env.is_terminal(None, env.step("first")) is False
    assert env.is_terminal(last_result=env.step("last")) is True
    for method in (env.setup, env.close, env.close, env.teardown):
        assert method() is None
    with pytest.raises(TypeError):
        Env()


def test_a_missing_capability_is_an_environment_error():
    error = EnvCapabilityError("minimal", "file")
    assert str(error) == "environment 'minimal' offers no 'file' operations"
    assert isinstance(error, QitosRuntimeError) and error.category is ErrorCategory.ENV
    assert (error.env_name, error.group) == ("minimal", "file")


def test_observations_list_the_files_without_protected_ones(env):
    files = ["a.txt", "src/b.txt"]
    for seen in (env.reset(task="t"), env.observe(), env.step(None).observation):
        root = str(env.files.root)
        assert seen == EnvObservation(
            {"workspace_root": root, "file_count": 2, "files": files}
        )


def test_operations_come_in_groups(env):
    assert env.get_ops("file") is env.files and env.has_ops("file")
    assert env.get_ops("process") is env.processes and env.has_ops("process")
    assert env.get_ops("browser") is None and not env.has_ops("browser")


def test_file_operations_keep_bytes(env):
    files = env.get_ops("file")
    files.write_text("new/deep/c.txt", "x\r\n\u5bd2")
    assert files.read_text("new/deep/c.txt") == "x\r\n\u5bd2"
    assert files.read_bytes("new/deep/c.txt") == "x\r\n\u5bd2".encode()
    assert files.exists("new/deep") and not files.exists("new/none")
    assert files.list_files() == ["a.txt", "new/deep/c.txt", "src/b.txt"]
    assert files.list_files("new") == ["new/deep/c.txt"]
    assert files.list_files(limit=1) == ["a.txt"]
    with pytest.raises(NotADirectoryError):
        files.list_files("a.txt")
    with pytest.raises(UnicodeDecodeError):
        files.write_bytes("raw", b"\xff")
        files.read_text("raw")


PROTECTED = [
    ".env",
    ".env.local",
    ".ENV",
    ".git/config",
    "src/.git/config",
    "src/../.env",
    "./.ssh/id",
    ".Git",
    ".netrc",
]


@pytest.mark.parametrize("name", PROTECTED)
def test_protected_names_are_out_of_reach(env, name):
    for method, args in (
        (env.files.read_bytes, ()),
        (env.files.write_bytes, (b"x",)),
        (env.files.exists, ()),
        (env.files.list_files, ()),
    ):
        with pytest.raises(FileRefusal) as caught:
            method(name, *args)
        assert caught.value.code == "protected_path"
        assert str(caught.value) == f"{name!r}: protected name"


@pytest.mark.parametrize(
    "name", [".environment", ".gitignore", "env", "a.env", ".github/x"]
)
def test_names_that_only_look_protected_are_not(env, name):
    env.files.write_text(name, "x")
    assert env.files.read_text(name) == "x"


@posix_only
def test_a_link_to_a_protected_file_is_refused(env):
    (env.files.root / "link").symlink_to(".env")
    with pytest.raises(FileRefusal) as caught:
        env.files.read_bytes("link")
    assert caught.value.code == "protected_path"


@posix_only
@pytest.mark.parametrize(
    "name, target, wanted",
    [
        (".netrc", "a.txt", ".netrc"),
        (".git", "src", ".git/b.txt"),
        (".git", "src", "src/../.git/b.txt"),
        (".git", "src", "{root}/.git/b.txt"),
        ("src/.ssh", "..", "src/.ssh/a.txt"),
    ],
)
def test_a_protected_name_that_is_a_link_is_refused(env, name, target, wanted):
    root = env.files.root
    (root / name).symlink_to(target)
    wanted = wanted.format(root=root)
    for method, args in (
        (env.files.read_bytes, ()),
        (env.files.write_bytes, (b"x",)),
        (env.files.list_files, ()),
    ):
        with pytest.raises(FileRefusal) as caught:
            method(wanted, *args)
        assert caught.value.code == "protected_path"
    assert env.files.read_bytes("a.txt") == b"one\r\ntwo\r\n"
    assert env.files.read_bytes(root / "src" / "b.txt") == b"b\n"


# Fault 23: the string prefix of a path says nothing about where it leads
@pytest.mark.parametrize(
    "name", ["../ws_evil/x", "../ws/../ws_evil/x", "/etc/passwd", "a\0b"]
)
def test_host_env_does_not_leave_its_folder(source, name):
    evil = source.with_name("ws_evil")
    evil.mkdir()
    (evil / "x").write_bytes(b"secret")
    files = HostEnv(source).files
    for method, args in (
        (files.read_bytes, ()),
        (files.write_bytes, (b"mine",)),
        (files.exists, ()),
        (files.list_files, ()),
    ):
        with pytest.raises(FileRefusal) as caught:
            method(name, *args)
        assert caught.value.code == "path_outside_workspace"
    assert (evil / "x").read_bytes() == b"secret"


@pytest.mark.parametrize("kind", [HostEnv, WorkspaceEnv])
def test_the_folder_of_an_environment_must_exist(source, kind):
    for path in (source / "none", source / "a.txt"):
        with pytest.raises(NotADirectoryError) as caught:
            kind(path)
        words = f"workspace root {os.fspath(path)!r} is not an existing folder"
        assert str(caught.value) == words


def test_commands_run_in_the_folder(env):
    code = (
        "import os, sys; print(os.getcwd()); print('e', file=sys.stderr); sys.exit(3)"
    )
    ran = env.processes.run(f'"{sys.executable}" -c "{code}"')
    assert (ran["status"], ran["returncode"]) == ("partial", 3)
    assert Path(ran["stdout"].strip()) == env.files.root
    assert (ran["stderr"], ran["truncated"]) == ("e\n", False)
    assert env.processes.run("exit 0")["status"] == "success"
    assert not env.processes.running


@pytest.mark.parametrize(
    "timeout", [0, -1, True, "5", None, float("nan"), float("inf")]
)
def test_a_time_limit_is_a_number_above_zero(env, timeout):
    with pytest.raises(ValueError) as caught:
        env.processes.run("exit 0", timeout=timeout)
    words = f"timeout must be a number of seconds above 0, got {timeout!r}"
    assert str(caught.value) == words


@pytest.mark.parametrize("timeout", [1e300, 10**400])
def test_a_time_limit_may_be_as_long_as_one_likes(env, timeout):
    assert env.processes.run("exit 0", timeout=timeout)["status"] == "success"


@posix_only
def test_a_command_that_runs_out_of_time_is_killed_with_its_children(env):
    started = time.monotonic()
    ran = env.processes.run("echo begun; sleep 30 & echo $!; sleep 30", timeout=0.2)
    assert time.monotonic() - started < 5
    assert (ran["status"], ran["timed_out"]) == ("error", True)
    assert ran["error"] == "command timed out after 0.2 s"
    begun, child = ran["stdout"].split()
    assert begun == "begun"
    for _ in range(100):
        state = subprocess.run(["ps", "-o", "stat=", "-p", child], capture_output=True)
        if not state.stdout.strip() or state.stdout.startswith(b"Z"):
            break
        time.sleep(0.02)
    else:
        pytest.fail("the child still runs")


@posix_only
def test_a_background_child_does_not_hold_up_its_command(env):
    started = time.monotonic()
    ran = env.processes.run("sleep 3 & echo $!")
    assert time.monotonic() - started < 2
    os.kill(int(ran["stdout"]), 9)


@posix_only
def test_output_is_cut_where_memory_would_not_do(env):
    ran = env.processes.run("head -c 1000001 /dev/zero | tr '\\0' x; echo e >&2")
    assert (len(ran["stdout"]), ran["stderr"]) == (1_000_000, "e\n")
    assert ran["truncated"] is True


def test_stopping_processes_begins_a_generation(env):
    assert env.processes.generation == 1
    env.processes.stop()
    assert env.processes.generation == 2


def test_a_workspace_is_a_private_copy(source, copy):
    copy.files.write_text("a.txt", "changed")
    copy.files.write_text("new.txt", "new")
    assert (source / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert not (source / "new.txt").exists()
    assert not copy.files.root.is_relative_to(source)
    assert copy.source == source.resolve()
    if os.name == "posix":
        assert copy.files.root.parent.stat().st_mode & 0o077 == 0


def test_closing_a_workspace_removes_it_and_publishes_nothing(source):
    copy = WorkspaceEnv(source)
    copy.files.write_text("a.txt", "changed")
    root, before = copy.files.root, copy.input_digest
    copy.close()
    copy.close()
    assert not root.exists() and not root.parent.exists()
    assert (source / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert copy.input_digest == before
    assert copy.processes.generation > 1
    assert call(copy, "read_file", path="a.txt").error_code == "file_read_failed"


def test_the_input_digest_names_the_content(source, copy):
    assert len(copy.input_digest) == 64 and int(copy.input_digest, 16) >= 0
    seen = {copy.input_digest}
    copy.files.write_text("a.txt", "the copy may change")
    for path, data in (("a.txt", b"x"), ("c.txt", b"one\r\ntwo\r\n"), ("d/e", b"")):
        (source / path).parent.mkdir(exist_ok=True)
        (source / path).write_bytes(data)
        other = WorkspaceEnv(source)
        again = WorkspaceEnv(source)
        assert other.input_digest == again.input_digest
        seen.add(other.input_digest)
        other.close()
        again.close()
    assert len(seen) == 4
    sha256 = hashlib.sha256(b"b\n").hexdigest()
    assert copy.input_entries["src/b.txt"] == f"file {sha256}"
    assert copy.input_entries["src"] == "folder"


@posix_only
def test_links_and_special_files_are_not_followed_into_the_copy(source, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (source / "out").symlink_to(tmp_path / "secret")
    (source / "in").symlink_to("a.txt")
    (source / "loop").symlink_to(".")
    os.mkfifo(source / "pipe")
    copy = WorkspaceEnv(source)
    assert copy.input_entries["out"] == f"link {tmp_path / 'secret'}"
    assert copy.input_entries["in"] == "link a.txt"
    assert "pipe" not in copy.input_entries
    assert copy.files.read_text("in") == "one\r\ntwo\r\n"
    assert call(copy, "read_file", path="out").error_code == "path_outside_workspace"
    copy.close()


def test_a_folder_is_not_copied_into_itself(monkeypatch, source):
    monkeypatch.setattr(tempfile, "tempdir", str(source / "src"))
    with pytest.raises(ValueError) as caught:
        WorkspaceEnv(source)
    words = f"source {os.fspath(source)!r} holds the folder for temporary files"
    assert str(caught.value) == words
    assert sorted(os.listdir(source / "src")) == ["b.txt"]


def test_a_copy_that_fails_is_removed(monkeypatch, source, tmp_path):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="No space left on device"):
        WorkspaceEnv(source)
    assert os.listdir(place) == []
