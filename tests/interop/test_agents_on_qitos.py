"""The agents of ``tests/published`` end on the real QitOS 0.3.0 as they do here."""

import importlib
import importlib.metadata
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from published_agents import ENDS, FILES, end_of  # noqa: E402

LATER = {
    "handoff": "qitos.core.agent_spec",
    "fan_out": "qitos.core.agent_spec",
    "debate": "qitos.core.shared_memory",
}
"""Agents whose parts came after 0.3.0, with the module that it does not have."""

NEEDS = {"model_server": "openai", "web_reader": "requests"}
"""Agents for which the real one needs another package."""


@pytest.fixture(scope="module")
def real(need):
    need("qitos")
    if importlib.metadata.version("qitos") != "0.3.0":
        pytest.skip("the ends are those on QitOS 0.3.0")


@pytest.mark.parametrize("name", sorted(set(FILES) - set(LATER)))
def test_a_published_agent_ends_alike_on_qitos(real, need, name, tmp_path, capsys):
    if name in NEEDS:
        need(NEEDS[name])
    assert end_of(name, "qitos", tmp_path) == ENDS[name]


@pytest.mark.parametrize("name", LATER)
def test_parts_that_came_later_are_not_there(real, name):
    with pytest.raises(ModuleNotFoundError, match=LATER[name]):
        importlib.import_module(LATER[name])
