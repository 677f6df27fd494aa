"""What ends a step: the verdicts of critics, and whether it was the last."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from ..core._foreign import error_text, guarded
from ..core.errors import ErrorCategory, QitosRuntimeError, StopReason
from ..core.state import StateSchema
from ._plain import plain
from ._run import Run
from .critic import critic_name
from .critic_result import CriticResult
from .states import RuntimePhase


def critique(run: Run) -> bool:
    """Ask every critic; the first stop or retry wins."""
    critics, outputs = run.engine.critics, run.record.critic_outputs
    run.emit(RuntimePhase.CRITIC, stage="start", critic_count=len(critics))
    verdict, failed = CriticResult(), None
    for critic in critics:
        result, error = guarded(_verdict, run, critic)
        if error is not None:  # A critic that raises fails closed.
            text = f"critic raised {type(error).__name__}: {error_text(error)}"
            result = CriticResult("stop", text, score=None)
        outputs.append({"critic_name": critic_name(critic), **result.to_dict()})
        failed = failed or error
        if verdict.action == "continue":
            verdict = result
    run.stamp()
    run.emit(RuntimePhase.CRITIC, stage="outputs", critic_outputs=outputs)
    stage = "stop" if failed else {"continue": "pass"}.get(verdict.action, verdict.action)
    run.emit(RuntimePhase.CRITIC, stage=stage, reason=plain(verdict.reason))
    if failed is not None:
        raise failed
    if verdict.action == "stop":
        _keep_answer(run)
        run.stop_reason = StopReason.CRITIC_STOP
    elif verdict.action == "retry":
        _retry(run, verdict)
    return False


def _verdict(run: Run, critic: Any) -> CriticResult:
    given = critic.evaluate(run.state, run.decision, list(run.outputs))
    return CriticResult.from_value(given)


def _keep_answer(run: Run) -> None:
    if run.answer is not None and isinstance(run.state, StateSchema):
        run.state.final_result = run.answer


def _retry(run: Run, verdict: CriticResult) -> None:
    """Take the answer back and patch state and next model call."""
    run.retried, run.answer = True, None
    if getattr(run.state, "final_result", None) is not None:
        run.state.final_result = None
    if isinstance(run.state, StateSchema):
        run.state.stop_reason = None
    run.instruction_patch = verdict.instruction_patch
    run.modified_prompt = verdict.modified_prompt
    if verdict.state_patch:
        _patch_state(run.state, verdict.state_patch)


def _patch_state(state: Any, patch: dict[str, Any]) -> None:
    """Set existing fields only, and take them back if the state is then invalid."""
    known = {f.name for f in fields(state)} if is_dataclass(state) else set()
    old = {name: getattr(state, name) for name in known & patch.keys()}
    try:
        for name in old:
            setattr(state, name, _copied(patch[name]))
        if isinstance(state, StateSchema):
            state.validate()
    except BaseException:
        for name, value in old.items():
            setattr(state, name, value)
        raise


def _copied(value: Any) -> Any:
    """New lists and dicts with the same things in them: a critic may reuse its own."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if type(value) is list else value


def check_stop(run: Run) -> bool:
    """Ask whether this was the last step, in the documented order."""
    run.emit(RuntimePhase.CHECK_STOP, stage="start")
    detail = None
    if run.stop_reason is None:
        run.stop_reason, detail = _reason_to_stop(run)
    if run.stop_reason is None:
        run.emit(RuntimePhase.CHECK_STOP, stage="continue")
        return False
    run.emit(
        RuntimePhase.CHECK_STOP,
        stage="stop",
        stop_reason=run.stop_reason.value,
        final_result=plain(run.final_result),
        stop_detail=plain(detail),
    )
    return True


def _reason_to_stop(run: Run) -> tuple[StopReason | None, Any]:
    """The first reason in order; after a retry only environment and criteria count."""
    state, env = run.state, run.seat.env
    if not run.retried:
        if run.decision.mode == "final":
            _keep_answer(run)
            return StopReason.FINAL, None
        own = state.stop_reason if isinstance(state, StateSchema) else None
        # What the agent set in this step, as with ``state.set_stop``.
        if own is not None and own != run.state_before.get("stop_reason"):
            return _stop_reason(own, "the state's stop_reason"), None
        if run.seat.agent.should_stop(state):
            return StopReason.AGENT_CONDITION, None
    if env is not None:
        if run.foreign(ErrorCategory.ENV, env.is_terminal, state, run.env_result):
            return StopReason.ENV_TERMINAL, None
    return _criterion_to_stop(run)


def _criterion_to_stop(run: Run) -> tuple[StopReason | None, Any]:
    info = {
        "elapsed_seconds": run.elapsed(),
        "total_tokens": run.total_tokens,
        "budget_max_steps": run.budget.max_steps,
        "budget_max_runtime_seconds": run.budget.max_runtime_seconds,
        "budget_max_tokens": run.budget.max_tokens,
    }
    for criterion in run.engine.stop_criteria:
        answer = criterion.should_stop(run.state, run.step_id + 1, runtime_info=info)
        given = answer if isinstance(answer, tuple) else (answer,)
        answer, reason, detail = (*given, None, None)[:3]
        if answer:
            source = type(criterion).__name__
            return _stop_reason(reason or StopReason.AGENT_CONDITION, source), detail
    return None, None


def _stop_reason(reason: Any, source: str) -> StopReason:
    found, error = guarded(StopReason, reason)
    if error is not None:
        known = ", ".join(member.value for member in StopReason)
        raise QitosRuntimeError(f"unknown stop reason {reason!r} of {source}; known: {known}")
    return found
