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


Point = collections.namedtuple("Point", "x y")


class Answer:
    """An object whose one method, given by its name, returns a value."""

    def __init__(self, value):
        self.value = value


class ToDict(Answer):
    def to_dict(self):
        return self.value


class Itself:
    def to_dict(self):
        return self


class Endless:
    def to_dict(self):
        return Endless()


class ModelDump(Answer):
    def model_dump(self):
        return self.value


class NeedsArgument:
    def to_dict(self, depth):
        return {"not": "read"}


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
        raise OSError("no")


class TooManyItems(collections.UserDict):
    def __len__(self):
        return -5

    def __iter__(self):
        return iter(["a", "absent"])


class Everything:
    def __getattr__(self, name):
        return self

    def __call__(self, *args):
        return self

    def __iter__(self):
        return iter([self])


class RaisingZone(datetime.tzinfo):
    def utcoffset(self, moment):
        raise OSError("no")


class RaisingDate(datetime.date):
    def isoformat(self):
        raise OSError("no")


class RaisingPath:
    def __fspath__(self):
        raise OSError("no")


class RaisingEnum(enum.Enum):
    A = 1

    @property
    def value(self):
        raise OSError("no")


class RaisingList(list):
    def __iter__(self):
        raise OSError("no")


def marked(name):
    return {MARK: name}


def foreign(name, of=None, why=""):
    """What a foreign object becomes, and the issue that tells it."""
    words = f"expected JSON, got {name} {why}".rstrip()
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
        [(".n", "expected JSON, got int which raised ValueError"),
         (".m", "expected JSON, got int which raised ValueError")],
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
    # Text.
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
        "RaisingEnum", why="which raised OSError")),
    # Objects.
    "V12 asdict copied a lock and lost the object": (
        Client,
        {"name": "c1", "lock": marked("_thread.lock"), "tries": [1, 2]},
        [(".lock", "expected JSON, got lock")],
    ),
    "a dataclass with an unset field": (lambda: Unset(1), {"given": 1}, []),
    "a slotted dataclass with unset fields": (
        lambda: UnsetSlots.__new__(UnsetSlots), {}, [],
    ),
    "to_dict that never ends": (
        Endless, {"$truncated": "depth"}, [("", "expected at most 100 levels")],
    ),
    "model_dump": (lambda: ModelDump({"n": NAN}), {"n": None}, [(".n", "expected a finite number, got nan")]),
    "to_dict that needs an argument": (
        NeedsArgument, *foreign("NeedsArgument", why="which raised TypeError"),
    ),
    "to_dict that gives the object itself": (Itself, *foreign("Itself")),
    "item that gives the same type again": (SameType, *foreign("SameType")),
    "more items than a million": (
        lambda: range(1_000_001), {"$truncated": "size"}, [("", "expected at most 1000000 items")],
    ),
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
        [("", "expected JSON, got type"),
         ('["{\\"$unserializable\\":\\"builtins.object\\"}"]',
          "expected JSON, got builtin_function_or_method")],
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
        [("[0]", "expected JSON, got PairsOfThree which raised ValueError"),
         ("[1]", "expected JSON, got RaisingItems which raised OSError"),
         ("[2]", "expected JSON, got TooManyItems which raised KeyError")],
    ),
    # Lists and sets.
    "lists of every kind": (
        lambda: [(1, "a"), collections.deque([1, 2]), range(3), inherit(list, [1])],
        [[1, "a"], [1, 2], [0, 1, 2], [1]], [],
    ),
    "a list that raises": (
        lambda: [RaisingList([1]), 1],
        [marked(f"{HERE}.RaisingList"), 1],
        [("[0]", "expected JSON, got RaisingList which raised OSError")],
    ),
    "sets are sorted by the text of their items": (
        lambda: [{"b", "a", 10, 9, None, (1, 2)}, frozenset({frozenset({2, 1}), "z"}), set()],
        [["a", "b", 10, 9, [1, 2], None], ["z", [1, 2]], []], [],
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
        [("[0]", "expected JSON, got datetime which raised OSError"),
         ("[1]", "expected JSON, got RaisingDate which raised OSError")],
    ),
    # What is written as text.
    "V10 a Decimal became a float, a path its repr": (
        lambda: [decimal.Decimal("1.10"), decimal.Decimal("NaN"), decimal.Decimal("1E+999999999"),
                 uuid.UUID("12345678-1234-5678-1234-567812345678"), fractions.Fraction(1, 3),
                 pathlib.PurePosixPath("out/a.txt"), pathlib.PureWindowsPath("out/a.txt")],
        ["1.10", "NaN", "1E+999999999", "12345678-1234-5678-1234-567812345678", "1/3",
         "out/a.txt", "out\\a.txt"], [],
    ),
    "paths that raise": (RaisingPath, *foreign("RaisingPath", why="which raised OSError")),
    "V4 bytes became b'' text, or were guessed to be UTF-8": (
        lambda: [PNG, bytearray(PNG), memoryview(PNG), memoryview(b"abcd")[::2], b""],
        [{"$bytes": base64.b64encode(PNG).decode()}] * 3 + [{"$bytes": "YWM="}, {"$bytes": ""}],
        [],
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
        [(".f", "expected JSON, got function"),
         (".l", "expected JSON, got function"),
         (".c", "expected JSON, got type"),
         (".m", "expected JSON, got module"),
         (".b", "expected JSON, got builtin_function_or_method"),
         (".method", "expected JSON, got method"),
         (".bound", "expected JSON, got builtin_function_or_method"),
         (".partial", "expected JSON, got partial"),
         (".alias", "expected JSON, got GenericAlias")],
    ),
    "a complex number": (lambda: 1 + 2j, *foreign("complex", "builtins.complex")),
    "an object": (object, *foreign("object", "builtins.object")),
    "an object that answers everything": (Everything, *foreign("Everything")),
    "mocks": (
        lambda: [mock.Mock(), mock.MagicMock(), mock.Mock(spec=dict)],
        [marked("unittest.mock.Mock"), marked("unittest.mock.MagicMock"),
         marked("unittest.mock.Mock")],
        [("[0]", "expected JSON, got Mock"),
         ("[1]", "expected JSON, got MagicMock"),
         ("[2]", "expected JSON, got Mock which raised TypeError")],
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
    assert len(snowl_compat.export_json(records)) < 1000




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




def test_the_level_after_an_enum_member_is_that_of_its_value():
    assert to_json_value(nested(99, Colour.PAIR)) == nested(99, [1, "two"])
    assert to_json_value(nested(99, Array([1]))) == nested(99, [1])
    assert to_json_value(nested(98, ToDict([1]))) == nested(98, [1])
    assert to_json_value(nested(99, ToDict([1]))) == nested(99, {"$truncated": "depth"})



def test_the_hash_seed_shows_nowhere():
    import subprocess
    import sys

    code = (
        "import decimal, snowl_compat as s\n"
        "nan, inf = float('nan'), float('inf')\n"
        "words = {'alpha', '\\udc80', '\\udc81', '\\udc82', b'\\xff', None, 1.5, ('x', nan)}\n"
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



def test_ctrl_c_is_not_swallowed():
    class Interrupted:
        def to_dict(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_json_value(Interrupted())




@pytest.mark.parametrize("values", [{NAN}, {NAN, 1, "x"}, {object()}, [{NAN}], {"a": {(NAN,)}}])
def test_dumps_converts_sets_with_something_wrong(values):
    strict(snowl_compat.dumps(values))
