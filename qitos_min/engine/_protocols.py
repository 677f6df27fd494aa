"""How a model is asked for a decision, and how its reply becomes one.

Values in, values out: a protocol knows tools and replies, nothing of the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from itertools import islice
from typing import Any, NamedTuple

from ..core import Action, Decision, ToolSpec
from ..core._json import dumps
from ._plain import plain
from ._replies import ModelReply, ParseError, first_of
from ._text_calls import BLANK, DECODER, FENCED, after, args_of, json_action, read_react

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
    r"(?is)\s*(?:<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)"
    r"|\[THINK\].*?(?:\[/THINK\]|\Z))"
)
_OBSERVATION = re.compile(r"(?im)^[>#*_ \t-]*observation[ \t\d*_]*[:\uff1a]")
# Templates that open the reasoning themselves leave only its end in the reply; in
# quotes it is a word that the answer speaks of.
_LONE_END = re.compile(r"(?<![`\"'])(?:</think(?:ing)?>|\[/THINK\])(?![`\"'])", re.IGNORECASE)
# A decision object that is broken, by its first key or by its mode on a line of its own.
_DECISION_OBJECT = re.compile(
    r"""(?m)\A(?:```\w*\s*)?\{\s*["']?(?:mode|actions|final_answer)["']?\s*:"""
    r"""|^[ \t]*\{\s*(?:"(?:thought|rationale)"\s*:[^\n]*?\n?\s*)?"""
    r""""mode"\s*:\s*"(?:act|final|wait|handoff)\""""
)
_DECISION_KEY = re.compile(
    r"""(?im)["'](?:mode|actions?|final_answer)["']\s*:|<(?:decision|action)\b"""
    r"|^[>#*_ \t-]*(?:action|final[ ]answer)[ \t\d*_]*:"
)
_ELEMENT = re.compile(
    r"(?s)<(decision|action|arg|agent|think|thought|rationale|final_answer|final|answer)\b"
    r"([^>]*?)(?:/>|>(.*?)</\1>)"
)
_ATTRIBUTE = re.compile(r"""\b(?:name|mode)\s*=\s*["']([^"']+)["']""")


class Parsed(NamedTuple):
    """A reply that was read."""

    decision: Decision
    said: str  # What of its text belongs in the conversation: no reasoning, nothing made up.
    more: bool  # Whether text followed the decision, so that a cut behind it cost nothing.


@dataclass(frozen=True)
class Protocol:
    """One agreement with a model: how it is told its tools, how it decides."""

    id: str
    form: str | None  # Of an answer, for the prompt; None when tools are passed natively.
    read: Callable[[str], tuple[Decision, int]]  # A reply without calls: decision, where it ends.
    write: Callable[[list[tuple[str, str]]], str]  # Calls, as names and JSON arguments, as text.

    def system_prompt(self, base: str, tools: Iterable[ToolSpec]) -> str:
        """``base`` with the tools and the form of an answer, where they are text."""
        if self.form is None:
            return base
        told = [(spec.name, spec.description.strip(), dumps(_schema(spec))) for spec in tools]
        lines = [f"- {name}: {about}\n  arguments: {schema}" for name, about, schema in told]
        listed = "\n".join(["Tools:", *lines]) if lines else "There are no tools."
        return "\n\n".join(filter(None, (base, listed, self.form)))

    def tools_argument(self, tools: Iterable[ToolSpec]) -> list[dict[str, Any]] | None:
        """The ``tools=`` of a chat request, or None; for a dot in a name ``__dot__`` is sent."""
        if self.form is not None:
            return None
        entries = []
        for spec in tools:
            own = {"name": spec.name.replace(".", "__dot__"), "description": spec.description}
            own["parameters"] = plain(_schema(spec))
            entries.append({"type": "function", "function": own})
        return entries or None

    def parse(self, reply: ModelReply, *, called: bool = False) -> Parsed:
        """The decision in ``reply``; native tool calls win over its text.

        ``called`` says that the model made native calls before: then plain text is
        an answer in every protocol. Raises ParseError when the reply holds no decision.
        """
        text = _without_thinking(reply.text)
        if reply.tool_calls:
            made_up = _OBSERVATION.search(text)
            said = text[: made_up.start()].strip() if made_up else text
            calls = [(call.name.replace("__dot__", "."), call) for call in reply.tool_calls]
            actions = [Action(n, args_of(n, call.args), action_id=call.id) for n, call in calls]
            return Parsed(Decision.act(actions, rationale=said or None), said, False)
        if not text:
            raise ParseError("the reply holds only thinking, expected a decision")
        try:
            decision, end = self.read(text)
        except ParseError:
            if not called or _DECISION_KEY.search(text):
                raise
            return Parsed(Decision.final(text), text, False)
        end = after(BLANK, text, end)
        return Parsed(decision, text[:end].strip(), end < len(text))


def resolve_protocol(name: str | None, llm: object = None) -> Protocol:
    """The protocol of a name, else the one ``llm.protocol`` names, else ``react_text_v1``."""
    own = getattr(llm, "protocol", None)
    wanted = name if name is not None else own if isinstance(own, str) else "react_text_v1"
    if not isinstance(wanted, str) or wanted not in _PROTOCOLS:
        known = ", ".join(f"{key} ({_ABOUT[key]})" for key in sorted(_PROTOCOLS))
        raise ValueError(f"unknown protocol {wanted!r}, expected one of {known}")
    return _PROTOCOLS[wanted]


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
    given, answer = value.get("mode"), first_of(value, *_ANSWER_KEYS)
    if given is None:
        given = "act" if answer is None else "final"
    mode = given.strip().lower() if isinstance(given, str) else None
    if mode not in _MODES:
        raise ParseError(f"unknown mode {given!r:.80}, expected {', '.join(_MODES)}")
    thoughts = (value.get("rationale"), value.get("thought"))
    why = next((t for t in thoughts if isinstance(t, str) and t.strip()), None)
    if mode == "act":
        items = value.get("actions") or value.get("action")
        items = value if isinstance(items, str) else items
        items = [items] if isinstance(items, dict) else items
        if not isinstance(items, list) or not items:
            raise ParseError("mode 'act' needs 'actions', a list with at least one action")
        actions = [json_action(item, f"actions[{i}]") for i, item in enumerate(items)]
        return Decision.act(actions, rationale=why)
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


def _read_xml(text: str) -> tuple[Decision, int]:
    """The first ``<decision>``, or its parts alone; ``give_types`` finds the types of arguments."""
    whole = next((e for e in _ELEMENT.finditer(text) if e[1] == "decision"), None)
    actions: list[Any] = []
    value: dict[str, Any] = {"mode": whole and _named(whole[2]), "actions": actions}
    for tag, head, inner in _ELEMENT.findall(whole[3] or "" if whole else text):
        name = _named(head)
        if tag == "action" and name:
            parts = (part for part in _ELEMENT.findall(inner) if part[0] == "arg")
            args = {_named(of) or "": Untyped(unescape(arg)) for _, of, arg in parts}
            actions.append({"name": name, "args": args})
        elif tag == "action":
            found = read_react(f"Action: {unescape(inner).strip()}")[0].actions
            actions += [{"name": action.name, "args": action.args} for action in found]
        elif tag != "arg":
            key = tag if tag in ("agent", *_ANSWER_KEYS) else "thought"
            value[key] = value.get(key) or unescape(inner).strip()
    if whole is None and not actions and value.keys().isdisjoint(_ANSWER_KEYS):
        raise ParseError('no <decision> in the reply, expected <decision mode="act">...</decision>')
    return _json_decision(value), whole.end() if whole else len(text)


def _named(head: str) -> str | None:
    found = _ATTRIBUTE.search(head)
    return unescape(found[1]) if found else None


class Untyped(str):
    """The text of an argument in a form that has no types."""


def give_types(decision: Decision, specs: list[ToolSpec]) -> None:
    """Read such texts as the JSON that the tools' schemas want, where they want no text."""
    schemas = {spec.name: spec.arguments_schema().get("properties", {}) for spec in specs}
    for action in getattr(decision, "actions", ()):
        for name, value in action.args.items():
            if not isinstance(value, Untyped):
                continue
            action.args[name] = str(value)
            schema = schemas.get(action.name, {}).get(name, {})
            kinds = [one.get("type", "string") for one in schema.get("anyOf", [schema])]
            if not any("string" in kind for kind in kinds):
                with suppress(ValueError, RecursionError):
                    action.args[name] = DECODER.decode(value.strip())


def _write_lines(calls: list[tuple[str, str]]) -> str:
    return "\n".join(f"Action: {name}({args})" for name, args in calls)


def _write_json(calls: list[tuple[str, str]]) -> str:
    actions = ", ".join(f'{{"name": {dumps(n)}, "args": {args}}}' for n, args in calls)
    return f'{{"mode": "act", "actions": [{actions}]}}' if calls else ""


_ABOUT = {
    "json_decision_v1": "one JSON object, for models that keep to JSON",
    "native_tool_call_v1": "the server's own tool calls, plain text is the answer;"
    " for servers that have them",
    "react_text_v1": "Thought, Action, Final Answer; for models without tool calls",
    "xml_decision_v1": "one <decision> element, for models that keep to XML",
}
_PARTS: list[tuple[str | None, Any, Any]] = [
    (_JSON_FORM, _read_json, _write_json),
    (None, _read_native, _write_lines),
    (_REACT_FORM, read_react, _write_lines),
    (_XML_FORM, _read_xml, _write_lines),
]
_PROTOCOLS = {name: Protocol(name, *parts) for name, parts in zip(_ABOUT, _PARTS)}
