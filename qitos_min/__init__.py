"""A small QitOS runtime: the standard library and ``snowl_compat.py``, nothing else.

Import paths, names and defaults are QitOS's own. Names are looked up when they are asked for, so
that ``qitos_min.snowl`` and ``qitos_min.view`` come without the runtime.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core import *
    from .engine import ContextConfig, Engine, EngineResult, RuntimeBudget, StepSummary

__all__ = [
    "Action", "AgentModule", "AgentRegistry", "AgentSpec", "BaseTool", "BenchmarkRunResult",
    "ContextConfig", "ContextStrategy", "Decision", "Engine", "EngineResult", "Env", "EnvSpec",
    "ExperimentSpec", "HandoffContext", "History", "HistoryPolicy", "Memory", "Observation",
    "QitosRuntimeError", "RunSpec", "RuntimeBudget", "StateAdapter", "StateSchema", "StepSummary",
    "StopReason", "Task", "TaskBudget", "TaskResource", "TaskResult", "ToolMeta", "ToolPermission",
    "ToolRegistry", "ToolResult", "function_tool", "tool",
]  # fmt: skip

__version__ = "0.1.0"

_PACKAGES = ("core", "engine", "kit", "models", "render", "snowl", "trace", "view")
_ENGINE = ("ContextConfig", "Engine", "EngineResult", "RuntimeBudget", "StepSummary")
_HOME = {**dict.fromkeys(__all__, "core"), **dict.fromkeys(_ENGINE, "engine")}  # Its package.


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
