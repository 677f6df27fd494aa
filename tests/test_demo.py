"""python -m qitos_min: the built-in run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def demo(*args):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "qitos_min", *args],
        cwd=ROOT, capture_output=True, encoding="utf-8",
    )


def strict(text):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals")
def test_a_terminal_sees_the_steps_as_they_go():
    import pty

    ours, theirs = pty.openpty()
    env = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "qitos_min"], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert strict(done.stdout)["step_count"] == 6
    lines = shown.split("\r\n")
    assert "Report how warm it was on average." in lines[0]
    assert sum("read_log" in line or "average(" in line or "publish" in line for line in lines) >= 3
    assert "\x1b" not in shown


def test_the_example_shows_approval_retry_and_handoff():
    done = demo()
    assert (done.returncode, done.stderr) == (0, "")
    payload = strict(done.stdout)
    assert [spec["name"] for spec in payload["tool_permissions"] if spec["needs_approval"]] == [
        "publish"
    ]
    assert [row["action"] for row in payload["critic_traces"]].count("retry") == 1
    assert [(row["from_agent"], row["to_agent"]) for row in payload["handoff_traces"]] == [
        ("planner", "writer")
    ]
    assert payload["step_count"] == 6


def test_the_example_prints_the_same_bytes_each_time():
    assert demo().stdout == demo().stdout


def test_a_folder_with_a_run_is_not_written_over(tmp_path):
    assert demo("--trace", str(tmp_path)).returncode == 0
    again = demo("--trace", str(tmp_path))
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == (
        f"python -m qitos_min: {str(tmp_path)!r} holds a run already (manifest.json)\n"
    )
