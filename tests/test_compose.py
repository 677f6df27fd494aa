"""The composition of a run on a private copy of a folder."""

from __future__ import annotations

import os
import tempfile

import pytest

from tool_results import result_of

from qitos_min.core.action import Action, ActionExecutionPolicy
from qitos_min.core.agent_module import AgentModule
from qitos_min.core.decision import Decision
from qitos_min.core.state import StateSchema
from qitos_min.engine import Engine
from qitos_min.engine.runtime import RuntimeComposition
from qitos_min.kit import compose
from qitos_min.kit.artifact import FileArtifactStore
from workspaces import make_source


@pytest.fixture
def source(tmp_path):
    return make_source(tmp_path)


ENV_TOOLS = ["edit_file", "list_files", "read_file", "run_command", "write_file"]


class NotesAgent(AgentModule):
    """Carries out a list of decisions."""

    def __init__(self, *decisions, **config):
        super().__init__(**config)
        self.left = list(decisions)

    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def decide(self, state, observation):
        return self.left.pop(0)

    def reduce(self, state, observation, decision):
        return state


def act(name, **args) -> Decision:
    return Decision.act(actions=[Action(name, args)])


def test_a_composition_runs_an_agent_on_a_copy(source):
    agent = NotesAgent(
        act("edit_file", path="a.txt", old_text="one", replacement="1"),
        Decision.final("done"),
    )
    with compose(agent, workspace=source) as composition:
        result = composition.engine.run("t")
        assert (result.final_result, result.success_rate) == ("done", 1.0)
        root = composition.env.files.root
        assert (root / "a.txt").read_bytes() == b"1\r\ntwo\r\n"
        assert composition.agent is agent
        assert composition.engine.env is composition.env
        assert composition.engine.runtime is composition.runtime
        assert composition.tool_registry.list_tools() == ENV_TOOLS
    assert not root.exists()
    assert (source / "a.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_a_composition_leaves_the_agent_as_it_was(source):
    agent = NotesAgent(artifact_resolver="mine")
    agent.tool_registry.register(lambda: "own", name="read_file")
    with compose(agent, workspace=source) as composition:
        store = agent.config["artifact_resolver"]
        assert store is composition.runtime.artifact_resolver
        assert store is composition.env.artifact_store
        assert composition.tool_registry.list_tools() == ENV_TOOLS
        assert result_of(composition.tool_registry, "read_file").output == "own"
        assert agent.tool_registry.list_tools() == ["read_file"]
        held = store.root
        assert held.is_dir()
    assert agent.config == {"artifact_resolver": "mine"}
    assert not held.exists()
    composition.close()
    plain = NotesAgent()
    compose(plain, workspace=source).close()
    assert plain.config == {}


def test_a_composition_takes_the_parts_it_is_given(source, tmp_path):
    store = FileArtifactStore(tmp_path / "store")
    policy = ActionExecutionPolicy(mode="parallel")
    runtime = RuntimeComposition(
        artifact_resolver=store, action_execution_policy=policy
    )
    with compose(NotesAgent(), workspace=source, runtime=runtime) as composition:
        assert composition.runtime is runtime
        assert composition.agent.config["artifact_resolver"] is store
    assert RuntimeComposition() == RuntimeComposition(
        checkpoint_store=None,
        action_execution_policy=None,
        event_sink=None,
        artifact_resolver=None,
    )
    with pytest.raises(AttributeError):
        runtime.event_sink = print


@pytest.mark.parametrize(
    "workspace, options, kind",
    [("none", {}, NotADirectoryError), (".", {"no_such_option": 1}, TypeError)],
)
def test_a_composition_that_fails_leaves_nothing(
    monkeypatch, source, tmp_path, workspace, options, kind
):
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    agent = NotesAgent()
    with pytest.raises(kind):
        compose(agent, workspace=source / workspace, **options)
    assert os.listdir(place) == []
    assert agent.config == {}


def test_an_engine_takes_a_runtime_composition():
    result = Engine(NotesAgent(Decision.final("x")), runtime=RuntimeComposition()).run(
        "t"
    )
    assert result.final_result == "x"
