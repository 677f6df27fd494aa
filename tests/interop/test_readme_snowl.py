"""The README's section on Snowl: its files and commands give the output it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_example_gives_what_it_shows(need, tmp_path):
    need("snowl")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files = re.findall(r"```python\n# (demo/\w+\.py)\n(.*?)```", text, re.DOTALL)
    for name, code in files:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code, encoding="utf-8")
    commands = re.findall(
        r"^\$ python (.*demo.*)\n((?:(?![$`]).*\n)+)", text, re.MULTILINE
    )
    assert len(files) == 4 and len(commands) == 2
    for command, shown in commands:
        done = subprocess.run(
            [sys.executable, *command.split()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
        )
        said = [line.rstrip() for line in done.stdout.splitlines()]
        assert said[: len(shown.splitlines())] == shown.splitlines(), done.stderr
