"""Traits of tools, class tools, function tools and their decorators."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tool_results import result_of

from qitos_min.core.function_tool_decorator import function_tool
from qitos_min.core.tool import (
    BaseTool,
    FunctionTool,
    RetryPolicy,
    ToolMeta,
    ToolPermission,
    ToolPermissionSpec,
    ToolSpec,
    get_tool_meta,
    tool,
)
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.core.tool_result import ToolResult

BAD_TRAITS = [
    ({"timeout_s": -1}, ValueError),
    ({"max_retries": 1.5}, ValueError),
    ({"result_max_chars": -1}, ValueError),
    ({"permissions": {"network": True}}, TypeError),
    ({"required_ops": "file"}, TypeError),
]


@pytest.mark.parametrize("values, kind", BAD_TRAITS)
def test_bad_traits_are_refused_where_they_are_declared(values, kind):
    name = next(iter(values))
    with pytest.raises(kind, match=name):
        ToolMeta(**values)
    with pytest.raises(kind, match=name):
        ToolSpec("t", "", **values)


def test_meta_and_spec_share_their_traits():
    shared = {item.name for item in dataclasses.fields(ToolMeta)}
    spec = {item.name for item in dataclasses.fields(ToolSpec)}
    assert spec - shared == {"parameters", "required"}
    assert ToolSpec("n", "d", {"a": {}}, ["a"]).required == ["a"]


PERMISSION_KEYS = [
    "name",
    "description",
    "permissions",
    "needs_approval",
    "read_only",
    "concurrency_safe",
    "required_ops",
]


def test_a_permission_record_has_the_seven_keys_and_survives_a_round_trip():
    record = ToolPermissionSpec(
        "s", "d", ToolPermission(network=True), True, True, True, ["file"]
    )
    payload = json.loads(json.dumps(record.to_dict()))
    assert list(payload) == PERMISSION_KEYS
    assert payload["permissions"] == {
        "filesystem_read": False,
        "filesystem_write": False,
        "network": True,
        "command": False,
    }
    assert ToolPermissionSpec.from_dict(payload) == record
    assert ToolPermissionSpec.from_dict({"name": "s"}) == ToolPermissionSpec("s")


def test_a_permission_record_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ToolPermissionSpec("s").name = "other"


class EchoTool(BaseTool):
    name = "echo"
    description = "Return a trusted input"

    def execute(self, args, runtime_context=None):
        return ToolResult(output=args)


class WipeTool(BaseTool):
    """Remove a folder."""

    name = "wipe"
    permissions = ToolPermission(filesystem_write=True)
    parameters = {"path": {"type": "string"}}
    required = ["path"]
    timeout_s = 5

    def needs_approval(self, args):
        return args["path"] != "tmp"

    def execute(self, args, runtime_context=None):
        return "wiped"


class OldTool(BaseTool):
    name = "old"

    def run(self, a: int, b: int = 2, runtime_context=None):
        return [a, b, sorted(runtime_context)]


class OwnConstructor(BaseTool):
    name = "own"

    def __init__(self, prefix):
        self.prefix = prefix

    def execute(self, args, runtime_context=None):
        return self.prefix


class NameProperty(BaseTool):
    @property
    def name(self):
        return self.spec.name

    def execute(self, args, runtime_context=None):
        return self.name


def test_a_class_tool_needs_only_name_description_and_execute():
    spec = EchoTool().spec
    assert (spec.name, spec.description) == ("echo", "Return a trusted input")
    assert spec.arguments_schema() == {"type": "object"}
    assert EchoTool().run(a=1).output == {"a": 1}
    assert result_of(ToolRegistry().register(EchoTool()), "echo", x=[1]).output == {"x": [1]}


def test_every_trait_may_be_a_class_attribute():
    spec = WipeTool().spec
    assert spec.description == "Remove a folder."
    assert spec.permissions.filesystem_write
    assert spec.timeout_s == 5
    assert spec.arguments_schema() == {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }
    registry = ToolRegistry().register(WipeTool())
    assert result_of(registry, "wipe", path="home").error_code == "approval_required"
    assert result_of(registry, "wipe", path="tmp").output == "wiped"


def test_a_spec_given_to_the_constructor_beats_the_class():
    own = EchoTool(ToolSpec("shout", "Louder", {"a": {"type": "string"}}))
    assert (own.name, own.description, own.spec.name) == ("shout", "Louder", "shout")
    assert EchoTool().name == "echo"
    assert NameProperty(ToolSpec("n", "")).name == "n"


def test_a_class_that_writes_only_run_gets_its_schema_and_is_called_by_name():
    spec = OldTool().spec
    assert list(spec.arguments_schema()["properties"]) == ["a", "b"]
    assert OldTool().execute({"a": 1}, {"k": 0}) == [1, 2, ["k"]]
    registry = ToolRegistry().register(OldTool())
    assert registry.call("old", a=1, b=3)[:2] == [1, 3]
    assert result_of(registry, "old").error_code == "missing_required_argument"


def test_a_class_tool_may_have_its_own_constructor():
    assert result_of(ToolRegistry().register(OwnConstructor("p")), "own").output == "p"


def test_a_class_tool_without_body_says_so():
    class Empty(BaseTool):
        name = "empty"

    result = result_of(ToolRegistry().register(Empty()), "empty")
    assert result.error.endswith("Empty must define execute()")
    assert result.error.startswith("NotImplementedError: ")


@function_tool(read_only=True, concurrency_safe=True)
def title(text: str) -> str:
    """Cut at the colon."""
    return text.split(":", 1)[0]


@function_tool
def plain(a: int) -> int:
    """Doc."""
    return a


def test_function_tool_works_with_and_without_parentheses():
    assert isinstance(title, FunctionTool)
    assert title("a: b") == "a"
    assert title.name == "title"
    assert title.spec.read_only is True
    assert title.spec.concurrency_safe is True
    assert isinstance(plain, FunctionTool)
    assert plain.execute({"a": 3}) == plain.run(a=3) == plain(3) == 3


def test_function_tool_takes_every_trait_and_keeps_unknown_keywords():
    marked = function_tool(
        lambda a: a,
        name="x",
        description="d",
        timeout_s=1,
        max_retries=2,
        retry_policy=RetryPolicy(),
        on_failure=print,
        needs_approval=True,
        permissions=ToolPermission(command=True),
        required_ops=["file"],
        team="red",
    )
    assert marked.spec.permissions.command
    assert marked.spec.required_ops == ["file"]
    assert marked.meta.team == "red"
    assert marked.spec.max_retries == 2


def test_an_explicit_description_beats_the_docstring_everywhere():
    def documented(a: int):
        """From the docstring."""

    class Documented(BaseTool):
        """From the docstring."""

        name = "c"
        description = "given"

        def execute(self, args, runtime_context=None): ...

    meta = ToolMeta(description="given")
    registry = ToolRegistry().register(function_tool(description="given")(documented))
    registry.register(documented, name="b", meta=meta)
    registry.register(Documented())
    registry.register(Documented(), name="d", meta=ToolMeta(description="other"))
    registry.register(tool(name="e", description="given")(documented))
    registry.register(documented, name="f", meta=ToolMeta(description=""))
    specs = registry.export_permissions()
    assert {spec.name: spec.description for spec in specs} == {
        "b": "given",
        "c": "given",
        "d": "other",
        "documented": "given",
        "e": "given",
        "f": "",
    }


class Counter:
    def __init__(self):
        self.total = 0

    @function_tool
    def add(self, amount: int) -> int:
        self.total += amount
        return self.total

    @tool(name="drop", needs_approval=True)
    def drop(self): ...

    @property
    def danger(self):
        raise RuntimeError("a property must not be asked")


def test_a_method_tool_is_bound_and_never_shows_self():
    one, two = Counter(), Counter()
    assert one.add(2) == 2
    assert list(one.add.spec.parameters) == ["amount"]
    assert list(Counter.add.spec.parameters) == ["amount"]
    registry = ToolRegistry().register(one.add)
    assert result_of(registry, "add", amount=3).output == 5
    assert (one.total, two.total) == (5, 0)


class Family:
    total = 3

    @classmethod
    @function_tool
    def of_class(cls, amount: int) -> int:
        return cls.total + amount

    @staticmethod
    @function_tool
    def outside(amount: int) -> int:
        return amount

    @function_tool
    @staticmethod
    def inside(amount: int) -> int:
        return amount


@pytest.mark.parametrize("owner", [Family, Family()])
def test_class_and_static_methods_are_tools_too(owner):
    # Looking for an inherited docstring asked a class method for itself without end.
    for name, output in (("of_class", 5), ("outside", 2), ("inside", 2)):
        registry = ToolRegistry().register(getattr(owner, name))
        assert result_of(registry, name, amount=2).output == output
        assert list(registry.resolve(name).spec.parameters) == ["amount"]
        assert getattr(owner, name)(2) == output
    included = ToolRegistry().include(Family())
    assert included.list_tools() == ["inside", "of_class", "outside"]
    assert result_of(included, "of_class", amount=1).output == 4


def test_the_marked_methods_of_an_object_can_be_included():
    registry = ToolRegistry().include(Counter())
    assert registry.list_tools() == ["add", "drop"]
    assert result_of(registry, "drop").error_code == "approval_required"


def test_tool_marks_a_function_and_leaves_it_callable():
    @tool(name="add", read_only=True)
    def plus(a: int, b: int) -> int:
        return a + b

    @tool
    def minus(a: int, b: int) -> int:
        return a - b

    assert plus(1, 2) == 3
    assert get_tool_meta(plus).name == "add"
    assert get_tool_meta(minus) == ToolMeta()
    assert get_tool_meta(len) is None
    registry = ToolRegistry().register(plus).register(minus)
    assert registry.list_tools() == ["add", "minus"]
    assert registry.describe_tool("add")["read_only"] is True


def test_an_unknown_keyword_of_tool_is_refused():
    with pytest.raises(TypeError, match="need_approval"):
        tool(name="x", need_approval=True)


def test_injected_values_come_from_the_context_and_beat_the_arguments():
    class Env:
        def get_ops(self, group):
            return f"{group} operations"

    def spy(a: int, env, ops, file_ops, process_ops=None, runtime_context=None, **more):
        return [a, env, ops, file_ops, process_ops, runtime_context, more]

    env = Env()
    context = {"env": env, "ops": {"process": "own"}, "k": 1}
    seen = FunctionTool(spy).execute({"a": 1, "env": "forged", "z": 2}, context)
    offered = [{"process": "own"}, "file operations", "own"]
    assert seen == [1, env, *offered, context, {"z": 2}]
    assert FunctionTool(spy).execute({"a": 1}) == [1, None, {}, None, None, {}, {}]


def test_parameters_without_a_name_for_callers_are_passed_by_place():
    def func(a: int, b: int = 2, /, c: int = 3):
        return [a, b, c]

    call = ToolRegistry().register(func).call
    assert call("func", a=1) == [1, 2, 3]
    assert call("func", a=1, c=5) == [1, 2, 5]
    assert call("func", a=1, b=4) == [1, 4, 3]
