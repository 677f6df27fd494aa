"""An edit that was reported as done is in the file, whoever else edits it.

After a public report on agents that work on one folder: 13 of 40 edits were lost.
"""

import hashlib
import multiprocessing
import os
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tool_results import result_of

from qitos_min import ToolRegistry
from qitos_min.kit import _folder as _lock
from qitos_min.kit.env import HostEnv
from qitos_min.kit.tool import CodingToolSet, EnvToolSet

LINES = 40


@pytest.fixture
def folder(tmp_path):
    work = tmp_path / "work"
    (work / "part").mkdir(parents=True)
    text = "".join(f"item{n} open\n" for n in range(LINES))
    (work / "part" / "list.txt").write_text(text, encoding="utf-8")
    return work


def coding(root, name):
    """Calls that edit a file of a folder with tools of their own."""
    registry = ToolRegistry().include(CodingToolSet(root))
    return lambda old, new: result_of(registry, 
        "Edit", file_path=name, old_string=old, new_string=new
    )


def through_env(root, name):
    registry, env = ToolRegistry().include(EnvToolSet()), HostEnv(root)
    return lambda old, new: result_of(registry, 
        "edit_file", {"env": env}, path=name, old_text=old, replacement=new
    )


def edit_all(edit, numbers):
    """The edits that were reported as done, and the errors of the others."""
    results = {n: edit(f"item{n} open", f"item{n} shut") for n in numbers}
    done = [n for n, result in results.items() if result.is_success]
    return done, [r.error for r in results.values() if not r.is_success]


def edit_in_process(root, name, numbers, gate):
    gate.wait(20)
    done, errors = edit_all(coding(root, name), numbers)
    if errors or done != numbers:
        sys.exit(1)


def shut(folder):
    lines = (folder / "part" / "list.txt").read_text(encoding="utf-8").splitlines()
    return [n for n in range(LINES) if lines[n] == f"item{n} shut"]


def spellings(folder):
    """Tools for the same file: by link, other spellings, another root, an environment."""
    link = folder.parent / "link"
    link.symlink_to(folder, target_is_directory=True)
    inner = folder / "inner"
    inner.symlink_to(folder / "part", target_is_directory=True)
    return [
        coding(folder, "part/list.txt"),
        coding(link, "part/list.txt"),
        coding(folder / "part" / "..", "part/../part/list.txt"),
        coding(folder / "part", "list.txt"),
        coding(os.path.relpath(folder), "inner/list.txt"),
        through_env(folder, "part/list.txt"),
        through_env(str(link), str(link / "part" / "list.txt")),
        coding(folder, str(folder / "part" / "list.txt")),
    ]


def test_threads_with_tools_of_their_own_lose_no_edit(folder):
    edits = spellings(folder)
    with ThreadPoolExecutor(len(edits)) as pool:
        found = list(
            pool.map(lambda at: edit_all(edits[at], range(at, LINES, len(edits))), range(8))
        )
    assert [errors for _, errors in found] == [[]] * 8
    assert shut(folder) == list(range(LINES))
    names = {path.name for path in folder.rglob("*")}
    assert names == {"part", "list.txt", "inner"}


def test_processes_lose_no_edit(folder):
    context = multiprocessing.get_context("spawn")
    gate = context.Event()
    link = folder.parent / "link"
    link.symlink_to(folder, target_is_directory=True)
    workers = [
        context.Process(target=edit_in_process, args=(str(root), name, numbers, gate))
        for root, name, numbers in (
            (folder, "part/list.txt", list(range(0, LINES, 2))),
            (link / "part", "list.txt", list(range(1, LINES, 2))),
        )
    ]
    for worker in workers:
        worker.start()
    gate.set()
    for worker in workers:
        worker.join(20)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert shut(folder) == list(range(LINES))


def test_the_expected_content_is_checked_when_nobody_else_writes(folder):
    """Two edits that both expect the first content: one of them is stale."""
    digest = hashlib.sha256((folder / "part" / "list.txt").read_bytes()).hexdigest()
    both = threading.Barrier(2)

    def edit(n):
        registry = ToolRegistry().include(CodingToolSet(folder))
        both.wait(5)
        return result_of(registry, 
            "Edit", file_path="part/list.txt", old_string=f"item{n} open",
            new_string=f"item{n} shut", expected_sha256=digest,
        ).error_code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(edit, [1, 2]), key=str) == [None, "stale_file"]


def test_whole_files_and_edits_take_turns(folder):
    """What ``write_file`` replaces meanwhile is not edited as if it were still there."""
    registry, env = ToolRegistry().include(EnvToolSet()), HostEnv(folder)
    edit = coding(folder, "part/list.txt")
    text = "item0 open\nfresh\n"

    def write(_):
        return result_of(registry, "write_file", {"env": env}, path="part/list.txt", content=text)

    with ThreadPoolExecutor(4) as pool:
        written = pool.map(write, range(20))
        edited = pool.map(lambda _: edit("item0 open", "item0 shut"), range(20))
        assert all(result.is_success for result in written)
        codes = {result.error_code for result in edited}
    assert codes <= {None, "text_not_found"}
    lines = (folder / "part" / "list.txt").read_text(encoding="utf-8").splitlines()
    assert lines[1:] == ["fresh"] and lines[0] in ("item0 open", "item0 shut")


def test_locks_leave_few_files_and_none_in_the_folders(folder, monkeypatch, tmp_path):
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    for number in range(600):
        with _lock.lock_of(folder / str(number)):
            pass
    assert 100 < len(list(place.iterdir())) <= 256
    assert [path.name for path in folder.iterdir()] == ["part"]


def die_in_the_lock(folder):
    with _lock.lock_of(Path(folder)):
        os._exit(3)


def test_a_process_that_dies_gives_the_lock_back(folder):
    worker = multiprocessing.get_context("spawn").Process(
        target=die_in_the_lock, args=(str(folder / "part"),)
    )
    worker.start()
    worker.join(20)
    assert worker.exitcode == 3
    assert coding(folder, "part/list.txt")("item1 open", "item1 shut").is_success


def test_texts_added_to_one_new_file_are_all_there(folder):
    """Also the first ones, which find no file."""

    def add(number):
        registry = ToolRegistry().include(CodingToolSet(folder))
        args = {"filename": "new/log.txt", "content": f"{number}\n"}
        return result_of(registry, "append_file", **args).error

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(add, range(40))) == [None] * 40
    lines = (folder / "new" / "log.txt").read_text(encoding="utf-8").split()
    assert sorted(map(int, lines)) == list(range(40))
