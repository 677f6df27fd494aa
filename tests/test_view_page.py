"""The page of a run: whole, harmless, within its size, and its pictures are true."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from view_runs import DATA, example, stamp, write_run

from qitos_min.__main__ import main
from qitos_min.view import _model, _page, _svg, _terminal

FILES = Path(__file__).resolve().parents[2] / "shared" / "cases" / "files"
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """A page that was read: its text, its attributes, and whether its tags are balanced."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.words, self.links = [], [], [], []
        self.ids = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))
        assert {"script", "img", "iframe", "link", "object", "form"} & set(self.tags) == set()
        assert [link for link in self.links if not link.startswith("#")] == []
        assert {link[1:] for link in self.links} <= set(self.ids)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on") and name not in ("src", "srcset", "style")
            self.ids += [value] if name == "id" else []
            self.links += [value] if "href" in name else []
            if "url(" in (value or ""):
                assert value.startswith("url(#")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def of(path, **kinds):
    return _page.page([_model.load(str(path))])


def of_value(tmp_path, value):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return of(path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return example(tmp_path_factory.mktemp("runs") / "example")


def test_the_golden_page_is_that_of_the_example(kept):
    assert of(kept) == (DATA / "view.html").read_text(encoding="utf-8")


def test_the_golden_text_is_that_of_the_example(kept):
    run = _model.load(str(kept))
    assert _terminal.terminal(run) + "\n" == (DATA / "show.txt").read_text(encoding="utf-8")


def test_the_example_says_what_happened(kept):
    text = of(kept)
    page = Page(text)
    for words in (
        "Report how warm it was on average.", "It was 21.0 °C on average.", "run_0123456789ab",
        "look at every day", "the answer is a guess", "Reckon the average before you answer.",
        "planner", "writer", "needs approval", "network", "SUMMARY", '{"day": "tuesday"}',
    ):  # fmt: skip
        assert words in page.text, words
    assert [tag for tag in page.tags if re.fullmatch("h[1-6]|main|header", tag)][:3] == ["main", "header", "h1"]
    heads = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert heads[0] == 1 and all(after - head <= 1 for head, after in zip(heads, heads[1:]))
    assert page.tags.count("details") == 6 and text.count(" open>") == 1
    assert 'id="r1-s1" open' in text  # The step that was sent back.
    assert "default-src 'none'" in text
    assert all('role="img" aria-label="' in tag for tag in re.findall(r"<svg [^>]*role[^>]*>", text))


def test_several_runs_begin_with_a_table_of_them(kept, tmp_path):
    write_run(tmp_path / "other", 3)
    runs = [_model.load(str(path)) for path in (kept, tmp_path / "other")]
    page = Page(_page.page(runs))
    assert page.text.startswith("2 runs 2 runs run steps stop reason last score total tokens runtime seconds issues run_0123456789ab 6 final")
    assert {"#r1-run", "#r2-run"} <= set(page.links)


# Pictures


def drawn(text, shape):
    """Begin and width in percent of the bars of a kind."""
    bars = re.findall(rf'<rect x="([\d.]+)%" width="([\d.]+)%" [^>]*class="{shape}', text)
    return [(float(x), float(width)) for x, width in bars]


def test_a_bar_begins_where_its_step_began(tmp_path):
    # Steps begin every 2 s and last 1.6 s; the last one ends after 7.6 s.
    expected = [(round(100 * 2 * n / 7.6, 3), round(100 * 1.6 / 7.6, 3)) for n in range(4)]
    assert drawn(of(write_run(tmp_path / "run", 4, seconds=2.0)), "bar") == expected


def test_without_times_there_is_no_timeline(tmp_path):
    text = of_value(tmp_path, [{"step_id": n, "critic_outputs": []} for n in range(4)])
    assert "Timeline" not in text and Page(text).tags.count("details") == 4


@pytest.mark.parametrize(
    "taken, segments, begins",
    [
        ([0.5, 0.2, 0.1], [[0, 1], [2]], [1.0, 1.0, 1.5]),
        ([0.5, None, 0.1], None, [1.0, 1.5, 1.5]),
        ([0.5], [["x"], [7], 3], [1.0]),
    ],
)
def test_tools_stand_in_their_step_one_segment_after_the_other(tmp_path, taken, segments, begins):
    calls = [{"tool_name": "t", "latency_ms": seconds and seconds * 1000} for seconds in taken]
    record = {"step_id": 0, "tool_invocations": calls, "action_execution": {"segments": segments}}
    stages = [("DECIDE", "start", 0), ("ACT", "start", 1), ("ACT", "action_results", 2)]
    events = [{"step_id": 0, "phase": phase, "payload": {"stage": stage}, "ts": stamp(at)} for phase, stage, at in stages]
    text = of_value(tmp_path, {"records": [record], "events": events})
    places = [begin for begin, seconds in zip(begins, taken) if seconds]
    assert [x / 50 for x, _ in drawn(text, "tool")] == places


def row(step, score, name="a", action="continue"):
    return {"step_id": step, "critic_name": name, "action": action, "score": score, "reason": ""}


def points(rows):
    """Percent across, pixels down and colour of each score."""
    found = re.findall(r'<circle cx="([\d.]+)%" cy="(\d+)" r="4" class="dot (c\d)"', _svg.scores(rows))
    return [(float(x), int(y), shape) for x, y, shape in found]


def test_a_point_stands_where_its_score_is():
    top, height = 24, 150
    found = points([row(10, 1.0), row(12, None), row(20, 0.25), row(15, 0.5, "b")])
    assert found == [(0, top, "c0"), (100, round(top + 0.75 * height), "c0"), (50, top + height / 2, "c1")]
    wide = points([row(0, -1.0), row(1, 3.0), row(2, 1.0)])
    assert [y for _, y, _ in wide] == [top + height, top, top + height / 2]


def test_a_line_is_broken_where_there_is_no_score():
    picture = _svg.scores([row(0, 1.0), row(1, 0.5), row(2, None, action="retry"), row(3, 0.5), row(4, 1e308)])
    lines = re.findall(r'<line x1="(\d+).000%" y1="[\d.]+" x2="(\d+).000%" [^>]*class="line c0"', picture)
    assert lines == [("0", "25"), ("75", "100")]
    assert picture.count("<circle") == 4 and picture.count("↻") == 1


@pytest.mark.parametrize("rows", [[row(0, None)], [row(5, 0.5)], [row(0, 1e308), row(1, -1e308)], [row(10**15, 1.0)]])
def test_any_scores_can_be_drawn(rows):
    assert not re.search(r"nan|inf", _svg.scores(rows).replace("info", ""))


@pytest.mark.parametrize("length, step", [(10, 5), (3.9, 1), (0.7, 0.2), (4, 1), (51, 20), (0.004, 0.001)])
def test_steps_of_an_axis_are_round(tmp_path, length, step):
    events = [{"step_id": 0, "phase": "DECIDE", "ts": stamp(at)} for at in (0, length)]
    ticks = re.findall(r'<text x="([\d.]+)%" [^>]*class="tick"', of_value(tmp_path, {"records": [], "events": events}))
    assert float(ticks[1]) * length / 100 == pytest.approx(step, rel=1e-3)


@pytest.mark.parametrize(
    "seconds, shown",
    [(0, "0 ms"), (0.0004, "0.4 ms"), (0.0123, "12 ms"), (0.9996, "1.0 s"), (3.21, "3.2 s"), (61, "61 s"), (125, "2 min 5 s"), (3600, "60 min")],
)
def test_durations_are_said_as_people_say_them(seconds, shown):
    assert _model.duration(seconds) == shown


# Long runs


def test_a_long_run_shows_its_ends_and_what_happened(tmp_path):
    folder = write_run(tmp_path / "run", 1000, error_at=[500], retry_at=[700])
    text = of(folder)
    page = Page(text)
    shown = [int(n) for n in re.findall(r'<details id="r1-s(\d+)"', text)]
    assert shown == [*range(200), 500, 700, *range(800, 1000)]
    for first, last, count in ((200, 499, 300), (501, 699, 199), (701, 799, 99)):
        told = f"Steps {first} to {last} are left out: {count} steps without error, retry, stop or handoff."
        assert told in page.text
    assert "1,000 verdicts" in page.text
    assert text.count('class="bar left c0"') == 3
    assert 'id="r1-s500" open' in text
    lines = _terminal.terminal(_model.load(str(folder))).splitlines()
    assert "  ... steps 200 to 499 are left out: nothing stands out" in lines


def test_four_hundred_steps_are_shown_whole(tmp_path):
    text = of(write_run(tmp_path / "run", 400))
    assert text.count("<details id=") == 400 and "left out" not in text


@pytest.mark.parametrize("steps", [2, 3000])
def test_long_texts_are_cut_so_that_a_page_stays_small(tmp_path, steps):
    text = "x" * 5_000_000 if steps == 2 else "x" * 30_000
    records = [
        {"step_id": n, "critic_outputs": [], "decision": {"rationale": text}, "action_results": [text],
         "tool_invocations": [{"tool_name": "t", "error": "no"}]} for n in range(steps if steps == 2 else 300)
    ]  # fmt: skip
    page = of_value(tmp_path, records)
    assert "more characters" in page and len(page) < 8_000_000


# What a run may hold

HOSTILE = [
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)", "\u202eabc\u2066", "\x1b[31mred\x1b[0m", "\0\x07", "\ud800", "--><!--",
    "]]>", "</title></style></pre></details>", "&lt;b&gt;", "javascript:alert(1)", "{{x}}", "l\u2028ine",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_of_a_run_is_shown_as_text(tmp_path, text):
    run = {
        "records": [
            {
                "step_id": 0, "agent_id": text, "decision": {"mode": text, "rationale": text, "final_answer": text, "target": text},
                "actions": [{"name": text, "args": {text: text}}], "action_results": [text, {text: [text]}],
                "tool_invocations": [{"tool_name": text, "status": text, "error": text, "latency_ms": 1}],
                "state_diff": {text: {"before": text, "after": text}},
                "critic_outputs": [{"critic_name": text, "action": text, "score": text, "reason": text, "instruction_patch": text}],
            }
        ],
        "events": [
            {"step_id": 0, "phase": "INIT", "payload": {"task": text}, "ts": text},
            {"step_id": 0, "phase": text, "ok": False, "error": text, "ts": "2026-01-01T00:00:00Z"},
        ],
        "handoff_traces": [{"step_id": 0, "from_agent": text, "to_agent": text + "2", "context_strategy": text}],
        "run_id": text, "stop_reason": text, "final_result": text, "tool_calls_by_name": {text: 1},
        "failure": {"type": text, "message": text, "phase": text, "step_id": text, "category": text, "traceback": text},
        "engine_config": {"agent_name": text, "critic_names": [text], "protocol_id": text, "model_id": text},
        "tool_permissions": [{"name": text, "description": text, "permissions": {text: True}, "required_ops": [text]}],
    }  # fmt: skip
    page = of_value(tmp_path, run)
    shown = _model.printable(text)
    assert Page(page).text.count(" ".join(shown.split())) >= 25
    assert all(c.isprintable() or c == "\n" for c in page)
    lines = _terminal.terminal(_model.load(str(tmp_path / "run.json")), 60).splitlines()
    assert all(line.isprintable() for line in lines)


VALUES = [None, True, 7, 1.5, 10**400, "text", [], [[]], {}, {"a": {}}, [None], {"": None}, [{"name": []}], -1]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_any_value_in_any_place_gives_a_page(tmp_path, value):
    record = {
        "step_id": value, "agent_id": value, "decision": value, "actions": value, "action_results": value,
        "tool_invocations": value, "state_diff": value, "critic_outputs": [], "action_execution": value,
    }  # fmt: skip
    inner = {"decision": {"mode": value, "actions": value, "rationale": value}, "step_id": 3, "critic_outputs": [],
             "actions": [value, {"name": value, "args": value}], "action_execution": {"segments": [value]},
             "tool_invocations": [value, {"latency_ms": value, "status": value, "error": value, "tool_name": value}],
             "state_diff": {"x": value}}  # fmt: skip
    event = {"step_id": value, "phase": value, "ok": value, "error": value, "ts": value, "payload": value}
    events = [event, {**event, "step_id": 3}, {**event, "phase": "ACT", "payload": {"stage": value}}]
    run = {"records": [record, inner, value], "events": events, "failure": value, "failure_report": value, "task": value}
    Page(of_value(tmp_path, run))
    _terminal.terminal(_model.load(str(tmp_path / "run.json")))


def test_a_run_that_was_cut_off_shows_its_last_step(kept, tmp_path):
    steps, events = ((kept / name).read_text(encoding="utf-8").splitlines(True) for name in ("steps.jsonl", "events.jsonl"))
    (tmp_path / "steps.jsonl").write_text("".join(steps[:2]), encoding="utf-8")
    (tmp_path / "events.jsonl").write_text("".join(events[:35]) + events[35][:50], encoding="utf-8")
    page = Page(of(tmp_path))
    assert "partial yes" in page.text
    assert '{"numbers": [18, 21, 24]}' in page.text  # Of step 2, which has no record.


@pytest.mark.parametrize("name", ["qitos_v1_aborted_3steps", "qitos_v1_completed_2steps", "qitos_v1_completed_3steps", "qitos_render_events.jsonl"])
def test_traces_of_real_runs_have_a_page(name):
    if not FILES.is_dir():
        pytest.skip("the traces are not here")
    page = Page(of(FILES / name))
    if name.endswith("3steps"):
        assert page.tags.count("details") >= 3
    if "aborted" in name:
        assert "[parse_error] Expecting value" in page.text and "http_get" in page.text


# Readable


def luminance(colour):
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "raised"])
def test_words_have_contrast(mode, ground):
    for name in set(_page.COLOURS) - {"paper", "raised", "rule"}:
        low, high = sorted(luminance(_page.COLOURS[name][mode]) for name in (name, ground))
        assert (high + 0.05) / (low + 0.05) >= 4.5, name


# The command


def test_the_page_goes_beside_the_run_or_where_it_is_told(kept, tmp_path, capsys):
    assert main(["view", str(kept)]) == 0
    assert capsys.readouterr().out == f"{kept / 'view.html'}\n"
    Page((kept / "view.html").read_text(encoding="utf-8"))
    (kept / "view.html").unlink()
    target = tmp_path / "seite.html"
    assert main(["view", str(kept), str(kept), "-o", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n" and target.exists()


def test_a_run_that_cannot_be_read_does_not_cost_the_others(kept, tmp_path, capsys):
    target = tmp_path / "page.html"
    assert main(["view", str(tmp_path / "none"), str(kept), "-o", str(target)]) == 1
    assert "none: cannot be read" in capsys.readouterr().err
    assert "run_0123456789ab" in target.read_text(encoding="utf-8")


@pytest.mark.parametrize("args, code, told", [
    (["view", "none"], 1, "none: cannot be read"),
    (["view", "none", "none"], 2, "several runs, or standard input, need -o FILE"),
    (["view", "-"], 2, "several runs, or standard input, need -o FILE"),
    (["show", "none", "--width", "x"], 2, "invalid int value"),
])  # fmt: skip
def test_wrong_use_is_told(args, code, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        done = main(args)
    except SystemExit as error:
        done = error.code
    assert done == code and told in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_page_that_cannot_be_written_is_told(kept, tmp_path, capsys):
    assert main(["view", str(kept), "-o", str(tmp_path)]) == 1
    assert f"{tmp_path}: cannot be written" in capsys.readouterr().err
