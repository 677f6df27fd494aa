"""Single trials through Snowl's own ``execute_trial``: limits, tools, hooks, turns."""

import asyncio
import importlib
import threading
import time

import pytest

import snowl_compat
from qitos_min.snowl import InstalledAgent, QitOSAdapter

FRAMEWORKS = pytest.mark.parametrize("framework", ["qitos_min", "qitos"])


@pytest.fixture
def trial(need):
    """``await trial(agent, task, …)``: one trial, scored 1.0."""
    need("snowl")
    import snowl

    class Scorer:
        scorer_id = "any"

        def score(self, task_result, trace, context):
            return {"accuracy": snowl.Score(1.0)}

    def start(agent, text="go", seconds=None, **more):
        snowl.validate_agent(agent)
        request = snowl.TrialRequest(
            task=snowl.Task("t", snowl.EnvSpec("local", ("web",)), lambda: iter(())),
            agent=agent,
            scorer=Scorer(),
            sample={"id": text, "input": text},
            limits=snowl.TrialLimits(time_limit_seconds=seconds),
            **more,
        )
        return snowl.execute_trial(request)

    return start


def gather(*trials):
    async def main():
        return await asyncio.gather(*trials)

    return asyncio.run(main())


@pytest.fixture
def scripted(need):
    """``scripted(framework, calls, …)``: an agent class that makes these calls, then answers."""

    def make(framework, calls, tools=(), limit=None):
        need(framework)
        qitos = importlib.import_module(framework)

        class Scripted(qitos.AgentModule):
            name = "scripted"
            made = []

            def __init__(self):
                registry = qitos.ToolRegistry() if tools else None
                for tool in tools:
                    registry.register(tool)
                super().__init__(tool_registry=registry)
                self.made.append(self)

            def init_state(self, task, **kwargs):
                return qitos.StateSchema(task=task, **kwargs)

            def decide(self, state, observation):
                if limit or state.current_step < len(calls):
                    name, args = calls[state.current_step % len(calls)]
                    return qitos.Decision.act([qitos.Action(name, dict(args))])
                return qitos.Decision.final(f"answer to {state.task}")

            def reduce(self, state, observation, decision):
                return state

        return Scripted

    return make


@FRAMEWORKS
def test_a_time_limit_ends_the_trial_and_the_run(framework, trial, scripted):
    ticks = []

    def tick() -> int:
        """Take a moment."""
        ticks.append(time.monotonic())
        time.sleep(0.005)
        return len(ticks)

    made = scripted(framework, [("tick", {})], [tick], limit=True)
    agent = QitOSAdapter().wrap(made, agent_id="slow", max_steps=100_000)

    async def main():
        outcome = await trial(agent, seconds=0.15)
        before = len(ticks)
        await asyncio.sleep(0.1)
        return outcome, before

    outcome, before = asyncio.run(main())
    assert outcome.task_result.status.value == "limit_exceeded"
    assert outcome.task_result.error.code == "time_limit_exceeded"
    assert outcome.trace["actions"] == outcome.trace["trace_events"] == []
    assert 0 < before <= len(ticks) <= before + 1  # At most the step it was in.


@FRAMEWORKS
def test_snowls_tools_are_the_agents_for_the_trial(framework, trial, scripted):
    import snowl

    def own(x: int) -> int:
        """The agent's own."""
        return x + 1

    def lookup(key: str, limit: int = 3) -> str:
        """Look something up."""
        return f"v:{key}"

    async def fetch(key: str) -> str:
        """Fetch something."""
        await asyncio.sleep(0)
        return f"f:{key}"

    specs = [snowl.build_tool_spec(f, required_ops=["web"]) for f in (lookup, fetch)]
    calls = [("own", {"x": 1}), ("lookup", {"key": "a"}), ("fetch", {"key": "b"})]
    for tools, wanted in (([own], calls), ([], calls[1:])):
        made = scripted(framework, wanted, tools)
        (outcome,) = gather(trial(QitOSAdapter().wrap(made, agent_id="a"), tools=specs))
        assert outcome.task_result.error is None
        results = [o["payload"]["result"] for o in outcome.trace["observations"]]
        assert results == [2, "v:a", "f:b"][3 - len(wanted) :]
        payload = outcome.trace["trace_events"][0]["payload"]
        names = sorted(spec["name"] for spec in payload["tool_permissions"])
        assert names == sorted(name for name, _ in wanted)
        assert payload["engine_config"]["tool_count"] == len(wanted)


@FRAMEWORKS
def test_the_registry_keeps_snowls_schema(framework, need):
    need("snowl", framework)
    import snowl

    def lookup(key: str, tags: list[str], deep: dict = None) -> str:
        """Look something up.

        Args:
            key: what to find
        """
        return key

    spec = snowl.build_tool_spec(lookup)
    (tool,) = QitOSAdapter().wrap_tools([spec])
    registry = importlib.import_module(framework).ToolRegistry().register(tool)
    (row,) = registry.get_all_specs()
    function = row.get("function", row)
    assert function["name"] == "lookup"
    assert function["description"] == spec.description
    assert function["parameters"] == spec.parameters
    assert registry.list_tools() == ["lookup"]


