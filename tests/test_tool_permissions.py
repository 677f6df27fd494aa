"""Who may make a call: permission rules and approval."""

from __future__ import annotations

import json

import pytest

from tool_results import result_of

from qitos_min.core.action import Action, ActionExecutionPolicy
from qitos_min.core.tool import ToolMeta, ToolPermissionSpec
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.engine.action_executor import ActionExecutor


def registry_of(func, name="t", **meta):
    return ToolRegistry().register(func, name=name, meta=ToolMeta(**meta))


def outcome(result):
    return result.status, result.error_kind, result.error_code


RULES = [
    ([], False, "ran"),
    ([], True, "approval_required"),
    ([("t", "allow")], True, "ran"),
    ([("t", "ask")], False, "approval_required"),
    ([("t", "deny")], False, "permission_denied"),
    ([("t", "allow"), ("t", "ask")], False, "approval_required"),
    ([("t", "allow"), ("t", "ask"), ("t", "deny")], False, "permission_denied"),
    ([("*", "deny")], False, "permission_denied"),
    ([("T", "deny"), ("tt", "deny"), ("x*", "deny")], False, "ran"),
    ([("t", "deny", "/etc/*")], False, "permission_denied"),
    ([("t", "deny", "/tmp/*")], False, "ran"),
    ([("t", "allow", "/tmp/*")], True, "approval_required"),
]


@pytest.mark.parametrize("rules, needs_approval, code", RULES)
def test_deny_beats_ask_beats_allow_beats_the_tools_own_wish(
    rules, needs_approval, code
):
    registry = registry_of(
        lambda path: "ran",
        needs_approval=needs_approval,
        rule_scope_builder=lambda args: args["path"],
    )
    registry.register_alias("other", "t")
    keys = ("tool", "decision", "scope")
    context = {"permission_rules": [dict(zip(keys, rule)) for rule in rules]}
    for name in ("t", "other"):
        result = result_of(registry, name, context, path="/etc/passwd")
        assert (result.error_code or result.output) == code
        assert result.is_success or outcome(result)[:2] == ("skipped", "policy")


@pytest.mark.parametrize(
    "rule",
    [
        "t",
        {"tool": "t"},
        {"tool": "t", "decision": "maybe"},
        {"decision": "deny"},
        {"tool": "t", "decision": "allow", "path": "/tmp"},
    ],
)
def test_a_rule_that_cannot_be_read_denies(rule):
    result = result_of(registry_of(lambda: "ran"), "t", {"permission_rules": [rule]})
    assert outcome(result) == ("skipped", "policy", "permission_denied")
    assert repr(rule) in result.error


DENY = {"tool": "t", "decision": "deny"}


@pytest.mark.parametrize("mode", ["serial", "parallel"])
@pytest.mark.parametrize("make", [lambda: iter([DENY]), lambda: DENY, lambda: 5])
def test_rules_that_are_no_list_deny_every_call(make, mode):
    # A rule from an iterator guarded only the first call of a batch.
    registry = registry_of(lambda: "ran", concurrency_safe=True)
    executor = ActionExecutor(registry, policy=ActionExecutionPolicy(mode))
    context = {"permission_rules": make()}
    batch = executor.run_batch([Action("t"), Action("t")], runtime_context=context)
    for result in batch.results:
        assert outcome(result) == ("skipped", "policy", "permission_denied")
        kind = type(context["permission_rules"]).__name__
        assert result.error == (
            "the check of the permission rules of tool 't' raised ValueError: "
            f"permission_rules must be a list, got {kind}"
        )


async def scope_of(args):
    return args["path"]


def test_an_async_scope_is_awaited():
    registry = registry_of(lambda path: "ran", rule_scope_builder=scope_of)
    context = {"permission_rules": [{**DENY, "scope": "/etc/*"}]}
    assert result_of(registry, "t", context, path="/tmp/a").output == "ran"
    assert result_of(registry, "t", context, path="/etc/a").status == "skipped"


@pytest.mark.parametrize("builder", [None, lambda args: None])
@pytest.mark.parametrize(
    "decision, code",
    [("deny", "permission_denied"), ("ask", "approval_required"), ("allow", None)],
)
def test_a_scope_that_a_tool_cannot_tell_restricts_and_never_frees(
    builder, decision, code
):
    registry = registry_of(lambda: "ran", rule_scope_builder=builder)
    rule = {"tool": "t", "decision": decision, "scope": "/etc/*"}
    assert result_of(registry, "t", {"permission_rules": [rule]}).error_code == code
    guarded = registry_of(lambda: "ran", needs_approval=True)
    result = result_of(guarded, "t", {"permission_rules": [rule]})
    assert result.error_code in ("permission_denied", "approval_required")


