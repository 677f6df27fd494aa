"""A model behind an OpenAI-compatible ``/chat/completions`` address."""

from __future__ import annotations

import json
import os
import re
import ssl
import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, ProxyHandler, Request, build_opener

from .. import __version__
from ..core._json import dumps
from ..core._limits import check_count, check_timeout
from ..engine._protocols import resolve_protocol
from ..engine._replies import ModelError, may_pass, objects, read_reply, server_error
from .base import Model

__all__ = ["OpenAICompatibleModel"]

_MAX_SHOWN, _FIRST_WAIT_S, _MAX_BACKOFF_S, _MAX_RETRY_AFTER_S = 300, 0.5, 8.0, 60.0
_URL = re.compile(
    r"https?://(\[[0-9A-Fa-f:.]+\]|[\w-]+(\.[\w-]+)*\.?)"
    r"""(:(?P<port>[0-9]{1,5}))?(/[!"$->@-~]*)?""",
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
        check_timeout(timeout)
        check_count(max_retries, "max_retries", least=0)
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL")
            api_key = os.environ.get("OPENAI_API_KEY") if api_key is None else api_key
        key = _checked_key(api_key)  # first: the error of an address shows the address
        self.model_id = model
        self.base_url = _checked_url(base_url)
        self.timeout_s = 60 if timeout is None else timeout
        self.max_retries = max_retries
        self._sleep = sleep
        self._url = f"{self.base_url}/chat/completions"
        # A proxy cannot reach the caller's own machine.
        local = urlsplit(self._url).hostname in ("localhost", "127.0.0.1", "::1")
        opener = build_opener(_AnyStatus(), *([ProxyHandler({})] if local else []))
        # In a closure, where no vars, repr, dump, copy or pickle shows the key.
        self._held = lambda: (opener, key)

    def __repr__(self) -> str:
        return f"OpenAICompatibleModel({self.model_id!r}, base_url={self.base_url!r})"

    def _call_api(self, messages: Sequence[dict[str, Any]], **options: Any) -> str:
        reply = read_reply(self.call_raw(messages, **options))
        calls = [(call.name, dumps(call.args)) for call in reply.tool_calls]
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
        opener, key = self._held()
        headers = {"Content-Type": "application/json", "User-Agent": f"qitos-min/{__version__}"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        try:
            request = Request(self._url, body, headers)
            with opener.open(request, timeout=self.timeout_s) as response:
                data = _read(response, end)
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
        return self._outcome(response, data)

    def _outcome(self, response: HTTPResponse, data: bytes) -> dict[str, Any] | _Failure:
        headers, status = response.headers, response.status
        wait_s = _retry_after(headers.get("Retry-After") or "")
        text = self._said(data.decode("utf-8", "replace"))
        if status >= 300:
            text = text or response.reason
            if status < 400:
                target = self._said(headers.get("Location") or "")
                text = f"redirects are not followed, this one leads to {target!r}"
            return _Failure(f"HTTP {status} from {self._url}: {text}", may_pass(status), wait_s)
        kind = headers.get("Content-Type") or "none"
        events = "event-stream" in kind or re.search(rb"^data:", data, re.MULTILINE)
        streamed = events and data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"[")
        try:
            found = _response_from_events(data) if streamed else json.loads(data)
        except (ValueError, RecursionError) as error:
            text = f"is {kind!r} and not JSON: {error}, it starts with {text!r}"
            return _Failure(f"the reply of {self._url} {text}")
        if streamed and found is None:
            return _Failure(f"the stream of {self._url} broke off", True, wait_s)
        if not isinstance(found, dict):
            return _Failure(f"the reply of {self._url} is {type(found).__name__}, not an object")
        text, passing = ("", False) if found.get("choices") else server_error(found)
        if not text:
            return found
        return _Failure(f"{self._url} answered with {self._said(text)}", passing, wait_s)

    def _said(self, text: str) -> str:
        """The start of a text, without the key."""
        key = self._held()[1]
        return (text.replace(key, "[api key]") if key else text).strip()[:_MAX_SHOWN]


class _Failure(NamedTuple):
    message: str
    retry: bool = False
    wait_s: float | None = None  # the seconds the server asked for


class _AnyStatus(HTTPErrorProcessor):
    """Every answer is a response: urllib would send the key on to where a redirect leads."""

    def http_response(self, request: Request, response: Any) -> Any:
        return response

    https_response = http_response


def _checked_key(key: object) -> str:
    """The key without surrounding blanks; the errors never show it."""
    if key is not None and not isinstance(key, str):
        raise ValueError(f"api_key must be text or None, got {type(key).__name__}")
    key = (key or "").strip()
    if key.isascii() and key.isprintable() and "://" not in key:
        return key
    raise ValueError(
        "api_key must be one line of printable ASCII; an address is given as base_url="
    )


def _checked_url(url: object) -> str:
    """``url`` without a trailing slash; the errors show no part that may be secret."""
    wrong = "base_url must be http(s)://host[:port][/path] without user, query or fragment"
    if url is None:
        raise ValueError(f"{wrong}; neither it nor OPENAI_BASE_URL is given")
    found = _URL.fullmatch(url) if isinstance(url, str) else None
    if found and 0 < int(found["port"] or 1) < 65536:
        return found[0].rstrip("/")
    got = repr(url) if isinstance(url, str) else type(url).__name__
    raise ValueError(wrong if re.search("[@?#]", got) else f"{wrong}, got {got}")


def _read(response: HTTPResponse, end: float) -> bytes:
    """The whole body; TimeoutError or IncompleteRead where it does not come."""
    data = bytearray()
    # read1 returns what is there, so that a dripping server meets the deadline.
    while chunk := response.read1(65536):
        data += chunk
        if time.monotonic() > end:
            raise TimeoutError
    declared = response.headers.get("Content-Length", "")
    if declared.isdecimal() and len(data) < int(declared):
        raise IncompleteRead(b"")
    return bytes(data)


def _retry_after(text: str) -> float | None:
    """The seconds in a Retry-After header (a number or an HTTP date), 0 to 60."""
    try:
        if re.fullmatch(r"\s*[0-9]+(\.[0-9]+)?\s*", text):
            wait_s = float(text)
        else:
            wait_s = parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(wait_s, 0.0), _MAX_RETRY_AFTER_S)


