"""Hooks: when they are called, with what, and who may be one."""

from types import SimpleNamespace

import pytest
from engine_doubles import ScriptedAgent, ScriptedCritic, agents, play, play_agent, tools

from qitos_min import Action, Decision, Engine
from qitos_min.engine import EngineHook
from qitos_min.engine.hooks import HookContext

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))
MOMENTS = [name for name in vars(EngineHook) if name.startswith("on_")]


class Recorder:
    """Notes every call; ``contexts`` holds what it was shown."""

    def __init__(self):
        self.calls = []
        self.contexts = []
        for name in MOMENTS:
            if name != "on_event":
                setattr(self, name, lambda *args, name=name: self.note(name, args))

    def note(self, name, args):
        self.calls.append(name)
        if isinstance(args[0], HookContext):
            self.contexts.append(args[0])


def step_of(*stages):
    inner = [f"on_{when}_{stage}" for stage in stages for when in ("before", "after")]
    if "act" in stages:
        place = inner.index("on_before_act") + 1
        inner[place:place] = ["on_before_tool_use", "on_after_tool_use"]
    return ["on_before_step", *inner, "on_step_end", "on_after_step"]


ACTING = step_of("decide", "act", "reduce", "check_stop")
FINAL = step_of("decide", "reduce", "check_stop")


@pytest.mark.parametrize(
    "decisions, options, expected",
    [
        ([ADD, Decision.final("x")], {}, [*ACTING, *FINAL]),
        ([Decision.wait(), Decision.final("x")], {}, [*step_of("decide"), *FINAL]),
        (
            [ADD, Decision.final("x")],
            {"critics": ["continue", "continue"]},
            [
                *step_of("decide", "act", "reduce", "critic", "check_stop"),
                *step_of("decide", "reduce", "critic", "check_stop"),
            ],
        ),
        (
            [Decision.handoff("other")],
            {"agent_registry": [Decision.final("x")]},
            [*step_of("decide"), *FINAL],
        ),
        (
            [ValueError("no")],
            {},
            ["on_before_step", "on_before_decide", "on_recover", "on_step_end", "on_after_step"],
        ),
    ],
    ids=["act", "wait", "critics", "handoff", "failure"],
)
def test_each_moment_is_told_in_order(decisions, options, expected):
    options = dict(options)
    if "critics" in options:
        options["critics"] = [ScriptedCritic(*options["critics"])]
    if "agent_registry" in options:
        options["agent_registry"] = agents(
            ScriptedAgent(*options["agent_registry"], name="other")
        )
    hook = Recorder()
    play_agent(*decisions, hooks=[hook], **options)
    assert hook.calls == ["on_run_start", *expected, "on_run_end"]


def test_a_hook_is_shown_the_moment():
    hook = Recorder()
    engine = Engine(ScriptedAgent(ADD, Decision.final("x"), tool_registry=tools()), hooks=[hook])
    result = play(engine)
    others = ("on_run_start", "on_step_end", "on_run_end")
    others += ("on_before_tool_use", "on_after_tool_use")
    names = [call for call in hook.calls if call not in others]
    shown = dict(zip(names, hook.contexts))  # the later step wins
    first = hook.contexts[names.index("on_after_act")]
    assert (first.task, first.step_id, first.phase.value) == ("the task", 0, "ACT")
    assert first.state is result.state and first.record is result.records[0]
    assert (first.decision.mode, first.action_results, first.error) == ("act", [3], None)
    assert first.env_view == {"enabled": False} and first.run_id == result.run_id
    assert first.observation["step"] == 0 and first.ts.endswith("+00:00")
    last = shown["on_after_step"]
    assert (last.step_id, last.stop_reason, last.record) == (1, "final", result.records[1])
    assert shown["on_before_check_stop"].stop_reason is None


def test_a_failure_is_shown_as_it_was_raised():
    error = ValueError("no")
    hook = Recorder()
    play_agent(error, hooks=[hook])
    assert [context.error for context in hook.contexts if context.error] == [error]


def test_run_start_step_end_and_run_end_have_arguments_of_their_own():
    told = []

    class Hook(EngineHook):
        def on_run_start(self, task, state, engine):
            told.append((task, state, engine))

        def on_step_end(self, record, state, engine):
            told.append((record, state, engine))

        def on_run_end(self, result, engine):
            told.append((result, engine))

    engine = Engine(ScriptedAgent(Decision.final("x")), hooks=[Hook()])
    result = play(engine)
    assert told == [
        ("the task", result.state, engine),
        (result.records[0], result.state, engine),
        (result, engine),
    ]


def test_every_event_is_told_with_its_record():
    told = []

    class Hook(EngineHook):
        def on_event(self, event, state, record, engine):
            told.append((event, record))

    result = play_agent(ADD, Decision.final("x"), hooks=[Hook()])
    assert [event for event, _ in told] == result.events
    assert [record.step_id if record else None for _, record in told] == [
        None if event.phase.value in ("INIT", "END") else event.step_id for event in result.events
    ]


def test_hooks_are_told_in_the_order_in_which_they_were_registered():
    order = []
    first = SimpleNamespace(on_run_start=lambda *args: order.append("first"))
    second = SimpleNamespace(on_run_start=lambda *args: order.append("second"))
    third = SimpleNamespace(on_run_start=lambda *args: order.append("third"))
    engine = Engine(ScriptedAgent(*[Decision.final("x")] * 3), hooks=[first])
    engine.register_hook(second)
    engine.run("t")
    engine.register_hook(third)
    engine.unregister_hook(first)
    engine.run("t")
    engine.clear_hooks()
    play(engine)
    assert order == ["first", "second", "second", "third"]
    with pytest.raises(ValueError):
        engine.unregister_hook(first)


def test_the_list_of_hooks_stays_the_callers():
    mine = []
    engine = Engine(ScriptedAgent(Decision.final("x")), hooks=mine)
    engine.register_hook(Recorder())
    assert mine == []


def test_a_hook_registered_by_a_tool_hears_of_later_runs_only():
    hook = Recorder()

    def register(runtime_context=None) -> int:
        """Register."""
        runtime_context["run"].engine.register_hook(hook)
        return 1

    agent = ScriptedAgent(
        Decision.act(Action("register")),
        *[Decision.final("x")] * 2,
        tool_registry=tools(register),
    )
    engine = Engine(agent)
    engine.run("t")
    assert hook.calls == []
    play(engine)
    assert hook.calls[0] == "on_run_start"


def test_a_hook_that_raises_is_removed_for_the_rest_of_the_run_only():
    calls = []

    class Clumsy(EngineHook):
        def on_before_step(self, ctx, engine):
            calls.append(ctx.step_id)
            if len(calls) == 1:
                raise ValueError("oops")

    agent = ScriptedAgent(ADD, Decision.final("x"), Decision.final("y"), tool_registry=tools())
    other = Recorder()
    engine = Engine(agent, hooks=[Clumsy(), other])
    result = engine.run("t")
    assert calls == [0]
    assert [e.error for e in result.events if not e.ok] == [
        "Clumsy.on_before_step raised oops; hook removed"
    ]
    assert other.calls.count("on_before_step") == 2
    play(engine)
    assert calls == [0, 0]
