"""The one file, copied into other people's trees."""

import ast
import glob
import importlib.util
import os
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import snowl_compat

SCRIPT = Path(snowl_compat.__file__)
SOURCE = SCRIPT.read_bytes()
TREE = ast.parse(SOURCE)


def python(*args, cwd=None, executable=sys.executable, **options):
    done = subprocess.run(
        [executable, *map(str, args)], cwd=cwd, capture_output=True, text=True,
        encoding="utf-8", timeout=60, **options,
    )
    return done.returncode, done.stdout.replace("\r\n", "\n"), done.stderr


def load(path, name="a_copy"):
    """The module as a plugin loader makes it: never put into sys.modules."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert name not in sys.modules
    return module


@pytest.fixture
def vendored(tmp_path):
    """A foreign package that holds a copy."""
    folder = tmp_path / "acme" / "_vendor"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").write_text("")
    shutil.copy(SCRIPT, folder)
    (tmp_path / "run.json").write_text('[{"step_id": 0, "critic_outputs": [{"score": 0.5}]}]')
    return tmp_path


VERSION = f"{snowl_compat.__version__}\n"


@pytest.mark.parametrize("flags", [[], ["-O"], ["-OO"], ["-I", "-S"], ["-I", "-S", "-OO"], ["-W", "error"]])
def test_the_copy_runs_by_itself(vendored, flags):
    copy = vendored / "acme" / "_vendor" / "snowl_compat.py"
    assert python(*flags, copy, "--version", cwd=vendored) == (0, VERSION, "")
    code, out, error = python(*flags, copy, "export", "run.json", cwd=vendored)
    assert (code, out, error) == (0, snowl_compat.export_json(vendored / "run.json") + "\n", "")
    code, out, error = python(*flags, copy, "schema", cwd=vendored)
    assert (code, json.loads(out), error) == (0, snowl_compat.PAYLOAD_SCHEMA, "")


def test_the_copy_runs_and_imports_inside_a_foreign_package(vendored):
    command = ["-m", "acme._vendor.snowl_compat"]
    assert python(*command, "--version", cwd=vendored) == (0, VERSION, "")
    code, out, error = python(*command, "export", "run.json", cwd=vendored)
    assert (code, out, error) == (0, snowl_compat.export_json(vendored / "run.json") + "\n", "")
    script = (
        "import sys; from acme._vendor import snowl_compat as s\n"
        "print(s.build_payload([{}])['step_count'], s.SnowlCompatError.__module__)\n"
        "print([m for m in sys.modules if m.startswith(('qitos', 'snowl'))])"
    )
    assert python("-c", script, cwd=vendored) == (0, "1 acme._vendor.snowl_compat\n[]\n", "")


def test_an_unregistered_copy_works(tmp_path):
    copy = load(shutil.copy(SCRIPT, tmp_path / "other.py"))
    payload = copy.build_payload([{"step_id": 0, "critic_outputs": [{}]}], extended=True)
    assert payload == snowl_compat.build_payload([{"step_id": 0, "critic_outputs": [{}]}], extended=True)
    assert copy.validate_payload(payload) == []


def test_two_copies_share_their_objects(tmp_path):
    copy = load(shutil.copy(SCRIPT, tmp_path / "other.py"))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "manifest.json").write_text("[]")
    (folder / "steps.jsonl").write_text('{"step_id": 0, "critic_outputs": [{}]}\n{')
    for mine, other in ((snowl_compat, copy), (copy, snowl_compat)):
        issues, others = [], []
        payload = mine.build_payload(other.read_run(folder), extended=True, issues=issues)
        assert payload == other.build_payload(folder, extended=True, issues=others)
        assert issues == others and [issue.path for issue in issues] == ["manifest.json", "steps.jsonl:2"]
        assert mine.load_payload(other.dumps(payload)) == payload
        assert mine.build_payload(payload, extended=True) == payload
        assert mine.to_json_value(issues) == [list(issue) for issue in issues]
        with pytest.raises(ValueError):
            mine.load_payload("{")
    assert not issubclass(copy.SnowlCompatError, snowl_compat.SnowlCompatError)


def test_only_the_standard_library_is_imported():
    names = {
        name.split(".")[0]
        for node in ast.walk(TREE)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module] if isinstance(node, ast.ImportFrom) and not node.level
            else ["relative"] if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert names - sys.stdlib_module_names == set()


def test_what_is_imported_with_the_file():
    code = (
        "import sys, json; before = set(sys.modules); sys.path.insert(0, sys.argv[1])\n"
        "import snowl_compat; print(*sorted(set(sys.modules) - before))"
    )
    code, out, error = python("-I", "-S", "-c", code, SCRIPT.parent)
    assert (code, error) == (0, "")
    heavy = {"argparse", "asyncio", "dataclasses", "typing", "inspect", "datetime", "decimal",
             "uuid", "pathlib", "textwrap", "tempfile", "subprocess", "logging", "contextlib"}
    assert set(out.split()) & heavy == set()


def test_importing_says_nothing_and_leaves_nothing(tmp_path):
    shutil.copy(SCRIPT, tmp_path)
    assert python("-B", "-W", "error", "-c", "import snowl_compat", cwd=tmp_path) == (0, "", "")
    assert os.listdir(tmp_path) == ["snowl_compat.py"]


def test_the_form_of_the_file():
    text = SOURCE.decode("utf-8")
    assert not SOURCE.startswith(b"\xef\xbb\xbf")
    assert text.startswith("# SPDX-License-Identifier: MIT")
    assert "Permission is hereby granted, free of charge" in text
    assert not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in TREE.body)
    literals = [
        node.value.value for node in TREE.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    ]
    assert literals == [snowl_compat.__version__]
    assert ast.get_docstring(TREE)


def test_python_3_8_can_parse_the_file():
    ast.parse(SOURCE, feature_version=(3, 8))


def older_pythons():
    """Pythons too old for the file, of PATH and of pyenv."""
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = [shutil.which(f"python3.{minor}") for minor in (8, 9)]
    found += [path for minor in (8, 9) for path in glob.glob(f"{root}/versions/3.{minor}.*/bin/python")]
    return [path for path in found if path and "shims" not in path]


def test_an_older_python_is_told_so():
    pythons = older_pythons()
    if not pythons:
        pytest.skip("no Python 3.8 or 3.9 here")
    for executable in pythons:
        code, out, error = python(SCRIPT, "--version", executable=executable)
        assert (code, out) == (1, "")
        assert error.splitlines()[-1] == "ImportError: snowl_compat needs Python 3.10 or newer"
