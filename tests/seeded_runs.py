"""Runs made from a seed, and all that they leave behind, as text.

``told(seed, folder)`` is the text of one run: records, events, the trace folder, the
payload, the checkpoints, and what agents, tools, critics and hooks were shown. Of times,
ids, places on disk and tracebacks only the form is kept; all else is byte for byte.

    python tests/seeded_runs.py            write the golden files of ``tests/data/seeded``
    python tests/seeded_runs.py 17         print the text of one run
"""

import datetime
import decimal
import enum
import hashlib
import json
import logging
import random
import re
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from snowl_compat import build_payload, dumps

from qitos_min import Action, AgentModule, AgentRegistry, AgentSpec, Decision, Engine
from qitos_min import Env, StateSchema, Task, TaskBudget, ToolMeta, ToolRegistry, ToolResult
from qitos_min.core.action import ActionExecutionPolicy
from qitos_min.core.env import EnvObservation, EnvStepResult
from qitos_min.core.history import History
from qitos_min.core.memory import Memory
from qitos_min.engine import ContextConfig, CriticResult, EngineHook, RuntimeBudget
from qitos_min.engine.delegate import DelegateTool
from qitos_min.engine.recovery import RecoveryPolicy
from qitos_min.kit.checkpoint import MemoryCheckpointStore
from qitos_min.trace import TraceWriter

SEEDS = range(200)
SHOWN = (6, 111, 119)
"""The runs whose payload is a golden file of its own."""
DATA = ROOT / "tests" / "data" / "seeded"


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    tags: list = field(default_factory=list)


class Opaque:
    """What no JSON can hold."""

    def __repr__(self):
        return "an opaque thing"


def looped():
    value = {"name": "loop"}
    value["self"] = value
    return value


def deep(levels):
    value = "bottom"
    for _ in range(levels):
        value = [value]
    return value


# Made anew by each call, as a program's own values are.
AWKWARD = (
    lambda: float("nan"),
    lambda: float("-inf"),
    lambda: -0.0,
    lambda: 2**70,
    lambda: "a\ud800b",
    lambda: "Ünïcode \u2028 \x00 \U0001f600",
    lambda: b"\x00\xff",
    lambda: {7},
    lambda: (1, (2, "three")),
    lambda: {1: "a", True: "b", None: "c", "1": "d"},
    lambda: {"ключ": {"\udfff": 1}},
    lambda: Point(1.5, ["x"]),
    lambda: Colour.RED,
    lambda: datetime.date(2024, 2, 29),
    lambda: decimal.Decimal("1.10"),
    lambda: uuid.UUID(int=7),
    lambda: Opaque(),
    looped,
    lambda: deep(70),
    lambda: deep(250),
    lambda: [True, 1, 1.0, None, "", {}, [], 1e300, 5e-324],
    lambda: "long " * 200,
    lambda: {"model_summary": "in short", "rows": [1, 2, 3]},
    lambda: {"status": "error", "error": "old form", "output": "half"},
    lambda: {"schema_version": "qitos.tool_result/v2"},
    lambda: ToolResult(output={"kept": [1]}, metadata={"from": "tool"}, provenance={"source": "own"}),
    lambda: ToolResult.semantic_error(code="own_code", error="not so", recovery_hint="like this"),
)
FAULTS = (ValueError("no luck"), KeyError("gone"), RuntimeError("Straße \ud800"), SystemExit(3))


class Notes:
    """What the parts of a run were shown, in order."""

    def __init__(self):
        self.lines = []

    def add(self, who, *values):
        self.lines.append(f"{who}: " + " ".join(dumps(value) for value in values))


def tools_of(notes):
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        notes.add("add", a, b)
        return a + b

    def give(which: int, runtime_context=None):
        """Give an awkward value."""
        notes.add("give", which, runtime_context["step_id"], runtime_context["action_id"])
        return AWKWARD[which % len(AWKWARD)]()

    def fail(which: int, tags: list[str] | None = None) -> str:
        """Fail."""
        raise FAULTS[which % len(FAULTS)]

    def spread(count: int):
        """Yield some values."""
        for number in range(count):
            yield {"number": number}
        if count > 2:
            raise ValueError("one too many")

    async def later(text: str, point: Point | None = None) -> dict:
        """Answer later."""
        return {"text": text, "point": point}

    def ask(path: str) -> str:
        """Needs approval."""
        return f"asked for {path}"

    registry = ToolRegistry()
    registry.register(add, meta=ToolMeta(concurrency_safe=True, read_only=True))
    registry.register(give, meta=ToolMeta(result_max_chars=300, concurrency_safe=True))
    registry.register(fail, meta=ToolMeta(max_retries=1))
    for function in (spread, later):
        registry.register(function)
    return registry.register(ask, meta=ToolMeta(needs_approval=True))


