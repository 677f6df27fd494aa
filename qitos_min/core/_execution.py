"""Running a tool whose call passed the checks: threads, time limits, retries."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from io import IOBase
from typing import TYPE_CHECKING, Any

from ._contract import detach_json
from ._foreign import described, guarded, traced
from ._json import to_json_value
from ._threads import LAST_GRACE, LeftBehind, RunThreads, settled
from ._shorten import CUT_MARK, both_ends, joined, within
from .artifact import ArtifactRef
from .tool_result import RetryDisposition, ToolResult

if TYPE_CHECKING:
    from ._tool_call import Call

_MAX_YIELDED = 10_000


def is_cancelled(context: Mapping[str, Any]) -> bool:
    """Whether the ``cancel_token`` of a runtime context says to stop at once."""
    return getattr(context.get("cancel_token"), "mode", None) == "immediate"


def execute(call: Call) -> ToolResult:
    started = time.perf_counter()
    action, spec, policy = call.action, call.spec, call.spec.retry_policy
    limits = (action.timeout_s, spec.timeout_s, call.context.get("timeout_s"))
    limit = next((seconds for seconds in limits if seconds is not None), None)
    allowed = 1 + (action.max_retries or spec.max_retries)
    if policy is not None and not action.max_retries:
        allowed = policy.max_attempts
    allowed = allowed if action.idempotent else 1
    threads: Any = call.context.get("threads")
    pause = time.sleep if threads is None else threads.pause
    failures: list[str] = []
    for attempt in range(1, allowed + 1):
        result, call.error = _attempt(call, limit)
        again = result.retry_disposition == "retryable"
        if call.error is not None:
            again = isinstance(call.error, policy.retryable_exceptions if policy else Exception)
        elif result.status == "timed_out":
            sure = spec.read_only and not result.outcome_unknown
            again = sure and result.error_code != "budget_time"
        if attempt == allowed or is_cancelled(call.context) or not again:
            break
        if policy is not None and pause(policy.delay(attempt)) is False:
            break
        failures.append(result.error or result.status)
    if call.error is not None and spec.on_failure is not None:
        result = _after_failure(call, result)
    if failures:
        result.metadata["failed_attempts"] = failures
    _limit_output(result, spec.result_max_chars, call.context)
    result.attempts = attempt
    result.latency_ms = (time.perf_counter() - started) * 1000.0
    return result


def _attempt(call: Call, limit: float | None) -> tuple[ToolResult, BaseException | None]:
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
    name, action_id, unknown = call.name, call.action.action_id, not call.spec.read_only
    after: RetryDisposition = "requires_reconciliation" if unknown else "not_evaluated"
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


def _after_failure(call: Call, result: ToolResult) -> ToolResult:
    """What ``on_failure`` makes of an exception; it hides neither of two failures."""
    answer: Any = call.spec.on_failure
    value, problem = guarded(lambda: settled(answer(call.error)))
    if value is not None:
        value, problem = guarded(ToolResult.from_value, value)
    if problem is not None:
        result.metadata["on_failure_error"] = described(problem)
    if value is None:
        return result
    value.metadata.update(result.metadata, failure=result.error)
    return value


def _drained(value: Any, given: list[Any]) -> Any:
    """A value, or ``given`` with those that an iterator gives and what it returns at last.

    They are added as they come, so that a failure costs none of them.
    """

    def take(item: Any) -> None:
        if len(given) == _MAX_YIELDED:
            raise ValueError(f"the tool yielded more than {_MAX_YIELDED} values")
        given.append(item)

    async def drain() -> list[Any]:
        try:
            async for item in value:
                take(item)
        finally:
            if isinstance(value, AsyncGenerator):
                await value.aclose()
        return given

    if isinstance(value, AsyncIterator):
        return settled(drain())
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


def _limit_output(result: ToolResult, limit: int | None, context: Mapping[str, Any]) -> None:
    """Cut what a model is shown; an artifact store takes an output that is too long."""
    if limit is None:
        return
    text = joined(result.output)
    if len(text) > limit:
        ref, error = guarded(_stored, result.output, context)
        if error is not None:
            result.metadata["artifact_error"] = described(error)
        elif ref is not None:
            result.artifact_refs = tuple(dict.fromkeys((*result.artifact_refs, ref)))
            result.output = _cut(result, result.output, text, limit)
            result.complete = False
            text = ""
    if result.model_output is not None:
        text = joined(result.model_output)
    if len(text) > limit:
        shown = result.output if result.model_output is None else result.model_output
        result.model_output = _cut(result, shown, text, limit)


def _cut(result: ToolResult, value: Any, text: str, limit: int) -> Any:
    """What is left of a value whose text is too long; the mark of a text is not counted."""
    kept = within(value, limit) if isinstance(value, dict) else both_ends(text, limit)
    result.truncated = True
    result.omitted["chars"] = len(text) - len(joined(kept).replace(CUT_MARK, ""))
    return kept


def _stored(output: Any, context: Mapping[str, Any]) -> ArtifactRef | None:
    """The reference to an output in the store; None where there is no store."""
    store = context.get("artifact_resolver")
    store = getattr(context.get("env"), "artifact_store", None) if store is None else store
    if store is None:
        return None
    body = joined(output).encode("utf-8")
    digest = hashlib.sha256(body).hexdigest()
    kind = "text/plain" if isinstance(output, str) else "application/json"
    ref = ArtifactRef(f"output-{digest}", store.resolver_key, digest, kind, len(body), "utf-8")
    store.put(ref, body)
    return ref


def raised(error: BaseException, given: Sequence[Any] = ()) -> ToolResult:
    """The result of a tool that raised, with what it yielded and its command printed."""
    printed: dict[str, Any] = {}
    for name in ("stdout", "stderr"):
        text = getattr(error, name, None)
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        printed[name] = to_json_value(text) if isinstance(text, str) else None
    output: Any = printed if any(printed.values()) else None
    if given:
        output = to_json_value([*given, output] if output else list(given))
    told = {"output": output, "metadata": {"traceback": traced(error)}}
    return ToolResult.execution_error(code="tool_execution_failed", error=described(error), **told)
