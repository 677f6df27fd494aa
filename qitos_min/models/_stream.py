"""A chat response put together from server-sent events, for servers that stream unasked."""

from __future__ import annotations

import json
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
    """The response that the events add up to; None when they end before it does.

    Raises ValueError for an event whose data is not JSON.
    """
    response: _Object = {}
    message: _Object = {"role": "assistant"}
    choice: _Object = {"index": 0, "message": message, "finish_reason": None}
    calls: list[_Object] = []
    done = False
    for text in _events(data):
        if done := text == "[DONE]":
            break
        chunk = _object(json.loads(text))
        response |= {k: v for k, v in chunk.items() if k != "choices" and v is not None}
        for part in _objects(chunk.get("choices")):
            if part.get("index") in (0, None):
                _take(part, choice, calls)
    if calls:
        kept = [{k: v for k, v in call.items() if k != "place"} for call in calls]
        message["tool_calls"] = [{"type": "function", **call} for call in kept]
    if response.get("error"):
        return response
    if not done and choice["finish_reason"] is None:
        return None
    return {**response, "choices": [choice]}


def _object(value: object) -> _Object:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[_Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _events(data: bytes) -> list[str]:
    """The data of each event; comments and the other fields mean nothing here."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    found: list[str] = []
    for block in text.replace("\r", "\n").split("\n\n"):
        lines = [
            line.removeprefix("data:").removeprefix(" ")
            for line in block.split("\n")
            if line.startswith("data:")
        ]
        # Some servers leave out the empty line between events of one line each.
        whole = len(lines) > 1 and all(line[:1] in ("{", "[") for line in lines)
        found += lines if whole else ["\n".join(lines)]
    return [event.strip() for event in found if event.strip()]


def _take(part: _Object, choice: _Object, calls: list[_Object]) -> None:
    """Add one choice of a chunk to the response's."""
    for name in ("finish_reason", "usage", "error"):
        if part.get(name) is not None:
            choice[name] = part[name]
    message = choice["message"]
    found = part.get("delta") or part.get("message") or {"content": part.get("text")}
    for name, value in _object(found).items():
        if name == "tool_calls":
            for piece in _objects(value):
                _take_call(piece, calls)
        elif name == "function_call" and isinstance(value, dict):
            _grow(message.setdefault(name, {}), value)
        elif name != "role":
            _grow(message, {name: value})


def _take_call(piece: _Object, calls: list[_Object]) -> None:
    """Add a piece of a call, which its index, its id or its name tells from the others."""
    place, call_id = piece.get("index"), piece.get("id")
    function = _object(piece.get("function"))
    known = [
        call
        for call in calls
        if call["place"] == place and (not call_id or call.get("id") in (None, call_id))
    ]
    if not known or (place is None and not call_id and function.get("name")):
        known = [{"place": place, "function": {}}]
        calls += known
    call = known[-1]
    call |= {key: piece[key] for key in ("id", "type") if piece.get(key)}
    _grow(call["function"], function)


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
