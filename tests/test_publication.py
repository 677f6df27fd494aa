"""Publication: who may publish what, the order of its checks, and all or nothing."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tool_results import result_of

from qitos_min.core.action import Action
from qitos_min.core.agent_module import AgentModule
from qitos_min.core.artifact import ArtifactContractError
from qitos_min.core.decision import Decision
from qitos_min.core.state import StateSchema
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.core.tool_result import ToolResult
from qitos_min.kit import compose
from qitos_min.kit.artifact import FileArtifactStore
from qitos_min.kit.env import HostEnv, WorkspaceEnv
from qitos_min.kit.tool import CodingToolSet, EnvToolSet
from qitos_min.kit.tool.internal import publication
from qitos_min.kit.tool.internal.publication import SandboxPublicationTool

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX only")

SOURCE = {"report.txt": b"draft\n", "data.csv": b"1,2\n", "other.txt": b"other\n"}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "ws"
    folder.mkdir()
    for name, body in SOURCE.items():
        (folder / name).write_bytes(body)
    (folder / "sub").mkdir()
    return folder


@pytest.fixture
def store(tmp_path):
    return FileArtifactStore(tmp_path / "store")


@pytest.fixture
def env(source, store):
    made = WorkspaceEnv(source, artifact_store=store)
    made.files.write_text("report.txt", "final\n")
    made.files.write_text("data.csv", "3,4\n")
    made.files.write_text("new.txt", "new\n")
    yield made
    made.close()


def tool_for(env, *paths, digest=None) -> SandboxPublicationTool:
    return SandboxPublicationTool(
        env, paths=paths, expected_input_digest=digest or env.input_digest
    )


def publish(env, *paths, digest=None) -> ToolResult:
    result = tool_for(env, *paths, digest=digest).execute({}, {"env": env})
    assert ToolResult.from_dict(result.to_dict()) == result
    return result


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def refused(result: ToolResult, code: str, error: str) -> bool:
    assert (result.error_code, result.error) == (code, error)
    assert (result.status, result.error_kind) == ("error", "policy")
    assert (result.artifact_refs, result.filesystem_changes) == ((), [])
    return result.effect_state == "no_effect_declared"


def test_chosen_files_replace_or_join_the_source(source, env, store):
    (source / "report.txt").chmod(0o640)
    (env.files.root / "new.txt").chmod(0o750)
    result = publish(env, "report.txt", "new.txt")
    assert (result.status, result.output) == (
        "success",
        "published report.txt, new.txt",
    )
    assert files(source) == {**SOURCE, "report.txt": b"final\n", "new.txt": b"new\n"}
    assert stat.S_IMODE((source / "report.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE((source / "new.txt").stat().st_mode) == 0o750
    assert [store.resolve(ref).body for ref in result.artifact_refs] == [
        b"final\n",
        b"new\n",
    ]
    assert {ref.provenance_digest for ref in result.artifact_refs} == {env.input_digest}
    assert result.filesystem_changes == [
        {
            "path": "report.txt",
            "operation": "publish",
            "sha256_after": sha256(b"final\n"),
        },
        {"path": "new.txt", "operation": "publish", "sha256_after": sha256(b"new\n")},
    ]
    assert result.effect_state == "committed" and result.effect_ref


def test_equal_files_are_two_artifacts(source, env):
    env.files.write_text("report.txt", "new\n")
    result = publish(env, "report.txt", "new.txt")
    assert result.is_success
    assert len({ref.artifact_id for ref in result.artifact_refs}) == 2


def test_the_tool_asks_for_approval_and_takes_nothing(env):
    registry = ToolRegistry()
    registry.register(tool_for(env, "report.txt"))
    (row,) = (spec.to_dict() for spec in registry.export_permissions())
    assert row["name"] == "publish_workspace"
    assert row["needs_approval"] is True and row["read_only"] is False
    assert row["permissions"] == {
        "filesystem_read": False,
        "filesystem_write": True,
        "network": False,
        "command": False,
    }
    context = {"env": env}
    result = result_of(registry, "publish_workspace", runtime_context=context)
    assert (result.status, result.error_code) == ("skipped", "approval_required")
    context["auto_approve"] = True
    result = result_of(registry, "publish_workspace", runtime_context=context, path="x")
    assert (result.status, result.error_code) == ("error", "unexpected_argument")
    assert result_of(registry, "publish_workspace", runtime_context=context).is_success


class Writer(AgentModule):
    """Writes a report, and publishes it if that is its task."""

    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def decide(self, state, observation):
        if state.current_step:
            return Decision.final("done")
        actions = [Action("write_file", {"path": "report.txt", "content": "ok\n"})]
        if state.task == "publish":
            actions.append(Action("publish_workspace"))
        return Decision.act(actions=actions)

    def reduce(self, state, observation, decision):
        state.advance_step()
        return state


def test_no_toolset_and_no_composition_publishes(source):
    with compose(Writer(), workspace=source) as composition:
        assert "publish_workspace" not in composition.tool_registry
        composition.engine.run("write")
    assert files(source) == SOURCE
    for toolset in (CodingToolSet(source), EnvToolSet()):
        assert "publish_workspace" not in [tool.name for tool in toolset.tools()]


def test_an_agent_publishes_when_it_may(source):
    with compose(Writer(), workspace=source, auto_approve=True) as composition:
        composition.tool_registry.register(tool_for(composition.env, "report.txt"))
        result = composition.engine.run("publish")
        assert result.final_result == "done"
        assert result.records[0].action_results[1] == "published report.txt"
    assert files(source) == {**SOURCE, "report.txt": b"ok\n"}


def test_an_artifact_is_resolved_through_the_agent(source):
    with compose(Writer(), workspace=source) as composition:
        composition.tool_registry.register(tool_for(composition.env, "report.txt"))
        result = result_of(composition.tool_registry, 
            "publish_workspace",
            runtime_context={"env": composition.env, "auto_approve": True},
        )
        (ref,) = result.artifact_refs
        body = composition.agent.config["artifact_resolver"].resolve(ref).body
        assert (body, ref.sha256) == (b"draft\n", sha256(b"draft\n"))


def test_only_a_workspace_copy_can_be_published(source):
    with pytest.raises(TypeError) as caught:
        SandboxPublicationTool(HostEnv(source), paths=[], expected_input_digest="")
    assert str(caught.value) == "env must be a WorkspaceEnv, got HostEnv"


# What else could be wrong at the same time; each fault must win over those after it.
FAULTS = [
    "publication_authority_mismatch",
    "stale_generation",
    "publication_input_mismatch",
    "artifact_store_unavailable",
    "publication_output_conflict",
    "publication_path_invalid",
    "publication_protected_path",
    "nested_publication_unsupported",
    "publication_selection_invalid",
    "publication_source_conflict",
    "publication_link_rejected",
    "publication_special_file",
    "publication_workspace_busy",
    "publication_platform_unsupported",
]

PATHS = {
    "publication_output_conflict": "folder",
    "publication_path_invalid": "../x",
    "publication_protected_path": ".env",
    "nested_publication_unsupported": "sub/x",
    "publication_selection_invalid": "none",
    "publication_source_conflict": "report.txt",
    "publication_link_rejected": "link",
    "publication_special_file": "pipe",
}


@pytest.mark.parametrize("first", range(len(FAULTS)), ids=FAULTS)
def test_the_first_of_several_faults_is_told(source, env, monkeypatch, first):
    faults = FAULTS[first:]
    (source / "link").symlink_to("other.txt")
    os.mkfifo(source / "pipe")
    (env.files.root / "folder").mkdir()
    for name in ("link", "pipe", "sub/x"):
        env.files.write_text(name, name)
    # Of the source's faults, which exclude each other in one file, there is one at a time.
    late = [code for code in faults if code in FAULTS[9:12]][1:]
    paths = [PATHS[code] for code in reversed(faults) if code in PATHS and code not in late]
    if "publication_source_conflict" in faults:
        (source / "report.txt").write_bytes(b"someone else's\n")
    if "publication_input_mismatch" in faults:
        digest = "0" * 64
    else:
        digest = env.input_digest
    tool = tool_for(env, *(paths or ["report.txt"]), digest=digest)
    if "stale_generation" in faults:
        env.processes.stop()
    if "artifact_store_unavailable" in faults:
        env.artifact_store = None
    busy = threading.Thread(target=env.processes.run, args=("sleep 9",))
    if "publication_workspace_busy" in faults:
        busy.start()
        while not env.processes.running:
            time.sleep(0.01)
    monkeypatch.setattr(publication, "_POSIX", False)
    context = {"env": None if "publication_authority_mismatch" in faults else env}
    before = files(source)
    result = tool.execute({}, context)
    env.processes.stop()
    if busy.ident:
        busy.join()
    assert result.error_code == FAULTS[first]
    assert (result.status, result.error_kind) == ("error", "policy")
    assert files(source) == before


@pytest.mark.parametrize(
    "args", [{"path": "report.txt"}, {"force": True}, ["report.txt"]]
)
def test_a_call_with_arguments_has_no_authority(source, env, args):
    result = tool_for(env, "report.txt").execute(args, {"env": env})
    assert refused(
        result,
        "publication_authority_mismatch",
        "the call takes no arguments, and the environment it was made for",
    )
    assert files(source) == SOURCE


@pytest.mark.parametrize("context", [None, {}, {"env": None}, {"env": "other"}])
def test_another_environment_has_no_authority(source, env, context):
    other = WorkspaceEnv(source, artifact_store=env.artifact_store)
    if context == {"env": "other"}:
        context = {"env": other}
    result = tool_for(env, "report.txt").execute({}, context)
    other.close()
    assert result.error_code == "publication_authority_mismatch"
    assert files(source) == SOURCE


@pytest.mark.parametrize(
    "stop", [lambda env: env.close(), lambda env: env.processes.stop()]
)
def test_an_approval_ends_with_its_generation(source, env, stop):
    tool = tool_for(env, "report.txt")
    stop(env)
    result = tool.execute({}, {"env": env})
    words = "the environment was stopped after the approval"
    assert refused(result, "stale_generation", words)
    assert files(source) == SOURCE


def test_an_approval_is_for_one_input(source, env):
    result = publish(env, "report.txt", digest="0" * 64)
    words = "the environment has another input"
    assert refused(result, "publication_input_mismatch", words)
    assert files(source) == SOURCE


def test_a_store_that_cannot_be_written_is_none(source, env, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    env.artifact_store = FileArtifactStore(tmp_path / "file")
    words = "no artifact store that can be written"
    assert refused(publish(env, "report.txt"), "artifact_store_unavailable", words)
    env.artifact_store = None
    assert refused(publish(env, "report.txt"), "artifact_store_unavailable", words)
    assert files(source) == SOURCE


def test_the_store_may_come_with_the_run(env, store):
    env.artifact_store = None
    context = {"env": env, "artifact_resolver": store}
    assert tool_for(env, "report.txt").execute({}, context).is_success


def test_a_body_that_the_store_refuses_is_not_published(source, env, tmp_path):
    env.artifact_store = FileArtifactStore(tmp_path / "small", max_artifact_bytes=5)
    result = publish(env, "data.csv", "report.txt")
    assert result.error_code == "artifact_store_limit"
    assert files(source) == SOURCE


@pytest.mark.parametrize("make", ["link", "folder", "pipe"])
def test_an_output_must_be_a_regular_file(source, env, make):
    path = env.files.root / "out"
    {
        "link": lambda: path.symlink_to(source / "other.txt"),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
    }[make]()
    words = "'out': not a regular file"
    assert refused(publish(env, "out"), "publication_output_conflict", words)
    assert files(source) == SOURCE


INVALID = [
    "",
    "/etc/passwd",
    "../x",
    "a/../b",
    "./a",
    ".",
    "..",
    "a//b",
    "a/",
    "a\\b",
    "a\0b",
    "a\nb",
    None,
    3,
    b"a",
]


@pytest.mark.parametrize("path", INVALID)
def test_a_path_must_be_plain(source, env, path):
    words = f"a path must be a plain relative one, got {path!r}"
    assert refused(publish(env, "report.txt", path), "publication_path_invalid", words)
    assert files(source) == SOURCE


@pytest.mark.parametrize(
    "path", [".env", ".git", ".ENV.local", ".git/config", "sub/.ssh"]
)
def test_protected_files_are_not_published(source, env, store, path):
    target = env.files.root / path
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(b"secret")
    words = f"a path must have no protected name, got {path!r}"
    assert refused(publish(env, path), "publication_protected_path", words)
    assert not store.root.exists() or not [
        p for p in store.root.rglob("*") if p.is_file()
    ]


def test_a_path_below_another_folder_is_not_published(env):
    env.files.write_text("sub/x", "x")
    words = "a path must lie directly in the workspace, got 'sub/x'"
    assert refused(publish(env, "sub/x"), "nested_publication_unsupported", words)


@pytest.mark.parametrize(
    "paths, words",
    [
        ((), "name at least one file, each once"),
        (("report.txt", "report.txt"), "name at least one file, each once"),
        (("report.txt", "REPORT.txt"), "name at least one file, each once"),
        (("report.txt", "zzz", "none"), "not in the workspace: none, zzz"),
    ],
)
def test_a_selection_names_existing_files_once(source, env, paths, words):
    assert refused(publish(env, *paths), "publication_selection_invalid", words)
    assert files(source) == SOURCE


@pytest.mark.parametrize("name", ["report.txt", "new.txt", "data.csv"])
def test_a_source_that_changed_is_kept(source, env, name):
    path = source / name
    path.unlink() if name == "data.csv" else path.write_bytes(b"someone else's\n")
    before = files(source)
    words = f"{name!r}: changed in the source since the workspace was copied"
    result = publish(env, "report.txt", "new.txt", "data.csv")
    assert refused(result, "publication_source_conflict", words)
    assert files(source) == before


def test_other_files_of_the_source_may_change(source, env):
    (source / "other.txt").write_bytes(b"someone else's\n")
    assert publish(env, "report.txt").is_success


def test_a_second_publication_meets_the_first(source, env):
    assert publish(env, "report.txt").is_success
    assert publish(env, "report.txt").error_code == "publication_source_conflict"


@pytest.mark.parametrize("target", ["other.txt", "nowhere", "../secret"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_link_in_the_source_is_never_written_through(source, store, target, when):
    secret = source.with_name("secret")
    secret.write_bytes(b"secret")
    link = source / "link"
    if when == "before":
        link.symlink_to(target)
    env = WorkspaceEnv(source, artifact_store=store)
    if when == "after":
        link.symlink_to(target)
    (env.files.root / "link").unlink(missing_ok=True)
    env.files.write_text("link", "mine")
    words = "'link': a link in the source"
    assert refused(publish(env, "link"), "publication_link_rejected", words)
    assert os.readlink(link) == target
    assert secret.read_bytes() == b"secret"
    env.close()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_special_file_in_the_source_is_left_alone(source, env, make):
    make(source / "new.txt")
    words = "'new.txt': no regular file in the source"
    assert refused(publish(env, "new.txt"), "publication_special_file", words)


def test_publications_of_one_source_take_turns(source, env):
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda _: publish(env, "report.txt").error_code, range(8)))
    assert sorted(codes, key=str) == [None] + ["publication_source_conflict"] * 7


def test_a_running_command_keeps_the_workspace_busy(env):
    thread = threading.Thread(target=env.processes.run, args=("sleep 9",))
    thread.start()
    while not env.processes.running:
        time.sleep(0.01)
    tool = tool_for(env, "report.txt")
    result = tool.execute({}, {"env": env})
    env.processes.stop()
    thread.join()
    assert result.error_code == "publication_workspace_busy"


def test_a_system_without_posix_locks_is_refused(source, env, monkeypatch):
    monkeypatch.setattr(publication, "_POSIX", False)
    words = "publication needs a POSIX system"
    result = publish(env, "report.txt")
    assert refused(result, "publication_platform_unsupported", words)
    assert files(source) == SOURCE


class ScriptedStore:
    """A store in which something happens when the body number ``at`` is stored."""

    resolver_key = "scripted"

    def __init__(self, action=lambda: None, at=0):
        self.action = action
        self.left = at

    def probe(self):
        return True

    def put(self, ref, body):
        if self.left == 0:
            self.action()
        self.left -= 1


class ScriptedCalls:
    """A function of ``os``; before its calls of these numbers something happens."""

    def __init__(self, function, action, *numbers):
        self.function = function
        self.action = action
        self.numbers = numbers
        self.count = -1

    def __call__(self, *args, **kwargs):
        self.count += 1
        if self.count in self.numbers:
            self.action()
        return self.function(*args, **kwargs)


def fail():
    raise OSError(errno.EIO, "Input/output error")


ALL = ("report.txt", "new.txt", "data.csv")


@pytest.mark.parametrize(
    "change, code",
    [
        (
            lambda s: (s / "data.csv").write_bytes(b"late\n"),
            "publication_source_conflict",
        ),
        (lambda s: (s / "data.csv").unlink(), "publication_source_conflict"),
        (
            lambda s: (s / "new.txt").write_bytes(b"late\n"),
            "publication_source_conflict",
        ),
        (
            lambda s: (s / "new.txt").symlink_to("other.txt"),
            "publication_link_rejected",
        ),
        (lambda s: (s / "new.txt").mkdir(), "publication_special_file"),
    ],
)
@pytest.mark.parametrize("when", ["after the checks", "half way"])
def test_a_late_change_of_the_source_takes_everything_back(
    source, env, monkeypatch, change, code, when
):
    expected = WorkspaceEnv(source)
    change(expected.files.root)
    if when == "after the checks":
        env.artifact_store = ScriptedStore(lambda: change(source), at=2)
    else:
        env.artifact_store = ScriptedStore()
        calls = ScriptedCalls(os.replace, lambda: change(source), 0)
        monkeypatch.setattr(os, "replace", calls)
    result = publish(env, *ALL)
    assert (result.status, result.error_code) == ("error", code)
    assert result.effect_state == "no_effect_declared"
    assert files(source) == files(expected.files.root)
    assert sorted(os.listdir(source)) == sorted(os.listdir(expected.files.root))
    expected.close()


def test_a_store_that_fails_late_publishes_nothing(source, env):
    def gone():
        raise ArtifactContractError("artifact_store_unavailable", "gone")

    env.artifact_store = ScriptedStore(gone, at=1)
    result = publish(env, *ALL)
    assert refused(
        result, "artifact_store_unavailable", "artifact_store_unavailable: gone"
    )
    assert files(source) == SOURCE


@pytest.mark.parametrize(
    "name, number",
    [
        *[("fsync", n) for n in range(3)],  # writing beside
        *[("link", n) for n in range(3)],  # keeping the old, and the new file
        *[("replace", n) for n in range(2)],  # putting in place
        ("chmod", 0),
    ],
)
def test_a_failure_half_way_takes_everything_back(
    source, env, monkeypatch, name, number
):
    (source / "report.txt").chmod(0o640)
    inodes = {path.name: path.stat().st_ino for path in source.iterdir()}
    with monkeypatch.context() as patch:
        # The store writes files, too, but not here.
        env.artifact_store = ScriptedStore()
        patch.setattr(os, name, ScriptedCalls(getattr(os, name), fail, number))
        result = publish(env, *ALL)
    assert (result.status, result.error_code) == ("error", "publication_failed")
    assert result.error == "nothing was published: Input/output error"
    assert (result.effect_state, result.outcome_unknown) == ("rejected", False)
    assert files(source) == SOURCE
    assert {path.name: path.stat().st_ino for path in source.iterdir()} == inodes
    assert publish(env, *ALL).is_success


def test_a_rollback_that_fails_is_admitted(source, env, monkeypatch):
    env.artifact_store = ScriptedStore()
    with monkeypatch.context() as patch:
        # The second file cannot be put in place, and the first not put back.
        patch.setattr(os, "replace", ScriptedCalls(os.replace, fail, 1, 2))
        result = publish(env, "report.txt", "data.csv")
    assert (result.status, result.error_kind) == ("error", "execution")
    assert result.error_code == "publication_rollback_failed"
    assert (
        result.error == "the publication stopped half way, not rolled back: report.txt"
    )
    assert (result.outcome_unknown, result.effect_state) == (True, "unknown")
    kept = result.metadata["kept"]["report.txt"]
    assert files(source) == {**SOURCE, "report.txt": b"final\n", kept: b"draft\n"}


def test_a_new_file_that_cannot_be_taken_back_is_admitted(source, env, monkeypatch):
    env.artifact_store = ScriptedStore()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", ScriptedCalls(os.replace, fail, 0))
        patch.setattr(os, "unlink", ScriptedCalls(os.unlink, fail, 0))
        result = publish(env, "new.txt", "report.txt")
    assert result.error_code == "publication_rollback_failed"
    assert result.metadata == {"kept": {"new.txt": None}}
    assert files(source) == {**SOURCE, "new.txt": b"new\n"}


CHILD = """
import os, resource, sys
from qitos_min.kit.env import WorkspaceEnv
from qitos_min.kit.artifact import FileArtifactStore
from qitos_min.kit.tool.internal.publication import SandboxPublicationTool
what, source, store = sys.argv[1:]
env = WorkspaceEnv(source, artifact_store=FileArtifactStore(store))
env.files.write_text("report.txt", "x" * 99)
env.files.write_text("data.csv", "y" * 99)
env.artifact_store.put = lambda ref, body: None
tool = SandboxPublicationTool(
    env, paths=["report.txt", "data.csv"], expected_input_digest=env.input_digest
)
if what == "full disk":
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
elif os.getuid() == 0:
    os.seteuid(65534)
result = tool.execute({}, {"env": env})
if os.getuid() == 0:
    os.seteuid(0)
env.close()
print(result.status, result.error_code, result.error, sep="|")
"""


@pytest.mark.parametrize(
    "what, code", [("full disk", errno.EFBIG), ("read-only folder", errno.EACCES)]
)
def test_a_source_that_cannot_be_written_stays_whole(what, code):
    with tempfile.TemporaryDirectory(prefix="workspace-") as name:
        source, store = Path(name) / "ws", Path(name) / "store"
        for folder in (source, store):
            folder.mkdir()
        Path(name).chmod(0o755)
        store.chmod(0o777)
        for file in ("report.txt", "data.csv"):
            (source / file).write_bytes(SOURCE[file])
        source.chmod(0o555)
        child = subprocess.run(
            [sys.executable, "-c", CHILD, what, str(source), str(store)],
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
        )
        source.chmod(0o755)
        assert child.stderr == ""
        words = f"nothing was published: {os.strerror(code)}"
        assert child.stdout == f"error|publication_failed|{words}\n"
        assert files(source) == {n: SOURCE[n] for n in ("report.txt", "data.csv")}
