"""Where tools work: threads that can be left behind, and one event loop for a run."""

import asyncio
import contextvars
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from engine_doubles import ScriptedAgent, check_run, play, tools

from tool_results import result_of

from qitos_min import Action, BaseTool, Decision, Engine, StateSchema, ToolMeta, ToolRegistry
from qitos_min.core.action import ActionExecutionPolicy
from qitos_min.core.tool import RetryPolicy
from qitos_min.engine import CancelToken, EngineHook, RuntimeBudget
from qitos_min.engine.action_executor import ActionExecutor

ROOT = Path(__file__).resolve().parents[1]
SOON = 0.05
PARALLEL = ActionExecutionPolicy("parallel")
RELEASE = threading.Event()
WHERE = contextvars.ContextVar("WHERE", default="nowhere")


@pytest.fixture(autouse=True)
def let_go():
    """What a test left behind ends with it."""
    RELEASE.clear()
    yield
    RELEASE.set()


def hang():
    """Hang, in code that nobody can interrupt."""
    RELEASE.wait(10)


async def wait():
    """Hang, in code that can be cancelled."""
    await asyncio.sleep(10)


async def block():
    """Hang, and keep the loop from doing anything else."""
    RELEASE.wait(10)


async def stubborn():
    """Hang, and do not be cancelled."""
    while not RELEASE.is_set():
        try:
            await asyncio.sleep(0.3)
        except asyncio.CancelledError:
            pass


HANGING = [hang, wait, block, stubborn]
STOPPED = {wait: False}
"""Whether a tool is still running when it was not waited for any longer."""


def acting(*names, policy=None, registry=None, **options):
    """An engine whose agent makes the calls in one step and then answers."""
    decisions = [Decision.act([Action(name) for name in names]), Decision.final("done")]
    agent = ScriptedAgent(*decisions, tool_registry=registry)
    return Engine(agent, action_execution_policy=policy, **options)


def calls_of(result):
    return [
        (c["status"], c["error_code"], c["worker_still_running"], c["outcome_unknown"])
        for record in result.records
        for c in record.tool_invocations
    ]


def hurry(engine, task="t"):
    """Run an engine, which must not wait for the tool that hangs."""
    started = time.monotonic()
    try:
        result = engine.run(task)
    except KeyboardInterrupt:
        result = engine.last_result
    assert time.monotonic() - started < 2
    check_run(result, engine)
    return result


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("tool", HANGING)
def test_cancelling_at_once_leaves_a_tool_behind_that_hangs(tool, parallel):
    meta = ToolMeta(concurrency_safe=True)
    registry = ToolRegistry().register(tool, meta=meta).register(lambda: 1, name="next")
    engine = acting(
        tool.__name__, "next", registry=registry, policy=PARALLEL if parallel else None
    )
    threading.Timer(SOON, engine.cancel).start()
    result = hurry(engine)
    assert result.task_result.stop_reason == "cancelled_immediate"
    assert calls_of(result) == [
        ("cancelled", "run_cancelled", STOPPED.get(tool, True), True),
        ("cancelled", "run_cancelled", False, False),
    ]
    state = "was stopped" if tool is wait else "is still running"
    assert result.records[0].tool_invocations[0]["error"] == (
        f"tool {tool.__name__!r} was at work when the run was cancelled and {state}"
    )
    assert result.failure is None


@pytest.mark.parametrize("tool", HANGING)
def test_a_run_whose_time_is_used_up_leaves_a_tool_behind(tool):
    registry = tools(tool).register(lambda: 1, name="next")
    budget = RuntimeBudget(max_runtime_seconds=SOON)
    result = hurry(acting(tool.__name__, "next", registry=registry, budget=budget))
    assert result.task_result.stop_reason == "budget_time"
    assert calls_of(result) == [
        ("timed_out", "budget_time", STOPPED.get(tool, True), True),
        ("cancelled", "budget_time", False, False),
    ]


def test_a_read_only_tool_is_not_repeated_when_the_time_of_the_run_is_used_up():
    meta = ToolMeta(read_only=True, max_retries=3)
    registry = ToolRegistry().register(hang, meta=meta)
    budget = RuntimeBudget(max_runtime_seconds=SOON)
    result = hurry(acting("hang", registry=registry, budget=budget))
    [call] = result.records[0].tool_invocations
    assert (call["attempts"], call["outcome_unknown"]) == (1, False)


def test_a_tool_that_ends_in_time_is_no_victim_of_a_slow_decision():
    def slow(state, observation):
        time.sleep(SOON)
        return Decision.act(Action("add", {"a": 1, "b": 2}))

    budget = RuntimeBudget(max_runtime_seconds=SOON / 2)
    result = play(Engine(ScriptedAgent(slow, tool_registry=tools()), budget=budget))
    assert result.records[0].action_results == [3]
    assert result.task_result.stop_reason == "budget_time"


