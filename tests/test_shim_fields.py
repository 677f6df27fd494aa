"""Fields: what each kind of field takes, whole, with the paths and words of its issues.

Ids such as N6 or C3 name reports of other exporters and of QitOS itself; each case
says what was seen there.
"""

import collections
import decimal
import enum
import fractions
import pathlib
import types

import pytest
from strictly import FORMS, identical, record, round_trip

import snowl_compat
from snowl_compat import Issue, SnowlCompatError

NAN, INF = float("nan"), float("inf")
ABSENT = object()


class Action(enum.Enum):
    STOP = "stop"
    RETRY = "Retry"
    ODD = "escalate"
    NONE = None
    NUMBER = 3
    NESTED = collections.namedtuple("Inner", "name")("no")


class Word(str, enum.Enum):
    RETRY = "retry"


class Inner(enum.Enum):
    SHARED = "shared"


class Outer(enum.Enum):
    LINK = Inner.SHARED


class Scalar:
    """What NumPy's scalars look like."""

    dtype = "any"

    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


class Named:
    def __init__(self, name):
        self.name = name


class RaisingName:
    @property
    def name(self):
        raise OSError("no")


class RaisingClass:
    @property
    def __class__(self):
        raise OSError("no")


class RaisingDecimal(decimal.Decimal):
    def __int__(self):
        raise OSError("no")

    __float__ = __str__ = __eq__ = __int__
    __hash__ = None


class RaisingPath:
    def __fspath__(self):
        raise OSError("no")


class HostileWord(str):
    def strip(self):
        raise OSError("no")

    lower = upper = rpartition = strip


class ListedFlags:
    """An object of flags that has also a note of its own."""

    def __init__(self):
        self.network = True
        self.gpu = "yes"
        self._own = 1


SECTIONS = {
    "config": lambda fields, issues: snowl_compat.engine_config(fields, issues=issues),
    "spec": lambda fields, issues: snowl_compat.tool_permissions(
        [{"name": "t", **fields}], issues=issues)[0],
    "critic": lambda fields, issues: snowl_compat.critic_traces(
        [record(0, fields)], issues=issues)[0],
    "handoff": lambda fields, issues: snowl_compat.handoff_traces(
        [{"phase": "HANDOFF_START", "step_id": 0, "payload": {"from": "a", **fields}}],
        issues=issues)[0],
}
PLACES = {
    "config": "engine_config", "spec": "tool_permissions[0]",
    "critic": "records[0].critic_outputs[0]", "handoff": "events[0].payload",
}


def read(section, name, value):
    """A field's value in the payload, with its issues as (place in it, words)."""
    issues, fields = [], {} if value is ABSENT else {name: value}
    row = SECTIONS[section](fields, issues)
    place = f"{PLACES[section]}.{name}"
    assert all(issue.path.startswith(place) for issue in issues)
    assert round_trip(row) == row
    return row[name], [(issue.path[len(place):], issue.message) for issue in issues]


def check(section, name, value, right, told):
    found, issues = read(section, name, value)
    assert identical(found, right)
    assert issues == ([("", told)] if isinstance(told, str) else told or [])


def table(*cases):
    """Parametrize by (id, value, right value, words of the issue at the field)."""
    return pytest.mark.parametrize(
        "value, right, told", [pytest.param(*case[1:], id=case[0]) for case in cases]
    )


def bad(kind, shown):
    return f"expected {kind}, got {shown}"


