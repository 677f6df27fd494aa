"""The guide's section on Snowl: its files and commands give the output it shows."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import of_framework

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "qitos_min" / "GUIDE.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ python (.*demo.*)\n((?:(?![$`]).*\n)+)", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def play(need, tmp_path_factory):
    """``play(framework, edit)``: (the folder, what each command printed and should print)."""

    def start(framework, edit=lambda code: code):
        need("snowl", framework)
        folder = tmp_path_factory.mktemp("readme")
        files = re.findall(r"```python\n# (demo/\w+\.py)\n(.*?)```", TEXT, re.DOTALL)
        assert len(files) == 4 and len(COMMANDS) == 2
        for name, code in files:
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(edit(of_framework(code, framework)), encoding="utf-8")
        told = []
        for command, shown in COMMANDS:
            done = subprocess.run(
                [sys.executable, *command.split()],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=60,
            )
            said = [line.rstrip() for line in done.stdout.splitlines()]
            told.append((said[: len(shown.splitlines())], shown.splitlines(), done.returncode))
        (run,) = folder.glob("demo/.snowl/runs/2*")
        return run, told

    return start


def read(run, name):
    return json.loads((run / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def played(play):
    return play("qitos_min")


def test_the_readme_example_gives_what_it_shows(played):
    for said, shown, _ in played[1]:
        assert said == shown


def test_a_trial_in_error_makes_the_exit_code_1(played):
    assert [code for *_, code in played[1]] == [1, 0]


def test_from_elsewhere_snowl_has_to_be_told_where_the_modules_are(played, tmp_path):
    project = played[0].parents[2]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "snowl", "eval", str(project), "--no-ui", "--no-web-monitor"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "No module named 'qitos_min'" in done.stderr + done.stdout


def test_snowls_monitor_has_a_row_for_each_trial_and_no_other(played):
    rows = read(played[0], "profiling.json")["task_monitor"]
    told = [(row["task_id"], row["agent_id"], row["sample_id"], row["status"]) for row in rows]
    assert told == [
        ("sums", "sum-agent", "easy", "success"),
        ("sums", "sum-agent", "hard", "error"),
    ]


def test_with_qitos_0_3_0_the_payload_says_who_ran_with_what(play):
    # That engine has no export_config(), and its critics' outputs no names.
    edits = {
        "class SumAgent(AgentModule):\n": "class SumAgent(AgentModule):\n    name = 'summer'\n\n",
        "agent = QitOSAdapter()": "class Strict:\n    def evaluate(self, *_):\n"
        "        return {'action': 'continue'}\n\n\nagent = QitOSAdapter()",
        "max_steps=5": "max_steps=5, engine_kwargs={'critics': [Strict()]}",
    }

    def edit(code):
        for old, new in edits.items():
            code = code.replace(old, new)
        return code

    run, _ = play("qitos", edit)
    messages, verdicts = [], []
    for outcome in read(run, "outcomes.json"):
        first, *steps = outcome["trace"]["trace_events"]
        config = first["payload"]["engine_config"]
        assert (config["agent_name"], config["budget_max_steps"]) == ("summer", 5)
        assert config["critic_names"] == ["Strict"]
        rows = [row for step in steps for row in step.get("critics", ())]
        rows += first["payload"]["critic_traces"]
        assert {row["critic_name"] for row in rows} <= {"Strict"}
        verdicts.append(len(rows))
        error = outcome["task_result"]["error"]
        messages.append(error and error["message"])
    assert messages == [None, "ValueError: cannot compute '6 * 7' (DECIDE, step 0)"]
    assert verdicts == [4, 0]  # Two steps, each told in the payload and by its event.
