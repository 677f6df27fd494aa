"""Running a tool whose call passed the checks: threads, time limits, retries."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from io import IOBase
from typing import TYPE_CHECKING, Any

from ._contract import detach_json
from ._foreign import described, guarded
from ._json import to_json_value
from ._threads import LAST_GRACE, LeftBehind, RunThreads, settled
from ._tool_output import limit_output, raised
from .tool import ToolSpec
from .tool_result import ToolResult

if TYPE_CHECKING:
    from ._tool_call import Call

_MAX_YIELDED = 10_000


def is_cancelled(context: Mapping[str, Any]) -> bool:
    """Whether the ``cancel_token`` of a runtime context says to stop at once."""
    return getattr(context.get("cancel_token"), "mode", None) == "immediate"


def execute(call: Call) -> ToolResult:
    """Run the tool, with its time limit and retries."""
    started = time.perf_counter()
    spec, policy = call.spec, call.spec.retry_policy
    limits = (call.action.timeout_s, spec.timeout_s, call.context.get("timeout_s"))
    limit = next((seconds for seconds in limits if seconds is not None), None)
    failures: list[str] = []
    allowed = _allowed_attempts(call)
    for attempt in range(1, allowed + 1):
        result, call.error = _attempt(call, limit)
        last = attempt == allowed or is_cancelled(call.context)
        if last or not _may_repeat(spec, result, call.error):
            break
        if policy is not None and not _waited(call, policy.delay(attempt)):
            break
        failures.append(result.error or result.status)
    if call.error is not None and spec.on_failure is not None:
        result = _after_failure(spec.on_failure, result, call.error)
    if failures:
        result.metadata["failed_attempts"] = failures
    limit_output(result, spec.result_max_chars, call.context)
    result.attempts = attempt
    result.latency_ms = (time.perf_counter() - started) * 1000.0
    return result


def _waited(call: Call, seconds: float) -> bool:
    """Wait before the next attempt; False when the run is to end meanwhile."""
    threads = call.context.get("threads")
    if threads is not None:
        return bool(threads.pause(seconds))
    time.sleep(seconds)
    return True


def _allowed_attempts(call: Call) -> int:
    policy, asked = call.spec.retry_policy, call.action.max_retries
    if not call.action.idempotent:
        return 1
    return policy.max_attempts if policy and not asked else 1 + (asked or call.spec.max_retries)


def _may_repeat(spec: ToolSpec, result: ToolResult, error: BaseException | None) -> bool:
    if error is not None:
        policy = spec.retry_policy
        return isinstance(error, policy.retryable_exceptions if policy else Exception)
    if result.status == "timed_out":
        late = result.error_code == "budget_time"
        return spec.read_only and not result.outcome_unknown and not late
    return result.retry_disposition == "retryable"


def _attempt(call: Call, limit: float | None) -> tuple[ToolResult, BaseException | None]:
    """The result of one attempt and the exception of the tool, if it raised one."""
    given: list[Any] = []
    call.value = None

    def work() -> Any:
        value = settled(call.tool.execute(detach_json(call.args), dict(call.context)))
        return _drained(value, given)

    threads = call.context.get("threads")
    if limit is None and (threads is None or call.tool.in_calling_thread):
        value, error = guarded(work)
    else:
        used = RunThreads() if threads is None else threads
        done, error = guarded(used.run, work, limit)
        if threads is None:
            used.close(0 if isinstance(done, LeftBehind) else LAST_GRACE)
        if isinstance(done, LeftBehind):
            return _left_behind(call, done, limit, given), None
        value, error = done or (None, error)
        if isinstance(error, KeyboardInterrupt):
            raise error
    if error is not None:
        return raised(error, given), error
    call.value = value
    result, broken = guarded(ToolResult.from_value, value)
    if broken is None:
        return result, None
    text = f"tool {call.name!r} returned a result that is broken: {described(broken)}"
    return ToolResult.execution_error(code="invalid_tool_result", error=text), None


def _left_behind(call: Call, left: LeftBehind, limit: float | None, given: list[Any]) -> ToolResult:
    """The result of a tool that was not waited for any longer; it may have yielded."""
    late, code = {
        "timeout": (f"did not end within {limit or 0:g} s", "tool_timeout"),
        "cancelled": ("was at work when the run was cancelled", "run_cancelled"),
        "budget_time": ("was at work when the run's time was used up", "budget_time"),
    }[left.cause]
    unknown = not call.spec.read_only
    name, action_id = call.name, call.action.action_id
    after = "requires_reconciliation" if unknown else "not_evaluated"
    return ToolResult(
        status="cancelled" if left.cause == "cancelled" else "timed_out",
        # The tool may be adding to the list.
        output=to_json_value(list(given)) or None,
        error=f"tool {name!r} {late} and {'is still running' if left.running else 'was stopped'}",
        error_kind="execution",
        error_code=code,
        worker_still_running=left.running,
        retry_disposition="blocked_worker_running" if left.running else after,
        outcome_unknown=unknown,
        effect_state="unknown" if unknown else "no_effect_declared",
        effect_ref=(f"{name}:{action_id}" if action_id else name) if unknown else None,
    )


def _after_failure(
    answer: Callable[[BaseException], Any], result: ToolResult, error: BaseException
) -> ToolResult:
    """What ``on_failure`` makes of an exception; it hides neither of two failures."""

    def changed() -> ToolResult | None:
        value = settled(answer(error))
        return None if value is None else ToolResult.from_value(value)

    new, problem = guarded(changed)
    if problem is not None:
        result.metadata["on_failure_error"] = described(problem)
    if new is None:
        return result
    new.metadata.update(result.metadata, failure=result.error)
    return new


def _drained(value: Any, given: list[Any]) -> Any:
    """A value, or the list of those that a generator or another iterator gives.

    They are added to ``given`` as they come, so that a failure costs none of them. A
    value that a generator returns at its end comes last.
    """

    def take(item: Any) -> None:
        if len(given) == _MAX_YIELDED:
            raise ValueError(f"the tool yielded more than {_MAX_YIELDED} values")
        given.append(item)

    async def drain(items: AsyncIterator[Any]) -> None:
        try:
            async for item in items:
                take(item)
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

    if isinstance(value, AsyncIterator):
        settled(drain(value))
        return given
    if not isinstance(value, Iterator) or isinstance(value, IOBase):
        return value
    try:
        while True:
            take(next(value))
    except StopIteration as end:
        if end.value is not None:
            take(end.value)
    finally:
        if isinstance(value, Generator):
            value.close()
    return given
