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

from ..core._json import dumps
from ..core.action import Action
from ..core.decision import Decision
from ..core.tool import ToolSpec
from ._plain import plain
from ._replies import DECODER, ModelReply, ParseError, first_of
from ._text_calls import BLANK, LABEL, OBSERVATION, after, json_action, read_react

_ANSWER_KEYS = ("final_answer", "final", "answer")
_DECISION_KEYS = ("mode", "actions", "action", *_ANSWER_KEYS)

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
    r"\s*(?:<(think|thinking|thought|reasoning)>|\[THINK\]).*?(?:</\1>|\[/THINK\]|\Z)",
    re.DOTALL | re.IGNORECASE,
)
# Templates that open the reasoning themselves leave only its end in the reply; in
# quotes it is a word that the answer speaks of.
_LONE_END = re.compile(r"(?<![`\"'])(?:</think(?:ing)?>|\[/THINK\])(?![`\"'])", re.IGNORECASE)
# A decision object, whole or broken: all of the text, or by its mode on a line of its own.
_DECISION_OBJECT = re.compile(
    r"""(?im)\A(?:```\w*\s*)?\{[^{}]*?["'](?:actions|final_answer)["']\s*:"""
    r"""|^[ \t]*\{[^{}]*?["']mode["']\s*:\s*["'](?:act|final|wait)\b"""
)
# No element holds another of its name, so that an endless reply is read in one go.
_XML_DECISION = re.compile(r"(?s)<decision\b([^<>]*?)(?:/>|>((?:(?!<decision\b).)*?)</decision>)")
_XML_NAMED = r"""(?s)<TAG\s+name\s*=\s*["']([^"'<>]+)["']\s*(?:/>|>((?:(?!<TAG\b).)*?)</TAG>)"""
_XML_ACTION, _XML_ARG = (re.compile(_XML_NAMED.replace("TAG", tag)) for tag in ("action", "arg"))
_XML_TEXT = re.compile(r"(?s)<(think|thought|final_answer|final|answer)>((?:(?!<\1>).)*?)</\1>")


class Parsed(NamedTuple):
    """A reply that was read."""

    decision: Decision
    said: str  # What of its text belongs in the conversation: no reasoning, nothing made up.
    more: bool = False  # Whether text followed the decision, so that a cut behind it cost nothing.


@dataclass(frozen=True)
class Protocol:
    """One agreement with a model: how it is told its tools, how it decides."""

    id: str
    what: str  # What it is and suits, for people who choose.
    form: str | None  # The form of an answer, for the prompt; None when tools are passed natively.
    read: Callable[[str], tuple[Decision, int]]  # The decision in a text, and where it ends.

    def write(self, calls: list[tuple[str, str]]) -> str:
        """Calls, as names and JSON arguments, as the text of a reply."""
        if self.read is not _read_json:
            return "\n".join(f"Action: {name}({args})" for name, args in calls)
        actions = ", ".join(f'{{"name": {dumps(name)}, "args": {args}}}' for name, args in calls)
        return f'{{"mode": "act", "actions": [{actions}]}}' if calls else ""

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
        """The ``tools=`` of a chat request; None without tools or native calls."""
        if self.form is not None:
            return None
        # The chat API refuses a dot in a name.
        functions = [
            {"name": name, "description": spec.description, "parameters": plain(_schema(spec))}
            for spec in tools
            for name in [spec.name.replace(".", "__dot__")]
        ]
        return [{"type": "function", "function": entry} for entry in functions] or None

    def parse(self, reply: ModelReply, *, called: bool = False) -> Parsed:
        """The decision in ``reply``; native tool calls win over its text.

        ``called`` says that the model made native calls before: then plain text is
        an answer in every protocol. Raises ParseError when the reply holds no decision.
        """
        text = _without_thinking(reply.text)
        if reply.tool_calls:
            said = OBSERVATION.split(text)[0].strip()
            return Parsed(Decision.act(reply.tool_calls, rationale=said or None), said)
        if not text:
            raise ParseError("the reply holds only thinking, expected a decision")
        try:
            decision, end = self.read(text)
        except ParseError:
            if not called or _DECISION_OBJECT.search(text) or LABEL.search(text):
                raise
            return Parsed(Decision.final(text), text)
        end = after(BLANK, text, end)
        return Parsed(decision, text[:end].strip(), end < len(text))


