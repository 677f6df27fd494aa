"""One tool call from its arguments to its result: the checks, then the attempts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import IOBase
from typing import TYPE_CHECKING, Any

from ._contract import detach_json
from ._foreign import CUT_MARK, both_ends, described, guarded, joined, traced, within
from ._json import to_json_value
from ._json_schema import Fault, check_value, is_plain_fit
from ._threads import LAST_GRACE, LeftBehind, RunThreads, settled
from .action import Action
from .artifact import ArtifactRef
from .tool import BaseTool, RetryPolicy, ToolPermissionSpec, ToolSpec
from .tool_result import ToolResult

if TYPE_CHECKING:
    from .tool_registry import ToolRegistry

_DECISIONS = ("deny", "ask", "allow")
_MAX_YIELDED = 10_000
_PLAIN = {type(None), bool, int, float, str, list, dict}  # Nothing to wait for or to draw from.
_AT_ONCE = RetryPolicy(backoff_factor=0.0)  # For a tool that only says how often.


@dataclass
class Call:
    registry: ToolRegistry
    tool: BaseTool
    spec: ToolSpec
    name: str  # The canonical name.
    args: Any  # The arguments as sent, detached by the first check; tools get copies.
    context: dict[str, Any]
    action: Action
    decision: str = "default"  # What the permission rules say.
    value: Any = None  # What the tool returned, as it is.
    error: BaseException | None = None  # What the tool raised in its last attempt.


def call_tool(
    registry: ToolRegistry, action: Action, runtime_context: Mapping[str, Any] | None
) -> tuple[ToolResult, Call | None]:
    """The result of a call, and the call if the tool is known; raises Ctrl-C only."""
    name, call = registry.resolve_name(action.name), None
    if name is None:
        found = registry.suggest(str(action.name))
        told: Any = {"metadata": {"suggestions": found}, "recoverable": True, "attempts": 0}
        text = unknown_tool(str(action.name), found)
        result = ToolResult.semantic_error(code="tool_not_found", error=text, **told)
    else:
        tool, source = registry._tools[name], registry._sources[name]
        context = {**(runtime_context or {}), "tool_name": name, "action_id": action.action_id}
        call = Call(registry, tool, tool.spec, name, action.args, context, action)
        result = _refusal(call) or execute(call)
        result.provenance.setdefault("source", source)
    result.tool_name, result.action_id = name or str(action.name), action.action_id
    return result, call


def unknown_tool(name: str, suggestions: Iterable[str]) -> str:
    hint = " or ".join(map(repr, suggestions))
    return f"no tool is named {name!r}" + (f", did you mean {hint}?" if hint else "")


def _refusal(call: Call) -> ToolResult | None:
    for check, code, place, kind, status in _CHECKS:
        fault, error = guarded(check, call)
        if error is not None:
            fault = Fault(code, f"{place} of tool {call.name!r} raised {described(error)}")
        if fault is not None:
            told: Any = {"metadata": {"traceback": traced(error)}} if error else {}
            told |= {"error_kind": kind, "recoverable": kind == "semantic", "attempts": 0}
            return ToolResult(status, error=fault.message, error_code=fault.code, **told)
    return None


def _check_structure(call: Call) -> Fault | None:
    if type(call.args) is not dict and not isinstance(call.args, Mapping):
        text = f"the arguments must be an object, got {type(call.args).__name__}"
        return Fault("invalid_arguments_shape", text)
    args = {}
    for name, value in call.args.items():
        if not isinstance(name, str):
            return Fault("invalid_json_value", f"argument names must be text, got {name!r}")
        try:
            args[name] = detach_json(value)
        except ValueError as error:
            return Fault("invalid_json_value", f"argument {name!r} holds {error}")
    schema, signature = call.spec.arguments_schema(), call.tool._signature
    fault = None if is_plain_fit(args, schema) else check_value(args, schema)
    parts = schema.get("properties", {}) if isinstance(schema, dict) else {}
    for name, value in args.items():
        part = parts.get(name) if isinstance(value, float) else None
        if isinstance(part, dict) and part.get("type") == "integer":
            args[name] = int(value)  # JSON Schema's rule: 2.0 is an integer.
    call.args = args
    if fault is None and signature is not None and schema is signature.schema:
        return signature.misfit(args)
    return fault


def _check_input(call: Call) -> Fault | None:
    if getattr(call.tool.validate_input, "__func__", None) is BaseTool.validate_input:
        return None
    problem: Any = settled(call.tool.validate_input(detach_json(call.args), dict(call.context)))
    if problem is None or problem is True or problem == "":
        return None
    if not isinstance(problem, str):
        problem = f"validate_input returned {type(problem).__name__}, expected None or a text"
    return Fault("validation_failed", problem)


def _check_rules(call: Call) -> Fault | None:
    if not (rules := call.context.get("permission_rules")):
        return None
    if not isinstance(rules, (list, tuple)):  # An iterator would guard the first call only.
        raise ValueError(f"permission_rules must be a list, got {type(rules).__qualname__}")
    found = {rule["decision"] for rule in rules if _is_hit(call, rule)}
    call.decision = next((word for word in _DECISIONS if word in found), "default")
    if call.decision == "deny":
        return Fault("permission_denied", f"a rule denies tool {call.name!r}")
    return None


def _is_hit(call: Call, rule: Any) -> bool:
    """Whether a rule speaks about a call, by patterns for its names and for its scope."""
    known = isinstance(rule, Mapping) and rule.keys() <= {"tool", "decision", "scope"}
    if not known or not isinstance(rule.get("tool"), str) or rule.get("decision") not in _DECISIONS:
        keys = "'tool' and 'decision' (deny, ask or allow) and may have 'scope'"
        raise ValueError(f"a permission rule needs {keys}, got {rule!r}")
    if not any(fnmatchcase(n, rule["tool"]) for n in call.registry.names_of(call.name)):
        return False
    if rule.get("scope") is None:
        return True
    build = call.spec.rule_scope_builder
    scope = settled(build(detach_json(call.args))) if build is not None else None
    # What cannot be told apart is restricted, never set free.
    return rule["decision"] != "allow" if scope is None else fnmatchcase(scope, rule["scope"])


def may_ask(registry: ToolRegistry, name: str, context: Mapping[str, Any]) -> bool:
    """Whether a call may have to wait for a person, whatever its arguments are."""
    if registry.resolve(name).spec.needs_approval:
        return True
    rules, names = context.get("permission_rules"), registry.names_of(name)
    # Rules that cannot be read deny every call, so nobody is asked.
    rules = rules if isinstance(rules, (list, tuple)) else ()
    asking = [r for r in rules if isinstance(r, Mapping) and r.get("decision") == "ask"]
    return any(fnmatchcase(name, str(rule.get("tool"))) for rule in asking for name in names)


def _check_approval(call: Call) -> Fault | None:
    if call.decision == "allow" or call.context.get("auto_approve") is True:
        return None
    needed = call.decision == "ask" or call.spec.needs_approval
    if callable(needed):
        needed = settled(needed(detach_json(call.args)))
    if not needed:
        return None
    callback = call.context.get("approval_callback")
    if callback is None:
        what = "there is neither an approval_callback to ask nor auto_approve"
        return Fault("approval_required", f"tool {call.name!r} needs approval, and {what}")
    record = ToolPermissionSpec.from_spec(call.spec)
    answer = settled(callback(call.name, detach_json(call.args), record))
    pair = isinstance(answer, (tuple, list)) and len(answer) == 2
    approved, reason = answer if pair else (answer, None)
    if approved is True:
        return None
    if approved is not False:
        reason = f"the approval callback answered a {type(approved).__name__}, expected a bool"
    text = f"approval of tool {call.name!r} was denied"
    return Fault("approval_denied", f"{text}: {reason}" if reason else text)


def _check_ops(call: Call) -> Fault | None:
    env = call.context.get("env")
    for group in call.spec.required_ops:
        ops = dict(call.context.get("ops") or ())
        if group not in ops and env is not None:
            ops[group] = env.get_ops(group)
        if ops.get(group) is None:
            lacks = "there is none" if env is None else "this one has none"
            text = f"tool {call.name!r} needs an environment with {group!r} operations"
            return Fault("env_required", f"{text}, {lacks}")
        call.context["ops"] = ops
    return None


_WRONG, _FORBIDDEN = ("semantic", "error"), ("policy", "skipped")
# A check; code and words for when it fails itself; kind and status of a refusal.
_CHECKS: tuple[Any, ...] = (
    (_check_structure, "invalid_input_schema", "the check of the arguments", *_WRONG),
    (_check_input, "validation_failed", "validate_input", *_WRONG),
    (_check_rules, "permission_denied", "the check of the permission rules", *_FORBIDDEN),
    (_check_approval, "approval_denied", "the approval", *_FORBIDDEN),
    (_check_ops, "env_required", "the look-up of operations", "execution", "error"),
)


def is_cancelled(context: Mapping[str, Any]) -> bool:
    """Whether the ``cancel_token`` of a runtime context says to stop at once."""
    return getattr(context.get("cancel_token"), "mode", None) == "immediate"


def execute(call: Call) -> ToolResult:
    started = time.perf_counter()
    action, spec = call.action, call.spec
    limit = action.timeout_s or spec.timeout_s or call.context.get("timeout_s")
    policy, allowed = spec.retry_policy or _AT_ONCE, 1 + (action.max_retries or spec.max_retries)
    if policy is not _AT_ONCE and not action.max_retries:
        allowed = policy.max_attempts
    allowed = allowed if action.idempotent else 1
    pause = getattr(call.context.get("threads"), "pause", time.sleep)
    failures: list[str] = []
    for attempt in range(1, allowed + 1):
        result, call.error = _attempt(call, limit, attempt == allowed)
        again = result.retry_disposition == "retryable"
        if call.error is not None:
            again = isinstance(call.error, policy.retryable_exceptions)
        elif result.status == "timed_out":
            sure = spec.read_only and not result.outcome_unknown
            again = sure and result.error_code != "budget_time"
        ended = not again or attempt == allowed or is_cancelled(call.context)
        if ended or pause(policy.delay(attempt)) is False:
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


def _attempt(call: Call, limit: float | None, last: bool) -> tuple[ToolResult, Any]:
    given: list[Any] = []
    call.value = None

    def work() -> Any:
        args = call.args if last else detach_json(call.args)
        answer = call.tool.execute(args, call.context if last else dict(call.context))
        return answer if type(answer) in _PLAIN else _drained(settled(answer), given)

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
    fate = "is still running" if left.running else "was stopped"
    told: Any = {"error": f"tool {call.name!r} {late} and {fate}", "error_code": code}
    told |= {"error_kind": "execution", "worker_still_running": left.running}
    told["output"] = to_json_value(list(given)) or None  # The tool may be adding to the list.
    if not call.spec.read_only:
        ref = f"{call.name}:{call.action.action_id}" if call.action.action_id else call.name
        told |= {"outcome_unknown": True, "effect_state": "unknown", "effect_ref": ref}
        told["retry_disposition"] = "requires_reconciliation"
    if left.running:
        told["retry_disposition"] = "blocked_worker_running"
    return ToolResult("cancelled" if left.cause == "cancelled" else "timed_out", **told)


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
    """A value, or ``given``, which gets what an iterator gives and returns, as it comes."""

    def take(item: Any) -> None:
        if len(given) == _MAX_YIELDED:
            raise ValueError(f"the tool yielded more than {_MAX_YIELDED} values")
        given.append(item)

    async def drain() -> None:
        try:
            async for item in value:
                take(item)
        finally:
            if isinstance(value, AsyncGenerator):
                await value.aclose()

    if isinstance(value, AsyncIterator):
        settled(drain())
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


def _limit_output(result: ToolResult, limit: int | None, context: Mapping[str, Any]) -> None:
    """Cut what a model is shown; an artifact store takes an output that is too long."""
    if limit is None:
        return
    if len(text := joined(result.output)) > limit:
        ref, error = guarded(_stored, result.output, context)
        if error is not None:
            result.metadata["artifact_error"] = described(error)
        elif ref is not None:
            result.artifact_refs = tuple(dict.fromkeys((*result.artifact_refs, ref)))
            result.output = _cut(result, result.output, text, limit)
            result.complete = False
            text = ""
    shown = result.output if result.model_output is None else result.model_output
    text = text if result.model_output is None else joined(shown)
    if len(text) > limit:
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
    body = joined(output).encode()
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
