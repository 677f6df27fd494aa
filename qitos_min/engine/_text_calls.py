"""Decisions in labelled text - Thought, Action, Final Answer - and the calls in it.

Calls are ``key=1, other="text"`` or one dict. Nothing is evaluated: Python's notation is
turned into JSON token by token.
"""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from typing import Any

from ..core.action import Action
from ..core.decision import Decision
from ._replies import DECODER, ParseError, args_of, first_of

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
    r"(?s)(?P<raw>[rR]?)"
    r'(?P<text>"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
    r"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
    r'|"[^"\\]*(?:\\.[^"\\]*)*"'
    r"|'[^'\\]*(?:\\.[^'\\]*)*')"
)
_TOKEN = re.compile(
    _TEXT + r"""|(?P<key>[A-Za-z_]\w*)\s*=(?!=)|[A-Za-z_]\w*|,(?=\s*[)\]}])|[()\[\]{}"']"""
)
_AS_JSON = {"True": "true", "False": "false", "None": "null", "(": "[", ")": "]", ",": ""}
_BACKSLASH = re.compile(r"""(\\[\\'"abfnrtvxuUN0-7])|\\""")


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
    while (
        match and match["label"].lower() == "action" and BLANK.fullmatch(text, end, match.start())
    ):
        action, end = _react_call(text[:stop], match.end())
        actions.append(action)
        match = LABEL.search(text, end, stop)
    return Decision.act(actions, rationale=why), end


def _react_call(text: str, start: int) -> tuple[Action, int]:
    """One call: ``name(...)``, a name with an Action Input, or a JSON action."""
    start = after(_OPENING, text, start)
    if text.startswith("{", start):
        value, end = _arguments(text, start, "the action")
        return json_action(value, "the action"), end
    named = _NAME.match(text, start)
    if named is None:
        raise ParseError("no tool name after 'Action:', expected tool(key=1)")
    name, end = named[1], named.end()
    if not text.startswith("(", end):
        end = after(_INPUT, text, end)
        if none := _NO_INPUT.match(text, end):
            return Action(name), none.end()
        end = after(_OPENING, text, end)
    args, end = _arguments(text, end, name)
    return Action(name, args), end


def after(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where a match at ``start`` ends, or ``start`` without one."""
    found = pattern.match(text, start)
    return found.end() if found else start


def json_action(item: object, where: str) -> Action:
    """The action that an object spells; ParseError, which says ``where``, if it is none."""
    fields = item if isinstance(item, dict) else {}
    name = first_of(fields, "name", "tool", "action")
    if not isinstance(name, str) or not name.strip():
        raise ParseError(f'{where} has no name, expected {{"name": ..., "args": ...}}')
    args = args_of(name, first_of(fields, "args", "arguments", "action_input"))
    return Action(name.strip(), args)


def _arguments(text: str, start: int, name: str) -> tuple[dict[str, Any], int]:
    """The arguments in the bracket at ``start``, in JSON or Python's notation, and its end."""
    pieces, depth, end = [""], 0, start
    try:
        if not text.startswith(("(", "{"), start):
            raise ValueError("no object follows it")
        for token in _TOKEN.finditer(text, start):
            mark = token[0]
            if mark in ("'", '"'):
                raise ValueError("a quote is not closed")
            pieces.append(text[end : token.start()])
            if token["text"]:
                pieces.append(json.dumps(_unquoted(token)))
            else:
                pieces.append(f'"{token["key"]}":' if token["key"] else _AS_JSON.get(mark, mark))
            end = token.end()
            depth += (mark in "([{") - (mark in ")]}")
            if depth == 0:
                break
        else:
            raise ValueError("a bracket is not closed")
        source = "".join(pieces)
        if text[start] == "(":
            source = source[1:-1].strip()
            source = source if source.startswith("{") else f"{{{source}}}"
        return DECODER.decode(source), end
    except (SyntaxError, ValueError, RecursionError) as error:
        why = getattr(error, "msg", None) or str(error)
    raise ParseError(
        f"cannot read the call of {name!r}: {why}, "
        'expected tool(key=1, other="text") or tool({"key": 1})'
    )


def _unquoted(token: re.Match[str]) -> str:
    """The text in quotes, as JSON or Python reads it; line breaks and odd backslashes stay."""
    quoted = token[0]
    with suppress(ValueError):
        return str(DECODER.decode(quoted))
    if not token["raw"]:
        quoted = _BACKSLASH.sub(lambda found: found[1] or r"\\", quoted)
        quoted = quoted.replace("\r\n", "\n").replace("\n", "\\n")
    return str(ast.literal_eval(quoted))
