"""What the adapter makes of runs, settings and tools, with doubles of both sides."""

import asyncio
import datetime
import enum
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from snowl_doubles import STEP, Agent, Context, State, fail, play, result, strict, user, wrap

import snowl_compat
from qitos_min import (
    Action,
    AgentModule,
    AgentRegistry,
    AgentSpec,
    Decision,
    StateSchema,
    ToolRegistry,
)
from qitos_min.snowl import InstalledAgent, QitOSAdapter
from snowl_compat import SnowlCompatError, build_payload

# What a run puts on the state


def test_a_successful_run_fills_the_whole_state():
    usage = {"prompt_tokens_total": 5, "completion_tokens_total": 2.0}
    run = result("42", records=[STEP], total_tokens=9)
    run["task_result"]["metrics"] = usage
    agent = Agent(run)
    state = play(wrap(agent, agent_id="a"))
    assert state.messages == [user("the task"), {"role": "assistant", "content": "42"}]
    assert strict(state) == {
        "output": {
            "message": {"role": "assistant", "content": "42"},
            "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 9},
            "artifacts": [],
            "trace_events": [
                {
                    "event": "qitos.snowl_payload",
                    "schema_version": snowl_compat.SCHEMA_VERSION,
                    "payload": build_payload(run, engine=agent.engine),
                    "issues": [],
                },
                {
                    "event": "qitos.step",
                    "step_id": 4,
                    "agent_id": "worker",
                    "mode": "act",
                    "tool_calls": [
                        {
                            **{"tool_name": "add", "status": "success"},
                            **{"latency_ms": 1.5, "error": None},
                        },
                        {
                            **{"tool_name": "boom", "status": "error"},
                            **{"latency_ms": None, "error": "boom"},
                        },
                    ],
                    "critics": [
                        {"critic_name": "C", "action": "retry", "reason": "", "score": 0.5}
                    ],
                },
            ],
        },
        "actions": [
            ["tool_call", {"tool_name": "add", "arguments": {"a": 1}, "tool_call_id": "c1"}],
            ["tool_call", {"tool_name": "boom", "arguments": {}}],
        ],
        "observations": [
            ["tool_result", {"tool_name": "add", "result": 3, "status": "success"}],
            ["tool_result", {"tool_name": "boom", "result": {"error": "boom"}, "status": "error"}],
            ["environment", {"result": {"env": {"done": False}}}],
        ],
        "stop_reason": "completed",
    }


def test_a_result_has_the_name_of_its_own_tool_only():
    # E5, a real QitOS run: one call, and the environment's word behind its result.
    step = {"tool_invocations": [{"tool_name": "view"}], "action_results": [{"ok": 1}, {"env": {}}]}
    told = play(wrap(Agent(result(records=[step])))).observations
    assert [(found.observation_type, found.payload) for found in told] == [
        ("tool_result", {"tool_name": "view", "result": {"ok": 1}, "status": None}),
        ("environment", {"result": {"env": {}}}),
    ]


def test_what_was_on_the_state_stays():
    state = State(actions=["mine"], observations=["mine"])
    messages = state.messages
    play(wrap(Agent(result(records=[STEP]))), state)
    assert (state.actions[0], state.observations[0]) == ("mine", "mine")
    assert messages == [user("the task")]  # A sample's own list is not written to.


STOPS = {
    "completed": "success final final_result agent_condition critic_stop env_terminal",
    "max_steps": "max_steps budget_steps stagnation",
    "limit_exceeded": "budget_time budget_tokens context_overflow",
    "cancelled": "cancelled_immediate cancelled_after_step interrupt",
}
ERRORS = ("unrecoverable_error", "task_validation_failed", "env_capability_mismatch", "new")


@pytest.mark.parametrize("expected", STOPS)
@pytest.mark.parametrize("place", ["state", "task_result", "enum"])
def test_each_stop_reason_has_its_word_in_snowl(expected, place):
    for reason in STOPS[expected].split():
        told = enum.Enum("Stop", {"X": reason}).X if place == "enum" else reason
        where = "state" if place == "enum" else place
        run = {"records": [], where: SimpleNamespace(stop_reason=told, final_result=None)}
        stop = play(wrap(Agent(run))).stop_reason
        assert isinstance(stop, str) and isinstance(stop, enum.Enum)
        assert stop == stop.value == expected


