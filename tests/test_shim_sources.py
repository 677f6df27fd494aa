"""Engines, registries, trace folders, JSON files and payloads as sources."""

import json
import os
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

import snowl_compat
from snowl_compat import Issue, SnowlCompatError, build_payload, read_run

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"

NO_CONFIG = {
    "agent_name": "",
    "model_id": "",
    "budget_max_steps": None,
    "budget_max_runtime_seconds": None,
    "budget_max_tokens": None,
    "critic_names": [],
    "stop_criteria_names": [],
    "has_checkpoint_store": False,
    "has_tracing_provider": False,
    "protocol_id": None,
    "delegate_depth": None,
    "has_shared_memory": False,
    "has_env": False,
    "tool_count": None,
}
NO_FLAGS = dict.fromkeys(("filesystem_read", "filesystem_write", "network", "command"), False)
NO_SPEC = {
    "name": "unknown",
    "description": "",
    "permissions": NO_FLAGS,
    "needs_approval": False,
    "read_only": False,
    "concurrency_safe": False,
    "required_ops": [],
}


def thing(**fields):
    return SimpleNamespace(**fields)


def refuse(token):
    raise ValueError(f"{token} is no JSON")


def built(source, **options):
    """The payload after a strict round trip, and the issues."""
    issues = []
    payload = build_payload(source, issues=issues, **options)
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode("utf-8"), parse_constant=refuse) == payload
    assert snowl_compat.validate_payload(payload) == []
    assert snowl_compat.export_json(source, **options) == text
    return payload, issues


def tools(*names):
    return [{**NO_SPEC, "name": name} for name in names]


# ---- engines and registries


class Engine:
    """The documented engine."""

    def __init__(self, registry=None):
        self.tool_registry = registry

    def export_config(self):
        return thing(agent_name="engine", budget_max_steps=7)


class Registry:
    """The documented registry."""

    def __init__(self, *names):
        self.names = names

    def export_permissions(self):
        return [thing(name=name) for name in self.names]


class ReleasedRegistry:
    """A registry as in QitOS 0.3.0, which gives specs in a model's form only."""

    def get_all_specs(self):
        return [
            {
                "type": "function",
                "function": {"name": "shell", "description": "Run.", "parameters": {}},
                "permissions": {"command": True},
                "required_ops": ["process"],
                "capabilities": {"read_only": False, "concurrency_safe": True},
            }
        ]


class ReleasedEngine:
    """An engine as in QitOS 0.3.0, which exports nothing."""

    def __init__(self, registry=None):
        self.tool_registry = registry


class Broken:
    def export_config(self):
        raise RuntimeError

    def export_permissions(self):
        raise RuntimeError


INIT = {
    "step_id": 0,
    "phase": "INIT",
    "payload": {
        "task_meta": {"budget": {"max_steps": 3, "max_runtime_seconds": 1.5, "max_tokens": 9}},
        "run_meta": {
            "model_name": "m",
            "protocol": "p",
            "tool_count": 2,
            "tools": [
                {"name": "t", "description": "d", "required_ops": ["net"], "read_only": True, "origin": {}}
            ],
        },
    },
}
INIT_CONFIG = {
    **NO_CONFIG,
    "model_id": "m",
    "budget_max_steps": 3,
    "budget_max_runtime_seconds": 1.5,
    "budget_max_tokens": 9,
    "protocol_id": "p",
    "tool_count": 2,
}
INIT_TOOL = {
    **NO_SPEC,
    "name": "t",
    "description": "d",
    "required_ops": ["net"],
    "read_only": True,
}
RELEASED_CONFIG = {
    **NO_CONFIG, "agent_name": "a", "model_id": "m", "protocol_id": "react", "has_env": True,
    "budget_max_steps": 1, "budget_max_runtime_seconds": 2.5, "budget_max_tokens": 3,
    "critic_names": ["Registry", "c"], "stop_criteria_names": ["s", "Broken"],
}
ENGINE_CONFIG = {**NO_CONFIG, "agent_name": "engine", "budget_max_steps": 7}


