"""Snowl's tools as callables of QitOS's registries, in copies of an agent's own."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from types import SimpleNamespace
from typing import Any

from snowl_compat import SnowlCompatError, to_json_value

from ._reading import described, peek

_PERMISSIONS = ("filesystem_read", "filesystem_write", "network", "command")
_TYPES = dict(string=str, integer=int, number=float, boolean=bool, array=list, object=dict)


class SnowlTool:
    """One Snowl tool as a callable that QitOS's registries take; a copy of it is its meta, under
    the mark of QitOS's decorator, so the schema arrives as Snowl wrote it. Snowl itself checks its
    ``required_ops``, so it has none."""

    prompt = timeout_s = retry_policy = on_failure = None
    output_schema = result_max_chars = rule_scope_builder = None
    needs_approval = read_only = concurrency_safe = produces_artifact = False
    requires_user_interaction = supports_background = False
    max_retries = 0

    def __init__(self, tool: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.__name__ = self.name = tool.name
        self.__doc__ = self.description = tool.description
        self.input_schema = to_json_value(tool.parameters)
        self.__signature__ = _signature_of(self.input_schema)
        self.required_ops: list[str] = []
        self._callable, self._loop = tool.callable, loop
        meta: Any = copy.copy(self)
        meta.permissions = SimpleNamespace(**dict.fromkeys(_PERMISSIONS, False))
        self.__qitos_tool_meta__ = meta

    def __call__(self, **arguments: Any) -> Any:
        return awaited(self._callable(**arguments), self._loop)


def _signature_of(schema: dict[str, Any]) -> inspect.Signature:
    """A JSON schema's properties as a signature, which QitOS describes to models."""
    required, make, parameters = schema.get("required", ()), inspect.Parameter, []
    for name, part in schema.get("properties", {}).items():
        if name.isidentifier() and not iskeyword(name):  # "max-results" is no parameter.
            kind = _TYPES.get(str(peek(part, "type")), object)
            default = make.empty if name in required else None
            parameters.append(make(name, make.KEYWORD_ONLY, annotation=kind, default=default))
    return inspect.Signature(parameters)


def awaited(made: Any, loop: asyncio.AbstractEventLoop | None = None) -> Any:
    """What was made; if that is awaitable what it gives, awaited on a loop."""

    async def wait() -> Any:
        return await made

    if not inspect.isawaitable(made):
        return made
    return asyncio.run_coroutine_threadsafe(wait(), loop).result() if loop else asyncio.run(wait())


def framework_part(agent: Any, module: str, name: str) -> Any:
    """A class of the framework that an agent comes from, or None."""
    for kind in type(agent).__mro__:
        if kind.__name__ == "AgentModule":
            # Imported, because nobody may have needed it yet.
            return getattr(import_module(kind.__module__.partition(".")[0] + module), name, None)
    return None


def with_tools(
    agent: Any, registry: Any, tools: Sequence[SnowlTool], owner: str = "the agent"
) -> Any:
    """A copy of an agent's registry (None: an empty one) with the tools; no name may be taken."""
    if registry is None:
        kind = framework_part(agent, "", "ToolRegistry")
        if kind is None:
            text = f"{type(agent).__name__} has no tool registry for Snowl's tool"
            raise SnowlCompatError(f"{text} {tools[0].name!r}")
        registry = kind()
    registry = _copied(registry)
    for tool in tools:
        try:
            registry.register(tool)
        except Exception as error:
            text = f"Snowl's tool {tool.__name__!r} cannot stand beside those of {owner}"
            raise SnowlCompatError(f"{text}: {described(error)}") from error
    return registry


def team_with_tools(team: Any, done: Any, tools: Sequence[SnowlTool]) -> Any:
    """A copy of an agent registry in which all have the tools; ``done`` has them already."""
    team = _copied(team)
    for specs in vars(team).values():
        for name, spec in specs.items() if isinstance(specs, dict) else ():
            own = peek(spec, "tools_override")
            own = peek(spec.agent, "tool_registry") if own is None else own
            if own is None or own is not done:
                specs[name] = spec = copy.copy(spec)
                spec.tools_override = with_tools(spec.agent, own, tools, f"agent {name!r}")
    return team


def _copied(registry: Any) -> Any:
    made = copy.copy(registry)
    held = {n: copy.copy(v) for n, v in vars(made).items() if isinstance(v, (dict, list, set))}
    vars(made).update(held)
    return made
