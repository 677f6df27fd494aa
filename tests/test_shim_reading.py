"""What counts as a record, a critic output, an event, a spec; and in what order."""

import enum
import json
from collections import OrderedDict
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from unittest.mock import MagicMock

import pytest

import snowl_compat
from snowl_compat import Issue, SnowlCompatError, build_payload


class Phase(str, enum.Enum):
    INIT = "INIT"
    HANDOFF_START = "handoff_start"
    HANDOFF_END = "HANDOFF_END"
    DELEGATE_START = "DELEGATE_START"
    DECIDE = "DECIDE"


class Silent(enum.Enum):
    HANDOFF_START = 1


def thing(**fields):
    return SimpleNamespace(**fields)


def record(step_id=0, *outputs, **fields):
    return thing(step_id=step_id, critic_outputs=list(outputs), **fields)


def event(step_id, phase, payload=None, **fields):
    return thing(step_id=step_id, phase=phase, payload=payload, **fields)


def handoff(step_id=1, **payload):
    return event(step_id, "HANDOFF_START", payload)


def refuse(token):
    raise ValueError(f"{token} is no JSON")


def built(source, **options):
    """The payload after a strict round trip, and the issues."""
    issues = []
    payload = build_payload(source, issues=issues, **options)
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False)
    again = json.loads(text.encode("utf-8"), parse_constant=refuse)
    assert again == payload
    assert snowl_compat.validate_payload(payload) == []
    return again, issues


def verdicts(payload):
    return [
        (row["step_id"], row["critic_name"], row["action"], row["score"])
        for row in payload["critic_traces"]
    ]


def chain(payload):
    return [
        (row["step_id"], row["from_agent"], row["to_agent"])
        for row in payload["handoff_traces"]
    ]


A = {"critic_name": "a", "score": 0.1}
B = {"critic_name": "b", "score": 0.2}
ROWS = [(4, "a", "continue", 0.1), (4, "b", "continue", 0.2)]


def raising(*elements):
    yield from elements
    raise OSError("the disk is gone")


AROUND = []
AROUND.append(AROUND)
SKIPPED = "expected a record, got {}; skipped"
OUTPUTS = [
    ([A, B], ROWS, []),
    ((A, B), ROWS, []),
    (iter([A, B]), ROWS, []),
    ([[A], (B,)], ROWS, []),
    ({"first": A, "second": B}, ROWS, []),
    (A, ROWS[:1], []),
    (MappingProxyType(A), ROWS[:1], []),
    # A lone CriticResult.
    (thing(action="stop", score=0.5), [(4, "unknown", "stop", 0.5)], []),
    ({}, [], []),
    (None, [], []),
    ([], [], []),
    ([{}], [(4, "unknown", "continue", 1.0)], []),
    # C12: text, None and numbers are no verdicts.
    (
        ["free text", None, 3, A],
        ROWS[:1],
        [
            ("[0]", SKIPPED.format("'free text'")),
            ("[1]", SKIPPED.format("None")),
            ("[2]", SKIPPED.format("3")),
        ],
    ),
    ([object(), B], ROWS[1:], [("[0]", SKIPPED.format("object"))]),
    ([thing(message="hi", path="x"), B], ROWS[1:], [("[0]", SKIPPED.format("SimpleNamespace"))]),
    ([[None], [[B]]], ROWS[1:], [("[0][0]", SKIPPED.format("None"))]),
    (AROUND, [], [("[0]", SKIPPED.format("list"))]),
    ("free text", [], [("[0]", SKIPPED.format("'free text'"))]),
    (7, [], [("[0]", SKIPPED.format("7"))]),
    (range(10**9), [], [("[0]", SKIPPED.format("range"))]),
    ({frozenset("a")}, [], [("[0]", SKIPPED.format("set"))]),
    (MagicMock(), [], [("[0]", SKIPPED.format("MagicMock"))]),
    (raising(A), ROWS[:1], [("[1]", "reading on raised OSError")]),
    (raising(), [], [("[0]", "reading on raised OSError")]),
]


@pytest.mark.parametrize("outputs, rows, told", OUTPUTS)
def test_critic_outputs_in_any_container(outputs, rows, told):
    payload, issues = built([thing(step_id=4, critic_outputs=outputs)])
    assert verdicts(payload) == rows
    assert [(i.path, i.message) for i in issues] == [
        (f"records[0].critic_outputs{path}", message) for path, message in told
    ]
    assert payload["step_count"] == 1


