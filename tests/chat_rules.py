"""What the strictest chat servers ask of a request, by what is known of them.

One checker for the scripted server and for the scripted models, so that every request
of every model test is looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["assert_accepted", "broken_rule"]

_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")
ARRAYS_NEED_ITEMS = True
"""Gemini and OpenAI refuse an array schema without items."""


def assert_accepted(messages: Any, tools: Any = None) -> None:
    """Fail when a server would refuse these messages and tools."""
    body = {"messages": messages, **({} if tools is None else {"tools": tools})}
    problem = broken_rule(body)
    assert problem is None, f"{problem}: {json.dumps(messages, indent=1)}"


def broken_rule(body: Any) -> str | None:
    """The first rule that a request breaks, or None."""
    try:
        json.dumps(body, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError) as error:
        return f"not JSON: {error}"
    messages, tools = body.get("messages"), body.get("tools")
    if not isinstance(messages, list) or not messages:
        return "no messages"
    problems = (*_shape(messages), *_order(messages), *_pairs(messages), *_tools(tools))
    if not problems and tools is None and any(m.get("tool_calls") for m in messages):
        return "calls in a request without tools"  # Anthropic refuses them
    return next(iter(problems), None)


def _shape(messages: list[dict[str, Any]]) -> Iterator[str]:
    for place, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        where = f"messages[{place}] ({role})"
        if role not in ("system", "user", "assistant", "tool"):
            yield f"{where}: unknown role"
        if role == "system" and place:
            yield f"{where}: a system message behind the first"  # Qwen and Anthropic take one
        if "tool_calls" in message and (role != "assistant" or not message["tool_calls"]):
            yield f"{where}: empty tool_calls, or not the assistant's"
        if content is None and message.get("tool_calls"):
            continue
        if not isinstance(content, str) or not content.strip():
            yield f"{where}: content {content!r}"  # Anthropic refuses empty text


def _order(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Mistral's template: user and assistant in turns, calls and results aside."""
    turns = [m["role"] for m in messages if m["role"] != "system"]
    if turns[:1] != ["user"]:
        yield f"a user speaks first, got {turns[:1]}"
    if turns and turns[-1] not in ("user", "tool"):
        yield f"a user or a tool speaks last, got {turns[-1]}"
    if any(pair == ("tool", "user") for pair in zip(turns, turns[1:])):
        yield f"a user behind a tool: {turns}"
    plain = [
        m["role"]
        for m in messages
        if m["role"] in ("user", "assistant") and not m.get("tool_calls")
    ]
    expected = ["user", "assistant"] * len(plain)
    if plain != expected[: len(plain)]:
        yield f"roles do not alternate: {plain}"


def _pairs(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Every call has its result directly behind it; ids are unique."""
    seen: set[str] = set()
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if message["role"] == "tool":
            yield f"a result without its call: {message}"
        wanted = []
        for call in message.get("tool_calls") or ():
            call_id, function = call.get("id"), call.get("function", {})
            if call.get("type") != "function" or not _NAME.fullmatch(function.get("name", "")):
                yield f"call {call}"
            if not isinstance(json.loads(function.get("arguments", "null")), dict):
                yield f"arguments of {call}"
            if not call_id or call_id in seen:
                yield f"id {call_id!r} is missing or not unique"
            seen.add(call_id)
            wanted.append(call_id)
        given = []
        while wanted and place < len(messages) and messages[place]["role"] == "tool":
            given.append(messages[place].get("tool_call_id"))
            place += 1
        if given != wanted:
            yield f"calls {wanted} are followed by the results of {given}"


def _tools(tools: Any) -> Iterator[str]:
    if tools is None:
        return
    names = [tool.get("function", {}).get("name") for tool in tools]
    if not names or len(set(names)) < len(names):
        yield f"no tools, or names twice: {names}"
    for tool, name in zip(tools, names):
        if tool.get("type") != "function" or not _NAME.fullmatch(name or ""):
            yield f"tool {tool}"
        schema = tool.get("function", {}).get("parameters")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            yield f"parameters of {name!r}: {schema}"
        if ARRAYS_NEED_ITEMS and not _arrays_have_items(schema):
            yield f"an array without items in {name!r}: {schema}"


def _arrays_have_items(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(map(_arrays_have_items, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "array" and "items" not in schema:
        return False
    return all(map(_arrays_have_items, schema.values()))
