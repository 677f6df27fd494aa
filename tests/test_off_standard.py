"""Replies that no standard allows neither end a run nor falsify it."""

import json

import pytest
from model_server import ModelServer, Reply, chat
from test_conversations import ACTS, JSON, NATIVE, REACT, Model, engine

from qitos_min.models import OpenAICompatibleModel

DONE = {NATIVE: chat("done"), REACT: "Final Answer: done", JSON: '{"final_answer": "done"}'}


def run(*replies, protocol=NATIVE, **options):
    model = Model(*replies)
    result = engine(model, protocol, **options).run("go")
    return model, result


def ended(text, finish, calls=()):
    reply = chat(text, calls)
    reply["choices"][0]["finish_reason"] = finish
    return reply


def called(arguments):
    return {"tool_calls": [{"id": "c", "function": {"name": "look", "arguments": arguments}}]}


ENDS = ["length", "content_filter", "max_tokens", "MAX_TOKENS", "SAFETY", "error", "model_length"]
CUT = {NATIVE: "The causes are: first", REACT: "Final Answer: first", JSON: DONE[JSON]}


# Public case cut_reply_is_a_final_answer.
@pytest.mark.parametrize("finish", ENDS)
@pytest.mark.parametrize("protocol", CUT)
def test_a_reply_that_is_not_whole_is_asked_for_once_more(protocol, finish):
    cut = ended(CUT[protocol], finish)
    model, result = run(cut, DONE[protocol], protocol=protocol)
    assert (result.final_result, len(model.sent)) == ("done", 2)
    [attempt] = result.records[0].parser_attempts
    assert attempt == {
        "error": f"the model's reply is not whole (finish_reason {finish!r})",
        "text": CUT[protocol],
    }
    assert attempt["error"] in model.sent[1][-1]["content"]
    _, result = run(cut, cut, protocol=protocol)
    assert (result.failure["category"], result.failure["message"]) == (
        "model_error",
        attempt["error"],
    )


CUT_FORMS = {
    "of Anthropic": {"content": [{"type": "text", "text": "fir"}], "stop_reason": "max_tokens"},
    "of Ollama": {"message": {"content": "fir"}, "done_reason": "length"},
    "calls": ended(None, "length", [("look", {"name": "a"})]),
    "broken calls": ended(None, "length", [("look", '{"name": "')]),
    "nothing": ended("", "length"),
}


@pytest.mark.parametrize("reply", CUT_FORMS.values(), ids=CUT_FORMS)
def test_a_cut_is_seen_in_every_form(reply):
    model, result = run(reply, DONE[NATIVE])
    assert (result.final_result, len(model.sent), result.step_count) == ("done", 2, 1)


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "end_turn", "eos", None, "function_call"])
def test_other_ends_are_ends(finish):
    assert run(ended("done", finish))[1].final_result == "done"


def test_an_action_that_was_finished_before_the_cut_is_taken():
    rambling = ended('Action: look(name="a")\nObservation: made up and cut o', "length")
    model, result = run(rambling, DONE[REACT], protocol=REACT)
    assert (result.final_result, result.step_count) == ("done", 2)
    assert run(ended("Action: look", "length"), DONE[REACT], protocol=REACT)[1].step_count == 1


ARGUMENTS = {
    "object": {"name": "a"},
    "text": '{"name": "a"}',
    "twice": json.dumps('{"name": "a"}'),
    "three times": json.dumps(json.dumps('{"name": "a"}')),
    "blanks": ' {"name": "a"}\n',
    "Python": "{'name': 'a'}",
}


# Public case double_encoded_arguments.
@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_read_however_they_are_encoded(arguments):
    model, result = run(*[called(arguments)] * 2, DONE[NATIVE])
    assert [r.action_results for r in result.records] == [["a"], ["a"], []]
    for record in result.records[:2]:
        assert (record.parser_attempts, record.actions[0].args) == ([], {"name": "a"})


@pytest.mark.parametrize("arguments", ["", None, "null", "{}", '"{}"', {}, '""'])
def test_no_arguments_in_every_form(arguments):
    _, result = run(called(arguments), DONE[NATIVE])
    assert result.records[0].actions[0].args == {}
    assert result.final_result == "done"


@pytest.mark.parametrize("arguments", ["[1]", "3", '"x"', '{"a"', "{}{}"])
def test_arguments_that_are_no_object_are_asked_for_again(arguments):
    model, result = run(called(arguments), DONE[NATIVE])
    assert len(model.sent) == 2 and "'look'" in model.sent[1][-1]["content"]
    assert result.final_result == "done"


