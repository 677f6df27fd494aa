"""Critics: what they return, what becomes of it, and what is told of it."""

import math
from collections import OrderedDict
from enum import Enum
from functools import partial

import pytest
from engine_doubles import (
    ScriptedAgent,
    ScriptedCritic,
    ScriptedModel,
    add,
    as_json,
    play,
    play_agent,
    stages,
    tools,
    untraced,
)

from qitos_min import Action, Decision, Engine, ToolMeta
from qitos_min.engine import Critic, CriticResult, RuntimeBudget, critic
from qitos_min.engine._result import critic_traces
from qitos_min.engine.stop_criteria import MaxStepsCriteria

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))
CONTINUE = {"action": "continue"}


def judged(*verdicts, final="x", **options):
    """A run of one step for each critic's verdict, ending in a final answer."""
    critics = [ScriptedCritic(verdict) for verdict in verdicts]
    return play_agent(Decision.final(final), critics=critics, **options)


class Word(str, Enum):
    STOP = "stop"


class Late(Enum):
    RETRY = "retry"


@pytest.mark.parametrize(
    "value, expected",
    [
        (CriticResult(), CriticResult()),
        (CriticResult("stop", "why", 0.5, {"k": 1}), CriticResult("stop", "why", 0.5, {"k": 1})),
        ({}, CriticResult()),
        ({"action": "stop", "reason": "r", "more": 1}, CriticResult("stop", "r")),
        (OrderedDict(action="retry"), CriticResult("retry")),
        ("stop", CriticResult("stop")),
        (" Stop ", CriticResult("stop")),
        (Word.STOP, CriticResult("stop")),
        ({"action": Late.RETRY}, CriticResult("retry")),
        (("retry", "r"), CriticResult("retry", "r")),
        (("retry", "r", "do it"), CriticResult("retry", "r", instruction_patch="do it")),
        (["continue"], CriticResult()),
        ({"reason": None, "details": None}, CriticResult()),
        ({"score": None}, CriticResult(score=None)),
        ({"state_patch": {"notes": []}}, CriticResult(state_patch={"notes": []})),
    ],
    ids=repr,
)
def test_a_verdict_may_have_many_forms(value, expected):
    assert CriticResult.from_value(value) == expected


@pytest.mark.parametrize(
    "value, message",
    [
        (None, "expected a CriticResult, got NoneType"),
        (True, "expected a CriticResult, got bool"),
        ((), "expected a CriticResult, got tuple"),
        (("retry", "r", "p", "more"), "expected a CriticResult, got tuple"),
        ("bored", "unknown critic action 'bored'; known: continue, stop, retry"),
        ({"action": None}, "unknown critic action None; known: continue, stop, retry"),
        ({"state_patch": "notes"}, "state_patch must be a mapping of fields, got str"),
    ],
    ids=repr,
)
def test_a_verdict_that_nobody_understands_lets_no_step_pass(value, message):
    with pytest.raises(ValueError) as caught:
        CriticResult.from_value(value)
    assert str(caught.value) == message
    result = judged(value)
    assert result.task_result.stop_reason == "unrecoverable_error"
    assert result.failure["phase"] == "CRITIC"
    assert result.failure["message"] == message
    [row] = result.records[0].critic_outputs
    assert (row["action"], row["score"]) == ("stop", None)
    assert row["reason"] == f"critic raised ValueError: {message}"


def test_an_output_is_a_plain_dict_with_the_name_and_all_fields():
    result = judged(CriticResult("continue", "fine", 0.5, {"k": (1, 2)}, "p", "i", {"notes": []}))
    [output] = result.records[0].critic_outputs
    assert type(output) is dict
    assert output == {
        "critic_name": "ScriptedCritic",
        "action": "continue",
        "reason": "fine",
        "score": 0.5,
        "details": {"k": [1, 2]},
        "modified_prompt": "p",
        "instruction_patch": "i",
        "state_patch": {"notes": []},
    }
    [told] = [e.payload["critic_outputs"] for e in result.events if "critic_outputs" in e.payload]
    assert told == [output]


@pytest.mark.parametrize("score, kept", [(0.25, 0.25), (True, 1.0), ("0.8", 0.8), (7, 7.0)])
def test_a_usable_score_is_a_number(score, kept):
    """Case N6 (inspect_ai #78), C9: reported, not graded."""
    [trace] = judged({"score": score}).critic_traces
    assert (trace.score, type(trace.score)) == (kept, float)


