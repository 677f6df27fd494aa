"""Decisions in labelled text - Thought, Action, Final Answer - and the calls in it.

Calls are ``key=1, other="text"`` or one dict. Nothing is evaluated: JSON is decoded,
Python's notation is parsed and read node by node, and only what JSON can hold is taken.
"""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from typing import Any

from ..core.action import Action
from ..core.decision import Decision
from ._replies import ParseError, first_of

# Line breaks inside JSON texts are let through: models write code that way.
DECODER = json.JSONDecoder(strict=False)
FENCED = re.compile(r"\s*```[\w-]*\n(.*)\n```\s*", re.DOTALL)
_LINE = (
    r"^[>#\- \t]*(?P<bold>\*\*|__)?(?P<label>%s)"
    r"[ \t]*\d*(?(bold)(?:\*\*|__)?)[ \t]*[:\uff1a](?(bold)(?:\*\*|__)?)[ \t]*"
)
LABEL, _THOUGHT, OBSERVATION = (
    re.compile(_LINE % names, re.IGNORECASE | re.MULTILINE)
    for names in ("thought|action|final[ ]answer|observation", "thought", "observation")
)
_INPUT = re.compile(r"[`*.\s]*" + _LINE % "action[ ]input", re.IGNORECASE | re.MULTILINE)
_OPENING = re.compile(r"\s*(?:```[\w-]*\s|`)?\s*")
_NAME = re.compile(r"([A-Za-z_][\w.-]*)`?[ \t]*")
BLANK = re.compile(r"[`*.\s]*")
_NO_INPUT = re.compile(r"[ \t]*(?:none|null)?[`*. \t]*(?:\n(?!\s*(?:```\w*\s*)?\{)|\Z)", re.I)
_TEXT = (
    r"(?P<raw>[rR]?)"
    r'(?P<text>"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
    r"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
    r'|"[^"\\]*(?:\\.[^"\\]*)*"'
    r"|'[^'\\]*(?:\\.[^'\\]*)*')"
)
_QUOTED = re.compile(_TEXT, re.DOTALL)
_TOKEN = re.compile(_TEXT + r"""|[()\[\]{}"']""", re.DOTALL)
_BACKSLASH = re.compile(r"""(\\[\\'"abfnrtvxuUN0-7])|\\""")
_WORDS = {"true": True, "false": False, "null": None}


def read_react(text: str) -> tuple[Decision, int]:
    """Labelled lines: actions, or a final answer that runs to the end; where it ends."""
    fenced = FENCED.fullmatch(text)
    start, stop = fenced.span(1) if fenced else (0, len(text))
    labels = LABEL.finditer(text, start, stop)
    match = next((m for m in labels if m["label"].lower() not in ("thought", "observation")), None)
    if match is None:
        raise ParseError(
            "the reply holds neither 'Action:' nor 'Final Answer:', as react_text_v1 wants"
            " (native_tool_call_v1 takes plain text as the answer)"
        )
    why = _THOUGHT.sub("", text[start : match.start()]).strip() or None
    if match["label"].lower() != "action":
        answer = text[match.end() : stop].strip()
        if not answer:
            raise ParseError("nothing follows 'Final Answer:'")
        return Decision.final(answer, rationale=why), len(text)
    actions, end = [], match.start()
    # What a model writes after its actions as if they had run is invented.
    while match and match["label"].lower() == "action":
        if not BLANK.fullmatch(text, end, match.start()):
            break
        action, end = _react_call(text[:stop], match.end())
        actions.append(action)
        match = LABEL.search(text, end, stop)
    return Decision.act(actions, rationale=why), end


def _react_call(text: str, start: int) -> tuple[Action, int]:
    """One call: ``name(...)``, a name with an Action Input, or a JSON action."""
    start = after(_OPENING, text, start)
    if text.startswith("{", start):
        value, end = _object_at(text, start, "the action")
        return json_action(value, "the action"), end
    named = _NAME.match(text, start)
    if named is None:
        raise ParseError("no tool name after 'Action:', expected tool(key=1)")
    name, end = named[1], named.end()
    if text.startswith("(", end):
        start, end = end + 1, _closing(text, end, name)
        return Action(name, _call_args(name, text[start : end - 1])), end
    end = after(_INPUT, text, end)
    if none := _NO_INPUT.match(text, end):
        return Action(name), none.end()
    args, end = _object_at(text, after(_OPENING, text, end), name)
    return Action(name, args), end