@pytest.mark.parametrize("reason", ERRORS)
def test_other_stop_reasons_are_told_as_an_error(reason):
    message, state = fail(wrap(Agent(result(None, reason, records=[STEP]))))
    assert message == f"the run ended with stop reason {reason!r}"
    assert strict(state)["stop_reason"] == "error"
    assert len(state.actions) == 2 and len(state.output["trace_events"]) == 3


KEY_ERROR = {
    "category": "system_error",
    "phase": "DECIDE",
    "step_id": 0,
    "type": "KeyError",
    "message": "'zzz'",
    "traceback": "Traceback ...",
}
# What QitOS 0.3.0 records of the same: neither a type nor a traceback.
EVENTS = [
    {"phase": "DECIDE", "ok": True, "step_id": 3},
    {"phase": "DECIDE_ERROR", "ok": False, "error": "first", "step_id": 3},
    {"phase": "RECOVER", "ok": False, "error": "bad \ud800 text", "step_id": 3},
    {"phase": "END", "ok": False, "error": None, "step_id": 3},
]
LITTLE = {"phase": "DECIDE", "step_id": 3, "message": "bad \ufffd text"}
FAILURES = [
    ({"failure": KEY_ERROR}, "KeyError: 'zzz' (DECIDE, step 0)", KEY_ERROR),
    ({"failure": {"type": "E"}}, "E", {"type": "E"}),
    (
        {"failure": {"type": "E", "message": "E", "step_id": 1}},
        "E (step 1)",
        {"type": "E", "message": "E", "step_id": 1},
    ),
    ({"failure": {"message": "m", "phase": "ACT"}}, "m (ACT)", {"message": "m", "phase": "ACT"}),
    ({"events": EVENTS}, "bad \ufffd text (DECIDE, step 3)", LITTLE),
    (
        {},
        "the run ended with stop reason 'unrecoverable_error'",
        {"message": "the run ended with stop reason 'unrecoverable_error'"},
    ),
]


@pytest.mark.parametrize("more, message, told", FAILURES)
def test_a_failed_run_says_what_where_and_when(more, message, told):
    said, state = fail(wrap(Agent(result(None, "unrecoverable_error", **more))))
    assert said == message
    unknown = dict.fromkeys(["category", "type", "message", "phase", "step_id", "traceback"])
    event = strict(state)["output"]["trace_events"][-1]
    assert event == {"event": "qitos.failure", **unknown, **told}


@pytest.mark.parametrize(
    "error", [KeyError("first"), ValueError("bad \ud800 text"), RuntimeError()]
)
def test_an_exception_that_a_hook_was_shown_completes_its_failure_only(error):
    agent, run = Agent(), result(None, "unrecoverable_error", events=EVENTS)

    def start(task):
        for hook in agent.engine.hooks:
            hook.on_recover(SimpleNamespace(error=error), agent.engine)
        return run

    agent.engine.run = start
    message, state = fail(wrap(agent))
    event = state.output["trace_events"][-1]
    if isinstance(error, ValueError):
        assert message == "ValueError: bad \ufffd text (DECIDE, step 3)"
        assert event["type"] == "ValueError" and event["traceback"] == "ValueError: bad \ufffd text"
    else:  # The run had got over that one.
        assert message == "bad \ufffd text (DECIDE, step 3)" and event["type"] is None


def test_a_failure_of_qitos_min_can_be_found():
    class Broken(AgentModule):
        def init_state(self, task, **kwargs):
            return StateSchema(task=task, **kwargs)

        def decide(self, state, observation):
            return {}["zzz"]

        def reduce(self, state, observation, decision):
            return state

    message, state = fail(wrap(Broken))
    assert message == "KeyError: 'zzz' (DECIDE, step 0)"
    failure = strict(state)["output"]["trace_events"][-1]
    assert 'return {}["zzz"]' in failure["traceback"]
    assert (failure["category"], failure["step_id"]) == ("system_error", 0)


