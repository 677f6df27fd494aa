"""Registration of tools, their names, and what is exported about them."""

from __future__ import annotations

import functools
import sys
import threading

import pytest

from tool_results import result_of

from qitos_min.core.tool import (
    FunctionTool,
    ToolMeta,
    ToolPermission,
    ToolSpec,
    tool,
)
from qitos_min.core.tool_registry import ToolRegistry


def search(query: str, limit: int = 3) -> str:
    """Search the web."""
    return query * limit


def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


class Duck:
    """Quacks."""

    name = "duck"
    needs_approval = True

    def run(self, sound: str, times: int = 1):
        return sound * times


class Runner:
    """Has execute and a spec of its own."""

    spec = ToolSpec("runner", "Runs", {"x": {"type": "integer"}}, ["x"])

    def validate_input(self, args, runtime_context=None):
        return "x is odd" if args["x"] % 2 else None

    def execute(self, args, runtime_context=None):
        return args["x"]


class Maths:
    name = "math"

    def __init__(self, *items):
        self.items = items or (add,)
        self.calls = []

    def tools(self):
        return self.items

    def setup(self, context):
        self.calls.append(("setup", context))

    def teardown(self, context):
        self.calls.append(("teardown", context))


class Other(Maths):
    name = "other"


def test_all_kinds_of_items_are_accepted():
    registry = ToolRegistry()
    registry.register(search).register(FunctionTool(add)).register(Duck())
    registry.register(Runner())
    registry.register(functools.partial(add, 1), name="inc")
    registry.register(lambda x: x, name="same")
    assert registry.list_tools() == ["add", "duck", "inc", "runner", "same", "search"]
    assert len(registry) == 6
    assert "duck" in registry and "goose" not in registry and 3 not in registry
    yes = {"auto_approve": True}
    assert result_of(registry, "duck", yes, sound="q", times=2).output == "qq"
    assert result_of(registry, "runner", x=2).output == 2
    assert result_of(registry, "runner", x=3).error == "x is odd"
    assert result_of(registry, "inc", b=5).output == 6
    assert registry.describe_tool("duck")["description"] == "Quacks."


NO_TOOL = "expected a function, a method or an object with execute() or run(), got "


@pytest.mark.parametrize(
    "item, message",
    [
        (5, NO_TOOL + "int"),
        (None, NO_TOOL + "NoneType"),
        ("search", NO_TOOL + "str"),
        (object(), NO_TOOL + "object"),
        (Duck, "class Duck is no tool, register an instance"),
        (
            Duck.run,
            "Duck.run is a method without its object, register it from an instance",
        ),
    ],
)
def test_what_is_no_tool_is_refused(item, message):
    registry = ToolRegistry()
    with pytest.raises(TypeError) as caught:
        registry.register(item)
    assert str(caught.value) == message
    assert len(registry) == 0


