"""What went wrong can be found: where, with which frames, and before anything runs."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_doubles import ScriptedAgent, ScriptedCritic, agents, play, play_agent, tools
from strictly import round_trip

from tool_results import result_of

from qitos_min import Action, Decision, Engine, ToolRegistry
from qitos_min.core.errors import ErrorCategory, QitosRuntimeError
from qitos_min.core.history import History
from qitos_min.core.tool import BaseTool, ToolSpec
from qitos_min.engine import EngineHook
from qitos_min.engine.delegate import DelegateTool
from qitos_min.engine.recovery import RecoveryPolicy
from qitos_min.engine.runtime import RuntimeComposition
from qitos_min.kit.artifact import FileArtifactStore
from qitos_min.kit.checkpoint import FileCheckpointStore, MemoryCheckpointStore
from qitos_min.kit.env import HostEnv
from qitos_min.trace import TraceWriter

ROOT = Path(__file__).resolve().parents[1]
needs_groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="no exception groups")


class Mute(Exception):
    def __str__(self):
        raise SystemExit("no words")


class Several(Exception):
    """A group as the package ``exceptiongroup`` and other libraries have them."""

    def __init__(self, text, exceptions):
        super().__init__(text)
        self.exceptions = exceptions


def missing_key():
    return {}["zzz"]


def chained():
    try:
        missing_key()
    except KeyError as error:
        raise ValueError("no such thing") from error


def deep(levels):
    """So many frames that differ, which Python would else tell as one line."""
    lines = [f"def f{n}(): f{n + 1}()" for n in range(levels)]
    names = {}
    exec("\n".join([*lines, f"def f{levels}(): raise ValueError('down here')"]), names)
    names["f0"]()


def raising(kind, *args):
    def work(*_):
        raise kind(*args)

    return work


FAILING = {
    "a key error says only its key": (
        lambda *_: missing_key(),
        r"in missing_key\n.*KeyError: 'zzz'$",
    ),
    "causes are told": (
        lambda *_: chained(),
        r"KeyError: 'zzz'\n\nThe above exception was the direct cause .*ValueError: no such thing$",
    ),
    "the last frames of many": (lambda *_: deep(60), r", in f60\n.*ValueError: down here$"),
    "an error without words": (raising(Mute), r"Mute: <.*>$"),
    "what JSON cannot hold": (raising(ValueError, "\ud800"), "ValueError: (\ufffd|\\\\ud800)$"),
    "neither Exception": (raising(SystemExit, "bye"), "SystemExit: bye$"),
}


@pytest.mark.parametrize("work, end", FAILING.values(), ids=FAILING)
def test_a_failure_holds_its_last_frames(work, end):
    result = play_agent(work)
    text = result.failure["traceback"]
    assert re.search(end, text, re.DOTALL), text
    assert text.startswith("Traceback (most recent call last):\n")
    longest = max(part.count("\n  File ") for part in text.split("\n\n"))
    assert 1 <= longest <= 20
    assert round_trip(result.failure) == result.failure
    again = play_agent(work).failure["traceback"]
    assert re.sub("0x[0-9a-f]+", "", again) == re.sub("0x[0-9a-f]+", "", text)


def test_a_traceback_has_twenty_frames_and_a_length():
    text = play_agent(lambda *_: deep(60)).failure["traceback"]
    assert text.count("\n  File ") == 20
    assert [f"in f{n}\n" in text for n in (40, 41, 60)] == [False, True, True]
    long = play_agent(ValueError("b" + "x" * 10**6 + "e")).failure["traceback"]
    assert len(long) == 20_000 and "...[TRUNCATED]" in long and long.endswith("xe")


@needs_groups
def test_of_a_group_the_inner_errors_are_told():
    """Case of task groups: "unhandled errors in a TaskGroup (1 sub-exception)"."""

    def work(*_):
        errors = []
        for call in (missing_key, chained):
            try:
                call()
            except Exception as error:
                errors.append(error)
        raise ExceptionGroup("two tasks", [*errors, ExceptionGroup("inner", [OSError("disk")])])

    failure = play_agent(work).failure
    assert failure["type"] == "ExceptionGroup"
    assert failure["message"] == (
        "two tasks (3 sub-exceptions): KeyError: 'zzz'; ValueError: no such thing;"
        " ExceptionGroup: inner (1 sub-exception): OSError: disk"
    )
    for words in ("in missing_key", "in chained", "OSError: disk"):
        assert words in failure["traceback"]


@pytest.mark.parametrize(
    "inner, message",
    [
        ([KeyError("k"), Mute()], "many: KeyError: 'k'; Mute"),
        ((Several("deeper", [OSError("disk")]),), "many: Several: deeper: OSError: disk"),
        ([ValueError(str(n)) for n in range(25)], "and 5 more"),
        (["no exception"], "many"),
        ("text", "many"),
        ([], "many"),
    ],
)
def test_the_message_of_a_group_names_what_is_in_it(inner, message):
    failure = play_agent(Several("many", inner)).failure
    assert failure["message"].endswith(message)
    result = result_of(tools(raising(Several, "many", inner)), "work")
    assert result.error.startswith("Several: many") and result.error.endswith(message)


# The log


def told(caplog):
    return [r for r in caplog.records if r.levelno >= logging.ERROR]


def test_a_failed_run_is_logged_once_with_its_traceback(caplog):
    result = play_agent(lambda *_: missing_key())
    [record] = told(caplog)
    assert (record.name, record.levelname) == ("qitos_min", "ERROR")
    assert record.getMessage() == f"{result.run_id} failed in DECIDE of step 0: KeyError: 'zzz'"
    assert record.exc_info[0] is KeyError and "in missing_key" in caplog.text


@pytest.mark.parametrize(
    "decisions, options, logged",
    [
        ([Decision.final("x")], {}, 0),
        ([Decision.act(Action("boom")), Decision.final("x")], {}, 0),
        ([QitosRuntimeError("m", ErrorCategory.MODEL), Decision.final("x")], "recovering", 0),
        ([QitosRuntimeError("m", ErrorCategory.MODEL), ValueError("v")], "recovering", 1),
        ([Decision.final("x")], "judged", 1),
        ([Mute()], {}, 1),
        ([Decision.handoff("nobody")], {}, 1),
    ],
)
def test_what_is_recovered_or_a_tools_own_is_no_error_of_the_log(
    caplog, decisions, options, logged
):
    chosen = {
        "recovering": {"recovery_policy": RecoveryPolicy()},
        "judged": {"critics": [ScriptedCritic(OSError("down"))]},
    }
    result = play_agent(*decisions, **(chosen[options] if options else {}))
    assert (len(told(caplog)), result.failure is not None) == (logged, bool(logged))


def test_a_resumed_run_that_had_failed_is_not_logged_again(caplog):
    store = MemoryCheckpointStore()
    failed = play_agent(ValueError("once"), checkpoint_store=store)
    again = Engine(ScriptedAgent(), checkpoint_store=store).resume(failed.run_id)
    assert again.failure == failed.failure and len(told(caplog)) == 1


def test_a_log_that_fails_does_not_cost_the_run():
    def broken(record):
        raise OSError("disk full")

    log = logging.getLogger("qitos_min")
    log.addFilter(broken)
    try:
        assert play_agent(ValueError("boom")).failure["message"] == "boom"
    finally:
        log.removeFilter(broken)


PROGRAM = """
from qitos_min import AgentModule, StateSchema

