"""What holds for every run: seeded random runs, plain ones and ones with nasty values."""

import copy
import dataclasses
import datetime
import decimal
import pathlib
import random
import threading
from types import SimpleNamespace
from unittest import mock

import pytest
from strictly import FORMS, event, identical, record, result, round_trip, strict

import snowl_compat

NAN = float("nan")
SEEDS = range(60)
TEXTS = ("", "plain", "寒潮 \U0001f98a", "a.b[0]", "W\x00 \u2028", '{"t": "\\u5bd2"}')


@dataclasses.dataclass
class Holder:
    lock: object = dataclasses.field(default_factory=threading.Lock)
    late: object = dataclasses.field(init=False)


class Endless:
    dtype = "odd"

    def item(self):
        return Endless()

    def to_dict(self):
        return {"again": Endless()}


def circle():
    found = {"list": []}
    found["list"].append(found)
    return found


def nested(levels):
    found = NAN
    for _ in range(levels):
        found = [found]
    return found


NASTY = (
    lambda: NAN, lambda: -float("inf"), lambda: 10**5000, lambda: "\ud800", lambda: {"\udfff": 1},
    lambda: b"\xff", lambda: object(), lambda: threading.Lock(), lambda: (i for i in "ab"),
    lambda: {(1, 2): 3, None: NAN, 1: 2, "1": 3}, lambda: {NAN, "x", b"y"}, circle, Endless,
    lambda: nested(300), Holder, lambda: mock.Mock(), lambda: mock.MagicMock(),
    lambda: decimal.Decimal("1E+999999999"), lambda: decimal.Decimal("sNaN"),
    lambda: ValueError("\ud800"), lambda: datetime.timedelta.max, lambda: pathlib.Path("a\udcff"),
)


