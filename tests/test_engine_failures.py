"""A run that has started always returns its result, whatever raises where."""

import gc
import logging
import os
import random
import signal
import threading

import pytest
from engine_doubles import (
    Notes,
    ScriptedAgent,
    ScriptedCritic,
    ScriptedModel,
    agents,
    as_json,
    check_run,
    play,
    play_agent,
    stages,
    tools,
    untraced,
)

import snowl_compat
from qitos_min import Action, AgentRegistry, AgentSpec, Decision, Engine, StateAdapter
from qitos_min import ToolMeta
from qitos_min.core.env import EnvObservation, EnvStepResult
from qitos_min.core.errors import ErrorCategory, QitosRuntimeError, StopReason
from qitos_min.core.history import History
from qitos_min.engine import Critic, EngineHook, RuntimePhase
from qitos_min.engine._session import EngineSession
from qitos_min.engine.recovery import RecoveryDecision, RecoveryPolicy
from qitos_min.engine.stop_criteria import FinalResultCriteria


class Stop(BaseException):
    """Neither an Exception nor one of Python's own."""


class Silent(Exception):
    def __str__(self):
        raise SystemExit("no words")


class Odd(Exception):
    category = "not one of ours"


ERRORS = [
    (ValueError, "boom", "boom"),
    (SystemExit, "bye", "bye"),
    (Stop, "stop", "stop"),
    (Silent, "", "Silent"),
    (GeneratorExit, "", "GeneratorExit"),
    (StopIteration, "", "StopIteration"),
    (Odd, "\ud800", "\ufffd"),
]
every_error = pytest.mark.parametrize(
    "kind, words, text", ERRORS, ids=[kind.__name__ for kind, _, _ in ERRORS]
)


class Saboteur:
    """Raises an error at one place, at the given call of it."""

    def __init__(self, place, error, call=1):
        self.place, self.error, self.call = place, error, call
        self.reached = set()

    def at(self, place):
        self.reached.add(place)
        if place == self.place:
            self.call -= 1
            if self.call == 0:
                raise self.error


def whole_engine(saboteur, **options):
    """An engine with every part there is; each asks the saboteur.

    Three steps: two tools, one of which needs approval; a handoff; a final
    answer by the other agent's model.
    """
    at = saboteur.at

    class State(Notes):
        def validate(self):
            at("state.validate")

    class First(ScriptedAgent):
        def decide(self, state, observation):
            at("decide")
            return super().decide(state, observation)

        def reduce(self, state, observation, decision):
            at("reduce")
            return state

        def should_stop(self, state):
            at("should_stop")
            return False

    class Second(First):
        def decide(self, state, observation):
            return None

        def prepare(self, state):
            at("prepare")
            return "what now?"

        def build_system_prompt(self, state):
            at("build_system_prompt")
            return "You are second."

    class Judge(Critic):
        def evaluate(self, state, decision, results):
            at("critic")
            return {"action": "continue"}

    class Criterion(FinalResultCriteria):
        def should_stop(self, state, step_count, runtime_info=None):
            at("criterion")
            return False

    class World:
        name = "world"

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)

            def method(*args, **kwargs):
                at(f"env.{name}")
                return {"observe": EnvObservation(), "step": EnvStepResult()}.get(name, False)

            return method

    class Hook(EngineHook):
        pass

    for name in vars(EngineHook):
        if name.startswith("on_"):
            setattr(Hook, name, lambda self, *args, name=name: at(name))

    class Trace:
        def __getattr__(self, name):
            return lambda *args: at(f"trace.{name}")

    class Store:
        def append(self, run_id, entry):
            at("checkpoint")

    class Remembering(History):
        def append(self, message):
            at("history.append")

    class Adapter(StateAdapter):
        def adapt(self, source):
            at("adapter")
            return source

    class Toolset:
        name = "kit"

        def tools(self):
            return []

        def setup(self, context):
            at("toolset.setup")

        def teardown(self, context):
            at("toolset.teardown")

    class Model(ScriptedModel):
        def __call__(self, messages, tools=None):
            at("model")
            return super().__call__(messages, tools)

    def guarded() -> int:
        """Guarded."""
        at("tool")
        return 1

    def approve(name, args, spec):
        at("approval")
        return True

    def sink(event):
        at("event_sink")

    class Runtime:
        event_sink = staticmethod(sink)

    registry = tools().register(guarded, meta=ToolMeta(needs_approval=True))
    registry.register_toolset(Toolset())
    first = First(
        Decision.act([Action("guarded"), Action("add", {"a": 1, "b": 2})]),
        Decision.handoff("second"),
        name="first",
        tool_registry=registry,
        state=State,
    )
    model = Model('{"mode": "final", "final_answer": "done"}')
    second = Second(name="second", llm=model, model_protocol="json_decision_v1")
    others = AgentRegistry()
    others.register(AgentSpec("second", "is second", second, state_adapter=Adapter()))
    return Engine(
        first,
        **{
            "critics": [Judge()],
            "stop_criteria": [Criterion()],
            "agent_registry": others,
            "env": World(),
            "hooks": [Hook()],
            "history": Remembering(),
            "checkpoint_store": Store(),
            "trace_writer": Trace(),
            "approval_callback": approve,
            "runtime": Runtime(),
            **options,
        },
    )