@pytest.mark.skipif(os.name == "nt", reason="signals to oneself")
@pytest.mark.parametrize("tool", HANGING)
def test_ctrl_c_ends_the_run_at_once(tool):
    engine = acting(tool.__name__, registry=tools(tool))
    main = threading.main_thread().ident
    threading.Timer(SOON, signal.pthread_kill, (main, signal.SIGINT)).start()
    assert hurry(engine).task_result.stop_reason == "interrupt"


@pytest.mark.skipif(os.name == "nt", reason="signals to oneself")
def test_a_handler_of_signals_may_cancel():
    engine = acting("hang", registry=tools(hang))
    before = signal.signal(signal.SIGUSR1, lambda *_: engine.cancel())
    main = threading.main_thread().ident
    try:
        threading.Timer(SOON, signal.pthread_kill, (main, signal.SIGUSR1)).start()
        assert hurry(engine).task_result.stop_reason == "cancelled_immediate"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_hook_may_cancel_while_a_tool_hangs():
    class Watch(EngineHook):
        def on_before_act(self, context, engine):
            threading.Timer(SOON, engine.cancel).start()

    result = hurry(acting("hang", registry=tools(hang), hooks=[Watch()]))
    assert result.task_result.stop_reason == "cancelled_immediate"


def test_after_the_step_means_that_tools_are_waited_for():
    engine = acting("nap", registry=tools())
    engine.tool_registry.register(lambda: time.sleep(SOON) or "rested", name="nap")
    threading.Timer(SOON / 2, engine.cancel, ("after_step",)).start()
    result = hurry(engine)
    assert result.records[0].action_results == ["rested"]


def test_cancelling_ends_the_wait_for_another_attempt():
    policy = RetryPolicy(backoff_factor=10, jitter=False)
    registry = ToolRegistry().register(lambda: 1 / 0, name="t", meta=ToolMeta(retry_policy=policy))
    engine = acting("t", registry=registry)
    threading.Timer(SOON, engine.cancel).start()
    [call] = hurry(engine).records[0].tool_invocations
    assert (call["status"], call["attempts"]) == ("error", 1)


def test_a_batch_without_a_run_can_be_cancelled_too():
    token = CancelToken()
    threading.Timer(SOON, token.cancel).start()
    started = time.monotonic()
    batch = ActionExecutor(tools(hang)).run_batch(
        [Action("hang")] * 2, runtime_context={"cancel_token": token}
    )
    assert time.monotonic() - started < 2
    assert [(r.status, r.attempts) for r in batch.results] == [("cancelled", 1), ("cancelled", 0)]


def test_the_process_can_exit_after_a_cancelled_run():
    program = (
        "import sys, threading\n"
        "sys.path.insert(0, 'tests')\n"
        "import test_threads as t\n"
        "engine = t.acting('hang', 'wait', registry=t.tools(t.hang, t.wait))\n"
        "threading.Timer(t.SOON, engine.cancel).start()\n"
        "print(engine.run('t').task_result.stop_reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=8, cwd=ROOT
    )
    assert (done.stdout.strip(), done.stderr) == ("cancelled_immediate", "")


def test_no_thread_of_a_finished_run_is_left():
    async def quick() -> int:
        """Quick."""
        return 1

    before = set(threading.enumerate())
    play(acting("quick", "quick", registry=tools(quick)))
    end = time.monotonic() + 2
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.005)
    assert set(threading.enumerate()) - before == set()


class Database:
    """A toolset with a connection that works in one thread only."""

    def setup(self, context):
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("create table t (n)")

    def tools(self):
        return [self.store]

    def store(self, n: int = 1) -> int:
        """Store."""
        self.connection.execute("insert into t values (?)", (n,))
        return self.connection.execute("select count(*) from t").fetchone()[0]

    def teardown(self, context):
        self.connection.close()


def test_what_a_toolset_opens_for_its_thread_works_from_call_to_call():
    registry = ToolRegistry().register_toolset(Database(), namespace="")
    act = Decision.act(Action("store"))
    engine = Engine(ScriptedAgent(act, act, Decision.final("x"), tool_registry=registry))
    result = play(engine)
    assert [record.action_results for record in result.records[:2]] == [[1], [2]]
    assert [e.error for e in result.events if e.error] == []


def test_a_tool_may_ask_for_the_calling_thread():
    class Here(BaseTool):
        name, description = "here", "Where am I?"
        in_calling_thread = True

        def execute(self, args, runtime_context=None):
            return threading.get_ident() == threading.main_thread().ident

    registry = ToolRegistry().register(Here()).register(Here(), name="too")
    registry.register(lambda: threading.get_ident(), name="there")
    [first, second, there] = play(
        acting("here", "too", "there", registry=registry)
    ).records[0].action_results
    assert (first, second, there == threading.get_ident()) == (True, True, False)


