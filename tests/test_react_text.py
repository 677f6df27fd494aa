"""Decisions from Thought / Action / Final Answer text, and replies at random."""

import json
import random
import time

import pytest
from model_server import chat
from test_protocols import KNOWN, act, decide, final

from qitos_min.engine._replies import ModelError, ParseError

REACT_REPLIES = {
    "keywords": (
        'Thought: t\nAction: a(x=1, y="b")',
        act(("a", {"x": 1, "y": "b"}), why="t"),
    ),
    "no arguments": ("Action: a()", act(("a", {}))),
    "name only": ("Action: a", act(("a", {}))),
    "name and text after": ("Action: a\n\nThought: next", act(("a", {}), why="next")),
    "JSON in brackets": (
        'Action: a({"x": true, "y": null})',
        act(("a", {"x": True, "y": None})),
    ),
    "dict in brackets": ("Action: a({'x': True})", act(("a", {"x": True}))),
    "JSON after the name": ('Action: a {"x": 1}', act(("a", {"x": 1}))),
    "JSON on the next line": ('Action: a\n{"x": 1}', act(("a", {"x": 1}))),
    "input": (
        'Action: a\nAction Input: {"x": {"y": "}"}}',
        act(("a", {"x": {"y": "}"}})),
    ),
    "input in a fence": (
        'Action: a\nAction Input:\n```json\n{"x": 1}\n```',
        act(("a", {"x": 1})),
    ),
    "input as dict": ("Action: a\nAction Input: {'x': 'y'}", act(("a", {"x": "y"}))),
    "no input": ("Action: a\nAction Input:", act(("a", {}))),
    "input none": ("Action: a\nAction Input: None\n", act(("a", {}))),
    "JSON action": (
        'Action:\n```json\n{"action": "a", "action_input": {"x": 1}}\n```',
        act(("a", {"x": 1})),
    ),
    "words of JSON and Python": (
        "Action: a(b=true, c=False, d=null, e=None, f=-1.5, g=[1, (2, {'k': -3})])",
        act(
            (
                "a",
                {"b": True, "c": False, "d": None, "e": None, "f": -1.5}
                | {"g": [1, [2, {"k": -3}]]},
            )
        ),
    ),
    "brackets and labels in text": (
        'Action: a(x="(]}\nAction: no()\nFinal Answer: no", y=\'"\')',
        act(("a", {"x": "(]}\nAction: no()\nFinal Answer: no", "y": '"'})),
    ),
    "arguments over lines": (
        'Action: a(\n    x=1,\n    y="""two\n"quoted" lines""",\n)',
        act(("a", {"x": 1, "y": 'two\n"quoted" lines'})),
    ),
    "backslashes": (
        r"""Action: a(p="\d+\.py \\ \" \n \1", r=r"\d", t='''\w''')""",
        act(("a", {"p": '\\d+\\.py \\ " \n \x01', "r": "\\d", "t": "\\w"})),
    ),
    "shell line continuation": (
        'Action: a(c="x \\\n y")',
        act(("a", {"c": "x \\\n y"})),
    ),
    "CRLF": (
        'Thought: t\r\nAction: a(x="1\r\n2")\r\n',
        act(("a", {"x": "1\n2"}), why="t"),
    ),
    "escape beyond a byte": (r'Action: a(x="\777")', act(("a", {"x": "\\777"}))),
    "numbered": (
        "Action 1: a(x=1)\nAction 2: b(y=2)",
        act(("a", {"x": 1}), ("b", {"y": 2})),
    ),
    "text after the call": ('Action: a(x="q")  # find (it', act(("a", {"x": "q"}))),
    "dotted name": (
        "Action: files.read_text-1(p=1)",
        act(("files.read_text-1", {"p": 1})),
    ),
    "private name": ("Action: _a()", act(("_a", {}))),
    "bold": ("**Thought:** t\n**Action**: `a(x=1)`", act(("a", {"x": 1}), why="t")),
    "any case": ("THOUGHT: t\naction: a()\n", act(("a", {}), why="t")),
    "full-width colon": (
        "Thought:想\nAction:a(x='寒')",
        act(("a", {"x": "寒"}), why="想"),
    ),
    "words before": ("I will look.\nAction: a()", act(("a", {}), why="I will look.")),
    "whole reply fenced": (
        "```text\nThought: t\nFinal Answer: x\n```",
        final("x", "t"),
    ),
    "invented result": (
        "Action: a()\nObservation: 3\nThought: so\nFinal Answer: 3",
        act(("a", {})),
    ),
    "answer before its action ran": ("Action: a()\nFinal Answer: done", act(("a", {}))),
    "final": (
        "Thought: t\nFinal Answer: x\n\n- y\nAction: in the text",
        final("x\n\n- y\nAction: in the text", "t"),
    ),
    "final on the next line": ("final answer:\n```\nx\n```", final("```\nx\n```")),
    "two thoughts": (
        "Thought: a\nb\nThought: c\nFinal Answer: x",
        final("x", "a\nb\nc"),
    ),
    "thinking": ("<think>Action: no()</think>Final Answer: x", final("x")),
}