R0, R1 = record(0, A), {"step_id": 1, "critic_outputs": [B]}
TWO = [(0, "a", "continue", 0.1), (1, "b", "continue", 0.2)]


@pytest.mark.parametrize(
    "records, rows, told",
    [
        ([R0, R1], TWO, []),
        ((R0, R1), TWO, []),
        (iter([R0, R1]), TWO, []),
        ((r for r in (R0, R1)), TWO, []),
        ([[R0], [[R1]]], TWO, []),
        ({"0": R0, "1": R1}, TWO, []),
        ({"0": R0, "1": R1}.values(), TWO, []),
        (R0, TWO[:1], []),
        (R1, TWO[1:], []),
        ([], [], []),
        (
            [None, R0, "x", R1],
            TWO,
            [
                ("records[0]", SKIPPED.format("None")),
                ("records[2]", SKIPPED.format("'x'")),
            ],
        ),
        (raising(R0), TWO[:1], [("records[1]", "reading on raised OSError")]),
        # The verdicts by themselves are read too.
        ([{**A, "step_id": 0}, {**B, "step_id": 1}], TWO, []),
    ],
)
def test_records_in_any_container(records, rows, told):
    payload, issues = built(records)
    assert verdicts(payload) == rows
    assert issues == [Issue(*item) for item in told]


def test_records_count_as_steps():
    assert build_payload([R0, {"step_id": 1}, {}, None])["step_count"] == 3


