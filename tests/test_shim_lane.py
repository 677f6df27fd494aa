"""The plain lane gives just what the readers and the walk give."""

import enum
import json
import random
from collections import deque
from types import SimpleNamespace

import pytest

import snowl_compat
from snowl_compat import build_payload, dumps, export_json

NAN = float("nan")


class Text(str):
    pass


LEAVES = [
    None, True, 0, -1, 2**70, 1.5, -0.0, "", "plain", "寒潮 🦊", [], {}, [1, ["x", {"y": 2}]],
    {"k": {"l": []}},
]
NASTY = [
    NAN, float("inf"), 10**5000, "bad \ud835", {"\ud800": 1}, {1: 2, "1": 3}, (1, 2), {3}, b"x",
    Text("t"), {Text("k"): 1}, object(), [[NAN]], {"a": {"b": object()}},
]


def value(random_, nasty):
    pool = LEAVES + NASTY if nasty else LEAVES
    return {f"k{n}": random_.choice(pool) for n in range(random_.randrange(6))}


def output(random_, nasty):
    full = {
        "critic_name": random_.choice(["a", "名", "b\ud800" if nasty else "b"]),
        "action": random_.choice(["continue", "stop", "retry", " STOP " if nasty else "stop"]),
        "reason": random_.choice(["", "why", "为什么"]),
        "score": random_.choice([0.5, 1.0, *([1, True, None, NAN, "0.7"] if nasty else [])]),
        "details": random_.choice([None, {}, value(random_, nasty)]),
        "modified_prompt": "p" if nasty and random_.random() < 0.2 else None,
        "instruction_patch": random_.choice([None, "patch", 5 if nasty else None]),
        "state_patch": random_.choice([None, {}, value(random_, nasty)]),
    }
    return {k: v for k, v in full.items() if random_.random() < 0.9}


def record(random_, step, nasty):
    ids = [step, step, step, str(step), None] if nasty else [step]
    outputs = [output(random_, nasty) for _ in range(random_.randrange(4))]
    if nasty and random_.random() < 0.2:
        outputs.insert(random_.randrange(len(outputs) + 1), random_.choice([None, "x", []]))
    return {"step_id": random_.choice(ids), "critic_outputs": outputs}


Phase = enum.Enum("Phase", "DECIDE ACT handoff_start HANDOFF_START INIT END")


def event(random_, step):
    phase = random_.choice(list(Phase)).name
    return {"step_id": step, "phase": phase, "payload": {"from": "a", "to": f"b{step}"}}


def run(seed, nasty):
    random_ = random.Random(seed)
    records, events = random_.choice([(12, 40), (70, 40), (12, 1100)])
    return {
        "records": [record(random_, step, nasty) for step in range(records)],
        "events": [event(random_, step) for step in range(events)],
    }


class Plain(dict):
    """A mapping that the plain lane does not take: only ``dict`` itself is plain."""


def slowly(tree):
    """The same run in types that have to be walked."""
    rows = [Plain({**r, "critic_outputs": tuple(map(mapped, r["critic_outputs"]))})
            for r in tree["records"]]
    return {"records": deque(rows), "events": deque(map(Plain, tree["events"]))}


def mapped(output):
    return Plain(output) if isinstance(output, dict) else output


def objects(tree):
    """The same run as objects, whose phases are members."""
    return SimpleNamespace(
        records=[SimpleNamespace(**r) for r in tree["records"]],
        events=[SimpleNamespace(**{**e, "phase": Phase[e["phase"]]}) for e in tree["events"]],
    )


@pytest.mark.parametrize("nasty", [False, True], ids=["plain", "nasty"])
@pytest.mark.parametrize("seed", range(60))
def test_both_ways_give_the_same_rows_and_issues(seed, nasty):
    tree = run(seed, nasty)
    fast, slow, attributes = [], [], []
    text = dumps(build_payload(tree, issues=fast))
    assert text == dumps(build_payload(slowly(tree), issues=slow))
    assert text == dumps(build_payload(objects(tree), issues=attributes))
    assert fast == slow == attributes
    assert nasty or not fast


@pytest.mark.parametrize("nasty", [False, True], ids=["plain", "nasty"])
@pytest.mark.parametrize("seed", range(60))
def test_export_json_is_dumps_of_build_payload(seed, nasty):
    tree, direct, built = run(seed, nasty), [], []
    for options in ({}, {"extended": True}, {"indent": 1}):
        indent = options.pop("indent", None)
        text = export_json(tree, issues=direct, indent=indent, **options)
        payload = build_payload(tree, issues=built, **options)
        assert text == dumps(payload, indent=indent)
        assert text == json.dumps(payload, ensure_ascii=False, allow_nan=False, indent=indent)
        assert direct == built


def test_a_copied_row_shares_nothing():
    details = {"a": [{"b": []}], "c": {}}
    tree = [{"step_id": 0, "critic_outputs": [{"details": details, "state_patch": {"x": []}}]}]
    payload = build_payload(tree)
    details["a"][0]["b"].append(1)
    details["c"]["d"] = 1
    tree[0]["critic_outputs"][0]["state_patch"]["x"].append(1)
    [row] = payload["critic_traces"]
    assert (row["details"], row["state_patch"]) == ({"a": [{"b": []}], "c": {}}, {"x": []})


def test_an_empty_default_is_no_shared_object():
    rows = snowl_compat.critic_traces([{"step_id": 0, "critic_outputs": [{}, {}]}])
    rows[0]["details"]["x"] = 1
    assert rows[1]["details"] == {}
    assert snowl_compat.critic_traces([{"step_id": 0, "critic_outputs": [{}]}])[0]["details"] == {}
