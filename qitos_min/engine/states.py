"""The records of a run, as they are kept and exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timezone
from enum import Enum
from operator import attrgetter
from typing import Any

from ..core import Action, ActionExecutionPolicy, Decision
from ..core._contract import Record
from ..core._json import critic_traces, handoff_traces, to_json_value

__all__ = ["ContextConfig", "CriticTrace", "EngineConfig", "HandoffTrace", "RuntimeBudget"]
__all__ += ["RuntimeEvent", "RuntimePhase", "StepRecord", "StepResult"]


class RuntimePhase(str, Enum):
    """The part of a run that an event belongs to."""

    INIT = "INIT"
    DECIDE = "DECIDE"
    ACT = "ACT"
    CRITIC = "CRITIC"
    REDUCE = "REDUCE"
    CHECK_STOP = "CHECK_STOP"
    END = "END"
    DECIDE_ERROR = "DECIDE_ERROR"
    ACT_ERROR = "ACT_ERROR"
    RECOVER = "RECOVER"
    DELEGATE_START = "DELEGATE_START"
    DELEGATE_END = "DELEGATE_END"
    HANDOFF_START = "HANDOFF_START"
    HANDOFF_END = "HANDOFF_END"
    INTERRUPT = "INTERRUPT"
    FANOUT_START = "FANOUT_START"
    FANOUT_END = "FANOUT_END"
    COMPACT = "COMPACT"
    SESSION_START = "SESSION_START"
    SESSION_END = "SESSION_END"


@dataclass
class RuntimeBudget(Record):
    """Limits of a run; None is no limit."""

    max_steps: int | None = 10
    max_runtime_seconds: float | None = None
    max_tokens: int | None = None


@dataclass
class ContextConfig(Record):
    """How much a model call holds."""

    max_history_rounds: int | None = None  # Rounds of earlier steps in it; None is all of them.
    max_result_chars: int = 4000  # Characters of one tool result in the conversation.


def utc_now() -> str:
    """The time as aware ISO 8601 text."""
    return datetime.now(timezone.utc).isoformat()


@dataclass(slots=True)
class RuntimeEvent(Record):
    """One thing that happened."""

    step_id: int
    phase: RuntimePhase
    ok: bool = True
    payload: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    ts: str = field(default_factory=utc_now)


@dataclass(frozen=True, kw_only=True)
class RuntimeComposition:
    """The parts that an engine takes as one: ``Engine(agent, runtime=...)``."""

    checkpoint_store: Any = None  # Keeps the state after each step.
    action_execution_policy: ActionExecutionPolicy | None = None  # The engine's own if None.
    event_sink: Callable[[RuntimeEvent], None] | None = None  # Hears every event as it happens.
    artifact_resolver: Any = None  # Such as ``kit.artifact.FileArtifactStore``.


@dataclass
class ToolApprovalItem:
    """One tool call that waits for a person's word."""

    tool_name: str
    tool_args: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    tool_spec: Any = None  # The tool's ``ToolPermissionSpec``, where there is one.


@dataclass(slots=True)
class StepRecord(Record):
    """What one step saw, decided and did; its values are snapshots."""

    step_id: int
    phase_events: list[RuntimeEvent] = field(default_factory=list)
    observation: Any = None
    decision: Any = None
    model_response: dict[str, Any] = field(default_factory=dict)
    actions: list[Any] = field(default_factory=list)
    # Outputs in the order of the actions; a failed call is a dict with error and output.
    action_results: list[Any] = field(default_factory=list)
    tool_invocations: list[dict[str, Any]] = field(default_factory=list)
    action_execution: dict[str, Any] = field(default_factory=dict)
    # ``critic_name`` and the fields of CriticResult.
    critic_outputs: list[dict[str, Any]] = field(default_factory=list)
    state_diff: dict[str, Any] = field(default_factory=dict)  # Field -> {before, after}.
    context: dict[str, Any] = field(default_factory=dict)
    prompt_metadata: dict[str, Any] = field(default_factory=dict)
    protocol_id: str | None = None
    parser_selected: str | None = None
    parser_fallback_used: bool = False
    parser_attempts: list[Any] = field(default_factory=list)
    parser_diagnostics: dict[str, Any] = field(default_factory=dict)
    parser_contract: str | None = None
    parser_salvage_applied: bool = False
    decision_source: str | None = None  # ``agent`` or ``model``.
    agent_id: str | None = None
    native_tool_call_used: bool = False
    native_tool_call_fallback_reason: str | None = None
    visual_assets: list[Any] = field(default_factory=list)
    observation_modalities: list[str] = field(default_factory=list)
    visual_asset_count: int = 0
    has_screenshot: bool = False
    has_dom: bool = False
    has_accessibility_tree: bool = False
    model_input_modalities: list[str] = field(default_factory=list)
    model_input_visual_count: int = 0

    def to_row(self) -> dict[str, Any]:
        """Every field but the events, for writing as JSON: decision and actions as dicts."""
        row, decision = dict(zip(_ROW, _row_of(self))), self.decision
        if isinstance(decision, Decision):
            row["actions"] = [action_row(action) for action in decision.actions]
            row["decision"] = dict(zip(_DECISION, _decision_of(decision)))
            row["decision"]["actions"] = row["actions"]
        return row