@pytest.mark.parametrize(
    "source",
    [None, 3, 1.5, True, b"x", object(), {}, {"a": 1}, MagicMock(), lambda: None, range(3), dict],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_run_is_an_error_that_names_its_type(source):
    with pytest.raises(SnowlCompatError) as caught:
        build_payload(source)
    kind = type(source).__name__
    message = "expected an engine result, step records, a payload or a path"
    assert (caught.value.message, caught.value.path) == (f"{message}, got {kind}", "")


class Slotted:
    __slots__ = ("records", "events", "step_count")


def slotted(**fields):
    made = Slotted()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("make", [thing, dict, slotted], ids=["object", "mapping", "slots"])
def test_a_result_with_any_attribute_missing(make):
    """Also E1: a run killed half way, whose last decision is missing."""
    full = {
        "records": [R0, R1, record(2, decision=None)],
        "events": [event(0, "INIT"), event(2, "DECIDE_ERROR"), event(3, "DECIDE")],
        "step_count": 3,
    }
    payload, issues = built(make(**full))
    assert (verdicts(payload), payload["step_count"], issues) == (TWO, 3, [])
    for name, value in full.items():
        rest, issues = built(make(**{k: v for k, v in full.items() if k != name}))
        assert rest["step_count"] == 3
        assert rest["critic_traces"] == (payload["critic_traces"] if name != "records" else [])
        assert issues == []
        built(make(**{name: None}))
        built(make(**{name: value}))


# ---- step ids (E4: no public thread; judgement)


def test_an_events_missing_step_id_is_its_position_among_the_events():
    events = [event(0, "INIT"), event(None, "HANDOFF_START", {"from": "a", "to": "b"})]
    payload, issues = built({"records": []}, events=events)
    assert chain(payload) == [(1, "a", "b")]
    assert issues == [Issue("events[1].step_id", "expected an integer, got None; using 1")]
    payload, issues = built([thing(step_id=6, phase_events=[events[1]])])
    assert (chain(payload), issues) == ([(6, "a", "b")], [])


# ---- critics


@pytest.mark.parametrize(
    "outputs, rows",
    [
        # C1: seven rows in three real QitOS v1 traces, none with a name.
        ([{"action": "continue", "reason": "pass", "score": 1.0}], [("unknown", "continue", 1.0)]),
        # C2, QitOS: a CriticResult object; the guide's loop drops this STOP.
        ([thing(action="stop", reason="no", score=0.25)], [("unknown", "stop", 0.25)]),
        # C8: no public thread; order as given, nothing merged.
        ([A, B, {**A, "score": 0.3}], [("a", "continue", 0.1), ("b", "continue", 0.2), ("a", "continue", 0.3)]),
    ],
    ids=["C1", "C2", "C8"],
)
def test_critic_rows(outputs, rows):
    payload, issues = built([record(0, *outputs)])
    assert [row[1:] for row in verdicts(payload)] == rows
    assert issues == []


def test_every_row_has_every_column():
    """C11: datasets #7322 and #6460, FlashRAG #132; QitOS leaves empty keys out."""
    full = {**B, "details": {"k": 1}, "instruction_patch": "x", "state_patch": {"n": 1}}
    payload, _ = built([record(0, {}, full)])
    empty = {
        "step_id": 0,
        "critic_name": "unknown",
        "action": "continue",
        "reason": "",
        "score": 1.0,
        "details": {},
        "instruction_patch": None,
        "state_patch": None,
    }
    assert payload["critic_traces"] == [empty, {**empty, **full}]
    assert [list(row) for row in payload["critic_traces"]] == [list(empty)] * 2


def test_a_modified_prompt_is_kept_in_the_details():
    outputs = [
        {"modified_prompt": "p", "details": {"k": 1}},
        {"modified_prompt": {"n": float("nan")}, "details": "text"},
        {"modified_prompt": "p", "details": {"modified_prompt": "mine"}},
        {"modified_prompt": None},
    ]
    payload, issues = built([record(0, *outputs)])
    assert [row["details"] for row in payload["critic_traces"]] == [
        {"k": 1, "modified_prompt": "p"},
        {"value": "text", "modified_prompt": {"n": None}},
        {"modified_prompt": "mine"},
        {},
    ]
    path = "records[0].critic_outputs[{}].modified_prompt"
    # What is read is told before what is walked, some rows at a time.
    assert sorted(issues) == [
        Issue("records[0].critic_outputs[1].details.modified_prompt.n", "expected a finite number, got nan"),
        Issue(path.format(2), "the details have that key already; left out"),
    ]


TRACE = {"step_id": 9, "critic_name": "trace", "score": 0.9}


@pytest.mark.parametrize(
    "records, traces, names",
    [
        ([R0], [TRACE], ["a"]),
        ([record(0)], [TRACE], ["trace"]),
        ([record(0, None)], [TRACE], ["trace"]),
        ([], [TRACE], ["trace"]),
        (None, thing(action="stop", **TRACE), ["trace"]),
        (None, [{"step_id": 3}], ["unknown"]),
        ([R0], None, ["a"]),
        (None, [None], []),
    ],
)
def test_critic_rows_come_from_the_records_if_these_hold_any(records, traces, names):
    payload, _ = built({"records": records, "critic_traces": traces})
    assert [row["critic_name"] for row in payload["critic_traces"]] == names


# ---- handoffs


@pytest.mark.parametrize(
    "phase, rows",
    [
        # H4: QitOS's real traces carry phases as text.
        ("HANDOFF_START", 1),
        ("handoff_start", 1),
        ("RuntimePhase.HANDOFF_START", 1),
        (Phase.HANDOFF_START, 1),
        (Silent.HANDOFF_START, 1),
        (Phase.HANDOFF_END, 0),
        (Phase.DELEGATE_START, 0),
        ("HANDOFF_END", 0),
        ("OBSERVE", 0),
        ("toolset_setup_start", 0),
        ("", 0),
        (None, 0),
        (7, 0),
    ],
)
def test_one_row_for_each_start(phase, rows):
    payload, issues = built([], events=[event(1, phase, {"from": "a", "to": "b"})])
    assert (chain(payload), issues) == ([(1, "a", "b")] * rows, [])


def test_two_handoffs_in_one_step_are_two_rows():
    """H5: openai-agents PR #344 and #694, semantic-kernel #12756."""
    events = [
        handoff(3, **{"from": "triage", "to": "billing"}),
        handoff(3, **{"from": "triage", "to": "refund"}),
        event(3, "HANDOFF_END", {"agent": "refund"}),
    ]
    payload, issues = built({"events": events})
    assert chain(payload) == [(3, "triage", "billing"), (3, "triage", "refund")]
    assert issues == []


@pytest.mark.parametrize(
    "given, row, told",
    [
        (handoff(1, **{"from": "a", "to": "b"}), (1, "a", "b"), []),
        (handoff(1, from_agent="a", to_agent="b"), (1, "a", "b"), []),
        (handoff(1, **{"from": None, "from_agent": "a", "to": " B "}), (1, "a", " B "), []),
        (event(1, "HANDOFF_START"), (1, "", ""), []),
        (event(1, "HANDOFF_START", from_agent="a", to_agent="b"), (1, "a", "b"), []),
        (thing(step_id=1, from_agent="a", to_agent="b"), (1, "a", "b"), []),
        (
            event(1, "HANDOFF_START", "text"),
            (1, "", ""),
            [("events[0].payload", "expected an object, got 'text'")],
        ),
        (
            handoff(1, **{"from": ["a"], "to_agent": object()}),
            (1, "", ""),
            [
                ("events[0].payload.from", "expected text, got list"),
                ("events[0].payload.to_agent", "expected text, got object"),
            ],
        ),
    ],
)
def test_where_the_agents_of_a_handoff_stand(given, row, told):
    payload, issues = built({"events": [given]})
    assert chain(payload) == [row]
    assert issues == [Issue(*item) for item in told]


def test_what_has_neither_phase_nor_agents_is_no_handoff():
    payload, issues = built({"events": [{}, {"step_id": 1, "payload": {"from": "a"}}, None]})
    assert payload["handoff_traces"] == []
    assert issues == [Issue("events[2]", SKIPPED.format("None"))]


def named(name):
    return [handoff(1, **{"from": name, "to": "b"})]


@pytest.mark.parametrize(
    "sources, wins",
    [
        ("given traces events record", "given"),
        ("traces events record", "traces"),
        ("events record", "events"),
        ("record", "record"),
        ("given record", "given"),
        ("", None),
    ],
)
@pytest.mark.parametrize("empty", [None, [], (), {}], ids=str)
def test_handoffs_come_from_the_first_source_that_is_not_empty(sources, wins, empty):
    found = {name: named(name) if name in sources else empty for name in
             ("given", "traces", "events", "record")}
    source = {
        "records": [thing(step_id=0, phase_events=found["record"])],
        "handoff_traces": found["traces"],
        "events": found["events"],
    }
    payload, issues = built(source, events=found["given"])
    assert [row[1] for row in chain(payload)] == ([wins] if wins else [])
    assert issues == []


def test_iterators_of_handoffs_and_events_are_read_once_and_whole():
    events = (e for e in [event(0, "INIT"), *named("a"), event(1, "END")])
    payload, issues = built({"events": events, "handoff_traces": iter([])}, extended=True)
    assert (chain(payload), payload["run"]["partial"]) == ([(1, "a", "b")], False)
    payload, issues = built({"events": raising()})
    assert issues == [Issue("events[0]", "reading on raised OSError")]
    payload, issues = built({"events": raising(*named("a"))})
    assert (len(chain(payload)), issues) == (1, [Issue("events[1]", "reading on raised OSError")])


def test_teardown_after_the_end_does_not_move_rows():
    """E2: QitOS's teardown events carry step 0 after END."""
    source = {
        "records": [R0, R1],
        "events": [event(0, "INIT"), event(1, "END"), event(0, "toolset_teardown_end")],
    }
    payload, _ = built(source, extended=True)
    assert [row["step_id"] for row in payload["critic_traces"]] == [0, 1]
    assert payload["run"]["partial"] is False


def test_results_are_not_paired_with_actions():
    """E5: real QitOS runs have one result more than actions."""
    step = record(0, A, actions=[{"name": "view"}], action_results=[1, {"env": {}}])
    payload, issues = built([step])
    assert (verdicts(payload), issues) == ([(0, "a", "continue", 0.1)], [])


def test_a_payload_does_not_change_with_its_source():
    """A1: langsmith-sdk #706 and PR #735, opik PR #1685."""
    messages = [1]
    source = [record(0, {"details": {"messages": messages}})]
    payload = build_payload(source)
    messages.append(2)
    assert payload["critic_traces"][0]["details"] == {"messages": [1]}


def test_a_step_with_a_score_of_its_own_is_no_verdict():
    payload, issues = built([{"step_id": 0, "decision": {}, "score": 0.2}])
    assert (payload["critic_traces"], payload["step_count"], issues) == ([], 1, [])


# ---- the number of steps


@pytest.mark.parametrize(
    "given, count, told",
    [
        (5, 5, None),
        ("5", 5, None),
        (0, 0, None),
        # E10: mlflow #20595; a real manifest that was never finished.
        (None, 2, None),
        (-1, 2, "-1"),
        ("x", 2, "'x'"),
        (True, 2, "True"),
        (2.5, 2, "2.5"),
        ([], 2, "list"),
    ],
)
def test_the_number_of_steps(given, count, told):
    payload, issues = built({"records": [R0, R1], "step_count": given})
    assert payload["step_count"] == count
    message = f"expected an integer >= 0, got {told}"
    assert issues == ([] if told is None else [Issue("step_count", message)])


# ---- the sections by themselves


def test_each_section_by_itself():
    events = [event(0, "INIT"), *named("a")]
    run = {"records": [R0, R1], "events": events}
    payload = build_payload(run)
    assert snowl_compat.critic_traces([R0, R1]) == payload["critic_traces"]
    assert snowl_compat.critic_traces(run) == payload["critic_traces"]
    assert snowl_compat.critic_traces(payload["critic_traces"]) == payload["critic_traces"]
    assert snowl_compat.handoff_traces(events) == payload["handoff_traces"]
    assert snowl_compat.handoff_traces(run) == payload["handoff_traces"]
    again = snowl_compat.handoff_traces(payload["handoff_traces"])
    assert again == payload["handoff_traces"]
    steps = {"records": [record(0, phase_events=events)]}
    assert snowl_compat.handoff_traces(steps) == payload["handoff_traces"]
    assert snowl_compat.engine_config({}) == payload["engine_config"]
    assert snowl_compat.tool_permissions(None) == payload["tool_permissions"] == []


@pytest.mark.parametrize(
    "call, source, path",
    [
        (snowl_compat.critic_traces, [record(0, {"score": None})], "records[0].critic_outputs[0].score"),
        (snowl_compat.handoff_traces, [handoff(messages_passed=None)], "events[0].payload.messages_passed"),
        (
            snowl_compat.handoff_traces,
            {"records": [record(0, phase_events=[handoff(messages_passed=None)])]},
            "records[0].phase_events[0].payload.messages_passed",
        ),
        (snowl_compat.engine_config, {"tool_count": "x"}, "engine_config.tool_count"),
        (snowl_compat.tool_permissions, [{"name": None}], "tool_permissions[0].name"),
        (build_payload, [record(0, {"score": None})], "records[0].critic_outputs[0].score"),
    ],
)
def test_strict_raises_the_first_issue(call, source, path):
    issues = []
    call(source, issues=issues)
    assert [issue.path for issue in issues] == [path]
    with pytest.raises(SnowlCompatError) as caught:
        call(source, strict=True)
    assert (caught.value.path, caught.value.message) == issues[0]
    assert str(caught.value) == f"{path}: {issues[0].message}"


class Hostile:
    """Raises whatever it is asked."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    __repr__ = __str__ = __iter__ = __len__ = __bool__ = __eq__ = lambda *args: 1 / 0

    records = property(lambda self: 1 / 0)
    critic_outputs = property(lambda self: 1 / 0)
    phase = property(lambda self: 1 / 0)
    score = property(lambda self: 1 / 0)


@pytest.mark.parametrize("bad", [Hostile(), MagicMock(), lambda: None, object], ids=lambda b: type(b).__name__)
def test_a_hostile_object_anywhere_costs_itself_only(bad):
    for name in ("records", "events", "step_count", "critic_traces", "handoff_traces", "state"):
        source = {"records": [R0, R1], "events": named("a"), name: bad}
        built(source, extended=True)
    payload, _ = built({"records": [R0, bad, R1], "events": [bad, *named("a")]})
    assert len(chain(payload)) == 1 and {*TWO} <= {*verdicts(payload)}
    for name in (*A, "details", "action", "state_patch", "step_id"):
        payload, _ = built([record(0, {**A, name: bad}, B)])
        assert len(payload["critic_traces"]) == 2
        built({"events": [handoff(**{"from": bad, "to": bad, name: bad})]})
        built([], tool_permissions=[{"name": bad, "permissions": bad, name: bad}, bad])
        built([], engine_config=bad, engine=bad)


def test_a_cut_payload_is_valid_and_the_payload_of_itself():
    deep = []
    for _ in range(300):
        deep = [deep]
    payload = snowl_compat.build_payload([record(0, {"details": {"v": deep}})], extended=True)
    assert snowl_compat.validate_payload(payload) == []
    assert snowl_compat.build_payload(payload, extended=True) == payload
    assert snowl_compat.load_payload(snowl_compat.dumps(payload)) == payload


def test_an_object_without_anything_of_a_verdict_is_none():
    issues = []
    outputs = [SimpleNamespace(weather="fine"), SimpleNamespace(action="stop")]
    (row,) = snowl_compat.critic_traces([record(0, *outputs)], issues=issues)
    assert row["action"] == "stop"
    what = "expected a record, got SimpleNamespace; skipped"
    assert issues == [("records[0].critic_outputs[0]", what)]


def test_a_registry_that_raises_has_no_number_of_tools():
    class Registry:
        def export_permissions(self):
            raise OSError("no")

    payload = snowl_compat.build_payload([], tool_registry=Registry())
    assert (payload["tool_permissions"], payload["engine_config"]["tool_count"]) == ([], None)


@pytest.mark.parametrize(
    "record, told",
    [
        ({"critics": []}, ["unknown key 'critics', expected critic_outputs?"]),
        ({"stepId": 3, "critic_output": []}, ["unknown key 'stepId', expected step_id?",
                                              "unknown key 'critic_output', expected critic_outputs?"]),
        ({"weather": 1}, []),
        ({"step_id": 3, "critic_outputs": [], "critics": []}, []),
        # A step of QitOS, which leaves empty keys out: not one key is misspelt.
        ({"step_id": 3, "decision": {}, "action_results": [], "actions": []}, []),
    ],
)
def test_close_misspellings_are_told_once(record, told):
    _, issues = built([record, record])
    assert [issue.message for issue in issues if "unknown key" in issue.message] == told


class SlottedPermissions:
    __slots__ = ("network", "sudo")

    def __init__(self):
        self.network, self.sudo = True, True

    def to_dict(self):
        return {"network": self.network}


class ToDict:
    def to_dict(self):
        return {"network": True}


@pytest.mark.parametrize(
    "permissions", [{"network": True}, SlottedPermissions(), ToDict()]
)
def test_permissions_of_every_shape_keep_what_they_allow(permissions):
    rows = snowl_compat.tool_permissions([{"name": "t", "permissions": permissions}], strict=True)
    assert rows[0]["permissions"] == {
        "filesystem_read": False, "filesystem_write": False, "network": True, "command": False
    }


class Odd(enum.Enum):
    MAPPING = {1: "a", "1": "b"}
    BYTES = b"retry"


@dataclass
class Output(OrderedDict):
    """A mapping that is a dataclass too, as model libraries have them."""

    label: str = "x"


def test_values_have_one_form_whatever_stands_beside_them():
    details = {"odd": Odd.MAPPING, "out": Output()}
    details["out"]["z"] = 5
    alone, _ = built([record(0, {"action": Odd.BYTES, "details": details})])
    beside, _ = built([record(0, {"action": Odd.BYTES, "details": {**details, "bad": float("nan")}})])
    [row], [other] = alone["critic_traces"], beside["critic_traces"]
    assert row["action"] == "retry"
    assert row["details"] == {"odd": {"1": "a", "1#2": "b"}, "out": {"z": 5}}
    assert other["details"] == {**row["details"], "bad": None}
    assert snowl_compat.to_json_value(range(10**30)) == {"$truncated": "size"}


def test_critics_are_named_by_their_own_position():
    engine = SimpleNamespace(agent=None, budget=None, critics=[SimpleNamespace(name="a"), SimpleNamespace(name="b")])
    records = [record(0, None, {"action": "stop"}), record(1, {"score": 1.0}, None, {"score": 0.5}),
               record(2, {"score": 1.0}), record(3, {"critic_name": "own"}, {})]
    payload = build_payload(records, engine=engine)
    assert [row["critic_name"] for row in payload["critic_traces"]] == ["b", *["unknown"] * 3, "own", "b"]


def test_what_cannot_be_read_is_unusable_and_not_missing():
    class Verdict:
        critic_name, action = "c", "stop"
        score = property(lambda self: 1 / 0)

    class Spec:
        name = "t"
        needs_approval = read_only = property(lambda self: 1 / 0)

    issues = []
    options = {"tool_permissions": [Spec()], "issues": issues}
    payload = build_payload([record(0, Verdict())], **options)
    assert payload["critic_traces"][0]["score"] is None
    tool = payload["tool_permissions"][0]
    assert (tool["needs_approval"], tool["read_only"]) == (True, False)
    raised = "reading it raised ZeroDivisionError"
    places = ("records[0].critic_outputs[0].score", "tool_permissions[0].needs_approval",
              "tool_permissions[0].read_only")
    assert issues == [(place, raised) for place in places]