# One event loop


class Client:
    """Like a pool of connections, it works only on the loop on which it was opened."""

    def __init__(self):
        self.loop = None

    async def ask(self) -> str:
        """Ask."""
        if self.loop is None:
            self.loop, self.lock = asyncio.get_running_loop(), asyncio.Lock()
            self.busy = asyncio.create_task(asyncio.sleep(10))
        async with self.lock:
            await asyncio.wait_for(asyncio.shield(asyncio.sleep(0)), 1)
        assert self.loop is asyncio.get_running_loop() and not self.busy.done()
        return "answer"


@pytest.mark.parametrize("policy", [None, PARALLEL])
@pytest.mark.parametrize("timeout_s", [None, 5])
def test_a_client_opened_in_one_call_works_in_the_next(policy, timeout_s):
    client = Client()
    meta = ToolMeta(name="ask", concurrency_safe=True, timeout_s=timeout_s)
    registry = ToolRegistry().register(client.ask, meta=meta)
    act = Decision.act([Action("ask")] * 2)
    agent = ScriptedAgent(act, act, Decision.final("x"), tool_registry=registry)
    result = play(Engine(agent, action_execution_policy=policy))
    assert [r.action_results for r in result.records[:2]] == [["answer"] * 2] * 2
    assert client.busy.cancelled() and client.loop.is_closed()


def test_an_approval_and_a_delegate_share_the_loop():
    from qitos_min import AgentSpec
    from qitos_min.engine.delegate import DelegateTool

    client = Client()

    async def approve(*call):
        return await client.ask() == "answer"

    meta = ToolMeta(name="ask", needs_approval=True)
    worker = ScriptedAgent(
        Decision.act(Action("ask")),
        lambda state, seen: Decision.final(seen["action_results"][0]),
        tool_registry=ToolRegistry().register(client.ask, meta=meta),
    )
    registry = ToolRegistry().register(client.ask, meta=meta)
    registry.register(DelegateTool(AgentSpec("w", "works", worker)))
    boss = ScriptedAgent(
        Decision.act([Action("ask"), Action("delegate_to_w", {"task": "t"}), Action("ask")]),
        Decision.final("x"),
        tool_registry=registry,
    )
    first, inner, last = play(Engine(boss, approval_callback=approve)).records[0].action_results
    assert (first, inner["final_result"], last) == ("answer",) * 3


def test_asynchronous_generators_and_tasks_are_closed_after_failure_too():
    closed = []

    async def count():
        try:
            while True:
                yield 1
        finally:
            closed.append("generator")

    async def work():
        try:
            await asyncio.sleep(10)
        finally:
            closed.append("task")

    kept = []

    async def begin() -> str:
        """Begin."""
        kept.extend([count(), asyncio.create_task(work())])
        await kept[0].__anext__()
        await asyncio.sleep(0)
        return "begun"

    agent = ScriptedAgent(
        Decision.act(Action("begin")), ValueError("broken"), tool_registry=tools(begin)
    )
    assert play(Engine(agent)).error_code is not None
    assert sorted(closed) == ["generator", "task"]


def test_contextvars_reach_a_tool_and_each_call_has_its_own():
    async def where() -> str:
        """Where."""
        found = WHERE.get()
        WHERE.set("in a call")
        return found

    def here() -> str:
        """Here."""
        found = WHERE.get()
        WHERE.set("in a call")
        return found

    token = WHERE.set("outside")
    try:
        result = play(acting("where", "here", "where", "here", registry=tools(where, here)))
        assert result.records[0].action_results == ["outside"] * 4
        assert WHERE.get() == "outside"
    finally:
        WHERE.reset(token)


def test_asynchronous_tools_side_by_side_overlap():
    meetings = []

    async def meet() -> int:
        """Meet."""
        meetings.append(asyncio.Event())
        while len(meetings) < 3:
            await asyncio.sleep(0.001)
        return len(meetings)

    registry = ToolRegistry().register(meet, meta=ToolMeta(concurrency_safe=True, timeout_s=5))
    result = play(acting("meet", "meet", "meet", registry=registry, policy=PARALLEL))
    assert result.records[0].action_results == [3, 3, 3]