# place -> phase and category of the failure, and the completed steps
FAILING = {
    "decide": ("DECIDE", "system_error", 1),
    "reduce": ("REDUCE", "system_error", 1),
    "should_stop": ("CHECK_STOP", "system_error", 1),
    "critic": ("CRITIC", "system_error", 1),
    "criterion": ("CHECK_STOP", "system_error", 1),
    "env.setup": ("INIT", "env_error", 0),
    "env.reset": ("INIT", "env_error", 0),
    "env.observe": ("DECIDE", "env_error", 1),
    "env.step": ("ACT", "env_error", 1),
    "env.is_terminal": ("CHECK_STOP", "env_error", 1),
    "state.validate": ("INIT", "system_error", 0),
    "history.append": ("DECIDE", "system_error", 1),
    "toolset.setup": ("INIT", "tool_error", 0),
    "adapter": ("DECIDE", "system_error", 2),
    "prepare": ("DECIDE", "system_error", 3),
    "build_system_prompt": ("DECIDE", "system_error", 3),
}

# What watches a run, keeps it or puts it away must not cost it.
HARMLESS = {
    **{name: "hook_error" for name in vars(EngineHook) if name.startswith("on_")},
    **{f"trace.{name}": "trace_error" for name in ("start", "write_event", "write_step")},
    "trace.finalize": "trace_error",
    "checkpoint": "checkpoints_error",
    "toolset.teardown": "teardown_error",
    "env.teardown": "teardown_error",
    "event_sink": "hook_error",
}
LOGGED = ("on_run_end", "trace.finalize")
NEVER_REACHED = ("on_recover", "on_permission_denied")


def test_every_place_of_this_file_is_reached():
    saboteur = Saboteur(None, None)
    result = play(whole_engine(saboteur))
    assert (result.step_count, result.final_result, result.failure) == (3, "done", None)
    places = {*FAILING, *HARMLESS, "model", "tool", "approval"} - {*NEVER_REACHED}
    assert places <= saboteur.reached


@every_error
@pytest.mark.parametrize("place", FAILING)
def test_whatever_raises_ends_as_a_recorded_failure(place, kind, words, text):
    """Fault 5: critics, criteria, handoffs and validation escaped from run()."""
    phase, category, steps = FAILING[place]
    engine = whole_engine(Saboteur(place, kind(words)))
    result = engine.run("t")
    check_run(result, engine)
    assert untraced(result.failure) == {
        "category": category,
        "phase": phase,
        "step_id": max(steps - 1, 0),
        "type": kind.__name__,
        "message": text,
    }
    assert result.task_result.stop_reason == "unrecoverable_error"
    assert result.step_count == steps
    wrong = [event.phase.value for event in result.events if not event.ok]
    early = "DECIDE_ERROR" if phase in ("INIT", "DECIDE") else "ACT_ERROR"
    assert wrong == [early, "RECOVER"]
    assert {event.payload["category"] for event in result.events if not event.ok} == {category}
    payload = snowl_compat.build_payload(result, engine=engine)
    assert as_json(payload)["step_count"] == steps


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit("bye")], ids=repr)
def test_a_model_that_raises_is_a_recorded_failure(error):
    engine = whole_engine(Saboteur("model", error))
    result = engine.run("t")
    check_run(result, engine)
    assert (result.failure["phase"], result.failure["type"]) == ("DECIDE", type(error).__name__)
    assert result.step_count == 3


