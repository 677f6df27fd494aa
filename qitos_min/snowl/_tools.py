"""Snowl's tools as callables of QitOS's registries, in copies of an agent's own."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from keyword import iskeyword
from types import SimpleNamespace
from typing import Any

from snowl_compat import SnowlCompatError, to_json_value

from ._peek import attempt, described, peek, peek_text

__all__ = ["SnowlTool", "awaited", "framework_part", "team_with_tools", "with_tools"]

_PERMISSIONS = ("filesystem_read", "filesystem_write", "network", "command")


class SnowlTool:
    """One Snowl tool as a callable that QitOS's registries take.

    A copy of it is its meta, under the mark that QitOS's decorator leaves on
    a function, so the schema arrives as Snowl wrote it; the attributes up here
    are what a meta must have besides. Snowl checks a tool's ``required_ops``
    against its own environment, so QitOS must not check them again.
    """

    prompt = timeout_s = retry_policy = on_failure = None
    output_schema = result_max_chars = rule_scope_builder = None
    needs_approval = read_only = concurrency_safe = produces_artifact = False
    requires_user_interaction = supports_background = False
    max_retries = 0

    def __init__(self, tool: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.__name__ = self.name = peek_text(tool, "name")
        self.__doc__ = self.description = peek_text(tool, "description")
        self.input_schema = to_json_value(peek(tool, "parameters") or {})
        self.required_ops: list[str] = []
        self.__signature__ = _signature_of(self.input_schema)
        self._callable = tool.callable
        self._loop = loop
        meta: Any = copy.copy(self)
        meta.permissions = SimpleNamespace(**dict.fromkeys(_PERMISSIONS, False))
        self.__qitos_tool_meta__ = meta

    def __call__(self, **arguments: Any) -> Any:
        return awaited(self._callable(**arguments), self._loop)

    def execute(self, args: dict[str, Any], runtime_context: Any = None) -> Any:
        """Call the tool, for a registry that asks objects rather than callables."""
        return self(**args)


_PARAMETER_TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def _signature_of(schema: dict[str, Any]) -> inspect.Signature:
    """A JSON schema's properties as a signature, which QitOS shows to models."""
    parameters, required = [], schema.get("required") or ()
    for name, part in (schema.get("properties") or {}).items():
        if not name.isidentifier() or iskeyword(name):
            continue  # A name such as "max-results" or "from" is no Python parameter.
        kind = part.get("type") if isinstance(part, dict) else None
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=_PARAMETER_TYPES.get(str(kind), object),
                default=inspect.Parameter.empty if name in required else None,
            )
        )
    return inspect.Signature(parameters)


def awaited(made: Any, loop: asyncio.AbstractEventLoop | None = None) -> Any:
    """Return what was made; if that is awaitable what it gives, awaited on a loop."""
    if not inspect.isawaitable(made):
        return made

    async def wait() -> Any:
        return await made

    if loop is None:
        return asyncio.run(wait())
    return asyncio.run_coroutine_threadsafe(wait(), loop).result()


def framework_part(agent: Any, name: str) -> Any:
    """Return the class of that name in the framework an agent comes from, or None."""
    for kind in type(agent).__mro__:
        if kind.__name__ == "AgentModule":
            root = kind.__module__.partition(".")[0]
            for module in (root, f"{root}.engine"):
                with suppress(ImportError):  # Nobody may have needed the engine yet.
                    part = getattr(import_module(module), name, None)
                    if isinstance(part, type):
                        return part
    return None


def with_tools(
    agent: Any, registry: Any, tools: Sequence[SnowlTool], owner: str = "the agent"
) -> Any:
    """Return a copy of an agent's registry that has the tools too.

    The registry itself may serve other trials at the same time; None is an
    empty one. Raises ``SnowlCompatError`` for a name that is taken.
    """
    if registry is None:
        kind = framework_part(agent, "ToolRegistry")
        if kind is None:
            text = f"{type(agent).__name__} has no tool registry for Snowl's tool"
            raise SnowlCompatError(f"{text} {tools[0].name!r}")
        registry = kind()
    registry = _copied(registry)
    for tool in tools:
        _, error = attempt(registry.register, tool)
        if error is not None:
            text = f"Snowl's tool {tool.name!r} cannot stand beside those of {owner}"
            raise SnowlCompatError(f"{text}: {described(error)}")
    return registry


def team_with_tools(team: Any, done: Any, tools: Sequence[SnowlTool]) -> Any:
    """Return a copy of an agent registry in which every agent has the tools too.

    ``done`` is a registry that has them already. Specs are copied, agents are not:
    their ``tools_override`` wins over what an agent has itself.
    """
    team = _copied(team)
    for specs in vars(team).values():
        if not isinstance(specs, dict):
            continue
        for name, spec in specs.items():
            agent = peek(spec, "agent")
            own = peek(spec, "tools_override")
            own = peek(agent, "tool_registry") if own is None else own
            if agent is not None and (own is None or own is not done):
                specs[name] = spec = copy.copy(spec)
                spec.tools_override = with_tools(agent, own, tools, f"agent {name!r}")
    return team


def _copied(registry: Any) -> Any:
    """A copy with containers of its own."""
    registry = copy.copy(registry)
    for name, part in list(vars(registry).items()):
        if isinstance(part, (dict, list, set)):
            setattr(registry, name, copy.copy(part))
    return registry
