"""Values: what each kind becomes, whole, with the paths and words of its issues.

Ids such as N1 or V6 name reports of other people's exporters: UK inspect_ai, OpenAI
agents, langsmith, langfuse, mlflow, litellm, dspy and others; each case says what
was seen there.
"""

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import json
import os
import pathlib
import threading
import types
import uuid
from unittest import mock

import pytest
from strictly import identical, round_trip, strict

import snowl_compat
from snowl_compat import Issue, SnowlCompatError, to_json_value

NAN, INF = float("nan"), float("inf")
MARK = "$unserializable"
PNG = b"\x89PNG\r\n\xff"
HERE = __name__


class Colour(enum.Enum):
    RED = "red"
    ONE = 1
    NONE = None
    PAIR = (1, "two")
    MAP = {"k": [1]}
    BAD = NAN


class Level(enum.IntEnum):
    LOW = 1


class Word(str, enum.Enum):
    RETRY = "retry"


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass
class Verdict:
    allowed: bool = True
    reason: str = "approved"


@dataclasses.dataclass
class Client:
    name: str = "c1"
    lock: object = dataclasses.field(default_factory=threading.Lock)
    tries: list = dataclasses.field(default_factory=lambda: [1, 2])


@dataclasses.dataclass
class Unset:
    given: int
    late: int = dataclasses.field(init=False)


@dataclasses.dataclass
class UnsetSlots:
    __slots__ = ("given", "late")
    given: int
    late: int


@dataclasses.dataclass
class Raising:
    given: int = 1
    bad: int = 2

    def __getattribute__(self, name):
        if name == "bad":
            raise SystemExit("no")
        return object.__getattribute__(self, name)


Point = collections.namedtuple("Point", "x y")


class HostilePoint(Point):
    def __iter__(self):
        raise SystemExit("no")


class LyingPoint(Point):
    _fields = ("x",)


class Answer:
    """An object whose one method, given by its name, returns a value."""

    def __init__(self, value):
        self.value = value


class ToDict(Answer):
    def to_dict(self):
        return self.value


class ModelDump(Answer):
    def model_dump(self, **options):
        return self.value


class Itself:
    def to_dict(self):
        return self


class Endless:
    def to_dict(self):
        return Endless()


class NeedsArgument:
    def to_dict(self, mode):
        return {"mode": mode}


class ToDictOnInstance:
    def __init__(self):
        self.to_dict = lambda: {"not": "read"}


class Scalar(Answer):
    dtype = "int64"

    def item(self):
        return self.value


class Array(Answer):
    dtype = "float64"

    def tolist(self):
        return self.value


class SameType:
    dtype = "float128"

    def item(self):
        return SameType()


class PairsOfThree(dict):
    def items(self):
        return [(1, 2, 3)]


class RaisingItems(dict):
    def items(self):
        raise SystemExit("no")


class TooManyItems(collections.UserDict):
    def __len__(self):
        return -5

    def __iter__(self):
        return iter(["a", "absent"])


def pathological():
    """A class on which nothing works; out of sight of those who look at modules."""

    class Meta(type):
        def __hash__(cls):
            raise SystemExit("no")

        def __eq__(cls, other):
            raise SystemExit("no")

        def __getattribute__(cls, name):
            raise SystemExit("no")

    class Odd(metaclass=Meta):
        pass

    return Odd


class LyingClass:
    @property
    def __class__(self):
        return dict


class RaisingClass:
    @property
    def __class__(self):
        raise SystemExit("no")


class Everything:
    def __getattr__(self, name):
        return self

    def __call__(self, *args):
        return self

    def __iter__(self):
        return iter([self])


class RaisingZone(datetime.tzinfo):
    def utcoffset(self, moment):
        raise SystemExit("no")


class RaisingDate(datetime.date):
    def isoformat(self):
        raise SystemExit("no")


class RaisingPath:
    def __fspath__(self):
        raise SystemExit("no")


class RaisingText(Exception):
    def __str__(self):
        raise SystemExit("no")


class RaisingEnum(enum.Enum):
    A = 1

    @property
    def value(self):
        raise SystemExit("no")


class RaisingList(list):
    def __iter__(self):
        raise SystemExit("no")


class HostileText(str):
    """Text that is text only for C code."""

    def __str__(self):
        raise SystemExit("no")

    __repr__ = isascii = encode = __str__


def marked(name):
    return {MARK: name}


def foreign(name, of=None, why=""):
    """What a foreign object becomes, and the issue that tells it."""
    words = f"expected a JSON value, got {name} {why}".rstrip()
    return marked(of or f"{HERE}.{name}"), [("", words)]