@every_error
@pytest.mark.parametrize("place", HARMLESS)
def test_what_watches_a_run_does_not_cost_it(place, kind, words, text, caplog):
    saboteur = Saboteur(place, kind(words))
    engine = whole_engine(saboteur)
    with caplog.at_level(logging.WARNING):
        result = play(engine)
    assert (result.final_result, result.failure, result.step_count) == ("done", None, 3)
    noted = [(e.payload["stage"], e.error) for e in result.events if not e.ok]
    logged = [record.getMessage() for record in caplog.records]
    if place in NEVER_REACHED:
        assert noted == []
    elif place in LOGGED:
        assert noted == [] and len(logged) == 1 and text in logged[0]
    else:
        [(stage, said)] = noted
        assert stage == HARMLESS[place] and text in said
        assert len(logged) == 1 and said in logged[0]


@pytest.mark.parametrize("place", ["on_event", "event_sink", "trace.write_event"])
def test_what_fails_at_the_very_end_is_logged_and_end_stays_last(place, caplog):
    counted = Saboteur(place, None, call=-1)
    play(whole_engine(counted))
    calls = -1 - counted.call
    engine = whole_engine(Saboteur(place, ValueError("late"), call=calls))
    with caplog.at_level(logging.WARNING):
        result = play(engine)
    assert [e for e in result.events if not e.ok] == []
    assert "late" in caplog.text


@every_error
@pytest.mark.parametrize("place, code", [("tool", "tool_execution_failed"), ("approval", None)])
def test_what_a_tool_or_its_approval_raises_belongs_to_the_call(place, code, kind, words, text):
    result = play(whole_engine(Saboteur(place, kind(words))))
    call, sibling = result.records[0].tool_invocations
    assert call["status"] == ("error" if place == "tool" else "skipped")
    assert call["error_code"] == (code or "approval_denied")
    assert (sibling["status"], result.failure, result.final_result) == ("success", None, "done")


def test_steps_that_are_complete_stay_in_place():
    good = Decision.act(Action("add", {"a": 1, "b": 2}))
    result = play_agent(good, good, RuntimeError("third"))
    assert [record.action_results for record in result.records] == [[3], [3], []]
    assert result.failure["step_id"] == 2
    assert result.records[2].decision is None
    assert result.state.current_step == 3


