"""One batch of actions to one result each, in the order of the actions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from ..core import ErrorCategory, ToolRegistry, ToolResult
from ..core._foreign import guarded, outcome
from ..core._threads import AT_WORK, RunThreads
from ..core._tool_call import is_cancelled, may_ask
from ..core.action import Action, ActionExecutionPolicy, ActionResult, ActionStatus
from .cancellation import CancelToken

__all__ = ["ActionBatch", "ActionExecutionPolicy", "ActionExecutor", "tool_invocation"]

_INVOCATION = ["tool_name", "action_id", "status", "error", "error_code", "error_kind"]
_INVOCATION += ["error_category", "attempts", "latency_ms", "worker_still_running"]
_INVOCATION += ["outcome_unknown", "source"]
_SHORT = ("output", "error", "action_id", "attempts", "latency_ms")
Actions = Sequence[Action]
# Why an action was not started, by code.
_CAUSES = {
    "budget_time": "the time of the run was used up",
    "batch_stopped": "an earlier call of the batch did not succeed",
    "run_cancelled": "the run was cancelled",
}


@dataclass(frozen=True)
class ActionBatch:
    """What came of the actions of one decision."""

    results: list[ToolResult]  # One per action, in the order of the actions.
    # How the batch was run, as JSON: ``mode``, ``fail_fast``, ``max_concurrency``,
    # ``segments`` and ``completion_order``; both lists hold positions of actions.
    execution: dict[str, Any]


@dataclass(slots=True)
class _Batch:
    """What the threads of one batch share."""

    actions: Actions
    registry: ToolRegistry
    context: Mapping[str, Any]
    results: dict[int, ToolResult] = field(default_factory=dict)  # In the order of completion.
    began: dict[int, float] = field(default_factory=dict)
    raised: list[BaseException] = field(default_factory=list)
    at_work: int = 0
    peak: int = 0  # The most calls at one time.
    stopped: bool = False  # Whether a call failed after which none is to follow.
    late: bool = False  # Whether the time of the run was used up during a call.

    @property
    def is_over(self) -> bool:
        """Whether no further call is to be started."""
        return self.stopped or self.late or is_cancelled(self.context)


class ActionExecutor:
    """Runs batches of actions under one policy, by default one action after the other.

    ``tool_registry`` is any object whose ``get(name)`` gives a tool or None; ``cancel_token``
    may end a batch made by ``execute``. Around each call ``watch`` is called with a moment
    (``before`` or ``after``), the action and its result (None before).
    """

    def __init__(
        self,
        tool_registry: Any,
        policy: ActionExecutionPolicy | None = None,
        *,
        cancel_token: CancelToken | None = None,
        watch: Callable[[str, Action, ToolResult | None], None] | None = None,
    ) -> None:
        self.tool_registry = tool_registry
        self.policy = policy if policy is not None else ActionExecutionPolicy()
        self.cancel_token = cancel_token
        # ``policy`` and ``concurrency_peak`` of the latest batch.
        self.last_execution_stats: dict[str, Any] = {}
        self.finished: list[ToolResult] = []  # The results before Ctrl-C ended the latest batch.
        self._watch = watch

    def execute(self, actions: Actions, env: Any = None, state: Any = None) -> list[ActionResult]:
        """Run each action and return one ``ActionResult`` per action, in their order.

        Its metadata tells of limits, times (UTC), segment and cancellation.
        """
        context = {"env": env, "state": state, "cancel_token": self.cancel_token}
        batch, execution = self._batch(actions, context)
        segment = {p: i for i, places in enumerate(execution["segments"]) for p in places}
        return [_short_result(batch, place, segment[place]) for place in range(len(batch.actions))]

    def run_batch(
        self, actions: Actions, runtime_context: Mapping[str, Any] | None = None
    ) -> ActionBatch:
        """Run each action and return one result per action.

        Actions that may run together do so; every other action waits for those before it and
        runs alone. With the context's ``threads``, as in a run, tools work in these, so that
        one that hangs can be left behind; with a ``CancelToken`` and no threads, in threads of
        this batch. Checks and approvals are in the calling thread, and without a token so is a
        lone call. No further action is started when the ``cancel_token`` says ``immediate`` or
        the time of the run is used up. Only ``KeyboardInterrupt`` is raised.
        """
        batch, execution = self._batch(actions, runtime_context or {})
        return ActionBatch([batch.results[p] for p in range(len(batch.actions))], execution)

    def _batch(self, actions: Actions, context: Mapping[str, Any]) -> tuple[_Batch, dict[str, Any]]:
        """Run the actions; the batch then has a result for each."""
        token, given = context.get("cancel_token"), context.get("threads")
        own = RunThreads(token) if given is None and isinstance(token, CancelToken) else None
        context = context if own is None else {**context, "threads": own}
        batch = _Batch(list(actions), _registry_of(self.tool_registry, actions), context)
        try:
            segments = self._segments(batch)
            for segment in segments:
                if batch.is_over:
                    break
                if len(segment) == 1:
                    self._run(segment[0], batch)
                else:
                    self._run_together(segment, batch)
        except KeyboardInterrupt:
            self.finished = [result for _, result in sorted(dict(batch.results).items())]
            raise
        finally:
            if own is not None:
                own.close()
        # A copy first: a worker that an interrupt left behind may still add to it.
        batch.results = dict(batch.results)
        policy = self.policy
        execution: dict[str, Any] = {"mode": policy.mode, "fail_fast": policy.fail_fast}
        execution |= {"max_concurrency": policy.max_concurrency, "segments": segments}
        execution["completion_order"] = list(batch.results)
        why = "budget_time" if batch.late else "batch_stopped" if batch.stopped else "run_cancelled"
        for place, action in enumerate(batch.actions):
            if place not in batch.results:
                name = batch.registry.resolve_name(action.name) or action.name
                told: Any = {"tool_name": name, "action_id": action.action_id, "attempts": 0}
                told |= {"error": f"not started, because {_CAUSES[why]}", "status": "cancelled"}
                batch.results[place] = ToolResult.execution_error(code=why, **told)
        self.last_execution_stats = {"policy": vars(policy), "concurrency_peak": batch.peak}
        return batch, execution

    def _segments(self, batch: _Batch) -> list[list[int]]:
        """The positions of the actions; those in one list may run together."""
        segments: list[list[int]] = []
        registry, allowed, together = batch.registry, self.policy.parallel_tool_names, False
        for place, action in enumerate(batch.actions):
            name = registry.resolve_name(action.name) if self.policy.mode == "parallel" else None
            free = (
                name is not None
                and registry.resolve(name).spec.concurrency_safe is True
                and (allowed is None or name in allowed or action.name in allowed)
                and not may_ask(registry, name, batch.context)
            )
            if not (free and together):
                segments.append([])
            segments[-1].append(place)
            together = free
        return segments

    def _run(self, place: int, batch: _Batch) -> None:
        action, threads = batch.actions[place], batch.context.get("threads")
        batch.began[place] = time.time()
        batch.at_work += 1
        batch.peak = max(batch.peak, batch.at_work)
        mark = AT_WORK.set(threads.caller if threads is not None else AT_WORK.get())
        try:
            if self._watch is not None:
                self._watch("before", action, None)
            result = batch.results[place] = batch.registry.execute(action, batch.context)
            if self._watch is not None:
                self._watch("after", action, result)
        finally:
            AT_WORK.reset(mark)
            batch.at_work -= 1
        batch.late = batch.late or result.error_code == "budget_time"
        if self.policy.fail_fast and not result.is_success:
            batch.stopped = True

    def _run_together(self, segment: list[int], batch: _Batch) -> None:
        waiting = iter(segment)
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    place = None if batch.is_over else next(waiting, None)
                if place is None:
                    return
                _, error = outcome(self._run, place, batch)
                if error is not None:  # The waiting thread raises it.
                    batch.raised.append(error)
                    batch.stopped = True

        # Not a ThreadPoolExecutor: the process would wait for its threads at exit.
        threads = batch.context.get("threads") or RunThreads()
        count = min(self.policy.max_concurrency, len(segment))
        begun = [guarded(threads.start, work) for _ in range(count)]
        started = [found[0] for found, error in begun if error is None]
        if not started:  # The system has no thread to spare.
            work()
        try:
            for each in started:
                threads.wait(each, patient=True)
        except BaseException:  # After Ctrl-C nothing more is to begin.
            batch.stopped = True
            raise
        finally:
            if batch.context.get("threads") is None:
                threads.close()
        if batch.raised:
            raise batch.raised[0]


def _registry_of(source: Any, actions: Actions) -> ToolRegistry:
    if isinstance(source, ToolRegistry):
        return source
    registry = ToolRegistry()
    for name in dict.fromkeys(action.name for action in actions):
        if (tool := source.get(name)) is not None:
            registry.register(tool, name=name)
    return registry


def _short_result(batch: _Batch, place: int, segment: int) -> ActionResult:
    action, result = batch.actions[place], batch.results[place]
    tool = batch.registry.get(action.name)
    limits = {"action": action.timeout_s, "tool": tool.spec.timeout_s if tool else None}
    source = next((name for name, limit in limits.items() if limit is not None), None)
    began, times = batch.began.get(place), []
    if began is not None:
        moments = (began, began + result.latency_ms / 1000)
        times = [datetime.fromtimestamp(moment, timezone.utc).isoformat() for moment in moments]
    metadata = {
        **result.metadata,
        "timeout_source": source,
        "timeout_s": limits.get(source or ""),
        "worker_still_running": result.worker_still_running,
        "cancel_source": result.error_code if result.status == "cancelled" else None,
        "segment_index": segment,
        **dict(zip(("started_at", "ended_at"), times or (None, None))),
    }
    told = {name: getattr(result, name) for name in _SHORT}
    return ActionResult(action.name, ActionStatus(result.status), **told, metadata=metadata)


def tool_invocation(result: ToolResult) -> dict[str, Any]:
    """The entry of a record's ``tool_invocations``; ``artifact_refs`` only where there are any."""
    failed = result.status in ("error", "timed_out")
    record = dict(zip(_INVOCATION, map(vars(result).get, _INVOCATION)))
    record["error_category"] = ErrorCategory.TOOL.value if failed else None
    record["source"] = result.provenance.get("source")
    if result.artifact_refs:
        record["artifact_refs"] = [ref.to_dict() for ref in result.artifact_refs]
    return record