PLAIN = {
    "none": lambda: None,
    "flags": lambda: [True, False],
    "N7 integers above 2**53 keep their digits": lambda: [2**63 - 1, 1285704473650888702],
    "the longest integer": lambda: [10**4299, -(10**4299)],
    "floats": lambda: [0.0, -0.0, 1.5, 5e-324, 1.7976931348623157e308],
    "text of every plane": lambda: "寒潮 \U0001f98a é \u2028\u2029\x85 \x7f",
    "U4 NUL stays, as JSON allows it": lambda: {"m": "W\x00s\x00l\x00"},
    "U6 a tool's own JSON text is not read a second time": lambda: '{"t": "\\u5bd2"}',
    "empty": lambda: [{}, [], "", {"": ""}],
    "order of keys": lambda: {"b": 1, "a": {"d": 1, "c": 2}},
    "markers again": lambda: [{"$cycle": True}, {"$truncated": "depth"}],
}


@pytest.mark.parametrize("build", PLAIN.values(), ids=PLAIN)
def test_plain_json_is_itself(build):
    issues = []
    made = to_json_value(build(), issues=issues)
    assert identical(made, build()) and issues == []


def inherit(kind, value):
    return type("Sub", (kind,), {})(value)


TABLE = {
    # Numbers.
    "N1 a NaN in a list once killed the log": (
        lambda: {"scores": [NAN, 1.0]},
        {"scores": [None, 1.0]},
        [(".scores[0]", "expected a finite number, got nan")],
    ),
    "infinities": (
        lambda: [INF, -INF],
        [None, None],
        [("[0]", "expected a finite number, got inf"),
         ("[1]", "expected a finite number, got -inf")],
    ),
    "an integer too long to read back": (
        lambda: {"n": 10**4300, "m": -(10**4300)},
        {"n": marked("builtins.int"), "m": marked("builtins.int")},
        [(".n", "expected at most 4300 digits, got int"),
         (".m", "expected at most 4300 digits, got int")],
    ),
    "subclasses of plain types": (
        lambda: [inherit(int, 7), inherit(float, 1.5), inherit(str, "s"), Level.LOW],
        [7, 1.5, "s", 1], [],
    ),
    "a NaN of a subclass": (
        lambda: inherit(float, NAN), None, [("", "expected a finite number, got nan")],
    ),
    "N9 NumPy scalars and arrays became text": (
        lambda: {"i": Scalar(3), "a": Array([1.5, NAN])},
        {"i": 3, "a": [1.5, None]},
        [(".a[1]", "expected a finite number, got nan")],
    ),
    "a scalar of an exotic type": (lambda: SameType(), *foreign(
        "SameType", why="which converts to itself")),
    # Text.
    "U1 a lone surrogate broke the writing of the file": (
        lambda: {"m": "bad \ud835 寒潮 \U0001f98a tail", "n\udfff": HostileText("x\ud800")},
        {"m": "bad \ufffd 寒潮 \U0001f98a tail", "n\ufffd": "x\ufffd"},
        [(".m", "expected text without lone surrogates,"
                " got 'bad \\ud835 寒潮 \U0001f98a tail'"),
         ("", "expected text without lone surrogates, got 'n\\udfff'"),
         ('["n\\ufffd"]', "expected text without lone surrogates, got 'x\\ud800'")],
    ),
    "two halves of one character are two surrogates": (
        lambda: "\ud83d\ude00", "\ufffd\ufffd",
        [("", "expected text without lone surrogates, got '\\ud83d\\ude00'")],
    ),
    # Enum members: their value.
    "V3 a str-Enum printed as Class.MEMBER": (
        lambda: {"action": Word.RETRY}, {"action": "retry"}, [],
    ),
    "enum members of every kind": (
        lambda: [Colour.RED, Colour.ONE, Colour.NONE, Colour.PAIR, Colour.MAP, Colour.BAD,
                 Bits.A | Bits.B],
        ["red", 1, None, [1, "two"], {"k": [1]}, None, 3],
        [("[5]", "expected a finite number, got nan")],
    ),
    "an enum member that raises": (lambda: RaisingEnum.A, *foreign(
        "RaisingEnum", why="which raised SystemExit")),
    # Objects.
    "V2 dataclasses, models and to_dict showed their repr": (
        lambda: {"dc": Verdict(), "pyd": ModelDump({"n": 1}), "td": ToDict({"n": Point(1, 2)}),
                 "list": [Verdict(False, "no")]},
        {"dc": {"allowed": True, "reason": "approved"}, "pyd": {"n": 1},
         "td": {"n": {"x": 1, "y": 2}}, "list": [{"allowed": False, "reason": "no"}]},
        [],
    ),
    "V12 asdict copied a lock and lost the object": (
        Client,
        {"name": "c1", "lock": marked("_thread.lock"), "tries": [1, 2]},
        [(".lock", "expected a JSON value, got lock")],
    ),
    "a dataclass with an unset field": (lambda: Unset(1), {"given": 1}, []),
    "a slotted dataclass with unset fields": (
        lambda: UnsetSlots.__new__(UnsetSlots), {}, [],
    ),
    "a dataclass with a raising field": (
        Raising,
        {"given": 1, "bad": marked(f"{HERE}.Raising")},
        [(".bad", "reading it raised SystemExit")],
    ),
    "namedtuples": (
        lambda: [Point(1, [2]), HostilePoint(1, 2), LyingPoint(1, 2)],
        [{"x": 1, "y": [2]}, {"x": 1, "y": 2}, [1, 2]], [],
    ),
    "to_dict that returns its object": (Itself, *foreign(
        "Itself", why="which converts to itself")),
    "to_dict that never ends": (
        Endless, {"$truncated": "depth"}, [("", "expected at most 100 levels")],
    ),
    "to_dict that needs an argument": (NeedsArgument, *foreign(
        "NeedsArgument", why="whose to_dict() raised TypeError")),
    "to_dict of the instance alone": (ToDictOnInstance, *foreign("ToDictOnInstance")),
    "to_dict in a circle": (
        lambda: (lambda box: (box.value.append({"box": box}), box)[1])(ToDict([])),
        [{"box": {"$cycle": True}}], [("[0].box", "ToDict contains itself")],
    ),
    # Mappings.
    "V6 keys that are no text were dropped": (
        lambda: {(1, 2): "a", 3: "b", None: "c", frozenset({9}): "d", "s": "e", True: "f",
                 1.5: "g", NAN: "h", -INF: "i", Colour.RED: "j", Colour.ONE: "k",
                 datetime.date(2026, 2, 22): "l", b"k": "m", Scalar(7): "n", Word.RETRY: "o"},
        {"[1,2]": "a", "3": "b", "null": "c", "[9]": "d", "s": "e", "true": "f", "1.5": "g",
         "NaN": "h", "-Infinity": "i", "red": "j", "1": "k", "2026-02-22": "l",
         '{"$bytes":"aw=="}': "m", "7": "n", "retry": "o"},
        [],
    ),
    "keys that become equal all stay": (
        lambda: {1: "a", "1": "b", Colour.ONE: "c", "1#2": "d", Scalar(1): "e"},
        {"1": "a", "1#2": "b", "1#3": "c", "1#2#2": "d", "1#4": "e"},
        [("", "two keys become '1'"), ("", "two keys become '1'"),
         ("", "two keys become '1#2'"), ("", "two keys become '1'")],
    ),
    "a key that JSON cannot hold": (
        lambda: {object: {len: 2}},
        {'{"$unserializable":"builtins.object"}': {'{"$unserializable":"builtins.len"}': 2}},
        [("", "expected a JSON value, got type"),
         ('["{\\"$unserializable\\":\\"builtins.object\\"}"]',
          "expected a JSON value, got builtin_function_or_method")],
    ),
    "mappings of every kind": (
        lambda: [collections.OrderedDict([("b", 1), ("a", 2)]), types.MappingProxyType({"k": 1}),
                 collections.Counter("aab"), collections.UserDict(u=1),
                 collections.ChainMap({"c": 1}), collections.defaultdict(list, d=[1])],
        [{"b": 1, "a": 2}, {"k": 1}, {"a": 2, "b": 1}, {"u": 1}, {"c": 1}, {"d": [1]}], [],
    ),
    "mappings that lie": (
        lambda: [PairsOfThree(a=1), RaisingItems(a=1), TooManyItems(a=1), {"ok": 1}],
        [marked(f"{HERE}.PairsOfThree"), marked(f"{HERE}.RaisingItems"),
         marked(f"{HERE}.TooManyItems"), {"ok": 1}],
        [("[0]", "expected a JSON value, got PairsOfThree which raised ValueError"),
         ("[1]", "expected a JSON value, got RaisingItems which raised SystemExit"),
         ("[2]", "expected a JSON value, got TooManyItems which raised KeyError")],
    ),
    # Lists and sets.
    "lists of every kind": (
        lambda: [(1, "a"), collections.deque([1, 2]), range(3), inherit(list, [1])],
        [[1, "a"], [1, 2], [0, 1, 2], [1]], [],
    ),
    "a list that raises": (
        lambda: [RaisingList([1]), 1],
        [marked(f"{HERE}.RaisingList"), 1],
        [("[0]", "expected a JSON value, got RaisingList which raised SystemExit")],
    ),
    "sets are sorted by the text of their items": (
        lambda: [{"b", "a", 10, 9, None, (1, 2)}, frozenset({frozenset({2, 1}), "z"}), set()],
        [["a", "b", 10, 9, [1, 2], None], ["z", [1, 2]], []], [],
    ),
    "issues in a set have the place that the item gets": (
        lambda: {"s": {NAN, INF, -INF, None, ("x", NAN)}},
        {"s": [["x", None], None, None, None, None]},
        [(".s[0][1]", "expected a finite number, got nan"),
         (".s[2]", "expected a finite number, got -inf"),
         (".s[3]", "expected a finite number, got inf"),
         (".s[4]", "expected a finite number, got nan")],
    ),
    # Times.
    "V1 a datetime in a result stopped the export": (
        lambda: {
            "at": datetime.datetime(
                2026, 2, 22, 12, 41, 38, tzinfo=datetime.timezone(datetime.timedelta(hours=8))
            ),
            "naive": datetime.datetime(2026, 2, 22, 12, 41, 38),
            "day": datetime.date(2026, 2, 22), "clock": datetime.time(1, 2),
            "dur": datetime.timedelta(seconds=90)},
        {"at": "2026-02-22T12:41:38+08:00", "naive": "2026-02-22T12:41:38",
         "day": "2026-02-22", "clock": "01:02:00", "dur": 90.0}, [],
    ),
    "times that raise": (
        lambda: [datetime.datetime(2026, 1, 1, tzinfo=RaisingZone()), RaisingDate(2026, 1, 1)],
        [marked("datetime.datetime"), marked(f"{HERE}.RaisingDate")],
        [("[0]", "expected a JSON value, got datetime which raised SystemExit"),
         ("[1]", "expected a JSON value, got RaisingDate which raised SystemExit")],
    ),
    # What is written as text.
    "V10 a Decimal became a float, a path its repr": (
        lambda: [decimal.Decimal("1.10"), decimal.Decimal("NaN"), decimal.Decimal("1E+999999999"),
                 uuid.UUID("12345678-1234-5678-1234-567812345678"), fractions.Fraction(1, 3),
                 pathlib.PurePosixPath("out/a.txt"), pathlib.PureWindowsPath("out/a.txt")],
        ["1.10", "NaN", "1E+999999999", "12345678-1234-5678-1234-567812345678", "1/3",
         "out/a.txt", "out\\a.txt"], [],
    ),
    "paths that raise": (RaisingPath, *foreign("RaisingPath", why="which raised SystemExit")),
    "V4 bytes became b'' text, or were guessed to be UTF-8": (
        lambda: [PNG, bytearray(PNG), memoryview(PNG), memoryview(b"abcd")[::2], b""],
        [{"$bytes": base64.b64encode(PNG).decode()}] * 3 + [{"$bytes": "YWM="}, {"$bytes": ""}],
        [],
    ),
    "V14 an exception stopped the saving of the run": (
        lambda: [ValueError("bad arg"), RuntimeError(), KeyError("k"), RaisingText("x"),
                 ValueError("\ud800"), SystemExit(3)],
        [{"type": "ValueError", "message": "bad arg"}, {"type": "RuntimeError", "message": ""},
         {"type": "KeyError", "message": "'k'"}, {"type": "RaisingText", "message": ""},
         {"type": "ValueError", "message": "\ufffd"}, {"type": "SystemExit", "message": "3"}],
        [("[3]", "its text raised SystemExit"),
         ("[4].message", "expected text without lone surrogates, got '\\ud800'")],
    ),
    "an exception about a foreign object tells no address": (
        lambda: [KeyError(Everything()), ValueError("crash at 0x7f")],
        [{"type": "KeyError", "message": f"<{HERE}.Everything object>"},
         {"type": "ValueError", "message": "crash at 0x7f"}],
        [],
    ),
    # The rest: its name.
    "V11 a callable's repr had an address": (
        lambda: {"f": foreign, "l": PLAIN["none"], "c": dict, "m": json, "b": len,
                 "method": Itself().to_dict, "bound": [].append,
                 "partial": functools.partial(foreign, "x"), "alias": list[int]},
        {"f": marked(f"{HERE}.foreign"), "l": marked(f"{HERE}.<lambda>"),
         "c": marked("builtins.dict"), "m": marked("json"), "b": marked("builtins.len"),
         "method": marked(f"{HERE}.Itself.to_dict"), "bound": marked("list.append"),
         "partial": marked("functools.partial"), "alias": marked("types.GenericAlias")},
        [(".f", "expected a JSON value, got function"),
         (".l", "expected a JSON value, got function"),
         (".c", "expected a JSON value, got type"),
         (".m", "expected a JSON value, got module"),
         (".b", "expected a JSON value, got builtin_function_or_method"),
         (".method", "expected a JSON value, got method"),
         (".bound", "expected a JSON value, got builtin_function_or_method"),
         (".partial", "expected a JSON value, got partial"),
         (".alias", "expected a JSON value, got GenericAlias")],
    ),
    "a complex number": (lambda: 1 + 2j, *foreign("complex", "builtins.complex")),
    "an object": (object, *foreign("object", "builtins.object")),
    "a name with a lone surrogate": (
        lambda: type("Odd", (), {"__qualname__": "Odd\ud800", "__module__": 5})(),
        *foreign("Odd", "Odd\ufffd"),
    ),
    "an object that answers everything": (Everything, *foreign("Everything")),
    "an object that lies about its class": (LyingClass, *foreign("LyingClass")),
    "an object whose class raises": (RaisingClass, *foreign("RaisingClass")),
    "an object of a pathological class": (
        lambda: object.__new__(pathological()),
        *foreign("Odd", f"{HERE}.pathological.<locals>.Odd"),
    ),
    "a pathological class": (
        pathological, *foreign("Meta", f"{HERE}.pathological.<locals>.Odd"),
    ),
    "mocks": (
        lambda: [mock.Mock(), mock.MagicMock(), mock.Mock(spec=dict)],
        [marked("unittest.mock.Mock"), marked("unittest.mock.MagicMock"),
         marked("unittest.mock.Mock")],
        [("[0]", "expected a JSON value, got Mock"),
         ("[1]", "expected a JSON value, got MagicMock"),
         ("[2]", "expected a JSON value, got Mock")],
    ),
    # References.
    "R1 a dict or list that holds itself": (
        lambda: [(lambda d: (d.update(me=d), d)[1])({"keep": 1}),
                 (lambda l: (l.append(l), l)[1])([1])],
        [{"keep": 1, "me": {"$cycle": True}}, [1, {"$cycle": True}]],
        [("[0].me", "dict contains itself"), ("[1][1]", "list contains itself")],
    ),
    "R3 a value met twice is no cycle": (
        lambda: (lambda s: {"a": s, "b": s, "c": [s, s]})({"shared": [1, 2]}),
        {"a": {"shared": [1, 2]}, "b": {"shared": [1, 2]},
         "c": [{"shared": [1, 2]}, {"shared": [1, 2]}]}, [],
    ),
}


