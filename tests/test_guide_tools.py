"""What the guide to tools shows, run as its reader would run it."""

from __future__ import annotations

import inspect
import os
import re
from contextlib import redirect_stdout
from dataclasses import MISSING, fields
from io import StringIO
from pathlib import Path

import pytest

from tool_results import result_of

from qitos_min import AgentModule, Decision, Engine, StateSchema, ToolRegistry, ToolResult
from qitos_min.core.action import Action
from qitos_min.core.artifact import ArtifactRef
from qitos_min.core.function_tool_decorator import function_tool
from qitos_min.core.tool import BaseTool, ToolMeta
from qitos_min.engine.action_executor import ActionExecutionPolicy
from qitos_min.engine.runtime import RuntimeComposition
from qitos_min.kit import compose
from qitos_min.kit.tool import CodingToolSet, EnvToolSet
from qitos_min.kit.tool.internal.publication import SandboxPublicationTool

GUIDE = Path(__file__).resolve().parents[2] / "shared" / "seeds"
posix_only = pytest.mark.skipif(os.name != "posix", reason="publication is POSIX only")


def summarize_note(text: str) -> str:
    """Give the first sentence of a note."""
    return text.split(".", 1)[0]


@function_tool(read_only=True, concurrency_safe=True)
def title(text: str) -> str:
    """Give what stands before the colon."""
    return text.split(":", 1)[0]


class EchoTool(BaseTool):
    name = "echo"
    description = "Gives its arguments back"

    def execute(self, args, runtime_context=None):
        return ToolResult(output=args)


def long_note() -> str:
    """A note that is longer than a model should see."""
    return "Session: " + "word " * 100


class NotesAgent(AgentModule):
    """Makes its calls in one step, then answers with what came of them."""

    name = "notes"

    def __init__(self, *calls: Action) -> None:
        registry = ToolRegistry().register(summarize_note).register(title)
        registry.register(EchoTool())
        registry.register(long_note, meta=ToolMeta(result_max_chars=20))
        super().__init__(tool_registry=registry)
        self.calls = calls

    def init_state(self, task, **kwargs):
        return StateSchema(task=task)

    def decide(self, state, observation):
        if state.metadata or not self.calls:
            return Decision.final(state.metadata.get("seen"))
        return Decision.act(actions=list(self.calls))

    def reduce(self, state, observation, decision):
        if decision.mode == "act":
            state.metadata["seen"] = observation["action_results"]
        return state


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "notes"
    place.mkdir()
    (place / "report.txt").write_bytes(b"draft\n")
    return place


def test_a_registered_function_is_a_tool():
    registry = ToolRegistry()
    registry.register(summarize_note)
    result = result_of(registry, "summarize_note", text="One. Two.")
    assert (result.status, result.output, result.tool_name) == (
        "success",
        "One",
        "summarize_note",
    )


def test_a_decorated_function_stays_one_and_is_a_tool():
    assert title("Session: notes") == "Session"
    assert result_of(ToolRegistry().register(title), "title", text="A: b").output == "A"
    assert (title.spec.read_only, title.spec.concurrency_safe) == (True, True)

    @function_tool
    def greet(name: str) -> str:
        return f"hello {name}"

    @function_tool(name="custom", needs_approval=True)
    def other(name: str) -> str:
        return name

    registry = ToolRegistry().register(greet).register(other)
    assert result_of(registry, "greet", name="Pat").output == "hello Pat"
    assert result_of(registry, "custom", name="Pat").error_code == "approval_required"


def test_a_class_tool_implements_execute():
    result = result_of(ToolRegistry().register(EchoTool()), "echo", note="n")
    assert (result.status, result.output) == ("success", {"note": "n"})


def test_a_result_is_printed_as_shown():
    result = ToolResult(output={"title": "Session"})
    with redirect_stdout(StringIO()) as printed:
        print(result.status, result.output, result.outcome_unknown)
    assert printed.getvalue() == "success {'title': 'Session'} False\n"


def test_the_body_of_an_artifact_is_resolved_through_the_agent(folder):
    with compose(NotesAgent(Action("long_note")), workspace=folder) as composition:
        result = composition.engine.run("shorten")
        ((invocation,),) = (r.tool_invocations for r in result.records[:1])
        (ref,) = map(ArtifactRef.from_dict, invocation["artifact_refs"])
        body = composition.agent.config["artifact_resolver"].resolve(ref).body
    assert body == long_note().encode()
    assert len(ref.sha256) == 64
    assert result.final_result == ["Session: w...[TRUNCATED]word word "]


def test_calls_run_together_where_their_tools_say_so():
    policy = ActionExecutionPolicy(mode="parallel", max_concurrency=2)
    calls = [Action("title", {"text": text}) for text in ("A: a", "B: b", "C: c")]
    agent = NotesAgent(*calls, Action("echo", {"n": 1}))
    engine = Engine(
        agent, runtime=RuntimeComposition(), action_execution_policy=policy
    )
    result = engine.run("titles")
    assert result.final_result == ["A", "B", "C", {"n": 1}]
    execution = result.records[0].action_execution
    assert (execution["mode"], execution["max_concurrency"]) == ("parallel", 2)
    assert execution["segments"] == [[0, 1, 2], [3]]


