"""The model over HTTP, against a scripted server on loopback."""

import copy
import pickle
import socket
import threading
import time
import traceback
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from model_server import DROP, STALL, ModelServer, Reply, chat

from qitos_min.core._json import dumps
from qitos_min.core.errors import ErrorCategory
from qitos_min.engine._replies import ModelError
from qitos_min.models import Model, OpenAICompatibleModel

KEY = "sk-fake-0123456789abcdef"
LOOK = {"type": "object", "properties": {}}
ASK = [{"role": "user", "content": "你好"}]
OVER_LIMIT = 16 * 1024 * 1024 + 1


def make(server, waits=None, **options):
    """A model of ``server`` that notes its pauses in ``waits`` and never sleeps."""
    waits = [] if waits is None else waits
    options = {"api_key": KEY, "timeout_s": 5, "sleep": waits.append, **options}
    return OpenAICompatibleModel("scripted", base_url=server.base_url, **options)


def failure(model):
    """The ModelError of one call, checked to show the key nowhere."""
    with pytest.raises(ModelError) as caught:
        model(ASK)
    error = caught.value
    assert (type(error.message), error.category) == (str, ErrorCategory.MODEL)
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    assert KEY not in shown
    assert error.__cause__ is None and error.__context__ is None
    return error.message


def test_request_and_response_are_those_of_the_api():
    tools = [{"type": "function", "function": {"name": "look", "parameters": LOOK}}]
    with ModelServer([chat("hi")]) as server:
        assert make(server).call_raw(ASK, tools=tools) == chat("hi")
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == "qitos-min/0.1.0"
    assert request.body == {"model": "scripted", "messages": ASK, "tools": tools}


@pytest.mark.parametrize("key", [None, "", "  "])
def test_without_key_or_tools_neither_is_sent(key):
    with ModelServer(["hi"]) as server:
        make(server, api_key=key)(ASK, tools=[])
    (request,) = server.requests
    assert "authorization" not in request.headers
    assert request.body == {"model": "scripted", "messages": ASK}


def test_blanks_around_key_and_slash_after_address_are_dropped():
    with ModelServer(["hi"]) as server:
        url = server.base_url + "/"
        OpenAICompatibleModel("scripted", base_url=url, api_key=f" {KEY}\n", timeout_s=5)(ASK)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].path == "/v1/chat/completions"


def test_values_json_cannot_hold_do_not_stop_a_request():
    message = {"role": "user", "content": "bad \ud835 寒", "n": float("nan")}
    with ModelServer(["hi"]) as server:
        make(server)([message])
    (sent,) = server.requests[0].body["messages"]
    assert sent["content"].endswith(" 寒") and sent["n"] is None


RETRIED = {
    "429": (Reply({"error": {"message": "slow"}}, 429), "HTTP 429 from {url}: slow"),
    "408": (Reply("late", 408), "HTTP 408 from {url}: late"),
    "500": (Reply("boom", 500), "HTTP 500 from {url}: boom"),
    "503 without text": (Reply("", 503), "HTTP 503 from {url}: Service Unavailable"),
    "dropped": (DROP, "the connection to {url} broke: RemoteDisconnected"),
    "half a body": (
        Reply(b'{"choices": [', missing=9),
        "the connection to {url} broke: IncompleteRead",
    ),
    "half a chunk": (
        Reply(b"ff\r\n{", headers={"Transfer-Encoding": "chunked"}),
        "the connection to {url} broke: IncompleteRead",
    ),
}


@pytest.mark.parametrize(("reply", "message"), RETRIED.values(), ids=RETRIED)
def test_passing_faults_are_retried(reply, message):
    waits = []
    with ModelServer([reply, reply, "hi"]) as server:
        assert make(server, waits).call_raw(ASK) == chat("hi")
    assert waits == [0.5, 1.0]
    with ModelServer([reply] * 3) as server:
        said = failure(make(server))
    url = f"{server.base_url}/chat/completions"
    assert said == f"{message.format(url=url)} (3 attempts)"


def test_pauses_grow_up_to_a_limit():
    waits = []
    with ModelServer([Reply("", 500)] * 8) as server:
        failure(make(server, waits, max_retries=7))
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_stalled_server_is_left_after_the_timeout_and_asked_again():
    waits = []
    with ModelServer([STALL, STALL]) as server:
        start = time.monotonic()
        said = failure(make(server, waits, timeout_s=0.1, max_retries=1))
        assert time.monotonic() - start < 2
    url = f"{server.base_url}/chat/completions"
    assert said == f"no complete reply from {url} within 0.1 s (2 attempts)"
    assert waits == [0.5]