@pytest.mark.parametrize("build, right, told", TABLE.values(), ids=TABLE)
def test_each_kind_of_value(build, right, told):
    issues = []
    made = to_json_value(build(), issues=issues)
    assert identical(made, right)
    assert issues == [Issue(f"value{place}", words) for place, words in told]
    assert round_trip(made) == made
    # The text written directly is the same, and what is written is stable.
    assert strict(snowl_compat.dumps(build())) == made
    assert identical(to_json_value(made), made)
    for issue in issues:
        "".join(issue).encode("utf-8")


@pytest.mark.parametrize("build, right, told", TABLE.values(), ids=TABLE)
def test_strict_raises_the_first_issue(build, right, told):
    if not told:
        assert to_json_value(build(), strict=True) == right
        return
    with pytest.raises(SnowlCompatError) as caught:
        to_json_value(build(), strict=True)
    assert (caught.value.path, caught.value.message) == (f"value{told[0][0]}", told[0][1])
    assert str(caught.value) == f"value{told[0][0]}: {told[0][1]}"


def test_a_bad_leaf_costs_only_itself_n3():
    # An exporter wrote all trials with one call and lost them to one UUID.
    rows = [
        {"critic_name": "A", "score": 0.5, "details": {"u": object(), "n": NAN, "ok": [1]}},
        {"critic_name": "B", "score": 0.9, "details": {"fine": 1}},
    ]
    made = snowl_compat.critic_traces([{"step_id": 4, "critic_outputs": rows}])
    plain = {"step_id": 4, "action": "continue", "reason": "", "instruction_patch": None,
             "state_patch": None}
    assert round_trip(made) == [
        {**plain, "critic_name": "A", "score": 0.5,
         "details": {"u": marked("builtins.object"), "n": None, "ok": [1]}},
        {**plain, "critic_name": "B", "score": 0.9, "details": {"fine": 1}},
    ]


