"""Environments, the tools that work through them, and the composition of a run."""

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

from qitos_min import kit
from qitos_min.core.action import Action, ActionExecutionPolicy
from qitos_min.core.agent_module import AgentModule
from qitos_min.core.decision import Decision
from qitos_min.core.env import Env, EnvCapabilityError, EnvObservation, EnvStepResult
from qitos_min.core.errors import ErrorCategory, QitosRuntimeError
from qitos_min.core.state import StateSchema
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.core.tool_result import ToolResult
from qitos_min.engine import Engine
from qitos_min.engine.runtime import RuntimeComposition
from qitos_min.kit import compose
from qitos_min.kit._folder import FileRefusal
from qitos_min.kit.artifact import FileArtifactStore
from qitos_min.kit.env import HostEnv, WorkspaceEnv
from qitos_min.kit.tool import EnvToolSet

posix_only = pytest.mark.skipif(os.name != "posix", reason="POSIX file system")


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "ws"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "src" / "b.txt").write_bytes(b"b\n")
    (folder / ".env").write_bytes(b"KEY=secret")
    return folder


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


def call(env, name, **args) -> ToolResult:
    registry = ToolRegistry().include_toolset(EnvToolSet())
    result = registry.call(name, runtime_context={"env": env}, **args)
    assert ToolResult.from_dict(result.to_dict()) == result
    return result


class Minimal(Env):
    name = "minimal"

    def reset(self, task=None, workspace=None, **kwargs):
        return EnvObservation({"task": task})

    def observe(self, state=None):
        return EnvObservation({"seen": state})

    def step(self, action, state=None):
        return EnvStepResult(EnvObservation({"did": action}), done=action == "last")


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


# 23: the string prefix of a path says nothing about where it leads
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
    assert env.processes.running == 0


@pytest.mark.parametrize(
    "timeout", [0, -1, True, "5", None, float("nan"), float("inf")]
)
def test_a_time_limit_is_a_number_above_zero(env, timeout):
    with pytest.raises(ValueError) as caught:
        env.processes.run("exit 0", timeout=timeout)
    words = f"timeout must be a number of seconds above 0, got {timeout!r}"
    assert str(caught.value) == words


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
    assert direct.error == words
    registry = ToolRegistry().include_toolset(EnvToolSet())
    called = registry.call(name, runtime_context=context, **TOOLS[name])
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
        ("write_file", {"path": "a.txt/b", "content": ""}, "file_write_failed"),
        ("list_files", {"path": "none"}, "file_list_failed"),
        ("list_files", {"limit": 0}, "file_list_failed"),
        ("run_command", {"command": "exit 0", "timeout": 0}, "command_failed"),
        ("run_command", {"command": "a\0b"}, "command_failed"),
    ],
)
def test_what_cannot_be_done_is_an_error_result(env, name, args, code):
    result = call(env, name, **args)
    assert (result.status, result.error_code) == ("error", code)


def test_write_file_writes_text_as_it_is(env):
    result = call(env, "write_file", path="x/y.txt", content="a\r\nb\n\u5bd2")
    assert (result.status, result.output) == ("success", "wrote x/y.txt: 8 bytes")
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


class NotesAgent(AgentModule):
    """Carries out a list of decisions."""

    def __init__(self, *decisions, **config):
        super().__init__(**config)
        self.left = list(decisions)

    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def decide(self, state, observation):
        return self.left.pop(0)

    def reduce(self, state, observation, decision):
        return state


def act(name, **args) -> Decision:
    return Decision.act(actions=[Action(name, args)])


def test_a_composition_runs_an_agent_on_a_copy(source):
    agent = NotesAgent(
        act("edit_file", path="a.txt", old_text="one", replacement="1"),
        Decision.final("done"),
    )
    with compose(agent, workspace=source) as composition:
        result = composition.engine.run("t")
        assert (result.final_result, result.success_rate) == ("done", 1.0)
        root = composition.env.files.root
        assert (root / "a.txt").read_bytes() == b"1\r\ntwo\r\n"
        assert composition.agent is agent
        assert composition.engine.env is composition.env
        assert composition.engine.runtime is composition.runtime
        assert composition.tool_registry.list_tools() == sorted(TOOLS)
    assert not root.exists()
    assert (source / "a.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_a_composition_leaves_the_agent_as_it_was(source):
    agent = NotesAgent(artifact_resolver="mine")
    agent.tool_registry.register(lambda: "own", name="read_file")
    with compose(agent, workspace=source) as composition:
        store = agent.config["artifact_resolver"]
        assert store is composition.runtime.artifact_resolver
        assert store is composition.env.artifact_store
        assert composition.tool_registry.list_tools() == sorted(TOOLS)
        assert composition.tool_registry.call("read_file").output == "own"
        assert agent.tool_registry.list_tools() == ["read_file"]
        held = store.root
        assert held.is_dir()
    assert agent.config == {"artifact_resolver": "mine"}
    assert not held.exists()
    composition.close()
    plain = NotesAgent()
    compose(plain, workspace=source).close()
    assert plain.config == {}


def test_a_composition_takes_the_parts_it_is_given(source, tmp_path):
    store = FileArtifactStore(tmp_path / "store")
    policy = ActionExecutionPolicy(mode="parallel")
    runtime = RuntimeComposition(
        artifact_resolver=store, action_execution_policy=policy
    )
    with compose(NotesAgent(), workspace=source, runtime=runtime) as composition:
        assert composition.runtime is runtime
        assert composition.agent.config["artifact_resolver"] is store
    assert RuntimeComposition() == RuntimeComposition(
        checkpoint_store=None,
        action_execution_policy=None,
        event_sink=None,
        artifact_resolver=None,
    )
    with pytest.raises(AttributeError):
        runtime.event_sink = print


@pytest.mark.parametrize(
    "workspace, options, kind",
    [("none", {}, NotADirectoryError), (".", {"no_such_option": 1}, TypeError)],
)
def test_a_composition_that_fails_leaves_nothing(
    monkeypatch, source, tmp_path, workspace, options, kind
):
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    agent = NotesAgent()
    with pytest.raises(kind):
        compose(agent, workspace=source / workspace, **options)
    assert os.listdir(place) == []
    assert agent.config == {}


def test_an_engine_takes_a_runtime_composition():
    result = Engine(NotesAgent(Decision.final("x")), runtime=RuntimeComposition()).run(
        "t"
    )
    assert result.final_result == "x"


def test_kit_gives_its_parts_when_they_are_asked_for():
    code = (
        "import sys, qitos_min.kit as kit\n"
        "assert 'qitos_min.kit.env' not in sys.modules\n"
        "for name in kit.__all__: getattr(kit, name)\n"
        "assert set(dir(kit)) == set(kit.__all__)\n"
    )
    root = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
    with pytest.raises(AttributeError) as caught:
        kit.no_such_part
    assert str(caught.value) == "module 'qitos_min.kit' has no attribute 'no_such_part'"