@pytest.mark.parametrize(
    "source, options, config, specs",
    [
        ([], {}, NO_CONFIG, []),
        ([], {"engine": Engine()}, ENGINE_CONFIG, []),
        ([], {"engine": Engine(Registry("a", "b"))}, {**ENGINE_CONFIG, "tool_count": 2}, tools("a", "b")),
        ([], {"engine": Engine(Registry())}, {**ENGINE_CONFIG, "tool_count": 0}, []),
        # The registry of the engine's agent.
        ([], {"engine": thing(agent=thing(tool_registry=Registry("a")), agent_name="x")},
         {**NO_CONFIG, "agent_name": "x", "tool_count": 1}, tools("a")),
        ([], {"engine": Engine(Registry("a")), "tool_registry": Registry("b", "c")},
         {**ENGINE_CONFIG, "tool_count": 2}, tools("b", "c")),
        ([], {"tool_registry": Registry("a"), "tool_permissions": [thing(name="b")]},
         {**NO_CONFIG, "tool_count": 1}, tools("b")),
        ([], {"engine": Engine(), "engine_config": {"agent_name": "mine", "tool_count": 5}},
         {**NO_CONFIG, "agent_name": "mine", "tool_count": 5}, []),
        ([], {"tool_permissions": {"a": {"name": "a"}, "b": {"name": "b"}}},
         {**NO_CONFIG, "tool_count": 2}, tools("a", "b")),
        ([], {"tool_permissions": {}}, {**NO_CONFIG, "tool_count": 0}, []),
        ([], {"tool_permissions": thing(spec=thing(name="a"))}, {**NO_CONFIG, "tool_count": 1}, tools("a")),
        # INIT speaks for a result that exports nothing.
        ({"events": [INIT]}, {}, INIT_CONFIG, [INIT_TOOL]),
        ({"events": [INIT]}, {"engine": ReleasedEngine()}, INIT_CONFIG, [INIT_TOOL]),
        ({"events": [INIT]}, {"engine": ReleasedEngine(thing())}, INIT_CONFIG, [INIT_TOOL]),
        ({"events": [INIT]}, {"engine": Engine(Registry("a"))},
         {**ENGINE_CONFIG, "tool_count": 1}, tools("a")),
        ({"records": []}, {"events": [INIT]}, INIT_CONFIG, [INIT_TOOL]),
        ({"records": [{"phase_events": [INIT]}]}, {}, INIT_CONFIG, [INIT_TOOL]),
        ({"events": [{**INIT, "payload": {"run_meta": {"agent_name": "told"}}}]}, {},
         {**NO_CONFIG, "agent_name": "told"}, []),
        # A released engine, as in QitOS 0.3.0, says it with its attributes.
        ([], {"engine": thing(
            agent=thing(name="a", llm=thing(model="m"), model_protocol="react"),
            budget=thing(max_steps=1, max_runtime_seconds=2.5, max_tokens=3), protocol=None,
            critics=[Registry(), thing(name="c")], stop_criteria=(thing(name="s"), Broken()),
            env=Registry(), shared_memory=None)}, RELEASED_CONFIG, []),
        ([], {"engine": thing(agent=Registry(), budget=None, protocol=thing(id="p"))},
         {**NO_CONFIG, "agent_name": "Registry", "protocol_id": "p"}, []),
        ([], {"engine": thing(agent=None, budget=None, protocol="p")},
         {**NO_CONFIG, "protocol_id": "p"}, []),
        # An engine may have an attribute of its own that is named like a field.
        ([], {"engine": thing(agent=thing(name="a"), llm=thing(model="m"), budget=thing(max_steps=1),
                              agent_name="", delegate_depth=2)},
         {**NO_CONFIG, "agent_name": "a", "model_id": "m", "budget_max_steps": 1, "delegate_depth": 2}, []),
    ],
)
def test_where_configuration_and_tools_come_from(source, options, config, specs):
    payload, issues = built(source, **options)
    assert payload["engine_config"] == config
    assert payload["tool_permissions"] == specs
    assert issues == []


def test_a_released_registry_keeps_the_permissions_that_init_does_not_tell():
    engine = ReleasedEngine(ReleasedRegistry())
    payload, issues = built({"events": [INIT]}, engine=engine)
    assert payload["engine_config"] == INIT_CONFIG
    assert payload["tool_permissions"] == [
        {
            **NO_SPEC,
            "name": "shell",
            "description": "Run.",
            "permissions": {**NO_FLAGS, "command": True},
            "concurrency_safe": True,
            "required_ops": ["process"],
        }
    ]
    assert issues == []