@pytest.mark.parametrize(
    "decision, message",
    [
        ("final", "expected a Decision, got str"),
        (
            Decision("dance"),
            "unknown decision mode 'dance'; known: act, final, wait, branch, handoff",
        ),
        (Decision.act([]), "a decision to act needs at least one action"),
        (Decision.act("add"), "expected an Action, got str"),
        (Decision.branch([]), "a decision to branch needs at least one candidate"),
        (Decision.branch(["x"]), "expected a Decision, got str"),
        (Decision("handoff"), "a decision to hand off needs the name of an agent"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.mode,
)
def test_a_decision_that_is_none_is_a_recorded_failure(decision, message):
    result = play_agent(decision)
    assert (result.failure["phase"], result.failure["message"]) == ("DECIDE", message)


def test_an_agent_that_decides_nothing_needs_a_model():
    result = play_agent(None)
    assert result.failure["category"] == "model_error"
    assert "agent" in result.failure["message"]


def test_a_state_that_becomes_invalid_is_a_state_error():
    def spoil(state, observation, decision):
        state.metadata = None

    agent = ScriptedAgent(Decision.final("x"), reduce=spoil)
    result = play(Engine(agent))
    assert untraced(result.failure) == {
        "category": "state_error",
        "phase": "REDUCE",
        "step_id": 0,
        "type": "StateValidationError",
        "message": "state field 'metadata' must be dict, got NoneType",
    }
    assert result.records[0].state_diff == {"metadata": {"before": {}, "after": None}}


def test_a_state_that_takes_no_values_does_not_lose_the_result():
    class Closed(Notes):
        def __setattr__(self, name, value):
            if "notes" in vars(self):
                raise AttributeError(f"{name} is closed")
            super().__setattr__(name, value)

    agent = ScriptedAgent(Decision.final("x"), state=Closed)
    result = play(Engine(agent))
    assert result.task_result.stop_reason == "unrecoverable_error"
    assert result.failure["message"] == "final_result is closed"


def test_a_task_that_cannot_be_worked_on_is_refused():
    from qitos_min import Task, TaskBudget

    for task, message in (
        (Task("t", " "), "a task needs a text 'objective', got ' '"),
        (Task("", "o"), "a task needs a text 'id', got ''"),
        (
            Task("t", "o", budget=TaskBudget(max_steps="5")),
            "max_steps must be an int of at least 0, got '5'",
        ),
    ):
        result = play(Engine(ScriptedAgent()), task)
        assert result.task_result.stop_reason == "task_validation_failed"
        assert (result.failure["category"], result.failure["message"]) == ("task_error", message)
        assert result.step_count == 0


@every_error
def test_a_hook_that_fails_while_a_failure_is_told_changes_nothing(kind, words, text):
    class Clumsy(EngineHook):
        def on_recover(self, ctx, engine):
            assert str(ctx.error) == "first"
            raise kind(words)

    result = play_agent(ValueError("first"), hooks=[Clumsy()])
    assert result.failure["message"] == "first"
    assert result.events[-2].error == f"Clumsy.on_recover raised {text}; hook removed"


# Recovery


class Recovering(RecoveryPolicy):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer
        self.asked = []

    def handle(self, state, phase, step_id, exc):
        self.asked.append((phase, step_id, type(exc).__name__))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer


def test_a_policy_lets_the_run_go_on():
    policy = Recovering(RecoveryDecision(True, True, note="again"))
    result = play_agent(ValueError("first"), Decision.final("x"), recovery_policy=policy)
    assert (result.final_result, result.failure, result.step_count) == ("x", None, 2)
    assert policy.asked == [("DECIDE", 0, "ValueError")]
    recover = [e for e in result.events if e.phase is RuntimePhase.RECOVER]
    assert [(e.payload["recovered"], e.payload["note"]) for e in recover] == [(True, "again")]
    assert [e.ok for e in recover] == [False]


@pytest.mark.parametrize(
    "answer, reason, note",
    [
        (RecoveryDecision(False, True), "unrecoverable_error", None),
        (RecoveryDecision(True, False), "unrecoverable_error", None),
        (RecoveryDecision(True, False, StopReason.STAGNATION), "stagnation", None),
        (RecoveryDecision(True, False, "success"), "success", None),
        (
            lambda: RecoveryDecision(True, True, "bored"),
            "unrecoverable_error",
            "recovery failed: ValueError: unknown stop reason 'bored'; known: "
            + ", ".join(reason.value for reason in StopReason),
        ),
        (
            None,
            "unrecoverable_error",
            "recovery failed: TypeError: expected a RecoveryDecision, got NoneType",
        ),
        (Stop("no"), "unrecoverable_error", "recovery failed: Stop: no"),
        (Silent(), "unrecoverable_error", "recovery failed: Silent"),
    ],
    ids=repr,
)
def test_a_policy_that_gives_up_or_fails_ends_the_run(answer, reason, note):
    result = play_agent(ValueError("first"), recovery_policy=Recovering(answer))
    assert result.task_result.stop_reason == reason
    assert result.failure["message"] == "first"
    recover = next(e for e in result.events if e.phase is RuntimePhase.RECOVER)
    assert (recover.payload["recovered"], recover.payload["note"]) == (False, note)


def test_critics_fail_closed_whatever_a_policy_says():
    policy = Recovering(RecoveryDecision(True, True))
    result = play_agent(
        Decision.final("x"), critics=[ScriptedCritic(OSError("down"))], recovery_policy=policy
    )
    assert result.task_result.stop_reason == "unrecoverable_error"
    assert policy.asked == []
    [trace] = result.critic_traces
    assert (trace.action, trace.score) == ("stop", None)
    assert trace.reason == "critic raised OSError: down"


def test_a_policy_whose_reset_fails_is_a_recorded_failure():
    class Stuck(RecoveryPolicy):
        def reset(self):
            raise SystemExit("stuck")

    result = play(Engine(ScriptedAgent(), recovery_policy=Stuck()))
    assert (result.failure["phase"], result.failure["message"]) == ("INIT", "stuck")


def flaky(category):
    return QitosRuntimeError("flaky", category)


@pytest.mark.parametrize("category", ErrorCategory)
def test_the_default_policy_recovers_from_the_world_outside(category):
    outside = ("model_error", "parse_error", "tool_error", "env_error")
    script = [flaky(category)]
    if category.value in outside:
        script.append(Decision.final("x"))
    result = play_agent(*script, recovery_policy=RecoveryPolicy())
    assert (result.failure is None) == (category.value in outside)
    if result.failure:
        assert result.failure["category"] == category.value


def test_the_default_policy_gives_up_after_some_recoveries_in_each_run():
    policy = RecoveryPolicy(max_recoveries_per_run=2)
    for _ in range(2):
        errors = [flaky(ErrorCategory.MODEL) for _ in range(3)]
        result = play_agent(*errors, recovery_policy=policy)
        assert result.step_count == 3
        assert result.events[-2].payload["note"] == "max_recovery_exhausted"


def test_an_environment_that_fails_once_is_recovered_from():
    engine = whole_engine(Saboteur("env.step", OSError("gone")), recovery_policy=RecoveryPolicy())
    result = engine.run("t")
    assert result.final_result == "done"


# Interrupts


INTERRUPTED = [
    *FAILING,
    *(place for place in HARMLESS if place not in NEVER_REACHED),
    "model",
    "tool",
    "approval",
]


@pytest.mark.parametrize("place", INTERRUPTED)
def test_ctrl_c_is_raised_after_end_and_the_result_is_kept(place):
    """Case E6 (QitOS changelog #34): an interrupted run was reported as completed."""
    engine = whole_engine(Saboteur(place, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        engine.run("t")
    result = engine.last_result
    check_run(result, engine)
    if place in LOGGED:  # The run was over.
        assert result.final_result == "done"
    else:
        assert result.task_result.stop_reason == "interrupt"
        assert stages(result.events)[-2:] == ["INTERRUPT", "END"]
        assert result.events[-2].error == "KeyboardInterrupt"
    assert result.failure is None
    assert result.task_result.success is (place in LOGGED)


@pytest.mark.parametrize("place", ["on_event", "event_sink", "trace.write_event"])
def test_ctrl_c_while_end_is_told_comes_out_too(place):
    counted = Saboteur(place, None, call=-1)
    play(whole_engine(counted))
    engine = whole_engine(Saboteur(place, KeyboardInterrupt(), call=-1 - counted.call))
    with pytest.raises(KeyboardInterrupt):
        engine.run("t")
    check_run(engine.last_result, engine)
    assert engine.last_result.final_result == "done"


def test_ctrl_c_in_a_policy_comes_out():
    policy = Recovering(KeyboardInterrupt())
    engine = Engine(ScriptedAgent(ValueError("x")), recovery_policy=policy)
    with pytest.raises(KeyboardInterrupt):
        engine.run("t")
    check_run(engine.last_result, engine)
    assert engine.last_result.task_result.stop_reason == "interrupt"


def test_ctrl_c_in_a_session_ends_it():
    engine = whole_engine(Saboteur("decide", KeyboardInterrupt(), call=2))
    session = engine.session("t")
    with pytest.raises(KeyboardInterrupt):
        list(session)
    assert session.result is engine.last_result
    assert (session.result.step_count, list(session)) == (2, [])
    assert session.run() is session.result


def test_two_interrupts_give_one_end():
    class Nervous(EngineHook):
        def on_event(self, event, state, record, engine):
            if event.phase in (RuntimePhase.INTERRUPT, RuntimePhase.END):
                raise KeyboardInterrupt

        def on_run_end(self, result, engine):
            raise KeyboardInterrupt

    engine = Engine(ScriptedAgent(KeyboardInterrupt()), hooks=[Nervous()])
    with pytest.raises(KeyboardInterrupt):
        engine.run("t")
    check_run(engine.last_result, engine)


def test_an_interrupted_engine_runs_again():
    engine = Engine(ScriptedAgent(KeyboardInterrupt(), Decision.final("x")))
    with pytest.raises(KeyboardInterrupt):
        engine.run("t")
    assert play(engine).final_result == "x"


@pytest.mark.parametrize("seed", range(100))
def test_any_error_at_any_call_of_any_place_leaves_a_whole_result(seed):
    chance = random.Random(seed)
    place = chance.choice([*FAILING, *HARMLESS, "model", "tool", "approval"])
    kinds = [kind for kind, _, _ in ERRORS]
    error = chance.choice([*kinds, KeyboardInterrupt])(f"seed {seed}")
    options = {"recovery_policy": RecoveryPolicy()} if chance.random() < 0.3 else {}
    saboteur = Saboteur(place, error, call=chance.randint(1, 12))
    engine = whole_engine(saboteur, **options)
    if chance.random() < 0.2:
        engine.cancel(chance.choice(["immediate", "after_step"]))
    try:
        engine.run("t")
    except KeyboardInterrupt:
        assert type(error) is KeyboardInterrupt
    else:
        assert type(error) is not KeyboardInterrupt or saboteur.call > 0
    check_run(engine.last_result, engine)


@pytest.mark.skipif(os.name == "nt", reason="signals to oneself")
def test_a_real_ctrl_c_wherever_it_comes():
    """A signal may come between any two instructions, not only in foreign code."""
    wait = Decision.wait()

    class Endless(ScriptedAgent):
        """Waits on, and starts the clock only when the run is under way."""

        timer = None

        def decide(self, state, observation):
            if self.timer is not None:
                timer, self.timer = self.timer, None
                timer.start()
            return wait

    # A shell starts background jobs with the signal ignored, and then nothing would end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    # Python drops an interrupt that comes while it tells of a dead thread, as it does when
    # it finds those that earlier tests left in cycles.
    gc.collect()
    for number in range(20):
        agent = Endless()
        engine = Engine(agent, budget=None)
        engine.budget.max_steps = None
        timer = agent.timer = threading.Timer(
            0.002 + number * 0.0003, signal.pthread_kill, (main, signal.SIGINT)
        )
        with pytest.raises(KeyboardInterrupt):
            engine.run("t")
        timer.join()
        result = engine.last_result
        phases = [event.phase for event in result.events]
        assert phases.count(RuntimePhase.END) == 1 and phases[-1] is RuntimePhase.END
        assert [r.step_id for r in result.records] == list(range(result.step_count))
        assert result.task_result.stop_reason == "interrupt"


@pytest.mark.skipif(os.name == "nt", reason="signals to oneself")
def test_a_real_ctrl_c_between_two_steps():
    """From Python 3.13 on the jump of a loop in a ``try`` stood outside of it."""

    class Idle(EngineSession):
        """Takes no time for a step, so that most interrupts come between two."""

        def _advance(self):
            return True

    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    for _ in range(20):
        engine = Engine(ScriptedAgent())
        session = Idle(engine, engine.session("t")._run)
        timer = threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            session.run()
        timer.join()
        assert session.result.task_result.stop_reason == "interrupt"


def test_a_tool_that_timed_out_cannot_write_after_the_end():
    """Case P4 (openai-agents PR #2479): a thread that goes on must not rewrite the run."""
    go, done = threading.Event(), threading.Event()

    def slow(runtime_context=None) -> int:
        """Slow."""
        go.wait(5)
        runtime_context["run"].emit(RuntimePhase.DELEGATE_END, agent="late")
        done.set()
        return 1

    agent = ScriptedAgent(
        Decision.act(Action("slow", timeout_s=0.02)),
        Decision.final("x"),
        tool_registry=tools(slow),
    )
    engine = Engine(agent)
    result = play(engine)
    before = [event.to_dict() for event in result.events]
    go.set()
    assert done.wait(5)
    assert [event.to_dict() for event in result.events] == before
    assert result.records[0].tool_invocations[0]["status"] == "timed_out"


def test_nobody_of_several_agents_loses_the_result():
    def refuse(state, observation):
        raise Stop("deep")

    other = ScriptedAgent(refuse, name="other")
    engine = Engine(
        ScriptedAgent(Decision.handoff("other"), tool_registry=tools()),
        agent_registry=agents(other),
    )
    result = play(engine)
    assert (result.failure["step_id"], result.step_count) == (1, 2)
    assert [record.agent_id for record in result.records] == ["agent", "other"]
    assert len(result.handoff_traces) == 1
