"""Read and Edit of ``CodingToolSet``: windows and exact edits."""

from __future__ import annotations

import hashlib
import os
import random
import re

import pytest

from tool_results import result_of

from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.core.tool_result import ToolResult
from qitos_min.kit._folder import FileRefusal
from qitos_min.kit.tool._files import edited
from qitos_min.kit.tool import CodingToolSet
from workspaces import edit, read, tree

FIVE_LINES = b"l1\nl2\nl3\nl4\nl5\n"


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


# id, source, bytes of a.txt, arguments of Read, numbered lines, total_lines, has_more
READS = [
    ("F1", "QitOS, reproduced", FIVE_LINES, (2, 2), "3\tl3\n4\tl4", 5, True),
    ("F1b", "QitOS, reproduced", FIVE_LINES, (1, 2), "2\tl2\n3\tl3", 5, True),
    ("all", "", FIVE_LINES, (), "1\tl1\n2\tl2\n3\tl3\n4\tl4\n5\tl5", 5, False),
    ("last", "", FIVE_LINES, (4, 1), "5\tl5", 5, False),
    (
        "F3",
        "hermes 86510; llxprt 1753; CowAgent PR 2943; coddy PR 56; deepagents PR 4730",
        b"l1\nl2\n",
        (2, 5),
        "",
        2,
        False,
    ),
    ("past-end", "", b"l1\nl2\n", (99, 1), "", 2, False),
    ("no-final-newline", "", b"l1\nl2", (1, 1), "2\tl2", 2, False),
    ("empty", "", b"", (), "", 0, False),
    ("only-bom", "", b"\xef\xbb\xbf", (), "", 0, False),
    ("one-newline", "", b"\n", (), "1\t", 1, False),
    (
        "F9b",
        "kimi-code 3825; hermes PR 35278; openclaw PR 115781; claude-code 60174",
        b"\xef\xbb\xbfa = 1\n",
        (0, 9),
        "1\ta = 1",
        1,
        False,
    ),
    ("crlf", "", b"a\r\nb\r\n", (), "1\ta\n2\tb", 2, False),
    ("lone-cr", "", b"a\rb\r\rc", (), "1\ta\n2\tb\n3\t\n4\tc", 4, False),
    (
        "no-other-line-ends",
        "",
        "a\x0cb\x85c\u2028d\x1ce\x0b\n".encode(),
        (),
        "1\ta\x0cb\x85c\u2028d\x1ce\x0b",
        1,
        False,
    ),
]


@pytest.mark.parametrize(
    "data, window, output, total, has_more",
    [case[2:] for case in READS],
    ids=[case[0] for case in READS],
)
def test_read_selects_lines(workspace, data, window, output, total, has_more):
    (workspace / "a.txt").write_bytes(data)
    result = read(workspace, "a.txt", *window)
    offset, limit = window or (0, 2000)
    assert (result.status, result.output) == ("success", output)
    assert result.metadata["selection_receipt"] == {
        "offset": offset,
        "limit": limit,
        "total_lines": total,
        "has_more": has_more,
        "truncated": has_more,
    }
    assert result.metadata["sha256"] == hashlib.sha256(data).hexdigest()
    assert (workspace / "a.txt").read_bytes() == data


# F2 (no thread; judgement)
@pytest.mark.parametrize(
    "offset, limit, error",
    [
        (-1, 2, "offset must be an int from 0, got -1"),
        (0, 0, "limit must be an int from 1, got 0"),
        (0, -3, "limit must be an int from 1, got -3"),
        (1.5, 2, "offset must be an int from 0, got 1.5"),
        (0, 2.0, "limit must be an int from 1, got 2.0"),
        (True, 2, "offset must be an int from 0, got True"),
        (0, True, "limit must be an int from 1, got True"),
        ("1", 2, "offset must be an int from 0, got '1'"),
        (None, 2, "offset must be an int from 0, got None"),
        (0, None, "limit must be an int from 1, got None"),
    ],
)
def test_read_refuses_a_window_that_is_none(workspace, offset, limit, error):
    (workspace / "a.txt").write_bytes(FIVE_LINES)
    result = read(workspace, "a.txt", offset, limit)
    assert (result.status, result.error_code) == ("error", "invalid_read_window")
    assert result.error == f"cannot read 'a.txt': {error}"
    assert result.output is None


# F6c (QitOS, reproduced), F21 (no thread; judgement)
@pytest.mark.parametrize(
    "name, reason",
    [
        ("missing.txt", os.strerror(2)),
        ("no/such/folder", os.strerror(2)),
        ("b.bin", "binary file of 3 bytes, not text"),
        ("utf16.txt", "binary file of 4 bytes, not text"),
        ("a\0b", "outside the workspace"),
    ],
)
def test_read_names_the_file_it_cannot_show(workspace, name, reason):
    (workspace / "b.bin").write_bytes(b"\0\xff\0")
    (workspace / "utf16.txt").write_bytes("\u5bd2".encode("utf-16"))
    result = read(workspace, name)
    assert (result.status, result.error_code) == ("error", "file_read_failed")
    assert result.error == f"cannot read {name!r}: {reason}"