@pytest.mark.parametrize(
    "options, told",
    [
        ({"engine": ReleasedEngine()}, ("engine_config", "expected an engine configuration, got ReleasedEngine")),
        ({"engine": 3}, ("engine_config", "expected an engine configuration, got 3")),
        ({"engine_config": "x"}, ("engine_config", "expected an engine configuration, got 'x'")),
        ({"engine": Broken()}, ("engine_config", "export_config() raised RuntimeError")),
        ({"tool_registry": Broken()}, ("tool_permissions", "export_permissions() raised RuntimeError")),
        ({"tool_registry": thing()}, ("tool_permissions[0]", "expected a record, got SimpleNamespace; skipped")),
        ({"tool_permissions": [None]}, ("tool_permissions[0]", "expected a record, got None; skipped")),
        ({"tool_permissions": [{}]}, ("tool_permissions[0].name", "expected a name, got nothing")),
        ({"tool_permissions": [{"name": "a", "needs_approval": len}]},
         ("tool_permissions[0].needs_approval", "expected true or false, got builtin_function_or_method")),
    ],
)
def test_what_an_engine_or_registry_lacks_is_told(options, told):
    payload, issues = built([], **options)
    assert issues == [Issue(*told)]


def test_further_permission_flags_are_kept():
    """T15: the guide and the code speak of different flags."""
    flags = {"command": True, "subprocess": True, "filesystem": 0}
    payload, _ = built([], tool_permissions=[{"name": "a", "permissions": flags}])
    assert payload["tool_permissions"][0]["permissions"] == {
        **NO_FLAGS,
        "command": True,
        "subprocess": True,
        "filesystem": False,
    }


# ---- trace folders


CRITIC = {"critic_name": "c", "action": "continue", "score": 0.5}


def step(number, **fields):
    return json.dumps({"step_id": number, "critic_outputs": [CRITIC], **fields}).encode()


STEPS = [step(0), step(1)]
EVENTS = [json.dumps({"step_id": n, "phase": p}).encode() for n, p in ((0, "INIT"), (1, "END"))]


@pytest.fixture
def folder(tmp_path):
    """Make a trace folder of bytes; None leaves a file out."""

    def make(steps=None, events=None, manifest=None):
        path = tmp_path / "run_1"
        path.mkdir()
        if isinstance(manifest, dict):
            manifest = json.dumps(manifest).encode()
        files = {"steps.jsonl": steps, "events.jsonl": events, "manifest.json": manifest}
        for name, data in files.items():
            if data is not None:
                (path / name).write_bytes(data)
        return path

    return make


def lines(items, end=b"\n"):
    return b"".join(item + end for item in items)


FULL = {"steps": lines(STEPS), "events": lines(EVENTS), "manifest": {"run_id": "r"}}


@pytest.mark.parametrize("missing", ["", "steps", "events", "manifest", "steps events", "events manifest"])
@pytest.mark.parametrize("left", [None, b""], ids=["missing", "empty"])
def test_any_file_may_be_missing_or_empty(folder, missing, left):
    path = folder(**{**FULL, **dict.fromkeys(missing.split(), left)})
    payload, issues = built(path, extended=True)
    steps = 0 if "steps" in missing else 2
    assert (len(payload["critic_traces"]), payload["step_count"]) == (steps, steps)
    assert payload["run"]["partial"] is (None if "events" in missing else False)
    assert payload["run"]["run_id"] == ("run_1" if "manifest" in missing else "r")
    empty_manifest = left == b"" and "manifest" in missing
    assert [issue.path for issue in issues] == ["manifest.json"] * empty_manifest


def test_a_folder_is_read_by_str_path_and_read_run_alike(folder):
    path = folder(**FULL)
    payload = build_payload(path)
    assert build_payload(str(path)) == build_payload(read_run(path)) == payload
    run = read_run(path)
    assert build_payload(run) == build_payload(run) == payload


WHOLE = [0, 1]
CUT = "the line is cut off; skipped"


