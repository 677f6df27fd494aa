"""What must not leave with a trace, and what must."""

from __future__ import annotations

import json
import time
from types import MappingProxyType
from typing import Any

import pytest

from qitos_min.core._json import to_json_value
from qitos_min.core._redact import is_secret_name, redact
from qitos_min.core.tool_result import ToolResult

SECRET = "[REDACTED]"
PATH = "[REDACTED_PATH]"
NOTHING = {"secret_values": 0, "secret_texts": 0, "host_paths": 0}
# Put together here, so that no scanner takes this file for a leak.
AWS_ID = "AKIA" + "FAKEFAKEFAKE1234"
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxIn0" + ".c2lnbmF0dXJl"
GITHUB = "ghp_" + "fake" * 9
GITLAB = "glpat-" + "fake" * 5
GOOGLE = "AIza" + "fake" * 8
HUGGING = "hf_" + "fake" * 8
PEM = "-----BEGIN {0}-----\nZmFrZQ==\n-----END {0}-----".format("RSA PRIVATE KEY")


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "Authorization",
        "Proxy-Authorization",
        "X-API-Key",
        "x-api-key",
        "api_key",
        "apiKey",
        "apikey",
        "APIKey",
        "OPENAI_API_KEY",
        "api_keys",
        "API key",
        "token",
        "access_token",
        "accessToken",
        "x-auth-token",
        "token2",
        "access_tokens",
        "refreshTokens",
        "access_key",
        "password",
        "dbPassword",
        "PASSWORD_HASH",
        "passwords",
        "secret",
        "client_secret",
        "aws_secret_access_key",
        "clientSecret",
        "cookie",
        "Set-Cookie",
        "sessionCookie",
        "credential",
        "credentials",
        "private_key",
        "privateKeyPem",
        "\u5bc6\u7801_password",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)
    for value in ("fake-1", 5, True, ["fake-1"], {"user": "pat", "value": "fake-1"}):
        assert redact({name: value}) == (
            {name: SECRET},
            {**NOTHING, "secret_values": 1},
        )


# S3 (pydantic/logfire-js #82) and its kind: words that only contain a secret's name.
@pytest.mark.parametrize(
    "name",
    [
        "session",
        "session_id",
        "author",
        "authored_by",
        "monkey",
        "keyboard",
        "key",
        "keys",
        "primary_key",
        "tokenizer",
        "tokens",
        "token_count",
        "tokenCount",
        "max_tokens",
        "completion_tokens",
        "total_tokens",
        "token_usage",
        "secretary",
        "passwordless",
        "cookiecutter",
        "apikeyboard",
        "rapid_key",
        "private",
        "",
        "__",
    ],
)
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)
    tree = {name: ["value", 5], "pair": [name, "value"]}
    assert redact(tree) == (tree, NOTHING)


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (["Authorization", "fake-1"], ["Authorization", SECRET]),
        ([["x-api-key", "fake-1"]], [["x-api-key", SECRET]]),
        (["api_key", {"deep": "fake-1"}], ["api_key", SECRET]),
        (["API key", "fake-1"], ["API key", SECRET]),
        ({"name": "Cookie", "value": "fake-1"}, {"name": "Cookie", "value": SECRET}),
        (
            {"value": 5, "key": "password", "note": "ok"},
            {"value": SECRET, "key": "password", "note": "ok"},
        ),
    ],
)
def test_names_beside_their_values(tree: Any, expected: Any) -> None:
    assert redact(tree) == (expected, {**NOTHING, "secret_values": 1})


