"""A chat response put together from server-sent events, for servers that stream unasked."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["is_stream", "response_from_events"]


def is_stream(data: bytes, kind: str) -> bool:
    """Whether a body of the content type ``kind`` is a stream of events."""
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[")):
        return False
    return "event-stream" in kind or start.startswith((b"data:", b"event:", b": "))


def response_from_events(data: bytes) -> dict[str, Any] | None:
    """The response that the events add up to; None when they end before it does.

    Raises ValueError for an event whose data is not JSON.
    """
    response: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant"}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": None}
    calls: list[dict[str, Any]] = []
    done = False
    for text in _events(data):
        if text == "[DONE]":
            done = True
            break
        chunk = json.loads(text)
        if not isinstance(chunk, dict):
            continue
        response |= {k: v for k, v in chunk.items() if k != "choices" and v is not None}
        choices = chunk.get("choices")
        for part in choices if isinstance(choices, list) else ():
            if isinstance(part, dict) and part.get("index") in (0, None):
                _take(part, choice, message, calls)
    if calls:
        message["tool_calls"] = [_whole(call) for call in calls]
    if response.get("error"):
        return response
    if not done and choice["finish_reason"] is None:
        return None
    return {**response, "choices": [choice]}


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
        if len(lines) > 1 and all(line[:1] in ("{", "[") for line in lines):
            found += lines
        elif lines:
            found.append("\n".join(lines))
    return [event.strip() for event in found if event.strip()]


def _take(
    part: dict[str, Any],
    choice: dict[str, Any],
    message: dict[str, Any],
    calls: list[dict[str, Any]],
) -> None:
    """Add one choice of a chunk to the response's."""
    for name in ("finish_reason", "usage", "error"):
        if part.get(name) is not None:
            choice[name] = part[name]
    found = part.get("delta") or part.get("message") or {"content": part.get("text")}
    if not isinstance(found, dict):
        return
    for name, value in found.items():
        if name == "tool_calls":
            for piece in value if isinstance(value, list) else ():
                if isinstance(piece, dict):
                    _take_call(piece, calls)
        elif name == "function_call" and isinstance(value, dict):
            _grow(message.setdefault(name, {}), value)
        elif name != "role":
            _grow(message, {name: value})


def _take_call(piece: dict[str, Any], calls: list[dict[str, Any]]) -> None:
    """Add a piece of a call, which its index, its id or its name tells from the others."""
    place, call_id = piece.get("index"), piece.get("id")
    function = piece.get("function")
    function = function if isinstance(function, dict) else {}
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


def _grow(target: dict[str, Any], pieces: dict[str, Any]) -> None:
    """Join texts and lists of pieces; any other value replaces the one before."""
    for name, value in pieces.items():
        held = target.get(name)
        joins = type(held) is type(value) and isinstance(value, (str, list))
        # A name comes whole: servers that repeat it mean the same call.
        if joins and not (name == "name" and held == value):
            target[name] = held + value
        elif value is not None:
            target[name] = value


def _whole(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", **{k: v for k, v in call.items() if k != "place"}}
