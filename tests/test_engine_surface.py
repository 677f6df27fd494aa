"""What agents written for QitOS ask of the engine, and that records share without harm."""

import copy
import json
import threading
from dataclasses import dataclass, field, make_dataclass
from types import SimpleNamespace

import pytest
from engine_doubles import ScriptedAgent, ScriptedModel, play, tools

from qitos_min import Action, Decision, Engine, EngineResult, StateSchema, ToolMeta, ToolRegistry
from qitos_min.core.action import ActionExecutionPolicy, ActionStatus
from qitos_min.core.errors import ErrorCategory, QitosRuntimeError
from qitos_min.core.history import HistoryPolicy
from qitos_min.core.memory import Memory
from qitos_min.engine import (
    CancelMode,
    CancelToken,
    CriticResult,
    EngineHook,
    RuntimeBudget,
    critic,
)
from qitos_min.engine._plain import StateView, exact, plain
from qitos_min.engine.action_executor import ActionExecutor
from qitos_min.engine.approval import ToolApprovalItem
from qitos_min.engine.hooks import ToolHookContext
from qitos_min.engine.recovery import RecoveryPolicy
from qitos_min.engine.stop_criteria import MaxTokensCriteria
from qitos_min.trace import TraceWriter

ADD = Decision.act(Action("add", {"a": 1, "b": 2}))
FINAL = Decision.final("x")


def agent(*decisions, **options):
    return ScriptedAgent(*decisions, tool_registry=tools(), **options)


def test_engine_and_result_can_be_subscripted():
    assert Engine[StateSchema, dict, Action](agent(FINAL)).run("t").final_result == "x"
    assert EngineResult[StateSchema].__origin__ is EngineResult


def test_the_executor_of_an_engine_has_the_very_policy_given():
    policy = ActionExecutionPolicy("parallel", max_concurrency=2)
    engine = Engine(agent(FINAL), action_execution_policy=policy)
    assert engine.executor.policy is policy
    [result] = engine.executor.execute([Action("add", {"a": 1, "b": 2})])
    assert (result.name, result.status, result.output) == ("add", ActionStatus.SUCCESS, 3)


def test_actions_may_be_dicts_from_the_decision_to_the_result():
    rows = [
        {"name": "add", "args": {"a": 1, "b": 2}},
        {"action": "add", "arguments": {"a": 3, "b": 4}, "id": "own"},
    ]
    result = play(Engine(agent(Decision.act(rows), FINAL)))
    assert result.records[0].action_results == [3, 7]


class Tree:
    """A search that likes long answers; with nothing left it goes back."""

    def __init__(self, keep):
        self.keep, self.went_back = keep, False

    def expand(self, state, observation, decision):
        return []

    def score(self, state, observation, candidates):
        return [len(candidate.final_answer) for candidate in candidates]

    def prune(self, candidates, scores):
        return candidates[: self.keep]

    def select(self, candidates, scores):
        return candidates[scores.index(max(scores))]

    def backtrack(self, state):
        self.went_back = True
        return state


@pytest.mark.parametrize("keep, answer", [(3, "long"), (1, "a"), (None, "a")])
def test_a_search_picks_among_the_candidates_of_a_branch(keep, answer):
    branch = Decision.branch([Decision.final(text) for text in ("a", "long", "mid")])
    search = None if keep is None else Tree(keep)
    assert play(Engine(agent(branch), search=search)).final_result == answer


def test_a_search_without_candidates_waits_and_goes_back():
    search = Tree(0)
    result = play(Engine(agent(Decision.branch([FINAL]), FINAL), search=search))
    assert search.went_back and result.records[0].decision.mode == "wait"


@pytest.mark.parametrize("option", ["search", "history_policy", "render_hooks"])
def test_a_new_part_that_cannot_work_is_refused_by_name(option):
    with pytest.raises(TypeError, match=f"^{option}"):
        Engine(agent(FINAL), **{option: 5})


