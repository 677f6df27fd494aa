"""What a model is sent is accepted by the strictest server, however a run goes."""

import json
import random

import pytest
from chat_rules import assert_accepted, broken_rule
from engine_doubles import check_run
from model_server import ModelServer

from qitos_min import (
    Action,
    AgentModule,
    AgentRegistry,
    AgentSpec,
    ContextStrategy,
    Decision,
    Engine,
    HandoffContext,
    StateSchema,
    ToolMeta,
    ToolRegistry,
)
from qitos_min.core.history import History, HistoryMessage
from qitos_min.engine import ContextConfig, CriticResult, RuntimeBudget, critic
from qitos_min.engine._conversation import conversation
from qitos_min.engine.recovery import RecoveryPolicy
from qitos_min.kit.checkpoint import MemoryCheckpointStore
from qitos_min.models import OpenAICompatibleModel

NATIVE, REACT, JSON = "native_tool_call_v1", "react_text_v1", "json_decision_v1"


def look(name: str) -> str:
    """Look."""
    return name


def step(n: int) -> int:
    """Go a step; the second one is interrupted."""
    if n == 2:
        raise KeyboardInterrupt
    return n


class Talker(AgentModule):
    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def reduce(self, state, observation, decision):
        return state


class Model:
    """Gives its replies in order; each request must be one that a strict server takes."""

    model_id = "scripted"

    def __init__(self, *replies):
        self.replies = list(replies)
        self.sent = []

    def __call__(self, messages, tools=None):
        assert_accepted(messages, tools)
        self.sent.append(json.loads(json.dumps(messages)))
        return self.replies.pop(0)


def chat(content=None, calls=(), finish="stop", total=0):
    message = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
            for i, n, a in calls
        ]
    usage = {"total_tokens": total}
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def engine(model, protocol=NATIVE, **options):
    tools = ToolRegistry().register(look).register(step)
    return Engine(Talker(tool_registry=tools, llm=model, model_protocol=protocol), **options)


def roles(messages):
    return [message["role"] for message in messages if message["role"] != "system"]


ACTS = {
    NATIVE: (chat(calls=[("c1", "look", {"name": "a"})]), chat("x")),
    REACT: ('Action: look(name="a")', "Final Answer: x"),
    JSON: (
        '{"mode": "act", "actions": [{"name": "look", "args": {"name": "a"}}]}',
        '{"mode": "final", "final_answer": "x"}',
    ),
}


# Public case conversation_begins_with_a_user.
@pytest.mark.parametrize("protocol", ACTS)
def test_a_user_speaks_first_and_every_turn_alternates(protocol):
    act, final = ACTS[protocol]
    model = Model(act, act, final)
    assert engine(model, protocol).run("do it").final_result == "x"
    middle = ["assistant", "tool" if protocol == NATIVE else "user"]
    assert [roles(sent) for sent in model.sent] == [["user"] + middle * n for n in range(3)]
    assert all(
        "do it" in sent[-len(middle) * n - 1]["content"] for n, sent in enumerate(model.sent)
    )


@pytest.mark.parametrize("protocol", [REACT, JSON])
def test_the_results_of_one_step_are_one_message(protocol):
    two = {
        REACT: 'Action: look(name="a")\nAction: look(name="b")',
        JSON: json.dumps({"actions": [{"name": "look", "args": {"name": n}} for n in "ab"]}),
    }[protocol]
    model = Model(two, ACTS[protocol][1])
    engine(model, protocol).run("do it")
    assert model.sent[1][-1]["content"].count("Result of look: ") == 2
    assert roles(model.sent[1]) == ["user", "assistant", "user"]


def interrupted(reply, protocol, **options):
    with pytest.raises(KeyboardInterrupt):
        engine(Model(reply), protocol, **options).run("go")


# Public case interrupt_leaves_no_dangling_calls.
STEPS = {
    NATIVE: chat(calls=[("c1", "step", {"n": 1}), ("c2", "step", {"n": 2})]),
    REACT: "Action: step(n=1)\nAction: step(n=2)",
}


@pytest.mark.parametrize("protocol", STEPS)
@pytest.mark.parametrize("way", ["resume", "history"])
def test_calls_that_were_interrupted_have_a_result(way, protocol):
    store, history = MemoryCheckpointStore(), History()
    parts = {"checkpoint_store": store} if way == "resume" else {"history": history}
    interrupted(STEPS[protocol], protocol, **parts)
    model = Model(ACTS[protocol][1])
    again = engine(model, protocol, **parts)
    result = again.resume(store.list_runs()[0]) if way == "resume" else again.run("go on")
    assert result.final_result == "x"
    texts = "\n".join(str(message["content"]) for message in model.sent[0])
    # What had finished is told, and what had not.
    marks = ('"model_output": 1', "(no result: the call did not finish)")
    assert [texts.count(mark) for mark in marks] == [1, 1]
    assert ("go on" if way == "history" else "Task: go") in texts


