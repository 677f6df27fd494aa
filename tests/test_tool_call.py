"""The execution of one call: errors, time limits, retries and results."""

from __future__ import annotations

import asyncio
import contextvars
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tool_results import result_of

from qitos_min.core.action import Action
from qitos_min.core.tool import (
    RetryPolicy,
    ToolMeta,
)
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.core.tool_result import ToolResult


def registry_of(func, name="t", **meta):
    return ToolRegistry().register(func, name=name, meta=ToolMeta(**meta))


def outcome(result):
    return result.status, result.error_kind, result.error_code


def test_the_recorded_arguments_are_those_sent():
    def greedy(items: list, runtime_context=None):
        items.append("more")
        runtime_context["env"] = "changed"
        return items

    action = Action("t", {"items": ["one"]}, max_retries=1)
    context = {"env": "same"}
    result = registry_of(greedy).execute(action, context)
    assert result.output == ["one", "more"]
    assert action.args == {"items": ["one"]}
    assert context == {"env": "same"}
    result.output.append("late")
    assert action.args == {"items": ["one"]}


class Silent(Exception):
    def __str__(self):
        raise ValueError("no words")


ERRORS = [
    (ValueError("boom"), "ValueError: boom"),
    (KeyError("k"), "KeyError: 'k'"),
    (RuntimeError(), "RuntimeError"),
    (SystemExit("bye"), "SystemExit: bye"),
    (GeneratorExit(), "GeneratorExit"),
    (asyncio.CancelledError(), "CancelledError"),
    (Silent(), "Silent"),
    (TimeoutError("socket"), "TimeoutError: socket"),
]


@pytest.mark.parametrize("timeout_s", [None, 5])
@pytest.mark.parametrize("error, message", ERRORS)
def test_whatever_a_tool_raises_is_its_error(error, message, timeout_s):
    # Fault 22: a tool's own TimeoutError was reported as a worker that hangs.
    def fail():
        raise error

    result = result_of(registry_of(fail, timeout_s=timeout_s), "t")
    assert outcome(result) == ("error", "execution", "tool_execution_failed")
    assert (result.error, result.attempts) == (message, 1)
    assert result.worker_still_running is False


@pytest.mark.parametrize("timeout_s", [None, 5])
def test_an_interrupt_is_never_held_up(timeout_s):
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        result_of(registry_of(fail, timeout_s=timeout_s), "t")


CURRENT = contextvars.ContextVar("current", default="none")


@pytest.mark.parametrize("timeout_s", [None, 5])
def test_a_tool_runs_in_the_callers_context_variables(timeout_s):
    registry = registry_of(lambda: CURRENT.get(), timeout_s=timeout_s)
    token = CURRENT.set("here")
    try:
        assert result_of(registry, "t").output == "here"
    finally:
        CURRENT.reset(token)


async def slowly(a: int):
    await asyncio.sleep(0)
    return a + 1


@pytest.mark.parametrize("timeout_s", [None, 5])
def test_an_async_tool_is_awaited_also_inside_a_running_loop(timeout_s):
    registry = registry_of(slowly, timeout_s=timeout_s)
    assert result_of(registry, "t", a=1).output == 2

    async def within():
        return result_of(registry, "t", a=2).output

    assert asyncio.run(within()) == 3


def test_an_async_tool_fails_and_times_out_like_any_other():
    async def fail():
        raise ValueError("boom")

    async def hang():
        await asyncio.sleep(0.2)

    async def within():
        return result_of(registry_of(fail), "t").error

    assert result_of(registry_of(fail), "t").error == "ValueError: boom"
    assert asyncio.run(within()) == "ValueError: boom"
    assert result_of(registry_of(hang, timeout_s=0.02), "t").status == "timed_out"


async def in_a_thread():
    return await asyncio.to_thread(lambda: sorted(place.get()))


async def in_a_thread_that_fails():
    return await asyncio.to_thread(lambda: 1 / 0)


place = contextvars.ContextVar("place")


@pytest.mark.parametrize("timeout_s", [None, 5])
def test_an_async_tool_may_use_threads(timeout_s):
    place.set("ba")
    assert result_of(registry_of(in_a_thread, timeout_s=timeout_s), "t").output == ["a", "b"]
    result = result_of(registry_of(in_a_thread_that_fails, timeout_s=timeout_s), "t")
    assert result.error == "ZeroDivisionError: division by zero"


