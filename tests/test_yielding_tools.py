"""Tools that yield: the list of their values, or an error that keeps them."""

from __future__ import annotations

import asyncio
import io
import itertools
import subprocess
import time

import pytest

from tool_results import result_of

from qitos_min import ToolRegistry
from qitos_min.core import _tool_call
from qitos_min.core.tool import BaseTool, ToolMeta


def parts(n: int):
    yield from range(n)


async def later_parts(n: int):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def handed_over(n: int):
    return parts(n)


def lazy(n: int):
    return map(int, range(n))


def nothing_yet(n: int):
    return
    yield


def and_returns(n: int):
    yield from range(n)
    return "sum"


class Parts(BaseTool):
    name = "class_parts"

    def execute(self, args, runtime_context=None):
        return parts(args["n"])


WHOLE = [
    (parts, [0, 1, 2]),  # public report "generator_tools": a "success" that did not run
    (later_parts, [0, 1, 2]),
    (handed_over, [0, 1, 2]),
    (lazy, [0, 1, 2]),
    (nothing_yet, []),
    (and_returns, [0, 1, 2, "sum"]),
    (Parts(), [0, 1, 2]),
]


@pytest.mark.parametrize("tool, wanted", WHOLE)
@pytest.mark.parametrize("limit", [None, 5])
def test_a_tool_that_yields_gives_the_list_of_its_values(tool, wanted, limit):
    registry = ToolRegistry().register(tool, meta=ToolMeta(timeout_s=limit))
    result = result_of(registry, registry.list_tools()[0], n=3)
    assert (result.status, result.error, result.output) == ("success", None, wanted)


def half(n: int):
    yield from range(n)
    raise OSError("disk full")


async def later_half(n: int):
    for i in range(n):
        yield i
    raise OSError("disk full")


@pytest.mark.parametrize("tool", [half, later_half])
def test_a_failure_half_way_keeps_what_came_before(tool):
    result = result_of(ToolRegistry().register(tool), tool.__name__, n=2)
    assert (result.status, result.error, result.output) == ("error", "OSError: disk full", [0, 1])


def test_what_a_command_printed_comes_behind_what_was_yielded():
    def command():
        yield {1}
        raise subprocess.CalledProcessError(3, "make", output=b"built", stderr="gone")

    result = result_of(ToolRegistry().register(command), "command")
    assert result.output == [[1], {"stdout": "built", "stderr": "gone"}]
    assert result.error.startswith("CalledProcessError: ")


closed = []


def endless():
    try:
        yield from itertools.count()
    finally:
        closed.append("endless")


async def later_endless():
    try:
        for i in itertools.count():
            yield i
    finally:
        closed.append("later_endless")


@pytest.mark.parametrize("tool", [endless, later_endless])
def test_a_tool_that_never_ends_is_stopped(tool, monkeypatch):
    monkeypatch.setattr(_tool_call, "_MAX_YIELDED", 5)
    closed.clear()
    result = result_of(ToolRegistry().register(tool), tool.__name__)
    assert result.error == "ValueError: the tool yielded more than 5 values"
    assert (result.status, result.output, closed) == ("error", [0, 1, 2, 3, 4], [tool.__name__])


def test_a_tool_that_yields_and_hangs_keeps_its_values_at_the_time_limit():
    def slow():
        yield "first"
        time.sleep(0.5)
        yield "second"

    result = result_of(ToolRegistry().register(slow, meta=ToolMeta(timeout_s=0.1)), "slow")
    assert (result.status, result.output) == ("timed_out", ["first"])


def test_values_that_json_cannot_hold_are_converted():
    def mixed():
        yield {1}
        yield b"x"

    assert result_of(ToolRegistry().register(mixed), "mixed").output == [[1], {"$bytes": "eA=="}]


def test_a_file_is_no_list_of_lines():
    def opened():
        return io.StringIO("a\nb\n")

    assert result_of(ToolRegistry().register(opened), "opened").output == {"$unserializable": "_io.StringIO"}
