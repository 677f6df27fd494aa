"""Files of one folder: nothing outside of it, and no half-done write."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from qitos_min import Action, ToolRegistry
from qitos_min.kit._folder import FileRefusal, Folder
from qitos_min.kit.tool import CodingToolSet
from workspaces import edit, make_outside, posix_only, read, tree


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


def test_an_absolute_path_inside_the_workspace_is_fine(workspace):
    (workspace / "a.txt").write_bytes(b"in\n")
    assert read(workspace, str(workspace / "a.txt")).output == "1\tin"


@pytest.fixture
def outside(workspace):
    return make_outside(workspace)


# F16 (SuperAgent PR 209; QuillCode PR 722; octos 886)
@pytest.mark.parametrize(
    "name", ["../ws-evil/x", "sub/../../ws-evil/x", "{outside}/x", "../ws/../ws-evil/x"]
)
def test_paths_out_of_the_workspace_are_refused(workspace, outside, name):
    (workspace / "sub").mkdir()
    name = name.format(outside=outside)
    for result, verb in (
        (read(workspace, name), "read"),
        (edit(workspace, name, "secret", "public"), "edit"),
    ):
        assert (result.status, result.error_code) == ("error", f"file_{verb}_failed")
        assert result.error == f"cannot {verb} {name!r}: outside the workspace"
        assert result.output is None
    assert tree(outside) == {"x": b"secret"}


# F16b (the same threads): links, dangling ones, and loops
@posix_only
@pytest.mark.parametrize(
    "link, target, name, reason",
    [
        ("link", "../ws-evil", "link/x", "outside the workspace"),
        ("link", "../ws-evil/x", "link", "outside the workspace"),
        ("link", "../ws-evil/new", "link", "outside the workspace"),
        ("link", "../ws-evil", "link/new/deep", "outside the workspace"),
        ("link", "/dev/null", "link", "outside the workspace"),
        ("link", "nowhere", "link", os.strerror(2)),
        ("link", "link", "link", None),
    ],
)
def test_links_out_of_the_workspace_are_refused(
    workspace, outside, link, target, name, reason
):
    (workspace / link).symlink_to(target)
    for result, verb in (
        (read(workspace, name), "read"),
        (edit(workspace, name, "secret", "public"), "edit"),
    ):
        assert (result.status, result.error_code) == ("error", f"file_{verb}_failed")
        if reason:
            assert result.error == f"cannot {verb} {name!r}: {reason}"
    if reason == "outside the workspace":
        with pytest.raises(FileRefusal) as caught:
            Folder(workspace).write_bytes(name, b"mine")
        assert str(caught.value) == f"{name!r}: outside the workspace"
    assert tree(outside) == {"x": b"secret"}
    assert tree(workspace) == {link: f"-> {target}"}


# F15 (hermes-webui PR 5797; PortOS 1893)
@posix_only
def test_a_link_inside_the_workspace_stays_a_link(workspace):
    (workspace / "sub").mkdir()
    (workspace / "sub" / "real.txt").write_bytes(b"a\n")
    (workspace / "link.txt").symlink_to("sub/real.txt")
    assert edit(workspace, "link.txt", "a", "b").is_success
    assert tree(workspace) == {
        "link.txt": "-> sub/real.txt",
        "sub": None,
        "sub/real.txt": b"b\n",
    }


@posix_only
def test_a_hard_link_outside_keeps_its_content(workspace, outside):
    os.link(outside / "x", workspace / "a.txt")
    assert edit(workspace, "a.txt", "secret", "public").is_success
    assert tree(outside) == {"x": b"secret"}


@posix_only
def test_no_file_stays_open(workspace):
    (workspace / "d").mkdir()
    (workspace / "a.txt").write_bytes(b"old")
    free = os.dup(0)
    os.close(free)
    read(workspace, "d")
    read(workspace, "a.txt")
    edit(workspace, "a.txt", "old", "new")
    edit(workspace, "d", "old", "new")
    again = os.dup(0)
    os.close(again)
    assert again == free


@posix_only
def test_a_pipe_does_not_block(workspace):
    os.mkfifo(workspace / "pipe")
    assert read(workspace, "pipe").error == "cannot read 'pipe': not a regular file"
    assert (
        edit(workspace, "pipe", "a", "b").error
        == "cannot edit 'pipe': not a regular file"
    )


@posix_only
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o4711])
def test_the_file_mode_and_owner_stay(workspace, mode):
    path = workspace / "a.txt"
    path.write_bytes(b"old")
    if os.getuid() == 0:
        os.chown(path, 1234, 5678)
    path.chmod(mode)
    before = path.stat()
    assert edit(workspace, "a.txt", "old", "new").is_success
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == mode
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_mtime_ns > before.st_mtime_ns - 10**9


@posix_only
def test_a_new_file_has_the_usual_mode(workspace):
    Folder(workspace).write_text("new/a.txt", "x")
    (workspace / "b.txt").write_bytes(b"x")
    modes = {(workspace / name).stat().st_mode for name in ("new/a.txt", "b.txt")}
    assert len(modes) == 1


def test_the_folder_itself_is_not_written_beside(workspace, monkeypatch):
    """Its neighbours are outside."""
    monkeypatch.setattr(os, "open", lambda *args: pytest.fail(f"opened {args}"))
    with pytest.raises(OSError, match="not a regular file"):
        Folder(workspace).write_bytes(".", b"x")


def test_a_file_that_changed_while_it_was_edited_is_kept(workspace):
    path = workspace / "a.txt"
    path.write_bytes(b"one\n")
    folder = Folder(workspace)
    data = folder.read_bytes("a.txt")
    path.write_bytes(b"someone else's\n")
    with pytest.raises(FileRefusal) as caught:
        folder.write_bytes("a.txt", b"two\n", expected=data)
    assert (caught.value.code, caught.value.reason) == (
        "stale_file",
        "file changed while it was written",
    )
    assert tree(workspace) == {"a.txt": b"someone else's\n"}


class ChangingFiles:
    """File operations in which something happens between reading and writing."""

    def __init__(self, folder, change):
        self.folder = folder
        self.change = change

    def read_bytes(self, name):
        data = self.folder.read_bytes(name)
        self.change()
        return data

    def write_bytes(self, name, data, *, expected=None):
        self.folder.write_bytes(name, data, expected=expected)


@posix_only
@pytest.mark.parametrize(
    "spot, target, code",
    [
        ("sub", "../ws-evil", "file_edit_failed"),
        ("sub/x", "../../ws-evil/x", "file_edit_failed"),
        ("sub/x", "other", "text_not_found"),
        ("sub/x", "nowhere", "file_edit_failed"),
    ],
)
def test_a_path_that_leads_elsewhere_while_editing_is_not_followed(
    workspace, outside, spot, target, code
):
    from qitos_min.kit.tool._files import changed, edited, file_tool

    (workspace / "sub").mkdir()
    (workspace / "sub" / "x").write_bytes(b"secret")
    (workspace / "sub" / "other").write_bytes(b"another")

    def swap():
        (workspace / spot).rename(workspace / "moved")
        (workspace / spot).symlink_to(target)

    files = ChangingFiles(Folder(workspace), swap)

    class Tools:
        @file_tool("edit")
        def edit(self, name: str):
            return changed(files, name, edited, "secret", "public")

    registry = ToolRegistry().register(Tools().edit)
    result = registry.execute(Action("edit", {"name": "sub/x"}))
    assert (result.status, result.error_code) == ("error", code)
    assert tree(outside) == {"x": b"secret"}
    assert b"public" not in tree(workspace).values()
    assert not [name for name in tree(workspace) if name.endswith(".tmp")]


CHILD = """
import os, resource, sys
from qitos_min.kit.tool import CodingToolSet
what, folder = sys.argv[1:]
if what == "full disk":
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
elif os.getuid() == 0:
    os.setuid(65534)