class Flaky:
    """Raises the given exceptions one by one, then answers."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.answer = "done"
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.answer


QUICK = {"backoff_factor": 0}
A, B = ValueError("a"), OSError("b")
RETRIES = [
    ({}, {}, [A], 1, "ValueError: a"),
    ({"max_retries": 1}, {}, [A], 2, None),  # fault 19
    ({"max_retries": 1}, {}, [A, B], 2, "OSError: b"),
    ({"max_retries": 1}, {"max_retries": 2}, [A, B], 3, None),
    ({"max_retries": 3}, {"idempotent": False}, [A], 1, "ValueError: a"),
    ({"max_retries": 3}, {}, [SystemExit(1)], 1, "SystemExit: 1"),
    ({"retry_policy": RetryPolicy(3, **QUICK)}, {}, [A, B], 3, None),
    ({"retry_policy": RetryPolicy(2, **QUICK)}, {}, [A, B], 2, "OSError: b"),
    ({"retry_policy": RetryPolicy(1), "max_retries": 5}, {}, [A], 1, "ValueError: a"),
    (
        {"retry_policy": RetryPolicy(5, retryable_exceptions=(OSError,), **QUICK)},
        {},
        [B, A],
        2,
        "ValueError: a",
    ),
]


@pytest.mark.parametrize("meta, action, errors, attempts, message", RETRIES)
def test_failed_calls_are_repeated_as_declared(meta, action, errors, attempts, message):
    flaky = Flaky(*errors)
    result = registry_of(flaky, **meta).execute(Action("t", **action), None)
    assert (flaky.calls, result.attempts) == (attempts, attempts)
    assert result.error == message
    assert len(result.metadata.get("failed_attempts", [])) == attempts - 1


def test_the_failures_before_a_success_are_recorded():
    result = result_of(registry_of(Flaky(A, B), max_retries=2), "t")
    assert result.output == "done"
    assert result.metadata["failed_attempts"] == ["ValueError: a", "OSError: b"]


def test_a_result_is_repeated_only_when_it_says_that_it_may_be():
    calls = []

    def fail(disposition: str):
        calls.append(disposition)
        return ToolResult.execution_error(
            code="busy", error="later", recoverable=True, retry_disposition=disposition
        )

    registry = registry_of(fail, max_retries=2)
    assert result_of(registry, "t", disposition="retryable").attempts == 3
    assert result_of(registry, "t", disposition="non_retryable").attempts == 1


def test_a_cancelled_call_is_not_repeated():
    class Token:
        mode = None

    token = Token()

    def fail():
        token.mode = "immediate"
        raise A

    policy = RetryPolicy(5, backoff_factor=60)
    result = result_of(registry_of(fail, retry_policy=policy), "t", {"cancel_token": token})
    assert (result.error, result.attempts) == ("ValueError: a", 1)


def test_refused_calls_are_not_repeated():
    asked = []
    registry = registry_of(lambda: 1, needs_approval=True, max_retries=3)
    context = {"approval_callback": lambda *args: bool(asked.append(args))}
    assert result_of(registry, "t", context).attempts == 0
    assert len(asked) == 1


def test_on_failure_may_answer_in_place_of_the_tool():
    seen = []

    def fallback(error):
        seen.append(error)
        return {"cached": True}

    result = result_of(registry_of(Flaky(A, B), max_retries=1, on_failure=fallback), "t")
    assert (result.status, result.output, result.attempts) == (
        "success",
        {"cached": True},
        2,
    )
    assert seen == [B]
    assert result.metadata["failure"] == "OSError: b"


@pytest.mark.parametrize(
    "answer, noted",
    [
        (lambda error: None, None),
        (lambda error: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_on_failure_never_hides_the_failure(answer, noted):
    result = result_of(registry_of(Flaky(A), on_failure=answer), "t")
    assert result.error == "ValueError: a"
    assert result.metadata.get("on_failure_error") == noted


def test_p4_a_timed_out_call_returns_at_once_and_stays_as_recorded():
    # openai-agents PR #2479, PraisonAI #2653, pydantic-ai #7692
    gate, ended = threading.Event(), threading.Event()

    def hang():
        gate.wait(5)
        ended.set()
        return "late"

    started = time.perf_counter()
    registry = registry_of(hang, timeout_s=0.02, max_retries=3)
    result = registry.execute(Action("t", action_id="c1"), None)
    assert time.perf_counter() - started < 3
    before = result.to_dict()
    assert outcome(result) == ("timed_out", "execution", "tool_timeout")
    assert result.error == "tool 't' did not end within 0.02 s and is still running"
    assert result.worker_still_running and result.outcome_unknown
    assert result.retry_disposition == "blocked_worker_running"
    assert (result.effect_state, result.effect_ref) == ("unknown", "t:c1")
    assert result.attempts == 1
    gate.set()
    assert ended.wait(5)
    assert result.to_dict() == before


def test_a_read_only_tool_that_timed_out_is_certain_and_may_be_repeated():
    gate, calls = threading.Event(), []

    def hang():
        calls.append(1)
        gate.wait(0.2 if len(calls) == 1 else 0)
        return "ok"

    meta = {"read_only": True, "max_retries": 1, "timeout_s": 0.05}
    result = result_of(registry_of(hang, **meta), "t")
    assert (result.output, result.attempts) == ("ok", 2)
    calls.clear()
    meta["max_retries"] = 0
    result = result_of(registry_of(hang, **meta), "t")
    assert (result.status, result.outcome_unknown) == ("timed_out", False)


@pytest.mark.parametrize(
    "action, meta, context",
    [({"timeout_s": 0.02}, 5, 5), ({}, 0.02, 5), ({}, None, 0.02)],
)
def test_the_time_limit_nearest_to_the_call_holds(action, meta, context):
    registry = registry_of(lambda: time.sleep(0.1), timeout_s=meta)
    result = registry.execute(Action("t", **action), {"timeout_s": context})
    assert result.status == "timed_out"


@pytest.mark.parametrize("seconds", ["5", -1, 0, True, float("nan")])
def test_a_time_limit_that_is_none_starts_nothing(seconds):
    ran = []
    result = result_of(registry_of(ran.append), "t", {"timeout_s": seconds}, object=1)
    assert result.error == (
        "ValueError: timeout_s must be a number of seconds above 0, " f"got {seconds!r}"
    )
    assert ran == []


@pytest.mark.parametrize("given, kept", [(7, "7"), (None, None), ("c1", "c1")])
def test_an_id_that_is_no_text_becomes_one(given, kept):
    # A model's {"id": 7} spoiled the record of a call that had run.
    result = registry_of(lambda: 1).execute(Action("t", action_id=given), None)
    assert result.to_dict()["action_id"] == kept


@pytest.mark.parametrize(
    "body",
    [
        "def t(): hang()",
        "async def t(): await asyncio.Event().wait()",
        "async def t(): await asyncio.to_thread(hang)",
    ],
)
def test_the_process_can_exit_while_a_tool_hangs(body):
    program = (
        "import asyncio, threading\n"
        "from qitos_min import Action\nfrom qitos_min.core.tool import ToolMeta\n"
        "from qitos_min.core.tool_registry import ToolRegistry\n"
        "hang = threading.Event().wait\n"
        f"{body}\n"
        "meta = ToolMeta(timeout_s=0.05)\n"
        "print(ToolRegistry().register(t, meta=meta).execute(Action('t')).status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=20,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert (done.stdout.strip(), done.stderr) == ("timed_out", "")


def test_p12_the_keys_of_a_returned_dict_stay_in_the_output():
    value = {"status": "error", "error": "inner", "value": 1}
    result = result_of(registry_of(lambda: value), "t")
    assert (result.status, result.output, result.error) == ("success", value, None)


def test_a_tools_own_result_is_copied_and_completed():
    own = ToolResult(output=[1], tool_name="forged", attempts=7, provenance={"k": 1})
    result = registry_of(lambda: own).execute(Action("t", action_id="c1"), None)
    own.output.append(2)
    assert result.output == [1]
    assert (result.tool_name, result.action_id, result.attempts) == ("t", "c1", 1)
    assert result.provenance == {"k": 1, "source": "function"}
    assert result_of(registry_of(lambda: own.to_dict()), "t").output == [1, 2]
    assert own.tool_name == "forged"


def test_a_broken_result_is_an_error_of_the_tool():
    own = ToolResult.execution_error(code="x", error="y")
    own.error_kind = "odd"
    for returned in (own, {"schema_version": "qitos.tool_result/v9"}):
        tool = Flaky()
        tool.answer = returned
        result = result_of(registry_of(tool, max_retries=2), "t")
        assert outcome(result) == ("error", "execution", "invalid_tool_result")
        assert result.error.startswith("tool 't' returned a result that is broken: ")
        assert result.attempts == 1


def test_a_value_that_json_cannot_hold_is_still_a_success():
    result = result_of(registry_of(lambda: {"a": float("nan"), "o": {1}}), "t")
    assert result.status == "success"
    assert result.output["a"] is None
    assert result.metadata["output_converted"] is True
    json.dumps(result.to_dict(), allow_nan=False)


def test_latency_covers_the_execution_in_milliseconds():
    result = result_of(registry_of(lambda: time.sleep(0.02)), "t")
    assert 15 < result.latency_ms < 1000
    assert result_of(registry_of(lambda: 1, needs_approval=True), "t").latency_ms == 0