# Models and parsers


def test_the_whole_response_is_asked_for_where_a_model_gives_it():
    class Raw:
        protocol = "native_tool_call_v1"

        def __call__(self, messages, tools=None):
            raise AssertionError("only text")

        def call_raw(self, messages, **options):
            assert [entry["function"]["name"] for entry in options["tools"]] == ["add", "boom"]
            return {"choices": [{"message": {"content": "42"}}], "usage": {"total_tokens": 7}}

    result = play(Engine(agent(None, llm=Raw())))
    assert (result.final_result, result.total_tokens) == ("42", 7)


class Parser:
    def parse(self, raw, context=None):
        return Decision.final((raw, context))


PARSERS = {
    "method": (Parser(), ["hi", {"protocol": "react_text_v1", "step": 0}]),
    "keywords": (
        lambda raw, **more: Decision.final(more),
        {"context": {"protocol": "react_text_v1", "step": 0}},
    ),
    "text only": (lambda raw: Decision.final(raw), "hi"),
}


@pytest.mark.parametrize("parser, answer", PARSERS.values(), ids=PARSERS)
def test_a_parser_is_told_the_protocol_and_the_step_if_it_takes_them(parser, answer):
    engine = Engine(agent(None, llm=ScriptedModel("hi")), parser=parser)
    assert plain(play(engine).final_result) == answer


def test_a_history_policy_limits_what_a_model_is_sent_again():
    replies = [f"Action: add(a={n}, b=1)" for n in range(4)]

    def sent(policy):
        model = ScriptedModel(*replies, "Final Answer: done")
        play(Engine(agent(*[None] * 5, llm=model), history_policy=policy))
        return [n for n in range(4) if f"a={n}" in json.dumps(model.asked[-1])]

    assert sent(None) == [0, 1, 2, 3]
    assert sent(HistoryPolicy(step_window=2)) == [3]
    assert sent(HistoryPolicy(max_messages=4)) == [2, 3]
    assert sent(HistoryPolicy(roles=["user"])) == []


# Memory


class Noting(Memory):
    def __init__(self):
        super().__init__()
        self.resets = []

    def reset(self, run_id=None):
        self.resets.append(run_id)
        super().reset(run_id)


def test_a_memory_is_reset_once_a_run_and_told_of_each_stage():
    memory = Noting()
    player = agent(ADD, FINAL)
    player.memory = memory
    result = play(Engine(player))
    assert memory.resets == [result.run_id]
    step = ["observation", "decision", "action_result", "next_state"]
    found = memory.retrieve()
    assert [record.role for record in found] == [
        "task",
        *step,
        "observation",
        "decision",
        "next_state",
    ]
    assert [record.step_id for record in found] == [0] * 5 + [1] * 3
    assert found[3].content == 3


def test_a_memory_that_fails_does_not_cost_the_run():
    class Broken:
        def reset(self, run_id=None):
            raise ValueError("no luck")

    player = agent(FINAL)
    player.memory = Broken()
    result = play(Engine(player))
    assert result.final_result == "x"
    assert [e.error for e in result.events if e.error] == ["memory stopped: no luck"]


# Hooks


def test_hooks_are_called_by_position_or_by_qitos_names():
    told = []

    class Hook:
        def on_run_start(self, *, task, engine, state):
            told.append(("start", task, type(state).__name__))

        def on_step_end(self, engine, record):
            told.append(("step", record.step_id))

        def on_before_act(self, moment, runner):
            told.append(("act", moment.phase.value))

        def on_run_end(self, **named):
            told.append(("end", sorted(named)))

    play(Engine(agent(ADD, FINAL), hooks=[Hook()]))
    assert told == [
        ("start", "the task", "Notes"),
        ("act", "ACT"),
        ("step", 0),
        ("step", 1),
        ("end", ["engine", "result"]),
    ]


