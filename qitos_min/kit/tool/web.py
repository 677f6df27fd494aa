"""Tools for the web: fetch a page, and take the text out of it."""

# mypy: disable-error-code="override"

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ...core import BaseTool, ToolPermission, ToolResult

_Texts = dict[str, str] | None
_Values = dict[str, Any] | None
_MOST_BYTES = 2_000_000
_WEB = re.compile(r"https?://([^/?#\[\]]|\[[0-9a-f:.]+\])", re.IGNORECASE)
_INLINE = frozenset(
    "abbr b cite code del em font i ins kbd mark q s small strong sub sup u wbr".split()
)
_SILENT = frozenset({"script", "style", "noscript", "template"})


class HTTPGet(BaseTool):
    """Gets a page by HTTP or HTTPS; one of more than 2,000,000 bytes is cut.

    ``timeout`` is seconds of a whole request, ``max_retries`` are for connections that fail.
    """

    name = "http_get"
    description = "Get a web page and return its status, headers and text."
    permissions = ToolPermission(network=True)
    read_only = True

    def __init__(self, headers: _Texts = None, timeout: float = 30, max_retries: int = 2) -> None:
        self._headers = {"User-Agent": "qitos-min", **(headers or {})}
        self._timeout, self._tries = timeout, 1 + max(max_retries, 0)
        super().__init__()

    def run(self, url: str, params: _Values = None, headers: _Texts = None) -> ToolResult:
        """Get one page, whose address begins with http:// or https://; ``params`` join it."""
        text = f"url must begin with http:// or https://, got {url!r}"
        if not _WEB.match(url):
            return ToolResult.semantic_error(code="invalid_url", error=text)
        if params:
            url += ("&" if urlsplit(url).query else "?") + urlencode(params, doseq=True)
        request = Request(url, headers={**self._headers, **(headers or {})})
        for _ in range(self._tries):
            try:
                return ToolResult(output=_fetched(request, self._timeout))
            except HTTPError as error:
                error.close()
                text = f"HTTP {error.code} from {url}: {error.reason}"
                output = {"status": "error", "status_code": error.code, "url": url}
                return ToolResult.execution_error(code="http_error", error=text, output=output)
            except (OSError, HTTPException, ValueError) as error:
                text = f"cannot get {url}: {error}"
        return ToolResult.execution_error(code="http_failed", error=text, recoverable=True)


class HTMLExtractText(BaseTool):
    """Takes the text that a reader sees out of HTML."""

    name = "extract_web_text"
    description = "Take the readable text out of the HTML of a web page."
    read_only = True
    concurrency_safe = True

    def run(self, html: str, max_chars: int = 20000, keep_links: bool = False) -> dict[str, Any]:
        """Take up to ``max_chars`` characters of text out; ``keep_links`` writes addresses too."""
        reader = _Reader(keep_links)
        reader.feed(html)
        reader.close()
        title, text = (" ".join("".join(part).split()) for part in (reader.title, reader.texts))
        found = {"status": "success", "content": text[: max(max_chars, 0)], "title": title or None}
        return {**found, "length": len(text), "truncated": len(text) > max_chars}


class _WebOnly(HTTPRedirectHandler):
    def redirect_request(self, request: Any, *args: Any) -> Request | None:
        return super().redirect_request(request, *args) if _WEB.match(args[-1]) else None


def _fetched(request: Request, timeout: float) -> dict[str, Any]:
    end, data = time.monotonic() + timeout, b""
    with build_opener(_WebOnly()).open(request, timeout=timeout) as response:
        # read1 returns what is there, so that a dripping server meets the deadline.
        while len(data) <= _MOST_BYTES and (piece := response.read1(65536)):
            data += piece
            if time.monotonic() > end:
                raise TimeoutError(f"no complete page within {timeout:g} s")
    try:
        text = data[:_MOST_BYTES].decode(response.headers.get_content_charset("utf-8"), "replace")
    except LookupError:
        text = data[:_MOST_BYTES].decode("utf-8", "replace")
    kind, cut = response.headers.get_content_type(), len(data) > _MOST_BYTES
    told = {"status": "success", "url": response.url, "status_code": response.status}
    return {**told, "content_type": kind, "content": text, "truncated": cut}


class _Reader(HTMLParser):
    def __init__(self, keep_links: bool) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.title: list[str] = []
        self._keep_links = keep_links
        self._inside: list[str] = []
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.texts.append("" if tag in _INLINE else " ")
        if tag in _SILENT or tag == "title":
            self._inside.append(tag)
        if tag == "a" and self._keep_links:
            self._links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            self._inside.remove(tag)
        link = self._links.pop() if tag == "a" and self._links else ""
        self.texts.append(f" ({link}) " if link else "" if tag in _INLINE else " ")

    def handle_data(self, data: str) -> None:
        if not _SILENT.intersection(self._inside):
            self.texts.append(data)
            if "title" in self._inside:
                self.title.append(data)