UTF8 = "expected UTF-8 text, got bytes that are not"
@table(
    ("text", "寒潮 \x00", "寒潮 \x00", None),
    ("empty text", "", "", None),
    ("text of a subclass", HostileWord("w"), "w", None),
    ("C3 None once became 'None'", None, "the default", None),
    ("missing", ABSENT, "the default", None),
    ("an enum member", Action.ODD, "escalate", None),
    ("V3 a str-Enum once printed as Class.MEMBER", Word.RETRY, "retry", None),
    ("an enum member in an enum member", Outer.LINK, "shared", None),
    ("an enum member of a number", Action.NUMBER, "3", None),
    ("bytes", "é".encode(), "é", None),
    ("bytes with a real U+FFFD", b"\xef\xbf\xbd", "\ufffd", None),
    ("a bytearray", bytearray(b"ab"), "ab", None),
    ("bytes that are no UTF-8", b"a\xff", "a\ufffd", UTF8),
    ("C3 numbers", 5, "5", None),
    ("a float", 1.5, "1.5", None),
    ("a flag", True, "true", None),
    ("a scalar", Scalar(2.5), "2.5", None),
    ("a scalar of a flag", Scalar(False), "false", None),
    ("V10 a Decimal keeps its digits", decimal.Decimal("1.10"), "1.10", None),
    ("a Fraction", fractions.Fraction(1, 3), "1/3", None),
    ("a hostile Decimal", RaisingDecimal(1), "the default", bad("text", "RaisingDecimal")),
    ("NaN", NAN, "the default", bad("text", "nan")),
    ("infinity", -INF, "the default", bad("text", "-inf")),
    ("a very long int", 10**5000, "the default", bad("text", "int")),
    ("a path", pathlib.PurePosixPath("a/b"), "a/b", None),
    ("a path that raises", RaisingPath(), "the default", bad("text", "RaisingPath")),
    ("an exception", ValueError("no"), "no", None),
    ("an object with a name", Named("Critic"), "Critic", None),
    ("an object whose name raises", RaisingName(), "the default", bad("text", "RaisingName")),
    ("an object whose class raises", RaisingClass(), "the default",
     bad("text", "RaisingClass")),
    ("a mapping with a name", {"name": "n"}, "the default", bad("text", "dict")),
    ("a list", ["x"], "the default", bad("text", "list")),
    ("a class", dict, "the default", bad("text", "type")),
)
def test_text(value, right, told):
    for section, name, default in (
        ("config", "agent_name", ""), ("config", "protocol_id", None),
        ("spec", "description", ""), ("critic", "reason", ""), ("critic", "critic_name", "unknown"),
        ("handoff", "to_agent", ""),
    ):
        check(section, name, value, default if right == "the default" else right, told)


@table(
    ("an int", 3, 3, None),
    ("a negative int", -3, -3, None),
    ("N7 digits beyond 2**53", 2**63 - 1, 2**63 - 1, None),
    ("an int of a subclass", enum.IntEnum("I", "A").A, 1, None),
    ("an integral float", 3.0, 3, None),
    ("E4 numeric text", "3", 3, None),
    ("integral text", "3.0e1", 30, None),
    ("negative text", "-7", -7, None),
    ("a scalar", Scalar(4), 4, None),
    ("an enum member", Action.NUMBER, 3, None),
    ("None", None, None, None),
    ("missing", ABSENT, None, None),
    ("a fraction", 2.5, None, bad("an integer", "2.5")),
    ("a flag", True, None, bad("an integer", "True")),
    ("a scalar of a flag", Scalar(True), None, bad("an integer", "Scalar")),
    ("NaN", NAN, None, bad("an integer", "nan")),
    ("infinity", INF, None, bad("an integer", "inf")),
    ("text of infinity", "1e999", None, bad("an integer", "'1e999'")),
    ("a Decimal that would not end", decimal.Decimal("1E+999999999"), None,
     bad("an integer", "Decimal")),
    ("a hostile Decimal", RaisingDecimal(1), None, bad("an integer", "RaisingDecimal")),
    ("a very long int", 10**5000, None, bad("an integer", "int")),
    ("a very long text", "1" * 5000, None, bad("an integer", repr("1" * 80))),
    ("other text", "three", None, bad("an integer", "'three'")),
    ("text that only Python reads", "1_000", None, bad("an integer", "'1_000'")),
    ("digits of another script", "٣", None, bad("an integer", "'٣'")),
    ("a list", [3], None, bad("an integer", "list")),
    ("an object whose class raises", RaisingClass(), None, bad("an integer", "RaisingClass")),
)
def test_integers(value, right, told):
    check("config", "budget_max_steps", value, right, told)


