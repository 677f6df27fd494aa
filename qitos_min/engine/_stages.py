"""The stages of one step, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from ..core._json import dumps, to_json_value
from ..core.decision import Decision
from ..core.errors import QitosRuntimeError, StopReason
from ..core.state import StateSchema
from ..core.tool_result import ToolResult
from ._run import Run, error_text
from .action_executor import ActionExecutor, tool_invocation
from .cancellation import CancelMode
from .critic import critic_name
from .critic_result import CriticResult
from .states import RuntimePhase

__all__ = ["run_step"]


def run_step(run: Run) -> None:
    """Take one step: DECIDE, ACT, REDUCE, CRITIC, CHECK_STOP.

    A decision to wait or to hand off ends it after DECIDE, a failure wherever
    it happens; the record is complete in each case.
    """
    run.begin_step()
    run.hook("on_before_step")
    try:
        for phase, stage in _STAGES:
            if run.token.mode is CancelMode.IMMEDIATE:
                run.stop_reason = StopReason.CANCELLED_IMMEDIATE
                break
            run.phase = phase
            run.hook(f"on_before_{phase.value.lower()}")
            ends = stage(run)
            run.hook(f"on_after_{phase.value.lower()}")
            if ends:
                break
        if isinstance(run.state, StateSchema):
            run.state.current_step = len(run.records) + 1
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # The run's own boundary: whatever an agent's code raises is recorded.
        run.fail(error)
    finally:
        run.hook("on_after_step")
        run.end_step()


def _decide(run: Run) -> bool:
    """Let the agent, or its model, decide; True if that ends the step."""
    _observe(run)
    run.emit(RuntimePhase.DECIDE, stage="start")
    decision = run.seat.agent.decide(run.state, run.observation)
    run.record.decision_source = "agent"
    if decision is None:
        from ._model_call import decide_with_model  # Runs without a model need none.

        run.record.decision_source = "model"
        decision = decide_with_model(run)
    run.instruction_patch = run.modified_prompt = None
    decision = _checked(decision)
    record = run.record
    record.decision = run.decision = _copied(decision, len(run.records))
    record.actions = record.decision.actions
    run.emit(
        RuntimePhase.DECIDE,
        stage="decision_ready",
        mode=decision.mode,
        rationale=to_json_value(decision.rationale),
        actions=[action.to_dict() for action in record.actions],
        final_answer=to_json_value(decision.final_answer),
    )
    if record.decision_source == "agent":
        run.say("assistant", _spoken(decision))
    if decision.mode == "handoff":
        run.hand_off(decision.target)
    return decision.mode in ("wait", "handoff")


def _observe(run: Run) -> None:
    env = run.engine.env
    view: dict[str, Any] = {"enabled": env is not None}
    if env is not None:
        view["observation"] = to_json_value(env.observe(run.state))
    run.observation = {
        "task": run.task_text,
        "step": len(run.records),
        "state": to_json_value(run.state),
        "env": view,
        "action_results": run.outputs,
    }
    if run.instruction_patch is not None:
        run.observation["instruction_patch"] = run.instruction_patch
    run.record.observation = to_json_value(run.observation)
    run.state_before = run.record.observation["state"]
    run.emit(
        RuntimePhase.DECIDE, stage="state_ready", observation=run.record.observation
    )
    run.outputs = []


def _checked(decision: Any) -> Decision:
    if not isinstance(decision, Decision):
        raise QitosRuntimeError(f"expected a Decision, got {type(decision).__name__}")
    if decision.mode == "branch":
        decision.validate()
        return _checked(decision.candidates[0])
    decision.validate()
    return decision


def _copied(decision: Decision, step_id: int) -> Decision:
    """A copy whose actions have ids, and arguments that nobody changes."""
    actions = [
        replace(
            action,
            args=to_json_value(action.args),
            action_id=action.action_id or f"call_{step_id}_{index}",
        )
        for index, action in enumerate(decision.actions)
    ]
    return replace(decision, actions=actions, meta=to_json_value(decision.meta))


def _spoken(decision: Decision) -> str:
    """The decision as the text of a conversation."""
    if decision.mode == "final":
        said = f"Final answer: {_plain(decision.final_answer)}"
    elif decision.mode == "act":
        said = "\n".join(f"{a.name}({dumps(a.args)})" for a in decision.actions)
    else:
        said = f"{decision.mode} {decision.target or ''}".strip()
    return f"{decision.rationale}\n{said}" if decision.rationale else said


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _act(run: Run) -> bool:
    """Run the tools; True if one of them handed the run off."""
    if run.decision.mode != "act":
        return False
    run.emit(RuntimePhase.ACT, stage="start")
    actions = [replace(a, args=to_json_value(a.args)) for a in run.record.actions]
    executor = ActionExecutor(run.seat.registry, policy=run.engine.action_policy)
    batch = executor.execute(actions, runtime_context=run.tool_context())
    run.results = batch.results
    run.outputs = [_seen(result) for result in batch.results]
    record = run.record
    record.action_results = to_json_value(run.outputs)
    record.tool_invocations = [tool_invocation(result) for result in batch.results]
    record.action_execution = batch.execution
    run.emit(
        RuntimePhase.ACT,
        stage="action_results",
        tool_invocations=record.tool_invocations,
        action_results=record.action_results,
    )
    most = run.engine.context_config.max_result_chars
    for action, result in zip(record.actions, batch.results):
        text = _plain(result.to_model_dict(max_chars=most))
        run.say(
            "tool",
            text,
            name=action.name,
            tool_call_id=action.action_id,
            native=record.native_tool_call_used,
        )
    if run.engine.env is not None:
        run.env_result = run.engine.env.step(run.decision, run.state)
    run.emit(RuntimePhase.ACT, stage="observation_ready")
    if run.pending_handoff is not None:
        run.hand_off(run.pending_handoff)
    return run.pending_handoff is not None


def _seen(result: ToolResult) -> Any:
    """What agents and critics see of a result: its output, or what failed."""
    if result.is_success:
        return result.output
    return {
        "tool_name": result.tool_name,
        "status": result.status,
        "error": result.error,
        "error_code": result.error_code,
    }


def _reduce(run: Run) -> bool:
    """Let the agent take the step into its state."""
    run.emit(RuntimePhase.REDUCE, stage="start")
    seen = {**run.observation, "decision": run.decision, "action_results": run.outputs}
    state = run.seat.agent.reduce(run.state, seen, run.decision)
    run.state = run.state if state is None else state
    after = to_json_value(run.state)
    run.record.state_diff = _difference(run.state_before, after)
    run.emit(
        RuntimePhase.REDUCE, stage="state_reduced", state_diff=run.record.state_diff
    )
    if run.decision.mode == "final":
        run.answer = run.decision.final_answer
    return False


def _difference(before: Any, after: Any) -> dict[str, Any]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return {} if before == after else {"state": {"before": before, "after": after}}
    return {
        name: {"before": before.get(name), "after": after.get(name)}
        for name in (*before, *(name for name in after if name not in before))
        if before.get(name) != after.get(name)
    }


def _critique(run: Run) -> bool:
    """Ask every critic; the first stop or retry wins."""
    critics = run.engine.critics
    if not critics:
        return False
    run.emit(RuntimePhase.CRITIC, stage="start", critic_count=len(critics))
    verdict, failed = CriticResult(), None
    for critic in critics:
        result, error = _verdict(run, critic)
        failed = failed or error
        if verdict.action == "continue":
            verdict = result
    outputs = run.record.critic_outputs
    run.emit(RuntimePhase.CRITIC, stage="outputs", critic_outputs=outputs)
    stage = {"continue": "pass"}.get(verdict.action, verdict.action)
    run.emit(RuntimePhase.CRITIC, stage=stage, reason=to_json_value(verdict.reason))
    if failed is not None:
        raise failed
    if verdict.action == "stop":
        _keep_answer(run)
        run.stop_reason = StopReason.CRITIC_STOP
    elif verdict.action == "retry":
        _retry(run, verdict)
    return False


def _verdict(run: Run, critic: Any) -> tuple[CriticResult, BaseException | None]:
    """One critic's verdict, recorded; one that raises fails closed."""
    error = None
    try:
        result = CriticResult.from_value(
            critic.evaluate(run.state, run.decision, list(run.outputs))
        )
    except KeyboardInterrupt:
        raise
    except BaseException as caught:
        error = caught
        text = f"critic raised {type(caught).__name__}: {error_text(caught)}"
        result = CriticResult("stop", text, score=None)
    row = {"critic_name": critic_name(critic), **to_json_value(result)}
    run.record.critic_outputs.append(row)
    return result, error