def test_no_stop_reason_with_an_answer_is_completed_and_without_one_an_error():
    assert play(wrap(Agent(result("x", None)))).stop_reason == "completed"
    message, _ = fail(wrap(Agent(result(None, None))))
    assert message == "the run ended with neither a stop reason nor an answer"


@pytest.mark.parametrize(
    "error, expected",
    [
        (ValueError("boom"), "ValueError: boom"),
        (RuntimeError(), "RuntimeError"),
        (ValueError("a\ud800b"), "ValueError: a\ufffdb"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError"),
        (StopIteration("over"), "StopIteration: over"),
    ],
)
def test_what_a_run_raises_costs_its_trial_only(error, expected):
    # SystemExit, a CancelledError of the agent's own and a surrogate in the text
    # would each abort Snowl's whole evaluation.
    message, state = fail(wrap(Agent(error)))
    assert message == expected
    told = strict(state)
    assert told["stop_reason"] == "error"
    failure = told["output"]["trace_events"][-1]
    assert (failure["event"], failure["type"]) == ("qitos.failure", type(error).__name__)
    assert "raise outcome" in failure["traceback"]


def test_what_an_engine_holds_after_it_raised_is_told():
    agent = Agent(ValueError("boom"))
    agent.engine.records = [STEP]
    message, state = fail(wrap(agent))
    assert (message, len(state.actions)) == ("ValueError: boom", 2)
    agent = Agent(ValueError("boom"))
    agent.engine.last_result = result("half", records=[STEP, STEP])
    assert len(fail(wrap(agent))[1].actions) == 4


# Answers, usage and tasks of all kinds

ANSWERS = [
    ("text", "text"),
    ("", ""),
    (42, "42"),
    ({"a": [1, None]}, '{"a": [1, null]}'),
    ("bad \ud800", "bad \ufffd"),
    (datetime.date(2026, 1, 2), "2026-01-02"),
]


@pytest.mark.parametrize("answer, expected", ANSWERS)
def test_an_answer_is_always_text(answer, expected):
    run = {"records": [], "task_result": {"final_result": answer}}
    state = play(wrap(Agent(run)))
    assert state.output["message"] == {"role": "assistant", "content": expected}
    strict(state)


def test_without_an_answer_there_is_an_empty_message_and_no_new_one():
    state = play(wrap(Agent(result(None, "max_steps"))))
    assert state.output["message"] == {"role": "assistant", "content": ""}
    assert state.messages == [user("the task")]


USAGES = [
    ({}, {}, (0, 0, 0)),
    ({"total_tokens": 7}, {}, (0, 0, 7)),
    ({}, {"token_usage": 5}, (0, 0, 5)),
    ({}, {"prompt_tokens_total": 3, "completion_tokens_total": 4.0}, (3, 4, 7)),
    ({"total_tokens": math.nan}, {"prompt_tokens_total": object()}, (0, 0, 0)),
    ({"total_tokens": -5}, {"prompt_tokens_total": True}, (0, 0, 0)),
]


@pytest.mark.parametrize("more, metrics, expected", USAGES)
def test_usage_is_always_whole_numbers(more, metrics, expected):
    run = result(**more)
    run["task_result"]["metrics"] = metrics
    usage = play(wrap(Agent(run))).output["usage"]
    assert tuple(usage.values()) == expected
    assert list(usage) == ["input_tokens", "output_tokens", "total_tokens"]
    assert all(type(count) is int for count in usage.values())


def awkward():
    cycle, deep = {}, []
    cycle["me"] = cycle
    for _ in range(2000):
        deep = [deep]
    plain = enum.Enum("Plain", "A")
    now = datetime.datetime(2026, 1, 1)
    return [
        *(math.nan, -math.inf, now, b"\xff", {1}, object(), plain.A, ValueError("x")),
        *(cycle, deep, {(1, 2): 3}, "lone \ud800", lambda: 1),
    ]


@pytest.mark.parametrize("value", awkward(), ids=lambda value: type(value).__name__)
def test_no_value_of_a_run_breaks_the_state(value):
    step = {
        "step_id": value,
        "agent_id": value,
        "decision": {"mode": value},
        "actions": [{"name": "t", "args": {"v": value}}, {"name": value, "args": value}],
        "action_results": [value, SimpleNamespace(status=value, output=value)],
        "tool_invocations": [{"tool_name": "t", "status": value, "latency_ms": value}],
        "critic_outputs": [{"score": value, "details": {"v": value}, "reason": value}],
    }
    run = result(value, records=[step], total_tokens=value)
    run["task_result"]["metrics"] = {"prompt_tokens_total": value}
    strict(play(wrap(Agent(run))))


TASKS = [
    ([user("a"), {"role": "assistant", "content": "b"}], "a"),
    ([user("a"), user("b")], "b"),
    ([{"role": "system", "content": "s"}, user([{"type": "text", "text": "a"}])], "a"),
    ([user([{"text": "a"}, {"type": "image_url", "image_url": {}}, "b"])], "a\nb"),
    ((user("a"),), "a"),
]


@pytest.mark.parametrize("messages, expected", TASKS)
def test_the_task_is_the_text_of_the_last_user_message(messages, expected):
    assert QitOSAdapter().unwrap_state(State(messages)) == expected
    agent = Agent(result())
    play(wrap(agent), State(messages))
    assert agent.engine.ran == [(expected, {})]


@pytest.mark.parametrize(
    "messages, expected",
    [
        ([], "the state has no user message"),
        (None, "the state has no user message"),
        ([{"role": "system", "content": "s"}], "the state has no user message"),
        ([user(" ")], "the last user message has no text"),
        ([user("a"), user([{"type": "image_url"}])], "the last user message has no text"),
    ],
)
def test_a_state_without_a_task_is_a_clear_error(messages, expected):
    assert fail(wrap(Agent()), State(messages))[0] == expected


# Which agents, and with what settings


def test_settings_reach_the_engine_and_the_run():
    agent = Agent(result())
    play(wrap(agent, max_steps=3, engine_kwargs={"env": 1}, state_kwargs={"seed": 7}))
    (built,) = agent.built
    assert built.pop("budget").max_steps == 3
    assert built == {"env": 1}
    assert agent.engine.ran == [("the task", {"seed": 7, "max_steps": 3})]


def test_a_factory_is_asked_for_each_trial_and_its_error_is_the_trials():
    made = []

    def factory():
        made.append(Agent(result(len(made))))
        return made[-1]

    agent = wrap(factory)
    assert [play(agent).output["message"]["content"] for _ in range(3)] == ["0", "1", "2"]
    assert len(made) == 3
    assert fail(wrap(lambda: 1 / 0))[0] == "ZeroDivisionError: division by zero"
    assert fail(wrap(lambda: 3))[0] == "expected an agent, the factory gave 3"


class PlainAgent:
    def __init__(self, answer):
        self.answer = answer

    def run(self, task, return_state=False, **kwargs):
        self.asked = (task, return_state, kwargs)
        return self.answer


class AsyncAgent:
    async def run(self, task):
        await asyncio.sleep(0)
        return f"{task}?"


def test_agents_without_an_engine_are_run_directly():
    agent = PlainAgent(result("x", records=[STEP]))
    state = play(wrap(agent, max_steps=2, engine_kwargs={"e": 1}, state_kwargs={"s": 2}))
    expected = {"engine_kwargs": {"e": 1}, "max_steps": 2, "s": 2}
    assert agent.asked == ("the task", True, expected)
    assert len(state.actions) == 2


@pytest.mark.parametrize(
    "agent, expected",
    [
        (PlainAgent("bare"), "bare"),
        (PlainAgent({"state": "CA"}), '{"state": "CA"}'),
        (AsyncAgent(), "the task?"),
    ],
    ids=["text", "object", "async"],
)
def test_a_bare_answer_is_a_completed_run(agent, expected):
    state = play(wrap(agent))
    assert (state.output["message"]["content"], state.stop_reason) == (expected, "completed")
    payload = state.output["trace_events"][0]["payload"]
    assert snowl_compat.validate_payload(payload) == []
    assert payload["step_count"] == 0


def test_wrap_result_fills_and_returns_the_same_state():
    state = State()
    run = result(None, "unrecoverable_error")
    assert QitOSAdapter().wrap_result(run, state, event_name="e") is state
    assert (state.stop_reason, state.output["trace_events"][0]["event"]) == ("error", "e")


def test_a_result_with_a_cancel_method_is_not_a_cancelled_one():
    run = SimpleNamespace(**result(), cancel=lambda mode: True)
    agent = Agent()
    agent.engine.run = lambda task: run
    assert play(wrap(agent)).stop_reason == "completed"


CONFIGS = [
    ({"agent": 3}, "expected an agent or a factory of agents, got 3"),
    ({"max_steps": 0}, "max_steps: expected an int >= 1, got 0"),
    ({"max_steps": True}, "max_steps: expected an int >= 1, got True"),
    ({"event_name": 5}, "event_name: expected text, got 5"),
    (
        {"max_steps": 2, "engine_kwargs": {"budget": 1}},
        "engine_kwargs: expected no budget beside max_steps",
    ),
]


@pytest.mark.parametrize("config, expected", CONFIGS)
def test_bad_config_is_an_error_that_names_it(config, expected):
    with pytest.raises(SnowlCompatError) as caught:
        wrap(**{"agent": Agent, **config})
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    "make, name", [(wrap, "steps"), (wrap, "hooks"), (InstalledAgent, "steps")]
)
def test_an_unknown_setting_is_an_error_that_names_it(make, name):
    with pytest.raises(TypeError, match=f"keyword argument '{name}'"):
        make(Agent, **{name: 1})


