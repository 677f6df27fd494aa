"""A model behind an OpenAI-compatible ``/chat/completions`` address."""

from __future__ import annotations

import json
import math
import os
import re
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from .. import __version__
from ..core._json import dumps
from ..engine._protocols import resolve_protocol
from ..engine._replies import ModelError, read_reply, server_error
from ._stream import is_stream, response_from_events
from .base import Model

__all__ = ["OpenAICompatibleModel"]

_MAX_REPLY, _MAX_ERROR, _MAX_SHOWN = 16 * 1024 * 1024, 64 * 1024, 300
_FIRST_WAIT_S, _MAX_BACKOFF_S, _MAX_RETRY_AFTER_S = 0.5, 8.0, 60.0
_URL = re.compile(
    r"https?://(\[[0-9A-Fa-f:.]+\]|[\w-]+(\.[\w-]+)*\.?)(:(?P<port>[0-9]{1,5}))?(/[!-~]*)?",
    re.ASCII,
)


class OpenAICompatibleModel(Model):
    """A chat model: calling it gives text, ``call_raw`` the whole chat response.

    Without ``base_url`` the environment's OPENAI_BASE_URL and OPENAI_API_KEY are taken.
    ``system_prompt`` stands before messages that begin with none. ``timeout`` (or
    ``timeout_s``) bounds one attempt in seconds; 408, 429, 5xx, timeouts and broken
    connections are tried again ``max_retries`` times, after the server's ``Retry-After``
    (at most 60 s) or a growing pause, waited with ``sleep``. No attribute holds the key, and
    no redirect is followed. Raises ValueError for an argument that cannot work.
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
        timeout = timeout if timeout_s is None else timeout_s
        if type(timeout) not in (int, float) or not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be seconds above 0, got {timeout!r}")
        if type(max_retries) is not int or max_retries < 0:
            raise ValueError(f"max_retries must be an int >= 0, got {max_retries!r}")
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL")
            api_key = os.environ.get("OPENAI_API_KEY") if api_key is None else api_key
        key = _checked_key(api_key)  # first: the error of an address shows the address
        self.model_id = model
        self.base_url = _checked_url(base_url)
        self.timeout_s = timeout
        self.max_retries = max_retries
        self._sleep = sleep
        self._url = f"{self.base_url}/chat/completions"
        self._send, self._said = _keyed(key, self._url)

    def __repr__(self) -> str:
        return f"OpenAICompatibleModel({self.model_id!r}, base_url={self.base_url!r})"

    def _call_api(self, messages: Sequence[dict[str, Any]], **options: Any) -> str:
        reply = read_reply(self.call_raw(messages, **options))
        calls = [
            (call.name, call.args if isinstance(call.args, str) else dumps(call.args))
            for call in reply.tool_calls
        ]
        texts = (reply.text, resolve_protocol("react_text_v1").write(calls))
        return "\n".join(text for text in texts if text)

    def call_raw(self, messages: Sequence[dict[str, Any]], **options: Any) -> dict[str, Any]:
        """The response to ``messages``; ``options`` such as ``tools`` join the request.

        Raises ModelError when no attempt gives a usable response.
        """
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

    def _attempt(self, body: bytes) -> dict[str, Any] | _Failure:
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

    def _decoded(self, data: bytes, kind: str, wait_s: float | None) -> dict[str, Any] | _Failure:
        streamed = is_stream(data, kind)
        try:
            response = response_from_events(data) if streamed else json.loads(data)
        except (ValueError, RecursionError) as error:
            known = "json" in kind or streamed
            why = error if known else f"its content type is {self._said(kind)!r}"
            start = self._said(data.decode("utf-8", "replace"))
            text = f"the reply of {self._url} is not JSON: {why}, it starts with {start!r}"
            return _Failure(text)
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
        """What an HTTP status other than success means, with ``error.message`` or the body."""
        try:
            body = _read(error, end, _MAX_ERROR) or b""
        except (OSError, HTTPException):
            body = b""
        try:
            value = json.loads(body)
            value = value.get("error", value) if isinstance(value, dict) else value
            found = value.get("message") if isinstance(value, dict) else value
            said = found if isinstance(found, str) else dumps(value)
        except (ValueError, RecursionError):
            said = body.decode("utf-8", "replace")
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


def _keyed(
    key: str | None, url: str
) -> tuple[Callable[[bytes, float], HTTPResponse], Callable[[str], str]]:
    """A function that sends a request, and one for the start of a text without the key.

    The key lives in their closure only, where no ``vars``, repr, dump, copy or pickle shows it.
    """
    # A proxy cannot reach the caller's own machine.
    local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    opener = build_opener(_NoRedirect(), *([ProxyHandler({})] if local else []))
    headers = {"Content-Type": "application/json", "User-Agent": f"qitos-min/{__version__}"}

    def send(body: bytes, timeout_s: float) -> HTTPResponse:
        request = Request(url, body, headers)
        if key:
            request.add_unredirected_header("Authorization", f"Bearer {key}")
        response: HTTPResponse = opener.open(request, timeout=timeout_s)
        return response

    def said(text: str) -> str:
        return (text.replace(key, "[api key]") if key else text).strip()[:_MAX_SHOWN]

    return send, said


def _checked_key(key: object) -> str | None:
    """The key without surrounding blanks; the errors never show it."""
    if key is not None and not isinstance(key, str):
        raise ValueError(f"api_key must be text or None, got {type(key).__name__}")
    key = (key or "").strip()
    if not key.isascii() or (key and not key.isprintable()):
        raise ValueError("api_key must be one line of printable ASCII characters")
    if key.startswith(("http://", "https://")):
        raise ValueError("api_key is an address; give that as base_url=")
    return key or None


def _checked_url(url: object) -> str:
    """``url`` without a trailing slash; the errors show no part that may be secret."""
    wrong = "base_url must be http(s)://host[:port][/path]"
    if url is None:
        raise ValueError(f"{wrong}; neither it nor OPENAI_BASE_URL is given")
    if not isinstance(url, str):
        raise ValueError(f"{wrong}, got {type(url).__name__}")
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise ValueError(f"{wrong} without a user name or password, use api_key")
    if "?" in url or "#" in url:
        raise ValueError(f"{wrong} without a query or fragment")
    found = _URL.fullmatch(url)
    if found is None or not 0 < int(found["port"] or 1) < 65536:
        raise ValueError(wrong if "@" in url else f"{wrong}, got {url!r}")
    return url.rstrip("/")


def _read(response: HTTPResponse | HTTPError, end: float, limit: int) -> bytes | None:
    """The body; None if longer than ``limit``. Raises TimeoutError and IncompleteRead."""
    declared = response.headers.get("Content-Length", "")
    expected = int(declared) if re.fullmatch("[0-9]{1,15}", declared) else 0
    if expected > limit:
        return None
    data = bytearray()
    # read1 returns what is there, so that a dripping server meets the deadline.
    while chunk := response.read1(65536):
        data += chunk
        if len(data) > limit:
            return None
        if time.monotonic() > end and len(data) != expected:
            raise TimeoutError
    if len(data) < expected:
        raise IncompleteRead(b"", expected - len(data))
    return bytes(data)


def _retry_after(text: str | None) -> float | None:
    """The seconds in a Retry-After header (a number or an HTTP date), 0 to 60."""
    if re.fullmatch(r"\s*[0-9]+(\.[0-9]+)?\s*", text or ""):
        return min(float(text or 0), _MAX_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(text or "")
    except (TypeError, ValueError, OverflowError):
        return None
    now = datetime.now(timezone.utc)
    wait = (moment.replace(tzinfo=moment.tzinfo or timezone.utc) - now).total_seconds()
    return min(max(wait, 0.0), _MAX_RETRY_AFTER_S)
