"""What a run leaves behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic

from ..core import ErrorCategory, QitosRuntimeError, StopReason, Task, TaskResult, _json
from ..core._contract import Record
from ..core._foreign import summary
from ..core._json import dumps, to_json_value
from ..core.agent_module import StateT
from .cancellation import CancelMode, CancelToken
from .states import CriticTrace, HandoffTrace, RuntimeEvent, RuntimePhase, StepRecord

_PREVIEW_CHARS = 200
_ROWS = ["step_summaries", "critic_traces", "handoff_traces"]
_TOLD = ["step_count", "runtime_seconds", "total_tokens", "tool_calls_by_name", "success_rate"]
_TOLD += [*_ROWS, "failure", "error_code", "task_result", "state"]
_JUDGED = ("step_id", "critic_outputs")
_SUCCESS = (StopReason.SUCCESS, StopReason.FINAL, StopReason.ENV_TERMINAL)


@dataclass
class StepSummary(Record):
    """One tool call at a glance."""

    step_id: int
    tool_name: str
    status: str
    latency_ms: float = 0.0
    error: str | None = None
    result_preview: str = ""


@dataclass
class EngineResult(Generic[StateT]):
    """A finished run: its state, records, events and traces."""

    state: StateT
    records: list[StepRecord]
    events: list[RuntimeEvent]
    step_count: int
    task_result: TaskResult | None = None
    runtime_seconds: float = 0.0
    total_tokens: int = 0
    run_id: str = ""
    critic_traces: list[CriticTrace] = field(default_factory=list)
    handoff_traces: list[HandoffTrace] = field(default_factory=list)
    # category, phase, step_id, type, message and traceback of what ended the run.
    failure: dict[str, Any] | None = None

    def __repr__(self) -> str:
        failed, answer = self.failure and self.failure.get("type"), to_json_value(self.final_result)
        told = {"steps": self.step_count, "final_result": answer, "failure": failed}
        return summary(self, run_id=self.run_id, **told)

    def raise_for_failure(self) -> None:
        """Raise a ``QitosRuntimeError`` if the run failed; it names the place."""
        if self.failure is not None:
            told = "{type}: {message} (in {phase} of step {step_id})".format_map(self.failure)
            raise QitosRuntimeError(told, ErrorCategory(self.failure["category"]))

    def cancel(self, mode: CancelMode | str = CancelMode.IMMEDIATE) -> bool:
        """Return False: only ``Engine.cancel`` stops runs. An unknown mode is a ``ValueError``."""
        CancelToken().cancel(mode)
        return False

    @property
    def final_result(self) -> Any:
        """The answer, or None."""
        if self.task_result is not None:
            return self.task_result.final_result
        return getattr(self.state, "final_result", None)

    @property
    def tool_calls_by_name(self) -> dict[str, int]:
        """Calls that really ran, by tool: neither denied nor unknown ones."""
        ran = (call for call in self._invocations() if call.get("attempts"))
        return dict(Counter(str(call.get("tool_name")) for call in ran))

    @property
    def success_rate(self) -> float:
        """Successes over all action results, 0.0 without any."""
        statuses = [call.get("status") for call in self._invocations()]
        return statuses.count("success") / len(statuses) if statuses else 0.0

    @property
    def step_summaries(self) -> list[StepSummary]:
        """One summary for each action, in order."""
        return [
            StepSummary(
                *(record.step_id, str(call.get("tool_name")), str(call.get("status"))),
                *(float(call.get("latency_ms") or 0.0), call.get("error"), _preview(output)),
            )
            for record in self.records
            for call, output in zip(record.tool_invocations, record.action_results)
        ]

    @property
    def error_code(self) -> str | None:
        """The category of the failure that ended the run, or None."""
        return self.failure["category"] if self.failure else None

    def to_dict(self) -> dict[str, Any]:
        """The run without records and events, as strict JSON."""
        told = {name: getattr(self, name) for name in _TOLD}
        rows = {name: [row.to_dict() for row in told[name]] for name in _ROWS}
        return {n: rows[n] if n in rows else to_json_value(value) for n, value in told.items()}

    def _invocations(self) -> list[dict[str, Any]]:
        return [call for record in self.records for call in record.tool_invocations]


def result_of(run: Any) -> EngineResult:
    """What the caller of a run that has ended gets."""
    reason, seconds, steps = run.stop_reason, run.elapsed(), len(run.records)
    metrics = {"steps": steps, "elapsed_seconds": seconds, "token_usage": run.total_tokens}
    own = run.task.id if isinstance(run.task, Task) else ""
    task = TaskResult(own, reason in _SUCCESS, reason.value, run.final_result, metrics=metrics)
    return EngineResult(
        *(run.state, run.records, run.events, steps, task, seconds, run.total_tokens, run.run_id),
        critic_traces=critic_traces(run.records),
        handoff_traces=handoff_traces(run.events),
        failure=run.failure,
    )


def critic_traces(records: Iterable[StepRecord | Any]) -> list[CriticTrace]:
    """Return one trace for each critic output, by the payload's own rules."""
    # No more of a record, as reading its events would take longest.
    judged = [{n: getattr(r, n, None) for n in _JUDGED} for r in records if r.critic_outputs]
    return [CriticTrace(**row) for row in (_json.critic_traces(judged) if judged else ())]


def handoff_traces(events: Iterable[RuntimeEvent | Any]) -> list[HandoffTrace]:
    """Return one trace for each HANDOFF_START event."""
    starts = [event for event in events if event.phase == RuntimePhase.HANDOFF_START]
    return [HandoffTrace(**row) for row in (_json.handoff_traces(starts) if starts else ())]


def _preview(output: Any) -> str:
    text = output if isinstance(output, str) else dumps(output)
    return text if len(text) <= _PREVIEW_CHARS else text[: _PREVIEW_CHARS - 3] + "..."
