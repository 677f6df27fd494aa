"""How a model is asked for a decision, and how its reply becomes one.

Values in, values out: a protocol knows tools and replies, nothing of the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

from ..core._json import dumps, to_json_value
from ..core.action import Action
from ..core.decision import Decision
from ..core.tool import ToolSpec
from ._call_text import DECODER, arguments_at, object_at, unreadable
from ._replies import ModelError, ModelReply, ParseError, ToolCall, read_reply

__all__ = [
    "ModelError",
    "ModelReply",
    "ParseError",
    "Protocol",
    "ToolCall",
    "read_reply",
    "resolve_protocol",
]

_DEFAULT = "react_text_v1"
_MAX_OBJECTS = 100

_JSON_FORM = """\
Answer with exactly one JSON object and no other text. To call tools:
{"mode": "act", "thought": "why", "actions": [{"name": "tool", "args": {"key": 1}}]}
To finish:
{"mode": "final", "thought": "why", "final_answer": "the whole answer"}"""

_REACT_FORM = """\
Answer in one of these two forms. To call a tool:
Thought: why
Action: tool(key="text", other=1)
To finish:
Thought: why
Final Answer: the whole answer
Name every argument and quote every text. Several Action lines call several tools. \
End the reply after the last Action line: the results come in the next message."""

# An object that opens with a quoted key; prose in braces is passed over.
_OBJECT = re.compile(r'\{\s*"')
_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"\s*```[\w-]*\n(.*)\n```\s*", re.DOTALL)
_LABEL = re.compile(
    r"^[>#\- \t]*(?P<bold>\*\*|__)?"
    r"(?P<label>thought|action[ ]input|action|final[ ]answer|observation)"
    r"[ \t]*\d*(?(bold)(?:\*\*|__)?)[ \t]*[:\uff1a](?(bold)(?:\*\*|__)?)",
    re.IGNORECASE | re.MULTILINE,
)
_OPENING = re.compile(r"\s*(?:```[\w-]*\s|`)?\s*")
_NAME = re.compile(r"([A-Za-z_][\w.-]*)`?[ \t]*")
_BLANK = re.compile(r"[`*.\s]*")
_NO_INPUT = re.compile(
    r"[ \t]*(?:none|null)?[`*. \t]*(?:\n(?!\s*(?:```\w*\s*)?\{)|\Z)", re.IGNORECASE
)
_NEXT_CALL = re.compile(r"\s*[,;]\s*(?=[A-Za-z_][\w.-]*\()")


@dataclass(frozen=True)
class Protocol:
    """One agreement with a model: how it is told its tools, how it decides."""

    id: str
    form: str | None
    """The form of an answer, for the prompt; None when tools are passed natively."""
    read: Callable[[str], Decision]
    """Turns the text of a reply without tool calls into a decision."""

    def system_prompt(self, base: str, tools: Iterable[ToolSpec]) -> str:
        """``base`` with the tools and the form of an answer, where they are text."""
        if self.form is None:
            return base
        lines = [
            f"- {spec.name}: {spec.description.strip()}\n"
            f"  arguments: {dumps(_schema(spec))}"
            for spec in tools
        ]
        listed = "\n".join(["Tools:", *lines]) if lines else "There are no tools."
        return "\n\n".join(part for part in (base, listed, self.form) if part)

    def tools_argument(self, tools: Iterable[ToolSpec]) -> list[dict[str, Any]] | None:
        """The ``tools=`` of a chat request; None without tools or native calls.

        A dot, which the chat API refuses in a name, is sent as ``__dot__``.
        """
        if self.form is not None:
            return None
        entries = [
            {
                "type": "function",
                "function": {
                    "name": spec.name.replace(".", "__dot__"),
                    "description": spec.description,
                    "parameters": to_json_value(_schema(spec)),
                },
            }
            for spec in tools
        ]
        return entries or None

    def parse(self, reply: ModelReply) -> Decision:
        """The decision in ``reply``; native tool calls win over its text.

        Raises ParseError when the reply holds no decision.
        """
        text = _THINKING.sub("", reply.text).strip()
        if reply.tool_calls:
            return Decision.act(
                [_native_action(call) for call in reply.tool_calls],
                rationale=text or None,
            )
        if not text:
            raise ParseError("the reply holds only thinking, expected a decision")
        return self.read(text)


def resolve_protocol(name: str | None, llm: object = None) -> Protocol:
    """The protocol called ``name``; without a name the one ``llm.protocol`` names.

    Without either it is ``react_text_v1``. Raises ValueError for an unknown name.
    """
    own = getattr(llm, "protocol", None)
    wanted = name if name is not None else own if isinstance(own, str) else _DEFAULT
    if not isinstance(wanted, str) or wanted not in _PROTOCOLS:
        known = ", ".join(sorted(_PROTOCOLS))
        raise ValueError(f"unknown protocol {wanted!r}, expected one of {known}")
    return _PROTOCOLS[wanted]


def _schema(spec: ToolSpec) -> dict[str, Any]:
    """The JSON schema of a tool's arguments; the chat API wants its properties."""
    return {"type": "object", "properties": {}, **spec.arguments_schema()}


def _native_action(call: ToolCall) -> Action:
    name = call.name.replace("__dot__", ".")
    return Action(name, _args(name, call.args), action_id=call.id)


