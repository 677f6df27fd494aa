"""The tools of ``CodingToolSet`` beside Read and Edit, and its options."""

from __future__ import annotations

import sys

import pytest

from qitos_min import Action, ToolRegistry
from qitos_min.kit import coding_tools, editor_tools
from qitos_min.kit.tool import CodingToolSet, EditorToolSet, ReadFile, RunCommand, WriteFile
from workspaces import make_outside, tree

FILES = {"empty": b"", "a.txt": b"one\ntwo\nthree\n", "dos.txt": b"a\r\nb", "src/b.py": b"Needle = 1\n"}
EDITOR = ["create", "insert", "replace_lines", "search", "str_replace", "view"]
FULL = ["Edit", "Read", "append_file", "list_files", "read_file", "run_command", "write_file"]


@pytest.fixture
def workspace(tmp_path):
    for name, data in FILES.items():
        path = tmp_path / "ws" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "ws" / "bin").write_bytes(b"\0Needle")
    return tmp_path / "ws"


# tool, arguments, what its output holds, and what becomes of a file
DONE = [
    ("view", {"path": "a.txt"}, {"content": "one\ntwo\nthree", "total_lines": 3}, {}),
    (
        "view",
        {"path": "a.txt", "view_range": [2, 2]},
        {"content": "two", "lines": [{"line": 2, "text": "two"}], "has_more": True},
        {},
    ),
    ("view", {"path": "a.txt", "view_range": [2, -1]}, {"content": "two\nthree"}, {}),
    ("view", {"path": "a.txt", "view_range": [2]}, {"content": "two"}, {}),
    ("view", {"path": "src"}, {"entries": [{"name": "b.py", "type": "file"}], "count": 1}, {}),
    ("create", {"path": "x/n.txt", "file_text": "q"}, {"size": 1}, {"x/n.txt": b"q"}),
    ("create", {"path": "a.txt"}, {"size": 0}, {"a.txt": b""}),
    (
        "str_replace",
        {"path": "a.txt", "old_str": "two\n", "new_str": "2\n"},
        {"path": "a.txt"},
        {"a.txt": b"one\n2\nthree\n"},
    ),
    ("str_replace", {"path": "a.txt", "old_str": "two\n"}, {}, {"a.txt": b"one\nthree\n"}),
    (
        "insert",
        {"path": "a.txt", "insert_line": 0, "new_str": "zero"},
        {},
        {"a.txt": b"zero\none\ntwo\nthree\n"},
    ),
    (
        "insert",
        {"path": "a.txt", "insert_line": 3, "new_str": "four\n"},
        {},
        {"a.txt": b"one\ntwo\nthree\nfour\n"},
    ),
    (
        "insert",
        {"path": "dos.txt", "insert_line": 2, "new_str": "c\nd"},
        {},
        {"dos.txt": b"a\r\nb\r\nc\r\nd"},
    ),
    (
        "replace_lines",
        {"path": "a.txt", "start_line": 1, "end_line": 2, "replacement": "R"},
        {},
        {"a.txt": b"R\nthree\n"},
    ),
    ("replace_lines", {"path": "a.txt", "start_line": 2, "end_line": 3}, {}, {"a.txt": b"one\n"}),
    (
        "replace_lines",
        {"path": "a.txt", "start_line": 3, "end_line": 3, "replacement": "3"},
        {},
        {"a.txt": b"one\ntwo\n3\n"},
    ),
    (
        "replace_lines",
        {"path": "dos.txt", "start_line": 2, "end_line": 2, "replacement": "x"},
        {},
        {"dos.txt": b"a\r\nx"},
    ),
    (
        "insert",
        {"path": "a.txt", "insert_line": 3, "new_str": "four"},
        {},
        {"a.txt": b"one\ntwo\nthree\nfour\n"},
    ),
    ("insert", {"path": "empty", "insert_line": 0, "new_str": "x"}, {}, {"empty": b"x\n"}),
    (
        "replace_lines",
        {"path": "dos.txt", "start_line": 1, "end_line": 1, "replacement": "x\ny\n"},
        {},
        {"dos.txt": b"x\r\ny\r\nb"},
    ),
    ("read_file", {"filename": "dos.txt"}, {"content": "a\nb", "size": 4}, {}),
    ("write_file", {"filename": "w", "content": "\u5bd2"}, {"size": 3}, {"w": b"\xe5\xaf\x92"}),
    ("append_file", {"filename": "w", "content": "a"}, {"appended_size": 1}, {"w": b"a"}),
    (
        "append_file",
        {"filename": "dos.txt", "content": "\n"},
        {"appended_size": 1},
        {"dos.txt": b"a\r\nb\n"},
    ),
    (
        "list_files",
        {},
        {"count": 5, "files": [
            {"name": "a.txt", "type": "file"}, {"name": "bin", "type": "file"},
            {"name": "dos.txt", "type": "file"}, {"name": "empty", "type": "file"},
            {"name": "src", "type": "directory"},
        ]},
        {},
    ),
    (
        "search",
        {"path": ".", "keyword": "needle"},
        {"matches": [{"path": "src/b.py", "line": 1, "text": "Needle = 1"}], "match_count": 1},
        {},
    ),
    ("search", {"path": "a.txt", "keyword": "x"}, {"matches": [], "truncated": False}, {}),
    (
        "run_command",
        {"command": f'"{sys.executable}" -c "print(1)"'},
        {"returncode": 0, "stdout": "1\n", "stderr": ""},
        {},
    ),
]


