"""The hook that prints a run as it goes."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from qitos_min import Action, AgentModule, Decision, Engine, StateSchema, tool
from qitos_min.engine import CriticResult, critic
from qitos_min.render import ClaudeStyleHook


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool
def fail() -> None:
    raise OSError("no\ndisk")


class Scripted(AgentModule):
    def __init__(self, *decisions):
        super().__init__()
        self.script = list(decisions)
        for made in (add, fail):
            self.tool_registry.register(made)

    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def decide(self, state, observation):
        chosen = self.script.pop(0)
        if isinstance(chosen, Exception):
            raise chosen
        return chosen

    def reduce(self, state, observation, decision):
        state.advance_step()
        return state


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(*decisions, stream=None, critics=(), **options):
    stream = io.StringIO() if stream is None else stream
    hook = ClaudeStyleHook(stream=stream, **options)
    result = Engine(Scripted(*decisions), hooks=[hook], critics=list(critics)).run("add\nthem up")
    assert not [event for event in result.events if event.phase.value == "RECOVER"]
    return re.sub(r"\d+\.\d s", "0.0 s", stream.getvalue())


ADD = Decision.act([Action("add", {"a": 1, "b": 2})])


def test_a_run_is_one_line_a_step():
    text = shown(ADD, Decision.act([Action("fail"), Action("add", {"a": 3, "b": 4})]),
                 Decision.wait(), Decision.final("it is\n7"))
    assert text.splitlines() == [
        "task  add them up",
        "step 0  add(a=1, b=2)  -> 3",
        "step 1  fail()  -> error: OSError: no disk  add(a=3, b=4)  -> 7",
        "step 2  wait",
        "step 3  final it is 7",
        "it is 7  final, 4 steps, 0.0 s",
    ]


def test_critics_that_object_are_shown():
    @critic
    def strict(state, decision, results):
        return CriticResult("stop", "not good")

    lines = shown(ADD, critics=[strict]).splitlines()
    assert lines[1] == "step 0  add(a=1, b=2)  -> 3  strict: stop, not good"
    assert lines[2].startswith("no answer  critic_stop, 1 steps")


def test_a_failed_run_says_why():
    stream = io.StringIO()
    hook = ClaudeStyleHook(stream=stream)
    result = Engine(Scripted(ValueError("broken")), hooks=[hook]).run("t")
    assert result.failure is not None
    assert "ValueError: broken" in stream.getvalue().splitlines()[-1]


def test_long_values_and_terminal_codes_are_tamed():
    long = Decision.act([Action("add", {"a": "x" * 500, "b": "\x1b[2J"})])
    lines = shown(long, Decision.final("\x1b[31mred" + "y" * 100), max_preview_chars=40).splitlines()
    assert len(lines[1]) < 150 and len(lines[-1]) < 100
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    "made, no_color, coloured",
    [(Terminal, None, True), (Terminal, "1", False), (Terminal, "", True), (io.StringIO, None, False)],
)
def test_colours_are_for_terminals(monkeypatch, made, no_color, coloured):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    text = shown(ADD, Decision.final("3"), stream=made())
    assert ("\x1b[" in text) is coloured
    plain = re.sub(r"\x1b\[\d*m", "", text).splitlines()
    assert plain[1] == "step 0  add(a=1, b=2)  -> 3"


def test_the_stream_is_stderr_at_the_time(capsys, monkeypatch):
    hook = ClaudeStyleHook()
    Engine(Scripted(Decision.final("3")), hooks=[hook]).run("t")
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("task  t\nstep 0  final 3\n3  final")
    monkeypatch.setattr(sys, "stderr", None)
    result = Engine(Scripted(Decision.final("3")), hooks=[hook]).run("t")
    assert result.final_result == "3"


def test_a_narrow_encoding_loses_no_line():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    hook = ClaudeStyleHook(stream=stream)
    Engine(Scripted(Decision.final("\u5bd2")), hooks=[hook]).run("t")
    assert stream.buffer.getvalue().splitlines()[1] == b"step 0  final ?"


def test_events_go_to_a_file(tmp_path):
    path = tmp_path / "events.jsonl"
    shown(ADD, Decision.final("3"), output_jsonl=path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    assert {row["step_id"] for row in rows} == {0, 1}
    assert {"phase", "payload", "ts"} <= rows[0].keys()


@pytest.mark.parametrize("theme", ["research", "minimal", "neon"])
def test_themes_are_known(theme):
    assert ClaudeStyleHook(theme=theme).theme == theme
    with pytest.raises(ValueError, match="^unknown theme 'x', expected one of research, minimal, neon$"):
        ClaudeStyleHook(theme="x")