def test_render_hooks_are_hooks_too():
    told = []
    hook = SimpleNamespace(on_step_end=lambda record, state, engine: told.append(record.step_id))
    play(Engine(agent(ADD, FINAL), render_hooks=[hook]))
    assert told == [0, 1]


def test_each_tool_call_is_told_and_so_is_a_refusal():
    told = []

    class Watch(EngineHook):
        def on_before_tool_use(self, ctx, engine):
            ctx.tool_args["a"] = "spoiled"
            told.append(("before", ctx.tool_name, ctx.step_id, ctx.result))

        def on_after_tool_use(self, ctx, engine):
            told.append(("after", ctx.tool_name, ctx.result.output, ctx.error))

        def on_permission_denied(self, ctx, engine):
            assert isinstance(ctx, ToolHookContext)
            told.append(("denied", ctx.tool_name, ctx.result.error_code, ctx.action_id))

    registry = tools().register(lambda: 1, name="secret", meta=ToolMeta(needs_approval=True))
    act = Decision.act([*ADD.actions, Action("secret", action_id="s")])
    result = play(Engine(ScriptedAgent(act, FINAL, tool_registry=registry), hooks=[Watch()]))
    assert result.records[0].actions[0].args == {"a": 1, "b": 2}
    assert told == [
        ("before", "add", 0, None),
        ("after", "add", 3, None),
        ("before", "secret", 0, None),
        ("denied", "secret", "approval_required", "s"),
    ]


# The executor alone


def test_any_object_with_get_is_a_registry():
    registry = SimpleNamespace(get=lambda name: {"double": lambda n: 2 * n}.get(name))
    first, second = ActionExecutor(registry).execute([Action("double", {"n": 4}), Action("nope")])
    assert (first.output, second.status, second.attempts) == (8, ActionStatus.ERROR, 0)


def test_results_tell_of_limits_segments_and_times():
    registry = ToolRegistry().register(
        lambda: 1, name="t", meta=ToolMeta(timeout_s=5, concurrency_safe=True)
    )
    executor = ActionExecutor(registry, ActionExecutionPolicy("parallel"))
    actions = [Action("t"), Action("t", timeout_s=2), Action("nope")]
    told = [result.metadata for result in executor.execute(actions)]
    assert [(m["timeout_source"], m["timeout_s"], m["segment_index"]) for m in told] == [
        ("tool", 5, 0),
        ("action", 2, 0),
        (None, None, 1),
    ]
    assert all(m["started_at"] <= m["ended_at"] and not m["cancel_source"] for m in told)
    stats = executor.last_execution_stats
    assert stats["policy"]["mode"] == "parallel" and 1 <= stats["concurrency_peak"] <= 2


def test_a_cancelled_executor_starts_nothing():
    token = CancelToken()
    token.request_cancel(CancelMode.IMMEDIATE)
    [result] = ActionExecutor(tools(), cancel_token=token).execute(ADD.actions)
    assert (result.status, result.metadata["cancel_source"]) == (
        ActionStatus.CANCELLED,
        "run_cancelled",
    )
    assert (result.metadata["started_at"], result.metadata["ended_at"]) == (None, None)


def test_a_request_to_cancel_can_be_taken_back():
    token = CancelToken()
    token.request_cancel(CancelMode.NONE)
    assert not token.is_cancel_requested
    token.request_cancel("after_step")
    assert token.is_cancel_requested
    token.clear()
    assert (token.mode, token.is_cancel_requested) == (None, False)


# Small parts


def test_an_approval_item_needs_only_a_name():
    item = ToolApprovalItem("rm", {"path": "x"})
    assert (item.tool_name, item.tool_args, item.message, item.tool_spec) == (
        "rm",
        {"path": "x"},
        "",
        None,
    )


@pytest.mark.parametrize("given", ["stop", {"action": "stop"}, ("stop",), CriticResult("stop")])
def test_a_decorated_critic_always_gives_a_verdict(given):
    result = critic(lambda state, decision, results: given, score=0.5).evaluate(None, None, [])
    assert isinstance(result, CriticResult) and result.action == "stop"
    assert result.score == (1.0 if isinstance(given, CriticResult) else 0.5)


