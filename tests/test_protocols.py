"""Prompts for a model, and decisions from what it answers."""

import pytest
from model_server import chat

from qitos_min.core.errors import ErrorCategory
from qitos_min.core.tool import ToolSpec
from qitos_min.engine._protocols import resolve_protocol
from qitos_min.engine._replies import ParseError, read_reply

KNOWN = ("json_decision_v1", "native_tool_call_v1", "react_text_v1", "xml_decision_v1")
TOOLS = [
    ToolSpec("look.up", "Find a word.", {"word": {"type": "string"}}, ["word"]),
    ToolSpec("stop", "停止。"),
]


def decide(protocol, value):
    """What the protocol makes of a model's answer, as plain values."""
    decision = resolve_protocol(protocol).parse(read_reply(value)).decision
    if decision.mode == "act":
        found = [(action.name, action.args) for action in decision.actions]
    else:
        found = decision.final_answer
    return decision.mode, found, decision.rationale


def act(*calls, why=None):
    return "act", list(calls), why


def final(answer, why=None):
    return "final", answer, why


def test_protocol_by_name_by_model_or_by_default():
    class Talker:
        protocol = "json_decision_v1"

    assert [resolve_protocol(name).id for name in KNOWN] == list(KNOWN)
    assert resolve_protocol(None).id == "react_text_v1"
    assert resolve_protocol(None, object()).id == "react_text_v1"
    assert resolve_protocol(None, Talker()).id == "json_decision_v1"
    assert resolve_protocol("react_text_v1", Talker()).id == "react_text_v1"


@pytest.mark.parametrize("name", ["nope", "", 3, ["react_text_v1"]])
def test_unknown_protocol_lists_the_known_ones(name):
    with pytest.raises(ValueError) as caught:
        resolve_protocol(name)
    assert str(caught.value) == (
        f"unknown protocol {name!r}, expected one of json_decision_v1 (one JSON object, for models that keep to JSON), "
        "native_tool_call_v1 (the server's own tool calls, plain text is the answer; for servers that have them), "
        "react_text_v1 (Thought, Action, Final Answer; for models without tool calls), xml_decision_v1 (one <decision> element, for models that keep to XML)"
    )


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("tools", [TOOLS, []], ids=["tools", "none"])
def test_tools_are_told_in_the_prompt_or_natively_never_twice(name, tools):
    protocol = resolve_protocol(name)
    prompt = protocol.system_prompt("Be brief.", tools)
    argument = protocol.tools_argument(tools)
    if name == "native_tool_call_v1":
        assert prompt == "Be brief."
        assert bool(argument) == bool(tools)
    else:
        assert prompt.startswith("Be brief.\n\n") and argument is None
        assert ('"required": ["word"]' in prompt) == bool(tools)
        assert ("停止。" in prompt) == bool(tools)
        assert ("There are no tools." in prompt) == (not tools)
        assert protocol.system_prompt("", tools) == prompt.removeprefix("Be brief.\n\n")


def test_native_tools_have_the_form_and_names_of_the_api():
    spec = ToolSpec("own", "Schema of its own.", input_schema={"type": "object"})
    entries = resolve_protocol("native_tool_call_v1").tools_argument([*TOOLS, spec])
    assert [entry["type"] for entry in entries] == ["function"] * 3
    assert [entry["function"] for entry in entries] == [
        {
            "name": "look__dot__up",
            "description": "Find a word.",
            "parameters": {
                "type": "object",
                "properties": {"word": {"type": "string"}},
                "required": ["word"],
            },
        },
        {
            "name": "stop",
            "description": "停止。",
            "parameters": {"type": "object", "properties": {}},
        },
        {
            "name": "own",
            "description": "Schema of its own.",
            "parameters": {"type": "object", "properties": {}},
        },
    ]


