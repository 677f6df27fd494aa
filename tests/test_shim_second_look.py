"""What a second reader found: endless sharing, silent losses, invented facts."""

import copy
import json
import sys
import urllib.error
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from strictly import record, result, round_trip

from snowl_compat import (
    SnowlCompatError,
    build_payload,
    critic_traces,
    dumps,
    main,
    to_json_value,
    validate_payload,
)


def sharing():
    value = 1
    for _ in range(20):
        value = [value] * 1000
    return value


def branching():
    value = []
    value += [value] * 30
    return value


def repeating():
    return [[0] * 100_000] * 100_000


def payload_with(value):
    payload = build_payload([record(0, {"action": "stop"})])
    payload["critic_traces"][0]["details"] = {"v": value}
    return payload


@pytest.mark.parametrize("build", [sharing, branching, repeating])
def test_what_is_shared_over_and_over_ends(build):
    payload = payload_with(build())
    assert validate_payload(payload)
    assert len(dumps(payload)) < 20_000_000


class Lying:
    @property
    def __class__(self):
        raise RuntimeError


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": v}])
@pytest.mark.parametrize("key", ["step_count", "engine_config", "critic_traces"])
def test_anything_can_be_validated(key, wrap):
    payload = {**build_payload([]), key: wrap(Lying())}
    assert validate_payload(payload)
    round_trip(json.loads(dumps(payload)))


def test_what_was_cut_at_the_last_level_is_valid():
    value = 1
    for _ in range(300):
        value = [value]
    outputs = [{"details": value}, {"details": {"k": value}, "modified_prompt": value}]
    payload = build_payload([record(0, *outputs)])
    assert '{"$truncated": "depth"}' in dumps(payload)
    assert validate_payload(payload) == []
    assert build_payload(copy.deepcopy(payload)) == payload


def test_nobody_is_warned_of_a_coroutine(recwarn):
    class Later:
        async def to_dict(self):
            return {}

    assert to_json_value([Later()]) == [{"$unserializable": "builtins.coroutine"}]
    assert list(recwarn) == []


class Dumb(Mapping):
    """Says that it is a mapping, and can tell nothing."""

    def __getitem__(self, key):
        raise RuntimeError

    __iter__ = __len__ = __contains__ = __getitem__


def test_a_mapping_that_cannot_be_read_is_told():
    issues = []
    build_payload([record(0, Dumb())], issues=issues)
    assert len(issues) >= 8
    assert {message for _, message in issues} == {"reading it raised RuntimeError"}


def test_an_object_without_an_action_judges_nothing():
    issues = []
    outputs = [urllib.error.URLError("x"), SimpleNamespace(score=1.0)]
    assert critic_traces([record(0, *outputs)], issues=issues) == []
    assert [issue.message for issue in issues] == [
        "expected a record, got URLError; skipped",
        "expected a record, got SimpleNamespace; skipped",
    ]
    (row,) = critic_traces([record(0, SimpleNamespace(action="stop"))])
    assert row["action"] == "stop"


def test_a_registry_that_raises_says_no_number_of_tools():
    class Registry:
        def export_permissions(self):
            raise RuntimeError

    payload = build_payload([], tool_registry=Registry())
    assert payload["engine_config"]["tool_count"] is None
    assert build_payload([], tool_permissions=[])["engine_config"]["tool_count"] == 0


def test_endless_digits_are_no_number():
    row = critic_traces([record("9" * 2_000_000, {"score": "9" * 2_000_000})])[0]
    assert (row["step_id"], row["score"]) == (0, None)


@pytest.mark.skipif(not hasattr(sys, "set_int_max_str_digits"), reason="no limit")
def test_endless_digits_cost_no_time_without_a_limit():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        test_endless_digits_are_no_number()
    finally:
        sys.set_int_max_str_digits(before)


def test_a_set_of_records_is_read_by_step_id():
    class Step:
        def __init__(self, number):
            self.step_id, self.critic_outputs = number, [{}]

    rows = critic_traces({Step(number) for number in range(30)})
    assert [row["step_id"] for row in rows] == list(range(30))


def test_a_good_file_is_not_replaced_by_nothing(tmp_path, capsys):
    target = tmp_path / "all.jsonl"
    target.write_text("as it was")
    missing = [str(tmp_path / name) for name in "ab"]
    assert main(["export", *missing, "-o", str(target)]) == 1
    assert target.read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["all.jsonl"]
    assert capsys.readouterr().err.count("\n") == 2


def test_strict_still_raises():
    with pytest.raises(SnowlCompatError):
        build_payload(result(record(0, Dumb())), strict=True)
