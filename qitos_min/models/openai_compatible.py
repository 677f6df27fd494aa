"""A model behind an OpenAI-compatible ``/chat/completions`` address."""

from __future__ import annotations

import json
import math
import os
import re
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPException, IncompleteRead
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from .. import __version__
from ..core._contract import check_count, is_number
from ..core._json import dumps
from ..engine._protocols import resolve_protocol
from ..engine._replies import ModelError, read_reply, server_error
from .base import Model

_Object = dict[str, Any]
_MAX_REPLY, _MAX_ERROR, _MAX_SHOWN = 16 * 1024 * 1024, 64 * 1024, 300
_FIRST_WAIT_S, _MAX_BACKOFF_S, _MAX_RETRY_AFTER_S = 0.5, 8.0, 60.0
_HOST = r"\[[0-9A-Fa-f:.]+\]|[\w-]+(\.[\w-]+)*\.?"
_URL = re.compile(rf"https?://({_HOST})(:(?P<port>[0-9]{{1,5}}))?(/[\w!$%-.:;=@~/]*)?", re.ASCII)


class OpenAICompatibleModel(Model):
    """A chat model: calling it gives text, ``call_raw`` the whole chat response.

    Without ``base_url`` the environment's OPENAI_BASE_URL and OPENAI_API_KEY are taken.
    ``system_prompt`` stands before messages that begin with none. ``timeout`` (``timeout_s``) is
    seconds for one attempt; 408, 429, 5xx, timeouts and broken connections are tried again
    ``max_retries`` times, after the server's ``Retry-After`` (at most 60 s) or a growing pause. No
    attribute holds the key, no redirect is followed. ValueError for what cannot work.
    """

    def __init__(
        self,
        model: str = "default",
        api_key: str | None = None,
        base_url: str | None = None,
        system_prompt: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout: float = 60,
        max_retries: int = 2,
        *,
        context_window: int | None = None,
        timeout_s: float | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(model, system_prompt, temperature, max_tokens, context_window)
        if not isinstance(model, str) or not model.strip():
            raise ValueError(f"model must be a name, got {model!r}")
        self.model_id, self._sleep = model, sleep
        self.timeout_s = timeout if timeout_s is None else timeout_s
        if not (is_number(self.timeout_s) and 0 < self.timeout_s < math.inf):
            raise ValueError(f"timeout must be seconds above 0, got {self.timeout_s!r}")
        check_count(max_retries, "max_retries", least=0)
        self.max_retries = max_retries
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL")
            api_key = os.environ.get("OPENAI_API_KEY") if api_key is None else api_key
        key = _checked_key(api_key)  # first: the error of an address shows the address
        self.base_url = _checked_url(base_url)
        self._url = f"{self.base_url}/chat/completions"
        self._send, self._said = _keyed(key, self._url)

    def __repr__(self) -> str:
        return f"OpenAICompatibleModel({self.model_id!r}, base_url={self.base_url!r})"

    def _call_api(self, messages: Sequence[_Object], **options: Any) -> str:
        reply = read_reply(self.call_raw(messages, **options))
        called = [(call.name, call.args) for call in reply.tool_calls]
        calls = [(name, args if isinstance(args, str) else dumps(args)) for name, args in called]
        texts = (reply.text, resolve_protocol("react_text_v1").write(calls))
        return "\n".join(text for text in texts if text)

    def call_raw(self, messages: Sequence[_Object], **options: Any) -> _Object:
        """The response to ``messages`` and ``options`` such as ``tools``, or a ModelError."""
        messages = list(messages)
        if self.system_prompt and not (messages and messages[0].get("role") == "system"):
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        given = {"temperature": self.temperature, "max_tokens": self.max_tokens, **options}
        sent = {name: value for name, value in given.items() if value not in (None, [])}
        body = dumps({"model": self.model_id, "messages": messages, **sent}).encode("utf-8")
        attempt = 0
        while not isinstance(outcome := self._attempt(body), dict):
            if not outcome.retry or attempt == self.max_retries:
                tries = f" ({attempt + 1} attempts)" if attempt else ""
                # Outside every handler: a chained error of urllib quotes the server.
                raise ModelError(outcome.message + tries)
            backoff = min(_FIRST_WAIT_S * 2**attempt, _MAX_BACKOFF_S)
            self._sleep(backoff if outcome.wait_s is None else outcome.wait_s)
            attempt += 1
        return outcome

    def _attempt(self, body: bytes) -> _Object | _Failure:
        end = time.monotonic() + self.timeout_s
        try:
            with self._send(body, self.timeout_s) as response:
                data = _read(response, end, _MAX_REPLY)
                kind = response.headers.get("Content-Type") or "none"
                wait_s = _retry_after(response.headers.get("Retry-After"))
        except HTTPError as error:
            with error:
                return self._refused(error, end)
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, ssl.SSLError):
                return _Failure(f"TLS with {self._url} failed: {reason}")
            if isinstance(reason, TimeoutError):
                text = f"no complete reply from {self._url} within {self.timeout_s} s"
            elif isinstance(error, URLError):
                text = f"no connection to {self._url}: {reason}"
            else:  # Only the name: the text of an error of http.client quotes the server.
                text = f"the connection to {self._url} broke: {type(reason).__name__}"
            return _Failure(text, retry=True)
        if data is None:
            return _Failure(f"the reply of {self._url} exceeds {_MAX_REPLY} bytes")
        return self._decoded(data, kind, wait_s)

    def _decoded(self, data: bytes, kind: str, wait_s: float | None) -> _Object | _Failure:
        start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
        streamed = "event-stream" in kind or start.startswith((b"data:", b"event:", b": "))
        streamed = streamed and not start.startswith((b"{", b"["))
        try:
            response = _from_events(data) if streamed else json.loads(data)
        except (ValueError, RecursionError) as error:
            known = "json" in kind or streamed
            why = error if known else f"its content type is {self._said(kind)!r}"
            said = self._said(data.decode("utf-8", "replace"))
            return _Failure(f"the reply of {self._url} is not JSON: {why}, it starts with {said!r}")
        if streamed and response is None:
            return _Failure(f"the stream of {self._url} broke off", True, wait_s)
        if not isinstance(response, dict):
            kind = type(response).__name__
            return _Failure(f"the reply of {self._url} is {kind}, expected an object")
        found = None if response.get("choices") else server_error(response)
        if found is None:
            return response
        status = f" {found.status}" if found.status else ""
        said = f"{self._url} answered with an error{status}: {self._said(found.message)}"
        return _Failure(said, found.passing, wait_s)

    def _refused(self, error: HTTPError, end: float) -> _Failure:
        """What an HTTP status other than success means, with the server's words."""
        body = b""
        with suppress(OSError, HTTPException):
            body = _read(error, end, _MAX_ERROR) or b""
        said = body.decode("utf-8", "replace")
        with suppress(ValueError, RecursionError):
            found = server_error(_object(json.loads(body)))
            said = found.message if found else said
        said = self._said(said or str(error.reason) or "no message")
        if 300 <= error.code < 400:
            target = self._said(error.headers.get("Location") or "")
            said = f"redirects are not followed, this one leads to {target!r}"
        passing = error.code in (408, 429) or error.code >= 500
        wait_s = _retry_after(error.headers.get("Retry-After"))
        return _Failure(f"HTTP {error.code} from {self._url}: {said}", passing, wait_s)


