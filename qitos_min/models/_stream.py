"""A chat response put together from server-sent events, for servers that stream unasked."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["is_stream", "response_from_events"]

_Object = dict[str, Any]


def is_stream(data: bytes, kind: str) -> bool:
    """Whether a body of the content type ``kind`` is a stream of events."""
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[")):
        return False
    return "event-stream" in kind or start.startswith((b"data:", b"event:", b": "))


def response_from_events(data: bytes) -> _Object | None:
    """The response in the events, None when it breaks off; ValueError for what is not JSON."""
    response: _Object = {}
    choice: _Object = {"index": 0, "finish_reason": None}
    message: _Object = {"role": "assistant"}
    calls: list[_Object] = []
    done = False
    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    for text in re.findall(r"^\ufeff?data:[ \t]*(\S.*)", lines, re.MULTILINE):
        if done := text.strip() == "[DONE]":
            break
        chunk = _object(json.loads(text))
        response |= {k: v for k, v in chunk.items() if k != "choices" and v is not None}
        for part in _objects(chunk.get("choices")):
            if part.get("index") in (0, None):
                kept = ("finish_reason", "usage", "error")
                choice |= {k: part[k] for k in kept if part.get(k) is not None}
                _take(_object(part.get("delta") or part.get("message")), message, calls)
    if calls:
        message["tool_calls"] = [{k: v for k, v in c.items() if k != "place"} for c in calls]
    if response.get("error"):
        return response
    if not done and choice["finish_reason"] is None:
        return None
    return {**response, "choices": [{**choice, "message": message}]}


def _object(value: object) -> _Object:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[_Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _take(delta: _Object, message: _Object, calls: list[_Object]) -> None:
    """Add what a chunk brings to the message and its calls."""
    _grow(message, {k: v for k, v in delta.items() if k not in ("role", "tool_calls")})
    for piece in _objects(delta.get("tool_calls")):
        place, call_id = piece.get("index"), piece.get("id")
        function = _object(piece.get("function"))
        # Its index, its id or its name tells a call from the others.
        known = [
            call
            for call in calls
            if call["place"] == place and (not call_id or call.get("id") in (None, call_id))
        ]
        if not known or (place is None and not call_id and function.get("name")):
            known = [{"place": place, "type": "function", "function": {}}]
            calls += known
        known[-1].update({key: piece[key] for key in ("id", "type") if piece.get(key)})
        _grow(known[-1]["function"], function)


def _grow(target: _Object, pieces: _Object) -> None:
    """Join texts and lists of pieces; any other value replaces the one before."""
    for name, value in pieces.items():
        held = target.get(name)
        joins = type(held) is type(value) and isinstance(value, (str, list))
        # A name comes whole: servers that repeat it mean the same call.
        if joins and not (name == "name" and held == value):
            target[name] = held + value
        elif value is not None:
            target[name] = value