def test_the_detail_of_the_token_criterion_names_the_tokens():
    _, _, detail = MaxTokensCriteria(10).should_stop(None, 1, {"total_tokens": 12})
    assert detail == "total_tokens=12 of 10"


class Limited(QitosRuntimeError):
    def __init__(self, code, most):
        super().__init__("flaky", ErrorCategory.TOOL)
        self.info = SimpleNamespace(details={"code": code, "max_recoveries": most})


def test_a_failure_may_bring_its_own_number_of_recoveries():
    policy = RecoveryPolicy()
    asked = [policy.handle(None, "ACT", 0, Limited(code, 1)) for code in ("a", "b", "a")]
    assert [answer.continue_run for answer in asked] == [True, True, False]
    assert asked[-1].note == "max_recovery_exhausted"
    policy.reset()
    assert policy.handle(None, "ACT", 0, Limited("a", 1)).continue_run


# The trace writer


def test_a_trace_may_lie_below_a_folder_under_its_name(tmp_path):
    writer = TraceWriter(tmp_path, "mine", metadata={"seed": 7, "model_family": "m"})
    result = play(Engine(agent(FINAL), trace_writer=writer))
    assert (writer.run_dir, writer.run_id, result.run_id) == (tmp_path / "mine", "mine", "mine")
    manifest = json.loads((tmp_path / "mine" / "manifest.json").read_text(encoding="utf-8"))
    wanted = (
        "schema_version run_id status step_count event_count summary model_id prompt_hash tool_versions"
        " seed run_config_hash git_sha package_version benchmark_name benchmark_split model_family"
        " prompt_protocol parser_name tool_manifest run_spec experiment_spec official_run token_usage"
        " latency_seconds cost"
    )
    assert [key for key in wanted.split() if key not in manifest] == []
    assert (manifest["seed"], manifest["model_family"], manifest["cost"]) == (7, "m", None)
    with pytest.raises(ValueError, match="holds a run already"):
        TraceWriter(tmp_path, "mine")


@pytest.mark.parametrize("strict, stopped", [(False, False), (True, True)])
def test_a_value_that_json_cannot_hold_ends_a_strict_trace_only(strict, stopped, tmp_path):
    class Spoiler(EngineHook):
        def on_event(self, event, state, record, engine):
            event.payload["odd"] = {1, 2}

    writer = TraceWriter(tmp_path, strict_validate=strict)
    result = Engine(agent(FINAL), trace_writer=writer, hooks=[Spoiler()]).run("t")
    told = [e for e in result.events if e.payload.get("stage") == "trace_error"]
    assert bool(told) is stopped and result.failure is None


# Values are made plain once


@dataclass
class Big(StateSchema):
    notes: list = field(default_factory=list)
    odd: object = None


STATES = [
    ("notes", [1, {"a": [True]}]),
    ("notes", [1, {"a": [1]}]),
    ("notes", [1.0, {"a": [1]}]),
    ("notes", []),
    ("odd", 5),
    ("odd", True),
    ("odd", {3, 1}),
    ("odd", float("nan")),
    ("metadata", {"k": ("x",)}),
    ("odd", "lone\ud800"),
    ("odd", None),
    ("odd", {1: 2}),
]


def test_a_view_is_always_what_the_state_is_and_made_anew_only_where_it_changed():
    state, view = Big(), StateView()
    for name, value in STATES:
        setattr(state, name, value)
        seen = view.of(state)
        assert json.dumps(seen) == json.dumps(plain(state))
        if (
            plain(state.odd) is state.odd
            or isinstance(state.odd, (int, str))
            and "lone" not in str(state.odd)
        ):
            assert view.of(state) is seen
    state.notes, state.odd = [1], None
    before = view.of(state)
    state.notes.append(2)
    assert (before["notes"], view.of(state)["notes"]) == ([1], [1, 2])
    assert view.of(state)["metadata"] is before["metadata"]


