"""HTTPGet and HTMLExtractText, against a server on loopback."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from qitos_min import Action, ToolRegistry
from qitos_min.kit.tool import HTMLExtractText, HTTPGet, web

PAGES = {
    "/page": (200, {"Content-Type": "text/html; charset=latin-1"}, "caf\xe9".encode("latin-1")),
    "/odd": (200, {"Content-Type": "text/plain; charset=no-such"}, "\u5bd2".encode()),
    "/gone": (404, {}, b"no"),
    "/away": (302, {"Location": "/page"}, b""),
    "/file": (302, {"Location": "file:///etc/passwd"}, b""),
    "/ftp": (302, {"Location": "ftp://127.0.0.1/x"}, b""),
    "/long": (200, {}, b"x" * 50),
}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append((self.path, dict(self.headers)))
        path = self.path.partition("?")[0]
        if path == "/drip":
            self.send_response(200)
            self.end_headers()
            for _ in range(20):
                time.sleep(0.05)
                self.wfile.write(b".")
            return
        if path == "/broken" and len(self.server.seen) < 3:
            self.connection.close()
            return
        status, headers, body = PAGES.get(path, (200, {}, b"ok"))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@contextmanager
def pages():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.daemon_threads, server.seen = True, []
    server.handle_error = lambda *args: None
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(url, tool=None, **args):
    registry = ToolRegistry().register(tool or HTTPGet())
    return registry.execute(Action("http_get", {"url": url, **args}))


@pytest.mark.parametrize(
    "path, told",
    [
        ("/page", {"status_code": 200, "content": "caf\xe9", "content_type": "text/html"}),
        ("/odd", {"content": "\u5bd2", "truncated": False}),
        ("/away", {"content": "caf\xe9", "status_code": 200}),
    ],
)
def test_a_page_is_fetched(path, told):
    with pages() as (_, url):
        result = get(url + path)
    assert (result.status, result.error) == ("success", None)
    assert told.items() <= result.output.items()


def test_queries_and_headers_are_sent():
    with pages() as (server, url):
        tool = HTTPGet(headers={"X-One": "1"})
        result = get(url + "/q?a=1", tool, params={"b": "x y"}, headers={"X-Two": "2"})
    assert result.is_success
    ((path, headers),) = server.seen
    assert path == "/q?a=1&b=x+y"
    assert (headers["X-One"], headers["X-Two"]) == ("1", "2")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://h/x", "http://", "x", "//h", "http://[1"])
def test_only_the_web_is_fetched(url):
    result = get(url)
    assert (result.status, result.error_code) == ("error", "invalid_url")
    assert result.error == f"url must begin with http:// or https://, got {url!r}"


@pytest.mark.parametrize("path", ["/file", "/ftp"])
def test_a_redirect_does_not_leave_the_web(path):
    with pages() as (_, url):
        result = get(url + path)
    assert (result.status, result.error_code) == ("error", "http_error")
    assert result.error.startswith(f"HTTP 302 from {url}{path}: ")


def test_a_refusal_says_the_status():
    with pages() as (server, url):
        result = get(url + "/gone")
    assert (result.error_code, result.error) == ("http_error", f"HTTP 404 from {url}/gone: Not Found")
    assert result.output["status_code"] == 404
    assert len(server.seen) == 1


def test_a_broken_connection_is_tried_again():
    with pages() as (server, url):
        assert get(url + "/broken").output["content"] == "ok"
        assert len(server.seen) == 3


def test_size_and_time_have_limits(monkeypatch):
    monkeypatch.setattr(web, "_MOST_BYTES", 20)
    with pages() as (_, url):
        result = get(url + "/long")
        assert (result.output["content"], result.output["truncated"]) == ("x" * 20, True)
        started = time.monotonic()
        result = get(url + "/drip", HTTPGet(timeout=0.2, max_retries=0))
    assert time.monotonic() - started < 2
    assert result.error == f"cannot get {url}/drip: no complete page within 0.2 s"


def test_the_network_is_its_permission():
    registry = ToolRegistry().register(HTTPGet()).register(HTMLExtractText())
    rows = {row.name: row for row in registry.export_permissions()}
    assert rows["http_get"].permissions.network and not rows["http_get"].needs_approval
    assert not rows["extract_web_text"].permissions.network


PAGE = (
    "<html><head><title>A  title</title><style>s{}</style><script>if (a<b) x</script></head>"
    '<body><p>One<br>two &amp; <b>three</b></p><a href="/x">link</a></body>'
)


@pytest.mark.parametrize(
    "html, options, told",
    [
        (PAGE, {}, {"content": "A title One two & three link", "title": "A title"}),
        (PAGE, {"keep_links": True}, {"content": "A title One two & three link (/x)"}),
        (PAGE, {"max_chars": 7}, {"content": "A title", "truncated": True}),
        ("plain", {}, {"content": "plain", "title": None, "length": 5, "truncated": False}),
        ("<p>open <i>tags </b>", {}, {"content": "open tags"}),
        ("<p>H<b>el</b>lo</p>2<sup>nd</sup>", {}, {"content": "Hello 2nd"}),
        ("<a>Home</a><a>About</a>", {}, {"content": "Home About"}),
        ("", {}, {"content": ""}),
    ],
)
def test_html_becomes_text(html, options, told):
    registry = ToolRegistry().register(HTMLExtractText())
    result = registry.execute(Action("extract_web_text", {"html": html, **options}))
    assert told.items() <= result.output.items()