def resolve_protocol(name: str | None, llm: object = None) -> Protocol:
    """The protocol of a name, else of ``llm.protocol``, else ``react_text_v1``.

    Raises ValueError for an unknown name.
    """
    own = getattr(llm, "protocol", None)
    wanted = name if name is not None else own if isinstance(own, str) else "react_text_v1"
    found = next((protocol for protocol in _PROTOCOLS if protocol.id == wanted), None)
    if found is None:
        known = ", ".join(f"{protocol.id} ({protocol.what})" for protocol in _PROTOCOLS)
        raise ValueError(f"unknown protocol {wanted!r}, expected one of {known}")
    return found


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
    return _read_json(text) if _DECISION_OBJECT.search(text) else (Decision.final(text), len(text))


def _read_json(text: str) -> tuple[Decision, int]:
    """The first JSON object in the text that is a decision."""
    problem = 'no JSON object in the reply, expected {"mode": ...}'
    end, failed = 0, False
    for match in islice(_OBJECT.finditer(text), 100):
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
            return _decision(value), end
        problem = f"a JSON object without 'mode', its keys are {list(value)!r:.200}"
    raise ParseError(problem)


def _decision(value: dict[str, Any]) -> Decision:
    answer = first_of(value, *_ANSWER_KEYS)
    given = first_of(value, "mode") or ("act" if answer is None else "final")
    mode = given.strip().lower() if isinstance(given, str) else None
    thoughts = map(value.get, ("rationale", "thought", "think"))
    why = next((t for t in thoughts if isinstance(t, str) and t.strip()), None)
    if mode == "act":
        return Decision.act(_actions(value), rationale=why)
    if mode == "final":
        if answer is None:
            raise ParseError("mode 'final' needs 'final_answer'")
        return Decision.final(answer, rationale=why)
    if mode == "wait":
        return Decision.wait(rationale=why)
    raise ParseError(f"unknown mode {given!r:.80}, expected act, final, wait")


def _actions(value: dict[str, Any]) -> list[Action]:
    items = value.get("actions") or value.get("action")
    items = value if isinstance(items, str) else items
    items = [items] if isinstance(items, dict) else items
    if not isinstance(items, list) or not items:
        raise ParseError("mode 'act' needs 'actions', a list with at least one action")
    return [json_action(item, f"actions[{i}]") for i, item in enumerate(items)]


def _read_xml(text: str) -> tuple[Decision, int]:
    """The first ``<decision>`` in the text, or what belongs into one, standing alone."""
    found = _XML_DECISION.search(text)
    head, body = (found[1], found[2] or "") if found else ("", text)
    said = _XML_TEXT.findall(_XML_ACTION.sub("", body))
    value: dict[str, Any] = {name: unescape(what).strip() for name, what in said}
    value["actions"] = [
        {"name": unescape(name), "args": {unescape(k): unescape(v) for k, v in args}}
        for name, inner in _XML_ACTION.findall(body)
        for args in [_XML_ARG.findall(inner)]
    ]
    if found is None and not value["actions"] and first_of(value, *_ANSWER_KEYS) is None:
        raise ParseError('no <decision> in the reply, expected <decision mode="act">...</decision>')
    mode = re.search(r"""mode\s*=\s*["'](\w+)["']""", head)
    return _decision({**value, "mode": mode and mode[1]}), found.end() if found else len(text)


def give_types(decision: Decision, specs: list[ToolSpec]) -> None:
    """Read texts as the JSON that the tools' schemas want, where they want no text."""
    schemas = {spec.name: spec.arguments_schema().get("properties", {}) for spec in specs}
    for action in decision.actions:
        for name, value in action.args.items():
            schema = schemas.get(action.name, {}).get(name, {})
            kinds = [one.get("type", "string") for one in schema.get("anyOf", [schema])]
            if isinstance(value, str) and not any("string" in kind for kind in kinds):
                with suppress(ValueError, RecursionError):
                    action.args[name] = DECODER.decode(value.strip())


_PROTOCOLS = (
    Protocol("json_decision_v1", "one JSON object, for models good at it", _JSON_FORM, _read_json),
    Protocol(
        "native_tool_call_v1", "plain text answers, for servers with tool calls", None, _read_native
    ),
    Protocol(
        "react_text_v1", "labelled lines, for models without tool calls", _REACT_FORM, read_react
    ),
    Protocol("xml_decision_v1", "one XML element, for models good at it", _XML_FORM, _read_xml),
)
