"""Batches of calls: order, overlap, barriers, failing fast, and their record."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from qitos_min.core.action import Action, ActionExecutionPolicy
from qitos_min.core.artifact import ArtifactRef
from qitos_min.core.tool import ToolMeta
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.core.tool_result import ToolResult
from qitos_min.engine.action_executor import ActionExecutor, tool_invocation
from qitos_min.engine.cancellation import CancelToken
from tool_results import ref

ROOT = Path(__file__).resolve().parents[1]


class Stage:
    """Tools that note when they start and end, and can wait for one another."""

    def __init__(self, **metas):
        self.log = []
        self.running = self.most = 0
        self.lock = threading.Lock()
        self.gates = {}
        self.registry = ToolRegistry()
        for name, meta in metas.items():
            self.registry.register(self.tool(name), meta=ToolMeta(name=name, **meta))

    def tool(self, name):
        def work(x: int = 0, wait: str = "", opens: str = "", fail: str = ""):
            with self.lock:
                self.log.append(f"{name} starts")
                self.running += 1
                self.most = max(self.most, self.running)
            if wait:
                assert self.gate(wait).wait(5)
            if opens:
                self.gate(opens).set()
            with self.lock:
                self.running -= 1
                self.log.append(f"{name} ends")
            if fail:
                raise ValueError(fail)
            return x

        return work

    def gate(self, name):
        with self.lock:
            return self.gates.setdefault(name, threading.Event())

    def run(self, *calls, context=None, **policy):
        policy = ActionExecutionPolicy(**{"mode": "parallel", **policy})
        executor = ActionExecutor(self.registry, policy=policy)
        actions = [Action(name, args) for name, args in calls]
        return executor.run_batch(actions, runtime_context=context)


SAFE = {"concurrency_safe": True}


def outputs(batch):
    return [result.output for result in batch.results]


def statuses(batch):
    return [result.status for result in batch.results]


@pytest.mark.parametrize("mode", ["serial", "sequential", "parallel"])
def test_p1_one_failing_call_costs_no_other_its_result(mode):
    # smolagents #2457, openai-agents PR #2584, pydantic-ai #672
    stage = Stage(ok=SAFE, boom=SAFE)
    batch = stage.run(
        ("ok", {"x": 1}), ("boom", {"fail": "boom"}), ("ok", {"x": 3}), mode=mode
    )
    assert statuses(batch) == ["success", "error", "success"]
    assert outputs(batch) == [1, None, 3]
    assert batch.results[1].error == "ValueError: boom"


def test_every_kind_of_bad_call_has_its_own_result():
    stage = Stage(ok=SAFE, guarded={"needs_approval": True, **SAFE})
    calls = [
        ("nope", {}),
        ("ok", {"x": "1"}),
        ("ok", []),
        ("guarded", {}),
        ("ok", {"x": 5}),
    ]
    for mode in ("serial", "parallel"):
        batch = stage.run(*calls, mode=mode)
        assert [result.error_code for result in batch.results] == [
            "tool_not_found",
            "invalid_argument_type",
            "invalid_arguments_shape",
            "approval_required",
            None,
        ]


def test_p2_results_come_in_the_order_of_the_actions():
    # Qitor/qitos fixture runtime_handoff.v1
    stage = Stage(slow=SAFE, quick=SAFE)
    batch = stage.run(
        ("slow", {"x": 1, "wait": "go"}), ("quick", {"x": 2, "opens": "go"})
    )
    assert outputs(batch) == [1, 2]
    assert batch.execution == {
        "mode": "parallel",
        "fail_fast": False,
        "max_concurrency": 4,
        "segments": [[0, 1]],
        "completion_order": [1, 0],
    }
    json.dumps(batch.execution)


def test_p6_an_undeclared_tool_is_a_barrier():
    # QitOS #35
    stage = Stage(a=SAFE, x={}, c=SAFE)
    batch = stage.run(("a", {}), ("a", {}), ("x", {}), ("c", {}))
    assert batch.execution["segments"] == [[0, 1], [2], [3]]
    assert stage.log.index("x starts") == 4
    assert stage.log.index("c starts") > stage.log.index("x ends")


BARRIERS = [
    ({"concurrency_safe": None}, {}, {}),  # P8: a flag that nobody set is no promise
    ({"concurrency_safe": False}, {}, {}),
    ({**SAFE, "needs_approval": True}, {}, {"auto_approve": True}),
    ({**SAFE, "needs_approval": lambda args: False}, {}, {}),
    (SAFE, {"parallel_tool_names": {"other"}}, {}),
    (SAFE, {"parallel_tool_names": ()}, {}),
    (SAFE, {"mode": "serial"}, {}),
    (SAFE, {"mode": "sequential"}, {}),
    (
        SAFE,
        {},
        {
            "permission_rules": [{"tool": "x*", "decision": "ask"}],
            "auto_approve": True,
        },
    ),
]


@pytest.mark.parametrize("meta, policy, context", BARRIERS)
def test_calls_overlap_only_when_everyone_said_that_they_may(meta, policy, context):
    stage = Stage(x=meta)
    batch = stage.run(("x", {}), ("x", {}), ("x", {}), context=context, **policy)
    assert batch.execution["segments"] == [[0], [1], [2]]
    assert statuses(batch) == ["success"] * 3
    assert stage.most == 1


def test_listed_tools_may_overlap_under_their_name_or_alias():
    stage = Stage(x=SAFE)
    stage.registry.register_alias("y", "x")
    for names, call in (({"x"}, "y"), ({"y"}, "y"), ({"x"}, "x")):
        batch = stage.run((call, {}), (call, {}), parallel_tool_names=names)
        assert batch.execution["segments"] == [[0, 1]]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_calls_run_at_once_than_allowed(limit):
    stage = Stage(x=SAFE)
    gates = [("x", {"wait": "go"})] * (limit - 1) + [("x", {"opens": "go"})]
    batch = stage.run(
        *gates, *[("x", {"x": n}) for n in range(5)], max_concurrency=limit
    )
    assert statuses(batch) == ["success"] * (limit + 5)
    assert stage.most == limit


def test_serial_calls_run_in_the_calling_thread():
    registry = ToolRegistry().register(lambda: threading.get_ident(), name="t")
    batch = ActionExecutor(registry).run_batch([Action("t")])
    assert outputs(batch) == [threading.get_ident()]


def test_fail_fast_cancels_what_has_not_started():
    stage = Stage(ok={}, boom={})
    calls = [("ok", {"x": 1}), ("boom", {"fail": "b"}), ("ok", {}), ("nope", {})]
    batch = stage.run(*calls, mode="serial", fail_fast=True)
    assert statuses(batch) == ["success", "error", "cancelled", "cancelled"]
    last = batch.results[2]
    assert (last.error_kind, last.error_code) == ("execution", "batch_stopped")
    assert (last.tool_name, last.attempts) == ("ok", 0)
    assert (
        last.error
        == "not started, because an earlier call of the batch did not succeed"
    )
    assert batch.execution["completion_order"] == [0, 1]


def test_fail_fast_drains_what_has_started():
    stage = Stage(ok=SAFE, boom=SAFE, x={})
    batch = stage.run(
        ("ok", {"x": 1, "wait": "go"}),
        ("boom", {"opens": "go", "fail": "b"}),
        ("ok", {"x": 3}),
        ("ok", {"x": 4}),
        ("x", {}),
        fail_fast=True,
        max_concurrency=2,
    )
    assert statuses(batch)[:2] == ["success", "error"]
    assert outputs(batch)[0] == 1
    assert statuses(batch)[-1] == "cancelled"
    assert sorted(batch.execution["completion_order"])[:2] == [0, 1]


def test_a_refused_call_stops_a_batch_that_fails_fast():
    stage = Stage(ok={}, guarded={"needs_approval": True})
    batch = stage.run(("guarded", {}), ("ok", {}), fail_fast=True)
    assert statuses(batch) == ["skipped", "cancelled"]


def test_identities_are_filled_in_whatever_became_of_a_call():
    stage = Stage(ok={}, boom={})
    executor = ActionExecutor(
        stage.registry, policy=ActionExecutionPolicy(fail_fast=True)
    )
    names = ["ok", "boom", "ok"]
    actions = [
        Action(name, {"fail": "b" if name == "boom" else ""}, action_id=str(n))
        for n, name in enumerate(names)
    ]
    batch = executor.run_batch(actions)
    assert [r.tool_name for r in batch.results] == names
    assert [r.action_id for r in batch.results] == ["0", "1", "2"]


def test_the_record_of_a_call_keeps_status_and_reason():
    # Fault 18: denied and unknown calls counted as calls, and their reasons were lost.
    stage = Stage(ok={}, guarded={"needs_approval": True}, boom={})
    batch = stage.run(
        ("ok", {}), ("guarded", {}), ("nope", {}), ("boom", {"fail": "b"})
    )
    records = [tool_invocation(result) for result in batch.results]
    keys = ("tool_name", "status", "error_code", "error_category", "attempts", "source")
    assert [tuple(record[key] for key in keys) for record in records] == [
        ("ok", "success", None, None, 1, "function"),
        ("guarded", "skipped", "approval_required", None, 0, "function"),
        ("nope", "error", "tool_not_found", "tool_error", 0, None),
        ("boom", "error", "tool_execution_failed", "tool_error", 1, "function"),
    ]
    assert list(records[0]) == [
        "tool_name",
        "action_id",
        "status",
        "error",
        "error_code",
        "error_kind",
        "error_category",
        "attempts",
        "latency_ms",
        "worker_still_running",
        "outcome_unknown",
        "source",
    ]
    assert records[2]["error"] == "no tool is named 'nope'"
    json.dumps(records, allow_nan=False)


def test_the_calls_of_a_batch_do_not_share_what_they_change():
    def note(x: int, runtime_context=None):
        runtime_context["seen"] = x
        return sorted(runtime_context)

    registry = ToolRegistry().register(note, meta=ToolMeta(concurrency_safe=True))
    context = {"run_id": "r"}
    executor = ActionExecutor(registry, policy=ActionExecutionPolicy("parallel"))
    actions = [Action("note", {"x": n}) for n in range(4)]
    batch = executor.run_batch(actions, runtime_context=context)
    assert outputs(batch) == [["action_id", "run_id", "seen", "tool_name"]] * 4
    assert context == {"run_id": "r"}


@pytest.mark.parametrize("mode", ["serial", "sequential", "parallel"])
def test_an_immediate_cancel_stops_before_the_next_call(mode):
    stage, token = Stage(ok={}), CancelToken()
    stage.registry.register(token.cancel, name="stop")
    calls = [("ok", {"x": 1}), ("stop", {}), ("ok", {"x": 2}), ("nope", {})]
    batch = stage.run(*calls, mode=mode, context={"cancel_token": token})
    assert statuses(batch) == ["success", "success", "cancelled", "cancelled"]
    assert batch.execution["completion_order"] == [0, 1]
    assert stage.log == ["ok starts", "ok ends"]
    for result in batch.results[2:]:
        assert (result.error_kind, result.error_code) == ("execution", "run_cancelled")
        assert result.error == "not started, because the run was cancelled"
        assert result.attempts == 0
    batch = stage.run(*calls, mode=mode, context={"cancel_token": token})
    assert statuses(batch) == ["cancelled"] * 4


def test_an_immediate_cancel_drains_calls_that_run_together():
    stage, token = Stage(ok=SAFE), CancelToken()
    meta = ToolMeta(name="stop", concurrency_safe=True)
    stage.registry.register(lambda: token.cancel(), meta=meta)
    calls = [("ok", {"x": 1}), ("stop", {}), *[("ok", {"x": 2})] * 3]
    batch = stage.run(*calls, max_concurrency=1, context={"cancel_token": token})
    assert batch.execution["segments"] == [[0, 1, 2, 3, 4]]
    assert statuses(batch) == ["success"] * 2 + ["cancelled"] * 3


@pytest.mark.parametrize("token", [None, 5, CancelToken()])
def test_without_an_immediate_cancel_a_batch_is_completed(token):
    stage = Stage(ok={})
    if isinstance(token, CancelToken):
        token.cancel("after_step")
    batch = stage.run(("ok", {}), ("ok", {}), context={"cancel_token": token})
    assert statuses(batch) == ["success", "success"]


NO_THREADS = """
import resource, threading
from qitos_min.core.action import Action, ActionExecutionPolicy
from qitos_min.core.tool import ToolMeta
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.engine.action_executor import ActionExecutor
registry = ToolRegistry().register(
    lambda: threading.current_thread().name, name="t",
    meta=ToolMeta(concurrency_safe=True),
)
executor = ActionExecutor(registry, policy=ActionExecutionPolicy("parallel"))
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2**22, resource.RLIM_INFINITY))
threading.stack_size(2**28)
print([result.output for result in executor.run_batch([Action("t")] * 3).results])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
def test_without_threads_the_calls_run_one_by_one():
    done = subprocess.run(
        [sys.executable, "-c", NO_THREADS],
        capture_output=True,
        text=True,
        timeout=20,
        cwd=ROOT,
    )
    assert (done.stdout.strip(), done.stderr) == (str(["MainThread"] * 3), "")


