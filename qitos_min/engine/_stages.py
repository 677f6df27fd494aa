"""The stages of one step, in the order in which they run."""

from __future__ import annotations

import marshal
from operator import attrgetter
from typing import Any

from ..core import Action, Decision, Observation, StateSchema, ToolResult
from ..core._foreign import guarded
from ..core._json import dumps
from ..core.errors import ErrorCategory, QitosRuntimeError, StopReason
from ._conversation import recorded_calls
from ._plain import exact, plain
from ._run import Run
from ._verdicts import check_stop, critique
from .action_executor import ActionExecutor, tool_invocation
from .states import RuntimePhase, StepRecord, action_row

_REST = attrgetter("timeout_s", "max_retries", "idempotent", "classification", "metadata")
_TOOL_HOOKS = {"on_before_tool_use", "on_after_tool_use", "on_permission_denied"}


def run_step(run: Run) -> None:
    """Take one step; wherever it ends, its record is complete."""
    run.step_id = len(run.records)
    run.record = StepRecord(run.step_id, agent_id=run.seat.name)
    run.decision = run.answer = run.pending_handoff = None
    run.retried, run.transfers = False, 0
    run.hook("on_before_step")
    run.stamp()
    run.attempt(_take_stages, run)
    if isinstance(run.state, StateSchema):
        run.attempt(setattr, run.state, "current_step", run.step_id + 1)
    run.end_step()
    run.hook("on_after_step")


def _take_stages(run: Run) -> None:
    for phase, work, applies, before, after in _STAGES:
        if run.token.mode == "immediate":
            run.stop_reason = StopReason.CANCELLED_IMMEDIATE
            return
        if applies is not None and not applies(run):
            continue
        run.phase = phase
        if run.listeners:
            run.hook(before)
        ends = work(run)
        if run.listeners:
            run.hook(after)
        if ends:
            return


def _decide(run: Run) -> bool:
    """Let the agent, or its model, decide; True if that ends the step."""
    _observe(run)
    run.emit(stage="start")
    record = run.record
    record.decision_source = "agent"
    decision, said = run.seat.agent.decide(run.state, run.observation), None
    if decision is None:
        from ._model_call import decide_with_model  # Runs without a model need none.

        record.decision_source = "model"
        decision, said = decide_with_model(run)
    run.stamp()
    run.instruction_patch = run.modified_prompt = None
    decision = run.decision = _checked(run, decision)
    kept, run.calls = _recorded(decision, record.step_id)
    record.decision, record.actions = kept, kept.actions
    told = {"rationale": kept.rationale, "actions": [action_row(one) for one in kept.actions]}
    run.emit(stage="decision_ready", mode=kept.mode, **told, final_answer=kept.final_answer)
    run.remember("decision", decision)
    if run.talks:
        said = _spoken(kept) if said is None else said
        calls = {"tool_calls": recorded_calls(kept.actions), "native": record.native_tool_call_used}
        run.say("assistant", said, **(calls if kept.actions else {}))
    if kept.mode == "handoff":
        run.hand_off(kept.target)
    return kept.mode in ("wait", "handoff")


def _observe(run: Run) -> None:
    """Show the agent a copy of what there is; the record keeps another."""
    env = run.seat.env
    view: dict[str, Any] = {"enabled": env is not None}
    if env is not None:
        seen = run.foreign(ErrorCategory.ENV, env.observe, run.state)
        view |= {name: plain(getattr(env, name, None)) for name in ("name", "version")}
        view |= {"observation": plain(seen), "last_result": plain(run.env_result)}
    run.state_before = run.view.of(run.state)
    kept = {"task": run.task_text, "step": run.step_id, "state": run.state_before}
    kept |= {"env": view, "action_results": plain(run.outputs)}
    if run.instruction_patch is not None:
        kept["instruction_patch"] = plain(run.instruction_patch)
    run.observation = Observation(kept, results=run.results)
    state = marshal.loads(marshal.dumps(run.state_before, 2))  # A copy in C: it may be large.
    run.observation.update(state=state, action_results=run.outputs)
    run.observation["env"] = {**view} if env is None else plain(view)
    run.record.observation = kept
    run.emit(stage="state_ready", observation=kept)
    run.remember("observation", kept)
    run.outputs, run.results = [], []


def _checked(run: Run, decision: Any) -> Decision:
    """The decision itself, or the candidate of a branch that the search picks."""
    if not isinstance(decision, Decision):
        raise QitosRuntimeError(f"expected a Decision, got {type(decision).__name__}")
    decision.validate()
    if decision.mode != "branch":
        return decision
    search = run.engine.search
    return _checked(run, decision.candidates[0] if search is None else _picked(run, decision))


def _picked(run: Run, decision: Decision) -> Decision:
    """What is left of the candidates after the search expanded, scored and pruned them."""
    search, state, seen = run.engine.search, run.state, run.observation
    candidates = search.expand(state, seen, decision) or list(decision.candidates)
    candidates = search.prune(candidates, search.score(state, seen, candidates))
    if candidates:
        return search.select(candidates, search.score(state, seen, candidates))
    found = search.backtrack(state)
    run.state = state if found is None else found
    return Decision.wait(rationale="the search found no candidate and went back")


