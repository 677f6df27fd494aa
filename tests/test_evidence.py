"""What a command or tool printed is seen by whoever has to understand its failure."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from engine_doubles import ScriptedAgent, ScriptedModel, play, tools
from strictly import strict

from tool_results import result_of

from qitos_min import Action, Decision, Engine, ToolRegistry
from qitos_min.core._foreign import CUT_MARK, fitted, shortened
from qitos_min.core.tool import ToolMeta
from qitos_min.core.tool_result import ToolResult
from qitos_min.engine import ContextConfig, EngineHook
from qitos_min.kit.critic import SelfReflectionCritic
from qitos_min.kit.env import HostEnv
from qitos_min.kit.tool import EnvToolSet
from qitos_min.trace import TraceWriter

posix_only = pytest.mark.skipif(os.name != "posix", reason="commands of a POSIX shell")

# The words are put together by the command, so that they are in its output alone.
SAYS = "print('FAILED test_' + 'sum'); print('w' + 'hy', file=sys.stderr); "


def python(code):
    """A command line that runs Python code, on any system."""
    return f'"{sys.executable}" -c "import sys, time; {code}"'


# Failures of every kind, and what is to be seen of each.


def refused() -> ToolResult:
    """Refuse."""
    return ToolResult.semantic_error(code="c", error="no", output=["FAILED test_sum", "why"])


def older_form() -> dict:
    """Fail in the older form."""
    return {"status": "error", "error": "no", "output": "FAILED test_sum: why"}


def run_checked() -> str:
    """Run a command and raise if it fails."""
    words = "import sys; " + SAYS + "sys.exit(1)"
    return subprocess.run([sys.executable, "-c", words], check=True, capture_output=True).stdout


def run_as_text() -> str:
    """Run a command as text and raise if it takes long."""
    words = "import sys, time; " + SAYS + "sys.stdout.flush(); time.sleep(9)"
    subprocess.run([sys.executable, "-c", words], timeout=0.5, capture_output=True, text=True)


FAILURES = {
    "an exit status": Action("run_command", {"command": python(SAYS + "sys.exit(1)")}),
    "refused by the tool": Action("refused"),
    "the older form": Action("older_form"),
    "a process that raised": Action("run_checked"),
    "a process out of time": Action("run_as_text"),
}
if os.name == "posix":
    FAILURES["a command out of time"] = Action(
        "run_command",
        {"command": "echo FAILED test_''sum; echo w''hy >&2; sleep 9", "timeout": 0.3},
    )


def all_tools():
    return tools(refused, older_form, run_checked, run_as_text).include(EnvToolSet())


def is_seen(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return "FAILED test_sum" in text and "why" in text


@pytest.mark.parametrize("action", FAILURES.values(), ids=FAILURES)
def test_the_output_of_a_failure_is_seen_by_agent_record_and_trace(tmp_path, action):
    agent = ScriptedAgent(Decision.act(action), Decision.final("x"), tool_registry=all_tools())
    trace = TraceWriter(tmp_path / "trace")
    result = play(Engine(agent, env=HostEnv(tmp_path), trace_writer=trace))
    [failed] = result.records[0].action_results
    assert failed["status"] in ("error", "timed_out") and is_seen(failed["output"])
    assert list(failed)[-5:] == ["tool_name", "status", "error", "error_code", "output"]
    own = failed["output"] if isinstance(failed["output"], dict) else {}
    assert {**own, **failed} == failed  # Found where a success has it, too.
    assert agent.observations[1]["action_results"] == [failed]
    assert agent.reduced[0]["action_results"] == [failed]
    for name in ("steps.jsonl", "events.jsonl"):
        lines = (tmp_path / "trace" / name).read_text(encoding="utf-8").splitlines()
        assert any(is_seen(line) and strict(line) for line in lines)


@pytest.mark.parametrize("protocol", ["native_tool_call_v1", "json_decision_v1", "react_text_v1"])
@pytest.mark.parametrize("action", FAILURES.values(), ids=FAILURES)
def test_the_output_of_a_failure_is_seen_by_the_model(tmp_path, action, protocol):
    model = ScriptedModel(*replies(protocol, action))
    agent = ScriptedAgent(None, None, tool_registry=all_tools(), llm=model, model_protocol=protocol)
    play(Engine(agent, env=HostEnv(tmp_path)))
    assert is_seen(json.dumps(model.asked[1]))


def replies(protocol, action):
    """What a model says to make a call, and then to end."""
    if protocol == "native_tool_call_v1":
        function = {"name": action.name, "arguments": json.dumps(action.args)}
        call = {"id": "c1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"choices": [{"message": message}]}, "done"
    if protocol == "json_decision_v1":
        call = {"mode": "act", "actions": [{"name": action.name, "args": action.args}]}
        return json.dumps(call), '{"mode": "final", "final_answer": "x"}'
    args = ", ".join(f"{name}={json.dumps(value)}" for name, value in action.args.items())
    return f"Action: {action.name}({args})", "Final Answer: x"


def test_a_critic_that_looks_for_failures_still_finds_them():
    agent = ScriptedAgent(*[Decision.act(Action("boom"))] * 2, tool_registry=tools())
    result = play(Engine(agent, critics=[SelfReflectionCritic(max_retries=1)]))
    assert [trace.action for trace in result.critic_traces] == ["retry", "stop"]
    assert result.critic_traces[0].reason == "boom: ValueError: no luck"


@pytest.mark.parametrize("action", FAILURES.values(), ids=FAILURES)
def test_a_critic_finds_a_failure_whatever_its_output_was(tmp_path, action):
    agent = ScriptedAgent(Decision.act(action), Decision.final("x"), tool_registry=all_tools())
    result = play(Engine(agent, critics=[SelfReflectionCritic()], env=HostEnv(tmp_path)))
    assert [trace.action for trace in result.critic_traces] == ["retry", "continue"]


# Both ends of what is long


@pytest.mark.parametrize("limit", range(0, 40))
@pytest.mark.parametrize("text", ["", "abc", "abcdefghij" * 4, '\n"\\' * 20, "\u5bd2" * 30])
@pytest.mark.parametrize("size", [len, lambda text: len(json.dumps(text, ensure_ascii=False)) - 2])
def test_a_text_is_cut_in_its_middle_and_no_more_than_needed(text, limit, size):
    short = shortened(text, limit, size)
    assert size(short) <= limit
    if size(text) <= limit:
        assert short == text
    elif limit < len(CUT_MARK):
        assert short == CUT_MARK[:limit]
    else:
        head, tail = short.split(CUT_MARK)
        assert text.startswith(head) and text.endswith(tail)
        assert len(head) - len(tail) in (0, 1)
        assert size(short) >= limit - 1


LONG_LINES = "".join(f"item number {n}\n" for n in range(3000))


@pytest.mark.parametrize(
    "output",
    [
        {
            "returncode": 1,
            "stdout": LONG_LINES + "LAST",
            "stderr": "FIRST\n" + LONG_LINES + "cannot link",
        },
        {"stderr": "FIRST cannot link", "stdout": LONG_LINES + "LAST"},
        {"stdout": LONG_LINES + "LAST", "stderr": "FIRST cannot link", "files": [LONG_LINES] * 3},
        {"ran": {"stdout": LONG_LINES + "LAST", "stderr": "FIRST" + LONG_LINES + "cannot link"}},
    ],
)
def test_each_stream_is_cut_by_itself(output):
    result = ToolResult.execution_error(code="c", error="exit status 1", output=output)
    for limit in (600, 4000):
        view = result.to_model_dict(max_chars=limit)
        assert len(json.dumps(view, ensure_ascii=False)) <= limit
        text = json.dumps(view["model_output"])
        for words in ("FIRST", "item number 0", "LAST", "cannot link"):
            assert words in text, (limit, words)
        assert view["error"] == "exit status 1"


def test_short_parts_of_an_object_stay_as_they_are():
    parts = {"code": 1, "short": "x" * 50, "none": None, "list": [1, 2], "long": "y" * 5000}
    kept = fitted(parts, 300)
    assert {**kept, "long": ""} == {**parts, "long": ""}
    assert len(json.dumps(kept)) == 300
    names = {f"a_long_name_{n}": n for n in range(1000)}
    view = ToolResult(output=names).to_model_dict(max_chars=400)
    assert (
        isinstance(view["model_output"], str) and '"a_long_name_999": 999}' in view["model_output"]
    )


@posix_only
@pytest.mark.parametrize("protocol", ["native_tool_call_v1", "react_text_v1"])
@pytest.mark.parametrize("most", [1000, 4000])
def test_of_a_long_command_output_the_model_sees_both_ends(tmp_path, protocol, most):
    code = "seq 1 20000; echo AssertionError in test_''sum; echo cannot l''ink >&2; exit 1"
    model = ScriptedModel(*replies(protocol, Action("run_command", {"command": code})))
    agent = ScriptedAgent(None, None, tool_registry=all_tools(), llm=model, model_protocol=protocol)
    play(Engine(agent, env=HostEnv(tmp_path), context_config=ContextConfig(max_result_chars=most)))
    text = json.dumps(model.asked[1])
    for words in ("AssertionError in test_sum", "cannot link", CUT_MARK, "exit status 1"):
        assert words in text


@posix_only
@pytest.mark.parametrize("count", [999_000, 1_000_100, 3_000_000, 20_000_000])
def test_of_a_very_long_output_both_ends_are_kept(tmp_path, count):
    code = f"echo FIRST; yes 0123456789 | head -c {count}; printf '\\r\\nLAST LINE'; echo e >&2"
    ran = HostEnv(tmp_path).processes.run(code)
    text = ran["stdout"]
    assert text.startswith("FIRST\n0123") and text.endswith("\nLAST LINE")
    assert (len(text) <= 1_000_000, ran["stderr"]) == (True, "e\n")
    assert ran["truncated"] is (CUT_MARK in text) is (count > 1_000_000)


@posix_only
def test_characters_of_many_bytes_are_cut_whole(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("a" + "\U0001f98a" * 2_500_000, encoding="utf-8")
    text = HostEnv(tmp_path).processes.run("cat long.txt")["stdout"]
    assert set(text) == {"a", "\U0001f98a", *CUT_MARK} and len(text) == 1_000_000


def test_a_declared_length_keeps_both_ends_of_each_part():
    output = {"stdout": "a" * 5000 + "LAST", "stderr": "FIRST" + "b" * 5000}
    store = SimpleNamespace(resolver_key="shelf", put=lambda ref, body: None)
    registry = ToolRegistry().register(
        lambda: ToolResult.execution_error(code="c", error="no", output=output),
        name="t",
        meta=ToolMeta(result_max_chars=400),
    )
    for context in ({}, {"artifact_resolver": store}):
        result = result_of(registry, "t", context)
        shown = result.output if context else result.model_output
        assert shown["stdout"].endswith("LAST") and shown["stderr"].startswith("FIRST")
        assert len(json.dumps(shown)) <= 400
        kept = sum(len(text) - len(CUT_MARK) for text in shown.values())
        assert (result.truncated, result.omitted) == (True, {"chars": 10_009 - kept})


# The manifest


class Stopper(EngineHook):
    """Ends the run after its first step, in one of several ways."""

    def __init__(self, how):
        self.how = how

    def on_after_step(self, ctx, engine):
        if self.how == "ctrl-c":
            raise KeyboardInterrupt
        if self.how:
            engine.cancel(self.how)


@pytest.mark.parametrize(
    "script, how, status",
    [
        (["act", "final"], None, "completed"),
        (["act"], "ctrl-c", "stopped"),
        (["act"], "immediate", "stopped"),
        (["act"], "after_step", "stopped"),
        ([KeyboardInterrupt()], None, "stopped"),
        ([ValueError("boom")], None, "failed"),
        ([ValueError("boom")], "immediate", "failed"),
    ],
)
def test_the_manifest_says_how_the_run_ended(tmp_path, script, how, status):
    known = {"act": Decision.act(Action("boom")), "final": Decision.final("x")}
    decisions = [known[word] if isinstance(word, str) else word for word in script]
    agent = ScriptedAgent(*decisions, tool_registry=tools())
    engine = Engine(agent, hooks=[Stopper(how)], trace_writer=TraceWriter(tmp_path))
    try:
        engine.run("t")
    except KeyboardInterrupt:
        pass
    manifest = strict((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == status
    report = manifest["summary"]["failure_report"]
    assert report["failures"] == ([engine.last_result.failure] if status == "failed" else [])


def test_a_run_cancelled_before_it_began_is_stopped(tmp_path):
    engine = Engine(ScriptedAgent(), trace_writer=TraceWriter(tmp_path))
    engine.cancel()
    engine.run("t")
    manifest = strict((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == "stopped"