@pytest.mark.parametrize(
    ("text", "expected"), REACT_REPLIES.values(), ids=REACT_REPLIES
)
def test_react_text_is_read(text, expected):
    assert decide("react_text_v1", text) == expected


NAMELESS = "an argument has no name of its own"
NO_LITERAL = "a value is neither a literal nor quoted"
NEITHER = "the reply holds neither 'Action:' nor 'Final Answer:', as react_text_v1 wants (native_tool_call_v1 takes plain text as the answer)"


def call(name, why):
    return (
        f"cannot read the call of {name!r}: {why}, "
        'expected tool(key=1, other="text") or tool({"key": 1})'
    )


BAD_REACT = {
    "prose": ("hello", NEITHER),
    "thought only": ("Thought: Final Answer: x", NEITHER),
    "label within a line": ("my Action: a()", NEITHER),
    "no answer": ("Final Answer: \n", "nothing follows 'Final Answer:'"),
    "no name": ("Action: (x=1)", "no tool name after 'Action:', expected tool(key=1)"),
    "nothing": ("Action:", "no tool name after 'Action:', expected tool(key=1)"),
    "sentence": ("Action: search the web", call("search", "no object follows it")),
    "input elsewhere": (
        "Action: a now\nAction Input: {}",
        call("a", "other text follows the name"),
    ),
    "input as text": (
        "Action: a\nAction Input: word",
        call("a", "no object follows it"),
    ),
    "positional": ('Action: a("x")', call("a", NAMELESS)),
    "unpacked": ("Action: a(**{'x': 1})", call("a", NAMELESS)),
    "two dicts": ('Action: a({"x": 1}, {"y": 2})', call("a", NAMELESS)),
    "unquoted": ("Action: a(x=Paris)", call("a", NO_LITERAL)),
    "code": ("Action: a(x=__import__('os').getcwd())", call("a", NO_LITERAL)),
    "sum": ("Action: a(x=1+1)", call("a", NO_LITERAL)),
    "bytes": ("Action: a(x=b'1')", call("a", "a value of type bytes")),
    "f-string": ("Action: a(x=f'{y}')", call("a", NO_LITERAL)),
    "set": ("Action: a(x={1})", call("a", "a value of type set")),
    "key of another type": ("Action: a(x={1: 2})", call("a", "a key of type int")),
    "open bracket": ("Action: a(x=[1)", call("a", "a bracket is not closed")),
    "open quote": ('Action: a(x="1)', call("a", "a quote is not closed")),
    "second call broken": (
        "Action: a()\nAction: b(",
        call("b", "a bracket is not closed"),
    ),
    "broken JSON action": (
        'Action: {"name": "a"',
        call("the action", "a bracket is not closed"),
    ),
    "JSON action without name": (
        'Action: {"x": 1}',
        'the action has no name, expected {"name": ..., "args": ...}',
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_REACT.values(), ids=BAD_REACT)
def test_react_text_that_cannot_be_read_says_why(text, message):
    with pytest.raises(ParseError) as caught:
        decide("react_text_v1", text)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "text",
    [
        "Action: a(x=1 y=2)",
        "Action: a(x=1, x=2)",
        r'Action: a(x="\x")',
        "Action: a(from=1)",
    ]
    + [
        "Action: a(x=" + "9" * 5000 + ")",
        "Action: a(x=\0)",
        "Action: a(x=" + "(" * 999 + ")" * 999 + ")",
    ],
    ids=range(7),
)
def test_bad_python_notation_is_a_parse_error(text):
    with pytest.raises(ParseError, match="^cannot read the call of 'a': "):
        decide("react_text_v1", text)


