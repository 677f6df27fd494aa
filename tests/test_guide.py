"""The guide is true: each chapter's program runs and prints what it says, and its table is whole."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "qitos_min" / "GUIDE.md").read_text(encoding="utf-8")
CHAPTERS = re.findall(r"^## (\d+)\. (.+?)\n(.*?)(?=^## )", TEXT, re.M | re.S)
PACKAGES = ("qitos_min", *(f"qitos_min.{name}" for name in "core engine kit models trace snowl view".split()))
ROWS = re.findall(r"^\| `(\w+)` \| (.*?) \| (.+?) \| (\d+) \|$", TEXT, re.M)


@pytest.mark.parametrize("number, title, body", CHAPTERS, ids=[row[1] for row in CHAPTERS])
def test_a_chapter_runs_and_prints_what_it_says(number, title, body, tmp_path):
    if "POSIX only" in body and os.name != "posix":
        pytest.skip("POSIX only")
    (code,) = re.findall(r"```python\n(.*?)```", body, re.S)
    (output,) = re.findall(r"```text\n(.*?)```", body, re.S)
    script = tmp_path / "chapter.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_there_are_twelve_chapters():
    assert [int(number) for number, _, _ in CHAPTERS] == [*range(1, 13)]


def test_the_table_has_a_row_for_each_public_name():
    homes = {}
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            homes.setdefault(name, []).append(package.removeprefix("qitos_min."))
    listed = [name for name, *_ in ROWS]
    missing = [f"{name} ({', '.join(homes[name])})" for name in sorted(homes) if name not in listed]
    assert not missing, f"GUIDE.md, Every public name: add rows for {'; '.join(missing)}"
    gone = sorted(set(listed) - set(homes))
    assert not gone, f"GUIDE.md, Every public name: take out the rows of {', '.join(gone)}"
    assert listed == sorted(set(listed), key=lambda name: (name.lower(), name))
    for name, where, _, chapter in ROWS:
        packages = [home for home in homes[name] if home != "qitos_min"]
        only = "" if "qitos_min" in homes[name] else "only "
        assert where == only + ", ".join(f"`{home}`" for home in packages), name
        assert 1 <= int(chapter) <= 12, name
