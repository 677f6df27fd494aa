"""The export APIs, as the integration guide promises them.

Each test runs a real engine and asks the project's own extraction.
"""

import json
from dataclasses import dataclass, field, fields

import pytest

import snowl_compat
from qitos_min import (
    Action,
    AgentModule,
    AgentRegistry,
    AgentSpec,
    ContextStrategy,
    Decision,
    Engine,
    StateSchema,
    ToolMeta,
    ToolPermission,
    ToolRegistry,
)
from qitos_min.core.tool import ToolPermissionSpec
from qitos_min.engine import CriticResult, RuntimeBudget, critic
from qitos_min.engine._result import critic_traces, handoff_traces
from qitos_min.engine.states import (
    CriticTrace,
    EngineConfig,
    HandoffTrace,
    RuntimePhase,
)
from qitos_min.kit.critic import ScoreCritic


def strict(text):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def round_trip(value):
    return strict(json.dumps(value, ensure_ascii=False, allow_nan=False))


@dataclass
class Notes(StateSchema):
    notes: list = field(default_factory=list)


class Agent(AgentModule):
    """Follows a list of decisions; the last one is repeated."""

    def __init__(self, name, decisions, **kwargs):
        self.name = name
        super().__init__(**kwargs)
        self.decisions = decisions

    def init_state(self, task, **kwargs):
        return Notes(task=task)

    def decide(self, state, observation):
        taken = sum(note == self.name for note in state.notes)
        return self.decisions[min(taken, len(self.decisions) - 1)]

    def reduce(self, state, observation, decision):
        state.notes.append(self.name)
        return state


def search(query: str) -> str:
    """Search the web."""
    return f"nothing about {query}"


def search_registry():
    registry = ToolRegistry()
    registry.register(
        search,
        meta=ToolMeta(
            name="search",
            permissions=ToolPermission(network=True),
            needs_approval=True,
            read_only=False,
        ),
    )
    return registry


VERDICTS = [
    CriticResult(),
    CriticResult("retry", "too short", 0.25, {"length": 3}, None, "Say more.", {"max_steps": 9}),
    CriticResult("stop", "good enough", 0.9, details={"检查": ["ok", None, 1.5]}),
]


def run_with_everything():
    """One run with critics of every verdict and a handoff."""
    verdicts = iter(VERDICTS)

    @critic(name="length")
    def judge(state, decision, results):
        return next(verdicts)

    writer = Agent("writer", [Decision.final("short"), Decision.final("long enough")])
    planner = Agent(
        "planner",
        [Decision.act(Action("search", {"query": "x"})), Decision.handoff("writer")],
        tool_registry=search_registry(),
    )
    agents = AgentRegistry()
    agents.register(AgentSpec("writer", "writes", writer, ContextStrategy.ISOLATED))
    engine = Engine(
        agent=planner,
        budget=RuntimeBudget(max_steps=7, max_tokens=1000),
        critics=[judge],
        agent_registry=agents,
        auto_approve=True,
    )
    return engine, engine.run(task="Analyze this document")


class TestEngineConfig:
    def test_has_the_14_documented_fields_in_order(self):
        assert [f.name for f in fields(EngineConfig)] == [
            "agent_name",
            "model_id",
            "budget_max_steps",
            "budget_max_runtime_seconds",
            "budget_max_tokens",
            "critic_names",
            "stop_criteria_names",
            "has_checkpoint_store",
            "has_tracing_provider",
            "protocol_id",
            "delegate_depth",
            "has_shared_memory",
            "has_env",
            "tool_count",
        ]

    def test_describes_the_engine(self):
        engine = Engine(
            agent=Agent("my_agent", [Decision.final("x")], tool_registry=search_registry()),
            budget=RuntimeBudget(max_steps=10),
            critics=[ScoreCritic(0.5)],
            shared_memory={},
            tracing_provider=object(),
        )
        assert engine.export_config().to_dict() == {
            "agent_name": "my_agent",
            "model_id": "",
            "budget_max_steps": 10,
            "budget_max_runtime_seconds": None,
            "budget_max_tokens": None,
            "critic_names": ["ScoreCritic"],
            "stop_criteria_names": ["FinalResultCriteria"],
            "has_checkpoint_store": False,
            "has_tracing_provider": True,
            "protocol_id": None,
            "delegate_depth": 0,
            "has_shared_memory": True,
            "has_env": False,
            "tool_count": 1,
        }

    def test_names_model_and_protocol(self):
        class Model:
            model_id = "some-model"

            def __call__(self, messages, tools=None):
                return "Final Answer: x"

        agent = Agent("a", [None], llm=Model(), model_protocol="json_decision_v1")
        config = Engine(agent).export_config()
        assert (config.model_id, config.protocol_id) == ("some-model", "json_decision_v1")

    def test_serializes_and_comes_back(self):
        config = run_with_everything()[0].export_config()
        row = round_trip(config.to_dict())
        assert EngineConfig.from_dict(row) == config
        assert snowl_compat.engine_config(config) == row