@pytest.mark.parametrize("agent_id", ["my-agent", "a", "v1.2", "x@y_z+1", "a b", "评测"])
def test_ids_that_are_safe_in_file_names_are_kept(agent_id):
    assert wrap(Agent, agent_id=agent_id).agent_id == agent_id


# Z7 and a run folder that was left: the id becomes part of file names.
BAD_IDS = ("", " ", "../x", "a/b", "a\\b", "a:b", ".hid", "a.", "a,b", "a\n", "x" * 65, 3)


@pytest.mark.parametrize("agent_id", BAD_IDS)
def test_ids_that_are_not_safe_in_file_names_are_refused(agent_id):
    with pytest.raises(SnowlCompatError, match="agent_id: expected a file name"):
        wrap(Agent, agent_id=agent_id)


def test_without_an_id_the_agents_name_is_made_safe():
    named = Agent()
    named.name = "team/solver: 1"
    assert wrap(named).agent_id == "team-solver-1"
    assert wrap(Agent).agent_id == "Agent"
    assert wrap(lambda: Agent()).agent_id == "lambda"
    assert wrap(type("Child", (type("Parent", (), {"name": "parent"}),), {})).agent_id == "parent"


# Snowl's tools

SCHEMA = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "description": "what to find", "enum": ["a", "b"]},
        "max-hits": {"type": "integer"},
        "deep": {"type": ["object", "null"]},
        "from": {"type": "string"},
    },
    "required": ["key"],
    "additionalProperties": False,
}


