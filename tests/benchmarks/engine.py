"""What a step of the engine costs, beside writing down what it did.

    python tests/benchmarks/engine.py [--steps N ...] [--rounds N]

Needs nothing installed. The agent decides one tool call, the tool adds, the critic lets
it pass; with a model, a scripted one makes the call natively and sees the conversation.
``json.dumps`` of the lines that the trace of exactly such a run holds is the limit.
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _measure import ROOT, interleaved, peak_of

from qitos_min import Action, AgentModule, Decision, Engine, StateSchema, ToolMeta, ToolRegistry
from qitos_min.core import ActionExecutionPolicy
from qitos_min.core.history import History
from qitos_min.engine import ContextConfig, RuntimeBudget, critic
from qitos_min.trace import TraceWriter

KEPT_ROUNDS = 3


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@critic
def fine(state, decision, results):
    return {"action": "continue", "score": 1.0}


class Adder(AgentModule):
    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def decide(self, state, observation):
        return None if self.llm else Decision.act(Action("add", {"a": 1, "b": 2}))

    def reduce(self, state, observation, decision):
        return state


def native_model(messages, tools=None):
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    call = {"id": f"c{len(messages)}", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}


def engine_run(steps, critics=(), folder=None, model=False):
    options = {"llm": native_model, "model_protocol": "native_tool_call_v1"} if model else {}
    agent = Adder(tool_registry=ToolRegistry().register(add), **options)
    if model:
        options = {
            "history": History(),
            "context_config": ContextConfig(max_history_rounds=KEPT_ROUNDS),
        }
    if folder is not None:
        options["trace_writer"] = TraceWriter(os.path.join(folder, str(len(os.listdir(folder)))))
    budget = RuntimeBudget(max_steps=steps)
    result = Engine(agent, budget=budget, critics=list(critics), **options).run("t")
    assert result.step_count == steps and result.failure is None
    return result


FORMS = {
    "plain": {},
    "critic": {"critics": [fine]},
    "critic, trace": {"critics": [fine], "folder": True},
    "history, model": {"model": True},
}


def lines_of(steps, form, folder):
    """The rows that the trace of such a run holds."""
    place = tempfile.mkdtemp(dir=folder)
    engine_run(steps, **{**FORMS[form], "folder": place})
    files = [Path(place, "0", name) for name in ("events.jsonl", "steps.jsonl")]
    return [json.loads(line) for file in files for line in file.open(encoding="utf-8")]


def write(rows):
    for row in rows:
        json.dumps(row, ensure_ascii=False, allow_nan=False)


def steps_table(steps, rounds):
    with tempfile.TemporaryDirectory() as folder:
        traced = tempfile.mkdtemp(dir=folder)
        runs = [
            lambda form=form: engine_run(
                steps, **{k: traced if k == "folder" else v for k, v in form.items()}
            )
            for form in FORMS.values()
        ]
        rows = {form: lines_of(min(steps, 1000), form, folder) for form in FORMS}
        writes = [lambda form=form: write(rows[form]) for form in FORMS]
        gc.collect()
        gc.freeze()  # No run pays the collector for what is measured beside it.
        taken = interleaved([*runs, *writes], rounds)
        gc.unfreeze()
    for number, form in enumerate(FORMS):
        step = taken[number] / steps * 1e6
        limit = taken[len(FORMS) + number] / min(steps, 1000) * 1e6
        print(
            f"| {steps} | {form} | {1e6 / step:.0f} | {step:.0f} | {limit:.0f} | {step / limit:.2f} |"
        )


def memory_table(steps):
    for form in ("plain", "critic"):
        peak = peak_of(lambda: engine_run(steps, **FORMS[form]))
        print(f"{form}: peak {peak:.1f} MiB at {steps} steps, {peak * 1024 / steps:.1f} KiB a step")


def parallel(calls=64, concurrency=16, seconds=0.01):
    """Milliseconds of a batch of naps, and the least that it can take."""
    registry = ToolRegistry()
    registry.register(lambda: time.sleep(seconds), name="nap", meta=ToolMeta(concurrency_safe=True))

    class Sleeper(Adder):
        def decide(self, state, observation):
            return Decision.act([Action("nap")] * calls)

    policy = ActionExecutionPolicy("parallel", max_concurrency=concurrency)
    engine = Engine(
        Sleeper(tool_registry=registry),
        budget=RuntimeBudget(max_steps=1),
        action_execution_policy=policy,
    )
    started = time.perf_counter()
    result = engine.run("t")
    taken = time.perf_counter() - started
    assert result.success_rate == 1.0
    return taken * 1000, calls / concurrency * seconds * 1000


def import_times(rounds):
    """Median milliseconds of importing each group of modules in a new process."""
    groups = {
        "json": "json",
        "snowl_compat": "snowl_compat",
        "dataclasses, inspect, logging, …": "dataclasses, inspect, logging, uuid, threading,"
        " concurrent.futures",
        "qitos_min": "qitos_min",
    }
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    times = {name: [] for name in groups}
    for number in range(rounds + 1):
        for name, modules in groups.items():
            done = subprocess.run(
                [sys.executable, "-S", "-c", code.format(modules)],
                cwd=ROOT,
                env=env,
                capture_output=True,
                text=True,
                check=True,
            )
            if number:  # The first round writes the compiled files.
                times[name].append(float(done.stdout) * 1000)
    return {name: sorted(taken)[len(taken) // 2] for name, taken in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(f"Python {platform.python_version()}, medians of {args.rounds} interleaved rounds\n")
    print("| steps | run | steps/s | us a step | json.dumps of its lines, us | ratio |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for steps in args.steps:
        steps_table(steps, args.rounds)
        gc.collect()
    print()
    memory_table(min(max(args.steps), 10_000))
    naps = sorted(parallel() for _ in range(args.rounds))
    taken, ideal = naps[len(naps) // 2]
    print(f"64 calls of 10 ms, 16 at a time: {taken:.0f} ms, {taken / ideal:.2f} of the ideal")
    print("\nimport, ms in a new process (compiled files present)")
    for name, milliseconds in import_times(9).items():
        print(f"  {name:<34} {milliseconds:.1f}")


if __name__ == "__main__":
    main()
