"""Ready-made parts: environments, tools, artifact stores, critics, parsers, prompts.

What is exported here is imported when it is asked for: ``engine`` uses some of these
parts, and others use ``engine``.
"""

from importlib import import_module
from typing import Any

__all__ = [
    "CodingToolSet",
    "DynamicTreeSearch",
    "EnvToolSet",
    "HTMLExtractText",
    "HTTPGet",
    "HostEnv",
    "JSON_DECISION_SYSTEM_PROMPT",
    "JsonDecisionParser",
    "MarkdownFileMemory",
    "NumberedPlanBuilder",
    "PLAN_DRAFT_PROMPT",
    "PLAN_EXEC_SYSTEM_PROMPT",
    "PlanCursor",
    "REACT_SYSTEM_PROMPT",
    "ReActSelfReflectionCritic",
    "ReActTextParser",
    "WindowHistory",
    "WindowMemory",
    "WorkspaceEnv",
    "XML_DECISION_SYSTEM_PROMPT",
    "XmlDecisionParser",
    "append_log",
    "coding_tools",
    "compose",
    "editor_tools",
    "format_action",
    "parse_numbered_plan",
    "render_prompt",
    "set_final",
]

_PARTS = (
    "env",
    "tool",
    "planning",
    "parser",
    "prompts",
    "toolset",
    "critic",
    "memory",
    "history",
    "_compose",
)


def __getattr__(name: str) -> Any:
    if name in _PARTS or name in __all__:
        for part in _PARTS:
            module = import_module(f".{part}", __name__)
            if part == name:
                return module
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
