"""Ready-made parts: environments, tools, artifact stores, critics, parsers, prompts.

They are imported when they are asked for: ``engine`` uses some of them, others use ``engine``.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "env": "HostEnv WorkspaceEnv",
    "tool": "CodingToolSet EnvToolSet HTMLExtractText HTTPGet",
    "planning": "DynamicTreeSearch NumberedPlanBuilder PlanCursor append_log format_action"
    " parse_numbered_plan set_final",
    "parser": "JsonDecisionParser ReActTextParser XmlDecisionParser",
    "prompts": "JSON_DECISION_SYSTEM_PROMPT PLAN_DRAFT_PROMPT PLAN_EXEC_SYSTEM_PROMPT"
    " REACT_SYSTEM_PROMPT XML_DECISION_SYSTEM_PROMPT render_prompt",
    "toolset": "coding_tools editor_tools",
    "critic": "ReActSelfReflectionCritic",
    "memory": "MarkdownFileMemory WindowMemory",
    "history": "WindowHistory",
    "_compose": "compose",
}
_PART_OF = {name: part for part, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_PART_OF)


def __getattr__(name: str) -> Any:
    if name not in _NAMES and name not in _PART_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_PART_OF.get(name, name)}", __name__)
    return module if name in _NAMES else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