def test_body_that_stops_half_way_counts_against_the_timeout():
    half = Reply(b"{", missing=5, stall=True)
    with ModelServer([half, "hi"]) as server:
        assert make(server, timeout_s=0.25).call_raw(ASK) == chat("hi")


def test_dripping_body_ends_at_the_timeout():
    drip = Reply(b" " * 100, drip_s=0.02)
    with ModelServer([drip]) as server:
        start = time.monotonic()
        said = failure(make(server, timeout_s=0.1, max_retries=0))
        assert time.monotonic() - start < 1
    assert said.startswith("no complete reply from ")


def test_no_connection_names_the_address():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    waits = []
    model = OpenAICompatibleModel("m", KEY, url, max_retries=1, sleep=waits.append)
    said = failure(model)
    assert said.startswith(f"no connection to {url}/chat/completions: ")
    assert said.endswith(" (2 attempts)") and waits == [0.5]


def test_plain_server_behind_https_is_a_tls_error_and_not_retried():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        said = failure(OpenAICompatibleModel("m", KEY, url, timeout_s=5))
        thread.join()
    assert said.startswith(f"TLS with {url}/chat/completions failed: ")
    assert "attempts" not in said


def http_date(seconds):
    """The HTTP date so many seconds from now."""
    moment = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    return format_datetime(moment, usegmt=True)


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("0", 0, 0),
        ("7", 7, 7),
        ("1.5", 1.5, 1.5),
        ("86400", 60, 60),
        ("9" * 400, 60, 60),
        (30, 20, 30),
        (-30, 0, 0),
        (9999, 60, 60),
        ("Fri, 01 Jan 2010 00:00:00 -0000", 0, 0),
        ("Fri, 99 Jan 99999999999999999999 00:00:00 GMT", 0.5, 0.5),
        ("-5", 0.5, 0.5),
        ("nan", 0.5, 0.5),
        ("soon", 0.5, 0.5),
        ("", 0.5, 0.5),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_followed_within_limits(header, low, high, status):
    waits = []
    header = header if isinstance(header, str) else http_date(header)
    with ModelServer([Reply("", status, {"Retry-After": header}), "hi"]) as server:
        make(server, waits)(ASK)
    assert len(waits) == 1 and low <= waits[0] <= high


FINAL = {
    "message of the API": (
        Reply({"error": {"message": "no such model", "code": "x"}}, 404),
        "HTTP 404 from {url}: no such model",
    ),
    "other error object": (
        Reply({"detail": [{"msg": "field required"}]}, 422),
        'HTTP 422 from {url}: {{"detail": [{{"msg": "field required"}}]}}',
    ),
    "error as text": (Reply({"error": "bad"}, 400), "HTTP 400 from {url}: bad"),
    "html": (Reply("<h1>no</h1>", 403), "HTTP 403 from {url}: <h1>no</h1>"),
    "key repeated": (
        Reply({"error": {"message": f"Incorrect API key {KEY}"}}, 401),
        "HTTP 401 from {url}: Incorrect API key [api key]",
    ),
    "key repeated at the cut": (
        Reply("x" * 290 + KEY, 401),
        "HTTP 401 from {url}: " + "x" * 290 + "[api key]",
    ),
    "key repeated in a page": (
        Reply(f"<p>{KEY}</p>"),
        "the reply of {url} is not JSON: its content type is "
        "'text/plain; charset=utf-8', it starts with '<p>[api key]</p>'",
    ),
    "error without a message": (Reply(b"\xff", 400), "HTTP 400 from {url}: \ufffd"),
    "error body cut short": (
        Reply(b"half", 400, missing=9),
        "HTTP 400 from {url}: Bad Request",
    ),
    "long error": (Reply("x" * 9999, 400), "HTTP 400 from {url}: " + "x" * 300),
    "endless error": (Reply("x" * 70000, 400), "HTTP 400 from {url}: Bad Request"),
    "error with status 200": (
        Reply({"error": {"message": "overloaded"}}),
        "{url} answered with an error: overloaded",
    ),
    "bad JSON": (
        Reply(b'{"choices": [,]}'),
        "the reply of {url} is not JSON: Expecting value: line 1 column 14 (char 13), "
        "it starts with '{{\"choices\": [,]}}'",
    ),
    "too deep": (
        Reply(b"[" * 100_000),
        "the reply of {url} is not JSON: *, it starts with '" + "[" * 300 + "'",
    ),
    "not an object": (Reply([1]), "the reply of {url} is list, expected an object"),
    "empty": (
        Reply(b""),
        "the reply of {url} is not JSON: Expecting value: line 1 column 1 (char 0), "
        "it starts with ''",
    ),
    "wrong content type": (
        Reply(b"<html>", headers={"Content-Type": "text/html"}),
        "the reply of {url} is not JSON: its content type is 'text/html', "
        "it starts with '<html>'",
    ),
    "too large": (
        Reply(b" " * OVER_LIMIT),
        "the reply of {url} exceeds 16777216 bytes",
    ),
    "too large, not declared": (
        Reply(b" " * OVER_LIMIT, headers={"Content-Length": "unknown"}),
        "the reply of {url} exceeds 16777216 bytes",
    ),
}