def plain_value(rng, depth=0):
    """A random value that JSON can hold."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 6:
        return rng.choice((None, True, False, rng.randrange(-9, 2**70), rng.random(), -0.0, 1e300,
                           *TEXTS))
    size = rng.randrange(4)
    if kind < 7:
        return [plain_value(rng, depth + 1) for _ in range(size)]
    return {f"{rng.choice(TEXTS)}{n}": plain_value(rng, depth + 1) for n in range(size)}


def plain_object(rng):
    return {f"k{n}": plain_value(rng) for n in range(rng.randrange(4))}


def random_run(rng, form):
    """A run of an agent, with nothing to repair, in either form."""
    records, events = [], [event(0, "INIT", {}, form=form)]
    for step in range(rng.randrange(5)):
        outputs = [
            form(step_id=step, critic_name=rng.choice(TEXTS), score=rng.choice((0.5, 7, -0.25)),
                 action=rng.choice(("continue", "stop", "retry")), reason=rng.choice(TEXTS),
                 details=plain_object(rng), instruction_patch=rng.choice((None, *TEXTS)),
                 state_patch=rng.choice((None, plain_object(rng))))
            for _ in range(rng.randrange(3))
        ]
        records.append(record(step, *outputs, form=form, observation=plain_value(rng)))
        if rng.random() < 0.5:
            body = {"from": rng.choice(TEXTS), "to": "b", "context_strategy": "FULL",
                    "messages_passed": rng.randrange(9)}
            events.append(event(step, "HANDOFF_START", body, form=form))
            events.append(event(step, "HANDOFF_END", body, form=form))
    config = form(agent_name=rng.choice(TEXTS), budget_max_steps=rng.randrange(99), has_env=True,
                  critic_names=["b", "a"], budget_max_runtime_seconds=rng.choice((None, 0.5)))
    specs = [form(name=f"t{n}", description=rng.choice(TEXTS), read_only=True, needs_approval=False,
                  permissions={"network": True, "gpu": False}, required_ops=["x"])
             for n in range(rng.randrange(3))]
    return result(*records, form=form, events=events, engine_config=config,
                  tool_permissions=specs, final_result=plain_value(rng))


@pytest.mark.parametrize("seed", SEEDS)
def test_of_any_run(seed):
    runs, payloads = {}, {}
    for name, form in FORMS.items():
        runs[name] = random_run(random.Random(seed), form)
        before, issues = copy.deepcopy(runs[name]), []
        payloads[name] = snowl_compat.build_payload(runs[name], extended=True, issues=issues)
        # There is nothing to repair, and the input is as it was.
        assert issues == []
        assert runs[name] == before
    payload = payloads["object"]
    assert identical(payload, payloads["mapping"])
    assert identical(payload, snowl_compat.build_payload(runs["object"], extended=True))
    # It is JSON, whichever way it is written, and the payload of itself.
    assert identical(round_trip(payload), payload)
    assert identical(strict(snowl_compat.dumps(payload, indent=1)), payload)
    assert strict(snowl_compat.export_json(runs["mapping"], extended=True)) == payload
    assert snowl_compat.validate_payload(payload) == []
    assert identical(snowl_compat.build_payload(payload, extended=True), payload)
    assert identical(snowl_compat.to_json_value(payload), payload)


def containers(value):
    """Every dict and list of a tree."""
    if isinstance(value, SimpleNamespace):
        value = vars(value)
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from containers(inner)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_output_shares_nothing_with_the_input(form):
    for seed in SEEDS:
        run = random_run(random.Random(seed), form)
        given = {id(found) for found in containers(run)}
        payload = snowl_compat.build_payload(run, extended=True)
        parts = list(containers(payload))
        assert not given & {id(found) for found in parts}
        assert len({id(found) for found in parts}) == len(parts)


def leaves(value, path=()):
    """The places of all leaves of a tree."""
    if isinstance(value, (dict, list)) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path


def put(value, path, leaf):
    """Change the leaf at a place."""
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = leaf


def marked_out(payload, path):
    """A payload without what stands at a place, without its issues."""
    found = copy.deepcopy(payload)
    found["run"]["issues"] = []
    put(found, path, "here")
    return found


FREE = ("details", "state_patch")
"""Fields that take any value, where a bad leaf costs exactly that leaf."""


@pytest.mark.parametrize("number", range(len(NASTY)))
def test_a_nasty_value_costs_its_leaf(number):
    rng = random.Random(number)
    tried = 0
    while tried < 6:
        run = random_run(random.Random(rng.random()), FORMS["mapping"])
        clean = snowl_compat.build_payload(run, extended=True)
        places = [
            path for path in leaves(run)
            if len(path) > 5 and path[0] == "records" and path[4] in FREE
        ]
        if not places:
            continue
        tried += 1
        path, issues = rng.choice(places), []
        put(run, path, NASTY[number]())
        payload = snowl_compat.build_payload(run, extended=True, issues=issues)
        # Rows stand in the order of records and outputs, so the place is known.
        rows = [len(item["critic_outputs"]) for item in run["records"][:path[1]]]
        place = ("critic_traces", sum(rows) + path[3], *path[4:])
        assert identical(marked_out(payload, place), marked_out(clean, place))
        assert round_trip(payload) == payload
        assert strict(snowl_compat.dumps(payload)) == payload
        field = f"records[{path[1]}].critic_outputs[{path[3]}].{path[4]}"
        assert all(issue.path.startswith(field) for issue in issues)


ROWS = {
    "critic_traces": ("critic_name", "action", "reason", "score", "details", "modified_prompt",
                      "instruction_patch", "state_patch", "step_id"),
    "handoff_traces": ("from", "to", "from_agent", "context_strategy", "messages_passed"),
    "tool_permissions": ("name", "description", "permissions", "needs_approval", "read_only",
                         "required_ops", "concurrency_safe", "capabilities", "function"),
}


@pytest.mark.parametrize("number", range(len(NASTY)))
def test_a_nasty_field_costs_its_field(number):
    def rows(section, fields):
        first, second = {"from": "a"}, {"name": "b", "to": "c", "action": "stop"}
        if section == "handoff_traces":
            given = [event(1, "HANDOFF_START", {**first, **fields}),
                     event(2, "HANDOFF_START", second)]
        elif section == "critic_traces":
            given = [record(1, {**fields}), record(2, second)]
        else:
            given = [{"name": "t", **fields}, second]
        return getattr(snowl_compat, section)(given)

    for section, names in ROWS.items():
        clean = rows(section, {})
        for name in names:
            made = rows(section, {name: NASTY[number]()})
            assert identical(made[1:], clean[1:])
            column = {"from": "from_agent", "to": "to_agent", "modified_prompt": "details"}
            column = column.get(name, name)
            assert {k: v for k, v in made[0].items() if k != column} == {
                k: v for k, v in clean[0].items() if k != column
            }
            assert list(made[0]) == list(clean[0])
            assert round_trip(made) == made


@pytest.mark.parametrize("number", range(len(NASTY)))
def test_a_nasty_phase_is_no_handoff(number):
    events = [event(1, NASTY[number](), {"from": "a"}), event(2, "HANDOFF_START", {"from": "b"})]
    assert [row["from_agent"] for row in snowl_compat.handoff_traces(events)] == ["b"]


@pytest.mark.parametrize("number", range(len(NASTY)))
def test_a_nasty_element_costs_itself(number):
    nasty, records = NASTY[number], [record(1, {}), None, record(2, {})]
    for place in ("records", "events", "critic_traces", "handoff_traces"):
        payloads = []
        for alone in (True, False):
            records[1] = nasty()
            run = result(record(1, {}), record(2, {}), **{place: nasty() if alone else records})
            payloads.append(snowl_compat.build_payload(run, extended=True))
            assert round_trip(payloads[-1]) == payloads[-1]
            assert snowl_compat.validate_payload(payloads[-1]) == []
        rows = payloads[1]["critic_traces"]
        assert {1, 2} <= {row["step_id"] for row in rows}


@pytest.mark.parametrize("number", range(len(NASTY)))
def test_a_nasty_source_is_read_or_refused(number):
    nasty, clean = NASTY[number], snowl_compat.build_payload([record(1, {})])
    for option in ("engine", "tool_registry", "events", "engine_config", "tool_permissions"):
        payload = snowl_compat.build_payload([record(1, {})], **{option: nasty()})
        assert round_trip(payload) == payload
        assert payload["critic_traces"] == clean["critic_traces"]
    try:
        payload = snowl_compat.build_payload(nasty())
        assert round_trip(payload) == payload
    except snowl_compat.SnowlCompatError as error:
        str(error).encode("utf-8")