def test_this_suite_reads_strictly_n5():
    # Python's own reader takes NaN and a key twice, so that it proves nothing.
    for text in ("NaN", "[Infinity]", '{"a": 1, "a": 2}'):
        with pytest.raises(AssertionError):
            strict(text)


def test_a_generator_is_not_consumed_v16():
    # An exporter walked the caller's stream, who then found it empty.
    stream = (number for number in range(3))
    assert to_json_value({"stream": stream, "ok": 1}) == {
        "stream": marked("builtins.generator"), "ok": 1,
    }
    assert list(stream) == [0, 1, 2]


def test_objects_are_not_walked_r6():
    # An exporter followed the attributes of a client without end.
    class Node:
        def __init__(self, depth):
            self.nodes = [] if depth == 0 else [Node(depth - 1)] * 50

    assert to_json_value(Node(50)) == marked(f"{HERE}.test_objects_are_not_walked_r6.<locals>.Node")


def test_observations_do_not_enter_the_payload_r5():
    # Each observation repeated all earlier ones: files grew with the square of steps.
    seen, records = [], []
    for step in range(50):
        seen = [*seen, "x" * 100]
        records.append({"step_id": step, "observation": seen, "critic_outputs": []})
    assert len(snowl_compat.export_json(records)) < 1000


