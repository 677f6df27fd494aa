"""What can go wrong in a run, and the words a run ends with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["ErrorCategory", "QitosRuntimeError", "RuntimeErrorInfo", "StopReason"]


class ErrorCategory(str, Enum):
    """Which part of a run failed."""

    MODEL = "model_error"
    PARSE = "parse_error"
    TOOL = "tool_error"
    STATE = "state_error"
    TASK = "task_error"
    ENV = "env_error"
    SYSTEM = "system_error"


class StopReason(str, Enum):
    """Why a run ended."""

    SUCCESS = "success"
    FINAL = "final"
    MAX_STEPS = "max_steps"
    BUDGET_STEPS = "budget_steps"
    BUDGET_TIME = "budget_time"
    BUDGET_TOKENS = "budget_tokens"
    CONTEXT_OVERFLOW = "context_overflow"
    AGENT_CONDITION = "agent_condition"
    CRITIC_STOP = "critic_stop"
    STAGNATION = "stagnation"
    ENV_TERMINAL = "env_terminal"
    TASK_VALIDATION_FAILED = "task_validation_failed"
    ENV_CAPABILITY_MISMATCH = "env_capability_mismatch"
    UNRECOVERABLE_ERROR = "unrecoverable_error"
    CANCELLED_IMMEDIATE = "cancelled_immediate"
    CANCELLED_AFTER_STEP = "cancelled_after_step"
    INTERRUPT = "interrupt"


@dataclass(frozen=True)
class RuntimeErrorInfo:
    """One recorded failure: what failed, where in the run, and its words."""

    category: ErrorCategory
    phase: str
    step_id: int
    type: str
    """Name of the exception's class."""
    message: str
    traceback: str = ""
    """The last 20 frames as text."""

    def to_dict(self) -> dict[str, object]:
        """The six fields as plain values, in this order."""
        return {
            "category": self.category.value,
            "phase": self.phase,
            "step_id": self.step_id,
            "type": self.type,
            "message": self.message,
            "traceback": self.traceback,
        }


class QitosRuntimeError(Exception):
    """A failure of the run itself, with the category it is recorded under."""

    def __init__(self, message: str, category: ErrorCategory = ErrorCategory.SYSTEM) -> None:
        super().__init__(message)
        self.message = message
        self.category = category
