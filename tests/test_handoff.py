"""Handoffs: who is at work, what of the conversation arrives, what goes wrong."""

from dataclasses import dataclass, field

import pytest
from engine_doubles import (
    Notes,
    ScriptedAgent,
    ScriptedModel,
    add,
    agents,
    check_run,
    play,
    stages,
    tools,
)

from qitos_min import (
    Action,
    AgentRegistry,
    AgentSpec,
    ContextStrategy,
    Decision,
    Engine,
    HandoffContext,
    StateAdapter,
    ToolRegistry,
)
from qitos_min.core.history import History, HistoryMessage
from qitos_min.engine import HandoffTrace, RuntimeBudget, RuntimePhase
from qitos_min.engine._handoff import filtered, last_rounds

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))
FULL, SUMMARY, ISOLATED = ContextStrategy.FULL, ContextStrategy.SUMMARY, ContextStrategy.ISOLATED


def to(name):
    return Decision.handoff(name)


def transfer(name):
    return Decision.act(Action(f"transfer_to_{name}"))


def member(name, *decisions, **options):
    options.setdefault("tool_registry", tools())
    return ScriptedAgent(*decisions, name=name, **options)


def team(*members, **options):
    """An engine whose entry agent is the first of the registered members."""
    specs = {k: options.pop(k) for k in list(options) if k in AgentSpec.__dataclass_fields__}
    return Engine(members[0], agent_registry=agents(*members, **specs), **options)


def who(result):
    return [record.agent_id for record in result.records]


# Both ways


@pytest.mark.parametrize("way", [to, transfer])
def test_a_handoff_switches_the_agent_and_belongs_to_the_one_that_decided_it(way):
    """Faults 10 and 12: transfer tools never handed off; the step named the target."""
    engine = team(member("triage", way("worker")), member("worker", Decision.final("done")))
    before = engine.export_config()
    result = play(engine)
    assert (result.final_result, who(result)) == ("done", ["triage", "worker"])
    [trace] = result.handoff_traces
    assert (trace.step_id, trace.from_agent, trace.to_agent) == (0, "triage", "worker")
    assert trace.context_strategy == "SUMMARY"
    start, end = [e for e in result.events if e.phase.value.startswith("HANDOFF")]
    assert (start.payload["from"], start.payload["to"]) == ("triage", "worker")
    assert (end.payload["agent"], end.payload["context_strategy"]) == ("worker", "SUMMARY")
    assert start in result.records[0].phase_events
    assert engine.export_config() == before
    assert before.agent_name == "triage"


def test_the_next_agent_has_its_own_tools_model_and_protocol():
    """Fault 8: model and protocol were never those of the agent at work."""
    model = ScriptedModel(
        '{"mode": "act", "actions": [{"name": "own", "args": {}}]}',
        '{"mode": "final", "final_answer": "x"}',
    )

    def own() -> int:
        """Own."""
        return 7

    worker = member(
        "worker",
        None,
        None,
        llm=model,
        model_protocol="json_decision_v1",
        tool_registry=tools(own),
    )
    triage = member("triage", ADD, to("worker"))
    result = play(team(triage, worker))
    assert [record.action_results for record in result.records] == [[3], [], [7], []]
    assert [record.protocol_id for record in result.records] == [
        *(None, None, "json_decision_v1", "json_decision_v1")
    ]
    prompt = model.asked[0][0]["content"]
    assert "- own:" in prompt and "- add:" not in prompt
    assert "- transfer_to_triage:" in prompt and "- transfer_to_worker:" not in prompt


def test_a_model_hands_off_with_a_tool():
    model = ScriptedModel('{"mode": "act", "actions": [{"name": "transfer_to_worker"}]}')
    triage = member("triage", None, llm=model, model_protocol="json_decision_v1")
    result = play(team(triage, member("worker", Decision.final("x"))))
    assert who(result) == ["triage", "worker"]
    assert result.records[0].action_results == [{"handoff": "worker"}]