def test_what_is_built_never_changes_a1():
    # A tracer kept a reference, and later messages rewrote the recorded step.
    messages = [{"role": "user", "parts": ["hi"]}]
    source = [{"step_id": 0, "critic_outputs": [{"details": {"messages": messages}}]}]
    before = json.dumps(source)
    payload = snowl_compat.build_payload(source)
    text = json.dumps(payload)
    assert json.dumps(source) == before
    messages[0]["parts"].append("later")
    messages.append("more")
    assert json.dumps(payload) == text
    payload["critic_traces"][0]["details"]["messages"][0]["parts"].clear()
    assert messages[0]["parts"] == ["hi", "later"]


def nested(levels, leaf, wrap=lambda inner: [inner]):
    for _ in range(levels):
        leaf = wrap(leaf)
    return leaf


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"k": inner}])
def test_one_hundred_levels_and_no_more(wrap):
    issues = []
    assert to_json_value(nested(100, 1, wrap), issues=issues) == nested(100, 1, wrap)
    assert issues == []
    for more in (101, 102, 100_000):
        issues = []
        made = to_json_value(nested(more, 1, wrap), issues=issues)
        assert made == nested(100, {"$truncated": "depth"}, wrap)
        step = "[0]" if isinstance(made, list) else ".k"
        assert issues == [Issue(f"value{step * 100}", "expected at most 100 levels")]