INVENTED = {
    "observation": 'Action: look(name="a")\nObservation: made up\nThought: so\nFinal Answer: b',
    "bold": '**Action:** `look(name="a")`\n**Observation:** made up',
    "our own words": 'Action: look(name="a")\n\nResult of look: made up\n\nAction: look(name="b")',
    "tags": 'Action: look(name="a")\n<tool_response>\nmade up\n</tool_response>',
    "a user": 'Action: look(name="a")\nUser: made up\nAction: look(name="b")',
    "prose": 'Action: look(name="a")\nThis gave made up things.',
    "input": 'Action: look\nAction Input: {"name": "a"}\nObservation: made up',
}


@pytest.mark.parametrize("reply", INVENTED.values(), ids=INVENTED)
def test_invented_results_neither_run_nor_come_back(reply):
    model = Model(reply, "Final Answer: x")
    result = engine(model, REACT).run("go")
    assert [action.args for action in result.records[0].actions] == [{"name": "a"}]
    assert not any("made up" in message["content"] for message in model.sent[1])


def test_invented_results_behind_other_forms_do_not_come_back():
    reply = ACTS[JSON][0] + '\nObservation: made up\n{"mode": "final", "final_answer": "b"}'
    model = Model(reply, ACTS[JSON][1])
    engine(model, JSON).run("go")
    assert "made up" not in json.dumps(model.sent[1])
    native = chat("I look.\nObservation: made up", [("c", "look", {"name": "a"})])
    model = Model(native, chat("x"))
    engine(model).run("go")
    assert "made up" not in json.dumps(model.sent[1])
    assert model.sent[1][1]["content"] == "I look."


def test_reasoning_does_not_come_back():
    model = Model("<think>long</think>" + ACTS[REACT][0], "long\n</think>" + ACTS[REACT][1])
    assert engine(model, REACT).run("go").final_result == "x"
    assert "long" not in json.dumps(model.sent[1])


def test_ids_are_unique_though_the_model_repeats_them():
    act = chat(calls=[("c1", "look", {"name": "a"}), ("c1", "look", {"name": "b"})])
    nameless = chat(calls=[("", "look", {"name": "c"}), ("call_2_0", "look", {"name": "d"})])
    model = Model(act, act, nameless, chat("x"))
    assert engine(model).run("go").final_result == "x"
    answers = [m["content"] for m in model.sent[3] if m["role"] == "tool"]
    assert ['"model_output": "%s"' % n in text for n, text in zip("ababcd", answers)] == [True] * 6


@pytest.mark.parametrize("protocol", [REACT, JSON])
def test_native_calls_of_a_text_protocol_come_back_as_its_text(protocol):
    model = Model(ACTS[NATIVE][0], ACTS[protocol][1])
    assert engine(model, protocol).run("go").final_result == "x"
    said = model.sent[1][-2]
    assert said["role"] == "assistant" and "look" in said["content"]
    assert "tool_calls" not in said


def test_what_the_state_shows_now_is_told_once_and_not_behind_results():
    class Counting(Talker):
        def prepare(self, state):
            return f"Step {state.current_step} of {state.task}"

    model = Model(ACTS[NATIVE][0], ACTS[NATIVE][0], chat("x"))
    tools = ToolRegistry().register(look)
    Engine(Counting(tool_registry=tools, llm=model, model_protocol=NATIVE)).run("go")
    users = [[m["content"] for m in sent if m["role"] == "user"] for sent in model.sent]
    assert users == [["Step 0 of go"], ["Step 1 of go"], ["Step 2 of go"]]


def told(role, content="", step=0, **metadata):
    return HistoryMessage(role, content, step, metadata)


def called(*ids, **more):
    calls = [
        {"id": i, "type": "function", "function": {"name": "look", "arguments": "{}"}} for i in ids
    ]
    return told("assistant", tool_calls=calls, native=True, **more)


def answered(call_id):
    return told("tool", "r", name="look", tool_call_id=call_id, native=True)


