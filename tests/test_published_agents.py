"""Agents written as published ones are run here to the end they have on QitOS 0.3.0.

``tests/interop/test_agents_on_qitos.py`` runs the same files on the real one.
"""

import importlib
import json

import pytest
from published_agents import ENDS, FILES, end_of, scripted_model

import qitos_min
from qitos_min import Action, AgentModule, Decision, StateSchema, kit


@pytest.mark.parametrize("name", FILES)
def test_a_published_agent_ends_as_on_qitos(name, tmp_path, capsys):
    assert end_of(name, "qitos_min", tmp_path) == ENDS[name]


def test_every_end_has_its_agent():
    assert sorted(ENDS) == sorted(FILES)


class Noting(AgentModule[StateSchema, dict, Action]):
    """Notes what reaches its ``init_state``."""

    def init_state(self, task, **kwargs):
        self.reached = kwargs
        return StateSchema(task=task)

    def decide(self, state, observation):
        return Decision.final("done")

    def reduce(self, state, observation, decision):
        return state


OPTIONS = {
    "hooks": [],
    "render_hooks": [],
    "env": None,
    "parser": None,
    "protocol": None,
    "search": None,
    "critics": [],
    "trace": False,
    "trace_logdir": "runs",
    "trace_prefix": "p",
    "render": False,
    "theme": "research",
    "history_policy": None,
    "context_config": None,
    "run_spec": None,
    "experiment_spec": None,
    "memory": None,
    "workspace": None,
    "stop_criteria": None,
    "engine_kwargs": {},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_no_option_of_a_run_reaches_the_state(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = Noting()
    assert agent.run("Note", **{option: OPTIONS[option]}) == "done"
    assert option not in agent.reached
    assert list(tmp_path.iterdir()) == []


def test_other_keywords_do_reach_the_state():
    agent = Noting()
    agent.run("Note", colour="blue", max_steps=3)
    assert agent.reached == {"colour": "blue", "max_steps": 3}


def test_a_run_that_asks_for_a_trace_has_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    agent = Noting()
    assert agent.run("Note", trace=True, render=True, theme="research") == "done"
    assert agent.reached == {}
    (manifest,) = tmp_path.glob("runs/*/manifest.json")
    told = json.loads(manifest.read_text(encoding="utf-8"))
    assert told["run_id"] == manifest.parent.name and told["status"] == "completed"
    shown = capsys.readouterr()
    assert "done" in shown.out + shown.err


def test_a_run_that_asks_for_none_writes_and_prints_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert Noting().run("Note") == "done"
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_a_memory_stays_with_its_agent():
    memory = kit.WindowMemory()
    agent = Noting(memory=memory)
    assert agent.memory is memory
    assert "memory" not in agent.config


def test_a_memory_is_reset_once_a_run():
    class Counting(kit.WindowMemory):
        resets = 0

        def reset(self, run_id=None):
            self.resets += 1
            super().reset(run_id=run_id)

    memory = Counting()
    agent = Noting(memory=memory)
    agent.run("Note")
    agent.run("Note")
    assert memory.resets == 2


def test_a_workspace_that_is_not_there_is_made(tmp_path):
    Noting().run("Note", workspace=str(tmp_path / "new" / "place"))
    assert (tmp_path / "new" / "place").is_dir()


@pytest.mark.parametrize("parser", [None, "XmlDecisionParser"])
def test_texts_in_xml_take_the_types_of_the_tool(parser):
    got = []

    @qitos_min.tool(name="note")
    def note(text: str, times: int, tags: list[str], maybe: str | None = None) -> str:
        """Note something."""
        got.append((text, times, tags, maybe))
        return "noted"

    class Writer(Noting):
        def decide(self, state, observation):
            return None

    args = {"text": "42", "times": " 3 ", "tags": '["a"]', "maybe": "true"}
    spelled = "".join(f'<arg name="{name}">{text}</arg>' for name, text in args.items())
    llm = scripted_model("qitos_min")(
        [
            f'<decision mode="act"><action name="note">{spelled}</action></decision>',
            '<decision mode="final"><final_answer>done</final_answer></decision>',
        ]
    )
    registry = qitos_min.ToolRegistry().register(note)
    own = {"model_protocol": "xml_decision_v1"}
    if parser:
        own = {"model_parser": getattr(kit, parser)()}
    assert Writer(tool_registry=registry, llm=llm, **own).run("Note") == "done"
    assert got == [("42", 3, ["a"], "true")]


NAMES = {
    "qitos_min": "EnvSpec TaskResource History HistoryPolicy Memory ContextConfig RuntimeBudget"
    " RunSpec ExperimentSpec BenchmarkRunResult",
    "qitos_min.core": "EnvSpec HistoryPolicy Memory MemoryRecord RunSpec ExperimentSpec"
    " BenchmarkRunResult parse_docstring function_schema",
    "qitos_min.core.errors": "ModelExecutionError ParseExecutionError ToolExecutionError"
    " StateExecutionError SystemExecutionError RuntimeErrorInfo classify_exception",
    "qitos_min.core.memory": "Memory MemoryRecord",
    "qitos_min.core.history": "History HistoryMessage HistoryPolicy",
    "qitos_min.core.shared_memory": "InMemorySharedMemory SharedMemoryManager",
    "qitos_min.core.tool": "build_tool_spec",
    "qitos_min.engine": "HookContext ToolHookContext",
    "qitos_min.engine.action_executor": "ActionExecutor",
    "qitos_min.engine.approval": "ToolApprovalItem",
    "qitos_min.engine.hooks": "EngineHook HookContext ToolHookContext",
    "qitos_min.engine.recovery": "RecoveryPolicy",
    "qitos_min.engine.run_state": "CURRENT_SCHEMA_VERSION SCHEMA_VERSION_SUMMARIES RunState",
    "qitos_min.engine.search": "Search",
    "qitos_min.kit": "format_action render_prompt CodingToolSet HTTPGet HTMLExtractText",
    "qitos_min.kit.critic": "pass_through_critic self_reflection_critic PassThroughCritic"
    " ReActSelfReflectionCritic SelfReflectionCritic",
    "qitos_min.kit.history": "WindowHistory",
    "qitos_min.kit.memory": "MarkdownFileMemory Memory MemoryRecord WindowMemory",
    "qitos_min.kit.parser": "JsonDecisionParser ReActTextParser XmlDecisionParser",
    "qitos_min.kit.planning": "NumberedPlanBuilder PlanCursor append_log format_action"
    " parse_numbered_plan set_final",
    "qitos_min.kit.prompts": "PLAN_DRAFT_PROMPT PLAN_EXEC_SYSTEM_PROMPT REACT_SYSTEM_PROMPT"
    " render_prompt",
    "qitos_min.kit.tool": "EditorToolSet HTMLExtractText HTTPGet ReadFile RunCommand WriteFile",
    "qitos_min.kit.toolset": "CodingToolSet EditorToolSet coding_tools editor_tools",
    "qitos_min.models": "Model OpenAICompatibleModel",
    "qitos_min.render": "ClaudeStyleHook",
    "qitos_min.trace": "TraceWriter",
}


@pytest.mark.parametrize("module", NAMES)
def test_what_published_agents_import_is_there(module):
    found = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


GENERICS = {"AgentModule": 3, "Decision": 1, "Engine": 3, "EngineResult": 1, "StateAdapter": 2}


@pytest.mark.parametrize("generic", GENERICS)
def test_generic_classes_can_be_subscripted(generic):
    kinds = (StateSchema, dict, Action)[: GENERICS[generic]]
    assert getattr(qitos_min, generic)[kinds].__origin__ is getattr(qitos_min, generic)
