"""Typed values: what a signature or a state's annotation says is what arrives."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import json
import pathlib
import typing
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, Union

import pytest
from enums import Level, Mode
from engine_doubles import as_json

from tool_results import result_of

from qitos_min import ToolRegistry
from qitos_min.core._foreign import outcome
from qitos_min.core._json import to_json_value
from qitos_min.core._json_schema import Misfit
from qitos_min.core._typed import form_of
from qitos_min.core.tool_schema import CallSignature, type_to_json_schema


class Right(enum.IntFlag):
    READ = 1
    WRITE = 2


class Shape(enum.Enum):
    LINE = (0, 1)
    DAY = dt.date(2026, 3, 1)


class Point(NamedTuple):
    x: int
    y: float = 0.5


@dataclasses.dataclass
class Note:
    text: str
    at: Optional[dt.datetime] = None
    tags: set[str] = dataclasses.field(default_factory=set)
    length: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        self.length = len(self.text)


@dataclasses.dataclass(frozen=True)
class Pair:
    left: Note
    right: Optional[Pair] = None


@dataclasses.dataclass
class Scaled:
    value: Decimal
    factor: dataclasses.InitVar[int]

    def __post_init__(self, factor):
        self.value = self.value * factor


class Trip(typing.TypedDict):
    start: dt.date
    stops: typing.List[Point]


class Name(str): ...


class Board:
    """Offers what models of a well-known library do."""

    def __init__(self, rows):
        self.rows = rows

    def __eq__(self, other):
        return self.rows == other.rows

    @classmethod
    def model_json_schema(cls):
        row = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Row"}}}
        rows = {"type": "array", "items": {"$ref": "#/$defs/Row"}}
        properties = {"rows": rows, "further": {"type": "array"}}
        return {"type": "object", "properties": properties, "$defs": {"Row": row}}

    @classmethod
    def model_validate(cls, value):
        if "rows" not in value:
            raise ValueError("rows: field required")
        return cls(value["rows"])

    def model_dump(self):
        return {"rows": self.rows}


UserId = NewType("UserId", uuid.UUID)
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.timezone.utc)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
DAYS = typing.Dict[dt.date, Union[Point, None]]

# type, what JSON has for it, the value: both ways
BOTH_WAYS = [
    (dt.datetime, "2026-03-01T12:00:00+00:00", NOON),
    (dt.datetime, "2026-03-01T12:00:00", NOON.replace(tzinfo=None)),
    (dt.date, "2026-03-01", dt.date(2026, 3, 1)),
    (dt.time, "12:30:00", dt.time(12, 30)),
    (dt.timedelta, 90.5, dt.timedelta(seconds=90.5)),
    (Path, "out/a.txt", Path("out/a.txt")),
    (pathlib.PurePosixPath, "a/b", pathlib.PurePosixPath("a/b")),
    (Decimal, "1.10", Decimal("1.10")),
    (uuid.UUID, str(ID), ID),
    (UserId, str(ID), ID),
    (bytes, {"$bytes": "AP8="}, b"\x00\xff"),
    (Right, 3, Right.READ | Right.WRITE),
    (Shape, [0, 1], Shape.LINE),
    (Shape, "2026-03-01", Shape.DAY),
    (Literal[Mode.SLOW, Level.LOW, "x"], 1, Level.LOW),
    (Name, "ada", Name("ada")),
    (float, 3.0, 3.0),
    (int, 10**30, 10**30),
    (Point, {"x": 1, "y": 2.0}, Point(1, 2.0)),
    (Trip, {"start": "2026-03-01", "stops": []}, {"start": dt.date(2026, 3, 1), "stops": []}),
    (Board, {"rows": [{"next": {}}]}, Board([{"next": {}}])),
    (list[Point], [{"x": 1, "y": 0.5}], [Point(1)]),
    (set[tuple[int, Mode]], [[1, "fast"]], {(1, Mode.FAST)}),
    (frozenset[dt.date], ["2026-03-01"], frozenset({dt.date(2026, 3, 1)})),
    (collections.deque[Path], ["a"], collections.deque([Path("a")])),
    (dict[int, set[int]], {"7": [1]}, {7: {1}}),
    (dict[tuple[int, str], Level], {'[1,"a"]': 2}, {(1, "a"): Level.HIGH}),
    (dict[Shape, int], {"[0,1]": 3}, {Shape.LINE: 3}),
    (dict[Point, int], {'{"x":1,"y":0.5}': 3}, {Point(1): 3}),
    (DAYS, {"2026-03-01": None}, {dt.date(2026, 3, 1): None}),
    (typing.Counter[str], {"x": 2}, collections.Counter(x=2)),
    (typing.OrderedDict[str, Mode], {"x": "fast"}, collections.OrderedDict(x=Mode.FAST)),
    (typing.DefaultDict[str, int], {"x": 2}, collections.defaultdict(int, x=2)),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[dt.date, Path], ["2026-03-01", "a"], (dt.date(2026, 3, 1), Path("a"))),
    (tuple[()], [], ()),
    (Optional[Path], None, None),
    (Path | None, "a", Path("a")),
    (Annotated[Optional[dt.date], "day"], "2026-03-01", dt.date(2026, 3, 1)),
    (Union[int, float], 2.0, 2.0),
    (Union[float, int], 2, 2),
    (Union[int, str], "5", "5"),
    (Union[bool, int], 1, 1),
    (Union[dt.datetime, dt.date], "2026-03-01", dt.date(2026, 3, 1)),
    (Union[str, dt.date], "2026-03-01", dt.date(2026, 3, 1)),
    (Union[str, dt.date], "soon", "soon"),
    (Union[Point, Board], {"rows": []}, Board([])),
    (Union[list[Point], Mode, None], "slow", Mode.SLOW),
    (Any, {"a": [1]}, {"a": [1]}),
    (object, [1], [1]),
]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("kind, value, wanted", BOTH_WAYS, ids=str)
def test_a_value_is_what_its_type_says(kind, value, wanted, saved):
    found = form_of(kind, saved=saved).read(json.loads(json.dumps(value)))
    assert type(found) is type(wanted)
    assert found == wanted
    if isinstance(found, (list, tuple, set, frozenset)):
        assert list(map(type, found)) == list(map(type, wanted))
    # What is of the type already stays.
    assert form_of(kind, saved=saved).read(wanted) == wanted


@pytest.mark.parametrize("kind, value, wanted", BOTH_WAYS, ids=str)
def test_what_json_has_for_a_value_is_restored(kind, value, wanted):
    assert form_of(kind, saved=True).read(to_json_value(wanted)) == wanted


# what else stands for a value in a call
CALLS = [
    (dt.datetime, "2026-03-01T12:00:00Z", NOON),
    (dt.datetime, "2026-03-01", dt.datetime(2026, 3, 1)),
    (dt.timedelta, 90, dt.timedelta(seconds=90)),
    (Decimal, 1.1, Decimal("1.1")),
    (Decimal, 3, Decimal(3)),
    (bytes, "AP8=", b"\x00\xff"),
    (int, 2.0, 2),
    (float, 2, 2.0),
    (float, 2**53 + 1, 2**53 + 1),
    (Level, 2.0, Level.HIGH),
    (Point, {"x": 1.0}, Point(1)),
    (Scaled, {"value": "1.5", "factor": 2.0}, None),
    (Note, {"text": "ab", "at": "2026-03-01T12:00:00Z", "tags": ["x"]}, Note("ab", NOON, {"x"})),
    (Pair, {"left": {"text": "a"}, "right": {"left": {"text": "b"}}}, Pair(Note("a"), Pair(Note("b")))),
    (Shape, "LINE", Shape.LINE),
    (dict[str, list[int]], {"a": [1.0]}, {"a": [1]}),
]


@pytest.mark.parametrize("kind, value, wanted", [*BOTH_WAYS, *CALLS], ids=str)
def test_a_call_passes_the_typed_value(kind, value, wanted):
    # public report "typed_arguments": dates, paths and decimals arrived as text
    got = []

    def take(value):
        got.append(value)
        return "done"

    take.__annotations__ = {"value": kind}
    if kind is bytes and isinstance(value, dict):
        return  # The form of saved states only.
    if kind is Shape and value != "LINE":
        return  # Members without a JSON value are called by their names.
    result = result_of(ToolRegistry().register(take), "take", value=value)
    assert (result.status, result.error) == ("success", None)
    if wanted is not None:
        assert got == [wanted]
        assert type(got[0]) is type(wanted)
    if kind is Scaled:
        assert got[0].value == Decimal("3.0")


UNHASHABLE = outcome(set, [([1],)])[1]  # In Python's words, which are others from 3.14 on.
REFUSED = [
    (int, "5", "invalid_argument_type", "argument 'value' must be of type integer, got str"),
    (int, True, "invalid_argument_type", "argument 'value' must be of type integer, got bool"),
    (int, 2.5, "invalid_argument_type", "argument 'value' must be of type integer, got float"),
    (Decimal, True, "invalid_argument_type", "argument 'value' must be of type string or number, got bool"),
    (dt.datetime, 5, "invalid_argument_type", "argument 'value' must be of type string, got int"),
    (dt.datetime, "soon", "invalid_argument_value", "argument 'value' must be an ISO 8601 date and time, got 'soon'"),
    (dt.timedelta, 1e300, "invalid_argument_value", "argument 'value' must be a number of seconds, got 1e+300"),
    (Decimal, "much", "invalid_argument_value", "argument 'value' must be a decimal number, got 'much'"),
    (uuid.UUID, "1", "invalid_argument_value", "argument 'value' must be a UUID, got '1'"),
    (bytes, "a b", "invalid_argument_value", "argument 'value' must be bytes in base64, got 'a b'"),
    (list[dt.date], ["2026-03-01", "x"], "invalid_argument_value", "argument 'value[1]' must be an ISO 8601 date, got 'x'"),
    (Optional[dt.date], "x", "invalid_argument_value", "argument 'value' must be an ISO 8601 date, got 'x'"),
    (Union[dt.date, uuid.UUID], "x", "invalid_argument_value",
     "argument 'value' must be an ISO 8601 date, got 'x'; must be a UUID, got 'x'"),
    (dict[int, str], {"x": "a"}, "invalid_argument_value",
     "argument 'value' has the key 'x', which must be a whole number, got 'x'"),
    (Note, {"text": "a", "at": "x"}, "invalid_argument_value",
     "argument 'value.at' must be an ISO 8601 date and time, got 'x'"),
    (Note, {"text": "a", "length": 3}, "unexpected_argument", "unexpected argument 'value.length', expected text, at, tags"),
    (Point, {"y": 1}, "missing_required_argument", "missing required argument 'value.x'"),
    (Scaled, {"value": "1"}, "missing_required_argument", "missing required argument 'value.factor'"),
    (Board, {}, "invalid_argument_value", "argument 'value' cannot become a Board: ValueError: rows: field required"),
    (set[tuple[Any, ...]], [[[1]]], "invalid_argument_value",
     f"argument 'value' cannot become a set: TypeError: {UNHASHABLE}"),
    (Literal[Mode.SLOW], "fast", "invalid_argument_value", "argument 'value' must be one of 'slow', got 'fast'"),
]


@pytest.mark.parametrize("kind, value, code, message", REFUSED, ids=str)
def test_what_a_type_cannot_take_is_refused_before_the_tool_runs(kind, value, code, message):
    ran = []

    def take(value):
        ran.append(value)

    take.__annotations__ = {"value": kind}
    result = result_of(ToolRegistry().register(take), "take", value=value)
    assert (result.status, result.error_code, ran) == ("error", code, [])
    assert result.error == message


def test_every_typed_kind_has_a_schema():
    for kind, value, _ in [*BOTH_WAYS, *CALLS]:
        if kind not in (Any, object):
            assert type_to_json_schema(kind), kind


SCHEMAS = [
    (Decimal, {"type": ["string", "number"], "format": "decimal"}),
    (dt.timedelta, {"type": "number", "title": "seconds"}),
    (Right, {"type": "integer"}),
    (
        Point,
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.5}},
            "required": ["x"],
        },
    ),
    (
        Scaled,
        {
            "type": "object",
            "properties": {"value": {"type": ["string", "number"], "format": "decimal"}, "factor": {"type": "integer"}},
            "required": ["value", "factor"],
        },
    ),
    (
        Board,
        {
            "type": "object",
            "properties": {
                "rows": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"next": {"type": "object"}}},
                },
                "further": {"type": "array", "items": {}},
            },
        },
    ),
    (Literal[Mode.SLOW, Level.LOW], {"type": ["string", "integer"], "enum": ["slow", 1]}),
]


@pytest.mark.parametrize("kind, schema", SCHEMAS, ids=str)
def test_the_schema_of_a_kind(kind, schema):
    assert type_to_json_schema(kind) == schema


def lacking(schema):
    """Arrays without ``items`` in a schema."""
    if isinstance(schema, list):
        return [found for item in schema for found in lacking(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "array" and "items" not in schema else []
    return own + [found for item in schema.values() for found in lacking(item)]


ARRAYS = [
    list, set, frozenset, tuple, collections.deque, typing.Sequence, typing.Iterable, typing.AbstractSet,
    list[list], Optional[list], tuple[float, float], tuple[()], tuple[int, ...], tuple[list, dict[str, list]],
    dict[str, set], Union[list, dict], list[Any], list[Optional[tuple]], Board, list[Board], list[Point],
    Annotated[list, "rows"], list[Trip], Optional[Pair], Literal["a"] | list,
]  # fmt: skip


@pytest.mark.parametrize("kind", ARRAYS, ids=str)
def test_every_array_schema_has_items(kind):
    # public report "array_schemas_have_items": one array without items, and the whole request is refused
    def take(value, *, other=None, **rest): ...

    take.__annotations__ = {"value": kind, "other": kind, "rest": kind}
    schema = CallSignature.of(take).schema
    assert lacking(schema) == []
    as_json(schema)


@dataclasses.dataclass
class Hooked:
    url: str
    on_done: Optional[Callable[[str], None]] = None


FUNCTIONS = [
    Callable,
    typing.Callable,
    Callable[[int], int],
    Callable[..., Any],
    Optional[Callable[[int], int]],
    Callable[[int], int] | None,
    Annotated[Callable[[int], int], "how"],
    NewType("Key", Callable[[int], int]),
]


@pytest.mark.parametrize("kind", FUNCTIONS, ids=str)
def test_a_parameter_for_a_function_needs_a_default(kind):
    # public report "callable_parameter": a callback kept the tool from being registered
    def sort(items: list, key): ...

    sort.__annotations__["key"] = kind
    with pytest.raises(ValueError) as caught:
        ToolRegistry().register(sort, name="order")
    assert str(caught.value) == (
        "tool 'order' cannot be called by a model: its parameter 'key' takes a function, "
        "which JSON cannot hold; give it a default, then it is left out of the schema"
    )
    got = []

    def with_default(items: list, key=len):
        got.append((items, key))

    with_default.__annotations__["key"] = kind
    registry = ToolRegistry().register(with_default)
    assert list(CallSignature.of(with_default).schema["properties"]) == ["items"]
    assert result_of(registry, "with_default", items=[1]).is_success
    assert got == [([1], len)]
    assert result_of(registry, "with_default", items=[1], key="len").error_code == "unexpected_argument"


def test_a_function_is_left_out_of_what_holds_it():
    assert type_to_json_schema(Hooked)["properties"] == {"url": {"type": "string"}}
    assert type_to_json_schema(Union[str, Callable[[], str]]) == {"type": "string"}
    assert form_of(Hooked).read({"url": "u"}) == Hooked("u")


def test_an_author_who_writes_the_schema_may_resolve_names_to_functions():
    from qitos_min.core.tool import FunctionTool, ToolMeta

    def sort(key: Callable[[int], int]):
        return key

    schema = {"type": "object", "properties": {"key": {"type": "string"}}}
    tool = FunctionTool(sort, ToolMeta(input_schema=schema))
    assert result_of(ToolRegistry().register(tool), "sort", key="abs").output == "abs"


def test_deep_values_are_read_or_refused():
    value: Any = {"left": {"text": "a"}}
    for _ in range(60):
        value = {"left": {"text": "a"}, "right": value}
    assert isinstance(form_of(Pair).read(value), Pair)


@pytest.mark.parametrize(
    "kind, value, place, message",
    [
        (list[Note], [{"text": "a"}, {"text": 5}], "[1].text", "must be a text, got 5"),
        (dict[str, dt.date], {"a": "x"}, "['a']", "must be an ISO 8601 date, got 'x'"),
        (Note, {"text": "a", "gone": 1}, "", "has the field 'gone', which Note does not know"),
        (Note, {}, "", "lacks the field 'text'"),
        (set, "abc", "", "must be an array, got 'abc'"),
        (tuple[int, int], [1], "", "must be an array of 2 items, got list"),
        (Lock := type("Lock", (), {}), {"$unserializable": "x"}, "", "must be a Lock, got dict"),
    ],
    ids=str,
)
def test_a_saved_value_that_does_not_fit_says_where(kind, value, place, message):
    with pytest.raises(Misfit) as caught:
        form_of(kind, saved=True).read(value)
    assert (caught.value.place, str(caught.value)) == (place, message)


def test_whole_numbers_reach_a_tool_that_reads_its_own_arguments():
    from qitos_min import BaseTool

    class Repeat(BaseTool):
        name = "repeat"
        parameters = {"n": {"type": "integer"}, "x": {"type": "number"}}

        def execute(self, args, runtime_context=None):
            return [repr(args["n"]), repr(args["x"])]

    result = result_of(ToolRegistry().register(Repeat()), "repeat", n=2.0, x=2.0)
    assert result.output == ["2", "2.0"]


def test_a_schema_that_allows_everything_takes_any_number():
    from qitos_min import BaseTool

    class Anything(BaseTool):
        name = "anything"
        input_schema = True

        def execute(self, args, runtime_context=None):
            return args

    assert result_of(ToolRegistry().register(Anything()), "anything", x=2.5).output == {"x": 2.5}


def test_a_store_and_an_environment_that_are_empty_are_used(tmp_path):
    from qitos_min import Action, AgentModule, Decision, StateSchema, ToolMeta
    from qitos_min.kit import HostEnv

    class Store(dict):
        resolver_key = "kept"

        def put(self, ref, body):
            self[ref.artifact_id] = body
            return ref

    class Empty(HostEnv):
        seen = 0

        def __len__(self):
            return 0

        def observe(self, state=None):
            self.seen += 1
            return super().observe(state)

    class Ender(AgentModule):
        def init_state(self, task, **kwargs):
            return StateSchema(task=task)

        def decide(self, state, observation):
            return Decision.final("done")

        def reduce(self, state, observation, decision):
            return state

    store, env = Store(), Empty(tmp_path)
    tools = ToolRegistry().register(lambda: "x" * 100, name="long", meta=ToolMeta(result_max_chars=10))
    tools.execute(Action("long"), {"artifact_resolver": store})
    assert list(store.values()) == [b"x" * 100]
    Ender().run("t", workspace=tmp_path, env=env)
    assert env.seen == 2  # At its reset and in the one step.
