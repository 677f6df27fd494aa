"""Doubles of Snowl's trial state and of QitOS agents.

``State`` and ``Context`` say again what Snowl 0.1.0 hands to an agent; what its
engine does with them was seen by running it, as ``tests/interop`` does.
"""

import asyncio
import json
import math
from dataclasses import dataclass, field

import pytest

from qitos_min.snowl import QitOSAdapter
from snowl_compat import SnowlCompatError


@dataclass
class State:
    messages: list = field(default_factory=lambda: [user("the task")])
    actions: list = field(default_factory=list)
    observations: list = field(default_factory=list)
    output: object = None
    stop_reason: object = None


@dataclass
class Context:
    task_id: str = "t1"
    sample_id: str = "s1"
    metadata: dict = field(default_factory=dict)


class Engine:
    """Gives the results of a script, or raises them; waits for ``gate`` if given."""

    def __init__(self, *script, gate=None):
        self.script = list(script)
        self.gate = gate
        self.ran = []
        self.cancelled = []
        self.hooks = []

    def run(self, task, **state_kwargs):
        self.ran.append((task, state_kwargs))
        if self.gate is not None:
            assert self.gate.wait(5)
        outcome = self.script.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        for record in outcome.get("records", ()):
            for hook in self.hooks:
                hook.on_step_end(record, None, self)
        return outcome

    def cancel(self, mode):
        self.cancelled.append(mode)

    def register_hook(self, hook):
        self.hooks.append(hook)

    def export_config(self):
        return {"agent_name": "scripted"}


class Agent:
    """An agent whose ``build_engine`` gives one engine and notes its arguments."""

    def __init__(self, *script, gate=None, tool_registry=None):
        self.engine = Engine(*script, gate=gate)
        self.built = []
        self.tool_registry = tool_registry

    def build_engine(self, **kwargs):
        self.built.append(kwargs)
        return self.engine


def user(content):
    return {"role": "user", "content": content}


def result(answer="done", stop_reason="final", **more):
    task_result = {"final_result": answer, "stop_reason": stop_reason}
    return {"records": [], "task_result": task_result, **more}


def play(agent, state=None, context=None, tools=None):
    """One trial; the state, which must be the one that was given."""
    state = State() if state is None else state
    assert asyncio.run(agent.run(state, context or Context(), tools)) is state
    return state


def fail(agent, state=None, context=None, tools=None):
    """One trial that fails; (its message, the state)."""
    state = State() if state is None else state
    with pytest.raises(SnowlCompatError) as caught:
        asyncio.run(agent.run(state, context or Context(), tools))
    return caught.value.message, state


def wrap(agent, **config):
    return QitOSAdapter().wrap(agent, **config)


def refuse(text):
    raise ValueError(f"{text} is no strict JSON")


def strict(state):
    """Everything on the state that Snowl writes, through a strict reader."""
    whole = {
        "output": state.output,
        "actions": [[a.action_type, a.payload] for a in state.actions],
        "observations": [[o.observation_type, o.payload] for o in state.observations],
        "stop_reason": state.stop_reason.value,
    }
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode("utf-8"), parse_constant=refuse) == whole
    return whole


STEP = {
    "step_id": 4,
    "agent_id": "worker",
    "decision": {"mode": "act"},
    "actions": [
        {"name": "add", "args": {"a": 1}, "action_id": "c1"},
        {"name": "boom", "args": None},
    ],
    "action_results": [3, {"error": "boom"}, {"env": {"done": False}}],
    "tool_invocations": [
        {"tool_name": "add", "status": "success", "latency_ms": 1.5},
        {"tool_name": "boom", "status": "error", "latency_ms": math.nan, "error": "boom"},
    ],
    "critic_outputs": [{"critic_name": "C", "action": "retry", "score": 0.5}],
}
