"""Making a tool of what people register: functions, methods and tool objects."""

from __future__ import annotations

import functools
import inspect
from dataclasses import fields, replace
from typing import Any

from .tool import BaseTool, FunctionTool, ToolMeta, ToolSpec, get_tool_meta


class _ToolObject(BaseTool):
    """A foreign tool object, or a tool under another name or with other traits."""

    def __init__(self, target: Any, spec: ToolSpec) -> None:
        super().__init__(spec)
        self.target = target
        self.in_calling_thread = getattr(target, "in_calling_thread", False)
        self._signature = target._signature if isinstance(target, BaseTool) else None

    def validate_input(
        self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None
    ) -> str | None:
        check = getattr(self.target, "validate_input", None)
        return check(args, runtime_context) if callable(check) else None

    def execute(self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None) -> Any:
        return self.target.execute(args, runtime_context)


def as_tool(item: Any, name: str | None = None, meta: ToolMeta | None = None) -> BaseTool:
    """The tool that an item is or becomes; ``TypeError`` if it is none."""
    if inspect.ismethod(item) and isinstance(item.__func__, FunctionTool):
        # What a class method is, made of a tool, from Python 3.13 on.
        item = item.__func__.__get__(item.__self__, type(item.__self__))
    if isinstance(item, BaseTool):
        _check_bound(item)
        alone = name is None and meta is None
        return item if alone else _ToolObject(item, _merged(item.spec, meta, name))
    if is_function(item):
        tool = FunctionTool(item, _merged(get_tool_meta(item) or ToolMeta(), meta, name))
        _check_bound(tool)
        return tool
    if isinstance(item, type):
        raise TypeError(f"class {item.__qualname__} is no tool, register an instance")
    if callable(getattr(item, "execute", None)):
        return _ToolObject(item, _merged(_object_spec(item), meta, name))
    run = getattr(item, "run", item)
    if callable(run):  # Its signature gives the arguments.
        spec = _object_spec(item)
        given = {field.name: getattr(spec, field.name) or None for field in fields(ToolMeta)}
        if spec.parameters:
            given["input_schema"] = spec.arguments_schema()
        known = {name: value for name, value in given.items() if value is not None}
        return FunctionTool(run, _merged(ToolMeta(**known), meta, name))
    wanted = "a function, a method or an object with execute() or run()"
    raise TypeError(f"expected {wanted}, got {type(item).__qualname__}")


def is_function(item: Any) -> bool:
    """Whether an item is a function, a method, a part of one or a tool made of one."""
    return inspect.isroutine(item) or isinstance(item, (FunctionTool, functools.partial))


def _check_bound(tool: BaseTool) -> None:
    func = getattr(tool, "func", None)
    code = func.__code__ if inspect.isfunction(func) else None
    if func and code and code.co_argcount and code.co_varnames[0] == "self":
        text = f"{func.__qualname__} is a method without its object, register it from an instance"
        raise TypeError(text)


def _object_spec(item: Any) -> ToolSpec:
    own = getattr(item, "spec", None)
    if isinstance(own, ToolSpec):
        return own
    spec = ToolSpec.from_attributes(item if own is None else own, type(item).__doc__)
    return spec if spec.name else replace(spec, name=getattr(item, "name", ""))


def _merged(base: Any, meta: ToolMeta | None, name: str | None) -> Any:
    """A copy of a meta or spec with the fields of ``meta`` that are set, and a name."""
    unset = ToolMeta()
    given = {field.name: getattr(meta or unset, field.name) for field in fields(ToolMeta)}
    changes = {field: value for field, value in given.items() if value != getattr(unset, field)}
    if name is not None or base.name:
        changes["name"] = base.name if name is None else name
    return replace(base, **changes)


def shown(item: Any) -> str:
    """How an item is named in messages: by what it was made from."""
    while isinstance(item, (_ToolObject, FunctionTool)):
        item = item.target if isinstance(item, _ToolObject) else item.func
    if inspect.isroutine(item):
        return f"the function {item.__module__}.{item.__qualname__}"
    return f"an object of {type(item).__module__}.{type(item).__qualname__}"