def test_a_spec_overrides_tools_and_model():
    model = ScriptedModel('{"mode": "final", "final_answer": "x"}')
    worker = member(
        "worker", None, llm=ScriptedModel(), model_protocol="json_decision_v1"
    )
    registry = AgentRegistry()
    only = tools(add)
    spec = AgentSpec("worker", "works", worker, model_override=model, tools_override=only)
    registry.register(spec)
    engine = Engine(member("triage", to("worker")), agent_registry=registry)
    result = engine.run("t")
    check_run(result, engine)
    assert result.final_result == "x"
    assert "boom" not in model.asked[0][0]["content"]


def test_other_calls_of_the_turn_keep_their_results():
    """Case H8 (langgraph-swarm-py #82)."""
    turn = Decision.act(
        [Action("add", {"a": 1, "b": 2}), Action("transfer_to_worker"), Action("boom")]
    )
    result = play(team(member("triage", turn), member("worker", Decision.final("x"))))
    first, second, third = result.records[0].action_results
    assert (first, second) == (3, {"handoff": "worker"})
    assert third["error"] == "ValueError: no luck"
    assert who(result) == ["triage", "worker"]


def test_of_two_transfers_in_a_turn_the_first_wins_and_the_second_says_so():
    """Case H5 (openai-agents PR #344)."""
    turn = Decision.act([Action("transfer_to_b"), Action("transfer_to_c")])
    result = play(team(member("a", turn), member("b", Decision.final("x")), member("c")))
    assert who(result) == ["a", "b"]
    refused = result.records[0].action_results[1]
    assert refused["error_code"] == "handoff_pending"
    assert refused["error"] == "a handoff to 'b' is under way already"
    assert len(result.handoff_traces) == 1


def test_the_conversation_of_the_step_arrives_with_its_results():
    seen = []

    def look(state, observation):
        seen.append(observation["action_results"])
        return Decision.final("x")

    turn = Decision.act([Action("add", {"a": 1, "b": 2}), Action("transfer_to_b")])
    play(team(member("a", turn), member("b", look)))
    assert seen == [[3, {"handoff": "b"}]]


# What arrives


def rounds(count):
    """Two messages for each of some steps."""
    return [
        HistoryMessage(role, f"{role} {step}", step)
        for step in range(count)
        for role in ("assistant", "tool")
    ]


def outline(messages):
    return [f"{m.role} {m.step_id}" for m in messages]


@pytest.mark.parametrize(
    "strategy, most, count, expected",
    [
        (FULL, None, 5, outline(rounds(5))),
        (FULL, 2, 5, outline(rounds(5))[6:]),
        (FULL, 0, 5, []),
        (FULL, 9, 2, outline(rounds(2))),
        (SUMMARY, None, 3, outline(rounds(3))),
        (SUMMARY, None, 5, ["user 1", *outline(rounds(5))[4:]]),
        (SUMMARY, 1, 5, ["user 1", *outline(rounds(5))[8:]]),
        (SUMMARY, 0, 5, ["user 1"]),
        (SUMMARY, None, 0, []),
        (ISOLATED, None, 5, []),
        (ISOLATED, 9, 5, []),
    ],
)
def test_a_strategy_filters_what_arrives(strategy, most, count, expected):
    assert outline(filtered(rounds(count), strategy, most)) == expected


def test_a_summary_tells_what_was_said_in_short():
    messages = rounds(5)
    messages[0].content = "long " * 100
    summary = filtered(messages, SUMMARY, None)[0]
    lines = summary.content.split("\n")
    assert lines[0] == "Earlier in this run:"
    assert lines[1].startswith("- step 0, assistant: long long") and "...[TRUNCATED]" in lines[1]
    assert len(lines[1]) == len("- step 0, assistant: ") + 200
    assert lines[2:] == ["- step 0, tool: tool 0", "- step 1, assistant: assistant 1"] + [
        "- step 1, tool: tool 1"
    ]
    assert summary.metadata == {"summary": 4}


def test_rounds_are_steps():
    assert outline(last_rounds(rounds(4), 2)) == outline(rounds(4))[4:]
    assert last_rounds([], 3) == []
    messages = rounds(2)
    assert last_rounds(messages, None) == messages and last_rounds(messages, None) is not messages


