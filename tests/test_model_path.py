"""Agents whose decide returns None: prompts, replies, feedback, tokens, filters."""

import json
from dataclasses import dataclass, field

import pytest
from chat_rules import assert_accepted

import snowl_compat
from qitos_min import (
    AgentModule,
    AgentRegistry,
    AgentSpec,
    ContextStrategy,
    Engine,
    HandoffContext,
    StateSchema,
    ToolRegistry,
)
from qitos_min.core.history import History, HistoryMessage
from qitos_min.engine import ContextConfig, CriticResult, RuntimeBudget, critic
from qitos_min.engine.recovery import RecoveryPolicy
from qitos_min.kit.critic import PassThroughCritic, ScoreCritic, SelfReflectionCritic


class ScriptedModel:
    """Answers with the replies it was given, one a call; keeps what it was asked."""

    model_id = "scripted"

    def __init__(self, *replies):
        self.replies = list(replies)
        self.calls = []

    def __call__(self, messages, tools=None):
        assert_accepted(messages, tools)
        self.calls.append((messages, tools))
        assert self.replies, "the model was called more often than it was scripted for"
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def prompt(self, call):
        """All the text of one call."""
        return "\n".join(str(message["content"]) for message in self.calls[call][0])


@dataclass
class Log(StateSchema):
    seen: list = field(default_factory=list)


class Agent(AgentModule):
    def init_state(self, task, **kwargs):
        return Log(task=task)

    def reduce(self, state, observation, decision):
        state.seen += observation["action_results"]
        return state

    def build_system_prompt(self, state):
        return f"You are {self.name}."


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(model, name="agent", **kwargs):
    made = Agent(tool_registry=ToolRegistry().register(add), llm=model, **kwargs)
    made.name = name
    return made


def chat(text="", calls=(), total=0):
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"c{i}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(args)}}
            for i, (name, args) in enumerate(calls)
        ]
    return {"choices": [{"message": message}], "usage": {"total_tokens": total}}


PROTOCOLS = {
    "react_text_v1": ("Thought: sum\nAction: add(a=1, b=2)", "Final Answer: 3"),
    "json_decision_v1": (
        '{"mode": "act", "actions": [{"name": "add", "args": {"a": 1, "b": 2}}]}',
        '{"mode": "final", "final_answer": "3"}',
    ),
    "native_tool_call_v1": (chat(calls=[("add", {"a": 1, "b": 2})]), chat("3")),
}


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_each_protocol_acts_and_answers(protocol):
    model = ScriptedModel(*PROTOCOLS[protocol])
    engine = Engine(agent(model, model_protocol=protocol))
    result = engine.run("What is 1 + 2?")
    assert result.failure is None
    assert (result.final_result, result.state.seen) == ("3", [3])
    assert [record.decision_source for record in result.records] == ["model", "model"]
    assert engine.export_config().protocol_id == protocol == result.records[0].protocol_id
    assert "You are agent." in model.prompt(0) and "What is 1 + 2?" in model.prompt(0)
    assert ("add" in model.prompt(0)) is (protocol != "native_tool_call_v1")
    assert (model.calls[0][1] is None) is (protocol != "native_tool_call_v1")
    assert "3" in model.prompt(1)


def test_native_results_answer_their_calls_by_id():
    model = ScriptedModel(chat(calls=[("add", {"a": 1, "b": 2})]), chat("3"))
    Engine(agent(model, model_protocol="native_tool_call_v1")).run("t")
    asked, answered = model.calls[1][0][2:4]
    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"] == "c0"
    assert answered["role"] == "tool"


def test_a_reply_that_cannot_be_parsed_is_fed_back_once():
    model = ScriptedModel("Action: add(1)", "Final Answer: ok")
    result = Engine(agent(model)).run("t")
    assert result.final_result == "ok"
    [attempt] = result.records[0].parser_attempts
    assert attempt["text"] == "Action: add(1)"
    assert model.calls[1][0][-2] == {"role": "assistant", "content": "Action: add(1)"}
    assert attempt["error"] in model.calls[1][0][-1]["content"]
    assert result.records[0].parser_fallback_used