@pytest.mark.parametrize("name", ["d", "", "."])
def test_read_refuses_a_folder(workspace, name):
    (workspace / "d").mkdir()
    result = read(workspace, name)
    assert (result.status, result.error_code) == ("error", "file_read_failed")
    assert result.error.startswith(f"cannot read {name!r}: ")


@pytest.mark.parametrize("name", [None, 3, b"a.txt", ["a.txt"]])
def test_a_name_that_is_no_text_is_an_error_result(workspace, name):
    assert read(workspace, name).error_code == "file_read_failed"
    assert edit(workspace, name, "a", "b").error_code == "file_edit_failed"


def test_read_marks_text_that_is_not_utf8(workspace):
    (workspace / "a.txt").write_bytes(b"caf\xe9\nplain\n")
    result = read(workspace, "a.txt")
    assert result.output == "1\tcaf\ufffd\n2\tplain"


# id, source, before, old, new, replace_all, after
EDITS = [
    ("F5", "QitOS, reproduced", b"x=1\nx=1\n", "x=1", "y", True, b"y\ny\n"),
    (
        "F7",
        "pi PR 360; kolega PR 197; zero PR 378; QitOS, reproduced",
        b"a = 1\r\nb = 2\r\nc = 3\r\n",
        "a = 1\nb = 2",
        "a = 9\nb = 2",
        False,
        b"a = 9\r\nb = 2\r\nc = 3\r\n",
    ),
    (
        "F9",
        "kimi-code 3825; hermes PR 35278; openclaw PR 115781; claude-code 60174",
        b"\xef\xbb\xbfa = 1\nb = 2\n",
        "a = 1",
        "a = 2",
        False,
        b"\xef\xbb\xbfa = 2\nb = 2\n",
    ),
    (
        "F12",
        "TeXRA PR 6872; oh-my-cli 477",
        b"v=old;\n",
        "old",
        "\\1 $& \\g<0> $$ \\n",
        False,
        b"v=\\1 $& \\g<0> $$ \\n;\n",
    ),
    ("F19", "QitOS, reproduced", b"one\ntwo", "one", "ONE", False, b"ONE\ntwo"),
    ("old-is-literal", "", b"a.c abc", "a.c", "x", False, b"x abc"),
    ("crlf-written-out", "", b"a\r\nb\r\n", "a\r\nb", "c\r\nd", False, b"c\r\nd\r\n"),
    ("crlf-gets-new-lines", "", b"a\r\nb\r\n", "b", "b\nc", False, b"a\r\nb\r\nc\r\n"),
    ("cr-file", "", b"a\rb\rc", "a\nb", "x\ny\nz", False, b"x\ry\rz\rc"),
    ("no-line-end", "", b"ab", "a", "x\ny", False, b"x\nyb"),
    ("lf-in-mixed", "", b"a\r\nb\nc\r\n", "b\nc", "B\nC", False, b"a\r\nB\nC\r\n"),
    ("crlf-in-mixed", "", b"a\nb\r\nc\n", "b\nc", "B\nC", False, b"a\nB\r\nC\n"),
    ("more-in-mixed", "", b"a\r\nb\nc\r\n", "b", "b\nB", False, b"a\r\nb\r\nB\nc\r\n"),
    ("join-lines", "", b"a\r\nb\r\n", "a\n", "a ", False, b"a b\r\n"),
    ("lf-is-a-whole-crlf", "", b"a\r\nb\r\n", "\n", "!", True, b"a!b!"),
    ("to-nothing", "", b"gone", "gone", "", False, b""),
    ("crlf-only-there", "", b"a\nb\r\na\nb\n", "a\nb\r\n", "x", False, b"xa\nb\n"),
    (
        "beyond-bmp",
        "",
        "x \U0001f98a y".encode(),
        "\U0001f98a",
        "\u5bd2",
        False,
        b"x \xe5\xaf\x92 y",
    ),
    ("overlapping-all", "", b"aaa", "aa", "b", True, b"ba"),
]


@pytest.mark.parametrize(
    "before, old, new, replace_all, after",
    [case[2:] for case in EDITS],
    ids=[case[0] for case in EDITS],
)
def test_edit_replaces_only_the_text(workspace, before, old, new, replace_all, after):
    (workspace / "a.txt").write_bytes(before)
    result = edit(workspace, "a.txt", old, new, replace_all)
    assert (result.status, result.error) == ("success", None)
    assert tree(workspace) == {"a.txt": after}
    assert result.metadata["sha256"] == hashlib.sha256(after).hexdigest()
    assert result.filesystem_changes == [{"path": "a.txt", "operation": "edit"}]
    assert ToolResult.from_dict(result.to_dict()) == result


