"""What can go wrong in a run, and the words a run ends with."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


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

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise ValueError(f"unknown stop reason {value!r}; known: {', '.join(m.value for m in cls)}")


@dataclass(frozen=True)
class RuntimeErrorInfo:
    """One recorded failure: what failed, where in the run, and its words."""

    category: ErrorCategory
    message: str
    phase: str
    step_id: int
    recoverable: bool = False  # Whether another try may succeed.
    details: dict[str, Any] = field(default_factory=dict)
    type: str = ""  # Name of the exception's class.
    traceback: str = ""  # The last 20 frames as text.

    def to_dict(self) -> dict[str, object]:
        """What a result's ``failure`` holds, as plain values in this order."""
        names = ("phase", "step_id", "type", "message", "traceback")
        return {"category": self.category.value, **{n: getattr(self, n) for n in names}}


class QitosRuntimeError(Exception):
    """A failure of the run itself: a text and a category, or a ``RuntimeErrorInfo``."""

    def __init__(
        self, message: str | RuntimeErrorInfo, category: ErrorCategory = ErrorCategory.SYSTEM
    ) -> None:
        self.info = message if isinstance(message, RuntimeErrorInfo) else None
        self.message = message if self.info is None else self.info.message
        self.category = category if self.info is None else self.info.category
        super().__init__(self.message)


class ModelExecutionError(QitosRuntimeError):
    """The model failed."""


class ParseExecutionError(QitosRuntimeError):
    """What the model said could not be read."""


class ToolExecutionError(QitosRuntimeError):
    """A tool failed, or its call was refused."""


class StateExecutionError(QitosRuntimeError):
    """The state could not be made or changed."""


class SystemExecutionError(QitosRuntimeError):
    """The runtime itself failed."""


def classify_exception(exc: Exception, phase: str, step_id: int) -> RuntimeErrorInfo:
    """What an exception of a phase means: its own info or category, else the tool's in ``act``,
    the model's if that was not reached (both are recoverable), else the system's."""
    info, category = getattr(exc, "info", None), getattr(exc, "category", None)
    if isinstance(info, RuntimeErrorInfo):
        return info
    if not isinstance(category, ErrorCategory):
        category = ErrorCategory.TOOL if phase.lower() == "act" else ErrorCategory.SYSTEM
        if phase.lower() in ("decide", "model", "model_call", "propose"):
            lost = isinstance(exc, (TimeoutError, ConnectionError))
            category = ErrorCategory.MODEL if lost else category
    again = category in (ErrorCategory.MODEL, ErrorCategory.PARSE, ErrorCategory.TOOL)
    return RuntimeErrorInfo(category, str(exc), phase, step_id, again, {}, type(exc).__name__)
