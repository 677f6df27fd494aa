"""The schema of the payload, what checks it, and the strict way back from text."""

import copy
import enum
import json
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType

import pytest

import snowl_compat
from snowl_compat import Issue, SnowlCompatError, load_payload, validate_payload

TABLE = json.loads(
    (Path(__file__).parent / "data" / "schema_cases.json").read_text(encoding="utf-8")
)
PAYLOAD = TABLE["payload"]


def edited(*edits):
    """The table's payload with values set, or removed when none is given."""
    payload = copy.deepcopy(PAYLOAD)
    for path, *value in edits:
        place = payload
        for key in path[:-1]:
            place = place[key]
        if value:
            place[path[-1]] = value[0]
        else:
            del place[path[-1]]
    return payload


def payload_of(case):
    return case["payload"] if "payload" in case else edited(*case["edits"])


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_validation_names_each_place(case):
    payload = payload_of(case)
    expected = [Issue(*error) for error in case["errors"]]
    assert validate_payload(payload) == expected
    text = json.dumps(payload)
    if not expected:
        assert load_payload(text) == load_payload(text.encode()) == load_payload(payload) == payload
        return
    with pytest.raises(SnowlCompatError) as caught:
        load_payload(text)
    assert (caught.value.path, caught.value.message) == expected[0]


def nested(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


class Number(enum.IntEnum):
    ONE = 1


LOOP = {}
LOOP["self"] = LOOP
DETAILS = "critic_traces[0].details"


@pytest.mark.parametrize(
    "details, path, message",
    [
        ({"a": (1, 2)}, "", "expected JSON, got dict"),
        ({"a": {1}}, "", "expected JSON, got dict"),
        ({"a": b"x"}, "", "expected JSON, got dict"),
        ({"a": object()}, ".a", "expected JSON, got object"),
        ({1: 2}, "", "expected JSON, got dict"),
        ({"a": float("nan")}, ".a", "expected a finite number, got nan"),
        ({"a": [float("-inf")]}, ".a[0]", "expected a finite number, got -inf"),
        ({"a": 10**5000}, ".a", "expected JSON, got int which raised ValueError"),
        ({"a": "\ud800"}, ".a", "expected text without lone surrogates, got '\\ud800'"),
        (nested(101), ".a" * 100, "expected at most 100 levels"),
        (LOOP, ".self", "dict contains itself"),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, str) else "details",
)
def test_what_json_cannot_hold_is_not_valid(details, path, message):
    payload = edited((["critic_traces", 0, "details"], details))
    assert validate_payload(payload) == [Issue(DETAILS + path, message)]
    with pytest.raises(SnowlCompatError):
        load_payload(payload)


def test_what_json_can_hold_is_valid():
    details = {"deep": nested(99), "n": Number.ONE, "o": OrderedDict(a=1), "big": 10**4000}
    payload = edited((["critic_traces", 0, "details"], details))
    assert validate_payload(payload) == []
    assert snowl_compat.dumps(load_payload(payload)) == json.dumps(payload)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected JSON: Expecting value: line 1 column 1 (char 0)"),
        ("{", None),
        ("NaN", "expected object, got nan"),
        ('{"a": Infinity}', "missing"),
        (b"[-Infinity]", "expected object, got list"),
        (b'"\xff"', None),
        ("[" * 100_000, "expected JSON, got too many levels"),
        ('{"step_count": ' + "1" * 5000 + "}", None),
        (json.dumps(edited((["critic_traces", 0, "details"], {"a": float("nan")}))), "expected a finite number, got nan"),
        ("[]", "expected object, got list"),
        (None, "expected object, got None"),
        (3, "expected object, got 3"),
    ],
)
def test_reading_back_is_strict(text, message):
    """N5: opik #8455; a plain json.loads accepts NaN and proves nothing."""
    with pytest.raises(SnowlCompatError) as caught:
        load_payload(text)
    assert message is None or caught.value.message == message
    assert "\n" not in str(caught.value)


def test_a_loaded_payload_is_detached_and_plain():
    for source in (MappingProxyType(PAYLOAD), OrderedDict(PAYLOAD)):
        loaded = load_payload(source)
        assert loaded == PAYLOAD and type(loaded) is dict
        loaded["critic_traces"].clear()
    assert len(PAYLOAD["critic_traces"]) == 1


def test_the_schema_is_plain_json_with_the_documented_keys():
    schema = snowl_compat.PAYLOAD_SCHEMA
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    keys = ["engine_config", "tool_permissions", "critic_traces", "handoff_traces", "step_count"]
    assert schema["required"] == keys
    assert list(schema["properties"]) == [*keys, "schema_version", "run"]
    assert schema["additionalProperties"] is False
    sections = {name: schema["properties"][name] for name in (*keys[:4], "run")}
    columns = {name: part.get("items", part)["required"] for name, part in sections.items()}
    assert [len(names) for names in columns.values()] == [14, 7, 8, 5, 10]
    assert columns["critic_traces"] == [
        "step_id", "critic_name", "action", "reason", "score", "details",
        "instruction_patch", "state_patch",
    ]