def test_a_second_bad_reply_is_a_parse_error():
    result = Engine(agent(ScriptedModel("Action: add(1)", "Action: add(2)"))).run("t")
    assert result.failure["category"] == "parse_error"
    assert (result.failure["phase"], result.step_count) == ("DECIDE", 1)


@pytest.mark.parametrize("empty", ["", "  ", chat("")])
def test_an_empty_reply_is_asked_for_again_once(empty):
    assert Engine(agent(ScriptedModel(empty, "Final Answer: x"))).run("t").final_result == "x"
    result = Engine(agent(ScriptedModel(empty, empty))).run("t")
    assert result.failure["category"] == "model_error"


@pytest.mark.parametrize(
    "model, message",
    [
        (None, "agent 'agent' decided nothing and has no model"),
        (ScriptedModel(RuntimeError("no such host")), "no such host"),
    ],
)
def test_a_model_that_cannot_answer_is_a_recorded_failure(model, message):
    result = Engine(agent(model)).run("t")
    assert result.failure["message"] == message
    assert snowl_compat.build_payload(result)["step_count"] == 1


def test_a_models_own_exception_is_a_model_error_and_recoverable():
    result = Engine(agent(ScriptedModel(RuntimeError("down")))).run("t")
    assert result.failure["category"] == "model_error"
    model = ScriptedModel(RuntimeError("down"), "Final Answer: up")
    again = Engine(agent(model), recovery_policy=RecoveryPolicy()).run("t")
    assert (again.final_result, again.failure) == ("up", None)


def test_a_history_begins_the_conversation_and_takes_it_in():
    history = History()
    history.append(HistoryMessage("user", "Remember: blue."))
    model = ScriptedModel("Action: add(a=1, b=2)", "Final Answer: x")
    Engine(agent(model), history=history).run("t")
    assert "Remember: blue." in model.prompt(0) and "Remember: blue." in model.prompt(1)
    assert [m.role for m in history.retrieve()] == ["user", "assistant", "tool", "assistant"]


def test_a_policy_recovers_from_parse_errors():
    model = ScriptedModel("Action: add(1)", "Action: add(2)", "Final Answer: ok")
    result = Engine(agent(model), recovery_policy=RecoveryPolicy()).run("t")
    assert (result.final_result, result.failure, result.step_count) == ("ok", None, 2)


def test_usage_adds_up_and_counts_against_the_budget():
    call = chat(calls=[("add", {"a": 1, "b": 2})], total=40)
    model = ScriptedModel(call, call, call)
    engine = Engine(agent(model), budget=RuntimeBudget(max_steps=10, max_tokens=100))
    result = engine.run("t")
    assert (result.total_tokens, result.step_count) == (120, 3)
    assert result.task_result.stop_reason == "budget_tokens"
    run = snowl_compat.build_payload(result, extended=True)["run"]
    assert run["total_tokens"] == 120


def test_patches_reach_the_next_call_and_no_other():
    verdicts = iter(
        [CriticResult("retry", "again", instruction_patch="Be brief.",
                      modified_prompt="You are a poet.")]
    )

    @critic
    def once(state, decision, results):
        return next(verdicts, CriticResult())

    model = ScriptedModel("Final Answer: long", "Action: add(a=1, b=1)", "Final Answer: short")
    assert Engine(agent(model), critics=[once]).run("t").final_result == "short"
    assert ["Be brief." in model.prompt(call) for call in range(3)] == [False, True, False]
    assert ["You are a poet." in model.prompt(call) for call in range(3)] == [False, True, False]
    assert ["You are agent." in model.prompt(call) for call in range(3)] == [True, False, True]