def snowl_tool(name="lookup", call=lambda key: f"v:{key}"):
    return SimpleNamespace(
        **{"name": name, "description": "Find a value.", "parameters": SCHEMA},
        **{"callable": call, "required_ops": ("web.fetch",)},
    )


class Registry:
    """A registry as QitOS has it: names are taken once."""

    def __init__(self, *names):
        self.tools = dict.fromkeys(names)

    def register(self, item):
        if item.__name__ in self.tools:
            raise ValueError(f"name {item.__name__} is taken")
        self.tools[item.__name__] = item


def test_a_wrapped_tool_keeps_name_text_and_schema():
    (tool,) = QitOSAdapter().wrap_tools([snowl_tool()])
    assert (tool.__name__, tool.__doc__) == ("lookup", "Find a value.")
    meta = tool.__qitos_tool_meta__
    assert (meta.name, meta.input_schema, meta.required_ops) == ("lookup", SCHEMA, [])
    assert meta.input_schema is not SCHEMA
    assert str(tool.__signature__) == "(*, key: str, deep: object = None)"
    assert tool(key="k") == "v:k"

    async def call(key):
        await asyncio.sleep(0)
        return key

    (tool,) = QitOSAdapter().wrap_tools([snowl_tool(call=call)])
    assert tool(key="k") == "k"