def after(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where a match at ``start`` ends, or ``start`` without one."""
    found = pattern.match(text, start)
    return found.end() if found else start


def json_action(item: object, where: str) -> Action:
    """The action that an object spells; ParseError, which says ``where``, if it is none."""
    fields = item if isinstance(item, dict) else {}
    names = (fields.get(key) for key in ("name", "tool", "action"))
    name = next((n.strip() for n in names if isinstance(n, str) and n.strip()), None)
    if name is None:
        raise ParseError(f'{where} has no name, expected {{"name": ..., "args": ...}}')
    return Action(name, args_of(name, first_of(fields, "args", "arguments", "action_input")))


def args_of(name: str, value: object) -> dict[str, Any]:
    """Arguments as an object: given as one, as its JSON text, or not at all.

    Some servers encode the text again, once or twice.
    """
    while isinstance(value, str):
        try:
            value = DECODER.decode(value.strip() or "{}")
        except (ValueError, RecursionError) as error:
            raise ParseError(f"the arguments of {name!r} are not JSON: {error}") from None
    if value is not None and not isinstance(value, dict):
        kind = type(value).__name__
        raise ParseError(f"the arguments of {name!r} are {kind}, expected an object")
    return value or {}


def _object_at(text: str, start: int, name: str) -> tuple[dict[str, Any], int]:
    """The object at ``start``, as JSON or a Python dict, and where it ends."""
    if not text.startswith("{", start):
        raise _unreadable(name, "no object follows it")
    with suppress(ValueError, RecursionError):
        return DECODER.raw_decode(text, start)
    end = _closing(text, start, name)
    return _call_args(name, text[start:end]), end


def _closing(text: str, start: int, name: str) -> int:
    """Where the bracket at ``start`` is closed; brackets in quotes do not count."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        mark = token[0]
        if mark in ("'", '"'):
            raise _unreadable(name, "a quote is not closed")
        depth += (mark in "([{") - (mark in ")]}")
        if depth == 0:
            return token.end()
    raise _unreadable(name, "a bracket is not closed")


def _call_args(name: str, source: str) -> dict[str, Any]:
    """The arguments written in ``source``: ``key=value, ...`` or one dict."""
    source = source.strip()
    if source.startswith("{"):
        with suppress(ValueError, RecursionError):
            return DECODER.decode(source)  # type: ignore[no-any-return]
    try:
        return _python_args(ast.parse(f"_({_QUOTED.sub(_as_python, source)}\n)", mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _unreadable(name, getattr(error, "msg", None) or str(error)) from None


def _python_args(call: ast.expr) -> dict[str, Any]:
    if not isinstance(call, ast.Call):
        raise ValueError("it is not one call")
    if len(call.args) == 1 and isinstance(call.args[0], ast.Dict) and not call.keywords:
        return _literal(call.args[0])  # type: ignore[no-any-return]
    args = {word.arg: _literal(word.value) for word in call.keywords if word.arg}
    if call.args or len(args) < len(call.keywords):
        raise ValueError("an argument has no name of its own")
    return args


def _as_python(quoted: re.Match[str]) -> str:
    """A quoted text as Python accepts it: line breaks and odd backslashes escaped."""
    if quoted["raw"]:
        return quoted[0]
    text = _BACKSLASH.sub(lambda found: found[1] or r"\\", quoted[0])
    return text.replace("\r\n", "\n").replace("\n", "\\n")


def _literal(node: ast.expr | None) -> Any:
    """The JSON value that ``node`` spells; ValueError for anything else."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Name(id="true" | "false" | "null" as word):
            return _WORDS[word]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            names = [_literal(key) for key in keys]
            if all(isinstance(name, str) for name in names):
                return {name: _literal(value) for name, value in zip(names, values)}
            raise ValueError("a key is not text")
    raise ValueError("a value is neither a literal nor quoted")


def _unreadable(name: str, why: str) -> ParseError:
    """The error for a call of ``name`` that cannot be read, with the right forms."""
    return ParseError(
        f"cannot read the call of {name!r}: {why}, "
        'expected tool(key=1, other="text") or tool({"key": 1})'
    )