@pytest.mark.parametrize("name, args, told, changed", DONE)
def test_a_tool_does_its_work(workspace, name, args, told, changed):
    before = tree(workspace)
    result = coding_tools(workspace).execute(Action(name, args))
    assert (result.status, result.error) == ("success", None)
    assert {"status": "success", **told}.items() <= result.output.items()
    assert [row["path"] for row in result.filesystem_changes] == list(changed)
    after = {**before, **{n: d for n, d in changed.items()}}
    assert {n: d for n, d in tree(workspace).items() if d is not None} == {
        n: d for n, d in after.items() if d is not None
    }


REFUSED = [
    ("view", {"path": "none"}, "file_read_failed"),
    ("view", {"path": "bin"}, "file_read_failed"),
    ("view", {"path": "a.txt", "view_range": [3, 2]}, "invalid_read_window"),
    ("view", {"path": "a.txt", "view_range": [0]}, "invalid_read_window"),
    ("str_replace", {"path": "a.txt", "old_str": "zzz"}, "text_not_found"),
    ("str_replace", {"path": "a.txt", "old_str": "o", "new_str": "0"}, "ambiguous_edit"),
    ("insert", {"path": "a.txt", "insert_line": 4, "new_str": "x"}, "invalid_edit"),
    ("insert", {"path": "a.txt", "insert_line": -1, "new_str": "x"}, "invalid_edit"),
    ("insert", {"path": "bin", "insert_line": 0, "new_str": "x"}, "file_edit_failed"),
    ("replace_lines", {"path": "a.txt", "start_line": 2, "end_line": 4}, "invalid_edit"),
    ("replace_lines", {"path": "a.txt", "start_line": 2, "end_line": 1}, "invalid_edit"),
    ("read_file", {"filename": "src"}, "file_read_failed"),
    ("list_files", {"path": "a.txt"}, "file_list_failed"),
    ("search", {"path": "bin", "keyword": "x"}, "file_read_failed"),
    ("run_command", {"command": "exit 3"}, "command_failed"),
]


@pytest.mark.parametrize("name, args, code", REFUSED)
def test_what_cannot_be_done_is_an_error_that_changes_nothing(workspace, name, args, code):
    before = tree(workspace)
    result = coding_tools(workspace).execute(Action(name, args))
    assert (result.status, result.error_code) == ("error", code)
    assert tree(workspace) == before


