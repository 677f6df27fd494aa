"""What is read from a model's answer before any protocol looks at it."""

import json

import pytest
from model_server import chat

from qitos_min.core.errors import ErrorCategory
from qitos_min.engine._replies import ModelError, ParseError, read_reply, response_of, usage_of

USAGE = {
    "chat": (
        {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 9},
        (3, 4, 9),
    ),
    "no total": ({"prompt_tokens": 3, "completion_tokens": 4}, (3, 4, 7)),
    "other names": ({"input_tokens": 3, "output_tokens": 4}, (3, 4, 7)),
    "only total": ({"total_tokens": 9}, (0, 0, 9)),
    "unusable": (
        {"prompt_tokens": True, "completion_tokens": -4, "total_tokens": "9a"},
        (0, 0, 0),
    ),
    "as text and floats": (
        {"prompt_tokens": "3", "completion_tokens": 4.0, "total_tokens": None},
        (3, 4, 7),
    ),
    "null": (None, (0, 0, 0)),
    "text": ("many", (0, 0, 0)),
}


@pytest.mark.parametrize(("usage", "expected"), USAGE.values(), ids=USAGE)
def test_usage_is_read_as_counts(usage, expected):
    found = usage_of({**chat("x"), "usage": usage})
    assert tuple(found.values()) == expected
    assert list(found) == ["input_tokens", "output_tokens", "total_tokens"]


TEXTS = {
    "text": "x y",
    "response": chat("x y"),
    "message": {"role": "assistant", "content": "x y"},
    "content only": {"content": "x y"},
    "parts": {
        "content": [{"type": "text", "text": "x "}, {"type": "image"}, {"text": "y"}]
    },
}


@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS)
def test_text_is_read_from_every_form_of_reply(value):
    reply = read_reply(value)
    assert (reply.text, reply.tool_calls) == ("x y", ())
    assert response_of(value) == ({"content": value} if isinstance(value, str) else value)


def test_reply_is_detached_and_strict_json():
    message = {
        "content": "x",
        "score": float("nan"),
        "tool_calls": None,
        "n": {"k": [1]},
    }
    raw = response_of(message)
    message["n"]["k"].append(2)
    assert raw == {
        "content": "x",
        "score": None,
        "tool_calls": None,
        "n": {"k": [1]},
    }
    json.dumps(raw, allow_nan=False)


def test_tool_call_ids_are_kept_once():
    calls = [
        {"id": i, "name": "a", "arguments": {"x": 1}} for i in ("7", "7", "", None, 8)
    ]
    reply = read_reply({"tool_calls": calls})
    assert [call.id for call in reply.tool_calls] == ["7", None, None, None, None]
    assert reply.tool_calls[0] == ("7", "a", {"x": 1})


BAD_REPLIES = {
    "none": (
        None,
        "the model returned NoneType, expected text or a chat response as a dict",
    ),
    "bytes": (
        b"x",
        "the model returned bytes, expected text or a chat response as a dict",
    ),
    "object": (
        object(),
        "the model returned object, expected text or a chat response as a dict",
    ),
    "empty dict": (
        {},
        "the model returned a dict with the keys [], expected 'choices' or 'content'",
    ),
    "error": (
        {"error": 1},
        "the model answered with an error: 1",
    ),
    "no choices": ({"choices": []}, "the chat response has no choices[0].message"),
    "odd choices": (
        {"choices": {"0": 1}},
        "the chat response has no choices[0].message",
    ),
    "no message": (
        {"choices": [{"index": 0}]},
        "the chat response has no choices[0].message",
    ),
    "no choice": ({"choices": None}, "the chat response has no choices[0].message"),
    "error in a choice": (
        {"choices": [{"error": {"code": 400, "message": "too long"}}]},
        "the model answered with an error: too long",
    ),
    "error beside an empty choice": (
        {**chat(""), "error": {"message": "overloaded", "code": "529"}},
        "the model answered with an error: overloaded",
    ),
    "older error object": (
        {"object": "error", "message": "no such model", "code": 404},
        "the model answered with an error: no such model",
    ),
    "cut before it began": (
        {"choices": [{"message": {"content": None}, "finish_reason": "MAX_TOKENS"}]},
        "the model's reply is not whole (finish_reason 'MAX_TOKENS')",
    ),
    "empty": ("", "the model's reply is empty (finish_reason None)"),
    "blank": (chat(" \n"), "the model's reply is empty (finish_reason 'stop')"),
    "no content": (chat(None), "the model's reply is empty (finish_reason 'stop')"),
    "refusal": (
        {"content": None, "refusal": "no"},
        "the model's reply is empty (refusal 'no')",
    ),
}


@pytest.mark.parametrize(("value", "message"), BAD_REPLIES.values(), ids=BAD_REPLIES)
def test_unusable_replies_are_model_errors(value, message):
    with pytest.raises(ModelError) as caught:
        read_reply(value)
    assert caught.value.message == message
    assert caught.value.category is ErrorCategory.MODEL


@pytest.mark.parametrize(
    "call", [None, {}, {"function": None}, {"function": {"name": " "}}]
)
def test_tool_call_without_a_name_is_a_parse_error(call):
    with pytest.raises(ParseError) as caught:
        read_reply({"content": "x", "tool_calls": [call]})
    assert caught.value.message == "tool_calls[0] has no function name"