def some_action(rng, others):
    which = rng.randrange(1000)
    if others and which % 8 == 0:
        return Action(f"delegate_to_{others[0]}", {"task": "a part", "context": "das Ganze"})
    name, args = rng.choice(
        [
            ("add", {"a": which}),
            ("add", {"a": 1.0, "b": 2}),
            ("add", {"a": "one"}),
            ("add", {"b": 1}),
            ("add", {"a": 1, "c": AWKWARD[which % len(AWKWARD)]()}),
            ("give", {"which": which}),
            ("give", {"which": which}),
            ("give", {"which": which}),
            ("fail", {"which": which, "tags": ["é"]}),
            ("spread", {"count": which % 5}),
            ("later", {"text": "später", "point": {"x": 1}}),
            ("later", {"text": "t", "point": {"x": "no"}}),
            ("ask", {"path": "/tmp/x"}),
            ("adding", {"a": 1}),
        ]
    )
    told = {"why": AWKWARD[which % len(AWKWARD)]()} if which % 9 == 0 else {}
    own_id = None if which % 5 else f"own_{which % 3}"
    return Action(name, args, action_id=own_id, max_retries=which % 2, metadata=told)


def some_decision(rng, others):
    kind = rng.random()
    if kind < 0.68:
        actions = [some_action(rng, others) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        return Decision.act(actions, rationale=rng.choice([None, "because", "weil ü"]))
    if kind < 0.73:
        return Decision.wait("wait a bit", {"seen": AWKWARD[rng.randrange(len(AWKWARD))]()})
    if kind < 0.87 and others:
        return Decision.handoff(rng.choice([*others, "nobody"] if kind < 0.74 else others))
    if kind < 0.90:
        return Decision.branch([some_decision(rng, others), Decision.final("second")])
    if kind < 0.92:
        raise rng.choice(FAULTS)
    if kind < 0.93:
        return rng.choice(["no decision", Decision("act"), Decision("jump")])
    return Decision.final(AWKWARD[rng.randrange(len(AWKWARD))]())


@dataclass
class SeededState(StateSchema):
    notes: list = field(default_factory=list)
    anything: object = None
    counts: dict = field(default_factory=dict)


class SeededAgent(AgentModule):
    """Decides by chance, and changes its state and whatever it was shown."""

    def __init__(self, name, rng, notes, others=(), **options):
        self.name = name
        self.rng, self.notes, self.others = rng, notes, others
        super().__init__(**options)

    def init_state(self, task, **kwargs):
        return SeededState(task=task)

    def build_system_prompt(self, state):
        return f"You are {self.name}."

    def decide(self, state, observation):
        self.notes.add(f"{self.name} decides", observation)
        if self.llm is not None and self.rng.random() < 0.7:
            return None
        if self.rng.random() < 0.1:
            observation["state"]["notes"] = "overwritten"
        return some_decision(self.rng, self.others)

    def reduce(self, state, observation, decision):
        results = [result.to_trace_safe_dict() for result in observation.action_results]
        self.notes.add(f"{self.name} reduces", observation["action_results"], results)
        chance = self.rng.random()
        if chance < 0.5:
            state.notes.append(self.rng.randrange(100))
            state.counts[f"n{len(state.notes)}"] = [len(state.notes), True]
        elif chance < 0.65:
            state.anything = AWKWARD[self.rng.randrange(len(AWKWARD))]()
        elif chance < 0.67:
            state.metrics = rng_list = ["no dict"]
            rng_list.append(1)
        elif chance < 0.69:
            raise self.rng.choice(FAULTS)
        elif chance < 0.71:
            state.set_stop("success", self.rng.choice(["done", {"a": (1,)}]))
        if observation["action_results"] and chance < 0.3:
            observation["action_results"][0] = "overwritten"
        return None if chance > 0.9 else state


class SeededModel:
    model_id = "seeded-1"

    def __init__(self, rng, notes, protocol):
        self.rng, self.notes, self.protocol = rng, notes, protocol

    def __call__(self, messages, tools=None):
        self.notes.add("the model is asked", messages)
        rng = self.rng
        args = {"which": rng.randrange(100)}
        kind = rng.random()
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        message = {"role": "assistant", "content": rng.choice(["", "not a decision", "{"])}
        if kind < 0.6 and self.protocol == "native_tool_call_v1":
            call = {"name": "give", "arguments": json.dumps(args)}
            calls = [{"id": f"c{len(messages)}", "type": "function", "function": call}]
            message = {"role": "assistant", "content": None, "tool_calls": calls * 2}
        elif kind < 0.6 and self.protocol == "json_decision_v1":
            told = {"mode": "act", "actions": [{"name": "give", "args": args}], "thought": "hm"}
            message["content"] = json.dumps(told)
        elif kind < 0.6:
            message["content"] = f"Thought: hm\nAction: give({json.dumps(args)})"
        elif kind < 0.8:
            message["content"] = {
                "json_decision_v1": '{"mode": "final", "final_answer": {"n": [1, 2]}}',
                "react_text_v1": "Thought: enough\nFinal Answer: forty-two",
            }.get(self.protocol, "forty-two")
        elif kind < 0.82:
            raise ConnectionError("the line is dead")
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


class SeededCritic:
    def __init__(self, rng, notes, name):
        self.rng, self.notes, self.name = rng, notes, name

    def evaluate(self, state, decision, results):
        self.notes.add("critic", results, decision.mode)
        rng, value = self.rng, AWKWARD[self.rng.randrange(len(AWKWARD))]()
        if results and rng.random() < 0.2:
            results[0] = "overwritten"
        chance = rng.random()
        if chance < 0.55:
            return CriticResult(score=rng.choice([1.0, 0.5]), details={"value": value, "n": 1})
        if chance < 0.75:
            return {"action": "continue", "reason": value, "score": value}
        if chance < 0.9:
            patch = {"anything": repr(value)[:50] if value is not None else [1.5]}
            return CriticResult("retry", "again", instruction_patch="more", state_patch=patch)
        if chance < 0.91:
            raise FAULTS[rng.randrange(len(FAULTS))]
        return rng.choice(["stop", "stop", "perhaps", ("retry", "why"), ("continue", "fine")])


class SeededEnv(Env):
    name = "seeded"

    def __init__(self, rng):
        self.rng = rng

    def reset(self, task=None, workspace=None, **kwargs):
        return EnvObservation()

    def observe(self, state=None):
        if self.rng.random() < 0.05:
            raise OSError("blind")
        return EnvObservation({"seen": AWKWARD[self.rng.randrange(len(AWKWARD))]()})

    def step(self, action, state=None):
        done = self.rng.random() < 0.1
        return EnvStepResult(EnvObservation({"mode": action["decision_mode"]}), done, reward=0.5)


class Watcher(EngineHook):
    def __init__(self, notes, faulty):
        self.notes, self.faulty = notes, faulty

    def on_event(self, event, state, record, engine):
        self.notes.add("event", event.phase.value, event.payload.get("stage"), record is None)

    def on_before_tool_use(self, ctx, engine):
        self.notes.add("before tool", ctx.tool_name, ctx.tool_args, ctx.action_id)

    def on_after_tool_use(self, ctx, engine):
        self.notes.add("after tool", ctx.result.status, ctx.error)

    def on_permission_denied(self, ctx, engine):
        self.notes.add("denied", ctx.result.error_code)

    def on_after_act(self, ctx, engine):
        self.notes.add("after act", ctx.action_results, ctx.observation["step"])
        if self.faulty:
            raise ValueError("a faulty hook")

    def on_step_end(self, record, state, engine):
        self.notes.add("step end", record.state_diff)


def engine_of(rng, notes, folder):
    protocol = rng.choice([None, "native_tool_call_v1", "json_decision_v1", "react_text_v1"])
    others = rng.choice([(), (), ("helper",), ("helper", "checker")])
    registry = AgentRegistry() if others else None
    for name in others:
        agent = SeededAgent(name, rng, notes, ("main",), tool_registry=tools_of(notes))
        strategy = rng.choice(["full", "summary", "isolated"])
        spec = AgentSpec(name, f"is the {name}", agent, strategy, rng.choice([None, 1, 2]))
        registry.register(spec)
    tools = tools_of(notes)
    if others and rng.random() < 0.4:
        tools.register(DelegateTool(registry.get(others[0])))
    options = {}
    if protocol is not None:
        options = {"llm": SeededModel(rng, notes, protocol), "model_protocol": protocol}
    if rng.random() < 0.2:
        options["memory"] = ListMemory()
    main = SeededAgent("main", rng, notes, others, tool_registry=tools, **options)
    if others and rng.random() < 0.8:
        registry.register(AgentSpec("main", "is the first", main))
    # One at a time, so that the notes have one order.
    parallel = ActionExecutionPolicy("parallel", rng.random() < 0.3, max_concurrency=1)
    chance = rng.random
    return Engine(
        main,
        RuntimeBudget(max_steps=rng.choice([3, 6, 9])),
        critics=[SeededCritic(rng, notes, f"critic {n}") for n in range(rng.choice([0, 1, 2]))],
        agent_registry=registry,
        env=SeededEnv(rng) if chance() < 0.25 else None,
        hooks=[Watcher(notes, chance() < 0.2)] if chance() < 0.4 else None,
        history=History() if chance() < 0.3 else None,
        checkpoint_store=MemoryCheckpointStore() if chance() < 0.5 else None,
        trace_writer=TraceWriter(folder / "trace", strict_validate=chance() < 0.1),
        recovery_policy=RecoveryPolicy() if chance() < 0.5 else None,
        context_config=ContextConfig(rng.choice([None, 2]), rng.choice([200, 4000])),
        action_execution_policy=parallel if chance() < 0.2 else None,
        auto_approve=chance() < 0.5,
    )


class ListMemory(Memory):
    def __init__(self):
        self.rows = []

    def append(self, record):
        self.rows.append([record.role, record.content, record.step_id])

    def retrieve(self, query=None, **kwargs):
        return self.rows

    def summarize(self, max_items=5):
        return ""

    def evict(self):
        return 0

    def reset(self, run_id=None):
        self.rows.clear()


def told(seed, folder):
    """The text of the run of a seed; ``folder`` is empty and its own."""
    rng, notes = random.Random(seed), Notes()
    engine = engine_of(rng, notes, Path(folder))
    task = "the task ä"
    if seed % 5 == 0:
        task = Task(f"t{seed}", "the objective", budget=TaskBudget(max_steps=rng.choice([4, None])))
    log = logging.getLogger("qitos_min")
    logged, log.disabled = log.disabled, True
    try:
        result = engine.run(task)
    finally:
        log.disabled = logged
    store, memory = engine.checkpoint_store, getattr(engine.agent, "memory", None)
    parts = {
        "records": [dumps(record.to_dict()) for record in result.records],
        "events": [dumps(event.to_dict()) for event in result.events],
        "result": [dumps(result.to_dict(), indent=1)],
        "payload": [dumps(build_payload(result, engine=engine, extended=True), indent=1)],
        "exported": [dumps(build_payload(Path(folder, "trace"), extended=True))],
        "checkpoints": [dumps(entry) for entry in store.load(result.run_id)] if store else [],
        "memory": [dumps(row) for row in memory.rows] if memory else [],
        "shown": notes.lines,
    }
    for name in ("manifest.json", "events.jsonl", "steps.jsonl"):
        parts[name] = [Path(folder, "trace", name).read_bytes().decode("utf-8")]
    text = "\n".join(f"== {name}\n" + "\n".join(lines) for name, lines in parts.items())
    return without_chance(text, str(folder)) + "\n"


_TIMES = r'"(latency_ms|latency_seconds|runtime_seconds|elapsed_seconds|elapsed)": ?[\d.e+-]+'
_CHANCE = (
    (_TIMES, r'"\1": 0'),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", "TIME"),
    (r"run_[0-9a-f]{12}", "RUN"),
    (r"0x[0-9a-f]{6,}", "0x0"),
    # Of a traceback the last line tells what was raised.
    (r'("traceback": ?")(?:[^"\\]|\\.)*?((?:[^"\\]|\\[^n])*")', r"\1...\2"),
    (r'("completion_order": ?)\[[\d,\s]*\]', r"\1[]"),
)


def without_chance(text, folder):
    for escaped in (dumps(folder)[1:-1], folder):
        text = text.replace(escaped, "FOLDER")
    for pattern, replacement in _CHANCE:
        text = re.sub(pattern, replacement, text)
    return text


def payload_in(text):
    """The payload in the text of a run."""
    return text.split("== payload\n")[1].split("\n== ")[0] + "\n"


def digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def all_texts():
    """The text of each seed's run."""
    texts = {}
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            texts[seed] = told(seed, folder)
    return texts


def main():
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.buffer.write(told(int(sys.argv[1]), folder).encode("utf-8"))
        return
    texts = all_texts()
    DATA.mkdir(parents=True, exist_ok=True)
    lines = [f"{seed} {digest(text)}\n" for seed, text in texts.items()]
    (DATA / "digests.txt").write_bytes("".join(lines).encode())
    for seed in SHOWN:
        (DATA / f"payload_{seed}.json").write_bytes(payload_in(texts[seed]).encode("utf-8"))


if __name__ == "__main__":
    # The classes of the values here are told by their module's name.
    import seeded_runs

    seeded_runs.main()
