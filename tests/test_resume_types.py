"""Resume brings back what was there: typed states, and the trace of the whole run."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import json
import threading
import typing
from decimal import Decimal
from pathlib import Path
from typing import Any, Optional

import pytest

import snowl_compat
from qitos_min import Action, AgentModule, Decision, Engine, StateSchema, ToolRegistry
from qitos_min.core.state import StateMigrationError
from qitos_min.engine import critic
from qitos_min.kit.checkpoint import FileCheckpointStore, MemoryCheckpointStore
from qitos_min.trace import TraceWriter


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"


class Point(typing.NamedTuple):
    x: int
    y: float


class Trip(typing.TypedDict):
    start: dt.date


@dataclasses.dataclass
class Note:
    text: str
    length: int = dataclasses.field(init=False, default=0)
    groups: dict[str, set[int]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.text = self.text.strip()
        self.length = len(self.text)
        self._seen_by = []


@dataclasses.dataclass(frozen=True)
class Scaled:
    value: Decimal
    factor: dataclasses.InitVar[int]

    def __post_init__(self, factor):
        object.__setattr__(self, "value", self.value * factor)


@dataclasses.dataclass
class Inner(StateSchema):
    places: set[Point] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Memory(StateSchema):
    goal: Optional[Point] = None
    seen: set[str] = dataclasses.field(default_factory=set)
    mode: Mode = Mode.FAST
    when: Optional[dt.datetime] = None
    due: dt.date = None
    wait: dt.timedelta = dt.timedelta(0)
    note: Optional[Note] = None
    notes: list[Note] = dataclasses.field(default_factory=list)
    by_id: dict[int, Note] = dataclasses.field(default_factory=dict)
    by_pair: dict[tuple[int, int], Mode] = dataclasses.field(default_factory=dict)
    pair: tuple[int, int] = (0, 0)
    many: tuple[Decimal, ...] = ()
    path: Path = Path(".")
    body: bytes = b""
    counts: typing.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    nested: typing.DefaultDict[str, typing.DefaultDict[str, int]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(lambda: collections.defaultdict(int))
    )
    recent: typing.Deque[Path] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=2)
    )
    loose: dict[str, list[int]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )
    trip: Optional[Trip] = None
    inner: Inner = dataclasses.field(default_factory=Inner)
    best: float = float("inf")
    anything: Any = None
    scaled: Optional[Scaled] = None
    steps: int = dataclasses.field(init=False, default=0)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, compare=False)


def scaled():
    made = object.__new__(Scaled)
    object.__setattr__(made, "value", Decimal("1.5"))
    return made


def note(text, **groups):
    made = Note(text)
    made.groups.update(groups)
    return made


def wanted():
    return {
        "goal": Point(1, 2.0),
        "seen": {"a", "b"},
        "mode": Mode.SLOW,
        "when": dt.datetime(2026, 3, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        "due": dt.date(2026, 3, 1),
        "wait": dt.timedelta(days=1, milliseconds=5),
        "note": note(" one ", a={1}),
        "notes": [note("two")],
        "by_id": {7: note("seven"), -1: note("")},
        "by_pair": {(1, 2): Mode.SLOW},
        "pair": (1, 2),
        "many": (Decimal("1.10"), Decimal("-0.0")),
        "path": Path("out/寒.txt"),
        "body": bytes([0, 255]),
        "counts": collections.Counter({"x": 2}),
        "nested": collections.defaultdict(None, a=collections.defaultdict(None, b=1)),
        "recent": collections.deque([Path("a"), Path("b")]),
        "loose": collections.defaultdict(list, a=[1]),
        "trip": {"start": dt.date(2026, 3, 1)},
        "inner": Inner(task="t", places={Point(1, 0.5)}),
        "best": float("-inf"),
        "anything": {"deep": [1, {"loss": float("inf")}, b"x"]},
        "scaled": scaled(),
        "steps": 4,
    }


class Keeper(AgentModule):
    def __init__(self, stop_before=None, leave=wanted):
        super().__init__()
        self.stop_before, self.leave, self.found = stop_before, leave, None

    def init_state(self, task, **kwargs):
        state = Memory(task=task)
        state._cache = {"client": "fresh"}
        return state

    def decide(self, state, observation):
        if state.current_step == self.stop_before:
            raise KeyboardInterrupt
        if state.current_step == 0:
            return Decision.act([Action("nothing")])
        self.found = state
        return Decision.final("done")

    def reduce(self, state, observation, decision):
        if state.current_step == 0:
            for name, value in self.leave().items():
                setattr(state, name, value)
        return state


def nothing() -> str:
    return ""


def engine_of(agent, **parts):
    return Engine(agent, tool_registry=ToolRegistry().register(nothing), **parts)


def interrupted(store, **parts):
    with pytest.raises(KeyboardInterrupt):
        engine_of(Keeper(1, **parts), checkpoint_store=store).run("t")
    return store.list_runs()[0]


@pytest.fixture(params=["memory", "files"])
def store(request, tmp_path):
    return MemoryCheckpointStore() if request.param == "memory" else FileCheckpointStore(tmp_path)


def test_a_resumed_agent_finds_its_state_as_it_left_it(store):
    # public report "resume_keeps_types": sets, dates and dataclasses came back as JSON
    agent = Keeper()
    result = engine_of(agent, checkpoint_store=store).resume(interrupted(store))
    assert result.failure is None
    for name, value in wanted().items():
        found = getattr(agent.found, name)
        assert (name, type(found), found) == (name, type(value), value)
    state = agent.found
    assert state.note.length == 3 and state.note._seen_by == []
    assert type(state.by_id[7]) is Note
    assert {type(place) for place in state.inner.places} == {Point}
    state.nested["new"]["deep"] += 1
    state.loose["new"].append(1)
    state.recent.append(Path("c"))
    assert list(state.recent) == [Path("b"), Path("c")]
    assert state.lock.acquire(blocking=False)
    assert state._cache == {"client": "fresh"}


def test_a_state_comes_back_from_its_own_dict():
    state = Memory(task="t")
    for name, value in wanted().items():
        if name not in ("best", "anything"):  # JSON has no words for these.
            setattr(state, name, value)
    row = {k: v for k, v in state.to_dict().items() if k not in ("best", "lock")}
    back = Memory.from_dict(json.loads(json.dumps(row)))
    assert back == state
    # What is typed already stays as it is.
    assert Memory.from_dict({"pair": (1, 2), "seen": {"a"}, "mode": Mode.SLOW}).seen == {"a"}


def test_a_plain_dataclass_is_a_state_too():
    @dataclasses.dataclass
    class Plain:
        days: set[dt.date] = dataclasses.field(default_factory=set)
        current_step: int = 0

    class Agent(Keeper):
        def init_state(self, task, **kwargs):
            return Plain()

        def decide(self, state, observation):
            self.found = state
            if self.stop_before == len(state.days):
                raise KeyboardInterrupt
            return Decision.final("x") if state.days else Decision.act([Action("nothing")])

        def reduce(self, state, observation, decision):
            state.days.add(dt.date(2026, 3, 1))
            return state

    store = MemoryCheckpointStore()
    with pytest.raises(KeyboardInterrupt):
        engine_of(Agent(1), checkpoint_store=store).run("t")
    agent = Agent()
    engine_of(agent, checkpoint_store=store).resume(store.list_runs()[0])
    assert agent.found.days == {dt.date(2026, 3, 1)}


WRONG = [
    ({"when": "soon"}, "when", "it must be an ISO 8601 date and time, got 'soon'"),
    ({"mode": "odd"}, "mode", "it must be one of 'fast', 'slow', got 'odd'"),
    ({"seen": {"a": 1}}, "seen", "it must be an array, got dict"),
    ({"notes": [{"text": "a"}, 5]}, "notes[1]", "it must be an object of the fields of Note, got 5"),
    ({"by_id": {"1": {"text": []}}}, "by_id['1'].text", "it must be a text, got list"),
    ({"by_id": {"one": {"text": ""}}}, "by_id", "it has the key 'one', which must be a number, got 'one'"),
    ({"note": {}}, "note", "it lacks the field 'text'"),
    ({"pair": [1]}, "pair", "it must be an array of 2 items, got list"),
]


@pytest.mark.parametrize("change, field, message", WRONG, ids=str)
def test_what_cannot_be_restored_names_the_field(change, field, message):
    store = MemoryCheckpointStore()
    run_id = interrupted(store)
    entries = store.load(run_id)
    entries[-1]["state"].update(change)
    changed = MemoryCheckpointStore()
    for entry in entries:
        changed.append(run_id, entry)
    with pytest.raises(StateMigrationError) as caught:
        engine_of(Keeper(), checkpoint_store=changed).resume(run_id)
    assert caught.value.field_name == field
    start = f"state field {field!r} of Memory cannot be restored: "
    assert str(caught.value) == start + message


def test_a_run_that_was_killed_before_its_first_line_says_so(tmp_path):
    (tmp_path / "run_1.jsonl").write_bytes(b'{"format": "qit')
    with pytest.raises(StateMigrationError) as caught:
        engine_of(Keeper(), checkpoint_store=FileCheckpointStore(tmp_path)).resume("run_1")
    assert str(caught.value) == "run 'run_1' ended before its beginning was saved"


# The trace


@critic
def judge(state, decision, results):
    return {"score": 0.5}


class Worker(AgentModule):
    def __init__(self, interrupt_at=None):
        super().__init__()
        self.interrupt_at = interrupt_at

    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def decide(self, state, observation):
        if state.current_step == self.interrupt_at:
            raise KeyboardInterrupt
        return Decision.act([Action("nothing")]) if state.current_step < 6 else Decision.final("x")

    def reduce(self, state, observation, decision):
        return state


def worker(store, folder, interrupt_at=None, **how):
    return engine_of(
        Worker(interrupt_at), critics=[judge], checkpoint_store=store,
        trace_writer=TraceWriter(folder, **how),
    )


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def cut_off(folder, store):
    """An interrupted run in a folder; its id."""
    with pytest.raises(KeyboardInterrupt):
        worker(store, folder, 2).run("x")
    return store.list_runs()[0]


def is_whole(folder, result, engine):
    issues: list[Any] = []
    found = snowl_compat.build_payload(folder, extended=True, issues=issues)
    assert issues == []
    whole = snowl_compat.build_payload(result, engine=engine, extended=True)
    whole["run"]["source"] = str(folder)
    assert found == whole
    events = lines(folder / "events.jsonl")
    assert [e["phase"] for e in events] == [e.phase.value for e in result.events]
    assert [s["step_id"] for s in lines(folder / "steps.jsonl")] == list(range(result.step_count))
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["step_count"] == result.step_count
    assert manifest["event_count"] == len(events)


@pytest.mark.parametrize("same", [True, False])
def test_the_trace_of_a_resumed_run_is_whole(same, store, tmp_path):
    # public report "trace_of_a_resumed_run": a resumed run's trace held its second half only
    first = tmp_path / "a"
    run_id = cut_off(first, store)
    before = (first / "steps.jsonl").read_bytes()
    engine = worker(store, first if same else tmp_path / "b", resume=same)
    result = engine.resume(run_id)
    is_whole(engine.trace_writer.run_dir, result, engine)
    assert (engine.trace_writer.run_dir / "steps.jsonl").read_bytes().startswith(before)


def drop_half_of_the_last_line(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 20])


def add_half_a_line(path):
    path.write_bytes(path.read_bytes() + b'{"step_id": 9, "pha')


def add_a_step_of_no_checkpoint(path):
    path.write_bytes(path.read_bytes() + b'{"step_id": 2, "run_id": "x"}\n')


@pytest.mark.parametrize("file", ["steps.jsonl", "events.jsonl"])
@pytest.mark.parametrize(
    "damage", [drop_half_of_the_last_line, add_half_a_line, add_a_step_of_no_checkpoint, Path.unlink]
)
def test_a_trace_that_a_kill_left_torn_is_mended(damage, file, tmp_path):
    store = MemoryCheckpointStore()
    run_id = cut_off(tmp_path, store)
    damage(tmp_path / file)
    engine = worker(store, tmp_path, resume=True)
    is_whole(tmp_path, engine.resume(run_id), engine)


def test_a_run_may_be_resumed_twice_in_one_folder(tmp_path):
    store = MemoryCheckpointStore()
    run_id = cut_off(tmp_path, store)
    with pytest.raises(KeyboardInterrupt):
        worker(store, tmp_path, 4, resume=True).resume(run_id)
    engine = worker(store, tmp_path, resume=True)
    is_whole(tmp_path, engine.resume(run_id), engine)
    engine = worker(store, tmp_path, resume=True)
    is_whole(tmp_path, engine.resume(run_id), engine)


def test_another_run_does_not_go_on_in_a_folder(tmp_path):
    store = MemoryCheckpointStore()
    run_id = cut_off(tmp_path, store)
    held = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = worker(store, tmp_path, resume=True).run("y")
    told = [e.error for e in result.events if e.payload.get("stage") == "trace_error"]
    assert told == [
        f"trace stopped: {str(tmp_path)!r} holds run {run_id!r}, not {result.run_id!r}"
    ]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == held


def test_resume_on_an_empty_folder_is_a_new_trace(tmp_path):
    store = MemoryCheckpointStore()
    engine = worker(store, tmp_path / "new", resume=True)
    is_whole(tmp_path / "new", engine.run("x"), engine)
