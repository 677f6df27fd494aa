"""Decisions in labelled text: Thought, Action, Final Answer."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from ..core.action import Action
from ..core.decision import Decision
from ._call_text import DECODER, arguments_at, object_at, unreadable
from ._replies import ParseError

__all__ = ["FENCED", "OBSERVATION", "after", "args_of", "json_action", "read_react"]

_MAX_ENCODINGS = 4
FENCED = re.compile(r"\s*```[\w-]*\n(.*)\n```\s*", re.DOTALL)
OBSERVATION = re.compile(
    r"^[>#*_ \t-]*observation[ \t\d*_]*[:\uff1a]", re.IGNORECASE | re.MULTILINE
)
_LABEL = re.compile(
    r"^[>#\- \t]*(?P<bold>\*\*|__)?"
    r"(?P<label>thought|action[ ]input|action|final[ ]answer|observation)"
    r"[ \t]*\d*(?(bold)(?:\*\*|__)?)[ \t]*[:\uff1a](?(bold)(?:\*\*|__)?)",
    re.IGNORECASE | re.MULTILINE,
)
# How models write down results that they made up.
_INVENTED = re.compile(
    r"^[>#*_ \t-]*(?:(?:observation|(?:(?:tool|function)[ _])?(?:result|output|response))s?"
    r"\b[^\n:\uff1a]{0,60}[:\uff1a]|</?(?:tool_(?:response|result|output)|observation)s?>"
    r"|(?:user|human):)",
    re.IGNORECASE | re.MULTILINE,
)
_OPENING = re.compile(r"\s*(?:```[\w-]*\s|`)?\s*")
_NAME = re.compile(r"([A-Za-z_][\w.-]*)`?[ \t]*")
_BLANK = re.compile(r"[`*.\s]*")
_NO_INPUT = re.compile(
    r"[ \t]*(?:none|null)?[`*. \t]*(?:\n(?!\s*(?:```\w*\s*)?\{)|\Z)", re.IGNORECASE
)
_NEXT_CALL = re.compile(r"\s*[,;]\s*(?=[A-Za-z_][\w.-]*\()")


def read_react(text: str) -> tuple[Decision, int]:
    """Labelled lines: actions, or a final answer that runs to the end."""
    fenced = FENCED.fullmatch(text)
    stop = fenced.end(1) if fenced else len(text)
    match = _LABEL.search(text, fenced.start(1) if fenced else 0, stop)
    thoughts = [text[fenced.start(1) if fenced else 0 : match.start()] if match else ""]
    actions: list[Action] = []
    end = last = 0
    while match:
        # What a model writes after its actions as if they had run is invented.
        label = match["label"].lower()
        if actions and label in ("final answer", "observation"):
            break
        if actions and _INVENTED.search(text, end, match.start()):
            break
        end = match.end()
        if label == "final answer":
            return _react_final(text[end:stop].strip(), thoughts), len(text)
        if label == "action":
            found, last = _react_calls(text[:stop], end)
            actions += found
            end = last
        following = _LABEL.search(text, end, stop)
        if label == "thought":
            thoughts.append(text[end : following.start() if following else stop])
        match = following
    if not actions:
        raise ParseError("the reply holds neither 'Action:' nor 'Final Answer:'")
    return Decision.act(actions, rationale=_joined(thoughts)), last


def _react_final(answer: str, thoughts: list[str]) -> Decision:
    if not answer:
        raise ParseError("nothing follows 'Final Answer:'")
    return Decision.final(answer, rationale=_joined(thoughts))


def _joined(thoughts: list[str]) -> str | None:
    return "\n".join(filter(None, map(str.strip, thoughts))) or None


def _react_calls(text: str, start: int) -> tuple[list[Action], int]:
    """The calls after one 'Action:' label, and where they end."""
    action, end = _react_call(text, start)
    actions = [action]
    while following := _NEXT_CALL.match(text, end):
        action, end = _react_call(text, following.end())
        actions.append(action)
    return actions, end


def _react_call(text: str, start: int) -> tuple[Action, int]:
    """One call: ``name(...)``, a name with an Action Input, or a JSON action."""
    start = after(_OPENING, text, start)
    if text.startswith("{", start):
        value, end = object_at(text, start, "the action")
        return json_action(value, "the action"), end
    named = _NAME.match(text, start)
    if named is None:
        raise ParseError("no tool name after 'Action:', expected tool(key=1)")
    name, end = named[1], named.end()
    if text.startswith("(", end):
        args, end = arguments_at(text, end, name)
        return Action(name, args), end
    label = _LABEL.search(text, end)
    if label and label["label"].lower() == "action input":
        if not _BLANK.fullmatch(text, end, label.start()):
            raise unreadable(name, "other text follows the name")
        end = label.end()
    if none := _NO_INPUT.match(text, end):
        return Action(name), none.end()
    args, end = object_at(text, after(_OPENING, text, end), name)
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
    given = (fields.get(key) for key in ("args", "arguments", "action_input"))
    return Action(name, args_of(name, next((g for g in given if g is not None), None)))


def args_of(name: str, value: object) -> dict[str, Any]:
    """Arguments as an object: given as one, as its JSON text, or not at all.

    Some servers encode the text again, once or twice.
    """
    for _ in range(_MAX_ENCODINGS):
        if not isinstance(value, str):
            break
        text = value.strip() or "{}"
        try:
            value = DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            with suppress(ParseError):
                value, end = object_at(text, 0, name)
                if end == len(text):
                    break
            why = f"the arguments of {name!r} are not JSON: {error}"
            raise ParseError(why) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise ParseError(f"the arguments of {name!r} are {kind}, expected an object")
    return value