def test_tools_are_the_trials_own_beside_the_agents():
    own = Registry("own")
    agent = Agent(result(), tool_registry=own)
    seen = []
    loops = []

    async def call(key):
        loops.append(asyncio.get_running_loop())
        return key

    def run(task):
        seen.append((list(agent.tool_registry.tools), tool_of(agent)(key="k")))
        return result()

    agent.engine.run = run

    async def trial():
        loops.append(asyncio.get_running_loop())
        await wrap(agent).run(State(), Context(), [snowl_tool(call=call)])

    asyncio.run(trial())
    assert seen == [(["own", "lookup"], "k")]
    assert loops[0] is loops[1]  # An async tool runs on Snowl's own loop.
    assert agent.tool_registry is own and list(own.tools) == ["own"]


def tool_of(agent, name="lookup"):
    return agent.tool_registry.tools[name]


def test_a_registry_among_the_settings_gets_the_tools():
    own = Registry("own")
    agent = Agent(result())
    play(wrap(agent, engine_kwargs={"tool_registry": own}), tools=[snowl_tool()])
    (built,) = agent.built
    assert list(built["tool_registry"].tools) == ["own", "lookup"]
    assert list(own.tools) == ["own"]


TAKEN = "Snowl's tool 'lookup' cannot stand beside those of the agent: "
REFUSED = [
    (Registry("lookup"), TAKEN + "ValueError: name lookup is taken"),
    (None, "Agent has no tool registry for Snowl's tool 'lookup'"),
]


@pytest.mark.parametrize("registry, expected", REFUSED, ids=["taken", "no registry"])
def test_a_tool_that_finds_no_place_is_an_error_naming_it(registry, expected):
    message, _ = fail(wrap(Agent(result(), tool_registry=registry)), tools=[snowl_tool()])
    assert message == expected


# Every agent of a team


class Member(AgentModule):
    """Hands over to the next of its ``then``, and the last one calls Snowl's tool."""

    def __init__(self, name, then=None, tools=None):
        super().__init__(tool_registry=tools)
        self.name, self.then = name, then

    def init_state(self, task):
        return StateSchema(task=task)

    def decide(self, state, observation):
        if self.then is not None:
            return Decision.handoff(self.then)
        results = observation["action_results"]
        if not results:
            return Decision.act(Action("lookup", {"key": "a"}))
        return Decision.final(results[0])

    def reduce(self, state, observation, decision):
        return state


def handed(kind):
    """(an entry agent, the settings of its run, every registry of the caller's)."""
    shared = ToolRegistry()
    own = {"override": ToolRegistry(), "none": None}.get(kind, shared)
    entry = Member("planner", "writer", shared)
    writer = Member("writer", None, None if kind == "override" else own)
    team = AgentRegistry()
    team.register(AgentSpec("planner", "plans", entry))
    spec = AgentSpec("writer", "writes", writer)
    spec.tools_override = own if kind == "override" else None
    team.register(spec)
    return entry, team, [registry for registry in (shared, own) if registry is not None]


@pytest.mark.parametrize("kind", ["shared", "override", "none"])
@pytest.mark.parametrize("place", ["settings", "build_engine"])
def test_snowls_tools_reach_every_agent_of_a_team_for_the_trial_only(kind, place):
    entry, team, registries = handed(kind)
    settings = {"agent_registry": team}
    if place == "build_engine":
        build, settings = entry.build_engine, {}
        entry.build_engine = lambda **more: build(agent_registry=team, **more)
    agent = wrap(entry, engine_kwargs=settings)
    before = [(spec, dict(vars(spec))) for spec in team]
    for _ in range(2):
        state = play(agent, tools=[snowl_tool()])
        assert state.output["message"]["content"] == "v:a"
    assert [len(registry) for registry in registries] == [0] * len(registries)
    assert [(spec, vars(spec)) for spec in team] == before