@pytest.mark.parametrize(
    "strategy, most, passed",
    [(FULL, None, 9), (SUMMARY, None, 6), (ISOLATED, None, 0), (FULL, 2, 3), (SUMMARY, 1, 2)],
)
def test_messages_passed_is_what_the_next_model_gets(strategy, most, passed):
    """Fault 11: ISOLATED leaked the whole history and the count was wrong."""
    model = ScriptedModel('{"mode": "final", "final_answer": "x"}')
    worker = member("worker", None, llm=model, model_protocol="json_decision_v1")
    triage = member("triage", ADD, ADD, ADD, ADD, to("worker"))
    context = HandoffContext(strategy, max_history_rounds=most)
    result = play(team(triage, worker, handoff_context=context))
    [trace] = result.handoff_traces
    assert (trace.context_strategy, trace.messages_passed) == (strategy.name, passed)
    system, *conversation, now = model.asked[0]
    # The user's opening is the run's own, not a message that was passed on.
    conversation = [m for m in conversation if m["content"] != "Task: the task"]
    assert (system["role"], now["role"]) == ("system", "user")
    assert len(conversation) == passed
    leaked = any("add" in message["content"] for message in conversation)
    assert leaked is (strategy is not ISOLATED)


def test_the_strategy_of_the_spec_counts_unless_a_context_is_given():
    worker = member("worker", Decision.final("x"))
    result = play(team(member("a", to("worker")), worker, context_strategy=FULL))
    assert result.handoff_traces[0].context_strategy == "FULL"
    given = {"context_strategy": FULL, "handoff_context": HandoffContext(ISOLATED)}
    worker = member("worker", Decision.final("x"))
    result = play(team(member("a", to("worker")), worker, **given))
    assert result.handoff_traces[0].context_strategy == "ISOLATED"


@pytest.mark.parametrize("word", ["full", "FULL", FULL])
def test_a_strategy_may_be_named(word):
    assert HandoffContext(word).strategy is FULL
    assert AgentSpec("a", "", None, context_strategy=word).context_strategy is FULL


def test_the_history_of_the_caller_keeps_everything():
    history = History()
    worker = member("worker", Decision.final("x"))
    play(team(member("a", ADD, to("worker")), worker, context_strategy=ISOLATED, history=history))
    assert [m.role for m in history.retrieve()] == ["assistant", "tool", "assistant", "assistant"]


# What else goes along


def test_the_same_state_goes_on():
    def note(state, observation, decision):
        state.notes.append(decision.mode)

    worker = member("worker", Decision.final("x"), reduce=note)
    result = play(team(member("a", ADD, to("worker"), reduce=note), worker))
    assert result.state.notes == ["act", "final"]
    assert result.state.current_step == 3


def test_a_payload_is_found_in_the_metadata():
    payload = {"why": ["billing"]}
    worker = member("worker", Decision.final("x"))
    context = HandoffContext(payload=payload)
    result = play(team(member("a", to("worker")), worker, handoff_context=context))
    payload["why"].append("late")
    assert result.state.metadata == {"handoff": {"why": ["billing"]}}


@dataclass
class Bill(Notes):
    amount: int = 0
    shared: list = field(default_factory=list)


def test_an_adapter_makes_the_next_agents_state():
    class ToBill(StateAdapter):
        def adapt(self, source):
            return Bill(task=source.task, amount=len(source.notes))

    triage = member("triage", ADD, to("worker"), reduce=lambda s, o, d: s.notes.append(1))
    worker = member("worker", Decision.final("x"))
    result = play(team(triage, worker, state_adapter=ToBill()))
    assert type(result.state) is Bill
    assert (result.state.amount, result.state.current_step) == (1, 3)
    assert worker.observations[0]["state"]["amount"] == 1


def test_an_adapter_may_change_the_state_in_place():
    class Clear(StateAdapter):
        def adapt(self, source):
            source.notes.append("adapted")

    worker = member("worker", Decision.final("x"))
    result = play(team(member("a", to("worker")), worker, state_adapter=Clear()))
    assert result.state.notes == ["adapted"]