@pytest.mark.parametrize(
    "leaf, right",
    [
        (None, None), (True, True), (7, 7), ("s", "s"), (1.5, 1.5), (NAN, None),
        (Colour.RED, "red"), (decimal.Decimal("1.10"), "1.10"), (Scalar(3), 3),
        (datetime.date(2026, 1, 2), "2026-01-02"), (pathlib.PurePosixPath("a/b"), "a/b"),
    ],
)
def test_scalars_have_no_level_of_their_own(leaf, right):
    assert to_json_value(nested(100, leaf)) == nested(100, right)


DEEP = [[], {}, b"x", object(), 10**5000, Colour.PAIR, Colour.MAP, ToDict([]),
        Array([1]), ValueError("x"), RaisingEnum.A, {1, 2}, Point(1, 2)]


@pytest.mark.parametrize("leaf", DEEP, ids=lambda leaf: type(leaf).__name__)
def test_what_becomes_an_object_or_array_has_one(leaf):
    made = to_json_value(nested(100, leaf))
    assert made == nested(100, {"$truncated": "depth"})
    assert to_json_value(made) == made


def test_the_level_after_an_enum_member_is_that_of_its_value():
    assert to_json_value(nested(99, Colour.PAIR)) == nested(99, [1, "two"])
    assert to_json_value(nested(99, Array([1]))) == nested(99, [1])
    assert to_json_value(nested(98, ToDict([1]))) == nested(98, [1])
    assert to_json_value(nested(99, ToDict([1]))) == nested(99, {"$truncated": "depth"})