@pytest.mark.parametrize(
    "data, ids, told",
    [
        (lines(STEPS, b"\r\n"), WHOLE, []),
        (STEPS[0] + b"\n\n \n\r\n" + STEPS[1], WHOLE, []),
        (b"\xef\xbb\xbf" + lines(STEPS), WHOLE, []),
        (lines(STEPS) + step(2)[:20], WHOLE, [(3, CUT)]),
        (lines(STEPS) + b"\0" * 100, WHOLE, [(3, CUT)]),
        (STEPS[0] + b"\n" + b"\0" * 100 + STEPS[1] + b"\n", WHOLE, []),
        (step(2)[:20] + b"\n" + lines(STEPS), WHOLE,
         [(1, "expected JSON: Unterminated string starting at: line 1 column 16 (char 15); skipped")]),
        (lines([STEPS[0], b"[]", b"null", STEPS[1]]), WHOLE,
         [(2, "expected an object, got list; skipped"), (3, "expected an object, got None; skipped")]),
        (lines([STEPS[0], b'{"a":' * 100_000, STEPS[1]]), WHOLE,
         [(2, "expected JSON, got too many levels; skipped")]),
        # U3: verifiers PR #1644, marin #8042 and others read with splitlines().
        (b'{"step_id": 5, "critic_outputs": [{"reason": "a\xe2\x80\xa8b\xc2\x85c"}]}\n', [5], []),
        (b'{"step_id": 5, "critic_outputs": [{"reason": "bad \xff byte"}]}\n', [5],
         [(1, "expected UTF-8 text, got bytes that are not")]),
        (b'{"step_id": 5, "critic_outputs": [{"score": NaN}]}\n', [5], None),
        # Z2, Z3: unknown fields and versions.
        (lines([step(0, schema_version="v9", new={"deep": [1]})]), [0], []),
    ],
)
def test_lines_as_they_are_found(folder, data, ids, told):
    payload, issues = built(folder(steps=data))
    assert [row["step_id"] for row in payload["critic_traces"]] == ids
    assert payload["step_count"] == len(ids)
    if told is not None:
        assert issues == [Issue(f"steps.jsonl:{number}", text) for number, text in told]


def test_other_separators_in_a_string_are_text(folder):
    data = b'{"step_id": 5, "critic_outputs": [{"reason": "a\xe2\x80\xa8b\xe2\x80\xa9c\xc2\x85d"}]}\n'
    payload, issues = built(folder(steps=data))
    assert payload["critic_traces"][0]["reason"] == "a\u2028b\u2029c\u0085d"
    assert issues == []


def test_unknown_phases_are_text(folder):
    """Z2: QitOS's own reader refuses phases of its older runs."""
    phases = ("OBSERVE", "toolset_setup_start", "SOME_NEW_PHASE")
    events = [json.dumps({"step_id": 0, "phase": p, "extra": 1}).encode() for p in phases]
    payload, issues = built(folder(events=lines(events)), extended=True)
    assert (payload["handoff_traces"], payload["run"]["partial"], issues) == ([], True, [])


@pytest.mark.parametrize(
    "manifest, told",
    [
        (b'{"run_id": "r"', "expected JSON: Expecting ',' delimiter: line 1 column 15 (char 14); skipped"),
        (b"[]", "expected an object, got list; skipped"),
        (b"null", "expected an object, got None; skipped"),
        (b"", "expected JSON: Expecting value: line 1 column 1 (char 0); skipped"),
        (b'{"run_id": "r\xff"}', "expected UTF-8 text, got bytes that are not"),
        (b"\xef\xbb\xbf{}", None),
    ],
)
def test_a_bad_manifest_costs_itself_only(folder, manifest, told):
    payload, issues = built(folder(**{**FULL, "manifest": manifest}), extended=True)
    assert (payload["step_count"], payload["engine_config"]) == (2, NO_CONFIG)
    assert issues == ([Issue("manifest.json", told)] if told else [])
    assert payload["run"]["issues"] == [issue._asdict() for issue in issues]


@pytest.mark.parametrize("said", [2, None, 0, 9, "x"])
def test_lines_win_over_the_manifest(folder, said):
    payload, issues = built(folder(**{**FULL, "manifest": {"step_count": said}}))
    assert (payload["step_count"], issues) == (2, [])


def test_given_events_are_not_compared_with_the_manifest(folder):
    path = folder(**{**FULL, "manifest": {"event_count": 2}})
    assert built(path, events=[INIT] * 5)[1] == []