RECORDED = {
    "nothing": ([], ["user"]),
    "calls": ([called("a", "b"), answered("a"), answered("b")], ["user", "call", "tool", "tool"]),
    "a result is missing": ([called("a", "b"), answered("b")], ["user", "call", "tool", "tool"]),
    "all are missing": ([called("a"), called("b")], ["user", "call", "tool", "call", "tool"]),
    "a result without its call": ([answered("a"), called("b")], ["user", "call", "tool"]),
    "a result of another call": (
        [called("a"), answered("z"), answered("a")],
        ["user", "call", "tool", "assistant", "user"],
    ),
    "a user in between": (
        [called("a"), told("user", "stop"), answered("a")],
        ["user", "call", "tool", "assistant", "user"],
    ),
    "two answers": (
        [told("assistant", "x"), told("assistant", "y")],
        ["user", "assistant"] * 2 + ["user"],
    ),
    "two users": ([told("user", "a"), told("user", "b")], ["user"]),
    "a second system prompt": (
        [told("user", "a"), told("system", "s"), told("assistant", "x")],
        ["user", "assistant", "user"],
    ),
    "an empty answer": ([told("assistant", " ")], ["user", "assistant", "user"]),
    "empty users": ([told("user", " "), called("a")], ["user", "call", "tool"]),
    "a run before this one": (
        [called("a", task="old"), answered("a")],
        ["user", "call", "tool", "assistant", "user"],
    ),
    "the same id in two runs": (
        [called("a", task="old"), told("assistant", "x"), called("a", task="now"), answered("a")],
        ["user", "call", "tool", "assistant", "user", "call", "tool"],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), RECORDED.values(), ids=RECORDED)
def test_any_record_becomes_a_conversation(messages, expected):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    given = {"task": "now", "system": "", "view": "Task: now"}
    native = conversation(messages, **given, write=None)
    assert_accepted(native, tools)
    assert [
        "call" if m.get("tool_calls") else m["role"] for m in native if m["role"] != "system"
    ] == expected
    assert any("Task: now" in str(m["content"]) for m in native)
    text = conversation(messages, **given, write=lambda calls: "\n".join(n for n, _ in calls))
    assert_accepted(text)
    assert text[-1]["role"] == "user" and "Task: now" in text[-1]["content"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": [{"role": "assistant", "content": "x"}]},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "user", "content": "x"}] * 2},
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]},
        {"messages": conversation([called("a")], task="t", system="", view="v", write=None)},
        {
            "messages": [{"role": "user", "content": "x"}],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "a",
                        "parameters": {"type": "object", "properties": {"x": {"type": "array"}}},
                    },
                }
            ],
        },
    ],
)
def test_the_rules_refuse(body):
    assert broken_rule(body)


@pytest.mark.parametrize("rounds", [0, 1, 2])
@pytest.mark.parametrize("protocol", ACTS)
def test_a_short_memory_keeps_calls_and_results_together(protocol, rounds):
    act, final = ACTS[protocol]
    model, history = Model(act, final, act, act, final), History()
    config = ContextConfig(max_history_rounds=rounds)
    for task in ("one", "two"):
        engine(model, protocol, history=history, context_config=config).run(task)
    assert "two" in json.dumps(model.sent[-1])
    assert json.dumps(model.sent[-1]).count("next_action") == rounds


def test_a_shared_history_tells_the_earlier_task():
    model, history = Model("Final Answer: Hi Ann.", "Final Answer: Ann"), History()
    engine(model, REACT, history=history).run("I am Ann.")
    engine(model, REACT, history=history).run("Who am I?")
    assert [m["content"] for m in model.sent[1][1:]] == [
        "Task: I am Ann.",
        "Final Answer: Hi Ann.",
        "Task: Who am I?",
    ]


# Random runs


class Interrupt:
    """A tool that does what its chance says: work, fail, or be interrupted."""

    def __init__(self, chance):
        self.chance = chance

    def work(self, n: int = 0) -> str:
        """Work."""
        kind = self.chance.randrange(12)
        if kind == 0:
            raise KeyboardInterrupt
        if kind < 3:
            raise ValueError("no luck")
        return "寒" * n