def test_each_field_of_a_payload_has_its_own_levels():
    deep = nested(100, 1)
    output = {"details": nested(100, 1, lambda inner: {"k": inner}),
              "state_patch": deep, "modified_prompt": deep}
    payload = snowl_compat.build_payload([{"step_id": 0, "critic_outputs": [output]}])
    row = payload["critic_traces"][0]
    cut = nested(99, {"$truncated": "depth"})
    assert row["details"] == {"k": output["details"]["k"], "modified_prompt": cut}
    assert row["state_patch"] == {"value": cut}
    assert strict(snowl_compat.dumps(payload)) == payload


SIZE = [Issue("value[999999]", "expected at most 1000000 values")]


def test_a_million_values_and_no_more():
    issues = []
    made = to_json_value(range(10**9), issues=issues)
    assert made == [*range(999_999), {"$truncated": "size"}] and issues == SIZE
    # The list itself is a value, too.
    issues = []
    assert len(to_json_value(list(range(999_999)), issues=issues)) == 999_999
    assert issues == []


def test_lists_that_share_themselves_end_at_the_size_limit():
    value, issues = [], []
    for _ in range(30):
        value = [value, value]
    made = to_json_value({"big": value, "after": 1}, issues=issues)
    assert [issue.message for issue in issues] == ["expected at most 1000000 values"]
    text = json.dumps(made)
    assert text.count('{"$truncated": "size"}') == 1 and "after" not in made
    assert text.rstrip("]}").endswith('{"$truncated": "size"')


def test_a_set_beyond_the_size_limit_is_left_out_whole():
    issues = []
    made = to_json_value(["before", set(range(1_000_000)), "after"], issues=issues)
    assert made == ["before", {"$truncated": "size"}]
    assert issues == [Issue("value[1]", "expected at most 1000000 values")]


def test_the_size_limit_is_told_once_even_in_a_key():
    issues = []
    made = to_json_value({tuple(range(1_000_001)): 1, "after": 2}, issues=issues)
    assert list(made.values()) == [{"$truncated": "size"}]
    assert issues == [Issue("value[999999]", "expected at most 1000000 values")]


def test_many_equal_keys_cost_no_square_of_time():
    value = {float("nan"): number for number in range(20_000)}
    made = to_json_value(value)
    assert list(made.values()) == list(range(20_000))
    assert list(made)[-1] == "NaN#20000"


@pytest.mark.parametrize("allowed", [640, 0, 100_000])
def test_digits_that_a_process_allows(allowed):
    import subprocess
    import sys

    if not hasattr(sys, "set_int_max_str_digits"):
        pytest.skip("this Python has no such limit")
    code = (
        "import json, sys, snowl_compat as s\n"
        f"sys.set_int_max_str_digits({allowed})\n"
        "issues = []\n"
        "made = s.to_json_value([10**639, 10**640, 10**4299, 10**4300], issues=issues)\n"
        "text = json.dumps(made)\n"
        "print([type(v).__name__ for v in made], {i.message for i in issues})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        cwd=pathlib.Path(snowl_compat.__file__).parent,
    )
    kept = "'int', 'dict', 'dict', 'dict'" if allowed == 640 else "'int', 'int', 'int', 'dict'"
    words = "expected at most 4300 digits, got int"
    assert (done.stderr, done.stdout) == ("", f"[{kept}] {{'{words}'}}\n")


def test_the_hash_seed_shows_nowhere():
    import subprocess
    import sys

    code = (
        "import decimal, snowl_compat as s\n"
        "nan, inf = float('nan'), float('inf')\n"
        "words = {'alpha', 'beta', 'gamma', b'\\xff', None, 1.5, ('x', nan)}\n"
        "class A: pass\n"
        "class B: pass\n"
        "value = {'s': words | {nan, inf, -inf, A(), B(), decimal.Decimal('1'), '1'},\n"
        "         'k': {frozenset(words): 1}, 'nested': {frozenset(words), frozenset({inf})}}\n"
        "issues = []\n"
        "print(ascii(s.to_json_value(value, issues=issues)), ascii(issues))\n"
        "row = {'required_ops': words | {A(), B()}, 'name': 't'}\n"
        "print(ascii(s.tool_permissions([row], issues=issues)), ascii(issues))\n"
    )
    told = set()
    for seed in range(4):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True,
            cwd=pathlib.Path(snowl_compat.__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        )
        assert done.stderr == ""
        told.add(done.stdout)
    assert len(told) == 1


