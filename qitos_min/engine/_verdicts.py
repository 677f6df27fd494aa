"""What ends a step: the verdicts of critics, and whether it was the last."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any

from ..core import ErrorCategory, StateSchema, StopReason
from ..core._foreign import described, guarded
from ._plain import plain
from ._run import Run
from .critic import CriticResult, named
from .states import RuntimePhase


def critique(run: Run) -> bool:
    """Ask every critic; the first stop or retry wins."""
    critics, outputs = run.engine.critics, run.record.critic_outputs
    run.emit(stage="start", critic_count=len(critics))
    verdict, failed = CriticResult(), None
    for critic in critics:
        asked = (run.state, run.decision, list(run.outputs))
        result, error = guarded(lambda: CriticResult.from_value(critic.evaluate(*asked)))
        if error is not None:  # A critic that raises fails closed.
            result = CriticResult("stop", f"critic raised {described(error)}", score=None)
        outputs.append({"critic_name": named(critic, "critic_name"), **result.to_dict()})
        failed = failed or error
        verdict = result if verdict.action == "continue" else verdict
    run.stamp()
    run.emit(stage="outputs", critic_outputs=outputs)
    stage = "stop" if failed else {"continue": "pass"}.get(verdict.action, verdict.action)
    run.emit(stage=stage, reason=plain(verdict.reason))
    if failed is not None:
        raise failed
    if verdict.action == "stop":
        _keep_answer(run)
        run.stop_reason = StopReason.CRITIC_STOP
    elif verdict.action == "retry":
        _retry(run, verdict)
    return False


def _keep_answer(run: Run) -> None:
    if run.answer is not None and isinstance(run.state, StateSchema):
        run.state.final_result = run.answer


def _retry(run: Run, verdict: CriticResult) -> None:
    """Take the answer back, and patch the next model call and fields that the state has."""
    run.retried, run.answer, state = True, None, run.state
    if getattr(state, "final_result", None) is not None:
        state.final_result = None
    run.instruction_patch, run.modified_prompt = verdict.instruction_patch, verdict.modified_prompt
    for name in [f.name for f in fields(state)] if is_dataclass(state) else ():
        if verdict.state_patch and name in verdict.state_patch:
            # A critic may give the same patch again.
            copied, error = guarded(deepcopy, verdict.state_patch[name])
            setattr(state, name, verdict.state_patch[name] if error else copied)
    if isinstance(state, StateSchema):
        state.stop_reason = None
        state.validate()


def check_stop(run: Run) -> bool:
    """Ask whether this was the last step, in the documented order."""
    run.emit(stage="start")
    detail = None
    if run.stop_reason is None:
        run.stop_reason, detail = _reason_to_stop(run)
    if run.stop_reason is None:
        run.emit(stage="continue")
        return False
    told = {"stop_reason": run.stop_reason.value, "final_result": plain(run.final_result)}
    run.emit(stage="stop", **told, stop_detail=plain(detail))
    return True


def _reason_to_stop(run: Run) -> tuple[StopReason | None, Any]:
    """The first reason in order; after a retry only environment and criteria count."""
    state, env = run.state, run.seat.env
    if not run.retried:
        if run.decision.mode == "final":
            _keep_answer(run)
            return StopReason.FINAL, None
        own = state.stop_reason if isinstance(state, StateSchema) else None
        known, run.stop_known = run.stop_known, own
        # What the agent set, as with ``state.set_stop``; it may have waited since.
        if own is not None and own != known:
            return StopReason(own), None
        if run.seat.agent.should_stop(state):
            return StopReason.AGENT_CONDITION, None
    if env is not None and run.foreign(ErrorCategory.ENV, env.is_terminal, state, run.env_result):
        return StopReason.ENV_TERMINAL, None
    info = {**run.budget_info, "elapsed_seconds": run.elapsed(), "total_tokens": run.total_tokens}
    for criterion in run.engine.stop_criteria:
        given = criterion.should_stop(state, run.step_id + 1, runtime_info=info)
        given = given if isinstance(given, tuple) else (given,)
        stops, reason, detail = (*given, None, None)[:3]
        if stops:
            return StopReason(reason or StopReason.AGENT_CONDITION), detail
    return None, None