class _Failure(NamedTuple):
    message: str
    retry: bool = False
    wait_s: float | None = None  # the seconds the server asked for


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """Never: urllib would send the headers, and so the key, to the new address."""


def _keyed(key: str | None, url: str) -> tuple[Callable[..., Any], Callable[[str], str]]:
    """A function that sends a request, and one for the start of a text without the key.

    The key is in their closure only, where no ``vars``, repr, dump, copy or pickle shows it.
    """
    # A proxy cannot reach the caller's own machine.
    local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    opener = build_opener(_NoRedirect(), *([ProxyHandler({})] if local else []))
    headers = {"Content-Type": "application/json", "User-Agent": f"qitos-min/{__version__}"}

    def send(body: bytes, timeout_s: float) -> Any:
        request = Request(url, body, headers)
        if key:
            request.add_unredirected_header("Authorization", f"Bearer {key}")
        return opener.open(request, timeout=timeout_s)

    def said(text: str) -> str:
        return (text.replace(key, "[api key]") if key else text).strip()[:_MAX_SHOWN]

    return send, said


def _checked_key(key: object) -> str | None:
    """The key without surrounding blanks; the errors never show it."""
    if key is not None and not isinstance(key, str):
        raise ValueError(f"api_key must be text or None, got {type(key).__name__}")
    key = (key or "").strip()
    if key and not (key.isascii() and key.isprintable() and "://" not in key):
        raise ValueError("api_key must be one line of printable ASCII characters, and no address")
    return key or None


