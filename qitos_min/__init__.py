"""A small QitOS runtime: the standard library and ``snowl_compat.py``, nothing else.

Import paths, names and defaults are QitOS's own: rename the package and an
agent runs here.
"""

from .core import (
    Action,
    AgentModule,
    AgentRegistry,
    AgentSpec,
    BaseTool,
    ContextStrategy,
    Decision,
    Env,
    HandoffContext,
    Observation,
    QitosRuntimeError,
    StateAdapter,
    StateSchema,
    StopReason,
    Task,
    TaskBudget,
    TaskResult,
    ToolMeta,
    ToolPermission,
    ToolRegistry,
    ToolResult,
    function_tool,
    tool,
)
from .engine import Engine, EngineResult, StepSummary

__all__ = [
    "Action",
    "AgentModule",
    "AgentRegistry",
    "AgentSpec",
    "BaseTool",
    "ContextStrategy",
    "Decision",
    "Engine",
    "EngineResult",
    "Env",
    "HandoffContext",
    "Observation",
    "QitosRuntimeError",
    "StateAdapter",
    "StateSchema",
    "StepSummary",
    "StopReason",
    "Task",
    "TaskBudget",
    "TaskResult",
    "ToolMeta",
    "ToolPermission",
    "ToolRegistry",
    "ToolResult",
    "function_tool",
    "tool",
]
