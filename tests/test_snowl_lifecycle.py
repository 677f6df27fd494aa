"""Threads, turns, cancellation and hooks of the agents that Snowl runs."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest
from snowl_doubles import STEP, Agent, Context, State, fail, play, result, strict, user, wrap

from qitos_min.snowl import InstalledAgent

# Threads, turns and cancellation


def gather(*trials):
    async def main():
        return await asyncio.gather(*(trial() for trial in trials), return_exceptions=True)

    return asyncio.run(main())


def together(agent, states, loops="one loop"):
    """A trial for each state, all at once, in one event loop or in a loop for each."""
    if loops == "one loop":
        gather(*(lambda s=s: agent.run(s, Context()) for s in states))
    else:
        threads = [threading.Thread(target=play, args=(agent, s)) for s in states]
        [thread.start() for thread in threads]
        [thread.join(5) for thread in threads]


def test_parallel_trials_of_a_factory_share_nothing():
    count = 8
    meet = threading.Barrier(count)

    class Echo(Agent):
        def build_engine(self, **kwargs):
            def run(task):
                meet.wait(5)  # All of them run at the same time, or this fails.
                return result(task, records=[{**STEP, "agent_id": task}])

            return SimpleNamespace(run=run)

    agent = wrap(Echo)
    states = [State([user(f"task {n}")]) for n in range(count)]
    together(agent, states)
    for number, state in enumerate(states):
        assert state.output["message"]["content"] == f"task {number}"
        assert state.output["trace_events"][1]["agent_id"] == f"task {number}"


@pytest.mark.parametrize("loops", ["one loop", "a loop for each"])
def test_trials_of_one_agent_object_take_turns(loops):
    inside, most = [], []

    class Single:
        def run(self, task):
            inside.append(task)
            most.append(len(inside))
            time.sleep(0.01)
            inside.remove(task)
            return task

    agent = wrap(Single())
    states = [State([user(f"task {n}")]) for n in range(6)]
    together(agent, states, loops)
    assert most == [1] * 6
    assert [s.output["message"]["content"] for s in states] == [
        f"task {number}" for number in range(6)
    ]


def test_a_blocking_run_has_a_daemon_thread_and_does_not_hold_up_the_loop():
    gate, seen = threading.Event(), []

    class Waiting:
        def run(self, task):
            seen.append(threading.current_thread().daemon)
            assert gate.wait(5)
            return task

    async def main():
        trial = asyncio.ensure_future(wrap(Waiting()).run(State(), Context()))
        await asyncio.sleep(0.01)
        gate.set()
        await trial

    asyncio.run(main())
    assert seen == [True]


async def cancel_when_running(agent, engine, state):
    trial = asyncio.ensure_future(agent.run(state, Context()))
    while not engine.ran:
        await asyncio.sleep(0.001)
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial


def test_cancellation_stops_the_engine_and_leaves_the_state_alone():
    gate, state = threading.Event(), State()
    made = Agent(result(records=[STEP]), result("second"), gate=gate)
    agent = wrap(made)

    async def main():
        await cancel_when_running(agent, made.engine, state)
        assert made.engine.cancelled == ["immediate"]
        later = asyncio.ensure_future(agent.run(State(), Context()))
        await asyncio.sleep(0.01)
        assert len(made.engine.ran) == 1  # The agent is still at work for the first.
        gate.set()
        return await later

    assert asyncio.run(main()).output["message"]["content"] == "second"
    assert state == State()


def test_a_trial_cancelled_while_it_waits_its_turn_never_runs():
    gate = threading.Event()
    made = Agent(result("first"), gate=gate)
    agent = wrap(made)

    async def main():
        first = asyncio.ensure_future(agent.run(State(), Context()))
        while not made.engine.ran:
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(agent.run(State(), Context()))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.set()
        await first

    asyncio.run(main())
    assert len(made.engine.ran) == 1


def test_an_engine_without_cancel_runs_out_of_budget():
    # QitOS 0.3.0 has no cancel(), but it looks at its budget between steps.
    budget = SimpleNamespace(max_steps=10)
    seen = []

    class Old:
        ran = []

        def __init__(self):
            self.budget = budget

        def run(self, task):
            self.ran.append(task)
            while self.budget.max_steps:
                time.sleep(0.001)
            seen.append(self.budget.max_steps)

    old = Old()
    made = SimpleNamespace(build_engine=lambda: old)
    asyncio.run(cancel_when_running(wrap(made), old, State()))
    while not seen:
        time.sleep(0.001)
    assert budget.max_steps == 10  # The caller's own budget is not written to.


def test_ctrl_c_is_not_swallowed():
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(wrap(Agent(KeyboardInterrupt())).run(State(), Context()))


# Progress


def test_steps_are_told_while_the_run_goes_on():
    told = []

    def emit(event):
        told.append((threading.current_thread() is threading.main_thread(), event))
        raise ValueError("no matter")

    context = Context(metadata={"__snowl_emit_event": emit})
    bare = {"decision": {"mode": "final"}}
    run = result(records=[STEP, bare, {}])
    state = play(wrap(Agent(run), agent_id="in-snowl"), context=context)
    # Snowl's monitor makes a row for each agent, task, variant and sample.
    ids = {"agent_id": "in-snowl", "task_id": "t1", "sample_id": "s1", "variant_id": "default"}
    messages = ["step 4: add, boom", "step 1: final", "step 2: done"]
    assert told == [
        (
            True,
            {
                **step,
                **ids,
                "event": "runtime.agent.step",
                "qitos_agent": step["agent_id"],
                "message": message,
            },
        )
        for step, message in zip(state.output["trace_events"][1:], messages)
    ]
    assert told[0][1]["qitos_agent"] == "worker"


# The lifecycle


class Hooks:
    """Notes every call; what ``bad`` names raises, ``soft`` makes them async."""

    def __init__(self, bad=()):
        self.bad, self.calls = list(bad), []

    def __getattribute__(self, name):
        if name not in ("setup", "teardown") and not name.startswith("on_"):
            return super().__getattribute__(name)
        return lambda *args: self.note(name, *args)

    setup = teardown = on_trial_start = on_trial_end = on_trial_error = None

    def note(self, name, *args):
        self.calls.append((name, *args))
        if name in self.bad:
            raise ValueError("no")

    def names(self):
        return [call[0] for call in self.calls]


class AsyncHooks(Hooks):
    async def note(self, name, *args):
        await asyncio.sleep(0)
        Hooks.note(self, name, *args)


BOTH = pytest.mark.parametrize("kind", [Hooks, AsyncHooks])


def installed(hooks, *script):
    return InstalledAgent(lambda: Agent(*script), agent_id="plugin", hooks=hooks)


@BOTH
def test_hooks_are_called_in_order(kind):
    hooks, context, run = kind(), Context(), result()

    async def main():
        async with installed(hooks, run) as agent:
            state = await agent.run(State(), context)
            await agent.run(State(), context)
            await agent.teardown()
        return state

    state = asyncio.run(main())
    payload = state.output["trace_events"][0]["payload"]
    trial = [("on_trial_start", "the task", context), ("on_trial_end", "the task", run, payload)]
    assert hooks.calls == [("setup", context), *trial, *trial, ("teardown",)]


@BOTH
def test_a_failed_trial_is_told_to_its_hook(kind):
    hooks = kind()
    message, _ = fail(installed(hooks, ValueError("boom")))
    assert hooks.names() == ["setup", "on_trial_start", "on_trial_error"]
    _, task, error = hooks.calls[-1]
    assert (task, str(error), message) == ("the task", "ValueError: boom", "ValueError: boom")


BAD_HOOKS = {"setup": result(), "on_trial_start": result(), "on_trial_end": result()}
BAD_HOOKS["on_trial_error"] = ValueError("boom")


@BOTH
@pytest.mark.parametrize("bad", BAD_HOOKS)
def test_a_hook_that_raises_fails_its_trial_by_name(kind, bad):
    hooks = kind([bad])
    message, _ = fail(installed(hooks, BAD_HOOKS[bad]))
    assert message == f"hook {bad} raised ValueError: no"
    names = hooks.names()
    assert names[-1] == ("on_trial_error" if bad == "on_trial_start" else bad)
    assert names.count(bad) == 1


def test_a_hook_cannot_break_what_snowl_writes():
    def spoil(task, run, payload):
        payload["engine_config"]["agent_name"] = object()

    state = play(installed({"on_trial_end": spoil}, result()))
    assert strict(state)["output"]["trace_events"][0]["payload"]["step_count"] == 0


def test_hooks_may_be_a_mapping():
    calls = []
    play(installed({"setup": calls.append}, result()))
    assert len(calls) == 1


class SlowSetup(AsyncHooks):
    async def note(self, name, *args):
        if name == "setup":
            await asyncio.sleep(0.02)
        await super().note(name, *args)


@pytest.mark.parametrize("loops", ["one loop", "a loop for each"])
def test_concurrent_trials_wait_for_one_setup(loops):
    hooks = SlowSetup()
    agent = installed(hooks, result())
    together(agent, [State() for _ in range(5)], loops)
    assert hooks.names().count("setup") == 1 and hooks.names()[0] == "setup"
    assert hooks.names().count("on_trial_end") == 5


def test_a_failed_setup_fails_all_that_wait_and_the_next_trial_tries_again():
    hooks = SlowSetup(["setup"])
    agent = installed(hooks, result())
    errors = gather(*[lambda: agent.run(State(), Context())] * 3)
    assert {str(error) for error in errors} == {"hook setup raised ValueError: no"}
    assert hooks.names() == ["setup"]
    hooks.bad.clear()
    play(agent)
    assert hooks.names()[:3] == ["setup", "setup", "on_trial_start"]


def test_a_cancelled_setup_is_taken_over_by_a_trial_that_waits():
    hooks = SlowSetup()
    agent = installed(hooks, result())

    async def main():
        first = asyncio.ensure_future(agent.run(State(), Context()))
        others = [asyncio.ensure_future(agent.run(State(), Context())) for _ in range(2)]
        await asyncio.sleep(0.005)
        first.cancel()
        return await asyncio.gather(first, *others, return_exceptions=True)

    first, *others = asyncio.run(main())
    assert isinstance(first, asyncio.CancelledError)
    assert [state.stop_reason for state in others] == ["completed"] * 2
    assert hooks.names().count("setup") == 1  # The cancelled one was never noted.


@BOTH
def test_teardown_comes_once_also_after_a_failed_setup_and_ends_the_agent(kind):
    hooks = kind(["setup"])
    agent = installed(hooks, result())
    fail(agent)

    async def end():
        async with agent:
            pass

    asyncio.run(end())
    asyncio.run(end())
    assert hooks.names() == ["setup", "teardown"]
    assert fail(agent)[0] == "agent 'plugin' is torn down"


@BOTH
def test_a_cancelled_trial_is_told_to_its_hook_and_stays_cancelled(kind):
    for bad in ([], ["on_trial_error"]):
        hooks, gate = kind(bad), threading.Event()
        made = Agent(result(), gate=gate)
        agent = InstalledAgent(lambda made=made: made, agent_id="plugin", hooks=hooks)
        asyncio.run(cancel_when_running(agent, made.engine, State()))
        gate.set()
        assert hooks.names()[-1] == "on_trial_error"
        assert isinstance(hooks.calls[-1][2], asyncio.CancelledError)
