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

from ..core import Action, Decision
from ..core._contract import detach_json
from ._replies import ParseError, first_of

# Line breaks inside JSON texts are let through: models write code that way.
DECODER = json.JSONDecoder(strict=False)
FENCED = re.compile(r"\s*```[\w-]*\n(.*)\n```\s*", re.DOTALL)
_LABEL = re.compile(
    r"(?im)^[>#\- \t]*(?P<bold>\*\*|__)?"
    r"(?P<label>thought|action[ ]input|action|final[ ]answer|observation)"
    r"[ \t]*\d*(?(bold)(?:\*\*|__)?)[ \t]*[:\uff1a](?(bold)(?:\*\*|__)?)"
)
# How models write down results that they made up.
_INVENTED = re.compile(
    r"(?im)^[>#*_ \t-]*(?:(?:observation|(?:(?:tool|function)[ _])?(?:result|output|response))s?"
    r"\b[^\n:\uff1a]{0,60}[:\uff1a]|</?(?:tool_(?:response|result|output)|observation)s?>"
    r"|(?:user|human):)"
)
_OPENING = re.compile(r"\s*(?:```[\w-]*\s|`)?\s*")
_NAME = re.compile(r"([A-Za-z_][\w.-]*)`?[ \t]*")
BLANK = re.compile(r"[`*.\s]*")
_NO_INPUT = re.compile(r"(?i)[ \t]*(?:none|null)?[`*. \t]*(?:\n(?!\s*(?:```\w*\s*)?\{)|\Z)")
_TEXT = (
    r"(?P<raw>[rR]?)"
    r'(?P<text>"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
    r"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
    r'|"[^"\\]*(?:\\.[^"\\]*)*"'
    r"|'[^'\\]*(?:\\.[^'\\]*)*')"
)
_QUOTED = re.compile(_TEXT, re.DOTALL)
_TOKEN = re.compile(_TEXT + r"""|[()\[\]{}"']""", re.DOTALL)
# An octal escape beyond one byte is as wrong in Python as an unknown letter.
_ESCAPE = re.compile(r"\\([4-7][0-7]{2}|.)", re.DOTALL)
_ESCAPED = frozenset("\\'\"abfnrtvxuUN01234567")
_WORDS = {"true": True, "false": False, "null": None}
_MAX_ENCODINGS = 4


def read_react(text: str) -> tuple[Decision, int]:
    """Labelled lines: actions, or a final answer that runs to the end; where it ends."""
    fenced = FENCED.fullmatch(text)
    start, stop = fenced.span(1) if fenced else (0, len(text))
    match = _LABEL.search(text, start, stop)
    thoughts = [text[start : match.start()] if match else ""]
    actions: list[Action] = []
    end = last = 0
    while match:
        # What a model writes after its actions as if they had run is invented.
        label = match["label"].lower()
        made_up = label in ("final answer", "observation")
        if actions and (made_up or _INVENTED.search(text, end, match.start())):
            break
        end = match.end()
        if label == "final answer":
            answer = text[end:stop].strip()
            if not answer:
                raise ParseError("nothing follows 'Final Answer:'")
            return Decision.final(answer, rationale=_joined(thoughts)), len(text)
        if label == "action":
            action, end = _react_call(text[:stop], end)
            actions, last = [*actions, action], end
        following = _LABEL.search(text, end, stop)
        if label == "thought":
            thoughts.append(text[end : following.start() if following else stop])
        match = following
    if not actions:
        raise ParseError(
            "the reply holds neither 'Action:' nor 'Final Answer:', as react_text_v1 wants"
            " (native_tool_call_v1 takes plain text as the answer)"
        )
    return Decision.act(actions, rationale=_joined(thoughts)), last


def _joined(thoughts: list[str]) -> str | None:
    return "\n".join(filter(None, map(str.strip, thoughts))) or None


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
    label = _LABEL.search(text, end)
    if label and label["label"].lower() == "action input":
        if not BLANK.fullmatch(text, end, label.start()):
            raise _unreadable(name, "other text follows the name")
        end = label.end()
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
    """Arguments as an object: given as one, as its JSON (perhaps encoded again), or not at all."""
    for _ in range(_MAX_ENCODINGS):
        if not isinstance(value, str):
            break
        text = value.strip() or "{}"
        try:
            value = DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            with suppress(ParseError):
                value, end = _object_at(text, 0, name)
                if end == len(text):
                    break
            raise ParseError(f"the arguments of {name!r} are not JSON: {error}") from None
    if value is not None and not isinstance(value, dict):
        kind = type(value).__name__
        raise ParseError(f"the arguments of {name!r} are {kind}, expected an object")
    return value or {}


def _object_at(text: str, start: int, name: str) -> tuple[dict[str, Any], int]:
    """The object at ``start``, as JSON or a Python dict, and where it ends."""
    if not text.startswith("{", start):
        raise _unreadable(name, "no object follows it")
    try:
        return DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
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
    """The arguments written in ``source``: ``key=value, ...`` or one dict. Nothing is run."""
    if source.strip().startswith("{"):
        with suppress(ValueError, RecursionError):
            return DECODER.decode(source.strip())  # type: ignore[no-any-return]
    try:
        source = _QUOTED.sub(_as_python, source.strip())
        call = ast.parse(f"_({source}\n)", mode="eval").body
        if not isinstance(call, ast.Call):
            raise ValueError("it is not one call")
        if len(call.args) == 1 and isinstance(call.args[0], ast.Dict) and not call.keywords:
            return _literal(call.args[0])  # type: ignore[no-any-return]
        args = {word.arg: _literal(word.value) for word in call.keywords if word.arg}
        if call.args or len(args) < len(call.keywords):
            raise ValueError("an argument has no name of its own")
        return args
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _unreadable(name, getattr(error, "msg", None) or str(error)) from None


def _as_python(quoted: re.Match[str]) -> str:
    """A quoted text as Python accepts it: line breaks and odd backslashes escaped."""
    if quoted["raw"]:
        return quoted[0]
    text = _ESCAPE.sub(lambda m: ("" if m[1] in _ESCAPED else "\\") + m[0], quoted[0])
    return text.replace("\r\n", "\n").replace("\n", "\\n")


class _Words(ast.NodeTransformer):
    """JSON's words for Python's, unless they are names of something else."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node


def _literal(node: ast.expr) -> Any:
    """The JSON value that ``node`` spells; ValueError for anything else."""
    try:
        value = ast.literal_eval(_Words().visit(node))
    except ValueError:
        raise ValueError("a value is neither a literal nor quoted") from None
    return detach_json(value)


def _unreadable(name: str, why: str) -> ParseError:
    forms = 'tool(key=1, other="text") or tool({"key": 1})'
    return ParseError(f"cannot read the call of {name!r}: {why}, expected {forms}")
