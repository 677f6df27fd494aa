"""The page of a run in a terminal: readable, ASCII apart from the data, 80 columns."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unicodedata import combining, east_asian_width

import pytest

import snowl_compat
from qitos_min.__main__ import main
from snowl_compat import build_payload

ROOT = Path(__file__).resolve().parents[1]


def columns(text):
    return sum(
        0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text
    )


@pytest.fixture
def page(tmp_path, capsysbinary):
    """The page of a source, by the command line."""

    def show(source, **options):
        path = tmp_path / "payload.json"
        payload = build_payload(source, extended=True, **options)
        path.write_text(json.dumps(payload), encoding="utf-8")
        assert main(["show", str(path)]) == 0
        text, error = capsysbinary.readouterr()
        assert error == b""
        lines = text.decode("utf-8").splitlines()
        assert all(columns(line) <= 80 for line in lines)
        assert all(line == line.rstrip() for line in lines)
        return lines

    return show


def part(lines, title):
    """The lines of one part, without its title."""
    rest = lines[lines.index(title) + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def critic(step_id, **fields):
    return {"step_id": step_id, "critic_outputs": [{"critic_name": "style", **fields}]}


def test_an_empty_run_is_a_short_page(page):
    titles = ("Configuration", "Tools", "Critics", "Handoffs", "Issues")
    empty = [line for title in titles for line in ("", title, "  none")]
    assert page([]) == ["Run", "  issues  0", "  steps   0", *empty]


def test_a_whole_run(page):
    source = {
        "records": [
            critic(9, action="retry", score=0.2, reason="too long"),
            critic(10, score=None, reason="line\none"),
            critic(11, score=1.0),
        ],
        "events": [
            {"step_id": 0, "phase": "INIT"},
            {
                "step_id": 10,
                "phase": "HANDOFF_START",
                "payload": {"from": "planner", "to": "writer", "context_strategy": "full", "messages_passed": 12},
            },
        ],
        "run_id": "run_1",
        "final_result": {"answer": "北京"},
        "runtime_seconds": 1.2345,
        "total_tokens": 700,
        "tool_calls_by_name": {"search": 2, "read": 1},
    }
    config = {
        "agent_name": "planner",
        "model_id": "m-1",
        "budget_max_steps": 12,
        "budget_max_runtime_seconds": 1.5,
        "critic_names": ["style", "facts"],
        "has_env": True,
        "has_shared_memory": True,
        "delegate_depth": 2,
    }
    tools = [
        {"name": "search", "permissions": {"network": True, "filesystem_read": True}, "needs_approval": True},
        {"name": "read", "read_only": True, "concurrency_safe": True, "required_ops": ["file"]},
    ]
    assert page(source, engine_config=config, tool_permissions=tools) == [
        "Run",
        "  run id              run_1",
        "  agent name          planner",
        '  final result        {"answer": "北京"}',
        "  runtime seconds     1.23",
        "  total tokens        700",
        "  tool calls by name  2 search, 1 read",
        "  partial             yes",
        "  issues              1",
        "  model               m-1",
        "  steps               3",
        "  last score          1.00",
        "",
        "Configuration",
        "  agent name                  planner",
        "  model id                    m-1",
        "  budget max steps            12",
        "  budget max runtime seconds  1.50",
        "  critic names                style, facts",
        "  delegate depth              2",
        "  has shared memory           yes",
        "  has env                     yes",
        "  tool count                  2",
        "",
        "Tools",
        "  name    may use                   notes",
        "  search  filesystem read, network  needs approval",
        "  read                              read only, concurrency safe, needs file",
        "",
        "Critics",
        "  step id  critic name  action    score  reason",
        "        9  style        retry      0.20  too long",
        "       10  style        continue   none  line one",
        "       11  style        continue   1.00",
        "",
        "Handoffs",
        "  step id  from agent  to agent  context strategy  messages passed",
        "       10  planner     writer    FULL                           12",
        "",
        "Issues",
        "  path                                message",
        "  records[1].critic_outputs[0].score  expected a finite number, got None",
    ]


@pytest.mark.parametrize("text", ["word " * 60, "长" * 200, "长 " * 90, "x" * 250, "é" * 150, "👍" * 99])
def test_long_text_goes_on_in_the_next_line(page, text):
    lines = part(page({"records": [], "final_result": text}), "Run")[:-2]
    assert lines[0].startswith("  final result  ")
    assert all(line.startswith(" " * 16) for line in lines[1:])
    assert "".join(line[16:] for line in lines).replace(" ", "") == text.replace(" ", "")
    assert len(lines) <= columns(text) // 62 + 3


def test_of_very_long_text_it_is_said_what_is_left_out(page):
    lines = part(page({"records": [], "final_result": "x" * 1_000_000}), "Run")
    assert len(lines) == 19 and " ".join("".join(lines[:-2]).split()).endswith(" ... and 999,000 more characters")


LONG = {
    "ascii": "x" * 300,
    "wide": "长" * 300,
    "accents": "é" * 99,
    "emoji": "👍🏽" * 50,
    "controls": "\x1b[31m\u202e\0" * 30,
    "words": "a b " * 60,
    "surrogates": "\ud800" * 9,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_every_line_fits_and_is_harmless(page, text):
    source = {
        "records": [critic(10**12, critic_name=text, action=text, score=-1e300, reason=text)],
        "handoff_traces": [
            {"step_id": 10**12, "from_agent": text, "to_agent": text, "context_strategy": text, "messages_passed": 10**20}
        ],
        "run_id": text,
        "final_result": [text],
        "tool_calls_by_name": {text: 1},
    }
    config = {"agent_name": text, "critic_names": [text] * 3, "protocol_id": text, "budget_max_tokens": 10**30}
    tools = [{"name": text, "permissions": {text: True}, "required_ops": [text]}]
    lines = page(source, engine_config=config, tool_permissions=tools)
    assert all(line.isprintable() for line in lines)


def test_the_pages_own_words_are_ascii(page):
    assert all(line.isascii() for line in page([critic(0, score=None)]))


@pytest.mark.parametrize("score, shown", [(0.125, "0.12"), (7, "7.00"), (-0.2, "-0.20"), (1e9, "1e+09"), (None, "none")])
def test_scores_have_two_decimals(page, score, shown):
    (_, line) = part(page([critic(0, score=score)]), "Critics")
    assert line == f"        0  style        continue{shown:>7}"


def test_long_tables_say_how_much_is_left(page):
    lines = page([critic(n, score="bad") for n in range(60)])
    assert part(lines, "Critics")[-1] == "  ... and 10 more"
    assert len(part(lines, "Critics")) == 52
    assert part(lines, "Issues")[-1] == "  ... and 10 more"


def test_a_payload_without_a_run_has_a_page(tmp_path, capsys):
    path = tmp_path / "payload.json"
    path.write_text(snowl_compat.export_json([critic(0)]), encoding="utf-8")
    assert main(["show", str(path)]) == 0
    assert "  complete" not in capsys.readouterr().out


# The command


def command(*args, **options):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-m", "qitos_min", *map(str, args)],
        cwd=ROOT, capture_output="stdout" not in options, **options,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def kept(tmp_path):
    folder = tmp_path / "运行"
    folder.mkdir()
    (folder / "steps.jsonl").write_text(json.dumps(critic(0, reason="好")), encoding="utf-8")
    return folder


LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


def test_a_folder_is_shown_as_utf8_whatever_the_locale(kept):
    code, out, error = command("show", kept, env={**os.environ, **LOCALE})
    assert (code, error) == (0, b"")
    assert "  style        continue   1.00  好" in out.decode("utf-8")


def test_a_run_on_standard_input_is_shown():
    code, out, error = command("show", "-", input=json.dumps([critic(7)]).encode())
    assert (code, error) == (0, b"") and b"        7  style" in out


BAD = [
    (["show"], b"", 2, "usage: "),
    (["show", "a", "b"], b"", 2, "usage: "),
    (["show", "没有"], b"", 1, f"没有: cannot be read: {os.strerror(2)}\n"),
    (["show", "-"], b"{", 1, "-: expected JSON"),
]


@pytest.mark.parametrize("args, given, code, told", BAD)
def test_what_cannot_be_shown_is_one_line_and_an_exit_code(args, given, code, told):
    done, out, error = command(*args, input=given, env={**os.environ, **LOCALE, "PYTHONIOENCODING": "utf-8"})
    error = error.decode("utf-8").replace("\r\n", "\n")
    assert (done, out) == (code, b"") and error.startswith(told)
    assert code == 2 or error.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="POSIX pipes")
def test_a_closed_pipe_is_quiet(kept):
    reader, writer = os.pipe()
    os.close(reader)
    done = command("show", kept, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done[0], done[2]) == (0, b"")


def test_without_a_command_the_example_runs(capsysbinary):
    assert main([]) == 0
    assert snowl_compat.load_payload(capsysbinary.readouterr().out)["step_count"] == 6


# Width and colour


def record(step_id, **fields):
    return {"step_id": step_id, "critic_outputs": [], "agent_id": "a", **fields}


@pytest.fixture
def stepping(tmp_path):
    path = tmp_path / "steps.json"
    call = {"tool_name": "look", "status": "error", "error": "no such file " * 9}
    steps = [
        record(0, decision={"mode": "act", "rationale": "because " * 20}, tool_invocations=[call]),
        record(1, decision={"mode": "final", "final_answer": "done"}),
    ]
    path.write_text(json.dumps(steps), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_everything_wraps_and_nothing_is_cut(stepping, width, capsys):
    assert main(["show", stepping, "--width", str(width)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(columns, lines)) <= width
    words = " ".join(" ".join(lines).split())
    assert words.count("because") == 20 and words.count("no such file") == 9
    assert "0 a act ERROR" in words


def test_the_width_is_that_of_the_terminal(stepping, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["show", stepping]) == 0
    assert 40 < max(map(columns, capsys.readouterr().out.splitlines())) <= 50


@pytest.mark.parametrize("asked, width", [(1, 40), (39, 40)])
def test_below_forty_columns_it_stays_at_forty(stepping, asked, width, capsys):
    assert main(["show", stepping, "--width", str(asked)]) == 0
    assert max(map(columns, capsys.readouterr().out.splitlines())) <= width


@pytest.mark.parametrize("terminal, no_colour, coloured", [(True, "", True), (True, "1", False), (False, "", False)])
def test_colour_is_for_terminals_and_where_it_is_wanted(stepping, monkeypatch, capsys, terminal, no_colour, coloured):
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert main(["show", stepping]) == 0
    assert ("\x1b[" in capsys.readouterr().out) is coloured


def test_a_failure_has_its_traceback(tmp_path, capsys):
    path = tmp_path / "run.json"
    failure = {"type": "ValueError", "message": "no idea", "phase": "DECIDE", "step_id": 2,
               "traceback": "Traceback:\n  File x\nValueError: no idea"}  # fmt: skip
    path.write_text(json.dumps({"records": [], "failure": failure}), encoding="utf-8")
    assert main(["show", str(path)]) == 0
    text = capsys.readouterr().out
    assert "  ValueError: no idea (DECIDE, step 2)\n    Traceback:\n      File x\n" in text


def test_long_cells_of_a_table_wrap(page):
    lines = part(page([critic(0, critic_name="n" * 90, reason="because " * 40)]), "Critics")
    text = "".join(lines).replace(" ", "")
    assert text.count("n" * 90) == 1 and text.count("because") == 40
