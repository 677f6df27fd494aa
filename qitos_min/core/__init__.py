"""What agents, tools and states are made of."""

from .action import Action, ActionExecutionPolicy, ActionKind, ActionResult, ActionStatus
from .agent_module import AgentModule
from .agent_spec import AgentRegistry, AgentSpec, ContextStrategy, HandoffContext, StateAdapter
from .artifact import ArtifactContractError, ArtifactRef
from .decision import Decision
from .env import Env, EnvCapabilityError, EnvObservation, EnvSpec, EnvStepResult
from .errors import ErrorCategory, QitosRuntimeError, RuntimeErrorInfo, StopReason
from .function_tool_decorator import function_tool
from .history import History, HistoryMessage, HistoryPolicy
from .memory import Memory, MemoryRecord
from .observation import Observation
from .session import AttemptIdentity
from .spec import BenchmarkRunResult, ExperimentSpec, RunSpec
from .state import StateMigrationError, StateSchema, StateValidationError
from .task import Task, TaskBudget, TaskResource, TaskResult
from .tool import BaseTool, FunctionTool, RetryPolicy, ToolMeta, ToolPermission, ToolPermissionSpec
from .tool import ToolSpec, tool
from .tool_registry import ToolRegistry
from .tool_result import ToolResult, ToolResultContractError
from .tool_schema import function_schema, parse_docstring, type_to_json_schema

__all__ = [
    "Action", "ActionExecutionPolicy", "ActionKind", "ActionResult", "ActionStatus", "AgentModule",
    "AgentRegistry", "AgentSpec", "ArtifactContractError", "ArtifactRef", "AttemptIdentity",
    "BaseTool", "BenchmarkRunResult", "ContextStrategy", "Decision", "Env", "EnvCapabilityError",
    "EnvObservation", "EnvSpec", "EnvStepResult", "ErrorCategory", "ExperimentSpec", "FunctionTool",
    "HandoffContext", "History", "HistoryMessage", "HistoryPolicy", "Memory", "MemoryRecord",
    "Observation", "QitosRuntimeError", "RetryPolicy", "RunSpec", "RuntimeErrorInfo",
    "StateAdapter", "StateMigrationError", "StateSchema", "StateValidationError", "StopReason",
    "Task", "TaskBudget", "TaskResource", "TaskResult", "ToolMeta", "ToolPermission",
    "ToolPermissionSpec", "ToolRegistry", "ToolResult", "ToolResultContractError", "ToolSpec",
    "function_schema", "function_tool", "parse_docstring", "tool", "type_to_json_schema",
]  # fmt: skip