def test_only_shared_fields_go_along_when_any_are_named():
    def note(state, observation, decision):
        state.notes.append("secret")
        state.shared.append("known")

    triage = member("triage", ADD, to("worker"), reduce=note, state=Bill)
    worker = member("worker", Decision.final("x"), state=Bill)
    context = HandoffContext(shared_state_fields=["shared", "unknown"])
    result = play(team(triage, worker, handoff_context=context))
    seen = worker.observations[0]["state"]
    assert (seen["notes"], seen["shared"], seen["current_step"]) == ([], ["known"], 2)
    assert result.state.task == "the task"


class World:
    name = "world"

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


@pytest.mark.parametrize("shared", [True, False])
def test_an_environment_and_memory_are_shared_unless_the_spec_says_otherwise(shared):
    seen = []

    def look(runtime_context=None) -> int:
        """Look."""
        seen.append((runtime_context["env"], runtime_context["shared_memory"]))
        return 1

    looking = Decision.act(Action("look"))
    worker = member("worker", looking, Decision.final("x"), tool_registry=tools(look))
    triage = member("triage", looking, to("worker"), tool_registry=tools(look))
    world, memory, own = World(), {"of": "engine"}, {"of": "spec"}
    specs = {} if shared else {"shared_env": False, "shared_memory": own}
    registry = agents(triage, worker, **specs)
    play(Engine(triage, agent_registry=registry, env=world, shared_memory=memory))
    assert seen == [(world, memory), (world, memory) if shared else (None, own)]
    views = [observation["env"]["enabled"] for observation in worker.observations]
    assert views == [shared, shared]


def test_toolsets_of_each_agent_are_set_up_once_and_torn_down_at_the_end():
    calls = []

    class Kit:
        def __init__(self, name):
            self.name = name

        def tools(self):
            return []

        def setup(self, context):
            calls.append(f"setup {self.name} for {context['agent'].name}")

        def teardown(self, context):
            calls.append(f"teardown {self.name}")

    def kit(name):
        return tools().register_toolset(Kit(name))

    common = kit("common")
    a = member("a", ADD, to("b"), ADD, Decision.final("x"), tool_registry=common)
    b = member("b", ADD, to("c"), tool_registry=kit("own"))
    c = member("c", ADD, to("a"), tool_registry=common)
    play(team(a, b, c))
    assert calls == [
        *("setup common for a", "setup own for b", "teardown own", "teardown common")
    ]


# Limits and what goes wrong


def failed(engine):
    result = play(engine)
    assert result.task_result.stop_reason == "unrecoverable_error"
    assert result.failure["type"] == "QitosRuntimeError"
    return result


@pytest.mark.parametrize("registry", [None, agents(ScriptedAgent(name="other"))])
def test_an_unknown_agent_is_named(registry):
    """Case H9 (autogen #4199): a handoff to nobody hung or was a KeyError."""
    result = failed(Engine(member("a", to("nobody")), agent_registry=registry))
    hint = ", the engine has no agent_registry" if registry is None else ""
    assert result.failure["message"] == f"handoff to unknown agent 'nobody'{hint}"
    assert result.handoff_traces == []


def test_an_agent_cannot_hand_off_to_itself():
    result = failed(team(member("a", to("a"))))
    assert result.failure["message"] == "agent 'a' hands off to itself"


def test_oneself_is_a_name_in_the_registry_not_an_object():
    agent = member("a", to("slow"), Decision.final("x"))
    registry = AgentRegistry()
    registry.register(AgentSpec("fast", "", agent)).register(AgentSpec("slow", "", agent))
    result = play(Engine(agent, agent_registry=registry))
    assert who(result) == ["fast", "slow"]


def test_an_entry_agent_outside_the_registry_may_share_a_name():
    entry, worker = member("worker", to("worker")), member("worker", Decision.final("x"))
    engine = Engine(entry, agent_registry=agents(worker))
    assert play(engine).final_result == "x"