BAD_NAMES = [
    "",
    " ",
    "a b",
    "<lambda>",
    "9a",
    "a" * 65,
    ".a",
    "a/b",
    "\u00e9t\u00e9",
    "a\n",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_t17_a_name_that_providers_reject_is_refused(name):
    # effectful #592
    with pytest.raises(ValueError) as caught:
        ToolRegistry().register(search, name=name)
    assert str(caught.value) == (
        f"{name!r} is no legal tool name: expected a letter or '_', then letters, "
        "digits, '_', '.' or '-', at most 64 in all; pass name= to choose one"
    )


@pytest.mark.parametrize("item", [lambda x: x, functools.partial(add, 1)])
def test_t17_a_callable_without_a_legal_name_asks_for_one(item):
    with pytest.raises(ValueError, match="pass name="):
        ToolRegistry().register(item)
    assert ToolRegistry().register(item, name="a.b-c").list_tools() == ["a.b-c"]


def test_names_have_their_order_of_precedence():
    meta = ToolMeta(name="from_meta")
    named = FunctionTool(add, ToolMeta(name="from_object"))
    cases = [
        ((search, "given", meta), "given"),
        ((named, "given", meta), "given"),
        ((named, None, meta), "from_object"),
        ((Duck(), None, meta), "duck"),
        ((search, None, meta), "from_meta"),
        ((search, None, None), "search"),
    ]
    for args, name in cases:
        assert ToolRegistry().register(*args).list_tools() == [name]


def test_t9_a_second_tool_of_a_name_is_refused_and_both_are_named():
    # mellea; openai-agents #4118
    registry = ToolRegistry().register(search).register_alias("find", "search")
    for name in ("search", "find"):
        with pytest.raises(ValueError) as caught:
            registry.register(add, name=name)
        assert str(caught.value) == (
            f"tool {name!r} is the function {__name__}.search already, "
            f"it cannot be the function {__name__}.add too"
        )
    assert registry.list_tools() == ["search"]
    assert result_of(registry, "find", query="a").output == "aaa"


def test_a_toolset_or_list_with_a_taken_name_changes_nothing():
    registry = ToolRegistry().register(search)
    with pytest.raises(ValueError, match="is the function"):
        registry.include_toolset([add, Maths(search)])
    with pytest.raises(ValueError, match="is the function"):
        registry.register_toolset(Maths(add, add))
    with pytest.raises(ValueError, match="is the function"):
        registry.include(ToolRegistry().register(add).register(search))
    assert registry.list_tools() == ["search"]
    assert registry.list_toolsets() == []


def test_t13_a_name_given_at_registration_leaves_the_tool_as_it_was():
    # QitOS changelog
    for item, field in ((FunctionTool(add), "a"), (Runner(), "x")):
        before = item.spec
        one = ToolRegistry().register(item)
        two = ToolRegistry().register(item, name="Other")
        assert item.spec is before
        assert one.list_tools() == [before.name] != ["Other"]
        assert [spec.name for spec in two.export_permissions()] == ["Other"]
        assert two.get("Other").spec.name == two.get("Other").name == "Other"
        assert result_of(two, "Other", **{field: 4}).tool_name == "Other"
        assert result_of(one, before.name, **{field: 4}).tool_name == before.name


def test_a_trait_set_on_a_tool_survives_another_name():
    item = FunctionTool(add)
    item.spec.needs_approval = True
    registry = ToolRegistry().register(item, name="plus")
    assert result_of(registry, "plus", a=1).error_code == "approval_required"
    assert registry.source_of("plus") == "function"


def test_fault_19_meta_is_honoured_for_tool_objects_and_keeps_what_they_declare():
    for item in (Duck(), Runner(), FunctionTool(add, ToolMeta(timeout_s=5))):
        declared = ToolRegistry().register(item)
        name = declared.list_tools()[0]
        registry = ToolRegistry().register(
            item,
            meta=ToolMeta(permissions=ToolPermission(command=True), read_only=True),
        )
        spec, own = registry.get(name).spec, declared.get(name).spec
        assert spec.permissions.command and spec.read_only
        assert not own.permissions.command and not own.read_only
        assert (spec.needs_approval, spec.timeout_s) == (
            own.needs_approval,
            own.timeout_s,
        )
        assert spec.arguments_schema() == own.arguments_schema()


def test_a_toolset_gets_its_names_and_its_life_cycle():
    maths, other = Maths(), Other(search)
    registry = ToolRegistry().register_toolset(maths).register_toolset(other)
    assert registry.list_tools() == ["math.add", "other.search"]
    assert registry.list_toolsets() == ["math", "other"]
    assert result_of(registry, "math.add", a=1).output == 3
    assert registry.source_of("add") == "toolset"
    registry.setup({"k": 1})
    registry.teardown()
    assert maths.calls == other.calls == [("setup", {"k": 1}), ("teardown", {})]


@pytest.mark.parametrize(
    "namespace, names", [(None, ["math.add"]), ("", ["add"]), ("x", ["x.add"])]
)
def test_the_namespace_of_a_toolset_can_be_chosen(namespace, names):
    registry = ToolRegistry().register_toolset(Maths(), namespace=namespace)
    assert registry.list_tools() == names


def test_a_toolset_without_name_is_called_after_its_class():
    class Notes:
        def tools(self):
            return [add]

    assert ToolRegistry().register_toolset(Notes()).list_tools() == ["notes.add"]
    with pytest.raises(TypeError, match="self"):
        ToolRegistry().register_toolset(Notes)


def test_every_toolset_is_torn_down_in_reverse_whatever_one_raises():
    order = []

    class Loud(Maths):
        def teardown(self, context):
            order.append(self.name)
            raise OSError(self.name)

    class Last(Loud):
        name = "last"

    registry = ToolRegistry().register_toolset(Loud()).register_toolset(Last())
    with pytest.raises(OSError, match="last"):
        registry.teardown()
    assert order == ["last", "math"]


def test_include_takes_whatever_holds_tools():
    inner = ToolRegistry().register(search).register_alias("find", "search")
    registry = ToolRegistry().include(inner).include([Maths(), Duck()])
    assert registry.list_tools() == ["add", "duck", "search"]
    assert registry.resolve_name("find") == "search"
    assert registry.list_toolsets() == ["math"]
    marked = FunctionTool(tool(name="plus")(lambda a: a))
    assert ToolRegistry().include([search, marked]).list_tools() == ["plus", "search"]
    with pytest.raises(TypeError, match="expected a function, a method or an object"):
        registry.include(object())


def test_dotted_names_have_short_aliases_unless_two_tools_claim_one():
    registry = ToolRegistry().register_toolset(Maths())
    assert registry.resolve_name("add") == "math.add"
    assert registry.get("add") is registry.get("math.add") is registry.resolve("add")
    registry.register_toolset(Other())
    assert registry.resolve_name("add") is None
    registry.register(add)
    assert registry.resolve_name("add") == "add"
    plain = ToolRegistry(auto_short_aliases=False).register_toolset(Maths())
    assert plain.get("add") is None


def test_an_alias_names_one_tool_only():
    registry = ToolRegistry().register(search).register(add)
    registry.register_alias("find", "search").register_alias("find", "search")
    registry.register_alias("look", "find")
    assert registry.resolve_name("look") == "search"
    assert registry.names_of("look") == ["search", "find", "look"]
    for alias, name, message in [
        ("find", "add", "alias 'find' of tool 'add' already names the tool 'search'"),
        (
            "search",
            "add",
            "alias 'search' of tool 'add' already names the tool 'search'",
        ),
        ("x", "nope", "no tool is named 'nope'"),
        ("a b", "add", "'a b' is no legal tool name"),
    ]:
        with pytest.raises(ValueError) as caught:
            registry.register_alias(alias, name)
        assert str(caught.value).startswith(message)


def test_t11_aliases_never_add_rows_nor_dodge_approval():
    # netclaw PR #1147, curie #432
    registry = ToolRegistry().register(search, meta=ToolMeta(needs_approval=True))
    registry.register_alias("find", "search")
    assert len(registry) == 1
    assert [spec.name for spec in registry.export_permissions()] == ["search"]
    assert [s["function"]["name"] for s in registry.get_all_specs()] == ["search"]
    assert result_of(registry, "find", query="a").error_code == "approval_required"
    for variant in ("SEARCH", "se-arch"):
        result = result_of(registry, variant, query="a")
        assert result.error == f"no tool is named {variant!r}, did you mean 'search'?"


def test_a_copy_does_not_see_later_registrations():
    registry = ToolRegistry().register(search)
    copy = registry.copy()
    registry.register(add).register_alias("find", "search")
    assert copy.list_tools() == ["search"]
    assert "find" not in copy
    copy.register(Duck())
    assert "duck" not in registry


def test_tools_may_be_registered_while_others_are_called():
    registry = ToolRegistry().register(search)
    failures = []

    def register():
        for number in range(200):
            registry.register(search, name=f"kit.n{number}")

    def call():
        try:
            for _ in range(200):
                assert result_of(registry, "search", query="a").output == "aaa"
                registry.suggest("serch")
                registry.export_permissions()
        except RuntimeError as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for work in (register, call, call)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert (failures, len(registry)) == ([], 201)