def _recorded(decision: Decision, step_id: int) -> tuple[Decision, list[Action]]:
    """A snapshot in plain values, with an id of its own for each action, and what the tools get."""
    actions: list[Action] = []
    sent: list[Action] = []
    ids: set[str] = set()
    for index, action in enumerate(decision.actions):
        own = first = action.action_id or f"call_{step_id}_{index}"
        while own in ids:
            index += 1
            own = f"{first}_{index}"
        ids.add(own)
        rest = (action.kind, own, *_REST(action))
        args, inexact = guarded(exact, action.args)
        kept = Action(action.name, plain(action.args) if inexact else args, *rest)
        sent.append(Action(action.name, action.args, *rest) if inexact else kept)
        kept.metadata = plain(action.metadata)
        actions.append(kept)
    answer, rationale, meta = map(plain, (decision.final_answer, decision.rationale, decision.meta))
    return Decision(decision.mode, actions, answer, rationale, meta, target=decision.target), sent


def _spoken(decision: Decision) -> str:
    if decision.mode == "final":
        said = f"Final answer: {_text(decision.final_answer)}"
    elif decision.mode == "act":
        said = "\n".join(f"{a.name}({dumps(a.args)})" for a in decision.actions)
    else:
        said = f"{decision.mode} {decision.target or ''}".strip()
    return f"{_text(decision.rationale)}\n{said}" if decision.rationale else said


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _act(run: Run) -> bool:
    """Run the tools; True if one of them handed the run off."""
    run.emit(stage="start")
    watch = None if _TOOL_HOOKS.isdisjoint(run.listeners) else run.tool_hook
    executor = ActionExecutor(run.seat.registry, run.engine.executor.policy, watch=watch)
    try:
        batch = executor.run_batch(run.calls, run.tool_context())
    except KeyboardInterrupt:  # What was done is not lost, but a handoff is not made any more.
        if executor.finished and run.pending_handoff is None:
            guarded(_take_results, run, executor.finished)
        raise
    run.record.action_execution = batch.execution
    _take_results(run, batch.results)
    if run.seat.env is not None:
        taken = {"decision_mode": run.decision.mode, "actions": run.calls}
        taken |= {"final_answer": run.decision.final_answer, "action_results": run.outputs}
        run.env_result = run.foreign(ErrorCategory.ENV, run.seat.env.step, taken, run.state)
        run.stamp()
    run.emit(stage="observation_ready")
    if run.pending_handoff is not None:
        run.hand_off(run.pending_handoff)
    return run.pending_handoff is not None


def _take_results(run: Run, results: list[ToolResult]) -> None:
    record = run.record
    run.stamp()
    run.results = results
    run.outputs = [_seen(result) for result in results]
    record.action_results = outputs = plain(run.outputs)
    record.tool_invocations = calls = [tool_invocation(result) for result in results]
    run.emit(stage="action_results", tool_invocations=calls, action_results=outputs)
    for output in outputs if run.memory is not None else ():
        run.remember("action_result", output)
    if run.talks:
        most = run.engine.context_config.max_result_chars
        names = {action.action_id: action.name for action in record.actions}
        for result in results:
            own = {"tool_call_id": result.action_id, "native": record.native_tool_call_used}
            text = _text(result.to_model_dict(max_chars=most))
            run.say("tool", text, name=names[result.action_id], **own)


def _seen(result: ToolResult) -> Any:
    """What agents and critics see: the output, of a failure with the reason, its keys in place."""
    if result.is_success:
        return result.output
    names = ("tool_name", "status", "error", "error_code", "output")
    found = result.output if isinstance(result.output, dict) else {}
    return {**found, **{name: getattr(result, name) for name in names}}


def _reduce(run: Run) -> bool:
    """Let the agent take the step into its state."""
    run.idle.clear()
    run.emit(stage="start")
    seen = Observation(run.observation, results=run.results)
    seen.update(decision=run.decision, action_results=run.outputs)
    state = run.seat.agent.reduce(run.state, seen, run.decision)
    run.stamp()
    run.state = run.state if state is None else state
    after = run.view.of(run.state)
    diff = run.record.state_diff = _difference(run.state_before, after)
    run.emit(stage="state_reduced", state_diff=diff)
    run.remember("next_state", after)
    if run.decision.mode == "final":
        run.answer = run.decision.final_answer
    if isinstance(run.state, StateSchema):
        run.state.validate()
    return False


def _difference(before: Any, after: Any) -> dict[str, Any]:
    if before is after or before == after:
        return {}
    if not isinstance(before, dict) or not isinstance(after, dict):
        return {"state": {"before": before, "after": after}}
    changed = [n for n in {**before, **after} if before.get(n) != after.get(n)]
    return {name: {"before": before.get(name), "after": after.get(name)} for name in changed}


# Each with what does it, which ends the step when it returns True, and when there is one.
_ORDER: list[tuple[RuntimePhase, Any, Any]] = [
    (RuntimePhase.DECIDE, _decide, None),
    (RuntimePhase.ACT, _act, lambda run: run.decision.mode == "act"),
    (RuntimePhase.REDUCE, _reduce, None),
    (RuntimePhase.CRITIC, critique, lambda run: run.engine.critics),
    (RuntimePhase.CHECK_STOP, check_stop, None),
]
_STAGES = [(*one, f"on_before_{one[0].lower()}", f"on_after_{one[0].lower()}") for one in _ORDER]