@table(
    ("a float", 1.5, 1.5, None),
    ("an int", 60, 60, None),
    ("text", "0.25", 0.25, None),
    ("an integral Decimal", decimal.Decimal("60"), 60, None),
    ("a Fraction", fractions.Fraction(1, 4), 0.25, None),
    ("None", None, None, None),
    ("missing", ABSENT, None, None),
    ("infinite: no limit", INF, None, bad("a finite number", "inf")),
    ("NaN", NAN, None, bad("a finite number", "nan")),
    ("a flag", False, None, bad("a finite number", "False")),
)
def test_budgets(value, right, told):
    check("config", "budget_max_runtime_seconds", value, right, told)


@table(
    ("N6 a number", 0.8, 0.8, None),
    ("N6 text", "0.8", 0.8, None),
    ("N6 true", True, 1.0, None),
    ("false", False, 0.0, None),
    ("a scalar of a flag", Scalar(True), 1.0, None),
    ("N6 missing is the documented default", ABSENT, 1.0, None),
    ("N6 None is not perfect", None, None, bad("a finite number", "None")),
    ("N6 other text", "n/a", None, bad("a finite number", "'n/a'")),
    ("N6 empty text", "", None, bad("a finite number", "''")),
    ("NaN", NAN, None, bad("a finite number", "nan")),
    ("infinity", INF, None, bad("a finite number", "inf")),
    ("text of NaN", "NaN", None, bad("a finite number", "'NaN'")),
    ("C9 not clamped above", 7, 7.0, None),
    ("C9 not clamped below", -0.2, -0.2, None),
    ("a Fraction", fractions.Fraction(1, 2), 0.5, None),
    ("a hostile Decimal", RaisingDecimal(1), None, bad("a finite number", "RaisingDecimal")),
    ("a list", [1.0], None, bad("a finite number", "list")),
    ("an object whose class raises", RaisingClass(), None,
     bad("a finite number", "RaisingClass")),
)
def test_scores(value, right, told):
    check("critic", "score", value, right, told)


@table(
    *((repr(word), word, True, None) for word in (True, 1, 2.5, "true", " YES ", "1")),
    *((repr(word), word, False, None) for word in (False, 0, 0.0, "False", "no", "0 ", None)),
    ("missing", ABSENT, False, None),
    ("text of a subclass", HostileWord("TRUE"), True, None),
    ("a scalar", Scalar(True), True, None),
    ("an enum member", Action.NUMBER, True, None),
    ("other text", "maybe", "the safe side", bad("true or false", "'maybe'")),
    ("empty text", "", "the safe side", bad("true or false", "''")),
    ("NaN", NAN, "the safe side", bad("true or false", "nan")),
    ("a list", [], "the safe side", bad("true or false", "list")),
    ("bytes", b"true", "the safe side", bad("true or false", "bytes")),
    ("an object whose class raises", RaisingClass(), "the safe side",
     bad("true or false", "RaisingClass")),
)
def test_flags(value, right, told):
    # P8: a flag of None was taken for yes.
    for section, name, safe in (
        ("config", "has_env", False), ("spec", "read_only", False),
        ("spec", "concurrency_safe", False), ("spec", "needs_approval", True),
    ):
        check(section, name, value, safe if right == "the safe side" else right, told)




