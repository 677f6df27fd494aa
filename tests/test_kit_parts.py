"""Planning, prompts, parsers and critics of the kit, as published agents call them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from qitos_min import Action, Decision, StateSchema, kit
from qitos_min.engine._protocols import resolve_protocol
from qitos_min.engine._replies import EmptyReplyError, ParseError
from qitos_min.engine.critic_result import CriticResult
from qitos_min.kit import critic, parser, prompts
from qitos_min.kit.planning import (
    NumberedPlanBuilder,
    PlanCursor,
    append_log,
    format_action,
    parse_numbered_plan,
    set_final,
)


@pytest.mark.parametrize(
    "action, line",
    [
        (Action("add", {"a": 1, "b": "x y"}), "add(a=1, b='x y')"),
        ({"name": "add", "args": {"a": 1}}, "add(a=1)"),
        ({"name": "add", "arguments": {"a": None}}, "add(a=None)"),
        ({"action": "add", "args": {}}, "add()"),
        ({"tool": "add"}, "add()"),
        ({"name": "add", "args": "a=1"}, "add('a=1')"),
        ({}, "()"),
        ("as it is", "as it is"),
        (None, "None"),
    ],
)
def test_an_action_is_one_line(action, line):
    assert format_action(action) == line
    assert kit.format_action is format_action


@pytest.mark.parametrize(
    "most, kept", [(None, ["0", "1", "2"]), (2, ["1", "2"]), (9, ["0", "1", "2"]), (0, [])]
)
def test_a_log_keeps_its_last_items(most, kept):
    state = StateSchema(task="t")
    for item in "012":
        append_log(state, "notes", item, max_items=most)
    assert state.notes == kept


def test_a_log_is_never_shared():
    shared = ["a"]
    one, two = SimpleNamespace(log=shared), SimpleNamespace(log=shared)
    append_log(one, "log", "b")
    assert (one.log, two.log) == (["a", "b"], ["a"])


def test_fields_of_a_state_are_set():
    state = StateSchema(task="t")
    set_final(state, "done")
    assert state.final_result == "done"


@pytest.mark.parametrize(
    "text, steps",
    [
        ("1. a\n2. b\n", ["a", "b"]),
        ("1) a\n 2) b c ", ["a", "b c"]),
        ("The plan:\n1. a\n   more\n10. b", ["a", "b"]),
        ("- a\n* b", []),
        ("1.5 is a number", []),
        ("", []),
    ],
)
def test_a_numbered_plan_is_its_lines(text, steps):
    assert parse_numbered_plan(text) == steps


def test_a_cursor_walks_a_plan():
    state, cursor = StateSchema(task="t"), PlanCursor()
    assert (cursor.current(state), cursor.done(state)) == (None, True)
    cursor.init(state, ["a", "b"])
    seen = []
    while not cursor.done(state):
        seen.append(cursor.current(state))
        cursor.advance(state)
    assert (seen, cursor.current(state), state.plan_cursor) == (["a", "b"], None, 2)


@pytest.mark.parametrize(
    "reply", ["1. a\n2. b", {"choices": [{"message": {"content": "1. a\n2. b"}}]}]
)
def test_a_plan_is_asked_of_a_model(reply):
    asked = []
    more = [{"role": "user", "content": "before"}]
    steps = NumberedPlanBuilder("plan!").build(lambda m: asked.append(m) or reply, "do it", more)
    assert steps == ["a", "b"]
    assert asked == [
        [{"role": "system", "content": "plan!"}, *more, {"role": "user", "content": "do it"}]
    ]


@pytest.mark.parametrize(
    "template, values, options, text",
    [
        ("{{name}} {name} {{ name }}", {"name": "X"}, {}, "X X X"),
        ('{"a": {name}}', {"name": 1}, {}, '{"a": 1}'),
        ("{name} {{name}}", {"name": 1}, {"enable_single_brace": False}, "{name} 1"),
        ("{name} {{other}}", {}, {}, "{name} {{other}}"),
        ("{a}", {"a": "{b}", "b": 2}, {}, "{b}"),
        ("{a} {b}", {"a": None, "b": [1]}, {}, "None [1]"),
        ("{ a } {a.b} {}", {"a": 1}, {}, "{ a } {a.b} {}"),
        ("{a}", None, {}, "{a}"),
    ],
)
def test_a_prompt_is_filled_in(template, values, options, text):
    assert prompts.render_prompt(template, values, **options) == text


def test_a_strict_prompt_names_what_is_missing():
    with pytest.raises(KeyError, match="name"):
        prompts.render_prompt("{name}", {}, strict=True)


@pytest.mark.parametrize(
    "name, names",
    [
        ("REACT_SYSTEM_PROMPT", ["tool_schema"]),
        ("PLAN_DRAFT_PROMPT", ["task"]),
        ("PLAN_EXEC_SYSTEM_PROMPT", ["tool_schema"]),
    ],
)
def test_prompts_have_the_names_that_agents_fill_in(name, names):
    text = getattr(kit, name)
    filled = prompts.render_prompt(text, dict.fromkeys(names, "@@"), strict=False)
    assert filled.count("@@") == len(names) and "{{" not in filled


ACT = Decision.act([Action("add", {"a": "x"})], rationale="why")
FINAL = Decision.final("42", rationale="why")
FORMS = {
    "ReActTextParser": ("Thought: why\nAction: add(a='x')", "Thought: why\nFinal Answer: 42"),
    "JsonDecisionParser": (
        '{"thought": "why", "action": {"name": "add", "args": {"a": "x"}}}',
        '```json\n{"thought": "why", "final_answer": "42"}\n```',
    ),
    "XmlDecisionParser": (
        '<decision mode="act"><think>why</think><action name="add"><arg name="a">x</arg>'
        "</action></decision>",
        "<decision><think>why</think><final_answer>42</final_answer></decision>",
    ),
}


@pytest.fixture(params=FORMS)
def reader(request):
    made = getattr(parser, request.param)()
    try:
        resolve_protocol(made.protocol)
    except ValueError:
        pytest.skip(f"no protocol {made.protocol}")
    return made


def test_parsers_read_their_forms(reader):
    for text, wanted in zip(FORMS[type(reader).__name__], (ACT, FINAL)):
        assert reader.parse(text) == wanted
        response = {"choices": [{"message": {"content": text}}]}
        assert reader.parse(response, {"protocol": reader.protocol, "step": 1}) == wanted


def test_what_cannot_be_read_is_said_to_who_asks(reader):
    decision = reader.parse("junk")
    assert (decision.mode, decision.meta["parser_error"]) == ("wait", True)
    assert decision.rationale == decision.meta["parser_feedback"] != ""
    assert reader.parse("").mode == "wait"
    for text, error in (("junk", ParseError), ("", EmptyReplyError)):
        with pytest.raises(error):
            reader.parse(text, context={"protocol": reader.protocol})


@pytest.mark.parametrize("name", FORMS)
def test_parsers_have_labels_of_their_own(name):
    make = getattr(parser, name)
    make(thought_keys=None, final_keys=None)
    for option, value in (("action_keys", ["do"]), ("other", None)):
        with pytest.raises(TypeError, match=f"^{name} takes no '{option}', its labels are fixed$"):
            make(**{option: value})


FAILED = {"tool_name": "t", "error": "no file"}


@pytest.mark.parametrize(
    "made", [critic.self_reflection_critic, critic.ReActSelfReflectionCritic()]
)
def test_reflection_asks_twice_and_then_stops(made):
    state = StateSchema(task="t")
    verdicts = [
        CriticResult.from_value(made.evaluate(state, ACT, results))
        for results in ([], [FAILED], [{"output": 1}], [FAILED], [FAILED])
    ]
    actions = [verdict.action for verdict in verdicts]
    assert actions == ["continue", "retry", "continue", "retry", "stop"]
    assert state.metadata["reflection_retries"] == 2
    assert "no file" in verdicts[1].instruction_patch
    assert verdicts[4].reason.startswith("still failing: ")


def test_react_reflection_notes_what_failed():
    state = StateSchema(task="t")
    critic.ReActSelfReflectionCritic().evaluate(state, ACT, [FAILED])
    assert state.metadata["self_reflections"] == ["add(a='x') failed: no file"]


def test_a_critic_that_lets_pass():
    verdict = critic.pass_through_critic.evaluate(StateSchema(task="t"), ACT, [FAILED])
    assert CriticResult.from_value(verdict).action == "continue"
    assert critic.pass_through_critic.critic_name == "pass_through_critic"


@pytest.mark.parametrize("name", ["planning", "prompts", "parser", "toolset", "critic", "tool"])
def test_modules_of_the_kit_are_its_attributes(name):
    assert getattr(kit, name).__name__ == f"qitos_min.kit.{name}"