class Broken(AgentModule):
    def init_state(self, task, **kwargs):
        return StateSchema(task=task)
    def reduce(self, state, observation, decision):
        return state
    def decide(self, state, observation):
        return {}["zzz"]

print(Broken().run("x"))
"""


@pytest.mark.parametrize(
    "before, shown",
    [
        ("", True),
        ("import logging; logging.basicConfig(filename='log.txt')\n", False),
        (
            "import logging; logging.getLogger('qitos_min').addHandler(logging.NullHandler())\n",
            False,
        ),
    ],
)
def test_a_program_sees_the_failure_on_stderr_unless_it_says_otherwise(tmp_path, before, shown):
    """``agent.run("x")`` of an agent that fails returned None and said nothing."""
    done = subprocess.run(
        [sys.executable, "-c", before + PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "None\n")
    assert done.stderr.endswith("KeyError: 'zzz'\n") is shown
    assert done.stderr.count("Traceback") == shown
    if (tmp_path / "log.txt").exists():
        assert "KeyError: 'zzz'" in (tmp_path / "log.txt").read_text()


# Tools


def leak(*_):
    raise RuntimeError("cannot open /home/ann/keys.txt with Bearer abcdefghij123")


class Checking(BaseTool):
    def __init__(self):
        super().__init__(ToolSpec(name="work", description="Checks.", parameters={}))

    def validate_input(self, args, runtime_context=None):
        return missing_key()


def test_a_tools_exception_has_its_frames_in_the_results_metadata():
    def work() -> str:
        """Work."""
        return missing_key()

    result = result_of(tools(work), "work")
    assert result.error == "KeyError: 'zzz'"
    assert re.search(
        r"in work\n.*in missing_key\n.*KeyError: 'zzz'$", result.metadata["traceback"], re.S
    )
    assert "traceback" not in result.to_model_dict()
    checked = result_of(ToolRegistry().register(Checking()), "work")
    assert checked.error_code == "validation_failed"
    assert "in missing_key" in checked.metadata["traceback"]


def test_the_frames_of_a_tool_pass_the_redaction():
    def work() -> str:
        """Work."""
        return leak()

    safe = result_of(tools(work), "work").to_trace_safe_dict()
    text = safe["metadata"]["traceback"]
    assert text.endswith("RuntimeError: cannot open [REDACTED_PATH] with Bearer [REDACTED]")
    assert str(Path(__file__).parent) not in text and 'File "[REDACTED_PATH]", line' in text


def test_the_failure_of_a_delegate_has_its_frames():
    spec = next(iter(agents(ScriptedAgent(lambda *_: missing_key(), name="worker"))))
    seen = []
    tool = DelegateTool(spec)
    execute = tool.execute
    tool.execute = lambda *args: seen.append(execute(*args)) or seen[0]
    agent = ScriptedAgent(
        Decision.act(Action("delegate_to_worker", {"task": "t"})),
        Decision.final("x"),
        tool_registry=ToolRegistry().register(tool),
    )
    assert play(Engine(agent)).failure is None
    assert "in missing_key" in seen[0].metadata["traceback"]


# raise_for_failure


def test_a_failure_can_be_raised():
    result = play_agent(QitosRuntimeError("gone", ErrorCategory.ENV))
    with pytest.raises(QitosRuntimeError) as caught:
        result.raise_for_failure()
    assert str(caught.value) == "QitosRuntimeError: gone (in DECIDE of step 0)"
    assert caught.value.category is ErrorCategory.ENV
    ok = play_agent(Decision.act(Action("boom")), Decision.final("x"))
    assert ok.raise_for_failure() is None


# Parts that cannot work


class Half:
    """Has some of what each part needs, and not all."""

    append = reset = observe = start = finalize = parse = lambda *_: None


WRITER = "trace_writer must be a TraceWriter(folder) with start, write_event, write_step, finalize"
STORE = "checkpoint_store must be a checkpoint store, as FileCheckpointStore(folder), with append"
ENV = (
    "env must be an Env, as HostEnv(folder), with"
    " setup, reset, observe, step, is_terminal, teardown"
)
PROTOCOL = (
    "protocol must be a Protocol or the name of one with id, system_prompt, tools_argument, parse"
)
PARSER = "parser must be a function or have parse()"
HISTORY = "history must be a History with append, retrieve"
HOOK = "must be an EngineHook or have some of its methods"
POLICY = "recovery_policy must be a RecoveryPolicy with reset, handle"
PARTS = [
    ({"trace_writer": "runs/x"}, f"{WRITER}, got 'runs/x'"),
    ({"trace_writer": Half()}, f"{WRITER}, got Half"),
    ({"trace_writer": TraceWriter}, f"{WRITER}, got a class"),
    ({"checkpoint_store": Path("runs")}, f"{STORE}, got PosixPath('runs')"),
    ({"checkpoint_store": 5}, f"{STORE}, got 5"),
    ({"runtime": RuntimeComposition(checkpoint_store={})}, f"{STORE}, got {{}}"),
    ({"env": "/tmp"}, f"{ENV}, got '/tmp'"),
    ({"env": HostEnv}, f"{ENV}, got a class"),
    ({"env": Half()}, f"{ENV}, got Half"),
    ({"protocol": 5}, f"{PROTOCOL}, got 5"),
    ({"protocol": Half()}, f"{PROTOCOL}, got Half"),
    ({"agent": ScriptedAgent(model_protocol=["x"])}, f"{PROTOCOL}, got ['x']"),
    ({"parser": "json"}, f"{PARSER}, got 'json'"),
    ({"agent": ScriptedAgent(model_parser=History())}, f"{PARSER}, got History"),
    ({"parser": Half}, f"{PARSER}, got a class"),
    ({"history": []}, f"{HISTORY}, got []"),
    ({"history": Half()}, f"{HISTORY}, got Half"),
    ({"agent": ScriptedAgent(history="h")}, f"{HISTORY}, got 'h'"),
    ({"hooks": ["print"]}, f"hooks[0] {HOOK}, got 'print'"),
    (
        {"hooks": [EngineHook(), SimpleNamespace(on_stepend=print)]},
        f"hooks[1] {HOOK}, got SimpleNamespace",
    ),
    ({"hooks": [EngineHook]}, f"hooks[0] {HOOK}, got a class"),
    ({"recovery_policy": True}, f"{POLICY}, got True"),
    ({"recovery_policy": Half()}, f"{POLICY}, got Half"),
    ({"recovery_policy": RecoveryPolicy}, f"{POLICY}, got a class"),
]


@pytest.mark.parametrize("options, message", PARTS, ids=[message for _, message in PARTS])
def test_a_part_that_cannot_work_is_refused_by_its_name(options, message):
    """``Engine(trace_writer="runs/x")`` ran to its end and saved nothing."""
    with pytest.raises(TypeError) as caught:
        Engine(**{"agent": ScriptedAgent(), **options})
    assert re.sub("(Posix|Windows)Path", "PosixPath", str(caught.value)) == message


def test_a_refused_value_is_told_in_one_short_line():
    with pytest.raises(TypeError) as caught:
        Engine(ScriptedAgent(), history="long\n" * 10_000)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_a_hook_that_cannot_work_is_refused_later_too():
    engine = Engine(ScriptedAgent())
    with pytest.raises(TypeError) as caught:
        engine.register_hook(print)
    assert str(caught.value) == (
        "hook must be an EngineHook or have some of its methods," " got builtin_function_or_method"
    )
    assert engine.hooks == []


def test_objects_with_the_methods_a_run_uses_are_parts():
    def nothing(*_, **__):
        return None

    def having(names):
        return SimpleNamespace(**dict.fromkeys(names.split(), nothing))

    class Listed(list):
        def retrieve(self):
            return list(self)

    env = having("setup reset observe step is_terminal teardown")
    options = {
        "trace_writer": having("start write_event write_step finalize"),
        "checkpoint_store": having("append"),
        "env": env,
        "history": Listed(),
        "hooks": [having("on_step_end"), EngineHook()],
        "recovery_policy": having("reset handle"),
        "tracing_provider": object(),
        "parser": nothing,
    }
    protocol = having("system_prompt tools_argument parse")
    protocol.id = "own"
    result = play_agent(Decision.final("x"), protocol=protocol, **options)
    assert [event.error for event in result.events if not event.ok] == []


# Runs that cannot be resumed


@pytest.mark.parametrize(
    "held, runs",
    [
        ([], "none"),
        (["run_a"], "'run_a'"),
        (
            [f"run_{n:02}" for n in range(12)],
            "2 others and " + ", ".join(f"'run_{n:02}'" for n in range(2, 12)),
        ),
    ],
)
def test_an_unknown_run_names_the_store_and_the_runs_it_has(tmp_path, held, runs):
    files = FileCheckpointStore(tmp_path)
    for store in (MemoryCheckpointStore(), files):
        for n, run_id in enumerate(held):
            store.append(run_id, {})
            if store is files:
                os.utime(tmp_path / f"{run_id}.jsonl", (n, n))
        with pytest.raises(KeyError) as caught:
            Engine(ScriptedAgent(), checkpoint_store=store).resume("nope")
        assert caught.value.args == (f"no run 'nope' in {store!r}, which has {runs}",)


# What things call themselves

LONG = "a long\nname " * 1000


def long_tools():
    registry = ToolRegistry()
    for n in range(500):
        registry.register(lambda: 1, name=f"a_tool_with_a_long_name_{n}")
    return registry


def engine_with_much():
    return Engine(ScriptedAgent(Decision.final([LONG] * 50), name=LONG, tool_registry=long_tools()))


MUCH = {
    "Engine": lambda path: engine_with_much(),
    "EngineResult": lambda path: engine_with_much().run("t"),
    "ToolRegistry": lambda path: long_tools(),
    "MemoryCheckpointStore": lambda path: MemoryCheckpointStore(),
    "FileCheckpointStore": lambda path: FileCheckpointStore(path),
    "TraceWriter": lambda path: TraceWriter(path),
    "FileArtifactStore": lambda path: FileArtifactStore(path),
}


@pytest.mark.parametrize("name", MUCH)
def test_the_repr_of_what_holds_much_is_one_short_line(tmp_path, name):
    text = repr(MUCH[name](tmp_path.joinpath(*["folder " * 20] * 3)))
    assert text.startswith(f"{name}(") and text.endswith(")")
    assert len(text) < 300 and len(text.splitlines()) == 1


def test_a_repr_says_what_is_worth_knowing(tmp_path):
    engine = Engine(ScriptedAgent(Decision.final({"n": 1}), ValueError("x"), tool_registry=tools()))
    session = engine.session("t")
    assert repr(engine) == "Engine(agent='agent', tools=2, max_steps=10)"
    assert repr(engine.tool_registry) == "ToolRegistry('add, boom', tools=2)"
    result = session.run()
    told = f"run_id='{result.run_id}', steps=1, final_result={{'n': 1}}, failure=None"
    assert repr(result) == f"EngineResult({told})"
    assert repr(engine.run("t")).endswith("final_result=None, failure='ValueError')")
    for kind in (FileCheckpointStore, TraceWriter, FileArtifactStore):
        assert repr(kind(tmp_path)) == f"{kind.__name__}({str(tmp_path)!r})"
    assert repr(MemoryCheckpointStore()) == "MemoryCheckpointStore(runs=0)"