AMBIGUOUS = "old text occurs in {} places, expected one (or replace all)"
NO_SURROGATES = (
    "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed"
)
NOT_UTF8 = "not UTF-8, it can only be read"

# id, source, before, old, new, further arguments, code, reason
REFUSALS = [
    (
        "F6",
        "QitOS, reproduced",
        b"x=1\nx=1\n",
        "x=1",
        "y",
        {},
        "ambiguous_edit",
        AMBIGUOUS.format(2),
    ),
    (
        "F6b",
        "QitOS, reproduced",
        b"x=1\n",
        "nope",
        "y",
        {},
        "text_not_found",
        "old text does not occur in the file",
    ),
    (
        "F13",
        "no thread; judgement",
        b"aaa",
        "aa",
        "b",
        {},
        "ambiguous_edit",
        AMBIGUOUS.format(2),
    ),
    (
        "F13b",
        "no thread; judgement",
        b"aaaa",
        "aa",
        "b",
        {},
        "ambiguous_edit",
        AMBIGUOUS.format(3),
    ),
    (
        "lines-look-the-same",
        "",
        b"a\nb a\r\nb",
        "a\nb",
        "c",
        {},
        "ambiguous_edit",
        AMBIGUOUS.format(2),
    ),
    (
        "F17",
        "stella 5502; qwen-code 3839",
        b"alpha\n",
        "alpha",
        "b",
        {"expected_sha256": "0" * 64},
        "stale_file",
        "the file changed: its SHA-256 is not the expected one",
    ),
    (
        "F20",
        "no thread; judgement",
        b"x\n",
        "x",
        "x",
        {},
        "invalid_edit",
        "old and new text are the same",
    ),
    (
        "same-here",
        "",
        b"a\r\n",
        "a\r\n",
        "a\n",
        {},
        "invalid_edit",
        "old and new text are the same in this file",
    ),
    ("empty-old", "", b"x", "", "y", {}, "invalid_edit", "old text is empty"),
    (
        "bom-is-no-text",
        "",
        b"\xef\xbb\xbfa",
        "\ufeffa",
        "b",
        {},
        "text_not_found",
        "old text does not occur in the file",
    ),
    (
        "half-of-a-line-end",
        "",
        b"a\r\nb\r\n",
        "a\nb\r",
        "c",
        {},
        "text_not_found",
        "old text does not occur in the file",
    ),
    (
        "lf-file-has-no-crlf",
        "",
        b"a\nb",
        "a\r\nb",
        "c",
        {},
        "text_not_found",
        "old text does not occur in the file",
    ),
    (
        "binary",
        "",
        b"a\0b",
        "a",
        "c",
        {},
        "file_edit_failed",
        "binary file of 3 bytes, not text",
    ),
    (
        "utf-16",
        "",
        b"\xff\xfea\xd8",
        "a",
        "c",
        {},
        "file_edit_failed",
        "binary file of 4 bytes, not text",
    ),
    ("latin-1", "", b"caf\xe9 1", "1", "2", {}, "file_edit_failed", NOT_UTF8),
    (
        "half-of-a-shift-jis-character",
        "",
        "\u8868 \\".encode("shift-jis")[:2],
        "\\",
        "/",
        {},
        "file_edit_failed",
        NOT_UTF8,
    ),
    ("surrogate", "", b"x", "x", "\ud800", {}, "file_edit_failed", NO_SURROGATES),
]


@pytest.mark.parametrize(
    "before, old, new, options, code, reason",
    [case[2:] for case in REFUSALS],
    ids=[case[0] for case in REFUSALS],
)
def test_a_refused_edit_leaves_the_file(
    workspace, before, old, new, options, code, reason
):
    path = workspace / "a.txt"
    path.write_bytes(before)
    os.utime(path, ns=(10**18, 10**18))
    result = edit(workspace, "a.txt", old, new, **options)
    assert (result.status, result.error_code) == ("error", code)
    assert result.error == f"cannot edit 'a.txt': {reason}"
    assert result.output is None and result.filesystem_changes == []
    assert tree(workspace) == {"a.txt": before}
    assert path.stat().st_mtime_ns == 10**18


@pytest.mark.parametrize("spell", [str.lower, str.upper])
def test_edit_accepts_the_expected_digest(workspace, spell):
    (workspace / "a.txt").write_bytes(b"alpha\n")
    digest = spell(read(workspace, "a.txt").metadata["sha256"])
    assert edit(workspace, "a.txt", "alpha", "b", expected_sha256=digest).is_success
    assert (workspace / "a.txt").read_bytes() == b"b\n"


