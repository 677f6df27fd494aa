"""JSON arguments: what fits a schema, and the Python values they become."""

from __future__ import annotations

import dataclasses
import json
import random
import typing
from typing import Annotated, Any, Optional, Union

import pytest
from enums import Level, Mode, Shape

from qitos_min.core._contract import detach_json
from qitos_min.core._json_schema import check_value
from qitos_min.core._typed import form_of
from qitos_min.core.tool import FunctionTool
from qitos_min.core.tool_schema import type_to_json_schema


@dataclasses.dataclass
class Query:
    text: str
    limit: int = 5
    mode: Mode = Mode.FAST
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)


class Place(typing.TypedDict):
    city: str
    zip: int


NULL = {"type": "null"}
TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
VALUES = [
    (Mode, "slow", Mode.SLOW),
    (Level, 2, Level.HIGH),
    (Shape, "LINE", Shape.LINE),
    (Query, {"text": "a", "mode": "slow"}, Query("a", mode=Mode.SLOW)),
    (list[Query], [{"text": "a"}], [Query("a")]),
    (dict[str, Mode], {"a": "fast"}, {"a": Mode.FAST}),
    (dict[Mode, int], {"fast": 1}, {Mode.FAST: 1}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (dict[float, Any], {"1.5": []}, {1.5: []}),
    (Node, {"value": 1, "children": [{"value": 2}]}, Node(1, [Node(2)])),
    (Place, {"city": "x", "zip": 1}, {"city": "x", "zip": 1}),
    (tuple[int, Mode], [1, "fast"], (1, Mode.FAST)),
    (tuple[Mode, ...], ["fast", "slow"], (Mode.FAST, Mode.SLOW)),
    (tuple, [1, 2], (1, 2)),
    (set[str], ["a", "b"], {"a", "b"}),
    (frozenset[int], [1], frozenset({1})),
    (Optional[Query], None, None),
    (Optional[Query], {"text": "a"}, Query("a")),
    (Union[str, Query], {"text": "a"}, Query("a")),
    (Union[int, Mode], "fast", Mode.FAST),
    (Annotated[Mode, "how"], "fast", Mode.FAST),
    (str, "a", "a"),
    (Any, {"a": 1}, {"a": 1}),
]


@pytest.mark.parametrize("annotation, value, result", VALUES)
def test_json_arguments_become_values_of_the_type(annotation, value, result):
    converted = form_of(annotation).read(value)
    assert converted == result
    assert type(converted) is type(result)


def test_the_call_receives_an_instance_of_a_dataclass_parameter():
    # T16: autogen #5736
    def ask(q: Query):
        return q

    assert FunctionTool(ask).execute({"q": {"text": "a"}}) == Query("a")


def test_the_keys_of_a_mapping_arrive_as_they_are_declared():
    def keys(counts: dict[int, str]):
        return list(counts)

    assert FunctionTool(keys).execute({"counts": {"1": "a"}}) == [1]


QUERY = type_to_json_schema(Query)
FAULTS = [
    (3, WHOLE, None),
    (True, WHOLE, "invalid_argument_type"),
    (False, {"type": "number"}, "invalid_argument_type"),
    (3, {"type": "number"}, None),
    (3.0, WHOLE, None),
    (3.5, WHOLE, "invalid_argument_type"),
    (1, {"type": "boolean"}, "invalid_argument_type"),
    ("3", WHOLE, "invalid_argument_type"),
    (None, TEXT, "invalid_argument_type"),
    (None, {"type": ["string", "null"]}, None),
    ("b", {"enum": ["a"]}, "invalid_argument_value"),
    (1, {"enum": [True]}, "invalid_argument_value"),
    (1.0, {"enum": [1]}, None),
    ({"a": [1]}, {"const": {"a": [1.0]}}, None),
    ("b", {"const": "a"}, "invalid_argument_value"),
    (3, {"anyOf": [TEXT, NULL]}, "invalid_argument_type"),
    ({"text": 1}, {"anyOf": [QUERY, NULL]}, "invalid_argument_type"),
    ({}, {"anyOf": [QUERY, NULL]}, "missing_required_argument"),
    ({"text": "a"}, QUERY, None),
    ({"text": "a", "odd": 1}, QUERY, "unexpected_argument"),
    ({"odd": 1}, {"type": "object"}, None),
    ({"odd": 1}, {"properties": {}}, "unexpected_argument"),
    ({"odd": 1}, {"properties": {}, "additionalProperties": True}, None),
    ({"odd": 1}, {"additionalProperties": TEXT}, "invalid_argument_type"),
    ([1, "a"], {"items": WHOLE}, "invalid_argument_type"),
    ([1], type_to_json_schema(tuple[int, str]), "invalid_argument_value"),
    (["a", 1], type_to_json_schema(tuple[int, str]), "invalid_argument_type"),
    (0, {"minimum": 1}, "invalid_argument_value"),
    (2, {"maximum": 1}, "invalid_argument_value"),
    (1, {"exclusiveMinimum": 1}, "invalid_argument_value"),
    (1, {"exclusiveMaximum": 1}, "invalid_argument_value"),
    ("", {"minLength": 1}, "invalid_argument_value"),
    ("ab", {"maxLength": 1}, "invalid_argument_value"),
    ("ab", {"pattern": "^a"}, None),
    ("ba", {"pattern": "^a"}, "invalid_argument_value"),
    ("a", {"format": "whatever", "type": "no such type"}, None),
    ("a", {}, None),
]


@pytest.mark.parametrize("value, schema, code", FAULTS)
def test_each_kind_of_misfit_has_its_code(value, schema, code):
    fault = check_value(value, schema, "x")
    assert (fault.code if fault else None) == code


MESSAGES = [
    ({"q": {}}, "missing required argument 'q.text'"),
    ({"q": {"text": 5}}, "argument 'q.text' must be of type string, got int"),
    (
        {"q": {"text": "", "tags": ["a", None]}},
        "argument 'q.tags[1]' must be of type string, got NoneType",
    ),
    (
        {"q": {"text": "", "mode": "odd"}},
        "argument 'q.mode' must be one of 'fast', 'slow', got 'odd'",
    ),
    ({"q": {"text": ""}, "z": 1}, "unexpected argument 'z', expected q"),
    ({}, "missing required argument 'q'"),
    ([], "the arguments must be of type object, got list"),
]


@pytest.mark.parametrize("value, message", MESSAGES)
def test_messages_say_where_and_what_was_expected(value, message):
    schema = {"type": "object", "properties": {"q": QUERY}, "required": ["q"]}
    assert check_value(value, schema).message == message


def test_what_json_cannot_hold_is_named():
    endless: list[Any] = []
    endless.append(endless)
    for value, message in [
        (float("nan"), "a number that is not finite"),
        ([{"a": float("-inf")}], "a number that is not finite"),
        (10**4300, "an integer of more than 4300 digits"),
        ({1: "a"}, "a key of type int"),
        ({"a": {2}}, "a value of type set"),
        (b"x", "a value of type bytes"),
        (endless, "itself or more than 200 levels"),
    ]:
        with pytest.raises(ValueError) as caught:
            detach_json(value)
        assert str(caught.value) == message


def _random_value(source: random.Random, depth: int) -> Any:
    kinds = 5 if depth == 0 else 7
    kind = source.randrange(kinds)
    if kind == 5:
        return [_random_value(source, depth - 1) for _ in range(source.randrange(4))]
    if kind == 6:
        return {
            str(n): _random_value(source, depth - 1) for n in range(source.randrange(4))
        }
    return [
        None,
        source.random() < 0.5,
        source.randrange(-9, 9),
        source.random(),
        "\u5bd2",
    ][kind]


def test_a_detached_value_is_equal_and_shares_nothing():
    source = random.Random(7)
    for _ in range(300):
        value = _random_value(source, 4)
        copy = detach_json(value)
        assert copy == value
        assert json.dumps(copy, allow_nan=False) == json.dumps(value)
        if isinstance(value, (list, dict)):
            assert copy is not value
