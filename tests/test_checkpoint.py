"""Checkpoints: a run that died goes on after its last finished step."""

import json
from dataclasses import dataclass, field

import pytest

import snowl_compat
from qitos_min import (
    Action,
    AgentModule,
    AgentRegistry,
    AgentSpec,
    Decision,
    Engine,
    StateSchema,
    Task,
    ToolRegistry,
)
from qitos_min.core.state import StateMigrationError
from qitos_min.core.task import TaskBudget
from qitos_min.engine import RuntimeBudget, critic
from qitos_min.kit.checkpoint import FileCheckpointStore, MemoryCheckpointStore


@dataclass
class Counting(StateSchema):
    seen: list = field(default_factory=list)


def double(n: int) -> int:
    """Double a number."""
    return 2 * n


class Counter(AgentModule):
    def init_state(self, task, **kwargs):
        return Counting(task=task)

    def decide(self, state, observation):
        if len(state.seen) == 5:
            return Decision.handoff("closer")
        return Decision.act(Action("double", {"n": len(state.seen)}))

    def reduce(self, state, observation, decision):
        state.seen.append(observation["action_results"][0])
        return state


class Closer(Counter):
    def decide(self, state, observation):
        return Decision.final(sum(state.seen))

    def reduce(self, state, observation, decision):
        return state


@critic(name="every_third")
def every_third(state, decision, results):
    if len(state.seen) == 3 and decision.mode == "act":
        return ("retry", "again", "look again")
    return "continue"


class CutOff:
    """A store that holds what a process had saved when it was killed."""

    def __init__(self, store, entries):
        self.store = store
        self.left = entries

    def append(self, run_id, entry):
        if self.left:
            self.left -= 1
            self.store.append(run_id, entry)


def engine_with(store):
    agents = AgentRegistry()
    agents.register(AgentSpec("closer", "closes", Closer(name="closer")))
    counter = Counter(tool_registry=ToolRegistry().register(double))
    return Engine(
        counter,
        budget=RuntimeBudget(max_steps=20),
        critics=[every_third],
        agent_registry=agents,
        checkpoint_store=store,
    )


def outline(result):
    """What must be the same whether or not the run was interrupted."""
    return (
        [(e.phase, e.payload.get("stage"), e.step_id) for e in result.events],
        [(r.step_id, r.agent_id, r.decision.mode, r.action_results) for r in result.records],
        result.state.to_dict(),
        result.task_result.final_result,
    )


@pytest.fixture(params=["memory", "files"])
def store(request, tmp_path):
    return MemoryCheckpointStore() if request.param == "memory" else FileCheckpointStore(tmp_path)


@pytest.mark.parametrize("entries", range(1, 9))
def test_a_resumed_run_gives_what_an_uninterrupted_one_gives(store, entries):
    whole = engine_with(MemoryCheckpointStore())
    expected = whole.run("count")
    engine_with(CutOff(store, entries)).run("count")
    [run_id] = store.list_runs()
    engine = engine_with(store)
    result = engine.resume(run_id)
    assert result.run_id == run_id
    assert outline(result) == outline(expected)
    assert snowl_compat.build_payload(result, engine=engine) == snowl_compat.build_payload(
        expected, engine=whole
    )


def test_a_finished_run_can_be_resumed_and_only_ends_again(store):
    engine = engine_with(store)
    first = engine.run("count")
    again = engine_with(store).resume(first.run_id)
    assert outline(again) == outline(first)


def test_the_task_and_its_budget_come_back(store):
    task = Task("t1", "count", budget=TaskBudget(max_steps=3))
    engine_with(CutOff(store, 2)).run(task)
    result = engine_with(store).resume(store.list_runs()[0])
    assert (result.step_count, result.task_result.stop_reason) == (3, "budget_steps")
    assert result.task_result.task_id == "t1"


def test_a_cut_line_is_passed_over_and_cut_off(tmp_path):
    store = FileCheckpointStore(tmp_path)
    engine_with(CutOff(store, 4)).run("count")
    [path] = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"record": {"step_id": 3, "obs')
    result = engine_with(store).resume(path.stem)
    assert result.final_result == sum(2 * n for n in range(5))
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_what_cannot_be_resumed_says_so(tmp_path):
    store = FileCheckpointStore(tmp_path)
    with pytest.raises(KeyError, match="run_x"):
        engine_with(store).resume("run_x")
    store.append("run_y", {"format": "other/9", "task": "t", "state": {}})
    with pytest.raises(StateMigrationError) as caught:
        engine_with(store).resume("run_y")
    assert str(caught.value) == (
        "unknown checkpoint format 'other/9'; known: qitos_min.checkpoint/1"
    )
    with pytest.raises(ValueError) as refused:
        store.load("../secrets")
    assert str(refused.value) == "expected a run id of letters, digits, - and _, got '../secrets'"
    with pytest.raises(ValueError) as lacking:
        Engine(Counter()).resume("run_y")
    assert str(lacking.value) == "resume needs an engine with a checkpoint_store"


def test_a_store_that_fails_does_not_cost_the_run():
    class Full:
        def append(self, run_id, entry):
            raise OSError(28, "No space left on device")

    result = engine_with(Full()).run("count")
    assert result.failure is None
    told = [event.error for event in result.events if not event.ok]
    assert told == ["checkpoints stopped: [Errno 28] No space left on device"]