@table(
    ("an exception", ValueError("x"), {"type": "ValueError", "message": "x"}, None),
    ("a marker", b"x", {"$bytes": "eA=="}, None),
    ("missing", ABSENT, "empty", None),
    ("C3 None", None, "empty", None),
    ("C3 a list", ["a"], {"value": ["a"]}, None),
    ("C3 text", "text", {"value": "text"}, None),
    ("a flag", False, {"value": False}, None),
    ("an enum member", Action.STOP, {"value": "stop"}, None),
    ("a set", {2, 1}, {"value": [1, 2]}, None),
    ("NaN", NAN, {"value": None}, bad("a finite number", "nan")),
)
def test_objects(value, right, told):
    check("critic", "details", value, {} if right == "empty" else right, told)
    check("critic", "state_patch", value, None if right == "empty" else right, told)


@table(
    ("text", "try again", "try again", None),
    ("empty text", "", "", None),
    ("an enum member", Action.STOP, "stop", None),
    ("None", None, None, None),
    ("missing", ABSENT, None, None),
    ("a number", 1.5, "1.5", bad("text", "1.5")),
    ("a list", ["a", (1,)], '["a",[1]]', bad("text", "list")),
)
def test_instruction_patches(value, right, told):
    check("critic", "instruction_patch", value, right, told)


WORDS = "expected continue, stop or retry, got "


@table(
    ("C6 upper case", "RETRY", "retry", None),
    ("C6 spaces", " stop ", "stop", None),
    ("an enum member", Action.STOP, "stop", None),
    ("an enum member of mixed case", Action.RETRY, "retry", None),
    ("bytes", b"Stop", "stop", None),
    ("None", None, "continue", None),
    ("missing", ABSENT, "continue", None),
    ("another word stays as it is", " Escalate", " Escalate", WORDS + "' Escalate'"),
    ("another member", Action.ODD, "escalate", WORDS + "'escalate'"),
    ("a number", 5, "5", WORDS + "'5'"),
    ("no text", [1], "continue", bad("text", "list")),
)
def test_actions(value, right, told):
    check("critic", "action", value, right, told)


@table(
    ("H1 lower case", "full", "FULL", None),
    ("H1 upper case", "SUMMARY", "SUMMARY", None),
    ("H1 an enum member", enum.Enum("S", {"A": "Isolated"}).A, "ISOLATED", None),
    ("another word stays as it is", "Last 5", "Last 5", None),
    ("None", None, "", None),
    ("missing", ABSENT, "", None),
    ("no text", [1], "", bad("text", "list")),
)
def test_context_strategies(value, right, told):
    check("handoff", "context_strategy", value, right, told)


@table(
    ("an int", 5, 5, None),
    ("H2 text", "5", 5, None),
    ("a scalar", Scalar(2), 2, None),
    ("H2 missing", ABSENT, 0, None),
    ("H2 None", None, 0, bad("an integer >= 0", "None")),
    ("a negative int", -1, 0, bad("an integer >= 0", "-1")),
    ("a fraction", "2.5", 0, bad("an integer >= 0", "'2.5'")),
    ("a flag", True, 0, bad("an integer >= 0", "True")),
    ("a list", [], 0, bad("an integer >= 0", "list")),
)
def test_messages_passed(value, right, told):
    check("handoff", "messages_passed", value, right, told)


@table(
    ("a list", ["b", "a", "b"], ["b", "a", "b"], None),
    ("a tuple", ("a",), ["a"], None),
    ("a deque", collections.deque("a"), ["a"], None),
    ("None in a list", ["a", None], ["a"], None),
    ("a lone text", "solo", ["solo"], None),
    ("a lone text of bytes", b"solo", ["solo"], None),
    ("None", None, [], None),
    ("missing", ABSENT, [], None),
    ("empty", [], [], None),
    ("a number", 5, [], bad("a list of text", "5")),
    ("a generator", (c for c in "ab"), [], bad("a list of text", "generator")),
)
def test_lists_of_text(value, right, told):
    if isinstance(value, types.GeneratorType):
        check("config", "critic_names", value, right, told)
        assert list(value) == ["a", "b"]
        return
    for section, name in (("config", "critic_names"), ("config", "stop_criteria_names"),
                          ("spec", "required_ops")):
        check(section, name, value, right, told)


