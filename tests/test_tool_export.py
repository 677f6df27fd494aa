"""What a registry tells about its tools: permissions, specs and descriptions."""

from __future__ import annotations

import json

import pytest

from tool_results import result_of

from qitos_min.core.tool import ToolMeta, ToolPermission, ToolPermissionSpec
from qitos_min.core.tool_registry import ToolRegistry


def search(query: str, limit: int = 3) -> str:
    """Search the web."""
    return query * limit


def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


def test_the_guides_registration_and_export():
    registry = ToolRegistry()
    meta = ToolMeta(
        name="search",
        permissions=ToolPermission(network=True),
        needs_approval=True,
        read_only=False,
    )
    assert registry.register(search, meta=meta) is registry
    (spec,) = registry.export_permissions()
    assert (spec.name, spec.description) == ("search", "Search the web.")
    assert spec.permissions.network is True
    assert spec.needs_approval is True
    assert spec.read_only is False
    assert spec.concurrency_safe is False


def test_export_is_sorted_and_all_its_values_are_copies():
    # Fault 15: the export shared the permissions of the tool.
    meta = ToolMeta(permissions=ToolPermission(network=True), required_ops=["file"])
    registry = ToolRegistry().register(search, meta=meta).register(add)
    first, second = registry.export_permissions()
    assert (first.name, second.name) == ("add", "search")
    second.permissions.network = False
    second.required_ops.append("process")
    again = registry.export_permissions()[1]
    assert again.permissions.network is True
    assert again.required_ops == ["file"]
    meta.permissions.command = True
    assert second.permissions.command is False


def test_fault_16_a_callable_needs_approval_is_exported_as_true():
    registry = ToolRegistry().register(
        add, meta=ToolMeta(needs_approval=lambda a: False)
    )
    (spec,) = registry.export_permissions()
    assert spec.needs_approval is True
    json.dumps(spec.to_dict())
    assert result_of(registry, "add", a=1).output == 3


def test_t15_all_permission_flags_are_exported_as_given():
    given = ToolPermission(True, False, False, True)
    registry = ToolRegistry().register(add, meta=ToolMeta(permissions=given))
    assert registry.export_permissions()[0].to_dict()["permissions"] == {
        "filesystem_read": True,
        "filesystem_write": False,
        "network": False,
        "command": True,
    }


def test_p8_concurrency_that_nobody_declared_is_exported_as_false():
    registry = ToolRegistry().register(add)
    assert registry.get("add").spec.concurrency_safe is None
    assert registry.export_permissions()[0].concurrency_safe is False


def test_specs_for_models_are_strict_json_and_detached():
    meta = ToolMeta(
        prompt="For models.", input_schema={"properties": {"x": {"a": object()}}}
    )
    registry = ToolRegistry().register(search).register(add, meta=meta)
    first, second = registry.get_all_specs()
    assert first["function"]["description"] == "For models."
    assert second == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the web.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string"},
                    "limit": {"type": "integer", "default": 3},
                },
                "required": ["query"],
            },
        },
    }
    json.dumps([first, second], allow_nan=False)
    second["function"]["parameters"]["required"].append("limit")
    assert registry.get_all_specs()[1]["function"]["parameters"]["required"] == [
        "query"
    ]


def test_a_tool_is_described_in_full_as_json():
    registry = ToolRegistry().register(search, meta=ToolMeta(timeout_s=5))
    record = registry.describe_tool("search")
    assert record["timeout_s"] == 5
    assert record["input_schema"]["required"] == ["query"]
    assert record["source"] == "function"
    assert ToolPermissionSpec.from_dict(record).name == "search"
    json.dumps(record, allow_nan=False)
    with pytest.raises(ValueError) as caught:
        registry.describe_tool("serch")
    assert str(caught.value) == "no tool is named 'serch', did you mean 'search'?"
