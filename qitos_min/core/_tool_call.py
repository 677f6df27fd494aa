"""One tool call from its arguments to its result; the checks before it is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ._contract import detach_json
from ._execution import execute
from ._foreign import described, guarded, traced
from ._json_schema import Fault, check_value, is_plain_fit, whole_numbers
from ._threads import settled
from .action import Action
from .tool import BaseTool, ToolPermissionSpec, ToolSpec
from .tool_result import ToolErrorKind, ToolResult, ToolResultStatus

if TYPE_CHECKING:
    from .tool_registry import ToolRegistry

_DECISIONS = ("deny", "ask", "allow")


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
    """The result of one call, and the call itself if the tool is known.

    Nothing runs unless all checks passed. Only ``KeyboardInterrupt`` is raised.
    """
    name, call = registry.resolve_name(action.name), None
    if name is None:
        found = registry.suggest(str(action.name))
        told: Any = {"metadata": {"suggestions": found}, "recoverable": True, "attempts": 0}
        text = unknown_tool(str(action.name), found)
        result = ToolResult.semantic_error(code="tool_not_found", error=text, **told)
    else:
        tool = registry.resolve(name)
        context = {**(runtime_context or {}), "tool_name": name, "action_id": action.action_id}
        call = Call(registry, tool, tool.spec, name, action.args, context, action)
        result = _refusal(call) or execute(call)
        result.provenance.setdefault("source", registry.source_of(name))
    result.tool_name = name or str(action.name)
    result.action_id = action.action_id
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
            told = {} if error is None else {"traceback": traced(error)}
            failed: dict[str, Any] = {"error_code": fault.code, "error": fault.message}
            failed |= {"error_kind": kind, "recoverable": kind == "semantic", "attempts": 0}
            return ToolResult(status, metadata=told, **failed)
    return None


def _check_structure(call: Call) -> Fault | None:
    if not isinstance(call.args, Mapping):
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
    fault, fits = None, is_plain_fit(args, schema)
    if not fits:
        fault = check_value(args, schema)
    if fault is None and signature is not None and schema is signature.schema:
        fault = signature.misfit(args)
    call.args = args if fits else whole_numbers(args, schema)
    return fault


def _check_input(call: Call) -> Fault | None:
    if type(call.tool).validate_input is BaseTool.validate_input:
        return None
    args, context = detach_json(call.args), dict(call.context)
    problem: Any = settled(call.tool.validate_input(args, context))
    if problem is None or problem is True or problem == "":
        return None
    if not isinstance(problem, str):
        problem = f"validate_input returned {type(problem).__name__}, expected None or a text"
    return Fault("validation_failed", problem)


def _check_rules(call: Call) -> Fault | None:
    rules = call.context.get("permission_rules") or ()
    if not isinstance(rules, (list, tuple)):
        raise ValueError(f"permission_rules must be a list, got {type(rules).__qualname__}")
    found = {rule["decision"] for rule in rules if _is_hit(call, rule)}
    call.decision = next((word for word in _DECISIONS if word in found), "default")
    if call.decision != "deny":
        return None
    return Fault("permission_denied", f"a rule denies tool {call.name!r}")


def _is_hit(call: Call, rule: Any) -> bool:
    """Whether a permission rule speaks about a call; ``ValueError`` for what is no rule.

    ``tool`` is a name, an alias or a pattern as of ``fnmatch``; ``scope`` is a pattern for
    what the tool's ``rule_scope_builder`` says.
    """
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
    ops = dict(call.context.get("ops") or ())
    for group in call.spec.required_ops:
        if group not in ops and env is not None:
            ops[group] = env.get_ops(group)
        if ops.get(group) is None:
            lacks = "there is none" if env is None else "this one has none"
            text = f"tool {call.name!r} needs an environment with {group!r} operations"
            return Fault("env_required", f"{text}, {lacks}")
        call.context["ops"] = ops
    return None


_Check = tuple[Callable[[Call], Fault | None], str, str, ToolErrorKind, ToolResultStatus]
_WRONG: tuple[ToolErrorKind, ToolResultStatus] = ("semantic", "error")
_FORBIDDEN: tuple[ToolErrorKind, ToolResultStatus] = ("policy", "skipped")
# A check; code and words for when it fails itself; kind and status of a refusal.
_CHECKS: tuple[_Check, ...] = (
    (_check_structure, "invalid_input_schema", "the check of the arguments", *_WRONG),
    (_check_input, "validation_failed", "validate_input", *_WRONG),
    (_check_rules, "permission_denied", "the check of the permission rules", *_FORBIDDEN),
    (_check_approval, "approval_denied", "the approval", *_FORBIDDEN),
    (_check_ops, "env_required", "the look-up of operations", "execution", "error"),
)