FUNCTION = {"name": "look", "arguments": '{"name": "a"}'}
CALLS = {
    "older form": {"content": None, "function_call": FUNCTION},
    "older form beside no calls": {"tool_calls": None, "function_call": FUNCTION},
    "one call, no list": {"tool_calls": {"function": FUNCTION}},
    "no function": {"tool_calls": [{"id": "c", **FUNCTION}]},
    "null function": {"tool_calls": [{"id": 7, "function": None, **FUNCTION}]},
    "control token": {"tool_calls": [{"function": {**FUNCTION, "name": "look<|channel|>json"}}]},
    "parts": {
        "content": [
            {"type": "thinking", "thinking": "hm", "text": "hm"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t", "name": "look", "input": {"name": "a"}},
        ]
    },
    "two choices": {
        "choices": [
            {"message": {"content": "I look."}},
            {"message": {"content": None, "tool_calls": [{"id": "c", "function": FUNCTION}]}},
        ]
    },
    "of Ollama": {
        "message": {
            "content": "",
            "tool_calls": [{"function": {"name": "look", "arguments": {"name": "a"}}}],
        }
    },
}


@pytest.mark.parametrize("protocol", ACTS)
@pytest.mark.parametrize("reply", CALLS.values(), ids=CALLS)
def test_calls_are_calls_in_every_form(reply, protocol):
    _, result = run(reply, DONE[protocol], protocol=protocol)
    assert result.records[0].action_results == ["a"]
    assert result.final_result == "done"


def test_an_unknown_call_keeps_the_other_in_its_turn():
    both = chat(None, [("look", {"name": "a"}), ("nobody knows.this", {})])
    model, result = run(both, DONE[NATIVE])
    assert [call["status"] for call in result.records[0].tool_invocations][0] == "success"
    assert result.final_result == "done"


EMPTY = {
    "no choices": {"choices": []},
    "null choices": {"choices": None},
    "no message": {"choices": [{"finish_reason": "error"}]},
    "null message": {"choices": [{"message": None}]},
    "null choice": {"choices": [None]},
    "an object of choices": {"choices": {}},
    "null content": chat(None),
    "no parts": {"content": []},
    "only reasoning beside it": {"content": None, "reasoning_content": "hm"},
    "no calls": {"content": "", "tool_calls": []},
    "blank": " \n",
    "none": None,
    "error that passes": {"error": {"message": "slow", "code": 429}},
    "status as text": {"error": {"message": "slow", "code": "503"}},
    "status as word": {"error": {"message": "slow", "type": "overloaded_error"}},
    "error in the choice": {"choices": [{"error": {"code": 502}, "message": {"content": ""}}]},
}


# Public case empty_choices.
@pytest.mark.parametrize("reply", EMPTY.values(), ids=EMPTY)
def test_an_empty_reply_in_any_form_is_asked_for_again_once(reply):
    model, result = run(reply, DONE[NATIVE])
    assert (result.final_result, len(model.sent)) == ("done", 2)
    model, result = run(reply, reply)
    assert (result.failure["category"], len(model.sent)) == ("model_error", 2)


def test_an_error_that_stays_is_not_asked_again():
    model, result = run({"error": {"message": "no such model", "code": 404}})
    assert result.failure["message"] == "the model answered with an error: no such model"


# Public case thinking_without_opening_tag.
ANSWERS = {
    "lone end": "I think.\n</think>\n\n42",
    "opened": "<think>I think.</think>42",
    "opened later": "Hm <think>I think.</think> 42",
    "two": "<think>a</think>\n<think>b</think>42",
    "other names": "<thinking>a</thinking><reasoning>b</reasoning>42",
    "of Mistral": "[THINK]a[/THINK]42",
    "capitals": "a</THINK>42",
    "decoded number": {"content": 42},
    "parts": {"content": ["4", {"type": "text", "text": "2"}, {"type": "image_url"}]},
    "decision": '{"mode": "final", "final_answer": "42"}',
    "fenced decision": '```json\n{"final_answer": "42"}\n```',
    "decoded decision": {"content": {"mode": "final", "final_answer": "42"}},
}


@pytest.mark.parametrize("reply", ANSWERS.values(), ids=ANSWERS)
def test_the_answer_is_found(reply):
    assert run(reply)[1].final_result == "42"


@pytest.mark.parametrize(
    "text",
    [
        "Close it with `</think>`, then go on.",
        'Use "</think>" here.',
        '{"action": "buy", "price": 3}',
        '{"mode": "dark", "size": 3}',
        '{"thought": "x"}',
        "Action: buy more.",
        "In the form {mode}: no.",
    ],
)
def test_an_answer_stays_as_it_is(text):
    assert run(text)[1].final_result == text


def test_an_action_inside_reasoning_does_not_run():
    reply = 'Or\nAction: look(name="no")\nno.\n</think>\nAction: look(name="a")'
    _, result = run(reply, DONE[REACT], protocol=REACT)
    assert [r.action_results for r in result.records] == [["a"], []]
    draft = '{"final_answer": "draft"} no.\n</think>\n{"final_answer": "42"}'
    assert run(draft, protocol=JSON)[1].final_result == "42"
    open_end = '<think>Action: look(name="no")'
    model, result = run(open_end, DONE[REACT], protocol=REACT)
    assert (len(model.sent), result.step_count) == (2, 1)


BROKEN = [
    '{"mode": "act", "actions": [{"name": "look", "args": {',
    '```json\n{"mode": "act", "actions": [{"name": "look"\n```',
    'I look.\n{"mode": "act", "actions": [{"name": ',
    '{\n  "thought": "I look",\n  "mode": "act",\n  "actions": [}',
    "{'mode': 'final', 'final_answer': 'x'}",
    '{"mode": "act"}',
]


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("before", [(), ACTS[NATIVE][:1]], ids=["first", "after calls"])
@pytest.mark.parametrize("protocol", [NATIVE, JSON])
def test_a_broken_decision_is_no_answer(text, before, protocol):
    model, result = run(*before, text, DONE[protocol], protocol=protocol)
    assert (result.final_result, len(result.records[-1].parser_attempts)) == ("done", 1)


@pytest.mark.parametrize("protocol", ACTS)
def test_plain_text_after_native_calls_is_the_answer(protocol):
    model, result = run(ACTS[NATIVE][0], "It is 42.", protocol=protocol)
    assert (result.final_result, len(model.sent)) == ("It is 42.", 2)


@pytest.mark.parametrize("text", ["Action: look(", "Final Answer:"])
def test_a_broken_label_after_native_calls_is_no_answer(text):
    _, result = run(ACTS[NATIVE][0], text, DONE[REACT], protocol=REACT)
    assert result.final_result == "done"


def paid(reply, total):
    return {**({"content": reply} if isinstance(reply, str) else reply), "usage": total}


USED = {
    "empty": chat(""),
    "no choices": {"choices": []},
    "error": {"error": {"code": 500, "message": "x"}},
    "call without a name": {"tool_calls": [{"id": "c", "function": {"arguments": "{}"}}]},
    "broken arguments": called("{"),
    "cut": ended("fir", "length"),
    "only reasoning": "<think>hm</think>",
}


# Public case usage_of_unusable_replies.
@pytest.mark.parametrize("reply", USED.values(), ids=USED)
def test_unusable_replies_are_paid_for(reply):
    done = paid(DONE[NATIVE], {"prompt_tokens": 7, "completion_tokens": 3})
    _, result = run(paid(reply, {"total_tokens": 500}), done)
    assert (result.final_result, result.total_tokens) == ("done", 510)
    _, result = run(*[paid(reply, {"total_tokens": "500"})] * 2)
    assert (result.failure is not None, result.total_tokens) == (True, 1000)


@pytest.mark.parametrize("usage", [None, "many", {}, [], {"total_tokens": None}])
def test_no_usage_counts_nothing(usage):
    assert run(paid(DONE[NATIVE], usage))[1].total_tokens == 0


@pytest.mark.parametrize(
    "more",
    [
        {"choices": [{"message": {"content": "done"}, "usage": {"total_tokens": 9}}]},
        {"message": {"content": "done"}, "prompt_eval_count": 4, "eval_count": 5},
        {"content": "done", "usage": {"input_tokens": 4.0, "output_tokens": 5}},
    ],
)
def test_usage_is_found_where_gateways_put_it(more):
    assert run(more)[1].total_tokens == 9


# Over HTTP


def events(*chunks, end="data: [DONE]\n\n", line="\n\n"):
    body = "".join(f"data: {json.dumps(chunk)}{line}" for chunk in chunks) + end
    return Reply(body, headers={"Content-Type": "text/event-stream"})


def delta(finish=None, **fields):
    return {"id": "x", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def piece(index, text, **more):
    return {"index": index, "function": {"arguments": text}, **more}


LOOK = {"function": {"name": "look", "arguments": ""}}
STREAMS = {
    "text": events(
        delta(role="assistant", content=""), delta(content="do"), delta("stop", content="ne")
    ),
    "usage last": events(
        delta(content="done"), delta("stop"), {"choices": [], "usage": {"total_tokens": 9}}
    ),
    "comments and carriage returns": Reply(
        ": wait\r\n\r\nevent: x\r\ndata: " + json.dumps(delta("stop", content="done")) + "\r\n\r\n"
    ),
    "no end but a reason": events(delta("stop", content="done"), end=""),
    "no reason but an end": events(delta(content="done")),
    "lines without blanks": events(delta(content="do"), delta(content="ne"), line="\n"),
    "whole response": events(chat("done")),
    "reasoning": events(delta(reasoning_content="hm"), delta("stop", content="done")),
    "JSON by another name": Reply(chat("done"), headers={"Content-Type": "text/event-stream"}),
}


def over_http(*replies):
    with ModelServer(replies) as server:
        model = OpenAICompatibleModel("m", base_url=server.base_url, sleep=lambda seconds: None)
        return engine(model).run("go")


@pytest.mark.parametrize("reply", STREAMS.values(), ids=STREAMS)
def test_a_stream_that_nobody_asked_for_is_read(reply):
    assert over_http(reply).final_result == "done"


CALL_STREAMS = {
    "pieces": events(
        delta(tool_calls=[{"index": 0, "id": "a", "type": "function", **LOOK}]),
        delta(tool_calls=[piece(0, '{"na')]),
        delta(tool_calls=[{"index": 1, "id": "b", **LOOK}, piece(0, 'me": "a"}')]),
        delta("tool_calls", tool_calls=[piece(1, '{"name": "b"}')]),
    ),
    "one index for all": events(
        delta(
            tool_calls=[
                {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"name": "a"}'}}
            ]
        ),
        delta(
            "stop",
            tool_calls=[
                {"index": 0, "id": "b", "function": {"name": "look", "arguments": '{"name": "b"}'}}
            ],
        ),
    ),
    "no index, no id": events(
        delta(tool_calls=[{"function": {"name": "look", "arguments": '{"name": "a"}'}}]),
        delta("stop", tool_calls=[{"function": {"name": "look", "arguments": '{"name":'}}]),
        delta(tool_calls=[{"function": {"arguments": ' "b"}'}}]),
    ),
    "id and name in every piece": events(
        delta(
            tool_calls=[
                {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"name":'}}
            ]
        ),
        delta(
            tool_calls=[{"index": 0, "id": "a", "function": {"name": "look", "arguments": ' "a"}'}}]
        ),
        delta(
            "stop",
            tool_calls=[
                {"index": 1, "id": "b", "function": {"name": "look", "arguments": '{"name": "b"}'}}
            ],
        ),
    ),
}


@pytest.mark.parametrize("reply", CALL_STREAMS.values(), ids=CALL_STREAMS)
def test_calls_in_a_stream_are_put_together(reply):
    result = over_http(reply, chat("done"))
    assert result.records[0].action_results == ["a", "b"]


FAULTS = {
    "stream broke off": events(delta(content="do"), end=""),
    "empty stream": events(end=""),
    "error in a stream": events(delta(content="do"), {"error": {"code": 502, "message": "x"}}),
    "429": Reply({"error": {"code": 429, "message": "slow"}}),
    "429 as text": Reply({"error": {"code": "429", "message": "slow"}}),
    "503 beside no choices": Reply({"error": {"code": 503, "message": "x"}, "choices": []}),
    "overloaded": Reply({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}),
    "older object": Reply({"object": "error", "code": 500, "message": "x"}),
}


@pytest.mark.parametrize("reply", FAULTS.values(), ids=FAULTS)
def test_a_passing_fault_in_a_success_is_tried_again(reply):
    assert over_http(reply, "done").final_result == "done"


def test_an_error_in_a_success_waits_as_it_says_and_ends_as_its_status_does():
    slow = Reply({"error": {"code": 429, "message": "slow"}}, headers={"Retry-After": "7"})
    wrong = Reply({"error": {"code": 400, "message": "wrong"}})
    waits = []
    with ModelServer([slow, wrong]) as server:
        model = OpenAICompatibleModel("m", base_url=server.base_url, sleep=waits.append)
        result = engine(model).run("go")
    url = f"{server.base_url}/chat/completions"
    assert waits == [7.0]
    assert result.failure["message"] == f"{url} answered with an error 400: wrong (2 attempts)"


def test_null_errors_are_none():
    reply = {**chat("done"), "error": None}
    assert over_http(Reply(reply)).final_result == "done"
    empty = {**chat("done"), "error": {"message": None, "code": None}}
    assert over_http(Reply(empty)).final_result == "done"