def test_near_the_end_of_the_stack_the_value_is_cut_not_lost():
    # The tuple sends it through the walk, which needs more of the stack.
    value = {"keep": 1, "deep": nested(60, ("x",))}
    whole = {"keep": 1, "deep": nested(60, ["x"])}
    source = [{"step_id": 0, "critic_outputs": [{"details": value}]}]
    told = []

    def sink(levels):
        if levels:
            return sink(levels - 1)
        issues = []
        payload = snowl_compat.build_payload(source, issues=issues)
        told.append(issues)
        return payload["critic_traces"][0]["details"]

    import sys

    used = len(__import__("inspect").stack())
    made = sink(sys.getrecursionlimit() - used - 100)
    assert made["keep"] == 1
    assert json.dumps(made["deep"]).count('"depth"') == 1
    words = "expected fewer levels, so near the stack's end"
    assert [issue.message for issue in told[0]] == [words]
    # With room again the same source is whole.
    assert snowl_compat.build_payload(source)["critic_traces"][0]["details"] == whole


def test_ctrl_c_is_not_swallowed():
    class Interrupted:
        def to_dict(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_json_value(Interrupted())


def test_an_issue_of_any_text_encodes_as_utf8():
    issues = []
    value = {"a\ud800": {"b.c": NAN, "": NAN, "寒": NAN, "d-$e": NAN, "0\x00": NAN}}
    to_json_value(value, issues=issues)
    place = 'value["a\\ufffd"]'
    assert [issue.path for issue in issues] == [
        "value", f'{place}["b.c"]', f'{place}[""]', f"{place}.寒", f"{place}.d-$e",
        f'{place}["0\\u0000"]',
    ]
    "".join(map("".join, issues)).encode("utf-8")
    str(SnowlCompatError("bad \ud800", "p\udfff")).encode("utf-8")


@pytest.mark.parametrize(
    "value, shown",
    [(None, "None"), (True, "True"), (-3, "-3"), (-1.5, "-1.5"), ("x" * 100, repr("x" * 80)),
     ([1], "list"), ({}, "dict"), (Word.RETRY, "Word"), (-(10**700), "int"), (object, "type")],
)
def test_messages_show_plain_values_and_the_types_of_others(value, shown):
    issues = []
    start = {"phase": "HANDOFF_START", "step_id": 0, "payload": {"messages_passed": value}}
    snowl_compat.handoff_traces([start], issues=issues)
    assert issues == [
        Issue("events[0].payload.messages_passed", f"expected an integer >= 0, got {shown}")
    ]


class Hostile(str):
    """A key that may be found by nobody."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    "place",
    ["critic_outputs", "details", "record", "run", "engine_config", "payload"],
)
def test_a_hostile_key_costs_at_most_its_own_value(place):
    output = {"action": "stop", "reason": "why", "details": {"x": 1}}
    record = {"step_id": 0, "critic_outputs": [output]}
    run = {"records": [record], "step_count": 1, "engine_config": {"agent_name": "a"}}
    if place == "payload":
        run = snowl_compat.build_payload(run)
    where = {
        "critic_outputs": (output, "reason"),
        "details": (output["details"], "x"),
        "record": (record, "critic_outputs"),
        "run": (run, "records"),
        "engine_config": (run["engine_config"], "agent_name"),
        "payload": (run, "critic_traces"),
    }
    mapping, name = where[place]
    mapping[Hostile(name)] = mapping.pop(name)
    issues = []
    payload = strict(snowl_compat.export_json(run, issues=issues))
    told = [issue for issue in issues if issue.message == "reading it raised RuntimeError"]
    assert len(told) == (place != "details")
    assert snowl_compat.validate_payload(payload) == []
    strict(snowl_compat.dumps(run))


@pytest.mark.parametrize("values", [{NAN}, {NAN, 1, "x"}, {object()}, [{NAN}], {"a": {(NAN,)}}])
def test_dumps_converts_sets_with_something_wrong(values):
    strict(snowl_compat.dumps(values))


def test_a_set_of_records_has_an_order():
    import dataclasses

    @dataclasses.dataclass(frozen=True)
    class Row:
        step_id: int
        critic_outputs: tuple = ()

        def __hash__(self):
            return -self.step_id * 7919

    rows = {Row(n, (frozenset({("action", "stop")}),)) for n in range(5)}
    events = {Event(n) for n in range(5)}
    payload = snowl_compat.build_payload(rows, events=events)
    assert [row["step_id"] for row in payload["handoff_traces"]] == [0, 1, 2, 3, 4]
    assert payload["step_count"] == 5


class Event:
    phase = "HANDOFF_START"

    def __init__(self, step_id):
        self.step_id = step_id
        self.payload = {"from": "a", "to": "b"}

    def __hash__(self):
        return -self.step_id * 7919

    def to_dict(self):
        return {"step_id": self.step_id}