@pytest.mark.parametrize("name", KNOWN)
def test_native_calls_are_honoured_by_every_protocol(name):
    calls = [("look__dot__up", {"word": "寒"}), ("stop", ""), ("transfer_to_b", "{}")]
    value = chat("I check.", calls)
    assert decide(name, value) == act(
        ("look.up", {"word": "寒"}), ("stop", {}), ("transfer_to_b", {}), why="I check."
    )
    decision = resolve_protocol(name).parse(read_reply(value)).decision
    assert [action.action_id for action in decision.actions] == [
        "call_0",
        "call_1",
        "call_2",
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"a":', "not JSON: Expecting value: line 1 column 6 (char 5)"),
        ("[1]", "list, expected an object"),
        ("3", "int, expected an object"),
        ("[" * 100_000, None),
    ],
)
def test_unreadable_native_arguments_name_the_tool(arguments, problem):
    with pytest.raises(ParseError) as caught:
        decide("native_tool_call_v1", chat(calls=[("look", arguments)]))
    assert caught.value.message.startswith("the arguments of 'look' are ")
    if problem:
        assert caught.value.message == f"the arguments of 'look' are {problem}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is 42.\nSure.", final("It is 42.\nSure.")),
        ("<think>a {\n</think>\n\n答案", final("答案")),
        ("</think> goes", final("goes")),
        ("Action: a()", final("Action: a()")),
    ],
)
def test_native_text_is_the_answer(text, expected):
    assert decide("native_tool_call_v1", text) == expected


WHOLE = '{"mode": "act", "actions": [{"name": "a", "args": {"x": "}{\\" \\n"}}]}'
WHOLE_ACT = act(("a", {"x": '}{" \n'}))
JSON_REPLIES = {
    "whole": (WHOLE, WHOLE_ACT),
    "fenced": (f"```json\n{WHOLE}\n```", WHOLE_ACT),
    "fence without language": (f"```\n{WHOLE}```", WHOLE_ACT),
    "text around": (f"I use {{x}} and f() {{ }}.\n{WHOLE}\nDone {{}}.", WHOLE_ACT),
    "other object before": (f'Seen {{"k": {{"mode": 1}}}}. {WHOLE}', WHOLE_ACT),
    "broken example before": (f'In the form {{"mode": ...}}:\n{WHOLE}', WHOLE_ACT),
    "thinking before": (f'<think>{{"mode": "final"}}</think>{WHOLE}', WHOLE_ACT),
    "second object after": (f'{WHOLE}\n{{"mode": "wait"}}', WHOLE_ACT),
    "several actions": (
        '{"mode": "act", "thought": "t", "actions": ['
        '{"name": "a", "args": {"n": [1, {"m": null}]}}, {"name": "b"}]}',
        act(("a", {"n": [1, {"m": None}]}), ("b", {}), why="t"),
    ),
    "one action": (
        '{"action": {"tool": "a", "arguments": {"x": 1}}}',
        act(("a", {"x": 1})),
    ),
    "flat action": ('{"action": "a", "action_input": {"x": 1}}', act(("a", {"x": 1}))),
    "arguments as text": (
        '{"mode": "ACT ", "actions": {"name": "a", "args": "{\\"x\\": 1}"}}',
        act(("a", {"x": 1})),
    ),
    "null arguments": ('{"actions": [{"name": "a", "args": null}]}', act(("a", {}))),
    "line break in text": (
        '{"mode": "act", "actions": [{"name": "a", "args": {"x": "1\n2"}}]}',
        act(("a", {"x": "1\n2"})),
    ),
    "final": ('{"mode": "final", "final_answer": "寒潮"}', final("寒潮")),
    "rationale first": (
        '{"thought": "t", "rationale": "r", "final_answer": "x", "actions": []}',
        final("x", "r"),
    ),
    "answer as object": (
        '{"mode": "final", "final_answer": {"a": [1]}}',
        final({"a": [1]}),
    ),
    "answer 0": ('{"mode": "final", "final_answer": 0}', final(0)),
    "other key": ('{"thought": "t", "final": "x"}', final("x", "t")),
    "third key": ('{"action": "finish", "answer": "x"}', final("x")),
    "empty answer": ('{"mode": "final", "final_answer": ""}', final("")),
    "wait": ('{"mode": "wait", "thought": "later"}', ("wait", None, "later")),
}


@pytest.mark.parametrize(("text", "expected"), JSON_REPLIES.values(), ids=JSON_REPLIES)
def test_json_decision_is_found_in_the_reply(text, expected):
    assert decide("json_decision_v1", text) == expected


def test_json_handoff_names_the_agent():
    reply = read_reply('{"mode": "handoff", "agent": " b ", "thought": "t"}')
    decision = resolve_protocol("json_decision_v1").parse(reply).decision
    assert (decision.mode, decision.target, decision.rationale) == ("handoff", "b", "t")