@posix_only
def test_what_was_approved_is_published_and_nothing_else(folder):
    write = Action("write_file", {"path": "report.txt", "content": "final\n"})
    agent = NotesAgent(write, Action("publish_workspace"))
    with compose(agent, workspace=folder, auto_approve=True) as composition:
        publication = SandboxPublicationTool(
            composition.env,
            paths=["report.txt"],
            expected_input_digest=composition.env.input_digest,
        )
        composition.tool_registry.register(publication)
        result = composition.engine.run("publish")
    assert result.success_rate == 1.0
    assert (folder / "report.txt").read_bytes() == b"final\n"


def test_publication_is_opt_in_and_closing_never_publishes(folder):
    write = Action("write_file", {"path": "report.txt", "content": "final\n"})
    agent = NotesAgent(write, Action("publish_workspace"))
    with compose(agent, workspace=folder, auto_approve=True) as composition:
        result = composition.engine.run("publish")
    assert [i["error_code"] for i in result.records[0].tool_invocations] == [
        None,
        "tool_not_found",
    ]
    assert (folder / "report.txt").read_bytes() == b"draft\n"


def test_host_and_environment_count_lines_in_their_own_way(folder):
    (folder / "a.txt").write_bytes(b"l1\nl2\nl3\nl4\nl5\n")
    tools = CodingToolSet(folder)
    assert tools.Read("a.txt", 2, 2).output == "3\tl3\n4\tl4"
    assert tools.Read("a.txt", 5, 2).output == ""
    for window in ((-1, 2), (0, 0), (1.5, 2), ("1", 2)):
        assert tools.Read("a.txt", *window).status == "error"
    for options in (
        {"old_string": "l"},
        {"old_string": "none"},
        {"old_string": "l1", "expected_sha256": "0" * 64},
    ):
        changed = tools.Edit("a.txt", new_string="x", **options)
        assert changed.status == "error"
    assert (folder / "a.txt").read_bytes() == b"l1\nl2\nl3\nl4\nl5\n"
    with compose(NotesAgent(), workspace=folder) as composition:
        read = EnvToolSet().read_file("a.txt", 2, 2, {"env": composition.env})
    assert read.output == "2\tl2\n3\tl3"
    assert EnvToolSet().read_file("a.txt", 2, 2, {}).error_code == "env_required"


SIGNATURES = [
    (ToolRegistry, "(*, auto_short_aliases=True)"),
    (ToolRegistry.register, "(self, item, name=None, meta=None)"),
    (
        function_tool,
        "(func=None, *, name=None, description=None, timeout_s=None, max_retries=0, "
        "retry_policy=None, on_failure=None, read_only=False, concurrency_safe=None, "
        "needs_approval=False, **extra_meta)",
    ),
    (BaseTool.execute, "(self, args, runtime_context=None)"),
    (ArtifactRef.from_dict, "(value)"),
    (SandboxPublicationTool, "(env, *, paths, expected_input_digest)"),
    (SandboxPublicationTool.execute, "(self, args, runtime_context=None)"),
]


@pytest.mark.parametrize("item, shown", SIGNATURES)
def test_each_signature_is_the_guides(item, shown):
    bare = inspect.signature(item)
    plain = [p.replace(annotation=p.empty) for p in bare.parameters.values()]
    assert str(inspect.Signature(plain)) == shown


FIELDS = {
    ArtifactRef: {
        **dict.fromkeys(("artifact_id", "resolver_key", "sha256"), MISSING),
        **dict.fromkeys(("media_type", "byte_length"), MISSING),
        "encoding": "binary",
        "sensitivity": "internal",
        "provenance_digest": None,
        "model_summary": None,
        "required": True,
        "schema_version": "qitos.artifact_ref/v1",
    },
    ActionExecutionPolicy: {
        "mode": "serial",
        "fail_fast": False,
        "max_concurrency": 4,
        "parallel_tool_names": None,
    },
}


@pytest.mark.parametrize("record", FIELDS)
def test_each_record_has_the_guides_fields(record):
    found = [(item.name, item.default) for item in fields(record)]
    assert found == list(FIELDS[record].items())


@posix_only
def test_the_fragments_themselves_run(folder):
    """In their order, with the package renamed and what they presuppose defined."""
    guides = list(GUIDE.glob("002_*.txt")) if GUIDE.is_dir() else []
    if not guides:
        pytest.skip("the guide is not here")
    text = re.sub(r"\bqitos\b", "qitos_min", guides[0].read_text(encoding="utf-8"))
    fragments = re.findall(r"^```python.*?\n(.*?)^```", text, re.M | re.S)
    assert len(fragments) > 12
    with compose(NotesAgent(Action("long_note")), workspace=folder) as composition:
        result = composition.engine.run("shorten")
        (shown,) = result.records[0].tool_invocations[0]["artifact_refs"]
        names = {
            "summarize_note": summarize_note,
            "ref": ArtifactRef.from_dict(shown),
            "composition": composition,
            "Engine": Engine,
            "RuntimeComposition": RuntimeComposition,
            "NotesAgent": NotesAgent,
        }
        with redirect_stdout(StringIO()) as printed:
            for fragment in fragments:
                exec(fragment, names)
    assert printed.getvalue() == (
        f"success {{'title': 'Session'}} False\n{shown['sha256']}\n"
    )
    assert names["body"] == long_note().encode()
    assert result_of(names["registry"], "summarize_note", text="A. b").output == "A"
    assert names["engine"].run("nothing to do").failure is None
