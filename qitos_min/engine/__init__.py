"""Running agents."""

from .cancellation import CancelMode, CancelToken
from .critic import Critic, CriticResult, critic
from .engine import Engine, EngineResult, StepSummary
from .hooks import EngineHook, HookContext, ToolHookContext
from .states import ContextConfig, CriticTrace, EngineConfig, HandoffTrace
from .states import RuntimeBudget, RuntimeEvent, RuntimePhase, StepRecord

__all__ = ["CancelMode", "CancelToken", "ContextConfig", "Critic", "CriticResult", "CriticTrace"]
__all__ += ["Engine", "EngineConfig", "EngineHook", "EngineResult", "HandoffTrace", "HookContext"]
__all__ += ["RuntimeBudget", "RuntimeEvent", "RuntimePhase", "StepRecord", "StepSummary"]
__all__ += ["ToolHookContext", "critic"]