class TestToolPermissionSpec:
    def test_maps_a_tool(self):
        [spec] = search_registry().export_permissions()
        assert (spec.name, spec.description) == ("search", "Search the web.")
        assert spec.permissions.network is True
        assert spec.permissions.filesystem_write is False
        assert (spec.needs_approval, spec.read_only) == (True, False)

    def test_serializes_and_comes_back(self):
        [spec] = search_registry().export_permissions()
        row = round_trip(spec.to_dict())
        assert list(row) == [f.name for f in fields(ToolPermissionSpec)]
        assert ToolPermissionSpec.from_dict(row) == spec
        assert snowl_compat.tool_permissions(search_registry()) == [row]


class TestCriticTrace:
    def test_is_extracted_from_a_run(self):
        _, result = run_with_everything()
        assert [(t.step_id, t.critic_name, t.action, t.score) for t in result.critic_traces] == [
            (0, "length", "continue", 1.0),
            (2, "length", "retry", 0.25),
            (3, "length", "stop", 0.9),
        ]
        assert result.critic_traces[1].instruction_patch == "Say more."
        assert result.critic_traces == critic_traces(result.records)

    def test_equals_the_documented_manual_extraction(self):
        _, result = run_with_everything()
        manual = [
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
            for record in result.records
            for output in record.critic_outputs
        ]
        assert critic_traces(result.records) == manual

    def test_serializes_and_comes_back(self):
        _, result = run_with_everything()
        for trace in result.critic_traces:
            assert CriticTrace.from_dict(round_trip(trace.to_dict())) == trace

    def test_leaves_empty_columns_out_and_the_payload_restores_them(self):
        _, result = run_with_everything()
        assert result.critic_traces[0].to_dict() == {
            "step_id": 0,
            "critic_name": "length",
            "action": "continue",
            "reason": "",
            "score": 1.0,
        }
        assert snowl_compat.critic_traces(result.records)[0] == {
            "step_id": 0,
            "critic_name": "length",
            "action": "continue",
            "reason": "",
            "score": 1.0,
            "details": {},
            "instruction_patch": None,
            "state_patch": None,
        }


class TestHandoffTrace:
    def test_is_extracted_from_a_run(self):
        _, result = run_with_everything()
        assert result.handoff_traces == [HandoffTrace(1, "planner", "writer", "ISOLATED", 0)]
        assert result.handoff_traces == handoff_traces(result.events)

    def test_equals_the_documented_manual_extraction(self):
        _, result = run_with_everything()
        manual = []
        for event in result.events:
            if event.phase != RuntimePhase.HANDOFF_START:
                continue
            payload = event.payload or {}
            manual.append(
                HandoffTrace(
                    step_id=event.step_id,
                    from_agent=str(payload.get("from", "")),
                    to_agent=str(payload.get("to", "")),
                    context_strategy=str(payload.get("context_strategy", "")),
                    messages_passed=int(payload.get("messages_passed", 0)),
                )
            )
        assert handoff_traces(result.events) == manual

    def test_serializes_and_comes_back(self):
        [trace] = run_with_everything()[1].handoff_traces
        assert HandoffTrace.from_dict(round_trip(trace.to_dict())) == trace


