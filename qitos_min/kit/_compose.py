"""Puts an agent to work on a private copy of a folder."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from ..core.agent_module import AgentModule
from ..core.tool_registry import ToolRegistry
from ..engine.engine import Engine
from ..engine.runtime import RuntimeComposition
from .artifact import FileArtifactStore
from .env import WorkspaceEnv
from .tool import EnvToolSet

__all__ = ["Composition", "compose"]


class Composition(ExitStack):
    """An agent with all that its run needs; a context manager that closes itself.

    ``close`` removes the workspace copy and temporary artifacts; it publishes nothing.
    """

    agent: AgentModule
    env: WorkspaceEnv
    tool_registry: ToolRegistry  # the agent's tools and those of ``EnvToolSet``
    runtime: RuntimeComposition
    engine: Engine


def compose(
    agent: AgentModule,
    *,
    workspace: str | os.PathLike[str],
    runtime: RuntimeComposition | None = None,
    **engine_options: Any,
) -> Composition:
    """Compose ``agent`` with a private copy of the folder ``workspace``.

    Until it is closed, ``agent.config["artifact_resolver"]`` is the artifact store:
    the one of ``runtime``, or a temporary one. ``engine_options`` go to ``Engine``.
    NotADirectoryError when ``workspace`` is no existing folder, TypeError for unknown options.
    """
    with Composition() as held:
        runtime = runtime or RuntimeComposition()
        if runtime.artifact_resolver is None:
            folder = held.enter_context(tempfile.TemporaryDirectory(prefix="artifacts-"))
            runtime = replace(runtime, artifact_resolver=FileArtifactStore(folder))
        env = WorkspaceEnv(workspace, artifact_store=runtime.artifact_resolver)
        held.callback(env.close)
        tools = agent.tool_registry.copy()
        for tool in EnvToolSet().tools():
            if tool.name not in tools:
                tools.register(tool)
        engine = Engine(agent, tool_registry=tools, env=env, runtime=runtime, **engine_options)
        before = {k: v for k, v in agent.config.items() if k == "artifact_resolver"}
        held.callback(agent.config.update, before)
        held.callback(agent.config.pop, "artifact_resolver")
        agent.config["artifact_resolver"] = runtime.artifact_resolver
        made = held.pop_all()
    made.agent, made.env, made.tool_registry = agent, env, tools
    made.runtime, made.engine = runtime, engine
    return made