def test_rounds_and_results_are_cut_as_configured():
    replies = [f"Action: add(a={n}, b=0)" for n in (111, 222, 333)]
    model = ScriptedModel(*replies, "Final Answer: x")
    config = ContextConfig(max_history_rounds=1)
    Engine(agent(model), context_config=config).run("t")
    last = model.prompt(3)
    assert ("a=333" in last, "a=222" in last) == (True, False)

    def shout(n: int) -> str:
        """Shout."""
        return "A" * n

    model = ScriptedModel("Action: shout(n=9000)", "Final Answer: x")
    loud = agent(model)
    loud.tool_registry.register(shout)
    Engine(loud, context_config=ContextConfig(max_result_chars=500)).run("t")
    assert model.prompt(1).count("A") < 520 and "...[TRUNCATED]" in model.prompt(1)


def handing_over(context, replies):
    """Two agents with one model each; the first acts five times, then hands over."""
    first = ScriptedModel(
        *(f"Action: add(a={n}00, b=0)" for n in range(1, 6)), "Action: transfer_to_second()"
    )
    second = ScriptedModel(*replies)
    agents = AgentRegistry()
    agents.register(AgentSpec("second", "s", agent(second, "second"), handoff_context=context))
    engine = Engine(agent(first, "first"), agent_registry=agents)
    return second, engine.run("the task")


@pytest.mark.parametrize(
    "strategy, rounds, seen, passed",
    [
        (ContextStrategy.FULL, None, [1, 2, 3, 4, 5], 12),
        (ContextStrategy.FULL, 2, [5], 4),
        (ContextStrategy.SUMMARY, None, [4, 5], 7),
        (ContextStrategy.ISOLATED, None, [], 0),
    ],
)
def test_the_next_model_call_contains_what_the_strategy_lets_through(
    strategy, rounds, seen, passed
):
    context = HandoffContext(strategy=strategy, max_history_rounds=rounds)
    second, result = handing_over(context, ["Final Answer: x"])
    messages = second.calls[0][0]
    whole = [m for m in messages if m["role"] == "assistant" and "Action: add" in m["content"]]
    assert [int(m["content"].split("a=")[1][0]) for m in whole] == seen
    assert "You are second." in messages[0]["content"] and "the task" in messages[-1]["content"]
    assert ("Earlier in this run" in second.prompt(0)) is (strategy is ContextStrategy.SUMMARY)
    [trace] = result.handoff_traces
    assert trace.messages_passed == passed
    assert (trace.context_strategy, trace.step_id) == (strategy.name, 5)
    assert result.records[5].agent_id == "first"


def test_self_reflection_sees_real_tool_errors_and_gives_up():
    calls = ["Action: add(a=1)"] * 3
    engine = Engine(agent(ScriptedModel(*calls)), critics=[SelfReflectionCritic(max_retries=2)])
    result = engine.run("t")
    assert [trace.action for trace in result.critic_traces] == ["retry", "retry", "stop"]
    assert "add" in result.critic_traces[0].reason
    assert result.task_result.stop_reason == "critic_stop"


def test_self_reflection_is_not_fooled_by_a_tools_own_words():
    def report() -> dict:
        """Report."""
        return {"status": "error", "error": "inner", "value": 1}

    reporting = agent(ScriptedModel("Action: report()", "Final Answer: x"))
    reporting.tool_registry.register(report)
    result = Engine(reporting, critics=[SelfReflectionCritic()]).run("t")
    assert [trace.action for trace in result.critic_traces] == ["continue", "continue"]


@pytest.mark.parametrize("score, action", [(0.2, "stop"), (0.5, "continue"), (None, "continue")])
def test_score_critic_stops_below_its_threshold(score, action):
    state = Log(metrics={} if score is None else {"score": score})
    assert ScoreCritic(0.5).evaluate(state, None, []).action == action


def test_pass_through_passes():
    assert PassThroughCritic().evaluate(None, None, []).action == "continue"