@pytest.mark.parametrize("name", ["json_decision_v1", "react_text_v1"])
@pytest.mark.parametrize(
    "piece",
    [
        '{"a":',
        '\n{"a":',
        '{"',
        '"\\"',
        "Action: a(",
        "Action: a('\\",
        '"""',
        "[(",
        "`",
        "\n",
        "Action: a\n",
        "<think>",
    ],
)
def test_long_broken_replies_are_judged_quickly(name, piece):
    start = time.process_time()  # Other work on the machine does not count.
    for text in (
        piece * 20_000,
        "Action: a(x=" + piece * 20_000,
        '{"mode": ' + piece * 20_000,
    ):
        try:
            decide(name, text)
        except (ModelError, ParseError):
            pass
    assert time.process_time() - start < 5


@pytest.mark.parametrize("seed", range(100))
def test_arguments_survive_every_notation(seed):
    chance = random.Random(seed)
    args = {f"k{i}": _value(chance, 3) for i in range(chance.randrange(4))}
    text = json.dumps(args, ensure_ascii=chance.random() < 0.5)
    python = ", ".join(f"{key}={value!r}" for key, value in args.items())
    expected = act(("a", args))
    assert decide("react_text_v1", f"Action: a({text})") == expected
    assert decide("react_text_v1", f"Action: a({python})") == expected
    assert decide("react_text_v1", f"Action: a\nAction Input: {text}") == expected
    decision = f'Well: {{"mode": "act", "actions": [{{"name": "a", "args": {text}}}]}}.'
    assert decide("json_decision_v1", decision) == expected
    assert decide("json_decision_v1", chat(calls=[("a", text)])) == expected


def _value(chance, depth):
    kind = chance.randrange(7 if depth else 5)
    if kind == 5:
        return [_value(chance, depth - 1) for _ in range(chance.randrange(3))]
    if kind == 6:
        return {
            _text(chance): _value(chance, depth - 1) for _ in range(chance.randrange(3))
        }
    return (
        None,
        chance.random() < 0.5,
        chance.randrange(-99, 99),
        chance.uniform(-9, 9),
        _text(chance),
    )[kind]


def _text(chance):
    alphabet = [
        '"',
        "'",
        "\\",
        "(",
        ")",
        "{",
        "}",
        "\n",
        "\t",
        ",",
        "=",
        "寒",
        "\U0001f98a",
        "a",
        "Action: ",
        "#",
    ]
    return "".join(chance.choices(alphabet, k=chance.randrange(8)))


@pytest.mark.parametrize("seed", range(100))
def test_any_text_gives_a_decision_or_a_parse_error(seed):
    chance = random.Random(seed)
    pieces = [
        "Action: ",
        "Final Answer: ",
        "Action Input:",
        "a(",
        ")",
        "{",
        "}",
        '"',
        "'",
        "\\",
        "\n",
        "mode",
        ":",
        ",",
        "x=1",
        "[",
        "```",
        "null",
        "寒",
    ]
    for _ in range(20):
        text = "x" + "".join(chance.choices(pieces, k=chance.randrange(1, 25)))
        for name in KNOWN:
            try:
                mode, found, _ = decide(name, text)
            except ParseError as error:
                assert error.message[0].islower() and not error.message.endswith(".")
            else:
                assert mode in ("act", "final", "wait") and found is not None