def _checked_url(url: object) -> str:
    """``url`` without a trailing slash; the errors show no part that may be secret."""
    found = _URL.fullmatch(url) if isinstance(url, str) else None
    if found and 0 < int(found["port"] or 1) < 65536:
        return found[0].rstrip("/")
    wrong = f", got {url!r}" if isinstance(url, str) else f", got {type(url).__name__}"
    if url is None:
        wrong = "; neither it nor OPENAI_BASE_URL is given"
    elif isinstance(url, str) and {"@", "?", "#"} & {*url}:
        wrong = " without user name, password, query or fragment"
    raise ValueError(f"base_url must be http(s)://host[:port][/path]{wrong}")


def _read(response: Any, end: float, limit: int) -> bytes | None:
    """The body; None if longer than ``limit``. Raises TimeoutError and IncompleteRead."""
    data = bytearray()
    # read1 returns what is there, so that a dripping server meets the deadline.
    while chunk := response.read1(65536):
        data += chunk
        if len(data) > limit:
            return None
        if time.monotonic() > end and response.length != 0:
            raise TimeoutError
    if response.length:  # What was declared and did not come.
        raise IncompleteRead(b"", response.length)
    return bytes(data)


def _retry_after(text: str | None) -> float | None:
    """The seconds in a Retry-After header (a number or an HTTP date), 0 to 60."""
    if found := re.fullmatch(r"\s*([0-9]+(\.[0-9]+)?)\s*", text or ""):
        return min(float(found[1]), _MAX_RETRY_AFTER_S)
    try:
        wait = parsedate_to_datetime(text or "").timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(wait, 0.0), _MAX_RETRY_AFTER_S)


def _from_events(data: bytes) -> _Object | None:
    """The response that a server streams unasked, None when it breaks off, else ValueError."""
    response: _Object = {}
    choice: _Object = {"index": 0, "finish_reason": None}
    message: _Object = {"role": "assistant"}
    calls: list[tuple[Any, _Object]] = []  # Each with its index.
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
        message["tool_calls"] = [call for _, call in calls]
    if response.get("error"):
        return response
    if not done and choice["finish_reason"] is None:
        return None
    return {**response, "choices": [{**choice, "message": message}]}


def _object(value: object) -> _Object:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[_Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _take(delta: _Object, message: _Object, calls: list[tuple[Any, _Object]]) -> None:
    _grow(message, {k: v for k, v in delta.items() if k not in ("role", "tool_calls")})
    for piece in _objects(delta.get("tool_calls")):
        place, call_id = piece.get("index"), piece.get("id")
        function, ids = _object(piece.get("function")), (None, call_id)
        # Its index, its id or its name tells a call from the others.
        same = [call for at, call in calls if at == place]
        same = [call for call in same if not call_id or call.get("id") in ids]
        if not same or (place is None and not call_id and function.get("name")):
            same = [{"type": "function", "function": {}}]
            calls.append((place, same[0]))
        same[-1].update({key: piece[key] for key in ("id", "type") if piece.get(key)})
        _grow(same[-1]["function"], function)


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
