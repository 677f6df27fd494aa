"""A run to look at: ``python -m qitos_min [--trace DIR]`` prints its payload.

``python -m qitos_min view RUN`` makes a page of any run that was kept, and ``show RUN`` shows it
in a terminal. A planner reads a weather log, a critic sends a guess back once, and a writer
takes over to publish the report, which needs approval. No model, no network.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import Any

import snowl_compat

from .core import Action, AgentModule, AgentRegistry, AgentSpec, Decision, StateSchema
from .core import ToolPermission, ToolRegistry, function_tool
from .engine import CriticResult, Engine, RuntimeBudget, critic
from .render import ClaudeStyleHook
from .trace import TraceWriter
from .view import show, view

TASK = "Report how warm it was on average."
_LOG = {"monday": 18, "tuesday": 21, "wednesday": 24}


@dataclass
class WeatherState(StateSchema):
    found: dict[str, list[Any]] = field(default_factory=dict)  # What each tool returned.


@function_tool(read_only=True, concurrency_safe=True)
def read_log(day: str) -> int:
    """Return the temperature of a day in degrees Celsius."""
    return _LOG[day]


@function_tool(read_only=True)
def average(numbers: list[float]) -> float:
    """Return the mean of numbers."""
    return sum(numbers) / len(numbers)


@function_tool(permissions=ToolPermission(network=True), needs_approval=True)
def publish(text: str) -> str:
    """Publish a report."""
    return f"published {len(text)} characters"


class _WeatherAgent(AgentModule):
    def init_state(self, task: str, **kwargs: Any) -> WeatherState:
        return WeatherState(task=task, **kwargs)

    def reduce(self, state: WeatherState, observation: Any, decision: Decision) -> WeatherState:
        for action, result in zip(decision.actions, observation["action_results"]):
            state.found.setdefault(action.name, []).append(result)
        return state


class Planner(_WeatherAgent):
    name = "planner"

    def decide(self, state: WeatherState, observation: Any) -> Decision:
        if "read_log" not in state.found:
            days = [Action("read_log", {"day": day}) for day in _LOG]
            return Decision.act(days, rationale="look at every day")
        if "average" in state.found:
            return Decision.handoff("writer", rationale="the numbers are there")
        if "instruction_patch" not in observation:
            return Decision.final("about 20 degrees", rationale="looks like it")
        return Decision.act(Action("average", {"numbers": state.found["read_log"]}))


class Writer(_WeatherAgent):
    name = "writer"

    def decide(self, state: WeatherState, observation: Any) -> Decision:
        text = f"It was {state.found['average'][0]} °C on average."
        if "publish" not in state.found:
            return Decision.act(Action("publish", {"text": text}))
        return Decision.final(text)


@critic
def no_guessing(state: WeatherState, decision: Decision, results: list[Any]) -> CriticResult:
    """Send an answer back that nothing was reckoned for."""
    if decision.mode != "final" or "average" in state.found:
        return CriticResult(reason="nothing was guessed")
    patch = "Reckon the average before you answer."
    return CriticResult("retry", "the answer is a guess", 0.2, instruction_patch=patch)


def build_engine(**settings: Any) -> Engine:
    """The example's engine, with more ``settings`` of an engine."""
    tools = ToolRegistry().register(read_log).register(average).register(publish)
    planner, agents = Planner(tool_registry=tools), AgentRegistry()
    agents.register(AgentSpec("planner", "reads and reckons", planner))
    agents.register(AgentSpec("writer", "writes and publishes", Writer(tool_registry=tools)))
    settings.update(budget=RuntimeBudget(12), critics=[no_guessing], agent_registry=agents)
    return Engine(planner, auto_approve=True, **settings)


def main(argv: list[str] | None = None) -> int:
    """Run the example and print its payload, or show runs; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m qitos_min", description=__doc__)
    parser.add_argument("--trace", metavar="DIR", help="also write the run to a new folder")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    kinds = "a trace folder, a JSON file, or - for standard input"
    viewed = commands.add_parser("view", help="a page of runs, for a browser")
    viewed.add_argument("runs", metavar="RUN", nargs="+", help=kinds)
    viewed.add_argument("-o", metavar="FILE", dest="output", help="default: view.html in RUN")
    shown = commands.add_parser("show", help="a run in the terminal")
    shown.add_argument("run", metavar="RUN", help=kinds)
    shown.add_argument("--width", metavar="N", type=int, help="columns, 40 or more")
    args = parser.parse_args(argv)
    if args.command == "show":
        return show(args.run, args.width)
    if args.command == "view":
        if args.output is None and (len(args.runs) > 1 or args.runs == ["-"]):
            viewed.error("several runs, or standard input, need -o FILE")
        return view(args.runs, args.output)
    hooks = [ClaudeStyleHook()] if sys.stderr.isatty() else []
    try:
        writer = None if args.trace is None else TraceWriter(args.trace)
        engine = build_engine(trace_writer=writer, render_hooks=hooks)
        text = snowl_compat.export_json(engine.run(TASK), engine=engine, indent=2)
    except ValueError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    sys.stdout.buffer.write(f"{text}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