def test_the_manifest_of_an_older_writer(folder):
    meta = INIT["payload"]
    summary = {**meta, "stop_reason": "final", "final_result": "42", "token_usage": 5,
               "task_result": {"metrics": {"elapsed_seconds": 1.25}}}
    path = folder(**{**FULL, "manifest": {"summary": summary}})
    payload, issues = built(path, extended=True)
    assert (payload["engine_config"], issues) == (INIT_CONFIG, [])
    assert payload["tool_permissions"] == [INIT_TOOL]
    assert payload["run"] == {
        "run_id": "run_1",
        "agent_name": None,
        "stop_reason": "final",
        "final_result": "42",
        "runtime_seconds": 1.25,
        "total_tokens": 5,
        "tool_calls_by_name": None,
        "success_rate": None,
        "partial": False,
        "issues": [],
        "source": str(path),
    }
    model = {"model_id": "mine", "summary": summary}
    (path / "manifest.json").write_text(json.dumps(model), encoding="utf-8")
    assert build_payload(path)["engine_config"]["model_id"] == "mine"


def test_the_manifest_of_our_writer_wins_over_its_summary(folder):
    manifest = {
        "engine_config": {"agent_name": "mine"},
        "tool_permissions": [{"name": "a"}],
        "summary": INIT["payload"],
    }
    path = folder(**{**FULL, "manifest": manifest})
    payload, issues = built(path)
    assert payload["engine_config"] == {**NO_CONFIG, "agent_name": "mine", "tool_count": 1}
    assert (payload["tool_permissions"], issues) == (tools("a"), [])
    payload, _ = built(path, engine=Engine(Registry("b")))
    assert payload["engine_config"]["agent_name"] == "engine"
    assert payload["tool_permissions"] == tools("b")


@pytest.mark.parametrize(
    "events, more, count, names",
    [
        # QitOS 0.6.0: after a handoff the manifest tells of the last agent's tools only.
        (["INIT", "HANDOFF_START"], {}, 2, ["a", "b"]),
        (["INIT"], {}, 1, ["last"]),
        (["INIT", "HANDOFF_START"],
         {"engine_config": {"tool_count": 7}, "tool_permissions": tools("mine")}, 7, ["mine"]),
    ],
)
def test_after_a_handoff_init_tells_of_all_tools(folder, events, more, count, names):
    meta = {"run_meta": {"tool_count": 2, "tools": tools("a", "b")}}
    rows = [json.dumps({"step_id": 0, "phase": p, "payload": meta}).encode() for p in events]
    summary = {"run_meta": {"tool_count": 1, "tools": tools("last")}}
    path = folder(events=lines(rows), manifest={"agent_name": "x", "summary": summary, **more})
    payload, issues = built(path)
    assert payload["engine_config"]["tool_count"] == count
    assert ([row["name"] for row in payload["tool_permissions"]], issues) == (names, [])


@pytest.mark.parametrize(
    "files, name",
    [
        ({"steps": b"\xff\0\n[]\n", "events": b"no\n"}, ""),
        ({"manifest": b"\xff{", "steps": b""}, ""),
        ({"steps": b"no\nno\n"}, "steps.jsonl"),
    ],
)
def test_nothing_that_can_be_read_is_no_run_of_no_steps(folder, files, name):
    path = folder(**files) / name
    with pytest.raises(SnowlCompatError) as caught:
        build_payload(path)
    what = "expected steps, events or a manifest, got nothing that can be read"
    assert (caught.value.path, caught.value.message) == (str(path), what)


def test_a_file_that_cannot_be_read_is_told(folder):
    path = folder(events=lines(EVENTS))
    (path / "steps.jsonl").mkdir()
    payload, issues = built(path)
    assert payload["step_count"] == 0
    assert [issue.path for issue in issues] == ["steps.jsonl"]
    assert issues[0].message.startswith("cannot be read: ")


@pytest.mark.parametrize("name", ["qitos_v1_aborted_3steps", "qitos_v1_completed_2steps", "qitos_v1_completed_3steps"])
def test_real_folders(name):
    """E1, C1, Z1: real runs, one of them partial; see the table of the cases."""
    path = CASES / "files" / name
    if not path.is_dir():
        pytest.skip("the real traces are not here")
    expected = json.loads((CASES / "expected_real_traces.json").read_text(encoding="utf-8"))
    right = next(case for case in expected.values() if case["copied_as"] == name)
    payload, issues = built(path, extended=True)
    for key in ("critic_traces", "handoff_traces", "step_count"):
        assert payload[key] == right[key]
    config = {k: v for k, v in right["engine_config"].items() if k != "note"}
    assert payload["engine_config"] == {**NO_CONFIG, **config}
    assert [row["name"] for row in payload["tool_permissions"]] == right["tool_permissions"]["names"]
    assert all(row["permissions"] == NO_FLAGS for row in payload["tool_permissions"])
    said, found = right["manifest_says"], right["files_say"]
    assert payload["run"]["partial"] is not found["has_END"]
    assert payload["run"]["stop_reason"] == said["stop_reason"]
    assert payload["run"]["success_rate"] is None
    assert issues == []


