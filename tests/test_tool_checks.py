"""The checks before a call, in their order: name, structure, input, operations."""

from __future__ import annotations

import pytest

from tool_results import result_of

from qitos_min.core.action import Action
from qitos_min.core.tool import BaseTool, ToolMeta
from qitos_min.core.tool_registry import ToolRegistry


def registry_of(func, name="t", **meta):
    return ToolRegistry().register(func, name=name, meta=ToolMeta(**meta))


def outcome(result):
    return result.status, result.error_kind, result.error_code


def test_an_unknown_tool_is_an_error_with_suggestions():
    registry = registry_of(lambda: 1, name="search")
    result = result_of(registry, "Serch", a=1)
    assert outcome(result) == ("error", "semantic", "tool_not_found")
    assert result.error == "no tool is named 'Serch', did you mean 'search'?"
    assert result.metadata["suggestions"] == ["search"]
    assert (result.tool_name, result.attempts, result.recoverable) == ("Serch", 0, True)
    assert result_of(registry, "qqq").error == "no tool is named 'qqq'"


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
    result = registry_of(typed).execute(Action("t", args), None)
    assert outcome(result) == ("error", "semantic", code)
    assert (result.error, result.attempts, result.recoverable) == (message, 0, True)


def test_a_value_outside_of_its_choices_has_its_code():
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}
    registry = registry_of(lambda a: a, input_schema=schema)
    result = result_of(registry, "t", a="z")
    assert result.error_code == "invalid_argument_value"
    assert result.error == "argument 'a' must be one of 'x', 'y', got 'z'"
    assert result_of(registry, "t", a="x").output == "x"


def test_a_schema_that_cannot_be_applied_refuses_the_call():
    registry = registry_of(
        lambda a: a, input_schema={"properties": {"a": {"pattern": "("}}}
    )
    result = result_of(registry, "t", a="x")
    assert outcome(result) == ("error", "semantic", "invalid_input_schema")
    assert result.error.startswith("the check of the arguments of tool 't' raised ")


def test_a_tuple_is_an_array():
    def box(corner: tuple[int, int], free):
        return [list(corner), type(corner).__name__, type(free).__name__]

    result = result_of(registry_of(box), "t", corner=(1, 2), free=(3,))
    assert result.output == [[1, 2], "tuple", "list"]


@pytest.mark.parametrize(
    "name", ["name", "tool_name", "self", "args", "action", "registry"]
)
def test_fault_19_arguments_of_any_name_can_be_passed(name):
    result = result_of(registry_of(lambda **given: given), "t", **{name: 1})
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
        found.append((result_of(registry, name, context, **args).error_code, *guarded.log))

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

    result = result_of(ToolRegistry().register(Strict()), "t", x=1)
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

    registry = ToolRegistry().register(Strict())
    assert (result_of(registry, "t", x=1).error, registry.call("t", x=2)) == ("odd", 2)


def test_a_check_that_raises_refuses_the_call_and_is_recorded():
    class Broken(BaseTool):
        name = "t"

        def validate_input(self, args, runtime_context=None):
            raise LookupError("gone")

        def execute(self, args, runtime_context=None):
            raise AssertionError("must not run")

    result = result_of(ToolRegistry().register(Broken()), "t")
    assert outcome(result) == ("error", "semantic", "validation_failed")
    assert result.error == "validate_input of tool 't' raised LookupError: gone"


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
    result = result_of(registry, "t", context)
    assert result.error == message
    assert (result.error_code == "env_required") == (message is not None)