@pytest.mark.parametrize("score", [None, math.nan, math.inf, "high", "", object(), [1], 10**400])
def test_an_unusable_score_is_none_and_costs_nothing_else(score):
    """Faults 1 and 2; cases N1 (inspect_ai #4491), N6."""
    result = judged({"score": score, "reason": "kept", "details": {"s": [math.nan, 1.0]}})
    [trace] = result.critic_traces
    assert (trace.score, trace.reason, trace.details) == (None, "kept", {"s": [None, 1.0]})
    assert as_json(trace.to_dict())["score"] is None
    assert result.final_result == "x"


def test_an_absent_score_is_the_default():
    assert judged(CONTINUE).critic_traces[0].score == 1.0


def test_a_reused_details_dict_gives_each_step_its_own():
    """Fault 3: earlier traces were rewritten."""
    details = {"steps": []}

    def judge(state, decision, results):
        details["steps"].append(state.current_step)
        return {"details": details}

    result = play_agent(ADD, ADD, Decision.final("x"), critics=[ScriptedCritic(*[judge] * 3)])
    assert [t.details["steps"] for t in result.critic_traces] == [[0], [0, 1], [0, 1, 2]]
    details["steps"].clear()
    assert result.critic_traces[2].details == {"steps": [0, 1, 2]}


def test_the_guides_loop_reads_the_outputs():
    from qitos_min.engine.states import CriticTrace

    result = play_agent(
        ADD,
        Decision.final("x"),
        critics=[
            ScriptedCritic({"reason": "a", "score": 0.5}, CONTINUE),
            ScriptedCritic({"details": {"k": 1}}, CONTINUE),
        ],
    )
    traces = []
    for record in result.records:
        for output in record.critic_outputs:
            if not isinstance(output, dict):
                continue
            traces.append(
                CriticTrace(
                    step_id=record.step_id,
                    critic_name=str(output.get("critic_name", "unknown")),
                    action=str(output.get("action", "continue")),
                    reason=str(output.get("reason", "")),
                    score=float(output.get("score", 1.0)),
                    details=output.get("details", {}),
                    instruction_patch=output.get("instruction_patch"),
                    state_patch=output.get("state_patch"),
                )
            )
    # The payload's own reader adds nothing here, so the two are the same.
    assert [t.to_dict() for t in traces] == [t.to_dict() for t in result.critic_traces]
    assert critic_traces(result.records) == result.critic_traces


# Names


def test_critic_names_are_those_declared():
    """Fault 6: a decorated critic was exported as _FunctionCritic."""

    class Quality(Critic):
        pass

    class Titled(Critic):
        critic_name = "titled"

    class Duck:
        def evaluate(self, state, decision, results):
            return "continue"

    @critic
    def bare(state, decision, results):
        return "continue"

    @critic()
    def called(state, decision, results):
        return "continue"

    @critic(name="given", score=0.5)
    def other(state, decision, results):
        return "continue"

    critics = [Quality(), Titled(), Duck(), bare, called, other]
    names = ["Quality", "titled", "Duck", "bare", "called", "given"]
    engine = Engine(ScriptedAgent(Decision.final("x")), critics=critics)
    assert engine.export_config().critic_names == names
    result = play(engine)
    assert [trace.critic_name for trace in result.critic_traces] == names
    assert [trace.score for trace in result.critic_traces] == [1.0] * 5 + [0.5]


# The decorator


@pytest.mark.parametrize(
    "value, score",
    [
        ("stop", 0.5),
        (("retry", "r"), 0.5),
        ({"action": "continue"}, 0.5),
        ({"action": "continue", "score": 0.9}, 0.9),
        (CriticResult(score=0.9), 0.9),
    ],
    ids=repr,
)
def test_the_decorators_score_is_for_verdicts_without_one(value, score):
    judge = critic(score=0.5)(lambda state, decision, results: value)
    assert CriticResult.from_value(judge.evaluate(None, None, [])).score == score


def test_a_decorated_function_stays_callable_and_keeps_its_docstring():
    @critic(name="n")
    def judge(state, decision, results):
        """Judge."""
        return "stop"

    assert judge(None, None, []) == "stop"
    assert judge.__doc__ == "Judge."


def test_what_can_be_decorated():
    def judge(state, decision, results):
        return "continue"

    assert critic(partial(judge)).critic_name == "partial"
    for value, what in ((ScriptedCritic, "a class"), ("name", "str"), (5, "int")):
        with pytest.raises(TypeError) as caught:
            critic(value)
        assert str(caught.value) == f"@critic needs a function, got {what}"


# What critics see