def test_a_real_render_stream_is_no_trace():
    path = CASES / "files" / "qitos_render_events.jsonl"
    if not path.is_file():
        pytest.skip("the real traces are not here")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    for source, events in (([], rows), (path, None)):
        payload, _ = built(source, events=events)
        assert (payload["critic_traces"], payload["handoff_traces"], payload["step_count"]) == ([], [], 0)


def test_a_single_file_of_steps_or_events(folder):
    start = b'{"step_id": 1, "phase": "HANDOFF_START", "payload": {"from": "a", "to": "b"}}\n'
    path = folder(**{**FULL, "events": start})
    payload, issues = built(path / "steps.jsonl")
    assert (payload["critic_traces"], payload["step_count"]) == (build_payload(path)["critic_traces"], 2)
    payload, more = built(path / "events.jsonl")
    assert (len(payload["handoff_traces"]), payload["step_count"], issues + more) == (1, 0, [])


def test_steps_of_a_folder_are_not_held_in_memory(folder):
    big = "x" * 100_000
    path = folder(steps=lines([step(n, observation=big) for n in range(100)]),
                  events=lines([json.dumps({"phase": "ACT", "payload": big}).encode()] * 100))
    tracemalloc.start()
    try:
        text = snowl_compat.export_json(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert json.loads(text)["step_count"] == 100
    assert peak < 20 * len(big)


# ---- JSON files and payloads


PAYLOAD = build_payload(
    [{"step_id": 0, "critic_outputs": [{**CRITIC, "details": {"k": [1, None]}}]}],
    engine=Engine(Registry("a")),
    events=[{"step_id": 0, "phase": "HANDOFF_START", "payload": {"from": "a", "to": "b"}}],
    extended=True,
)


def test_a_payload_reproduces_itself(tmp_path):
    plain = {k: v for k, v in PAYLOAD.items() if k not in ("schema_version", "run")}
    path = tmp_path / "payload.json"
    path.write_text(snowl_compat.dumps(PAYLOAD), encoding="utf-8")
    for source in (PAYLOAD, path, str(path), read_run(path)):
        assert build_payload(source) == plain
        assert build_payload(source, extended=True) == PAYLOAD
    older = {**PAYLOAD, "run": {k: v for k, v in PAYLOAD["run"].items() if k != "source"}}
    assert build_payload(older, extended=True) == older
    again = build_payload(PAYLOAD)
    again["critic_traces"][0]["details"]["k"].append(2)
    assert PAYLOAD["critic_traces"][0]["details"] == {"k": [1, None]}


def test_a_payload_that_is_not_extended_says_nothing_of_its_run():
    plain = build_payload(PAYLOAD)
    extended = build_payload(plain, extended=True)
    assert list(extended) == list(PAYLOAD)
    assert extended["run"] == {**dict.fromkeys(PAYLOAD["run"]), "agent_name": "engine", "issues": []}


def test_a_broken_payload_is_read_as_far_as_it_goes():
    broken = {
        "engine_config": {"agent_name": "a"},
        "critic_traces": [{"step_id": 4, "score": "high"}],
        "run": {"run_id": "r", "stop_reason": "final"},
    }
    payload, issues = built(broken, extended=True)
    assert payload["engine_config"] == {**NO_CONFIG, "agent_name": "a"}
    assert [(row["step_id"], row["score"]) for row in payload["critic_traces"]] == [(4, None)]
    assert (payload["run"]["run_id"], payload["run"]["stop_reason"]) == ("r", "final")
    assert issues == [Issue("critic_traces[0].score", "expected a finite number, got 'high'")]


def test_arguments_win_over_a_payload():
    payload, _ = built(PAYLOAD, tool_permissions=[{"name": "b"}], events=[])
    assert payload["tool_permissions"] == tools("b")
    assert payload["engine_config"] == PAYLOAD["engine_config"]
    assert payload["handoff_traces"] == PAYLOAD["handoff_traces"]


@pytest.mark.parametrize(
    "data, count",
    [
        (b'{"records": [{"step_id": 0}], "events": []}', 1),
        (b'[{"step_id": 0}, {"step_id": 1}]', 2),
        (b"[]", 0),
        (b'\xef\xbb\xbf{"step_count": 3}', 3),
        ('{"step_count": 3}'.encode("utf-16"), 3),
        (b'{"step_count": 3, "final_result": NaN}', 3),
    ],
)
def test_json_files(tmp_path, data, count):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    assert built(path)[0]["step_count"] == count


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "expected JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"{", None),
        (b"3", "expected an object or a list, got 3"),
        (b'"x"', "expected an object or a list, got 'x'"),
        (b"[" * 100_000, "expected JSON, got too many levels"),
        (b'{"a": "\xff"}', None),
    ],
)
def test_bad_json_files_are_one_error_with_their_path(tmp_path, data, message):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(SnowlCompatError) as caught:
        build_payload(path)
    assert caught.value.path == str(path)
    assert message is None or caught.value.message == message
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing", "missing.json", "missing.jsonl", "nul\0byte", ""])
def test_paths_that_hold_nothing(tmp_path, name):
    path = os.path.join(tmp_path, name)
    if name == "":
        with pytest.raises(SnowlCompatError) as caught:
            read_run(path)
        assert caught.value.message == "expected one of manifest.json, steps.jsonl, events.jsonl"
        return
    with pytest.raises(SnowlCompatError, match="cannot be read: "):
        read_run(path)


