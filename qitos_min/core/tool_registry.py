"""The tools of an agent by name: registration, look-up, export and calls."""

from __future__ import annotations

import difflib
import inspect
import re
from collections import Counter
from collections.abc import Iterable
from copy import copy
from typing import Any

from ._foreign import guarded, summary
from ._json import dumps, to_json_value
from ._tool_call import call_tool, unknown_tool
from .action import Action
from .errors import ErrorCategory, RuntimeErrorInfo, ToolExecutionError
from .tool import BaseTool, FunctionTool, ToolMeta, ToolPermissionSpec
from .tool import as_tool, get_tool_meta, is_function, shown
from .tool_result import ToolResult

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)
_DESCRIBED = "prompt output_schema timeout_s max_retries requires_user_interaction".split()
_DESCRIBED += ["supports_background", "result_max_chars", "produces_artifact"]


class ToolRegistry:
    """Tools by name or alias, with the one way to call them."""

    def __init__(self, *, auto_short_aliases: bool = True) -> None:
        # Whether the last part of a dotted name is an alias, unless two claim it.
        self._auto_short_aliases = auto_short_aliases
        self._tools: dict[str, BaseTool] = {}
        self._sources: dict[str, str] = {}  # ``function``, ``tool`` for an object, or ``toolset``.
        self._aliases: dict[str, str] = {}
        self._toolsets: list[Any] = []

    def __contains__(self, name: object) -> bool:
        return self.resolve_name(name) is not None

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return summary(self, ", ".join(self.list_tools()), tools=len(self))

    def copy(self) -> ToolRegistry:
        """A registry with the same tools, which later changes here do not reach."""
        other = copy(self)
        vars(other).update({name: copy(held) for name, held in vars(self).items()})
        return other

    def register(
        self, item: Any, name: str | None = None, meta: ToolMeta | None = None
    ) -> ToolRegistry:
        """Add a function, method or tool object; ``TypeError``, or ``ValueError`` for its name."""
        return self._add([as_tool(item, name, meta)], "function" if is_function(item) else "tool")

    def include(self, obj: Any) -> ToolRegistry:
        """Add a toolset, a registry, a tool, an object with decorated methods, or many of these."""
        if isinstance(obj, BaseTool) or is_function(obj):
            return self.register(obj)
        if not isinstance(obj, type) and callable(getattr(obj, "tools", None)):
            return self.register_toolset(obj, namespace="")
        if marked := [name for name in dir(obj) if _is_marked(obj, name)]:
            return self._add([as_tool(getattr(obj, name)) for name in marked], "function")
        if isinstance(obj, str) or not isinstance(obj, (ToolRegistry, Iterable)):
            return self.register(obj)
        merged = self.copy()  # All of them or none.
        if isinstance(obj, ToolRegistry):
            for name, tool in obj._tools.items():
                merged._add([tool], obj._sources[name])
            for alias, name in obj._aliases.items():
                merged.register_alias(alias, name)
            merged._toolsets.extend(obj._toolsets)
        else:
            for item in obj:
                merged.include(item)
        vars(self).update(vars(merged))
        return self

    def include_toolset(self, items: Any) -> ToolRegistry:
        """The same as :meth:`include`, by the name that says what is meant."""
        return self.include(items)

    def register_toolset(self, toolset: Any, namespace: str | None = None) -> ToolRegistry:
        """Add the tools of an object with ``tools()`` as ``namespace.name``, by default its own."""
        prefix = _toolset_name(toolset) if namespace is None else namespace
        tools = [as_tool(item) for item in toolset.tools()]
        if prefix:
            tools = [as_tool(tool, f"{prefix}.{tool.spec.name}") for tool in tools]
        self._add(tools, "toolset")._toolsets.append(toolset)
        return self

    def register_alias(self, alias: str, name: str) -> ToolRegistry:
        """Let ``alias`` stand for a tool; ``ValueError`` if it cannot, or none is known."""
        target = self._known(name)
        _check_name(alias)
        taken = alias if alias in self._tools else self._aliases.get(alias, target)
        if taken != target:
            raise ValueError(f"alias {alias!r} of tool {target!r} already names the tool {taken!r}")
        self._aliases[alias] = target
        return self

    def get(self, name: str) -> BaseTool | None:
        """The tool of a name or alias, or None."""
        return self._tools.get(self.resolve_name(name) or "")

    def resolve(self, name: str) -> BaseTool:
        """The tool of a name or alias; ``ValueError`` with suggestions if unknown."""
        return self._tools[self._known(name)]

    def resolve_name(self, name: object) -> str | None:
        """The canonical name of a name or alias, or None."""
        if not isinstance(name, str):
            return None
        return name if name in self._tools else self._all_aliases().get(name)

    def names_of(self, name: str) -> list[str]:
        """The canonical name of a tool, then its aliases; ``ValueError`` if unknown."""
        canonical = self._known(name)
        aliases = [alias for alias, known in self._all_aliases().items() if known == canonical]
        return [canonical, *(alias for alias in aliases if alias not in self._tools)]

    def suggest(self, name: str, limit: int = 3) -> list[str]:
        """Up to ``limit`` canonical names that look like ``name``, best first."""
        spelt = {one.lower(): one for one in (*self._all_aliases(), *self._tools)}
        close = difflib.get_close_matches(str(name).lower(), spelt, limit, 0.6)
        return list(dict.fromkeys(self.resolve_name(spelt[one]) or spelt[one] for one in close))

    def list_tools(self) -> list[str]:
        """The canonical names, sorted."""
        return sorted(self._tools)

    def list_toolsets(self) -> list[str]:
        """The names of the toolsets, in the order of registration."""
        return [_toolset_name(toolset) for toolset in self._toolsets]

    def source_of(self, name: str) -> str:
        """Whether a tool is of a ``function``, ``tool`` object or ``toolset``."""
        return self._sources[self._known(name)]

    def describe_tool(self, name: str) -> dict[str, Any]:
        """All that is known about a tool, as JSON; ``ValueError`` if unknown."""
        spec = self.resolve(name).spec
        told = {field: getattr(spec, field) for field in _DESCRIBED}
        told = {"input_schema": spec.arguments_schema(), **told, "source": self.source_of(name)}
        return {**ToolPermissionSpec.from_spec(spec).to_dict(), **to_json_value(told)}

    def get_all_specs(self) -> list[dict[str, Any]]:
        """What a chat model is told: one function entry per tool, sorted by name."""
        told = []
        for spec in (self._tools[name].spec for name in self.list_tools()):
            function = {"name": spec.name, "description": spec.prompt or spec.description}
            function["parameters"] = to_json_value(spec.arguments_schema())
            told.append({"type": "function", "function": function})
        return told

    def get_tool_descriptions(self, protocol: Any = None, renderer: Any = None) -> str:
        """The tools as text for a prompt of any protocol; ``renderer(registry)`` beats it."""
        if renderer is not None:
            return str(renderer(self))
        lines = []
        for function in (entry["function"] for entry in self.get_all_specs()):
            schema = function["parameters"]
            lines.append(f"- {function['name']}: {function['description']}")
            for name, part in schema.get("properties", {}).items():
                needed = "" if name in schema.get("required", ()) else ", optional"
                choices = [part] if "type" in part else part.get("anyOf") or [part]
                kinds = [c.get("type", "any") if isinstance(c, dict) else "any" for c in choices]
                kinds = [k if isinstance(k, str) else " or ".join(k) for k in kinds]
                kind = " or ".join(dict.fromkeys(kinds))
                kind = " or ".join(map(dumps, part["enum"])) if "enum" in part else kind
                note = f": {part['description']}" if part.get("description") else ""
                lines.append(f"  - {name} ({kind}{needed}){note}")
        return "\n".join(lines)

    render_tool_schema = get_tool_descriptions

    def export_permissions(self) -> list[ToolPermissionSpec]:
        """What each tool may do, sorted by name, without aliases, all values copied."""
        return [ToolPermissionSpec.from_spec(self._tools[n].spec) for n in self.list_tools()]

    def call(
        self, tool_name: str, /, runtime_context: dict[str, Any] | None = None, **args: Any
    ) -> Any:
        """The value of a tool called through all checks; raises what the tool raised,
        ``ValueError`` if it is unknown, ``ToolExecutionError`` for a call that was refused."""
        result, call = call_tool(self, Action(self._known(tool_name), args), runtime_context)
        if call is not None and call.error is not None:
            if result.is_success:  # By ``on_failure``.
                return result.output
            raise call.error
        if call is not None and (result.is_success or call.value is not None):
            return call.value
        told = (result.error or "", "ACT", 0, result.recoverable, {"code": result.error_code})
        raise ToolExecutionError(RuntimeErrorInfo(ErrorCategory.TOOL, *told))

    def execute(self, action: Action, runtime_context: dict[str, Any] | None = None) -> ToolResult:
        """Run an action through all checks; raises ``KeyboardInterrupt`` only. The context
        has ``env``, ``state``, ``approval_callback``, ``auto_approve``, ``permission_rules``."""
        return call_tool(self, action, runtime_context)[0]

    def setup(self, context: dict[str, Any] | None = None) -> None:
        """Call ``setup(context)`` of each toolset that has it, in order."""
        for setup in (getattr(toolset, "setup", None) for toolset in self._toolsets):
            if callable(setup):
                setup(context or {})

    def teardown(self, context: dict[str, Any] | None = None) -> None:
        """Call ``teardown`` of each toolset in reverse; raises the first exception at last."""
        hooks = [getattr(toolset, "teardown", None) for toolset in reversed(self._toolsets)]
        ended = [guarded(hook, context or {})[1] for hook in hooks if callable(hook)]
        if errors := [error for error in ended if error is not None]:
            raise errors[0]

    def _known(self, name: str) -> str:
        if (canonical := self.resolve_name(name)) is None:
            raise ValueError(unknown_tool(name, self.suggest(name)))
        return canonical

    def _all_aliases(self) -> dict[str, str]:
        # A copy, because another thread may register meanwhile.
        dotted = [n for n in list(self._tools) if "." in n and self._auto_short_aliases]
        claims = Counter(name.rpartition(".")[2] for name in dotted)
        short = {alias: n for n in dotted if claims[alias := n.rpartition(".")[2]] == 1}
        return {**self._aliases, **short, **self._aliases}  # Those that were given come first.

    def _add(self, added: list[BaseTool], source: str) -> ToolRegistry:
        tools = dict(self._tools)
        for tool in added:
            _check_name(name := tool.spec.name)
            if other := tools.get(name) or tools.get(self._aliases.get(name, "")):
                taken = f"tool {name!r} is {shown(other)} already"
                raise ValueError(f"{taken}, it cannot be {shown(tool)} too")
            tools[name] = tool
        self._sources.update({tool.spec.name: source for tool in added})
        self._tools.update(tools)
        return self


def _toolset_name(toolset: Any) -> str:
    name = getattr(toolset, "name", None)
    return name if isinstance(name, str) and name else type(toolset).__name__.lower()


def _is_marked(obj: Any, name: str) -> bool:
    # Looked at without asking the object, whose properties may do work.
    found = inspect.getattr_static(obj, name, None)
    found = getattr(found, "__func__", found)
    return isinstance(found, FunctionTool) or isinstance(get_tool_meta(found), ToolMeta)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        form = "a letter or '_', then letters, digits, '_', '.' or '-', at most 64 in all"
        text = f"{name!r} is no legal tool name: expected {form}; pass name= to choose one"
        raise ValueError(text)