def test_critics_see_state_decision_and_real_errors():
    def secret() -> int:
        """Secret."""
        return 1

    registry = tools().register(secret, meta=ToolMeta(needs_approval=True))
    names = ("add", "boom", "secret", "nope")
    actions = [Action(name, {"a": 1, "b": 2} if name == "add" else {}) for name in names]
    judge = ScriptedCritic(CONTINUE, CONTINUE)
    agent = ScriptedAgent(Decision.act(actions), Decision.final("x"), tool_registry=registry)
    result = play(Engine(agent, critics=[judge]))
    state, decision, results = judge.seen[0]
    assert state is result.state and decision.mode == "act"
    assert results[0] == 3
    assert [row["status"] for row in results[1:]] == ["error", "skipped", "error"]
    assert [row["error_code"] for row in results[1:]] == [
        "tool_execution_failed",
        "approval_required",
        "tool_not_found",
    ]
    assert results[1]["error"] == "ValueError: no luck"
    assert judge.seen[1][2] == []


def test_a_critic_looks_at_the_reduced_state():
    def note(state, observation, decision):
        state.notes.append("reduced")

    seen = []
    judge = ScriptedCritic(lambda state, d, r: seen.append(list(state.notes)) or CONTINUE)
    play(Engine(ScriptedAgent(Decision.final("x"), reduce=note), critics=[judge]))
    assert seen == [["reduced"]]


# Who wins


@pytest.mark.parametrize(
    "verdicts, stage, reason",
    [
        (("continue", "continue"), "CRITIC pass", "final"),
        (("continue", "stop"), "CRITIC stop", "critic_stop"),
        (("stop", ("retry", "r")), "CRITIC stop", "critic_stop"),
        ((("retry", "r"), "stop"), "CRITIC retry", "budget_steps"),
        (("continue", ("retry", "r")), "CRITIC retry", "budget_steps"),
        ((("retry", "r"), ValueError("x")), "CRITIC stop", "unrecoverable_error"),
        ((ValueError("x"), "continue"), "CRITIC stop", "unrecoverable_error"),
    ],
    ids=repr,
)
def test_the_first_stop_or_retry_wins_and_all_are_asked(verdicts, stage, reason):
    result = judged(*verdicts, budget=RuntimeBudget(max_steps=1))
    assert stage in stages(result.events)
    assert result.task_result.stop_reason == reason
    assert len(result.critic_traces) == len(verdicts)


# Stop


def test_a_stop_keeps_an_answer_already_given():
    """Fault 7: the answer was dropped."""
    result = judged("stop", final="the answer")
    assert result.task_result.stop_reason == "critic_stop"
    assert result.state.final_result == result.final_result == "the answer"
    assert result.task_result.success is False
    assert stages(result.events)[-3:] == ["CHECK_STOP start", "CHECK_STOP stop", "END"]


def test_a_stop_without_an_answer_has_none():
    result = play_agent(ADD, critics=[ScriptedCritic("stop")])
    assert (result.task_result.stop_reason, result.final_result) == ("critic_stop", None)


# Retry


def test_a_retry_takes_the_answer_back_and_the_next_step_decides_again():
    def answer(state, observation, decision):
        state.final_result = f"reduced {decision.final_answer}"

    class Done(ScriptedAgent):
        def should_stop(self, state):
            return True

    seen = []
    judge = ScriptedCritic(("retry", "r"), lambda s, d, r: seen.append(s.final_result) or CONTINUE)
    agent = Done(Decision.final("first"), Decision.final("second"), reduce=answer)
    result = play(Engine(agent, critics=[judge]))
    assert (result.final_result, result.step_count) == ("second", 2)
    assert seen == ["reduced second"]
    assert agent.observations[1]["state"]["final_result"] is None


def test_a_retry_in_the_last_step_leaves_no_answer():
    result = judged(("retry", "r"), budget=RuntimeBudget(max_steps=1))
    assert (result.final_result, result.state.final_result) == (None, None)
    assert result.task_result.stop_reason == "budget_steps"


def test_a_criterion_still_ends_a_run_of_retries():
    critics = [ScriptedCritic(*[("retry", "r")] * 3)]
    options = {"budget": RuntimeBudget(max_steps=None), "stop_criteria": [MaxStepsCriteria(3)]}
    result = play_agent(*[Decision.final("x")] * 3, critics=critics, **options)
    assert (result.step_count, result.task_result.stop_reason) == (3, "max_steps")