@pytest.mark.parametrize("way", [to, transfer])
def test_handing_on_in_a_circle_without_doing_anything_is_a_loop(way):
    a, b, c = member("Alpha", way("b")), member("Beta", way("c")), member("Gamma", way("a"))
    registry = AgentRegistry()
    for name, agent in (("a", a), ("b", b), ("c", c)):
        registry.register(AgentSpec(name, "", agent))
    result = failed(Engine(a, agent_registry=registry))
    assert result.failure["message"] == (
        "handoff loop: 'a' is handed the run again and nothing was done since (a -> b -> c -> a)"
    )
    assert result.step_count == 3
    assert [trace.to_agent for trace in result.handoff_traces] == ["b", "c"]


def test_waiting_or_a_refused_transfer_is_no_work():
    a = member("a", to("b"))
    twice = Decision.act([Action("transfer_to_a"), Action("transfer_to_a")])
    b = member("b", Decision.wait(), twice)
    assert "handoff loop: 'a'" in failed(team(a, b)).failure["message"]


def test_coming_back_after_work_is_no_loop():
    a = member("a", to("b"), Decision.final("x"))
    b = member("b", ADD, to("a"))
    result = play(team(a, b))
    assert (result.final_result, who(result)) == ("x", ["a", "b", "b", "a"])


def test_work_in_the_same_turn_counts():
    turn = Decision.act([Action("add", {"a": 1, "b": 2}), Action("transfer_to_a")])
    a, b = member("a", to("b"), Decision.final("x")), member("b", turn)
    assert play(team(a, b)).final_result == "x"


def test_the_entry_agent_comes_back_to_the_tools_it_began_with():
    a = member("a", ADD, to("b"), Decision.act(Action("only")), Decision.final("x"))
    only = ToolRegistry().register(lambda: 7, name="only").register(add)
    engine = team(a, member("b", ADD, to("a")), tool_registry=only)
    assert play(engine).records[4].action_results == [7]


def test_more_than_ten_handoffs_are_too_many():
    # Each agent works and hands on, so that this is no loop.
    a = member("a", *[ADD, to("b")] * 6)
    b = member("b", *[ADD, to("a")] * 5)
    result = failed(team(a, b, budget=RuntimeBudget(max_steps=100)))
    assert result.failure["message"] == "handoff to 'b' after 10 handoffs, the most allowed"
    assert len(result.handoff_traces) == 10
    assert result.step_count == 22


def test_the_most_handoffs_can_be_set():
    engine = team(member("a", ADD, to("b")), member("b"))
    engine.max_handoffs = 0
    assert failed(engine).failure["message"] == (
        "handoff to 'b' after 0 handoffs, the most allowed"
    )


def test_ten_handoffs_through_eleven_agents_are_allowed():
    chain = [member(f"m{n}", to(f"m{n + 1}")) for n in range(10)]
    result = play(team(*chain, member("m10", Decision.final("x")), budget=RuntimeBudget(20)))
    assert (result.final_result, len(result.handoff_traces)) == ("x", 10)


def test_a_step_limit_of_the_spec_begins_with_the_handoff():
    worker = member("worker", ADD, ADD)
    result = play(team(member("a", ADD, to("worker")), worker, max_steps_override=2))
    assert (result.step_count, result.task_result.stop_reason) == (4, "budget_steps")


def test_an_agent_that_is_none_is_a_recorded_failure():
    registry = AgentRegistry().register(AgentSpec("worker", "", object()))
    engine = Engine(member("a", to("worker")), agent_registry=registry)
    result = play(engine)
    assert result.failure["message"] == (
        "agent must be an AgentModule with init_state, decide, reduce, should_stop, got object"
    )
    assert RuntimePhase.HANDOFF_START not in [event.phase for event in result.events]


def test_a_failed_adapter_leaves_no_trace_of_a_handoff():
    class Broken(StateAdapter):
        def adapt(self, source):
            raise KeyError("amount")

    triage, worker = member("a", to("worker")), member("worker")
    result = play(team(triage, worker, state_adapter=Broken()))
    assert (result.failure["message"], result.handoff_traces) == ("'amount'", [])
    assert type(result.state) is Notes