NO_FLAGS = {"filesystem_read": False, "filesystem_write": False, "network": False,
            "command": False}


@table(
    ("T15 the flags of the code", {"command": True}, {**NO_FLAGS, "command": True}, None),
    ("further flags stay", {"subprocess": "yes", "network": 1},
     {**NO_FLAGS, "network": True, "subprocess": True}, None),
    ("keys that are no text", {Action.STOP: True, Word.RETRY: 0, 5: True},
     {**NO_FLAGS, "stop": True, "retry": False, "5": True}, None),
    ("an object", ListedFlags(), {**NO_FLAGS, "network": True, "gpu": True}, None),
    ("None", None, NO_FLAGS, None),
    ("missing", ABSENT, NO_FLAGS, None),
    ("an empty mapping", {}, NO_FLAGS, None),
    ("flags that are none", {"network": "maybe", "gpu": None}, {**NO_FLAGS, "gpu": False},
     [(".network", bad("true or false", "'maybe'"))]),
    ("a list", ["network"], NO_FLAGS, bad("an object of flags", "list")),
    ("an object without any", object(), NO_FLAGS, bad("JSON", "object")),
)
def test_permissions(value, right, told):
    check("spec", "permissions", value, right, told)


@table(
    ("an int", 7, 7, None),
    ("E4 text", "3", 3, None),
    ("an integral float", 3.0, 3, None),
    ("missing: the record's", ABSENT, 40, None),
    ("None: the record's", None, 40, None),
    ("unusable: the record's", "x", 40, bad("an integer", "'x'; using 40")),
    ("a flag", True, 40, bad("an integer", "True; using 40")),
    ("a fraction", "2.5", 40, bad("an integer", "'2.5'; using 40")),
)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_step_ids_of_critic_outputs(value, right, told, form):
    issues, own = [], {} if value is ABSENT else {"step_id": value}
    records = [record(1, form=form), record(40, form(action="stop", **own), form=form)]
    rows = snowl_compat.critic_traces(records, issues=issues)
    assert [row["step_id"] for row in rows] == [right]
    place = "records[1].critic_outputs[0].step_id"
    assert issues == ([Issue(place, told)] if told else [])


@pytest.mark.parametrize(
    "value, shown",
    [
        pytest.param(ABSENT, "nothing", id="missing"),
        pytest.param(None, "None", id="None"),
        pytest.param("x", "'x'", id="text"),
        pytest.param(NAN, "nan", id="NaN"),
        pytest.param([], "list", id="a list"),
        pytest.param(RaisingClass(), "RaisingClass", id="an object whose class raises"),
    ],
)
def test_without_any_step_id_the_position_counts_e4(value, shown):
    issues, own = [], {} if value is ABSENT else {"step_id": value}
    outer = {"critic_outputs": [{"action": "stop"}, {"action": "retry"}], **own}
    rows = snowl_compat.critic_traces([record(5), outer, record("3", {})], issues=issues)
    assert [(row["step_id"], row["action"]) for row in rows] == [
        (1, "stop"), (1, "retry"), (3, "continue"),
    ]
    told = Issue("records[1].step_id", bad("an integer", f"{shown}; using 1"))
    assert set(issues) == {told}


def test_strict_names_the_place_of_the_first_issue():
    records = [record(0), record(1, {"score": 0.5}, {"score": None, "reason": []})]
    with pytest.raises(SnowlCompatError) as caught:
        snowl_compat.build_payload(records, strict=True)
    # Fields are read in the order of the columns.
    assert str(caught.value) == (
        "records[1].critic_outputs[1].reason: expected text, got list"
    )
    with pytest.raises(SnowlCompatError) as caught:
        snowl_compat.engine_config({"budget_max_steps": "x"}, strict=True)
    assert (caught.value.path, caught.value.message) == (
        "engine_config.budget_max_steps", "expected an integer, got 'x'",
    )