PATHS = {"read_file": "filename", "write_file": "filename", "append_file": "filename"}
MORE = {
    "create": {}, "view": {}, "search": {"keyword": "secret"}, "read_file": {}, "list_files": {},
    "write_file": {"content": "x"}, "append_file": {"content": "x"},
    "str_replace": {"old_str": "secret"}, "insert": {"insert_line": 0, "new_str": "x"},
    "replace_lines": {"start_line": 1, "end_line": 1},
}


@pytest.mark.parametrize("name", MORE)
@pytest.mark.parametrize("path", ["../ws-evil/x", "../ws-evil", "{outside}/x"])
def test_no_tool_leaves_the_folder(workspace, name, path):
    outside = make_outside(workspace)
    path = path.format(outside=outside)
    args = {PATHS.get(name, "path"): path, **MORE[name]}
    result = coding_tools(workspace).execute(Action(name, args))
    assert result.status == "error" and result.error.endswith(": outside the workspace")
    assert tree(outside) == {"x": b"secret"}


@pytest.mark.parametrize(
    "made, names",
    [
        (CodingToolSet, sorted(EDITOR + FULL)),
        (lambda root: CodingToolSet(root, 5, False, profile="full"), sorted(EDITOR + FULL)),
        (lambda root: CodingToolSet(workspace_root=root, profile="editor"), EDITOR),
        (EditorToolSet, EDITOR),
        (
            lambda root: CodingToolSet(
                root, profile="editor", enable_web=True, include_notebook=False,
                include_tasks=False, enable_lsp=False, enable_tasks=False,
            ),
            sorted([*EDITOR, "extract_web_text", "http_get"]),
        ),
    ],
)
def test_options_choose_the_tools(workspace, made, names):
    assert sorted(ToolRegistry().include_toolset(made(workspace)).list_tools()) == names


def test_registries_hold_the_sets(workspace):
    assert sorted(coding_tools(workspace, shell_timeout=5).list_tools()) == sorted(EDITOR + FULL)
    assert sorted(editor_tools(workspace).list_tools()) == EDITOR


@pytest.mark.parametrize(
    "option", ["include_notebook", "include_tasks", "enable_lsp", "enable_tasks"]
)
def test_what_is_not_here_is_refused_by_name(workspace, option):
    with pytest.raises(ValueError) as caught:
        CodingToolSet(workspace, **{option: True})
    assert str(caught.value) == f"{option}=True: qitos_min has no such tools, give False"


def test_an_unknown_option_is_refused(workspace):
    with pytest.raises(TypeError, match="^CodingToolSet takes no option 'other'$"):
        CodingToolSet(workspace, other=False)


def test_an_unknown_profile_is_refused(workspace):
    with pytest.raises(ValueError, match="^unknown profile 'x', expected one of editor, full$"):
        CodingToolSet(workspace, profile="x")


def test_who_does_not_approve_is_asked(workspace):
    registry = ToolRegistry().include_toolset(CodingToolSet(workspace, auto_approve=False))
    asked = {row.name for row in registry.export_permissions() if row.needs_approval}
    writes = {"Edit", "create", "insert", "replace_lines", "str_replace"}
    assert asked == writes | {"append_file", "run_command", "write_file"}
    result = registry.execute(Action("create", {"path": "a.txt", "file_text": ""}))
    assert (result.status, result.error_code) == ("skipped", "approval_required")
    rows = coding_tools(workspace).export_permissions()
    assert not [row.name for row in rows if row.needs_approval]


def test_a_command_has_its_time_limit(workspace):
    command = f'"{sys.executable}" -c "import time; time.sleep(9)"'
    registry = ToolRegistry().register(RunCommand(workspace, 0.2))
    result = registry.execute(Action("run_command", {"command": command}))
    assert (result.status, result.error_code) == ("timed_out", "command_timed_out")


def test_single_tools_have_their_old_names(workspace):
    registry = ToolRegistry().register(ReadFile(workspace)).register(WriteFile(workspace))
    assert registry.execute(Action("write_file", {"filename": "n", "content": "x"})).is_success
    assert registry.execute(Action("read_file", {"filename": "n"})).output["content"] == "x"
