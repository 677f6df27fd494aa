"""A JSON reader as strict as other languages have it, and builders of runs."""

import json
from types import SimpleNamespace


def strict(text):
    """Parse JSON text; NaN, Infinity and a key given twice are errors."""

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    def unique(pairs):
        found = dict(pairs)
        assert len(found) == len(pairs), f"a key twice: {[key for key, _ in pairs]}"
        return found

    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


def round_trip(value):
    """What another program reads of a value that is written as the guide does."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return strict(text.encode("utf-8").decode("utf-8"))


def identical(left, right):
    """Whether two JSON values have the same text: types, order of keys, -0.0."""
    return json.dumps(left, ensure_ascii=False) == json.dumps(right, ensure_ascii=False)


def as_dict(**fields):
    return fields


FORMS = {"object": SimpleNamespace, "mapping": as_dict}
"""The two forms in which records, events and results come."""


def record(step_id=0, *outputs, form=SimpleNamespace, **more):
    """A step record with these critic outputs."""
    fields = {"step_id": step_id, "critic_outputs": list(outputs), "phase_events": []}
    return form(**{**fields, **more})


def event(step_id, phase, payload=None, *, form=SimpleNamespace):
    """A runtime event."""
    return form(step_id=step_id, phase=phase, payload=payload, ok=True, error=None)


def result(*records, form=SimpleNamespace, **more):
    """An engine result of these records."""
    fields = {"records": list(records), "events": [], "step_count": len(records)}
    return form(**{**fields, **more})