def _args(name: str, value: object) -> dict[str, Any]:
    """Arguments as an object: given as one, as its JSON text, or not at all."""
    if isinstance(value, str):
        try:
            value = DECODER.decode(value.strip() or "{}")
        except (ValueError, RecursionError) as error:
            why = f"the arguments of {name!r} are not JSON: {error}"
            raise ParseError(why) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise ParseError(f"the arguments of {name!r} are {kind}, expected an object")
    return value


def _read_json(text: str) -> Decision:
    """The first JSON object in the text that is a decision."""
    problem = 'no JSON object in the reply, expected {"mode": ...}'
    end, failed = 0, False
    for match in islice(_OBJECT.finditer(text), _MAX_OBJECTS):
        start = match.start()
        # What follows a broken object may lie inside it, unless a line begins there.
        if start < end or (failed and start and text[start - 1] != "\n"):
            continue
        try:
            value, end = DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            problem, failed = f"the reply is not valid JSON: {error}", True
            continue
        if not value.keys().isdisjoint(("mode", "actions", "action", "final_answer")):
            return _json_decision(value)
        problem = f"a JSON object without 'mode', its keys are {list(value)!r:.200}"
    raise ParseError(problem)


def _json_decision(value: dict[str, Any]) -> Decision:
    mode = value.get("mode")
    if mode is None:
        mode = "final" if value.get("final_answer") is not None else "act"
    reader = _MODES.get(mode.strip().lower()) if isinstance(mode, str) else None
    if reader is None:
        raise ParseError(
            f"unknown mode {mode!r:.80}, expected act, final, wait, handoff"
        )
    thoughts = (value.get("rationale"), value.get("thought"))
    rationale = next((t for t in thoughts if isinstance(t, str) and t.strip()), None)
    return reader(value, rationale)


def _json_act(value: dict[str, Any], rationale: str | None) -> Decision:
    items = value.get("actions") or value.get("action")
    if isinstance(items, str):
        items = [value]
    elif isinstance(items, dict):
        items = [items]
    if not isinstance(items, list) or not items:
        raise ParseError("mode 'act' needs 'actions', a list with at least one action")
    actions = [_json_action(item, f"actions[{i}]") for i, item in enumerate(items)]
    return Decision.act(actions, rationale=rationale)


def _json_action(item: object, where: str) -> Action:
    fields = item if isinstance(item, dict) else {}
    names = (fields.get(key) for key in ("name", "tool", "action"))
    name = next((n.strip() for n in names if isinstance(n, str) and n.strip()), None)
    if name is None:
        raise ParseError(f'{where} has no name, expected {{"name": ..., "args": ...}}')
    given = (fields.get(key) for key in ("args", "arguments", "action_input"))
    return Action(name, _args(name, next((g for g in given if g is not None), None)))


def _json_final(value: dict[str, Any], rationale: str | None) -> Decision:
    if value.get("final_answer") is None:
        raise ParseError("mode 'final' needs 'final_answer'")
    return Decision.final(value["final_answer"], rationale=rationale)


def _json_wait(value: dict[str, Any], rationale: str | None) -> Decision:
    return Decision.wait(rationale=rationale)


def _json_handoff(value: dict[str, Any], rationale: str | None) -> Decision:
    agent = value.get("agent")
    if not isinstance(agent, str) or not agent.strip():
        raise ParseError("mode 'handoff' needs 'agent', the name of an agent")
    return Decision.handoff(agent.strip(), rationale=rationale)


_MODES = MappingProxyType(
    {
        "act": _json_act,
        "final": _json_final,
        "wait": _json_wait,
        "handoff": _json_handoff,
    }
)


def _read_react(text: str) -> Decision:
    """Labelled lines: actions, or a final answer that runs to the end."""
    fenced = _FENCED.fullmatch(text)
    text = fenced[1] if fenced else text
    match = _LABEL.search(text)
    thoughts = [text[: match.start()] if match else ""]
    actions: list[Action] = []
    while match:
        label, end = match["label"].lower(), match.end()
        if label == "final answer" and not actions:
            return _react_final(text[end:].strip(), thoughts)
        # What a model writes after its actions as if they had run is invented.
        if actions and label in ("final answer", "observation"):
            break
        if label == "action":
            found, end = _react_calls(text, end)
            actions += found
        following = _LABEL.search(text, end)
        if label == "thought":
            thoughts.append(text[end : following.start() if following else None])
        match = following
    if not actions:
        raise ParseError("the reply holds neither 'Action:' nor 'Final Answer:'")
    return Decision.act(actions, rationale=_joined(thoughts))


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
    start = _after(_OPENING, text, start)
    if text.startswith("{", start):
        value, end = object_at(text, start, "the action")
        return _json_action(value, "the action"), end
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
    if _NO_INPUT.match(text, end):
        return Action(name), end
    args, end = object_at(text, _after(_OPENING, text, end), name)
    return Action(name, args), end


def _after(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found else start


_PROTOCOLS = MappingProxyType(
    {
        protocol.id: protocol
        for protocol in (
            Protocol("json_decision_v1", _JSON_FORM, _read_json),
            Protocol("native_tool_call_v1", None, Decision.final),
            Protocol(_DEFAULT, _REACT_FORM, _read_react),
        )
    }
)
