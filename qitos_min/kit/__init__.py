"""Ready-made parts: environments, tools, artifact stores, critics, parsers, prompts."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from ..core import AgentModule, ToolRegistry
from ..engine import Engine
from ..engine.runtime import RuntimeComposition
from .artifact import FileArtifactStore
from .critic import ReActSelfReflectionCritic
from .env import HostEnv, WorkspaceEnv
from .history import WindowHistory
from .memory import MarkdownFileMemory, WindowMemory
from .parser import JsonDecisionParser, ReActTextParser, XmlDecisionParser
from .planning import DynamicTreeSearch, NumberedPlanBuilder, PlanCursor
from .planning import append_log, format_action, parse_numbered_plan, set_final
from .prompts import JSON_DECISION_SYSTEM_PROMPT, PLAN_DRAFT_PROMPT, PLAN_EXEC_SYSTEM_PROMPT
from .prompts import REACT_SYSTEM_PROMPT, XML_DECISION_SYSTEM_PROMPT, render_prompt
from .tool import CodingToolSet, EnvToolSet, HTMLExtractText, HTTPGet
from .toolset import coding_tools, editor_tools

__all__ = [
    "CodingToolSet", "DynamicTreeSearch", "EnvToolSet", "HTMLExtractText", "HTTPGet", "HostEnv",
    "JSON_DECISION_SYSTEM_PROMPT", "JsonDecisionParser", "MarkdownFileMemory",
    "NumberedPlanBuilder", "PLAN_DRAFT_PROMPT", "PLAN_EXEC_SYSTEM_PROMPT", "PlanCursor",
    "REACT_SYSTEM_PROMPT", "ReActSelfReflectionCritic", "ReActTextParser", "WindowHistory",
    "WindowMemory", "WorkspaceEnv", "XML_DECISION_SYSTEM_PROMPT", "XmlDecisionParser", "append_log",
    "coding_tools", "compose", "editor_tools", "format_action", "parse_numbered_plan",
    "render_prompt", "set_final",
]  # fmt: skip


class Composition(ExitStack):
    """An agent with all that its run needs; closing removes the copy and publishes nothing."""

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
    **options: Any,
) -> Composition:
    """Compose ``agent`` with a private copy of the folder ``workspace`` (else NotADirectoryError).

    Until closed, ``agent.config["artifact_resolver"]`` is a temporary one or that of ``runtime``.
    """
    with Composition() as made:
        runtime = runtime or RuntimeComposition()
        if runtime.artifact_resolver is None:
            folder = made.enter_context(tempfile.TemporaryDirectory(prefix="artifacts-"))
            runtime = replace(runtime, artifact_resolver=FileArtifactStore(folder))
        env = WorkspaceEnv(workspace, artifact_store=runtime.artifact_resolver)
        made.callback(env.close)
        tools = agent.tool_registry.copy()
        for tool in EnvToolSet().tools():
            if tool.name not in tools:
                tools.register(tool)
        engine: Engine = Engine(agent, tool_registry=tools, env=env, runtime=runtime, **options)
        made.callback(setattr, agent, "config", agent.config)
        agent.config = {**agent.config, "artifact_resolver": runtime.artifact_resolver}
        made = made.pop_all()  # Closed by the caller, and here only when something failed.
    made.agent, made.runtime, made.engine = agent, runtime, engine
    made.env, made.tool_registry = env, tools
    return made