def test_a_name_that_an_agent_of_a_team_has_is_an_error_naming_both():
    def lookup(key: str) -> str:
        """Look something up."""
        return key

    entry, team, _ = handed("override")
    team.get("writer").tools_override.register(lookup)
    message, _ = fail(wrap(entry, engine_kwargs={"agent_registry": team}), tools=[snowl_tool()])
    assert message.startswith(
        "Snowl's tool 'lookup' cannot stand beside those of agent 'writer': ValueError: "
    )


# What is told of repairs, bodies and settings

BAD_STEP = {"step_id": 1, "critic_outputs": [{"critic_name": "C", "score": "bad"}]}
ISSUE = {
    "path": "records[0].critic_outputs[0].score",
    "message": "expected a finite number, got 'bad'",
}


def test_repairs_are_told_beside_the_payload():
    state = play(wrap(Agent(result(records=[BAD_STEP]))))
    assert strict(state)["output"]["trace_events"][0]["issues"] == [ISSUE]
    assert state.stop_reason == "completed"


def test_strict_fails_the_trial_at_the_first_repair():
    message, state = fail(wrap(Agent(result("42", records=[BAD_STEP])), strict=True))
    assert message == "{path}: {message}".format_map(ISSUE)
    told = strict(state)
    assert told["stop_reason"] == "error" and told["output"]["message"]["content"] == "42"
    assert told["output"]["trace_events"][-1]["message"] == message
    assert play(wrap(Agent(result(records=[STEP])), strict=True)).stop_reason == "completed"


REF = {"artifact_id": "output-1", "resolver_key": "files", "media_type": "text/plain"}
ARTIFACT = {"name": "output-1", "uri": "files:output-1", "media_type": "text/plain"}
REFS = [{"artifact_id": "x"}, {"resolver_key": "y"}, None, 3, "x", {**REF, "media_type": None}]
HOLDERS = [
    ({"tool_invocations": [{"tool_name": "t", "artifact_refs": [REF]}]}, [ARTIFACT]),
    ({"action_results": [{"artifact_refs": (REF, REF)}]}, [ARTIFACT]),
    ({"action_results": [{"artifact_refs": REFS}]}, [{**ARTIFACT, "media_type": None}]),
]


@pytest.mark.parametrize("step, artifacts", HOLDERS, ids=["call", "result", "no whole"])
def test_references_to_artifacts_become_snowls_artifacts(step, artifacts):
    assert play(wrap(Agent(result(records=[step])))).output["artifacts"] == artifacts


@pytest.mark.parametrize(
    "agent, steps", [(PlainAgent("x"), 7), (Agent(result()), 7), (Agent(result()), None)]
)
def test_what_wrap_knows_fills_what_the_engine_does_not_say(agent, steps):
    state = play(wrap(agent, agent_id="in-snowl", max_steps=steps))
    config = state.output["trace_events"][0]["payload"]["engine_config"]
    assert config["budget_max_steps"] == steps
    assert config["agent_name"] == ("scripted" if isinstance(agent, Agent) else "")


FIRST_TRIAL = """
import sys
from snowl_doubles import play, wrap
from qitos_min import AgentModule, Decision, StateSchema

class Quick(AgentModule):
    def init_state(self, task):
        return StateSchema(task=task)
    def decide(self, state, observation):
        return Decision.final("done")
    def reduce(self, state, observation, decision):
        return state

assert "qitos_min.engine" not in sys.modules
print(play(wrap(Quick, max_steps=3)).stop_reason.value)
"""


def test_the_first_trial_of_a_process_finds_the_engine():
    tests = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", FIRST_TRIAL],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("completed\n", "")


def test_max_steps_is_told_to_states_that_take_it():
    state = play(wrap(Member("alone"), max_steps=3), tools=[snowl_tool()])
    assert state.output["message"]["content"] == "v:a"


def test_the_adapter_says_which_framework_it_is_for():
    assert QitOSAdapter.framework_name == QitOSAdapter().framework_name == "qitos"