@pytest.mark.parametrize(
    "tree",
    [
        ["Authorization"],
        ["Authorization", "one", "two"],
        ["the password is wrong", "try again"],
        ["session", "s-1"],
        {"name": "author", "value": "pat"},
        {"name": None, "value": "pat"},
        {"password": None, "pair": ["password", None]},
        [1, 2.5, None, True, {}, []],
    ],
)
def test_what_holds_no_secret_stays(tree: Any) -> None:
    assert redact(tree) == (tree, NOTHING)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bearer fake-aaa-111", f"Bearer {SECRET}"),
        ("got bearer abc, then left", f"got bearer {SECRET}, then left"),
        ("Basic dXNlcjpwYXNz", f"Basic {SECRET}"),
        ("basic fake-bbb-222", f"basic {SECRET}"),
        ("key sk-fake123 used", f"key {SECRET} used"),
        ("sk-proj-Fake_123-x", SECRET),
        (f"id {AWS_ID}.", f"id {SECRET}."),
        (f"got {JWT}", f"got {SECRET}"),
        (f"push with {GITHUB}", f"push with {SECRET}"),
        (f"a\n{PEM}\nb", f"a\n{SECRET}\nb"),
        (PEM[:40], SECRET),
        ("https://pat:fake@host/a", f"https://{SECRET}@host/a"),
        ("postgres://pat:f@ke@db:5432/x", f"postgres://{SECRET}@db:5432/x"),
        ("https://fake@host", f"https://{SECRET}@host"),
        ("https://h/?a=1&api_key=fake&b=2", f"https://h/?a=1&api_key={SECRET}&b=2"),
        ("run --token=fake --n=5", f"run --token={SECRET} --n=5"),
        ("DB_PASSWORD='fa ke' run", f"DB_PASSWORD='{SECRET}' run"),
        ('{"password": "fa ke", "n": 1}', f'{{"password": "{SECRET}", "n": 1}}'),
        ("{'apiKey': 'fake'}", f"{{'apiKey': '{SECRET}'}}"),
        ("Authorization: Digest fake", f"Authorization: {SECRET}"),
        ("curl -H 'X-API-Key: fake' u", f"curl -H 'X-API-Key: {SECRET}' u"),
        ("Set-Cookie: a=fake; b=c\nHost: x", f"Set-Cookie: {SECRET}\nHost: x"),
        ("\u5bc6\u94a5sk-fake123", f"\u5bc6\u94a5{SECRET}"),
        (GITLAB, SECRET),
        (f"key {GOOGLE}.", f"key {SECRET}."),
        (HUGGING, SECRET),
    ],
)
def test_secrets_in_texts(text: str, expected: str) -> None:
    counted = {**NOTHING, "secret_texts": 1}
    assert redact(text) == (expected, counted)
    assert redact({"note": [text]}) == ({"note": [expected]}, counted)
    assert list(redact({text: 1})[0]) == [expected]
    assert redact(expected) == (expected, NOTHING)


# S5 (a fixture of QitOS): the folders of a host and the names of its users.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/pat/x", PATH),
        ("/work/data/", PATH),
        ("no file '/home/pat/x.txt'", f"no file '{PATH}'"),
        ("PATH=/usr/bin", f"PATH={PATH}"),
        ("host:/home/pat/x", f"host:{PATH}"),
        ("python /work/run.py in/x.csv", f"python {PATH} in/x.csv"),
        ("/Users/pat smith/x.txt is gone", f"{PATH} is gone"),
        ("file:///home/pat/x", PATH),
        ("C:\\Users\\Pat Smith\\x.txt is", f"{PATH} is"),
        ("'c:/Users/pat/x'", f"'{PATH}'"),
        ("C:\\\\Users\\\\pat", PATH),
        ("\\\\server\\share\\x", PATH),
        ("\u8def\u5f84/home/pat/x", f"\u8def\u5f84{PATH}"),
    ],
)
def test_host_paths_in_texts(text: str, expected: str) -> None:
    counted = {**NOTHING, "host_paths": 1}
    assert redact(text) == (expected, counted)
    assert redact({text: 1}) == ({expected: 1}, counted)
    assert redact(expected) == (expected, NOTHING)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bearer token is missing",
        "Basic usage of the tool",
        "Basic information.",
        "a risk-assessment, a task-list, sk-learn",
        "unexpected token: }",
        "the password: it is long",
        "token = get_token()",
        "run --token --n 5",
        "hf_transformers_model",
        "max_tokens=5 author=pat session=s-1",
        "src/app/main.py ./a/b ../a/b ~/a/b $HOME/a/b",
        "and/or, 1/2, 2024/01/02, text/html, /help, a / b",
        "https://host:8080/a/b?c=/d s3://bucket/a/b",
        "#/definitions/x/y @/components/x",
        "pat@example.org",
        "else:\n  pass",
        "0" * 64,
        "\u5bd2 \U0001f98a \u2028 \x00",
    ],
)
def test_ordinary_texts_stay(text: str) -> None:
    assert redact(text) == (text, NOTHING)