XML_REPLIES = {
    "act": (
        'Well:\n<decision mode="act"><think>t</think><action name="a"><arg name="x">1</arg>'
        '<arg name="y">b &lt; c</arg></action><action name="b"/></decision>',
        act(("a", {"x": "1", "y": "b < c"}), ("b", {}), why="t"),
    ),
    "over lines": (
        '<decision mode="act">\n<action name="a">\n<arg name="x">[1,\n2]</arg>\n</action>\n'
        "</decision>",
        act(("a", {"x": "[1,\n2]"})),
    ),
    "final": (
        '<decision mode="final"><final_answer>4 &amp; 2</final_answer></decision>',
        final("4 & 2"),
    ),
    "parts alone": (
        '<think>t</think><action name="a"><arg name="x">1</arg></action>',
        act(("a", {"x": "1"})),
    ),
    "a call": ("<action>a(x=1, y='&lt;')</action>", act(("a", {"x": 1, "y": "<"}))),
    "an answer": ("<decision><think>t</think><final>42</final></decision>", final("42", "t")),
    "an answer alone": ("So: <final_answer>42</final_answer>", final("42")),
    "no mode": ("<decision><final_answer>42</final_answer></decision>", final("42")),
    "wait": ('<decision mode="wait"/>', ("wait", None, None)),
}


@pytest.mark.parametrize(("text", "expected"), XML_REPLIES.values(), ids=XML_REPLIES)
def test_an_xml_decision_is_read(text, expected):
    assert decide("xml_decision_v1", text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "<think>t</think>42",
            'no <decision> in the reply, expected <decision mode="act">...</decision>',
        ),
        ("<decision></decision>", "mode 'act' needs 'actions', a list with at least one action"),
        ('<decision mode="final">42</decision>', "mode 'final' needs 'final_answer'"),
        (
            '<decision mode="dance"></decision>',
            "unknown mode 'dance', expected act, final, wait, handoff",
        ),
    ],
)
def test_an_xml_decision_that_is_none_says_why(text, message):
    with pytest.raises(ParseError) as caught:
        decide("xml_decision_v1", text)
    assert caught.value.message == message


NO_OBJECT = 'no JSON object in the reply, expected {"mode": ...}'
BAD_JSON = {
    "prose": ("I will look.", NO_OBJECT),
    "empty object": ("{}", NO_OBJECT),
    "list": ("[1, 2]", NO_OBJECT),
    "single quotes": ("{'mode': 'wait'}", NO_OBJECT),
    "cut off": (
        '{"mode": "act", "actions": [{"name": "a", "args": {"action": "rm"}}',
        "the reply is not valid JSON: "
        "Expecting ',' delimiter: line 1 column 68 (char 67)",
    ),
    "no decision": (
        '{"colour": 42}',
        "a JSON object without 'mode', its keys are ['colour']",
    ),
    "unknown mode": (
        '{"mode": "dance"}',
        "unknown mode 'dance', expected act, final, wait, handoff",
    ),
    "mode of another type": (
        '{"mode": ["act"]}',
        "unknown mode ['act'], expected act, final, wait, handoff",
    ),
    "no actions": (
        '{"mode": "act", "actions": []}',
        "mode 'act' needs 'actions', a list with at least one action",
    ),
    "action without name": (
        '{"actions": [{"name": "a"}, {"args": {}}]}',
        'actions[1] has no name, expected {"name": ..., "args": ...}',
    ),
    "action as number": (
        '{"actions": [7]}',
        'actions[0] has no name, expected {"name": ..., "args": ...}',
    ),
    "arguments as list": (
        '{"actions": [{"name": "a", "args": [1]}]}',
        "the arguments of 'a' are list, expected an object",
    ),
    "no answer": (
        '{"mode": "final", "final_answer": null}',
        "mode 'final' needs 'final_answer'",
    ),
    "no agent": (
        '{"mode": "handoff", "agent": " "}',
        "mode 'handoff' needs 'agent', the name of an agent",
    ),
    "only thinking": (
        "<think>hm</think> ",
        "the reply holds only thinking, expected a decision",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_JSON.values(), ids=BAD_JSON)
def test_json_without_a_decision_says_why(text, message):
    with pytest.raises(ParseError) as caught:
        decide("json_decision_v1", text)
    assert caught.value.message == message
    assert caught.value.category is ErrorCategory.PARSE