@pytest.mark.parametrize(("reply", "message"), FINAL.values(), ids=FINAL)
def test_other_faults_end_the_call_at_once(reply, message):
    with ModelServer([reply]) as server:
        said = failure(make(server))
    head, _, tail = message.format(url=f"{server.base_url}/chat/completions").partition(
        "*"
    )
    assert said.startswith(head) and said.endswith(tail)
    assert "*" in message or said == head


def test_json_with_another_content_type_is_read():
    reply = Reply(chat("hi"), headers={"Content-Type": "text/plain"})
    with ModelServer([reply]) as server:
        assert make(server).call_raw(ASK) == chat("hi")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_refused_so_the_key_reaches_no_other_host(status):
    with ModelServer([]) as other:
        target = f"{other.base_url}/chat/completions"
        with ModelServer([Reply("", status, {"Location": target})]) as server:
            said = failure(make(server))
    assert said == (
        f"HTTP {status} from {server.base_url}/chat/completions: "
        f"redirects are not followed, this one leads to {target!r}"
    )
    assert other.requests == []


def test_key_is_held_where_nothing_shows_it():
    model = OpenAICompatibleModel("gpt", KEY, "https://api.example/v1")
    assert repr(model) == "OpenAICompatibleModel('gpt', base_url='https://api.example/v1')"
    assert model.model_id == "gpt"
    for shown in (vars(model), dir(model), dumps(model), dumps(vars(model))):
        assert KEY not in repr(shown)
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)) as caught:
        pickle.dumps(model)
    assert KEY not in str(caught.value)


def test_copied_model_still_works():
    with ModelServer(["hi"]) as server:
        assert copy.deepcopy(make(server, sleep=time.sleep)).call_raw(ASK) == chat("hi")
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_proxy_settings_do_not_hide_the_callers_own_machine(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with ModelServer(["hi"]) as server:
        assert make(server).call_raw(ASK) == chat("hi")


SHAPE = "base_url must be http(s)://host[:port][/path]"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": ""}, "model must be a name, got ''"),
        ({"model": None}, "model must be a name, got None"),
        ({"timeout_s": 0}, "timeout must be seconds above 0, got 0"),
        ({"timeout_s": True}, "timeout must be seconds above 0, got True"),
        ({"timeout_s": float("inf")}, "timeout must be seconds above 0, got inf"),
        ({"timeout_s": float("nan")}, "timeout must be seconds above 0, got nan"),
        ({"timeout_s": "5"}, "timeout must be seconds above 0, got '5'"),
        ({"max_retries": -1}, "max_retries must be an int of at least 0, got -1"),
        ({"max_retries": 1.0}, "max_retries must be an int of at least 0, got 1.0"),
        ({"base_url": None}, f"{SHAPE}; neither it nor OPENAI_BASE_URL is given"),
        ({"base_url": 5}, f"{SHAPE}, got int"),
        (
            {"api_key": "https://h/v1", "base_url": "sk-secret"},
            "api_key must be one line of printable ASCII characters, and no address",
        ),
        ({"api_key": "http://h/v1"}, "api_key must be one line of printable ASCII characters, and no address"),
        ({"base_url": ""}, f"{SHAPE}, got ''"),
        ({"base_url": "api.example/v1"}, f"{SHAPE}, got 'api.example/v1'"),
        ({"base_url": "ftp://h/v1"}, f"{SHAPE}, got 'ftp://h/v1'"),
        ({"base_url": "file:///etc"}, f"{SHAPE}, got 'file:///etc'"),
        ({"base_url": "http://"}, f"{SHAPE}, got 'http://'"),
        ({"base_url": "http://h/a b"}, f"{SHAPE}, got 'http://h/a b'"),
        ({"base_url": "http://h/v1\n"}, f"{SHAPE}, got 'http://h/v1\\n'"),
        ({"base_url": "http://h:x/v1"}, f"{SHAPE}, got 'http://h:x/v1'"),
        ({"base_url": "http://h:99999"}, f"{SHAPE}, got 'http://h:99999'"),
        ({"base_url": "http://a..b/"}, f"{SHAPE}, got 'http://a..b/'"),
        ({"base_url": "http://[::1"}, f"{SHAPE}, got 'http://[::1'"),
        (
            {"base_url": "http://me:secret@h/v1"},
            f"{SHAPE} without user name, password, query or fragment",
        ),
        ({"base_url": "me:secret@h/v1"}, f"{SHAPE} without user name, password, query or fragment"),
        (
            {"base_url": "http://h/v1?key=secret"},
            f"{SHAPE} without user name, password, query or fragment",
        ),
        ({"base_url": "http://h/v1#x"}, f"{SHAPE} without user name, password, query or fragment"),
        ({"api_key": 5}, "api_key must be text or None, got int"),
        ({"api_key": b"se"}, "api_key must be text or None, got bytes"),
    ]
    + [
        ({"api_key": key}, "api_key must be one line of printable ASCII characters, and no address")
        for key in ("secret\nx: y", "secr\x00et", "sécret", "密钥")
    ],
)
def test_arguments_that_cannot_work_are_refused_without_showing_secrets(
    change, message, monkeypatch
):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    arguments = {"model": "m", "base_url": "http://h/v1", **change}
    with pytest.raises(ValueError) as caught:
        OpenAICompatibleModel(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "url",
    ["http://h", "https://h:8000/v1/", "http://[::1]:8080/v1", "https://h/api/@org/v1"],
)
def test_usual_addresses_are_taken(url):
    assert OpenAICompatibleModel("m", base_url=url).base_url == url.rstrip("/")