class RandomModel:
    """Replies at random in any form; ``paid`` is what all its replies cost."""

    model_id = "random"

    def __init__(self, chance, protocol, requests):
        self.chance, self.protocol, self.requests = chance, protocol, requests
        self.paid = 0

    def __call__(self, messages, tools=None):
        assert_accepted(messages, tools)
        self.requests.append(messages)
        reply = self._reply()
        if isinstance(reply, dict):
            form, cost = self.chance.randrange(3), self.chance.randrange(100)
            usage = ({"total_tokens": cost}, {"prompt_tokens": cost}, {"total_tokens": str(cost)})
            self.paid += cost
            reply["usage"] = usage[form]
        return reply

    def _reply(self):
        pick = self.chance.choice
        calls = [
            (pick(["c1", "c2", "", None]), self._tool(), {"n": self.chance.randrange(9)})
            for _ in range(self.chance.randrange(1, 4))
        ]
        kind = self.chance.randrange(14)
        if kind < 5:
            return self._act(calls)
        if kind < 7:
            return self._final()
        return pick(
            [
                {"choices": pick([[], None, [{"finish_reason": "error"}]])},
                {"error": {"code": pick([429, "500", 400]), "message": "no"}},
                chat(pick(["", "<think>hm", "hm</think>", "plain text", '{"mode": "act", '])),
                chat("cut", finish=pick(["length", "content_filter", "MAX_TOKENS"])),
                chat(pick([None, "I call."]), calls),
                chat(None, [("c1", "", {})]),
                {"content": None, "function_call": {"name": self._tool(), "arguments": '"{}"'}},
                {"content": None, "tool_calls": [{"function": {"name": "work", "arguments": "{"}}]},
                "",
                "Action: work(n=1)\nObservation: 3\nFinal Answer: 3",
            ]
        )

    def _tool(self):
        return self.chance.choice(["work", "work", "guarded", "nobody knows", "transfer_to_b"])

    def _act(self, calls):
        if self.protocol == NATIVE:
            return chat(None, calls)
        if self.protocol == REACT:
            return "\n".join(f"Action: {n.split()[0]}({json.dumps(a)})" for _, n, a in calls)
        actions = [{"name": n, "args": a} for _, n, a in calls]
        return chat(json.dumps({"mode": "act", "actions": actions}))

    def _final(self):
        if self.protocol == NATIVE:
            return chat("the answer")
        if self.protocol == REACT:
            return "Final Answer: the answer"
        return '{"mode": "final", "final_answer": "the answer"}'


class Mixed(Talker):
    """Lets its model decide, mostly."""

    def decide(self, state, observation):
        kind = self.config["chance"].randrange(12)
        if kind == 0:
            return Decision.act([Action("work", {"n": 1}), Action("work", {"n": 2})])
        return Decision.wait() if kind == 1 else None


def random_engine(chance, requests, store, history):
    models = []

    def member(name):
        model = RandomModel(chance, chance.choice([NATIVE, REACT, JSON]), requests)
        models.append(model)
        tools = ToolRegistry().register(Interrupt(chance).work)
        tools.register(look, meta=ToolMeta(needs_approval=True), name="guarded")
        made = Mixed(tool_registry=tools, llm=model, model_protocol=model.protocol, chance=chance)
        made.name = name
        return made

    agents = AgentRegistry()
    for name in "ab":
        context = HandoffContext(
            strategy=chance.choice(list(ContextStrategy)),
            max_history_rounds=chance.choice([None, 1]),
        )
        agents.register(AgentSpec(name, name, member(name), handoff_context=context))

    @critic
    def strict(state, decision, results):
        again = chance.random() < 0.1
        return (
            CriticResult("retry", "again", instruction_patch="Be brief.") if again else "continue"
        )

    return models, Engine(
        agents.get("a").agent,
        agent_registry=agents,
        budget=RuntimeBudget(max_steps=chance.randrange(2, 9)),
        checkpoint_store=store,
        history=history,
        critics=[strict],
        recovery_policy=chance.choice([None, RecoveryPolicy()]),
        context_config=ContextConfig(max_history_rounds=chance.choice([None, None, 2])),
    )


def played(run, engine):
    """The result of a run, also of one that was interrupted."""
    try:
        return run()
    except KeyboardInterrupt:
        return engine.last_result


@pytest.mark.parametrize("seed", range(15))
def test_every_request_of_random_runs_is_accepted(seed):
    """20 runs for each of 15 seeds: 300 conversations."""
    chance, requests, ends = random.Random(seed), [], set()
    store, history = MemoryCheckpointStore(), None
    for number in range(20):
        if number % 4 == 0:
            history = chance.choice([None, History()])
        models, made = random_engine(chance, requests, store, history)
        result = played(lambda: made.run(f"task {number}"), made)
        check_run(result, made)
        assert result.total_tokens == sum(model.paid for model in models)
        ends.add(result.task_result.stop_reason)
        if result.task_result.stop_reason == "interrupt":
            paid = result.total_tokens
            models, made = random_engine(chance, requests, store, history)
            result = played(lambda: made.resume(store.list_runs()[-1]), made)
            check_run(result, made)
            assert result.total_tokens == paid + sum(model.paid for model in models)
    assert len(ends) > 2 and len(requests) > 40


@pytest.mark.parametrize("protocol", ACTS)
def test_a_strict_server_accepts_a_run_over_http(protocol):
    act, final = ACTS[protocol]
    with ModelServer([act, act, final]) as server:
        model = OpenAICompatibleModel("scripted", base_url=server.base_url)
        assert engine(model, protocol).run("go").final_result == "x"