_ROW = [f.name for f in fields(StepRecord) if f.name != "phase_events"]
_DECISION = [f.name for f in fields(Decision)]
_ACTION = [f.name for f in fields(Action)]
_row_of, _decision_of, _action_of = (attrgetter(*names) for names in (_ROW, _DECISION, _ACTION))


def action_row(action: Action) -> dict[str, Any]:
    """The fields of an action whose values are plain."""
    return {**dict(zip(_ACTION, _action_of(action))), "kind": action.kind.value}


@dataclass
class StepResult(Record):
    """What ``engine.session(task)`` yields for each step."""

    step_id: int
    decision: Any
    record: StepRecord
    observation: Any
    action_results: list[Any] = field(default_factory=list)
    stop: bool = False
    stop_reason: str | None = None
    error: str | None = None
    recovered: bool = False


class _Exported(Record):
    """A record that is read back from the dict it wrote; people build them by position."""

    @classmethod
    def from_dict(cls, payload: dict[str, Any]) -> Any:
        """The record of a copy of a dict; what does not fit is a ``ValueError``."""
        name, own = cls.__name__, fields(cls)
        if not isinstance(payload, dict):
            raise ValueError(f"{name} needs a dict, got {type(payload).__name__}")
        for key in sorted(payload.keys() - {f.name for f in own}, key=str):
            raise ValueError(f"unknown field {key!r} of {name}")
        for f in own:
            if f.default is f.default_factory is MISSING and f.name not in payload:
                raise ValueError(f"field {f.name!r} of {name} is missing")
        return cls(**to_json_value(payload))


@dataclass
class CriticTrace(_Exported):
    """One critic's verdict on one step."""

    step_id: int
    critic_name: str
    action: str
    reason: str = ""
    score: float | None = 1.0  # None when the critic gave no usable number.
    details: dict[str, Any] = field(default_factory=dict)
    instruction_patch: str | None = None
    state_patch: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields by the payload's rules, without empty details and patches."""
        row = critic_traces([self])[0]
        empty = {"details": {}, "instruction_patch": None, "state_patch": None}
        return {k: v for k, v in row.items() if k not in empty or v != empty[k]}


@dataclass
class HandoffTrace(_Exported):
    """One handoff from agent to agent."""

    step_id: int
    from_agent: str
    to_agent: str
    context_strategy: str = ""  # ``FULL``, ``SUMMARY`` or ``ISOLATED``.
    messages_passed: int = 0  # Messages that arrived, after the strategy.

    def to_dict(self) -> dict[str, Any]:
        """The five fields by the payload's rules."""
        return handoff_traces([self])[0]


@dataclass(frozen=True)
class EngineConfig(_Exported):
    """An engine as it was configured, for people and tools that compare runs."""

    agent_name: str = ""
    model_id: str = ""
    budget_max_steps: int | None = 10
    budget_max_runtime_seconds: float | None = None
    budget_max_tokens: int | None = None
    critic_names: list[str] = field(default_factory=list)
    stop_criteria_names: list[str] = field(default_factory=list)
    has_checkpoint_store: bool = False
    has_tracing_provider: bool = False
    protocol_id: str | None = None
    delegate_depth: int = 0
    has_shared_memory: bool = False
    has_env: bool = False
    tool_count: int = 0