def test_scripted_server_notices_too_many_and_too_few_requests():
    with pytest.raises(AssertionError, match="^0 requests for 1 replies$"):
        with ModelServer(["unused"]):
            pass
    with pytest.raises(AssertionError, match="^1 requests for 0 replies$"):
        with ModelServer([]) as server:
            assert "no reply is left" in failure(make(server))


CALLS = chat("look", [("f", {"a": 1})])


@pytest.mark.parametrize(
    "response, text", [(chat("hi"), "hi"), (CALLS, 'look\nAction: f({"a": 1})')]
)
def test_calling_a_model_gives_text(response, text):
    with ModelServer([response]) as server:
        assert make(server)(ASK) == text


@pytest.mark.parametrize(
    "options, asked, sent",
    [
        ({}, {}, {}),
        ({"temperature": 0, "max_tokens": 9}, {}, {"temperature": 0, "max_tokens": 9}),
        ({"temperature": 0.5}, {"temperature": 1, "top_p": 0.1}, {"temperature": 1, "top_p": 0.1}),
        ({"max_tokens": 9}, {"max_tokens": None}, {}),
    ],
)
def test_options_join_the_request(options, asked, sent):
    with ModelServer(["hi"]) as server:
        make(server, **options).call_raw(ASK, **asked)
    assert server.requests[0].body == {"model": "scripted", "messages": ASK, **sent}


@pytest.mark.parametrize("own", [[], [{"role": "system", "content": "other"}]])
def test_a_system_prompt_stands_first_unless_there_is_one(own):
    messages = own + ASK
    with ModelServer(["hi"]) as server:
        make(server, system_prompt="be kind")(messages)
    first = own or [{"role": "system", "content": "be kind"}]
    assert server.requests[0].body["messages"] == first + ASK
    assert messages == own + ASK


def test_the_environment_names_server_and_key(monkeypatch):
    with ModelServer(["hi", "hi"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert OpenAICompatibleModel()(ASK) == "hi"
        # A key of the environment goes to no other server than the environment's.
        OpenAICompatibleModel(base_url=server.base_url)(ASK)
    first, second = server.requests
    assert (first.body["model"], first.headers["authorization"]) == ("default", f"Bearer {KEY}")
    assert "authorization" not in second.headers


@pytest.mark.parametrize("option", ["timeout", "timeout_s"])
def test_both_spellings_of_the_time_limit(option):
    model = OpenAICompatibleModel("m", None, "http://h", None, None, None, **{option: 7})
    assert model.timeout_s == 7
    assert isinstance(model, Model)


def test_own_models_write_what_the_base_calls():
    class Echo(Model):
        def _call_api(self, messages, **options):
            return messages[-1]["content"]

    model = Echo(model="echo", temperature=0.1)
    assert (model(ASK), model.model, model.temperature) == (ASK[0]["content"], "echo", 0.1)
    with pytest.raises(NotImplementedError, match=r"^Model must define _call_api\(\)$"):
        Model()(ASK)