@FRAMEWORKS
def test_a_tool_that_is_there_twice_fails_the_trial_by_name(framework, trial, scripted):
    import snowl

    def lookup(key: str) -> str:
        """Look something up."""
        return key

    made = scripted(framework, [("lookup", {"key": "a"})], [lookup])
    agent = QitOSAdapter().wrap(made, agent_id="a")
    (outcome,) = gather(trial(agent, tools=[snowl.build_tool_spec(lookup)]))
    assert "Snowl's tool 'lookup' cannot stand beside" in outcome.task_result.error.message


@FRAMEWORKS
def test_steps_arrive_as_events_during_the_run(framework, trial, scripted):
    def add(a: int) -> int:
        """Add."""
        return a + 1

    made = scripted(framework, [("add", {"a": 1}), ("add", {"a": 2})], [add])
    events = []
    gather(trial(QitOSAdapter().wrap(made, agent_id="a"), on_event=events.append))
    steps = [event for event in events if event.get("event") == "runtime.agent.step"]
    assert [step["step_id"] for step in steps] == [0, 1, 2]
    assert [call["tool_name"] for call in steps[0]["tool_calls"]] == ["add"]


def test_references_to_artifacts_arrive_as_snowls_own(trial):
    ref = {"artifact_id": "output-1", "resolver_key": "files", "media_type": "text/plain"}

    class Writing:
        def run(self, task):
            record = {"action_results": [{"artifact_refs": [ref]}]}
            return {"records": [record], "final_result": "done"}

    (outcome,) = gather(trial(QitOSAdapter().wrap(Writing())))
    (artifact,) = outcome.task_result.artifacts
    assert (artifact.name, artifact.uri) == ("output-1", "files:output-1")
    assert artifact.media_type == "text/plain"


@FRAMEWORKS
def test_parallel_trials_of_a_factory_cross_nothing(framework, trial, scripted):
    count = 6
    meet = threading.Barrier(count)

    def wait() -> str:
        """Wait for all the others."""
        meet.wait(5)
        return "together"

    made = scripted(framework, [("wait", {})], [wait])
    agent = QitOSAdapter().wrap(made, agent_id="many")
    texts = [f"task {number}" for number in range(count)]
    outcomes = gather(*(trial(agent, text) for text in texts))
    assert len(made.made) == count
    for text, outcome in zip(texts, outcomes):
        assert outcome.task_result.final_output["content"] == f"answer to {text}"
        assert len(outcome.trace["actions"]) == 1


@FRAMEWORKS
def test_trials_of_one_agent_object_take_turns(framework, trial, scripted):
    inside, most = [], []

    def work() -> str:
        """Be alone."""
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.005)
        inside.pop()
        return "alone"

    agent = QitOSAdapter().wrap(scripted(framework, [("work", {})], [work])())
    assert agent.agent_id == "scripted"
    texts = [f"task {number}" for number in range(4)]
    outcomes = gather(*(trial(agent, text) for text in texts))
    assert most == [1] * 4
    contents = [outcome.task_result.final_output["content"] for outcome in outcomes]
    assert contents == [f"answer to {text}" for text in texts]


class Hooks:
    def __init__(self, bad=""):
        self.bad, self.calls = bad, []

    async def setup(self, context):
        self.calls.append("setup")
        await asyncio.sleep(0.01)

    def on_trial_start(self, task, context):
        self.calls.append(f"start {task}")
        if task == self.bad:
            raise LookupError("no seat")

    async def on_trial_end(self, task, result, payload):
        assert snowl_compat.validate_payload(payload) == []
        self.calls.append(f"end {task}: {result.step_count}")

    def on_trial_error(self, task, error):
        self.calls.append(f"error {task}: {error}")

    def teardown(self):
        self.calls.append("teardown")


@FRAMEWORKS
def test_an_installed_agents_hooks_live_through_concurrent_trials(framework, trial, scripted):
    hooks = Hooks(bad="b")
    made = scripted(framework, [])

    async def main():
        async with InstalledAgent(made, agent_id="plugin", hooks=hooks) as agent:
            return await asyncio.gather(*(trial(agent, text) for text in "abc"))

    a, b, c = asyncio.run(main())
    assert [o.task_result.status.value for o in (a, b, c)] == ["success", "error", "success"]
    message = "hook on_trial_start raised LookupError: no seat"
    assert b.task_result.error.message == message
    assert (hooks.calls[0], hooks.calls[-1]) == ("setup", "teardown")
    assert sorted(hooks.calls[1:-1]) == [
        *("end a: 1", "end c: 1", f"error b: {message}"),
        *("start a", "start b", "start c"),
    ]