result = CodingToolSet(folder).Edit("a.txt", "old", "new and longer")
print(result.status, result.error_code, result.error, sep="|")
"""


@posix_only
@pytest.mark.parametrize(
    "what, modes, reason",
    [
        ("full disk", (0o755, 0o644), os.strerror(27)),
        ("read-only folder", (0o555, 0o666), os.strerror(13)),
        ("read-only file", (0o777, 0o444), "read-only file"),
    ],
)
def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, what, modes, reason):
    # Outside of pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory(prefix="workspace-") as name:
        folder, path = Path(name), Path(name) / "a.txt"
        path.write_bytes(b"old")
        path.chmod(modes[1])
        folder.chmod(modes[0])
        child = subprocess.run(
            [sys.executable, "-c", CHILD, what, name],
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
        )
        assert child.stderr == ""
        assert child.stdout == f"error|file_edit_failed|cannot edit 'a.txt': {reason}\n"
        assert tree(folder) == {"a.txt": b"old"}
        assert stat.S_IMODE(path.stat().st_mode) == modes[1]


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize(
    "failure, reason",
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
    ],
)
def test_a_failure_at_any_step_leaves_no_trace(
    workspace, monkeypatch, step, failure, reason
):
    (workspace / "a.txt").write_bytes(b"old")

    def fail(*args, **kwargs):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        result = edit(workspace, "a.txt", "old", "new")
    assert (result.error_code, result.error_kind) == ("file_edit_failed", "execution")
    assert result.error == f"cannot edit 'a.txt': {reason}"
    assert tree(workspace) == {"a.txt": b"old"}


def test_an_interrupt_leaves_no_temporary_file(workspace, monkeypatch):
    (workspace / "a.txt").write_bytes(b"old")

    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            edit(workspace, "a.txt", "old", "new")
    assert tree(workspace) == {"a.txt": b"old"}


def test_edits_at_the_same_time_lose_nothing(workspace):
    (workspace / "a.txt").write_bytes(b"".join(b"<%d>\n" % i for i in range(8)))
    tools, won = CodingToolSet(workspace), []

    def work(number):
        while (result := tools.Edit("a.txt", f"<{number}>", f"[{number}]")).error:
            assert result.error_code == "stale_file"
        won.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(8))
    assert tree(workspace) == {"a.txt": b"".join(b"[%d]\n" % i for i in range(8))}