def test_a_rule_for_an_alias_is_a_rule_for_its_tool():
    registry = registry_of(lambda: "ran", name="kit.wipe")
    registry.register_alias("clean", "wipe")
    for pattern in ("kit.wipe", "wipe", "clean", "cl*"):
        context = {"permission_rules": [{"tool": pattern, "decision": "deny"}]}
        for name in ("kit.wipe", "wipe", "clean"):
            assert result_of(registry, name, context).error_code == "permission_denied"


def test_auto_approve_does_not_lift_a_denial():
    context = {
        "auto_approve": True,
        "permission_rules": [{"tool": "t", "decision": "deny"}],
    }
    result = result_of(registry_of(lambda: "ran"), "t", context)
    assert result.error_code == "permission_denied"


def raising(*args):
    raise OSError("no terminal")


def leaving(*args):
    raise SystemExit(1)


async def agreeing(*args):
    return True


APPROVALS = [
    (
        {},
        "approval_required",
        "tool 't' needs approval, and there is neither an "
        "approval_callback to ask nor auto_approve",
    ),
    ({"auto_approve": True}, None, None),
    ({"auto_approve": "yes"}, "approval_required", None),
    ({"approval_callback": lambda *a: True}, None, None),
    ({"approval_callback": lambda *a: (True, "fine")}, None, None),
    ({"approval_callback": agreeing}, None, None),
    (
        {"approval_callback": lambda *a: False},
        "approval_denied",
        "approval of tool 't' was denied",
    ),
    (
        {"approval_callback": lambda *a: (False, "not on Friday")},
        "approval_denied",
        "approval of tool 't' was denied: not on Friday",
    ),
    (
        {"approval_callback": lambda *a: "no"},
        "approval_denied",
        "approval of tool 't' was denied: "
        "the approval callback answered a str, expected a bool",
    ),
    ({"approval_callback": lambda *a: None}, "approval_denied", None),
    ({"approval_callback": lambda *a: 1}, "approval_denied", None),
    (
        {"approval_callback": raising},
        "approval_denied",
        "the approval of tool 't' raised OSError: no terminal",
    ),
    (
        {"approval_callback": leaving},
        "approval_denied",
        "the approval of tool 't' raised SystemExit: 1",
    ),
]


@pytest.mark.parametrize("context, code, message", APPROVALS)
def test_fault_9_nothing_runs_without_approval_and_the_reason_is_told(
    context, code, message
):
    ran = []
    registry = registry_of(lambda: ran.append(1), needs_approval=True)
    result = result_of(registry, "t", context)
    assert result.error_code == code
    assert len(ran) == (1 if code is None else 0)
    if code is not None:
        assert outcome(result) == ("skipped", "policy", code)
        assert result.attempts == 0
        assert message in (None, result.error)


def test_a_tool_may_ask_only_for_some_arguments():
    asked = []

    def risky(args):
        asked.append(args.copy())
        args["path"] = "changed"
        return args.pop("path") and asked[-1]["path"] != "tmp"

    registry = registry_of(lambda path: path, needs_approval=risky)
    assert result_of(registry, "t", path="tmp").output == "tmp"
    assert result_of(registry, "t", path="home").error_code == "approval_required"
    assert asked == [{"path": "tmp"}, {"path": "home"}]
    broken = registry_of(lambda: "ran", needs_approval=lambda args: 1 / 0)
    assert result_of(broken, "t").error == (
        "the approval of tool 't' raised ZeroDivisionError: division by zero"
    )


def test_the_approver_sees_copies():
    seen = []

    def approve(name, args, spec):
        seen.append((name, json.dumps(args), spec))
        args["a"].append("rm -rf")
        spec.permissions.network = True
        return True

    registry = registry_of(lambda a: a, needs_approval=True)
    registry.register_alias("other", "t")
    result = result_of(registry, "other", {"approval_callback": approve}, a=["ls"])
    assert result.output == ["ls"]
    assert seen[0][:2] == ("t", '{"a": ["ls"]}')
    assert isinstance(seen[0][2], ToolPermissionSpec)
    assert registry.export_permissions()[0].permissions.network is False


def test_an_interrupt_of_the_approver_stops_everything():
    def approve(*args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        result_of(registry_of(lambda: 1, needs_approval=True), 
            "t", {"approval_callback": approve}
        )