def test_the_record_of_a_call_has_references_only_when_there_are_any():
    registry = ToolRegistry().register(
        lambda: ToolResult(artifact_refs=[ref("a1"), ref("a2")]), name="t"
    )
    (result,) = ActionExecutor(registry).run_batch([Action("t")]).results
    record = json.loads(json.dumps(tool_invocation(result)))
    assert [ArtifactRef.from_dict(item) for item in record["artifact_refs"]] == [
        ref("a1"),
        ref("a2"),
    ]
    assert "artifact_refs" not in tool_invocation(ToolResult())


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_an_interrupt_is_raised_in_the_calling_thread(mode):
    def interrupt():
        raise KeyboardInterrupt

    registry = ToolRegistry().register(interrupt, meta=ToolMeta(concurrency_safe=True))
    executor = ActionExecutor(registry, policy=ActionExecutionPolicy(mode))
    with pytest.raises(KeyboardInterrupt):
        executor.run_batch([Action("interrupt"), Action("interrupt")])


def test_an_empty_batch_is_fine():
    batch = ActionExecutor(ToolRegistry()).run_batch([])
    assert (batch.results, batch.execution["segments"]) == ([], [])


def test_the_process_can_exit_while_parallel_tools_hang():
    program = (
        "import threading\n"
        "from qitos_min.core.action import Action, ActionExecutionPolicy\n"
        "from qitos_min.core.tool import ToolMeta\n"
        "from qitos_min.core.tool_registry import ToolRegistry\n"
        "from qitos_min.engine.action_executor import ActionExecutor\n"
        "hang = threading.Event().wait\n"
        "meta = ToolMeta(name='t', timeout_s=0.05, concurrency_safe=True)\n"
        "registry = ToolRegistry().register(lambda: hang(), meta=meta)\n"
        "policy = ActionExecutionPolicy('parallel')\n"
        "executor = ActionExecutor(registry, policy=policy)\n"
        "batch = executor.run_batch([Action('t'), Action('t')])\n"
        "print([result.status for result in batch.results])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=20,
        cwd=ROOT,
    )
    assert (done.stdout.strip(), done.stderr) == ("['timed_out', 'timed_out']", "")


def test_any_mix_of_calls_gives_one_result_each_in_order():
    source = random.Random(3)
    stage = Stage(safe=SAFE, alone={}, guarded={"needs_approval": True})
    for _ in range(40):
        calls = [
            (source.choice(["safe", "safe", "alone", "guarded", "nope"]), {"x": n})
            for n in range(source.randrange(1, 9))
        ]
        batch = stage.run(*calls, max_concurrency=source.randrange(1, 5))
        assert [r.tool_name for r in batch.results] == [name for name, _ in calls]
        for place, (name, args) in enumerate(calls):
            ran = name in ("safe", "alone")
            assert batch.results[place].output == (args["x"] if ran else None)
        assert sorted(batch.execution["completion_order"]) == list(range(len(calls)))
        assert sum(batch.execution["segments"], []) == list(range(len(calls)))


def test_a_trivial_call_is_cheap():
    registry = ToolRegistry().register(lambda a: a, name="same")
    executor, actions = ActionExecutor(registry), [Action("same", {"a": 1})]
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(100):
            executor.run_batch(actions)
        best = min(best, (time.process_time() - started) / 100)
    assert best < 0.001
