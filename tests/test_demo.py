"""python -m qitos_min: the built-in run, and the same with a model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from model_server import ModelServer, chat

ROOT = Path(__file__).resolve().parents[1]
KEY = "sk-test-0123456789abcdef"


def demo(*args, key=None):
    env = {k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"}
    if key is not None:
        env["OPENAI_API_KEY"] = key
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "qitos_min", *args],
        cwd=ROOT, env=env, capture_output=True, encoding="utf-8",
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


def test_a_model_can_decide(tmp_path):
    replies = [
        chat('Thought: look\nAction: read_log(day="monday")', usage=(20, 5)),
        chat("Final Answer: about 18", usage=(30, 5)),
        chat("Action: average(numbers=[18, 21, 24])", usage=(40, 5)),
        chat("Action: transfer_to_writer()", usage=(50, 5)),
        chat('Action: publish(text="It was 21 on average.")', usage=(60, 5)),
        chat("Final Answer: It was 21 on average.", usage=(70, 5)),
    ]
    with ModelServer(replies) as server:
        done = demo(
            "--model", "tiny", "--base-url", server.base_url, "--trace", str(tmp_path), key=KEY
        )
        requests = list(server.requests)
    assert (done.returncode, done.stderr) == (0, "")
    payload = strict(done.stdout)
    assert payload["engine_config"]["model_id"] == "tiny"
    assert payload["engine_config"]["protocol_id"] == "react_text_v1"
    assert [row["action"] for row in payload["critic_traces"]] == [
        "continue", "retry", "continue", "continue", "continue",
    ]
    assert [row["to_agent"] for row in payload["handoff_traces"]] == ["writer"]
    assert requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "Reckon the average" in requests[2].body["messages"][-1]["content"]
    assert "Reckon the average" not in json.dumps(requests[3].body)
    for path in tmp_path.iterdir():
        assert KEY not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "args, key, message",
    [
        (["--model", "m"], None, "--model needs a key in OPENAI_API_KEY"),
        (["--model", "m", "--base-url", "ftp://x"], KEY, "base_url"),
    ],
)
def test_what_is_missing_is_said_in_one_line(args, key, message):
    done = demo(*args, key=key)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and message in done.stderr and KEY not in done.stderr


def test_a_server_that_is_not_there_is_said_in_one_line():
    with ModelServer([]) as server:
        url = server.base_url
    done = demo("--model", "m", "--base-url", url, key=KEY)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and KEY not in done.stderr
    payload = strict(done.stdout)
    assert payload["step_count"] == 1
