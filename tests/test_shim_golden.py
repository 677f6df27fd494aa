"""Golden pairs: a run as a JSON file beside the payload, or the error, it gives.

``data/valid/CASE.json`` gives ``CASE.payload.json`` (extended, so that the issues are
in it); ``data/invalid/CASE.json`` with ``strict=True`` raises ``CASE.error.txt``. A
change of them is meant, or it is a fault: read the difference.
"""

from pathlib import Path

import pytest
from strictly import identical, strict

import snowl_compat

DATA = Path(__file__).parent / "data"
VALID = sorted(p for p in DATA.glob("valid/*.json") if not p.name.endswith(".payload.json"))
INVALID = sorted(DATA.glob("invalid/*.json"))
assert VALID and INVALID, f"no cases in {DATA}"


def stem(path):
    return path.stem


def text(path, ending):
    return path.with_suffix(ending).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", VALID, ids=stem)
def test_a_run_gives_its_payload(path):
    right = strict(text(path, ".payload.json"))
    made = snowl_compat.build_payload(path, extended=True)
    assert strict(snowl_compat.export_json(str(path), extended=True)) == made
    assert made["run"]["source"] in (str(path), None)
    made["run"]["source"] = None
    assert made == right and identical(made, right)
    assert snowl_compat.validate_payload(right) == []
    assert snowl_compat.load_payload(text(path, ".payload.json")) == right


@pytest.mark.parametrize("path", VALID, ids=stem)
def test_without_extension_it_has_the_five_keys(path):
    right = strict(text(path, ".payload.json"))
    five = ["engine_config", "tool_permissions", "critic_traces", "handoff_traces", "step_count"]
    made = snowl_compat.build_payload(path)
    assert list(made) == five
    assert made == {key: right[key] for key in five}


@pytest.mark.parametrize("path", INVALID, ids=stem)
def test_a_run_raises_its_error(path):
    with pytest.raises(snowl_compat.SnowlCompatError) as caught:
        snowl_compat.build_payload(path, strict=True)
    said = str(caught.value).removeprefix(f"{path}: ")
    assert f"{said}\n" == text(path, ".error.txt")


def test_no_file_is_left_over():
    wanted = {path.with_suffix(".payload.json") for path in VALID}
    wanted |= {path.with_suffix(".error.txt") for path in INVALID}
    assert {*DATA.glob("*valid/*")} == {*VALID, *INVALID, *wanted}