def _response_from_events(data: bytes) -> dict[str, Any] | None:
    """The response in the events of a server that streams unasked; None when it breaks off."""
    response: dict[str, Any] = {}
    done = False
    for line in re.findall(rb"^data:[ \t]*(\S.*)", data.replace(b"\r", b"\n"), re.MULTILINE):
        if done := line.strip() == b"[DONE]":
            break
        for chunk in objects(json.loads(line)):
            response = _joined(response, chunk)
    choices = objects(response.get("choices"))
    for choice in choices:
        choice["message"] = choice.pop("delta", choice.get("message"))
    done = done or any(choice.get("finish_reason") for choice in choices)
    if response.get("error"):
        return {"error": response["error"]}
    return response if done else None


def _joined(held: Any, new: Any, name: str = "") -> Any:
    """What two pieces of a value make: of texts, of objects, and of lists by their ``index``."""
    if isinstance(held, dict) and isinstance(new, dict):
        return held | {key: _joined(held.get(key), value, key) for key, value in new.items()}
    if name in ("choices", "tool_calls"):
        items = {item.get("index"): item for item in objects(held)}
        for item in objects(new):
            items[item.get("index")] = _joined(items.get(item.get("index")), item)
        return list(items.values())
    texts = isinstance(held, str) and isinstance(new, str)
    if texts and name in ("content", "arguments", "reasoning_content", "refusal"):
        return held + new
    return held if new is None else new
