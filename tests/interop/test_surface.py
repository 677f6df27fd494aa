"""Every public name of QitOS 0.3.0 is here and takes the calls that the real one takes.

``tests/data/surface.json`` holds what is not so: ``out_of_scope`` names whole parts
(the reason for each), ``exceptions`` single differences (the reason for each). A row
that no longer is a difference fails too, so that the rows can only become fewer.
"""

import dataclasses
import importlib
import importlib.metadata
import inspect
import json
from enum import Enum
from pathlib import Path

import pytest

PACKAGES = ("qitos", "qitos.core", "qitos.engine", "qitos.kit")
LISTED = json.loads(
    (Path(__file__).parents[1] / "data" / "surface.json").read_text(encoding="utf-8")
)
OUT, EXCEPTIONS = (
    {key: row["why"] for row in LISTED[part] for key in row["what"]}
    for part in ("out_of_scope", "exceptions")
)
KINDS = inspect.Parameter
NAMED = (KINDS.POSITIONAL_OR_KEYWORD, KINDS.KEYWORD_ONLY)


def mirrored(module):
    return importlib.import_module(module.replace("qitos", "qitos_min", 1))


def same_default(real, ours):
    if real is ours or (type(real).__name__ == type(ours).__name__ == "_HAS_DEFAULT_FACTORY_CLASS"):
        return True
    if isinstance(real, Enum) and isinstance(ours, Enum):
        return real.value == ours.value
    return type(real) is type(ours) and real == ours


def signature_gaps(place, real, ours):
    """Yield (key, what) for each way to call ``real`` that ``ours`` does not take."""
    try:
        wanted = inspect.signature(real).parameters
    except (TypeError, ValueError):
        return
    # A tool made of a method is described by the method.
    given = inspect.signature(getattr(ours, "func", ours)).parameters
    kinds = {parameter.kind for parameter in given.values()}
    takes_any = KINDS.VAR_KEYWORD in kinds
    order = [p.name for p in given.values() if p.kind is not KINDS.KEYWORD_ONLY]
    for index, parameter in enumerate(wanted.values()):
        name, kind = parameter.name, parameter.kind
        key = f"{place}({name})"
        if kind not in NAMED:
            if kind not in kinds:
                yield key, f"no {kind.description} *{name}"
            continue
        found = given.get(name)
        if found is None or found.kind not in NAMED:
            positional = kind is KINDS.POSITIONAL_OR_KEYWORD
            if not takes_any or (positional and KINDS.VAR_POSITIONAL not in kinds):
                yield key, f"not taken: {parameter}"
        elif kind is KINDS.POSITIONAL_OR_KEYWORD and order[index : index + 1] != [name]:
            yield key, f"not the positional argument {index}"
        elif parameter.default is not KINDS.empty and found.default is KINDS.empty:
            yield key, f"not optional: {parameter}"
        elif parameter.default is not KINDS.empty:
            if not same_default(parameter.default, found.default):
                yield key, f"default {found.default!r}, there {parameter.default!r}"
    for parameter in given.values():
        needed = parameter.kind in NAMED and parameter.default is KINDS.empty
        if needed and parameter.name not in wanted:
            yield f"{place}({parameter.name})", "wanted here only"


def methods_of(cls):
    """The public methods of a class and of its bases in QitOS, as found on it."""
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        if name.startswith("_") or isinstance(value, type):
            continue
        owners = [base for base in cls.__mro__ if name in vars(base)]
        ours = owners and owners[0].__module__.split(".")[0] == "qitos"
        if ours and (callable(value) or isinstance(value, (staticmethod, classmethod))):
            yield name, getattr(cls, name)


def has_field(cls, name):
    annotated = any(name in vars(base).get("__annotations__", ()) for base in cls.__mro__)
    return annotated or hasattr(cls, name)


def class_gaps(place, real, ours):
    if issubclass(real, Enum):
        for member in real:
            if member.name not in ours.__members__:
                yield f"{place}.{member.name}", f"no member {member!r}"
            elif ours[member.name].value != member.value:
                yield f"{place}.{member.name}", f"value {ours[member.name].value!r}"
        return
    if not issubclass(real, Exception) or "__init__" in vars(real):
        yield from signature_gaps(place, real, ours)
    if dataclasses.is_dataclass(real):
        for field in dataclasses.fields(real):
            if not has_field(ours, field.name):
                yield f"{place}.{field.name}", "no such field"
    for name, method in methods_of(real):
        found = getattr(ours, name, None)
        if not callable(found):
            yield f"{place}.{name}", f"no method {name}{inspect.signature(method)}"
        else:
            yield from signature_gaps(f"{place}.{name}", method, found)


def places():
    """(package, name) of each public name, once per package."""
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            yield package, name


def gaps_of(package, name):
    place = f"{package}.{name}"
    real = getattr(importlib.import_module(package), name)
    try:
        ours = getattr(mirrored(package), name)
    except AttributeError:
        if not inspect.ismodule(real):
            return {place: "missing"}
        try:
            ours = mirrored(place)
        except ImportError:
            return {place: "missing"}
    if inspect.ismodule(real):
        return {}
    # What two packages export is described where it is defined.
    home = f"{real.__module__}.{name}" if hasattr(real, "__module__") else place
    if inspect.isclass(real):
        return dict(class_gaps(home, real, ours))
    if callable(real):
        return dict(signature_gaps(home, real, ours))
    return {} if isinstance(ours, type(real)) else {place: f"a {type(ours).__name__}"}


@pytest.fixture(scope="module")
def surface(need):
    need("qitos")
    if importlib.metadata.version("qitos") != "0.3.0":
        pytest.skip("the rows are those of QitOS 0.3.0")
    return {
        (package, name): gaps_of(package, name)
        for package, name in places()
        if f"{package}.{name}" not in OUT
    }


def test_each_name_takes_the_calls_of_the_real_one(surface):
    gaps = {key: what for found in surface.values() for key, what in found.items()}
    assert {key: what for key, what in gaps.items() if key not in EXCEPTIONS} == {}


def test_each_exception_still_is_one(surface):
    gaps = {key for found in surface.values() for key in found}
    assert sorted(set(EXCEPTIONS) - gaps) == []


def test_what_is_out_of_scope_is_not_here(surface):
    known = {f"{package}.{name}" for package, name in places()}
    assert sorted(set(OUT) - known) == []
    there = [key for key in OUT if gaps_of(*key.rsplit(".", 1)) != {key: "missing"}]
    assert there == []


@pytest.mark.parametrize("key", [*OUT, *EXCEPTIONS])
def test_each_row_has_a_reason(key):
    assert len({**OUT, **EXCEPTIONS}[key].split()) >= 3


def test_the_surface_is_compared(surface, record_property):
    record_property("names", len(surface))
    record_property("out_of_scope", len(OUT))
    record_property("exceptions", len(EXCEPTIONS))
    assert len(surface) > 80