def test_expected_digest_is_keyword_only(workspace):
    with pytest.raises(TypeError):
        CodingToolSet(workspace).Edit("a.txt", "a", "b", False, "0" * 64)


def test_the_tools_pass_the_registry_with_their_permissions(workspace):
    (workspace / "a.txt").write_bytes(FIVE_LINES)
    registry = ToolRegistry().include_toolset(CodingToolSet(workspace))
    assert result_of(registry, "Read", file_path="a.txt", offset=4).output == "5\tl5"
    ran = result_of(registry, "Edit", file_path="a.txt", old_string="l5", new_string="L5")
    assert (ran.status, ran.tool_name) == ("success", "Edit")
    assert (
        result_of(registry, "Read", file_path="a.txt", offset=-1).error_code
        == "invalid_read_window"
    )
    flags = {row.name: row.to_dict() for row in registry.export_permissions()}
    assert [
        flags["Read"]["permissions"][f"filesystem_{do}"] for do in ("read", "write")
    ] == [True, False]
    assert [
        flags["Edit"]["permissions"][f"filesystem_{do}"] for do in ("read", "write")
    ] == [True, True]
    assert flags["Read"]["read_only"] and not flags["Edit"]["read_only"]


def test_the_workspace_must_exist(tmp_path):
    with pytest.raises(NotADirectoryError) as caught:
        CodingToolSet(tmp_path / "none")
    path = os.fspath(tmp_path / "none")
    assert str(caught.value) == f"workspace root {path!r} is not an existing folder"


LINE_ENDS = (b"\n", b"\r\n", b"\r")


def plain(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def random_file(chance: random.Random) -> tuple[bytes, bytes]:
    """A BOM or none, and lines of letters that repeat, with any line ends."""
    ends = chance.choice([(end,) for end in LINE_ENDS] + [LINE_ENDS])
    letters = ["a", "b", "ab", " ", "\\", ".", "$", "\u5bd2", "\U0001f98a", "\x85", ""]
    words = ["".join(chance.choices(letters, k=chance.randrange(5))) for _ in range(12)]
    body = b"".join(word.encode() + chance.choice(ends) for word in words)
    return chance.choice([b"", b"\xef\xbb\xbf"]), body.removesuffix(chance.choice(ends))


@pytest.mark.parametrize("seed", range(200))
def test_an_edit_changes_only_the_matched_bytes(seed):
    chance = random.Random(seed)
    bom, body = random_file(chance)
    shown = plain(body).decode()
    start = chance.randrange(len(shown))
    old = shown[start : start + chance.randrange(1, 9)]
    new = "".join(chance.choices(["x", "\n", "\\1", "\u00e9"], k=chance.randrange(5)))
    places = [i for i in range(len(shown)) if shown.startswith(old, i)]
    try:
        after, count = edited(bom + body, old, new, replace_all=False)
    except FileRefusal as refusal:
        # As a reader of the numbered lines would count them.
        expected = "ambiguous_edit" if len(places) > 1 else "invalid_edit"
        assert refusal.code == expected
        after, count = edited(bom + body, old, "x" + new, replace_all=True)
        assert plain(after) == bom + shown.replace(old, "x" + new).encode()
        assert count == shown.count(old)
        return
    assert count == len(places) == 1
    assert plain(after) == bom + shown.replace(old, new).encode()
    head, tail = shown[: places[0]].encode(), shown[places[0] + len(old) :].encode()
    kept = [i for i in range(len(body) + 1) if plain(body[:i]) == head]
    rest = [i for i in range(len(body) + 1) if plain(body[i:]) == tail]
    assert any(after.startswith(bom + body[:i]) for i in kept)
    assert any(after.endswith(body[i:]) for i in rest)
    if len(line_ends(body)) == 1:
        assert line_ends(after) <= line_ends(body)


def line_ends(data: bytes) -> set[bytes]:
    return set(re.findall(b"\r\n|\r|\n", data))


@pytest.mark.parametrize("seed", range(100))
def test_windows_put_together_are_the_file(workspace, seed):
    chance = random.Random(seed)
    bom, body = random_file(chance)
    (workspace / "a.txt").write_bytes(bom + body)
    step, rows, offset = chance.randrange(1, 5), [], 0
    while True:
        result = read(workspace, "a.txt", offset, step)
        rows += result.output.split("\n") if result.output else []
        if not result.metadata["selection_receipt"]["has_more"]:
            break
        offset += step
    lines = plain(body).decode().removesuffix("\n").split("\n") if body else []
    assert rows == [f"{number}\t{line}" for number, line in enumerate(lines, 1)]