def test_a_retry_takes_the_answer_from_a_state_of_ones_own():
    class Own:
        def __init__(self, task):
            self.final_result = None

    def answer(state, observation, decision):
        state.final_result = decision.final_answer

    agent = ScriptedAgent(Decision.final("a"), Decision.final("b"), reduce=answer, state=Own)
    result = play(Engine(agent, critics=[ScriptedCritic(("retry", "r"), CONTINUE)]))
    assert (result.final_result, result.step_count) == ("b", 2)


def retried(**verdict):
    """A run whose first answer is sent back with a verdict."""
    agent = ScriptedAgent(Decision.final("a"), Decision.final("b"))
    critics = [ScriptedCritic({"action": "retry", **verdict}, CONTINUE)]
    return agent, play(Engine(agent, critics=critics))


def test_a_state_patch_sets_existing_fields_only():
    """Fault 4: a patch could overwrite methods."""
    patch = {"notes": ["patched"], "validate": None, "unknown": 1, "to_dict": "x"}
    agent, result = retried(state_patch=patch)
    assert result.state.notes == ["patched"]
    assert not hasattr(result.state, "unknown")
    assert not {"validate", "to_dict"} & set(vars(result.state))
    assert agent.observations[1]["state"]["notes"] == ["patched"]
    assert result.critic_traces[0].state_patch == patch


def test_a_state_patch_that_is_reused_is_not_shared_with_the_state():
    patch = {"notes": [], "metadata": {"seen": []}}

    def note(state, observation, decision):
        state.notes.append(1)
        state.metadata.setdefault("seen", []).append(1)

    agent = ScriptedAgent(*map(Decision.final, "abc"), reduce=note)
    again = {"action": "retry", "state_patch": patch}
    result = play(Engine(agent, critics=[ScriptedCritic(again, again, CONTINUE)]))
    assert patch == {"notes": [], "metadata": {"seen": []}}
    assert (result.state.notes, result.state.metadata) == ([1], {"seen": [1]})


def test_a_state_patch_that_makes_the_state_invalid_is_a_failure():
    agent = ScriptedAgent(Decision.final("a"))
    verdict = {"action": "retry", "state_patch": {"notes": [1], "max_steps": 0}}
    result = play(Engine(agent, critics=[ScriptedCritic(verdict)]))
    assert untraced(result.failure) == {
        "category": "state_error",
        "phase": "CRITIC",
        "step_id": 0,
        "type": "StateValidationError",
        "message": "state field 'max_steps' must be at least 1, got 0",
    }


def test_a_state_patch_for_a_state_without_fields_does_nothing():
    agent = ScriptedAgent(*map(Decision.final, "ab"), state=lambda task: {"notes": []})
    verdict = {"action": "retry", "state_patch": {"notes": [1]}}
    result = play(Engine(agent, critics=[ScriptedCritic(verdict, CONTINUE)]))
    assert (result.state, result.final_result) == ({"notes": []}, "b")


def test_patches_are_for_a_retry_only():
    result = judged({"state_patch": {"notes": [1]}, "instruction_patch": "i"})
    assert result.state.notes == []
    assert result.critic_traces[0].instruction_patch == "i"


def test_an_agent_that_decides_itself_is_shown_the_instruction_once():
    agent = ScriptedAgent(ADD, ADD, Decision.final("x"), tool_registry=tools())
    critics = [ScriptedCritic(("retry", "r", "be brief"), CONTINUE, CONTINUE)]
    play(Engine(agent, critics=critics))
    shown = [observation.get("instruction_patch") for observation in agent.observations]
    assert shown == [None, "be brief", None]


def test_a_model_is_told_patch_and_prompt_once():
    call = '{"mode": "act", "actions": [{"name": "add", "args": {"a": 1, "b": 2}}]}'
    model = ScriptedModel(call, call, '{"mode": "final", "final_answer": "x"}')
    agent = ScriptedAgent(
        *[None] * 3, llm=model, model_protocol="json_decision_v1", tool_registry=tools(add)
    )
    agent.build_system_prompt = lambda state: "You add."
    verdict = CriticResult(
        "retry", "r", instruction_patch="be brief", modified_prompt="You subtract."
    )
    play(Engine(agent, critics=[ScriptedCritic(verdict, CONTINUE, CONTINUE)]))
    prompts = [messages[0]["content"].split("\n")[0] for messages in model.asked]
    assert prompts == ["You add.", "You subtract.", "You add."]
    told = ["be brief" in messages[-1]["content"] for messages in model.asked]
    assert told == [False, True, False]


def test_the_details_tell_of_a_modified_prompt():
    _, result = retried(modified_prompt="Be careful.", details={"k": 1})
    assert result.critic_traces[0].details == {"k": 1, "modified_prompt": "Be careful."}