class TestWholeResult:
    def test_becomes_the_payload(self):
        engine, result = run_with_everything()
        issues = []
        payload = snowl_compat.build_payload(result, engine=engine, issues=issues)
        assert issues == []
        assert round_trip(payload) == payload
        assert snowl_compat.validate_payload(payload) == []
        assert list(payload) == [
            "engine_config",
            "tool_permissions",
            "critic_traces",
            "handoff_traces",
            "step_count",
        ]
        assert payload["engine_config"] == engine.export_config().to_dict()
        assert [spec["name"] for spec in payload["tool_permissions"]] == ["search"]
        assert [row["action"] for row in payload["critic_traces"]] == ["continue", "retry", "stop"]
        assert [row["to_agent"] for row in payload["handoff_traces"]] == ["writer"]
        assert payload["step_count"] == 4

    def test_equals_the_documented_package_but_for_empty_columns(self):
        engine, result = run_with_everything()
        package = {
            "engine_config": engine.export_config().to_dict(),
            "tool_permissions": [s.to_dict() for s in engine.tool_registry.export_permissions()],
            "critic_traces": [trace.to_dict() for trace in result.critic_traces],
            "handoff_traces": [trace.to_dict() for trace in result.handoff_traces],
            "step_count": result.step_count,
        }
        payload = snowl_compat.build_payload(result, engine=engine)
        for row in payload["critic_traces"]:
            for name, empty in (("details", {}), ("instruction_patch", None), ("state_patch", None)):
                if row[name] == empty:
                    del row[name]
        assert payload == package

    def test_serializes_on_its_own(self):
        _, result = run_with_everything()
        row = round_trip(result.to_dict())
        assert row["task_result"]["final_result"] == "long enough"
        assert row["state"]["stop_reason"] == "critic_stop"
        assert snowl_compat.build_payload(row)["critic_traces"] == snowl_compat.critic_traces(
            result.records
        )


@pytest.mark.parametrize("score", [None, float("nan"), "high", object()])
def test_an_unusable_score_costs_only_itself(score):
    class Judge:
        def evaluate(self, state, decision, results):
            return {"score": score, "reason": "kept", "details": {"when": score}}

    engine = Engine(Agent("a", [Decision.final("x")]), critics=[Judge()])
    result = engine.run("t")
    [trace] = result.critic_traces
    assert (trace.score, trace.reason, trace.critic_name) == (None, "kept", "Judge")
    payload = strict(snowl_compat.export_json(result, engine=engine))
    assert payload["critic_traces"][0]["score"] is None
    assert payload["step_count"] == 1


def test_a_critic_that_raises_stops_the_run_and_is_recorded():
    class Judge:
        def evaluate(self, state, decision, results):
            raise RuntimeError("no judgement")

    engine = Engine(Agent("a", [Decision.final("x")]), critics=[Judge()])
    result = engine.run("t")
    assert result.failure.pop("traceback").endswith("RuntimeError: no judgement")
    assert result.failure == {
        "category": "system_error",
        "phase": "CRITIC",
        "step_id": 0,
        "type": "RuntimeError",
        "message": "no judgement",
    }
    payload = strict(snowl_compat.export_json(result, engine=engine))
    assert payload["critic_traces"][0]["action"] == "stop"
    assert payload["critic_traces"][0]["reason"] == "critic raised RuntimeError: no judgement"


def test_a_handoff_to_nobody_is_a_recorded_failure():
    engine = Engine(Agent("a", [Decision.handoff("nobody")]), agent_registry=AgentRegistry())
    result = engine.run("t")
    assert result.failure["message"] == "handoff to unknown agent 'nobody'"
    payload = strict(snowl_compat.export_json(result, engine=engine))
    assert (payload["handoff_traces"], payload["step_count"]) == ([], 1)


def test_a_tool_that_exits_is_that_tools_error():
    def leave() -> str:
        """Leave."""
        raise SystemExit(3)

    agent = Agent("a", [Decision.act(Action("leave")), Decision.final("still here")])
    agent.tool_registry.register(leave)
    engine = Engine(agent)
    result = engine.run("t")
    assert result.final_result == "still here"
    [call] = result.records[0].tool_invocations
    assert (call["status"], call["error"]) == ("error", "SystemExit: 3")
    assert strict(snowl_compat.export_json(result, engine=engine))["step_count"] == 2