def test_keys_that_become_equal_all_stay() -> None:
    safe, removed = redact({"/home/a/x": 1, "/home/b/x": 2, "/home/c/x": 3})
    assert safe == {PATH: 1, f"{PATH}#2": 2, f"{PATH}#3": 3}
    assert removed == {**NOTHING, "host_paths": 3}


def test_the_tree_that_was_given_stays_as_it_was() -> None:
    tree = {"password": {"a": "fake"}, "list": ["/home/pat/x", ["token", "fake"]]}
    before = json.dumps(tree)
    redact(tree)
    assert json.dumps(tree) == before


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a-",
        "/a",
        "://",
        "://a:b",
        "eyJ",
        "eyJa.",
        "-----BEGIN A",
        "C:\\a",
        "a\\",
        "\\\\a",
        "/Users/a ",
        "a b ",
        "=",
        "a='",
        'token="',
        "a-a:",
        "basic ",
        "bearer ",
        "sk-",
        ".-",
        "a: ",
        "a = b\n",
        "a: '\n",
        "--a ",
        "AIza",
    ],
)
def test_the_time_grows_with_the_length_only(piece: str) -> None:
    start = time.process_time()  # Other work on the machine does not count.
    redact(piece * (60_000 // len(piece)))
    assert time.process_time() - start < 5


def traced(value: Any) -> dict[str, Any]:
    """The trace of a result that carries ``value`` wherever a tool may put it."""
    tree = to_json_value(value)
    result = ToolResult(
        output=tree,
        model_output=tree,
        metadata={"given": tree},
        normalized_request={"args": tree},
        provenance={"from": tree},
        declared_effects=[{"about": tree}],
        filesystem_changes=[{"about": tree}],
        next_action={"name": "again", "args": {"value": tree}},
    )
    return result.to_trace_safe_dict()


# S1: google/adk-python #7162, and reproduced in QitOS, which matched exact keys only.
def test_headers_pairs_and_camel_case_do_not_leak() -> None:
    text = json.dumps(
        traced(
            {
                "headers": {
                    "Authorization": "Bearer fake-aaa-111",
                    "X-API-Key": "fake-bbb-222",
                    "x-api-key": "fake-ccc-333",
                },
                "pairs": [
                    ["Authorization", "Bearer fake-ddd-444"],
                    ("api_key", "fake-eee-555"),
                ],
                "apiKey": "fake-fff-666",
                "client_secret": "fake-ggg-777",
            }
        )
    )
    assert "fake-" not in text
    for name in ("Authorization", "X-API-Key", "x-api-key", "apiKey", "client_secret"):
        assert f'"{name}"' in text


# S7: a test of QitOS. Neither what a secret holds nor where it lay in memory is shown.
def test_secrets_that_are_no_texts_do_not_leak() -> None:
    record = traced(
        {
            "api_key": object(),
            "nested": {"password": {"user": "pat", "value": "fake-kkk-121"}},
            "frozen": MappingProxyType({"token": [b"fake-lll-122"]}),
            "note": "fine",
        }
    )
    assert record["metadata"]["given"] == {
        "api_key": SECRET,
        "nested": {"password": SECRET},
        "frozen": {"token": SECRET},
        "note": "fine",
    }
    text = json.dumps(record)
    assert "fake-" not in text and " at 0x" not in text


def test_no_error_text_leaks() -> None:
    record = ToolResult.execution_error(
        code="http_error",
        error="POST https://pat:fake-1@host: 401 for Bearer fake-2 in /home/pat/x",
        recovery_hint="set api_key=fake-3",
    ).to_trace_safe_dict()
    assert record["error"] == (
        f"POST https://{SECRET}@host: 401 for Bearer {SECRET} in {PATH}"
    )
    assert record["recovery_hint"] == f"set api_key={SECRET}"
    assert record["redaction"] == {
        "secret_values": 0,
        "secret_texts": 3,
        "host_paths": 1,
        "output_chars": 0,
    }


def test_a_trace_has_all_but_the_output_and_says_how_much_that_was() -> None:
    result = ToolResult(output="raw \u5bd2", metadata={"token": "fake", "rows": 3})
    expected = result.to_dict()
    del expected["output"]
    expected["metadata"] = {"token": SECRET, "rows": 3}
    expected["redaction"] = {
        "secret_values": 1,
        "secret_texts": 0,
        "host_paths": 0,
        "output_chars": 5,
    }
    assert result.to_trace_safe_dict() == expected
