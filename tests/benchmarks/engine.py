"""What the engine costs beside a bare loop that does the same calls.

    python tests/benchmarks/engine.py [--steps N ...]

Needs nothing installed. The agent decides one tool call, the tool adds, the
critic lets it pass.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile

from _measure import ROOT, interleaved

from qitos_min import Action, AgentModule, Decision, Engine, StateSchema, ToolRegistry
from qitos_min.engine import RuntimeBudget, critic
from qitos_min.trace import TraceWriter


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
        return Decision.act(Action("add", {"a": 1, "b": 2}))

    def reduce(self, state, observation, decision):
        return state


def engine_run(steps, critics=(), folder=None):
    agent = Adder(tool_registry=ToolRegistry().register(add))
    writer = None
    if folder is not None:
        writer = TraceWriter(os.path.join(folder, f"{len(os.listdir(folder))}"))
    budget = RuntimeBudget(max_steps=steps)
    result = Engine(agent, budget=budget, critics=list(critics), trace_writer=writer).run("t")
    assert result.step_count == steps and result.failure is None
    return result


def bare_loop(steps):
    agent = Adder(tool_registry=ToolRegistry())
    state = agent.init_state("t")
    for _ in range(steps):
        decision = agent.decide(state, {})
        results = [add(**action.args) for action in decision.actions]
        state = agent.reduce(state, {"action_results": results}, decision)
        fine.evaluate(state, decision, results)
        agent.should_stop(state)


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
                cwd=ROOT, env=env, capture_output=True, text=True, check=True,
            )
            if number:  # The first round writes the compiled files.
                times[name].append(float(done.stdout) * 1000)
    return {name: sorted(taken)[len(taken) // 2] for name, taken in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(f"Python {platform.python_version()}, medians of {args.rounds} interleaved rounds\n")
    print("steps    steps/s: engine  + critic  + critic + trace   bare loop us/step  engine us/step")
    for steps in args.steps:
        with tempfile.TemporaryDirectory() as folder:
            taken = interleaved(
                [
                    lambda: engine_run(steps),
                    lambda: engine_run(steps, [fine]),
                    lambda: engine_run(steps, [fine], folder),
                    lambda: bare_loop(steps),
                ],
                args.rounds,
            )
        rates = [steps / seconds for seconds in taken]
        print(
            f"{steps:<8} {rates[0]:>15.0f}  {rates[1]:>8.0f}  {rates[2]:>16.0f}"
            f"  {taken[3] / steps * 1e6:>18.1f}  {taken[0] / steps * 1e6:>14.1f}"
        )
    print("\nimport, ms in a new process (compiled files present)")
    for name, milliseconds in import_times(9).items():
        print(f"  {name:<34} {milliseconds:.1f}")


if __name__ == "__main__":
    main()
