"""RunState: a finished run as one JSON document."""

import json
from types import SimpleNamespace

import pytest

from qitos_min.__main__ import TASK, build_engine
from qitos_min.core.state import StateMigrationError
from qitos_min.engine.run_state import CURRENT_SCHEMA_VERSION, SCHEMA_VERSION_SUMMARIES, RunState
from qitos_min.engine.states import utc_now

KEYS = (
    "$schemaVersion agent_name step task_text state_data state_type records events checkpoint_id"
    " trace_state context_metadata budget token_usage created_at _serialization_meta"
).split()


def finished():
    engine = build_engine()
    return engine, engine.run(TASK)


def test_a_run_becomes_a_document_and_comes_back():
    engine, result = finished()
    state = RunState.from_engine_result(result, agent_name="planner")
    state.budget = engine.budget.to_dict()
    for pretty in (True, False):
        text = state.to_json(pretty=pretty)
        assert ("\n" in text) is pretty
        assert list(json.loads(text)) == KEYS
        assert RunState.from_json(text) == state
    assert state.step == 6
    assert state.state_data["final_result"] == result.final_result
    assert state.state_type == "qitos_min.__main__.WeatherState"
    assert state.budget == {"max_steps": 12, "max_runtime_seconds": None, "max_tokens": None}
    assert [record["agent_id"] for record in state.records] == ["planner"] * 4 + ["writer"] * 2
    assert state.events[-1]["phase"] == "END"


def test_later_changes_do_not_reach_the_document():
    _, result = finished()
    state = RunState.from_engine_result(result)
    text = state.to_json()
    result.state.found["read_log"].append(99)
    result.records[0].action_results.append("late")
    assert state.to_json() == text


def test_an_unknown_version_lists_the_known_ones():
    text = RunState().to_json().replace('"1.0"', '"7.3"')
    with pytest.raises(StateMigrationError) as caught:
        RunState.from_json(text)
    assert str(caught.value) == (
        "Unsupported run state version '7.3'; known: 1.0 (state, records, events, budget and token"
        " usage of one run)"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("[]", "expected an object, got list"),
        ('{"$schemaVersion": "1.0", "stepp": 1}', "unknown field 'stepp' of RunState"),
    ],
)
def test_what_is_no_run_state_is_refused(text, message):
    with pytest.raises(ValueError) as caught:
        RunState.from_json(text)
    assert str(caught.value) == message


def test_every_version_has_a_summary():
    assert CURRENT_SCHEMA_VERSION in SCHEMA_VERSION_SUMMARIES
    assert all(SCHEMA_VERSION_SUMMARIES.values())


def test_a_context_is_written_and_read_by_functions_of_the_caller():
    state = RunState(state_data={"n": 1}, state_type="my.State")
    text = state.to_json(context_serializer=lambda data: f"n={data['n']}")
    assert json.loads(text)["state_data"] == "n=1"
    assert json.loads(text)["_serialization_meta"] == {
        "original_type": "my.State",
        "serialized_via": "context_serializer",
        "requires_deserializer": True,
    }
    read = RunState.from_json(text, context_deserializer=lambda text: {"n": int(text[2:])})
    assert read == state


def test_all_but_the_version_and_the_state_may_be_missing():
    assert RunState.from_json('{"$schemaVersion": "1.0"}').records == []
    state = RunState.from_engine_result(SimpleNamespace(state={"a": 1}), "me", "c1")
    assert (state.state_data, state.agent_name, state.checkpoint_id) == ({"a": 1}, "me", "c1")
    assert (state.step, state.token_usage, state.trace_state) == (0, 0, None)


def test_times_are_aware():
    assert utc_now().endswith("+00:00")