@pytest.mark.parametrize("in_run", [True, False])
def test_a_time_limit_cancels_the_coroutine(in_run):
    seen = []

    async def late():
        """Late."""
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    registry = ToolRegistry().register(late, meta=ToolMeta(timeout_s=SOON))
    if in_run:
        error = play(acting("late", registry=registry)).records[0].tool_invocations[0]["error"]
    else:
        error = result_of(registry, "late").error
    assert (error, seen) == ("tool 'late' did not end within 0.05 s and was stopped", ["cancelled"])


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("outer_is_async", [True, False])
def test_a_call_within_a_call_does_not_wait_for_itself(outer_is_async, limit):
    registry = ToolRegistry()

    async def inner() -> str:
        """Inner."""
        await asyncio.sleep(0)
        return "inner"

    def outer(runtime_context=None) -> list:
        """Outer."""
        contexts = ({}, runtime_context)
        return [result_of(registry, "inner", context).output for context in contexts]

    async def outer_async(runtime_context=None) -> list:
        """Outer."""
        found = outer(runtime_context)
        return found + [await asyncio.to_thread(registry.call, "inner")]

    registry.register(inner, meta=ToolMeta(timeout_s=limit))
    registry.register(outer_async if outer_is_async else outer, name="outer")
    results = play(acting("outer", "inner", registry=registry)).records[0].action_results
    assert results == [["inner"] * (3 if outer_is_async else 2), "inner"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_run_within_a_tool_of_a_run(is_async):
    client = Client()

    def nested() -> list:
        """Run."""
        found = acting("ask", registry=ToolRegistry().register(client.ask)).run("t")
        return found.records[0].action_results

    async def nested_async() -> list:
        """Run, and keep the loop waiting meanwhile."""
        return nested()

    client.ask = Client().ask if is_async else client.ask
    registry = ToolRegistry().register(client.ask, name="ask")
    registry.register(nested_async if is_async else nested, name="nested")
    calls = ["nested"] if is_async else ["ask", "nested", "ask"]
    results = play(acting(*calls, registry=registry)).records[0].action_results
    assert results == ([["answer"]] if is_async else ["answer", ["answer"], "answer"])


def test_a_run_and_a_lone_call_within_a_running_loop():
    async def main():
        registry = ToolRegistry().register(Client().ask)
        run = play(acting("ask", "ask", registry=registry))
        return run.records[0].action_results, result_of(ToolRegistry().register(Client().ask), "ask").output

    assert asyncio.run(main()) == (["answer", "answer"], "answer")


def test_a_coroutine_that_blocks_the_loop_does_not_stop_the_next_call():
    async def quick() -> int:
        """Quick."""
        return 1

    registry = ToolRegistry().register(block, meta=ToolMeta(timeout_s=SOON)).register(quick)
    result = hurry(acting("block", "quick", registry=registry))
    assert [status for status, *_ in calls_of(result)] == ["timed_out", "success"]


@pytest.mark.parametrize("kind", [SystemExit, ValueError, asyncio.CancelledError])
def test_what_a_coroutine_raises_is_its_own_error(kind):
    async def fail():
        """Fail."""
        raise kind("no")

    async def quick() -> int:
        """Quick."""
        return 1

    result = play(acting("fail", "quick", registry=tools(fail, quick)))
    assert [c["status"] for c in result.records[0].tool_invocations] == ["error", "success"]


def test_a_session_that_is_given_up_keeps_no_thread():

    async def quick() -> int:
        """Quick."""
        return 1

    before = set(threading.enumerate())
    steps = iter(acting("quick", registry=tools(quick)).session("t"))
    assert next(steps).action_results == [1]
    assert len(set(threading.enumerate()) - before) == 2
    import gc

    del steps
    end = time.monotonic() + 2
    while set(threading.enumerate()) - before and time.monotonic() < end:
        gc.collect()  # What the threads have in hand just now is kept.
        time.sleep(0.01)
    assert set(threading.enumerate()) - before == set()


def test_the_state_is_the_callers_even_while_a_tool_hangs():
    """A run that ends with a tool at work has its whole record and one END."""
    engine = acting("hang", registry=tools(hang))
    threading.Timer(SOON, engine.cancel).start()
    result = hurry(engine)
    assert isinstance(result.state, StateSchema)
    before = result.to_dict()
    RELEASE.set()
    time.sleep(SOON)
    assert result.to_dict() == before


def test_parallel_calls_of_all_steps_share_threads_and_leave_none_behind(monkeypatch):
    started, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda t: (started.append(t), start(t))[1])
    registry = ToolRegistry()
    registry.register(lambda: time.sleep(0.001), name="nap", meta=ToolMeta(concurrency_safe=True))
    batch = Decision.act([Action("nap")] * 6)
    agent = ScriptedAgent(batch, batch, batch, Decision.final("rested"), tool_registry=registry)
    policy = ActionExecutionPolicy("parallel", max_concurrency=3)
    result = play(Engine(agent, action_execution_policy=policy))
    assert result.success_rate == 1.0
    # Three make the calls and three work; one that has just ended may not be free yet.
    assert len(started) <= 8
    for thread in started:
        thread.join(5)
    assert not any(thread.is_alive() for thread in started)
