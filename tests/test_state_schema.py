"""StateSchema: its fields, its dict, what it refuses."""

import threading
from dataclasses import dataclass, field, fields

import pytest
from engine_doubles import as_json

from qitos_min import StateSchema, StopReason
from qitos_min.core.state import StateMigrationError, StateValidationError


@dataclass
class Pages(StateSchema):
    schema_version: int = 3
    pages: list = field(default_factory=list)
    lock: object = None


def test_fields_positions_and_defaults():
    assert [f.name for f in fields(StateSchema)] == (
        "schema_version task current_step max_steps final_result stop_reason metadata metrics"
    ).split()
    state = StateSchema()
    assert tuple(vars(state).values()) == (1, "", 0, 10, None, None, {}, {})
    assert state.metadata is not StateSchema().metadata


def test_a_state_comes_back_from_its_dict():
    state = Pages(task="t", pages=[{"n": 1}], metadata={"k": [1]}, final_result={"a": 1})
    row = as_json(state.to_dict())
    assert Pages.from_dict(row) == state


def test_the_dict_of_a_state_is_detached_strict_json_of_every_field():
    """Fault 24 (mlflow #21667): asdict deep-copied locks and died before step 0."""
    state = Pages(pages=[1], lock=threading.Lock(), metrics={"loss": float("nan")})
    row = as_json(state.to_dict())
    assert list(row) == [f.name for f in fields(Pages)]
    assert (row["pages"], row["metrics"]) == ([1], {"loss": None})
    assert list(row["lock"]) == ["$unserializable"]
    state.to_dict()["pages"].append(2)
    assert state.pages == [1]


@pytest.mark.parametrize(
    "payload, kind, message",
    [
        ({"colour": 1}, StateValidationError, "unknown state field 'colour' of Pages"),
        ([], StateValidationError, "a state must be a dict, got list"),
        ({"schema_version": 4}, StateMigrationError, "state version 4 is not known; known: up to 3"),
        (
            {"schema_version": "3"},
            StateValidationError,
            "state field 'schema_version' must be int, got str",
        ),
        ({"task": None}, StateValidationError, "state field 'task' must be str, got NoneType"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused(payload, kind, message):
    with pytest.raises(kind) as caught:
        Pages.from_dict(payload)
    assert str(caught.value) == message
    assert caught.value.category.value == "state_error"


def test_unknown_keys_are_left_out_when_not_strict():
    state = Pages.from_dict({"task": "t", "colour": 1}, strict=False)
    assert state == Pages(task="t")


def test_an_older_version_is_read():
    assert Pages.from_dict({"schema_version": 1, "task": "t"}).schema_version == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"task": 5}, "state field 'task' must be str, got int"),
        ({"current_step": True}, "state field 'current_step' must be int, got bool"),
        ({"current_step": -1}, "state field 'current_step' must be at least 0, got -1"),
        ({"max_steps": 0}, "state field 'max_steps' must be at least 1, got 0"),
        ({"max_steps": 2.0}, "state field 'max_steps' must be int, got float"),
        ({"metadata": None}, "state field 'metadata' must be dict, got NoneType"),
        ({"metrics": []}, "state field 'metrics' must be dict, got list"),
        ({"stop_reason": 5}, "state field 'stop_reason' must be str or None, got int"),
    ],
)
def test_validate_names_the_first_field_that_is_wrong(change, message):
    state = StateSchema()
    for name, value in change.items():
        setattr(state, name, value)
    with pytest.raises(StateValidationError) as caught:
        state.validate()
    assert str(caught.value) == message
    assert caught.value.field_name == next(iter(change))


def test_a_good_state_validates():
    StateSchema(task="t", current_step=12, max_steps=5, stop_reason="final").validate()


def test_set_stop_and_advance_step():
    state = StateSchema(final_result="kept")
    state.set_stop(StopReason.SUCCESS)
    assert (state.stop_reason, state.final_result) == ("success", "kept")
    state.set_stop("final", 0)
    assert (state.stop_reason, state.final_result) == ("final", 0)
    state.advance_step()
    assert state.current_step == 1
