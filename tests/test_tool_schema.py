"""From signatures to schemas."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import functools
import json
import sys
import typing
from typing import Annotated, Any, Dict, List, Literal, NewType, Optional, Union

import pytest
from enums import Level, Mode, Shape

from qitos_min.core._json_schema import check_value
from qitos_min.core.tool_schema import (
    CallSignature,
    function_schema,
    parse_docstring,
    type_to_json_schema,
)


def schema_of(func):
    """The JSON schema of all arguments of a function."""
    return CallSignature.of(func).schema


class Odd(enum.Enum):
    NAN = float("nan")
    HUGE = 10**5000
    NONE = None


class Empty(enum.Enum): ...


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


class Partial(typing.TypedDict, total=False):
    city: str


UserId = NewType("UserId", int)
NULL = {"type": "null"}
TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
ANYTHING = {"type": "array", "items": {}}
MODE = {"type": "string", "enum": ["fast", "slow"]}
PLACE = {
    "type": "object",
    "properties": {"city": TEXT, "zip": WHOLE},
    "required": ["city", "zip"],
}
# Fault 20: of these, many had an empty schema.
TYPES = [
    (str, TEXT),
    (int, WHOLE),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, NULL),
    (type(None), NULL),
    (Any, {}),
    ([int], {}),
    ({"a": 1}, {}),
    (object, {}),
    (datetime.datetime, {**TEXT, "format": "date-time"}),
    (list, ANYTHING),
    (List, ANYTHING),
    (list[str], {"type": "array", "items": TEXT}),
    (List[Any], ANYTHING),
    (collections.abc.Sequence[int], {"type": "array", "items": WHOLE}),
    (dict, {"type": "object"}),
    (Dict[str, int], {"type": "object", "additionalProperties": WHOLE}),
    (collections.abc.Mapping[str, Any], {"type": "object"}),
    (tuple, ANYTHING),
    (tuple[int, ...], {"type": "array", "items": WHOLE}),
    (
        tuple[int, str],
        {
            "type": "array",
            "prefixItems": [WHOLE, TEXT],
            "items": {"anyOf": [WHOLE, TEXT]},
            "minItems": 2,
            "maxItems": 2,
        },
    ),
    (set[str], {"type": "array", "items": TEXT}),
    (frozenset, ANYTHING),
    (Optional[str], {"anyOf": [TEXT, NULL]}),
    (int | None, {"anyOf": [WHOLE, NULL]}),
    (Union[int, str], {"anyOf": [WHOLE, TEXT]}),
    (Union[int, str, None], {"anyOf": [WHOLE, TEXT, NULL]}),
    (Union[int, Any], {}),
    (Union[UserId, int], WHOLE),
    (Literal["x", "y"], {"type": "string", "enum": ["x", "y"]}),
    (
        Literal["x", 1, True],
        {"type": ["string", "integer", "boolean"], "enum": ["x", 1, True]},
    ),
    (Literal["x", None], {"type": ["string", "null"], "enum": ["x", None]}),
    (Optional[Literal["x"]], {"type": ["string", "null"], "enum": ["x", None]}),
    (Mode, MODE),
    (Level, {"type": "integer", "enum": [1, 2]}),
    (Shape, {"type": "string", "enum": ["POINT", "LINE"]}),
    (Odd, {"type": ["string", "null"], "enum": ["NAN", "HUGE", None]}),
    (Empty, {}),
    (Literal[Mode.SLOW], {"type": "string", "enum": ["slow"]}),
    (Mode | None, {"type": ["string", "null"], "enum": ["fast", "slow", None]}),
    (Annotated[int, "units"], {"type": "integer", "description": "units"}),
    (Annotated[int, 7, "units"], {"type": "integer", "description": "units"}),
    (Annotated[Optional[str], "who"], {"anyOf": [TEXT, NULL], "description": "who"}),
    (Optional[Annotated[str, "who"]], {"anyOf": [TEXT, NULL], "description": "who"}),
    (UserId, WHOLE),
    (Place, PLACE),
    (list[Place], {"type": "array", "items": PLACE}),
    (Partial, {"type": "object", "properties": {"city": TEXT}, "required": []}),
    (
        Query,
        {
            "type": "object",
            "properties": {
                "text": TEXT,
                "limit": {**WHOLE, "default": 5},
                "mode": {**MODE, "default": "fast"},
                "tags": {"type": "array", "items": TEXT},
            },
            "required": ["text"],
        },
    ),
    (
        Node,
        {
            "type": "object",
            "properties": {
                "value": WHOLE,
                "children": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["value"],
        },
    ),
]


@pytest.mark.parametrize("annotation, schema", TYPES, ids=[str(t) for t, _ in TYPES])
def test_each_type_has_its_schema(annotation, schema):
    assert type_to_json_schema(annotation) == schema


def search(query: str, limit: int = 10, tags: list[str] | None = None) -> str:
    return query


def wide(a: Optional[str], b: Union[int, str], c: Literal["x", "y"] = "x"): ...
def starred(x: int, *args: str, flag: bool = False, **kwargs: int): ...
def plain_names(args: str, kwargs: str): ...
def half_known(a: Gone, b: int, c: list[Gone], d: Optional[str] = None): ...  # noqa
def implicit(a: str = None, b: Mode = None, c: Annotated[str, "who"] = None): ...
def bare(a, b=3): ...
def positional(a: int, b: int = 2, /, c: int = 3): ...


class Box:
    def method(self, a: int): ...

    @classmethod
    def made(cls, a: int): ...

    @staticmethod
    def free(a: int): ...

    def __call__(self, a: int): ...


def decorated(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        return func(*args, **kwargs)

    return wrapper


ONE = ({"a": WHOLE}, ["a"])
SIGNATURES = [
    (
        search,  # T1: crewAI #7623, toolfuse #1
        {
            "query": TEXT,
            "limit": {**WHOLE, "default": 10},
            "tags": {
                "anyOf": [{"type": "array", "items": TEXT}, NULL],
                "default": None,
            },
        },
        ["query"],
    ),
    (
        wide,  # T3: PraisonAI #1845, inspect_ai #3104
        {
            "a": {"anyOf": [TEXT, NULL]},
            "b": {"anyOf": [WHOLE, TEXT]},
            "c": {"type": "string", "enum": ["x", "y"], "default": "x"},
        },
        ["a", "b"],
    ),
    (
        starred,  # T6: MCP python-sdk #3514, ollama-python #735
        {"x": WHOLE, "flag": {"type": "boolean", "default": False}},
        ["x"],
    ),
    (plain_names, {"args": TEXT, "kwargs": TEXT}, ["args", "kwargs"]),
    (
        half_known,
        {"a": {}, "b": WHOLE, "c": {}, "d": {"anyOf": [TEXT, NULL], "default": None}},
        ["a", "b", "c"],
    ),
    (
        implicit,
        {
            "a": {"anyOf": [TEXT, NULL], "default": None},
            "b": {
                "type": ["string", "null"],
                "enum": ["fast", "slow", None],
                "default": None,
            },
            "c": {"anyOf": [TEXT, NULL], "description": "who", "default": None},
        },
        [],
    ),
    (bare, {"a": {}, "b": {"default": 3}}, ["a"]),
    (
        positional,
        {"a": WHOLE, "b": {**WHOLE, "default": 2}, "c": {**WHOLE, "default": 3}},
        ["a"],
    ),
    (Box().method, *ONE),  # T17: effectful #592
    (Box.method, *ONE),
    (Box.made, *ONE),
    (Box().free, *ONE),
    (Box(), *ONE),
    (
        functools.partial(search, "cats"),
        {
            "limit": {**WHOLE, "default": 10},
            "tags": {
                "anyOf": [{"type": "array", "items": TEXT}, NULL],
                "default": None,
            },
        },
        [],
    ),
    (decorated(plain_names), {"args": TEXT, "kwargs": TEXT}, ["args", "kwargs"]),
    (len, {"obj": {}}, ["obj"]),
]


@pytest.mark.parametrize("func, properties, required", SIGNATURES)
def test_each_signature_has_its_schema(func, properties, required):
    schema = schema_of(func)
    assert schema["properties"] == properties
    assert schema["required"] == required
    assert schema["type"] == "object"


def test_only_further_keywords_open_the_schema():
    assert schema_of(starred)["additionalProperties"] == WHOLE
    assert "additionalProperties" not in schema_of(search)


def test_a_callable_without_signature_is_refused():
    with pytest.raises(ValueError, match="signature"):
        schema_of(max)


def test_defaults_that_json_cannot_hold_are_left_out():
    # T7: strands #1914, griptape #2026
    def when(
        at: datetime.datetime = datetime.datetime(2026, 1, 1),
        sep=object(),
        mode: Mode = Mode.SLOW,
        n: int = 3,
        ratio: float = float("nan"),
        pair: tuple[int, int] = (1, 2),
        tags: set[str] = frozenset({"a"}),
    ): ...

    properties = schema_of(when)["properties"]
    shown = {name: s["default"] for name, s in properties.items() if "default" in s}
    assert shown == {"mode": "slow", "n": 3, "pair": [1, 2]}
    assert schema_of(when)["required"] == []
    json.dumps(properties, allow_nan=False)


def test_a_shown_default_is_a_copy():
    start = {"a": [1]}

    def func(x: dict = start): ...

    schema = schema_of(func)
    start["a"].append(2)
    assert schema["properties"]["x"]["default"] == {"a": [1]}


class Env: ...


INJECTED = [
    ("x: int, runtime_context=None", ["x"]),
    ("x: int, runtime_context: dict", ["x"]),
    ("x: int, runtime_context: Optional[Dict[str, Any]] = None", ["x"]),
    ("x: int, runtime_context: str", ["x", "runtime_context"]),
    ("x: int, env", ["x"]),
    ("x: int, env: Env", ["x"]),
    ("x: int, env: Env | None = None", ["x"]),
    ("x: int, env: Unknown", ["x"]),
    ("x: int, env: str", ["x", "env"]),
    ("x: int, env: dict[str, str]", ["x", "env"]),
    ("x: int, env='prod'", ["x", "env"]),
    ("x: int, env: Optional[str] = None", ["x", "env"]),
    ("x: int, ops: dict, file_ops, process_ops: Any = None", ["x"]),
    ("x: int, ops: list[str]", ["x", "ops"]),
    ("x: int, ops: Place", ["x", "ops"]),
    ("x: int, file_ops: str, process_ops: bool", ["x", "file_ops", "process_ops"]),
]


@pytest.mark.parametrize("text, shown", INJECTED)
def test_what_the_runtime_fills_is_hidden_unless_its_type_is_plain(text, shown):
    names = dict(globals())
    exec(f"from __future__ import annotations\ndef func({text}): ...", names)
    assert list(schema_of(names["func"])["properties"]) == shown


def test_the_text_of_an_annotation_beats_the_docstring():
    def func(a: Annotated[int, "near"], b: int):
        """F.

        Args:
            a: far
            b: other
        """

    properties = schema_of(func)["properties"]
    assert [properties[n]["description"] for n in "ab"] == ["near", "other"]


def test_a_default_always_fits_its_own_schema():
    for func, _, _ in SIGNATURES:
        for schema in schema_of(func)["properties"].values():
            if "default" in schema:
                assert check_value(schema["default"], schema) is None


def test_the_schema_of_a_function_names_its_parts():
    def look(where: str, depth: int = 2):
        """Look.

        Args:
            where: the place
        """

    assert function_schema(look) == {
        "parameters": {
            "where": {"type": "string", "description": "the place"},
            "depth": {"type": "integer", "default": 2},
        },
        "required": ["where"],
        "descriptions": {"where": "the place"},
    }
    assert parse_docstring(look.__doc__) == {"where": "the place"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="marks of TypedDict fields")
def test_marks_that_are_still_text_decide_what_a_typed_dict_requires():
    names: dict[str, Any] = {"typing": typing, "__name__": __name__}
    exec(
        "from __future__ import annotations\n"
        "class Trip(typing.TypedDict):\n"
        "    start: str\n"
        "    end: typing.NotRequired[str]\n",
        names,
    )
    globals()["Trip"] = names["Trip"]
    assert type_to_json_schema(names["Trip"]) == {
        "type": "object",
        "properties": {"start": TEXT, "end": TEXT},
        "required": ["start"],
    }