def _keep_answer(run: Run) -> None:
    if run.answer is not None and isinstance(run.state, StateSchema):
        run.state.final_result = run.answer


def _retry(run: Run, verdict: CriticResult) -> None:
    """Take the answer back and patch state and next model call."""
    run.retried, run.answer = True, None
    if isinstance(run.state, StateSchema):
        run.state.final_result = run.state.stop_reason = None
    run.instruction_patch = verdict.instruction_patch
    run.modified_prompt = verdict.modified_prompt
    if verdict.state_patch:
        _patch_state(run.state, verdict.state_patch)


def _patch_state(state: Any, patch: dict[str, Any]) -> None:
    """Set existing fields only, and take them back if the state is then invalid."""
    known = {f.name for f in fields(state)} & set(patch)
    old = {name: getattr(state, name) for name in known}
    for name in known:
        setattr(state, name, patch[name])
    try:
        if hasattr(state, "validate"):
            state.validate()
    except Exception:
        for name, value in old.items():
            setattr(state, name, value)
        raise


def _check_stop(run: Run) -> bool:
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
        final_result=to_json_value(run.final_result),
        stop_detail=detail,
    )
    return True


def _reason_to_stop(run: Run) -> tuple[StopReason | None, str | None]:
    state, engine = run.state, run.engine
    if run.decision.mode == "final" and not run.retried:
        _keep_answer(run)
        return StopReason.FINAL, None
    if run.seat.agent.should_stop(state):
        return StopReason.AGENT_CONDITION, None
    if engine.env is not None and engine.env.is_terminal(state, run.env_result):
        return StopReason.ENV_TERMINAL, None
    info = {"elapsed_seconds": run.elapsed(), "total_tokens": run.total_tokens}
    for criterion in engine.stop_criteria:
        answer = criterion.should_stop(state, len(run.records) + 1, info)
        stop, reason, detail = (
            answer if isinstance(answer, tuple) else (answer, None, None)
        )
        if stop:
            return StopReason(reason or StopReason.AGENT_CONDITION), detail
    return None, None


_STAGES: tuple[tuple[RuntimePhase, Callable[[Run], bool]], ...] = (
    (RuntimePhase.DECIDE, _decide),
    (RuntimePhase.ACT, _act),
    (RuntimePhase.REDUCE, _reduce),
    (RuntimePhase.CRITIC, _critique),
    (RuntimePhase.CHECK_STOP, _check_stop),
)