def test_a_second_engine_on_the_same_agent_works():
    """Fault 17: the handoff tools of the two collided."""
    a = member("a", transfer("b"), transfer("b"))
    b = member("b", Decision.final("x"), Decision.final("y"))
    registry = agents(a, b)
    first, second = Engine(a, agent_registry=registry), Engine(a, agent_registry=registry)
    assert first.run("t").final_result == "x"
    assert play(second).final_result == "y"
    assert a.tool_registry.list_tools() == ["add", "boom"]
    assert first.export_config().tool_count == 2


def test_an_agents_own_tool_of_that_name_wins():
    own = tools().register(lambda: "mine", name="transfer_to_b")
    a = member("a", transfer("b"), Decision.final("x"), tool_registry=own)
    result = play(team(a, member("b")))
    assert (result.records[0].action_results, who(result)) == (["mine"], ["a", "a"])


# The registry


def test_names_and_their_tools_are_unique():
    registry = AgentRegistry()
    assert registry.register(AgentSpec("my agent", "", None)) is registry
    assert registry.get("my agent").handoff_tool_name == "transfer_to_my_agent"
    for spec, kind, message in (
        (
            AgentSpec("my agent", "", None),
            ValueError,
            "an agent named 'my agent' is registered already",
        ),
        (
            AgentSpec("my-agent", "", None, tool_name="transfer_to_my_agent"),
            ValueError,
            "agents 'my agent' and 'my-agent' would share the handoff tool 'transfer_to_my_agent'",
        ),
        (AgentSpec(" ", "", None), ValueError, "an agent spec needs a name, got ' '"),
        (AgentSpec(None, "", None), ValueError, "an agent spec needs a name, got None"),
        ("worker", TypeError, "expected an AgentSpec, got str"),
    ):
        with pytest.raises(kind) as caught:
            registry.register(spec)
        assert str(caught.value) == message
    assert ([spec.name for spec in registry], len(registry)) == (["my agent"], 1)
    assert "my agent" in registry


@pytest.mark.parametrize("name", ["résumé", "a" * 100, "two words", "v1.2", "x/y"])
def test_an_agent_of_any_name_can_be_handed_off_to_by_tool(name):
    worker = member(name, Decision.final("x"))
    tool = AgentSpec(name, "", worker).handoff_tool_name
    result = play(team(member("a", Decision.act(Action(tool))), worker))
    assert who(result) == ["a", name]


@pytest.mark.parametrize(
    "make, kind, message",
    [
        (lambda: HandoffContext("most"), ValueError, "'most' is not a valid ContextStrategy"),
        (
            lambda: HandoffContext(shared_state_fields="notes"),
            TypeError,
            "shared_state_fields must be a list of names, got 'notes'",
        ),
        (
            lambda: HandoffContext(max_history_rounds=-1),
            ValueError,
            "max_history_rounds must be an int of at least 0, got -1",
        ),
        (
            lambda: AgentSpec("a", "", None, max_steps_override=0),
            ValueError,
            "max_steps_override must be an int of at least 1, got 0",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_once(make, kind, message):
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value) == message


def test_the_events_of_a_whole_chain_are_in_order():
    result = play(
        team(member("a", to("b")), member("b", transfer("c")), member("c", Decision.final("x")))
    )
    handoffs = [e for e in stages(result.events) if "HANDOFF" in e]
    assert handoffs == ["HANDOFF_START", "HANDOFF_END"] * 2
    assert result.handoff_traces == [
        HandoffTrace(0, "a", "b", "SUMMARY", 1),
        HandoffTrace(1, "b", "c", "SUMMARY", 3),
    ]


class ReadList(list):
    """A list that counts what is read of it by place."""

    reads = 0

    def __getitem__(self, place):
        self.reads += 1
        return super().__getitem__(place)


def test_the_last_rounds_of_a_long_conversation_cost_no_more_than_they_are():
    said = ReadList(HistoryMessage("user", f"m{n}", n) for n in range(1000))
    assert [message.content for message in last_rounds(said, 2)] == ["m998", "m999"]
    assert said.reads < 20