def test_payload_lines_are_not_one_run(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text(f"{snowl_compat.dumps(PAYLOAD)}\n" * 2, encoding="utf-8")
    with pytest.raises(SnowlCompatError, match="expected one run, got a payload on each line"):
        read_run(path)


# ---- what the extended payload says of its run


@pytest.mark.parametrize(
    "source, said",
    [
        ([], {}),
        ({"events": [INIT]}, {"partial": True}),
        ({"events": [INIT, {"phase": "END"}]}, {"partial": False}),
        ({"events": []}, {}),
        # A step's own events need not hold the END of the run.
        ([{"step_id": 0, "phase_events": [{"phase": "ACT"}]}], {}),
        ([{"step_id": 0, "phase_events": [{"phase": "END"}]}], {"partial": False}),
        ({"records": [], "status": "completed"}, {}),
        (
            {"records": [], "run_id": "r", "stop_reason": "final", "runtime_seconds": 2, "total_tokens": 7,
             "final_result": float("nan"), "tool_calls_by_name": {"t": 1}, "success_rate": 0.5},
            {"run_id": "r", "stop_reason": "final", "runtime_seconds": 2, "total_tokens": 7,
             "tool_calls_by_name": {"t": 1}, "success_rate": 0.5},
        ),
        (
            {"records": [], "state": thing(stop_reason="max_steps", final_result=[1]),
             "task_result": thing(metrics={"elapsed_seconds": 1.5, "token_usage": 3})},
            {"stop_reason": "max_steps", "final_result": [1], "runtime_seconds": 1.5, "total_tokens": 3},
        ),
        ({"events": [{**INIT, "payload": {"run_id": "r"}}, {"phase": "END", "payload": {"stop_reason": "final"}}]},
         {"run_id": "r", "stop_reason": "final", "partial": False}),
        ({"records": [], "task_result": {"stop_reason": "final"}}, {"stop_reason": "final"}),
        ({"records": [], "total_tokens": "many"}, {}),
    ],
)
def test_nothing_about_the_run_is_guessed(source, said):
    payload, issues = built(source, extended=True)
    assert list(payload)[5:] == ["schema_version", "run"]
    assert payload["schema_version"] == snowl_compat.SCHEMA_VERSION
    nothing = dict.fromkeys(PAYLOAD["run"])
    told = [issue._asdict() for issue in issues]
    assert payload["run"] == {**nothing, **said, "issues": told}


def test_only_this_runs_issues_are_in_its_payload():
    issues = [Issue("earlier", "of another run")]
    payload = build_payload([None], extended=True, issues=issues)
    assert [issue["path"] for issue in payload["run"]["issues"]] == ["records[0]"]
    assert [issue.path for issue in issues] == ["earlier", "records[0]"]
    assert build_payload([], strict=True, issues=issues)["step_count"] == 0
