"""The checks before a call: name, structure, input, rules, approval, operations."""

from __future__ import annotations

import json

import pytest

from qitos_min.core._tool_call import call_tool
from qitos_min.core.action import Action, ActionExecutionPolicy
from qitos_min.core.tool import BaseTool, ToolMeta, ToolPermissionSpec
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.engine.action_executor import ActionExecutor


def registry_of(func, name="t", **meta):
    return ToolRegistry().register(func, name=name, meta=ToolMeta(**meta))


def outcome(result):
    return result.status, result.error_kind, result.error_code


def test_an_unknown_tool_is_an_error_with_suggestions():
    registry = registry_of(lambda: 1, name="search")
    result = registry.call("Serch", a=1)
    assert outcome(result) == ("error", "semantic", "tool_not_found")
    assert result.error == "no tool is named 'Serch', did you mean 'search'?"
    assert result.metadata["suggestions"] == ["search"]
    assert (result.tool_name, result.attempts, result.recoverable) == ("Serch", 0, True)
    assert registry.call("qqq").error == "no tool is named 'qqq'"


def typed(a: int, mode: str = "x", *, tags: list[str] | None = None):
    return [a, mode, tags]


STRUCTURE = [
    ([1], "invalid_arguments_shape", "the arguments must be an object, got list"),
    (None, "invalid_arguments_shape", "the arguments must be an object, got NoneType"),
    ("{}", "invalid_arguments_shape", "the arguments must be an object, got str"),
    ({1: 2}, "invalid_json_value", "argument names must be text, got 1"),
    (
        {"a": {1, 2}},
        "invalid_json_value",
        "argument 'a' holds a value of type set",
    ),
    (
        {"a": float("nan")},
        "invalid_json_value",
        "argument 'a' holds a number that is not finite",
    ),
    (
        {"a": 10**5000},
        "invalid_json_value",
        "argument 'a' holds an integer of more than 4300 digits",
    ),
    ({}, "missing_required_argument", "missing required argument 'a'"),
    (
        {"a": 1, "b": 2},
        "unexpected_argument",
        "unexpected argument 'b', expected a, mode, tags",
    ),
    (
        {"a": True},
        "invalid_argument_type",
        "argument 'a' must be of type integer, got bool",
    ),
    (
        {"a": "1"},
        "invalid_argument_type",
        "argument 'a' must be of type integer, got str",
    ),
]


@pytest.mark.parametrize("args, code, message", STRUCTURE)
def test_arguments_of_a_wrong_structure_have_their_code(args, code, message):
    result = call_tool(registry_of(typed), Action("t", args), None)
    assert outcome(result) == ("error", "semantic", code)
    assert (result.error, result.attempts, result.recoverable) == (message, 0, True)


def test_a_value_outside_of_its_choices_has_its_code():
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}
    registry = registry_of(lambda a: a, input_schema=schema)
    result = registry.call("t", a="z")
    assert result.error_code == "invalid_argument_value"
    assert result.error == "argument 'a' must be one of 'x', 'y', got 'z'"
    assert registry.call("t", a="x").output == "x"


def test_a_schema_that_cannot_be_applied_refuses_the_call():
    registry = registry_of(
        lambda a: a, input_schema={"properties": {"a": {"pattern": "("}}}
    )
    result = registry.call("t", a="x")
    assert outcome(result) == ("error", "semantic", "invalid_input_schema")
    assert result.error.startswith("the check of the arguments of tool 't' raised ")


def test_a_tuple_is_an_array():
    def box(corner: tuple[int, int], free):
        return [list(corner), type(corner).__name__, type(free).__name__]

    result = registry_of(box).call("t", corner=(1, 2), free=(3,))
    assert result.output == [[1, 2], "tuple", "list"]


@pytest.mark.parametrize(
    "name", ["name", "tool_name", "self", "args", "action", "registry"]
)
def test_fault_19_arguments_of_any_name_can_be_passed(name):
    result = registry_of(lambda **given: given).call("t", **{name: 1})
    assert result.output == {name: 1}


class Guarded(BaseTool):
    """Fails every check until the test lets it pass."""

    name = "guarded"
    parameters = {"a": {"type": "integer"}}
    required_ops = ["file"]

    def __init__(self):
        self.log = []
        self.problem = "not this way"

    def validate_input(self, args, runtime_context=None):
        self.log.append("validate")
        return self.problem

    def rule_scope_builder(self, args):
        self.log.append("rules")
        return ""

    def needs_approval(self, args):
        self.log.append("needs")
        return True

    def execute(self, args, runtime_context=None):
        self.log.append("execute")
        return sorted(runtime_context["ops"])


class FileEnv:
    def get_ops(self, group):
        return "ops" if group == "file" else None


