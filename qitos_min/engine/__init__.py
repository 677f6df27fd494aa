"""Running agents."""

from .cancellation import CancelMode, CancelToken
from .critic import Critic
from .critic_decorator import critic
from .critic_result import CriticResult
from .engine import Engine, EngineResult, StepSummary
from .hooks import EngineHook, HookContext, ToolHookContext
from .states import (
    ContextConfig,
    CriticTrace,
    EngineConfig,
    HandoffTrace,
    RuntimeBudget,
    RuntimeEvent,
    RuntimePhase,
    StepRecord,
)

__all__ = [
    "CancelMode",
    "CancelToken",
    "ContextConfig",
    "Critic",
    "CriticResult",
    "CriticTrace",
    "Engine",
    "EngineConfig",
    "EngineHook",
    "EngineResult",
    "HandoffTrace",
    "HookContext",
    "RuntimeBudget",
    "RuntimeEvent",
    "RuntimePhase",
    "StepRecord",
    "StepSummary",
    "ToolHookContext",
    "critic",
]
