"""A scripted chat-completions server on loopback, as strict as the strictest real one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, NamedTuple

from chat_rules import broken_rule

__all__ = ["DROP", "STALL", "ModelServer", "Reply", "Request", "chat"]


class Request(NamedTuple):
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    """By lower-case name."""
    body: Any
    """The JSON value of the body."""


@dataclass(frozen=True)
class Reply:
    """One answer: a status, headers and a body (bytes, text, or a value for JSON)."""

    body: object = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    """How many declared bytes of the body are never sent."""
    stall: bool = False
    """Whether the connection then stays open until the server is closed."""
    drip_s: float = 0.0
    """The pause after each byte of the body, in seconds."""


DROP = Reply(status=0)
"""The connection is closed without an answer."""
STALL = Reply(status=-1)
"""No answer until the server is closed."""


def chat(
    text: str | None = None,
    calls: Sequence[tuple[str, object]] = (),
    usage: tuple[int, int] = (10, 5),
) -> dict[str, Any]:
    """A chat response with a text and tool calls, given as (name, arguments)."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{index}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": args if isinstance(args, str) else json.dumps(args),
                },
            }
            for index, (name, args) in enumerate(calls)
        ]
    sent, received = usage
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": sent,
            "completion_tokens": received,
            "total_tokens": sent + received,
        },
    }


class ModelServer:
    """``with ModelServer(replies) as server``: one reply per request, in order.

    A reply is a text (sent as a chat response), a dict (sent as JSON) or a ``Reply``.
    ``base_url`` is the address for a model, ``requests`` what was asked. Leaving the
    block fails when replies are left or were too few, or when a request broke a rule:
    such a request gets status 400 and no reply of the script.
    """

    def __init__(self, replies: Sequence[str | dict[str, Any] | Reply]) -> None:
        self.requests: list[Request] = []
        self.refused: list[str] = []
        self._replies = [_as_reply(reply) for reply in replies]
        self._lock = threading.Lock()
        self._closing = threading.Event()
        # The plain TCP server: the HTTP one looks up the host's name, which is slow.
        self._server = ThreadingTCPServer(("127.0.0.1", 0), _Handler)
        self._server.script = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        if kind is None:
            assert self.refused == []
            asked, scripted = len(self.requests), len(self._replies)
            assert asked == scripted, f"{asked} requests for {scripted} replies"

    def next_reply(self, request: Request) -> Reply:
        """Record a request and give its reply; 418 when the script is over."""
        problem = broken_rule(request.body)
        with self._lock:
            if problem is not None:
                self.refused.append(problem)
                return Reply({"error": {"message": problem}}, 400)
            self.requests.append(request)
            index = len(self.requests) - 1
        if index < len(self._replies):
            return self._replies[index]
        return Reply("no reply is left in the script", 418)

    def wait_closed(self) -> None:
        """Return when the server is being closed."""
        self._closing.wait()


def _as_reply(reply: str | dict[str, Any] | Reply) -> Reply:
    if isinstance(reply, Reply):
        return reply
    return Reply(chat(reply) if isinstance(reply, str) else reply)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        script: ModelServer = self.server.script  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = script.next_reply(Request(self.path, headers, json.loads(body)))
        if reply is STALL:
            script.wait_closed()
        elif reply is not DROP:
            # A client may hang up on a reply that it does not want.
            try:
                self._answer(reply)
            except ConnectionError:
                self.close_connection = True

    def _answer(self, reply: Reply) -> None:
        body = reply.body
        kind = "application/json"
        if isinstance(body, str):
            body, kind = body.encode("utf-8"), "text/plain; charset=utf-8"
        elif not isinstance(body, bytes):
            body = json.dumps(body).encode("utf-8")
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body) + reply.missing),
            **reply.headers,
        }
        self.send_response(reply.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        pieces = (
            [body] if not reply.drip_s else [body[i : i + 1] for i in range(len(body))]
        )
        for piece in pieces:
            self.wfile.write(piece)
            time.sleep(reply.drip_s)
        if reply.stall:
            self.server.script.wait_closed()  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests stay quiet."""
