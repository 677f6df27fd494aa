"""How a model is asked for a decision, and how its reply becomes one.

Values in, values out: a protocol knows tools and replies, nothing of the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import unescape
from itertools import islice
from typing import Any, NamedTuple

from ..core._json import dumps
from ..core.action import Action
from ..core.decision import Decision
from ..core.tool import ToolSpec
from ._plain import plain
from ._replies import ModelReply, ParseError, ToolCall
from ._text_calls import DECODER, FENCED, OBSERVATION, after, args_of, json_action, read_react

_DEFAULT = "react_text_v1"
_MAX_OBJECTS = 100
_ANSWER_KEYS = ("final_answer", "final", "answer")
_DECISION_KEYS = ("mode", "actions", "action", *_ANSWER_KEYS)
_MODES = ("act", "final", "wait", "handoff")

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

_XML_FORM = """\
Answer with exactly one element and no other text. To call a tool:
<decision mode="act"><think>why</think><action name="tool"><arg name="key">1</arg></action>\
</decision>
To finish:
<decision mode="final"><think>why</think><final_answer>the whole answer</final_answer></decision>"""

# An object that opens with a quoted key; prose in braces is passed over.
_OBJECT = re.compile(r'\{\s*"')
_THINKING = re.compile(
    r"\s*(?:<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)" r"|\[THINK\].*?(?:\[/THINK\]|\Z))",
    re.DOTALL | re.IGNORECASE,
)
# Templates that open the reasoning themselves leave only its end in the reply; in
# quotes it is a word that the answer speaks of.
_LONE_END = re.compile(r"(?<![`\"'])(?:</think(?:ing)?>|\[/THINK\])(?![`\"'])", re.IGNORECASE)
_AFTER_CALL = re.compile(r"[`*.\s]*")
# A decision object that is broken, by its first key or by its mode on a line of its own.
_DECISION_OBJECT = re.compile(
    r"""\A(?:```\w*\s*)?\{\s*["']?(?:mode|actions|final_answer)["']?\s*:"""
    r"""|^[ \t]*\{\s*(?:"(?:thought|rationale)"\s*:[^\n]*?\n?\s*)?"""
    r""""mode"\s*:\s*"(?:act|final|wait|handoff)\"""",
    re.MULTILINE,
)
_DECISION_KEY = re.compile(
    r"""["'](?:mode|actions?|final_answer)["']\s*:|<decision\b"""
    r"|^[>#*_ \t-]*(?:action|final[ ]answer)[ \t\d*_]*:",
    re.IGNORECASE | re.MULTILINE,
)
_XML_DECISION = re.compile(
    r"<decision\b(?P<head>[^>]*?)(?:/>|>(?P<body>.*?)</decision>)", re.DOTALL
)
_XML_ACTION = re.compile(
    r"""<action\s+name\s*=\s*["']([^"']+)["']\s*(?:/>|>(.*?)</action>)""", re.DOTALL
)
_XML_CALL = re.compile(r"<action>\s*(\w[^<]*?)\s*</action>")
_XML_PART = re.compile(rf"<(?:action|{'|'.join(_ANSWER_KEYS)})[\s>]")
_XML_ARG = re.compile(r"""<arg\s+name\s*=\s*["']([^"']+)["']\s*>(.*?)</arg>""", re.DOTALL)


class Parsed(NamedTuple):
    """A reply that was read."""

    decision: Decision
    said: str
    """What of its text belongs in the conversation: no reasoning, nothing made up."""
    more: bool
    """Whether text followed the decision, so that a cut behind it cost nothing."""


@dataclass(frozen=True)
class Protocol:
    """One agreement with a model: how it is told its tools, how it decides."""

    id: str
    form: str | None
    """The form of an answer, for the prompt; None when tools are passed natively."""
    read: Callable[[str], tuple[Decision, int]]
    """Turns the text of a reply without tool calls into a decision; where it ends."""
    write: Callable[[list[tuple[str, str]]], str]
    """Turns calls, as names and JSON arguments, into the text of a reply."""

    def system_prompt(self, base: str, tools: Iterable[ToolSpec]) -> str:
        """``base`` with the tools and the form of an answer, where they are text."""
        if self.form is None:
            return base
        lines = [
            f"- {spec.name}: {spec.description.strip()}\n  arguments: {dumps(_schema(spec))}"
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
                "name": spec.name.replace(".", "__dot__"),
                "description": spec.description,
                "parameters": plain(_schema(spec)),
            }
            for spec in tools
        ]
        return [{"type": "function", "function": entry} for entry in entries] or None

    def parse(self, reply: ModelReply, *, called: bool = False) -> Parsed:
        """The decision in ``reply``; native tool calls win over its text.

        ``called`` says that the model made native calls before: then plain text is
        an answer in every protocol. Raises ParseError when the reply holds no decision.
        """
        text = _without_thinking(reply.text)
        if reply.tool_calls:
            made_up = OBSERVATION.search(text)
            said = text[: made_up.start()].strip() if made_up else text
            actions = [_native_action(call) for call in reply.tool_calls]
            return Parsed(Decision.act(actions, rationale=said or None), said, False)
        if not text:
            raise ParseError("the reply holds only thinking, expected a decision")
        try:
            decision, end = self.read(text)
        except ParseError:
            if not called or _DECISION_KEY.search(text):
                raise
            return Parsed(Decision.final(text), text, False)
        end = after(_AFTER_CALL, text, end)
        return Parsed(decision, text[:end].strip(), end < len(text))


def resolve_protocol(name: str | None, llm: object = None) -> Protocol:
    """The protocol called ``name``; without a name the one ``llm.protocol`` names.

    Without either it is ``react_text_v1``. Raises ValueError for an unknown name.
    """
    own = getattr(llm, "protocol", None)
    wanted = name if name is not None else own if isinstance(own, str) else _DEFAULT
    if not isinstance(wanted, str) or wanted not in _PROTOCOLS:
        known = ", ".join(f"{key} ({what})" for key, (_, what) in sorted(_PROTOCOLS.items()))
        raise ValueError(f"unknown protocol {wanted!r}, expected one of {known}")
    return _PROTOCOLS[wanted][0]


def _without_thinking(text: str) -> str:
    """The text behind the reasoning that a reply begins with."""
    lone = None if _THINKING.match(text) else _LONE_END.search(text)
    # In a decision in XML the thought has its place.
    end = lone.end() if lone and "<decision" not in text[: lone.start()] else 0
    while block := _THINKING.match(text, end):
        end = block.end()
    return text[end:].strip()


def _schema(spec: ToolSpec) -> dict[str, Any]:
    """The JSON schema of a tool's arguments; the chat API wants its properties."""
    return {"type": "object", "properties": {}, **spec.arguments_schema()}


def _native_action(call: ToolCall) -> Action:
    name = call.name.replace("__dot__", ".")
    return Action(name, args_of(name, call.args), action_id=call.id)


def _read_native(text: str) -> tuple[Decision, int]:
    """The text is the answer, unless it is a decision object, whole or broken."""
    fenced = FENCED.fullmatch(text)
    try:
        value = DECODER.decode((fenced[1] if fenced else text).strip())
    except (ValueError, RecursionError):
        if _DECISION_OBJECT.search(text):
            return _read_json(text)
        return Decision.final(text), len(text)
    # An answer may be an object of its own, also one with a mode.
    mode = value.get("mode", "act") if isinstance(value, dict) else None
    named = isinstance(mode, str) and mode.lower() in _MODES
    if not named or value.keys().isdisjoint(("mode", "actions", "final_answer")):
        return Decision.final(text), len(text)
    return _json_decision(value), len(text)


def _read_json(text: str) -> tuple[Decision, int]:
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
        if not value.keys().isdisjoint(_DECISION_KEYS):
            return _json_decision(value), end
        problem = f"a JSON object without 'mode', its keys are {list(value)!r:.200}"
    raise ParseError(problem)


def _json_decision(value: dict[str, Any]) -> Decision:
    given = value.get("mode")
    answers = (value.get(key) for key in _ANSWER_KEYS)
    answer = next((a for a in answers if a is not None), None)
    if given is None:
        given = "act" if answer is None else "final"
    mode = given.strip().lower() if isinstance(given, str) else None
    if mode not in _MODES:
        raise ParseError(f"unknown mode {given!r:.80}, expected {', '.join(_MODES)}")
    thoughts = (value.get("rationale"), value.get("thought"))
    why = next((t for t in thoughts if isinstance(t, str) and t.strip()), None)
    if mode == "act":
        return Decision.act(_json_actions(value), rationale=why)
    if mode == "final":
        if answer is None:
            raise ParseError("mode 'final' needs 'final_answer'")
        return Decision.final(answer, rationale=why)
    if mode == "wait":
        return Decision.wait(rationale=why)
    agent = value.get("agent")
    if not isinstance(agent, str) or not agent.strip():
        raise ParseError("mode 'handoff' needs 'agent', the name of an agent")
    return Decision.handoff(agent.strip(), rationale=why)


def _json_actions(value: dict[str, Any]) -> list[Action]:
    items = value.get("actions") or value.get("action")
    items = value if isinstance(items, str) else items
    items = [items] if isinstance(items, dict) else items
    if not isinstance(items, list) or not items:
        raise ParseError("mode 'act' needs 'actions', a list with at least one action")
    return [json_action(item, f"actions[{i}]") for i, item in enumerate(items)]


def _read_xml(text: str) -> tuple[Decision, int]:
    """The first ``<decision>`` in the text, or what belongs into one, standing alone.

    Arguments are texts, whose types ``give_types`` finds in the tools' schemas.
    """
    found = _XML_DECISION.search(text)
    if found is None and not _XML_PART.search(text):
        raise ParseError('no <decision> in the reply, expected <decision mode="act">...</decision>')
    head, body = (found["head"], found["body"] or "") if found else ("", text)
    mode = re.search(r"""mode\s*=\s*["'](\w+)["']""", head)
    value: dict[str, Any] = {"mode": mode[1] if mode else None}
    value["actions"] = [
        {"name": unescape(name), "args": {unescape(k): Untyped(unescape(v)) for k, v in args}}
        for name, inner in _XML_ACTION.findall(body)
        for args in [_XML_ARG.findall(inner)]
    ] or [
        {"name": action.name, "args": action.args}
        for call in _XML_CALL.findall(body)
        for action in read_react(f"Action: {unescape(call)}")[0].actions
    ]
    for names, key in ((("think", "thought", "rationale"), "thought"), (("agent",), "agent")):
        value[key] = next(filter(None, (_xml_text(body, name) for name in names)), None)
    value.update((name, _xml_text(body, name)) for name in _ANSWER_KEYS)
    return _json_decision(value), found.end() if found else len(text)


def _xml_text(body: str, name: str) -> str | None:
    found = re.search(rf"<{name}>(.*?)</{name}>", body, re.DOTALL)
    return unescape(found[1]).strip() if found else None


class Untyped(str):
    """The text of an argument in a form that has no types."""


def give_types(decision: Decision, specs: list[ToolSpec]) -> None:
    """Read such texts as the JSON that the tools' schemas want, where they want no text."""
    schemas = {spec.name: spec.arguments_schema().get("properties", {}) for spec in specs}
    for action in decision.actions:
        schema = schemas.get(action.name, {})
        for name, value in action.args.items():
            if isinstance(value, Untyped):
                action.args[name] = _typed(str(value), schema.get(name, {}))


def _typed(text: str, schema: dict[str, Any]) -> Any:
    kinds = [one.get("type", "string") for one in schema.get("anyOf", [schema])]
    if "string" in kinds or any("string" in kind for kind in kinds if isinstance(kind, list)):
        return text
    try:
        return DECODER.decode(text.strip())
    except (ValueError, RecursionError):
        return text


def _write_lines(calls: list[tuple[str, str]]) -> str:
    return "\n".join(f"Action: {name}({args})" for name, args in calls)


def _write_json(calls: list[tuple[str, str]]) -> str:
    actions = ", ".join(f'{{"name": {dumps(n)}, "args": {args}}}' for n, args in calls)
    return f'{{"mode": "act", "actions": [{actions}]}}' if calls else ""


_PROTOCOLS = {
    protocol.id: (protocol, what)
    for protocol, what in (
        (
            Protocol("json_decision_v1", _JSON_FORM, _read_json, _write_json),
            "one JSON object, for models that keep to JSON",
        ),
        (
            Protocol("native_tool_call_v1", None, _read_native, _write_lines),
            "the server's own tool calls, plain text is the answer; for servers that have them",
        ),
        (
            Protocol(_DEFAULT, _REACT_FORM, read_react, _write_lines),
            "Thought, Action, Final Answer; for models without tool calls",
        ),
        (
            Protocol("xml_decision_v1", _XML_FORM, _read_xml, _write_lines),
            "one <decision> element, for models that keep to XML",
        ),
    )
}