@pytest.mark.parametrize("names", [[], ["alone"], ["alone", "other"]], ids=len)
def test_a_view_of_a_state_of_few_fields(names):
    state = make_dataclass("Few", names)(*map(str, range(len(names))))
    view = StateView()
    assert view.of(state) == plain(state) == {name: str(n) for n, name in enumerate(names)}
    for name in names:
        setattr(state, name, [name])
        assert view.of(state) == plain(state)


NO_JSON = [float("inf"), {1: 2}, {3}, b"x", object(), [[float("nan")]]]


@pytest.mark.parametrize("value", NO_JSON, ids=range(6))
def test_what_is_no_json_is_not_exact(value):
    with pytest.raises(ValueError):
        exact(value)
    json.dumps(plain(value), allow_nan=False)


def test_no_part_of_a_run_can_change_what_another_has(tmp_path):
    """Agent, critic and tool spoil all they are given; records and events stay."""
    kept = []

    def keep(event, state, record, engine):
        kept.append((event, copy.deepcopy(event.payload)))

    def spoil(value):
        if isinstance(value, dict):
            for item in list(value.values()):
                spoil(item)
            value["spoiled"] = True
        elif isinstance(value, list):
            for item in value:
                spoil(item)
            value.append("spoiled")

    def decide(state, observation):
        spoil(observation)
        state.notes.append({"n": len(state.notes)})
        return Decision.act(Action("echo", {"value": {"deep": [1]}}), meta={"m": [1]})

    def reduce(state, observation, decision):
        spoil({k: v for k, v in observation.items() if k != "decision"})
        spoil(decision.meta)
        spoil(decision.actions[0].args if decision.actions else {})
        return state

    @critic
    def judge(state, decision, results):
        spoil(results)
        details = {"own": [1]}
        state.notes.append(details)
        return {"details": details}

    registry = ToolRegistry().register(lambda value: spoil(value) or value, name="echo")
    player = ScriptedAgent(decide, decide, FINAL, tool_registry=registry, reduce=reduce)
    hook = SimpleNamespace(on_event=keep)
    writer = TraceWriter(tmp_path)
    result = Engine(player, critics=[judge], hooks=[hook], trace_writer=writer).run("t")
    assert result.failure is None
    spoil(result.state.notes)
    outputs = [e for e, _ in kept if e.payload.get("stage") == "outputs"]
    assert [e.payload["critic_outputs"][0]["details"] for e in outputs] == [{"own": [1]}] * 3
    assert all(event.payload == payload for event, payload in kept)
    lines = (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["payload"] for line in lines] == [payload for _, payload in kept]


# Threads


def where(count):
    places = []
    registry = ToolRegistry().register(lambda: places.append(threading.current_thread()), name="t")
    play(Engine(ScriptedAgent(*[Decision.act(Action("t"))] * count, FINAL, tool_registry=registry)))
    return places


def test_a_run_that_is_alone_calls_its_tools_where_it_is():
    assert threading.active_count() == 1
    assert where(2) == [threading.main_thread()] * 2


def test_beside_another_thread_tools_work_in_one_of_their_own():
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        places = where(3)
    finally:
        done.set()
        other.join()
    assert len(set(places)) == 1 and threading.main_thread() not in places


def test_a_limit_of_time_needs_a_thread():
    budget = RuntimeBudget(max_runtime_seconds=60)
    registry = ToolRegistry().register(threading.current_thread, name="t")
    seen = []
    registry.register(lambda: seen.append(threading.current_thread()), name="here")
    engine = Engine(
        ScriptedAgent(Decision.act(Action("here")), FINAL, tool_registry=registry), budget=budget
    )
    assert engine.run("t").failure is None
    assert seen != [threading.main_thread()]