def test_the_checks_come_in_order_and_nothing_runs_before_all_have_passed():
    guarded, asked = Guarded(), []
    registry = ToolRegistry().register(guarded)
    deny = [{"tool": "guarded", "decision": "deny", "scope": "*"}]
    context = {
        "permission_rules": deny,
        "approval_callback": lambda *args: bool(asked),
    }
    found = []

    def step(name="guarded", **args):
        guarded.log.clear()
        found.append((registry.call(name, context, **args).error_code, *guarded.log))

    step("nope", b="x")
    step(b="x")
    step(a=1)
    guarded.problem = None
    step(a=1)
    context["permission_rules"] = [{"tool": "*", "decision": "deny", "scope": "x*"}]
    step(a=1)
    asked.append("yes")
    step(a=1)
    context["env"] = FileEnv()
    step(a=1)
    assert found == [
        ("tool_not_found",),
        ("unexpected_argument",),
        ("validation_failed", "validate"),
        ("permission_denied", "validate", "rules"),
        ("approval_denied", "validate", "rules", "needs"),
        ("env_required", "validate", "rules", "needs"),
        (None, "validate", "rules", "needs", "execute"),
    ]


@pytest.mark.parametrize(
    "answer, message",
    [
        ("too long", "too long"),
        (False, "validate_input returned bool, expected None or a text"),
        (3, "validate_input returned int, expected None or a text"),
        (None, None),
        (True, None),
        ("", None),
    ],
)
def test_validate_input_says_what_is_wrong(answer, message):
    class Strict(BaseTool):
        name = "t"

        def validate_input(self, args, runtime_context=None):
            args["x"] = runtime_context["tool_name"]
            return answer

        def execute(self, args, runtime_context=None):
            return args

    result = ToolRegistry().register(Strict()).call("t", x=1)
    assert result.error == message
    if message is None:
        assert result.output == {"x": 1}
    else:
        assert outcome(result) == ("error", "semantic", "validation_failed")


def test_an_async_check_is_awaited():
    class Strict(BaseTool):
        name = "t"

        async def validate_input(self, args, runtime_context=None):
            return "odd" if args["x"] % 2 else None

        def execute(self, args, runtime_context=None):
            return args["x"]

    call = ToolRegistry().register(Strict()).call
    assert (call("t", x=1).error, call("t", x=2).output) == ("odd", 2)


def test_a_check_that_raises_refuses_the_call_and_is_recorded():
    class Broken(BaseTool):
        name = "t"

        def validate_input(self, args, runtime_context=None):
            raise LookupError("gone")

        def execute(self, args, runtime_context=None):
            raise AssertionError("must not run")

    result = ToolRegistry().register(Broken()).call("t")
    assert outcome(result) == ("error", "semantic", "validation_failed")
    assert result.error == "validate_input of tool 't' raised LookupError: gone"


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
        result = registry.call(name, context, path="/etc/passwd")
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
    result = registry_of(lambda: "ran").call("t", {"permission_rules": [rule]})
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
    batch = executor.execute([Action("t"), Action("t")], runtime_context=context)
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
    assert registry.call("t", context, path="/tmp/a").output == "ran"
    assert registry.call("t", context, path="/etc/a").status == "skipped"


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
    assert registry.call("t", {"permission_rules": [rule]}).error_code == code
    guarded = registry_of(lambda: "ran", needs_approval=True)
    result = guarded.call("t", {"permission_rules": [rule]})
    assert result.error_code in ("permission_denied", "approval_required")


def test_a_rule_for_an_alias_is_a_rule_for_its_tool():
    registry = registry_of(lambda: "ran", name="kit.wipe")
    registry.register_alias("clean", "wipe")
    for pattern in ("kit.wipe", "wipe", "clean", "cl*"):
        context = {"permission_rules": [{"tool": pattern, "decision": "deny"}]}
        for name in ("kit.wipe", "wipe", "clean"):
            assert registry.call(name, context).error_code == "permission_denied"


def test_auto_approve_does_not_lift_a_denial():
    context = {
        "auto_approve": True,
        "permission_rules": [{"tool": "t", "decision": "deny"}],
    }
    result = registry_of(lambda: "ran").call("t", context)
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
    result = registry.call("t", context)
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
    assert registry.call("t", path="tmp").output == "tmp"
    assert registry.call("t", path="home").error_code == "approval_required"
    assert asked == [{"path": "tmp"}, {"path": "home"}]
    broken = registry_of(lambda: "ran", needs_approval=lambda args: 1 / 0)
    assert broken.call("t").error == (
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
    result = registry.call("other", {"approval_callback": approve}, a=["ls"])
    assert result.output == ["ls"]
    assert seen[0][:2] == ("t", '{"a": ["ls"]}')
    assert isinstance(seen[0][2], ToolPermissionSpec)
    assert registry.export_permissions()[0].permissions.network is False


def test_an_interrupt_of_the_approver_stops_everything():
    def approve(*args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        registry_of(lambda: 1, needs_approval=True).call(
            "t", {"approval_callback": approve}
        )


@pytest.mark.parametrize(
    "context, message",
    [
        ({}, "tool 't' needs an environment with 'file' operations, there is none"),
        (
            {"env": FileEnv()},
            "tool 't' needs an environment with 'net' operations, this one has none",
        ),
        ({"ops": {"file": "f", "net": "n"}}, None),
        ({"env": FileEnv(), "ops": {"net": "n"}}, None),
    ],
)
def test_operations_that_a_tool_needs_must_be_there(context, message):
    registry = registry_of(
        lambda file_ops, ops: [file_ops, ops["net"]], required_ops=["file", "net"]
    )
    result = registry.call("t", context)
    assert result.error == message
    assert (result.error_code == "env_required") == (message is not None)
