"""A chat response put together from server-sent events, for servers that stream unasked."""

from __future__ import annotations

import json
import re
from typing import Any

from ..engine._replies import objects

__all__ = ["is_stream", "response_from_events"]


def is_stream(data: bytes, kind: str) -> bool:
    """Whether a body of the content type ``kind`` is a stream of events."""
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[")):
        return False
    return "event-stream" in kind or start.startswith((b"data:", b"event:", b": "))


def response_from_events(data: bytes) -> dict[str, Any] | None:
    """The response in the events, None when it breaks off; ValueError for what is not JSON."""
    response: dict[str, Any] = {}
    choice: dict[str, Any] = {"index": 0, "finish_reason": None}
    message: dict[str, Any] = {"role": "assistant"}
    lines = data.decode("utf-8-sig", "replace").replace("\r", "\n")
    for text in re.findall(r"^data:[ \t]*(\S.*)", lines, re.MULTILINE):
        if text.strip() == "[DONE]":
            choice["finish_reason"] = choice["finish_reason"] or "stop"
            break
        for chunk in objects(json.loads(text)):
            response |= {k: v for k, v in chunk.items() if k != "choices" and v is not None}
            for part in objects(chunk.get("choices")):
                if part.get("index") in (0, None):
                    kept = ("finish_reason", "usage", "error")
                    choice |= {k: part[k] for k in kept if part.get(k) is not None}
                    for delta in objects(part.get("delta") or part.get("message")):
                        _grow(message, delta)
    if response.get("error"):
        return response
    if choice["finish_reason"] is None:
        return None
    return {**response, "choices": [{**choice, "message": message}]}


def _grow(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add what a chunk brings: texts are joined, any other value replaces the one before."""
    for name, value in delta.items():
        held = message.get(name)
        if name == "tool_calls":
            for piece in objects(value):
                _grow_calls(message.setdefault(name, []), piece)
        elif isinstance(held, str) and isinstance(value, str) and name != "role":
            message[name] = held + value
        elif value is not None:
            message[name] = value


def _grow_calls(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """Add a piece to its call: its index, its id or its name tells it from the others."""
    place, own = piece.get("index"), piece.get("id")
    function = (objects(piece.get("function")) or [{}])[0]
    known = [call for call in calls if call["index"] == place and own in (None, "", call["id"])]
    if not known or (place is None and not own and function.get("name")):
        new = {"name": function.get("name"), "arguments": ""}
        known = [{"index": place, "id": own, "type": "function", "function": new}]
        calls += known
    if isinstance(function.get("arguments"), str):
        known[-1]["function"]["arguments"] += function["arguments"]
