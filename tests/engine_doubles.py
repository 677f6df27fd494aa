"""Scripted parts for real engines, and what must be true of every run.

A script says what its part does, call by call: an exception is raised, a
function is called, anything else is returned. ``play`` fails when a script was
asked for more than it holds or was not used up.
"""

import json
from dataclasses import dataclass, field

from chat_rules import assert_accepted

import snowl_compat
from qitos_min import AgentModule, AgentRegistry, AgentSpec, Engine, StateSchema, ToolRegistry
from qitos_min.core import Env, EnvObservation, EnvStepResult
from qitos_min.engine import Critic, RuntimePhase


class Script:
    """Calls to come, in order."""

    def __init__(self, name, entries):
        self.name = name
        self.entries = list(entries)
        self.overrun = False

    def take(self, *args):
        """Do what the next entry says."""
        if not self.entries:
            self.overrun = True
            raise AssertionError(f"the script of {self.name} is over")
        entry = self.entries.pop(0)
        if isinstance(entry, BaseException):
            raise entry
        return entry(*args) if callable(entry) else entry

    def check(self):
        """Fail unless every entry was used, and no more."""
        assert not self.overrun, f"the script of {self.name} was asked for more"
        assert self.entries == [], f"the script of {self.name} was not used up"


@dataclass
class Notes(StateSchema):
    """A state with a list, which a reducer may fill."""

    notes: list = field(default_factory=list)


class ScriptedAgent(AgentModule):
    """Decides what its script says; ``observations`` holds what it was shown."""

    def __init__(self, *decisions, name="agent", reduce=None, state=Notes, **kwargs):
        self.name = name
        super().__init__(**kwargs)
        self.script = Script(f"agent {name!r}", decisions)
        self.observations = []
        self.reduced = []
        self._reduce = reduce
        self._state = state

    def init_state(self, task, **kwargs):
        return self._state(task=task, **kwargs)

    def decide(self, state, observation):
        self.observations.append(observation)
        return self.script.take(state, observation)

    def reduce(self, state, observation, decision):
        self.reduced.append(observation)
        return state if self._reduce is None else self._reduce(state, observation, decision)


class ScriptedCritic(Critic):
    """Returns what its script says; ``seen`` holds what it was asked about."""

    def __init__(self, *results):
        self.script = Script("a critic", results)
        self.seen = []

    def evaluate(self, state, decision, results):
        self.seen.append((state, decision, results))
        return self.script.take(state, decision, results)


class World(Env):
    """Notes what the engine asks; over when ``done``."""

    name = "world"

    def __init__(self, done=False):
        self.calls = []
        self.done = done

    def setup(self, task=None, workspace=None, **kwargs):
        self.calls.append(f"setup {task}")

    def reset(self, task=None, workspace=None, **kwargs):
        self.calls.append(f"reset {task}")
        return EnvObservation()

    def observe(self, state=None):
        self.calls.append("observe")
        return EnvObservation({"seen": len(self.calls)})

    def step(self, action, state=None):
        self.calls.append(f"step {action['decision_mode']} {action['action_results']}")
        return EnvStepResult(EnvObservation(), done=self.done, reward=0.5)

    def teardown(self):
        self.calls.append("teardown")


class ScriptedModel:
    """A model that replies what its script says; ``asked`` holds the messages."""

    model_id = "scripted-1"

    def __init__(self, *replies):
        self.script = Script("a model", replies)
        self.asked = []

    def __call__(self, messages, tools=None):
        assert_accepted(messages, tools)
        self.asked.append(messages)
        return self.script.take(messages, tools)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def boom() -> str:
    """Fail."""
    raise ValueError("no luck")


def tools(*functions):
    """A registry of functions."""
    registry = ToolRegistry()
    for function in functions or (add, boom):
        registry.register(function)
    return registry


def agents(*members, **options):
    """A registry of agents under their own names, all with the same options."""
    registry = AgentRegistry()
    for agent in members:
        registry.register(AgentSpec(agent.name, f"is {agent.name}", agent, **options))
    return registry


def strict(text):
    """Read JSON as other languages do."""

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def as_json(value):
    """A value as JSON carries it, encoded to bytes on the way."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return strict(text.encode("utf-8").decode("utf-8"))


def check_run(result, engine):
    """What is true of every run that has started, however it went."""
    phases = [event.phase for event in result.events]
    assert phases[0] is RuntimePhase.INIT
    assert phases.index(RuntimePhase.END) == len(phases) - 1
    assert [record.step_id for record in result.records] == list(range(result.step_count))
    for event in result.events:
        told = {name: event.payload[name] for name in ("run_id", "step_id", "phase", "ts")}
        assert told == {
            "run_id": result.run_id,
            "step_id": event.step_id,
            "phase": event.phase.value,
            "ts": event.ts,
        }
        assert event.ok is (event.error is None)
        assert as_json(event.to_dict())["payload"] == event.payload
    reason = result.events[-1].payload["stop_reason"]
    assert result.task_result.stop_reason == reason
    assert engine.last_result is result
    if result.failure is not None:
        assert " ".join(result.failure) == "category phase step_id type message traceback"
        assert result.error_code == result.failure["category"]
    for record in result.records:
        inside = [e for e in result.events if e in record.phase_events]
        assert inside == record.phase_events
        as_json(record.to_dict())
    as_json(result.to_dict())
    payload = strict(snowl_compat.export_json(result, engine=engine, extended=True))
    assert payload["step_count"] == result.step_count
    assert payload["critic_traces"] == [
        {"details": {}, "instruction_patch": None, "state_patch": None, **trace.to_dict()}
        for trace in result.critic_traces
    ]
    assert payload["handoff_traces"] == [trace.to_dict() for trace in result.handoff_traces]


def untraced(failure):
    """A failure without its traceback, which holds paths and lines."""
    return {name: value for name, value in failure.items() if name != "traceback"}


def scripts_of(engine):
    """The scripts of all parts of an engine."""
    members = [engine.agent, *(spec.agent for spec in engine.agent_registry or ())]
    parts = [*members, *(getattr(agent, "llm", None) for agent in members), *engine.critics]
    found = {id(part): part.script for part in parts if hasattr(part, "script")}
    return list(found.values())


def play(engine, task="the task", **state_kwargs):
    """Run an engine to its end; check the run and that all scripts are used up."""
    result = engine.run(task, **state_kwargs)
    for script in scripts_of(engine):
        script.check()
    check_run(result, engine)
    return result


def play_agent(*decisions, **options):
    """Play an agent with ``add`` and ``boom``; options go to the engine."""
    agent = ScriptedAgent(*decisions, tool_registry=tools())
    return play(Engine(agent, **options))


def stages(events, *, keys=False):
    """The events as ``PHASE stage`` texts, with the keys of their own if asked."""
    common = {"run_id", "step_id", "phase", "ts", "stage"}
    rows = []
    for event in events:
        words = [event.phase.value, event.payload.get("stage") or ""]
        own = [key for key in event.payload if key not in common] if keys else []
        rows.append(" ".join(filter(None, [*words, *([f"[{' '.join(own)}]"] if own else [])])))
    return rows
