"""The command line, as a process: what it writes, says and returns."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import snowl_compat

SCRIPT = Path(snowl_compat.__file__)
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX system")

CRITIC = {"critic_name": "评审", "action": "retry", "score": 0.5}
BAD_SCORE = {"critic_name": "c", "score": None}
ISSUE = "records[0].critic_outputs[0].score: expected a finite number, got None"


def run(*args, input=b"", env=None, cwd=None, flags=(), **options):
    """(exit code, standard output, lines of standard error) of the script."""
    done = subprocess.run(
        [sys.executable, *flags, str(SCRIPT), *map(str, args)],
        input=input,
        capture_output=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=60,
        **options,
    )
    error = done.stderr.decode("utf-8").replace("\r\n", "\n")
    assert "Traceback" not in error
    return done.returncode, done.stdout, error.splitlines()


def write_run(path, *outputs, steps=1):
    path.mkdir()
    lines = [json.dumps({"step_id": n, "critic_outputs": outputs}) for n in range(steps)]
    (path / "steps.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def good(tmp_path):
    return write_run(tmp_path / "good", CRITIC)


@pytest.fixture
def odd(tmp_path):
    """A run with one issue."""
    return write_run(tmp_path / "odd", BAD_SCORE)


def payload_text(source, **options):
    return snowl_compat.export_json(source, **options).encode("utf-8") + b"\n"


# ---- export


@pytest.mark.parametrize(
    "args, options",
    [([], {}), (["--indent", "2"], {"indent": 2}), (["--extended"], {"extended": True})],
)
def test_export_writes_the_payload(good, args, options):
    assert run("export", good, *args) == (0, payload_text(good, **options), [])


def test_export_reads_json_files_and_standard_input(good, tmp_path):
    text = payload_text(good)
    path = tmp_path / "a.json"
    path.write_bytes(text)
    assert run("export", path) == (0, text, [])
    assert run("export", "-", input=text) == (0, text, [])
    step = b'{"step_id": 0, "critic_outputs": []}\n'
    for data in (b"[" + step.strip() + b"]", step, step * 2):
        code, out, error = run("export", "-", "-o", "-", input=data)
        assert (code, json.loads(out)["step_count"], error) == (0, max(data.count(b"\n"), 1), [])


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "-: expected JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"3", "-: expected an object or a list, got 3"),
        (b"{}", "-: expected an engine result, step records, a payload or a path, got dict"),
    ],
)
def test_bad_input_is_one_line(data, message):
    assert run("export", "-", input=data) == (1, b"", [message])


def test_issues_are_told_and_fail_only_when_strict(odd):
    assert run("export", odd) == (0, payload_text(odd), [ISSUE])
    assert run("export", odd, "--strict") == (1, b"", [f"{odd}: {ISSUE}"])


def test_a_missing_run_is_one_line(tmp_path):
    path = tmp_path / "none"
    assert run("export", path) == (1, b"", [f"{path}: cannot be read: {os.strerror(2)}"])
    message = "expected one of manifest.json, steps.jsonl, events.jsonl"
    assert run("export", tmp_path) == (1, b"", [f"{tmp_path}: {message}"])


@pytest.mark.parametrize("form", ["several", "folder"])
def test_several_runs_are_json_lines_of_extended_payloads(tmp_path, form):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "notes.txt").write_text("no run")
    (runs / "empty").mkdir()
    paths = [write_run(runs / name, CRITIC) for name in ("b", "a", "c")]
    ordered = paths if form == "several" else sorted(paths)
    args = ordered if form == "several" else [runs]
    code, out, error = run("export", *args)
    assert (code, error) == (0, [])
    assert out == b"".join(payload_text(path, extended=True) for path in ordered)
    names = [json.loads(line)["run"]["run_id"] for line in out.splitlines()]
    assert names == [path.name for path in ordered]


def test_one_run_in_a_folder_of_runs_is_a_json_line_too(good, tmp_path):
    assert run("export", tmp_path) == (0, payload_text(good, extended=True), [])


def test_a_bad_run_does_not_cost_the_others(good, odd, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    code, out, error = run("export", good, bad, odd)
    assert code == 1
    assert out == payload_text(good, extended=True) + payload_text(odd, extended=True)
    assert len(error) == 2
    assert error[0].startswith(f"{bad}: expected JSON: ")
    assert error[1] == f"{odd}: {ISSUE}"
    code, out, error = run("export", good, odd, "--strict")
    assert (code, out) == (1, payload_text(good, extended=True))
    assert error == [f"{odd}: {ISSUE}"]


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["export"],
        ["export", "RUN", "--indent", "x"],
        ["export", "RUN", "--indent", "-1"],
        ["export", "RUN", "RUN", "--indent", "2"],
        ["export", "RUN", "--what"],
        ["check"],
        ["show", "RUN"],
        ["unknown"],
    ],
)
def test_wrong_usage_is_exit_code_2(args, good):
    code, out, error = run(*(good if arg == "RUN" else arg for arg in args))
    assert (code, out) == (2, b"")
    assert error[0].startswith("usage: snowl_compat.py")


# ---- export -o


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_output_file_is_replaced_whole(good, odd, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "p.json"
    for source in (good, odd):
        code, out, _ = run("export", source, "-o", path)
        assert (code, out, path.read_bytes()) == (0, b"", payload_text(source))
    before = path.read_bytes()
    assert run("export", odd, "--strict", "-o", path)[0] == 1
    assert run("export", tmp_path / "none", "-o", path)[0] == 1
    assert (path.read_bytes(), names(folder)) == (before, ["p.json"])
    run("export", path, "-o", path)
    assert (path.read_bytes(), names(folder)) == (before, ["p.json"])


def test_the_output_file_holds_every_run_that_could_be_read(good, odd, tmp_path):
    path = tmp_path / "all.jsonl"
    code, out, error = run("export", good, tmp_path / "none", odd, "-o", path)
    assert (code, out, len(error)) == (1, b"", 2)
    assert path.read_bytes() == payload_text(good, extended=True) + payload_text(odd, extended=True)


@pytest.mark.parametrize("place", ["missing/p.json", "folder"])
def test_an_output_that_cannot_be_written_is_one_line(good, tmp_path, place):
    (tmp_path / "folder").mkdir()
    path = tmp_path / place
    code, out, error = run("export", good, "-o", path)
    assert (code, out, len(error)) == (1, b"", 1)
    assert error[0].startswith(f"{path}: cannot be written: ")
    assert names(tmp_path / "folder") == []


@POSIX
def test_the_mode_and_the_link_of_the_output_file_are_kept(good, tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert run("export", good, "-o", link)[0] == 0
    assert link.is_symlink() and real.read_bytes() == payload_text(good)
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    dangling = tmp_path / "dangling.json"
    dangling.symlink_to(tmp_path / "made.json")
    assert run("export", good, "-o", dangling)[0] == 0
    assert (tmp_path / "made.json").read_bytes() == payload_text(good)


@POSIX
def test_devices_are_written_as_they_are(good):
    assert run("export", good, "-o", "/dev/stdout") == (0, payload_text(good), [])
    assert run("export", good, "-o", "/dev/null") == (0, b"", [])
    if os.path.exists("/dev/full"):
        code, _, error = run("export", good, "-o", "/dev/full")
        assert (code, error) == (1, [f"/dev/full: cannot be written: {os.strerror(28)}"])


@POSIX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_export_leaves_the_file_as_it_was(good, tmp_path, number):
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "all.jsonl"
    path.write_text("old")
    fifo = tmp_path / "never.json"
    os.mkfifo(fifo)
    args = [sys.executable, str(SCRIPT), "export", str(good), str(fifo), "-o", str(path)]
    process = subprocess.Popen(args, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while len(names(folder)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    error = process.communicate(timeout=20)[1]
    assert (path.read_text(), error) == ("old", b"")
    if number == signal.SIGINT:
        assert (process.returncode, names(folder)) == (130, ["all.jsonl"])


# ---- check, schema, help


def test_check_is_silent_about_valid_payloads(good, tmp_path):
    path, lines = tmp_path / "p.json", tmp_path / "all.jsonl"
    path.write_bytes(payload_text(good, indent=2))
    lines.write_bytes(payload_text(good, extended=True) * 2)
    assert run("check", path, lines) == (0, b"", [])
    assert run("check", "-", input=path.read_bytes()) == (0, b"", [])


def test_check_tells_one_line_for_each_problem(good, tmp_path):
    payload = snowl_compat.build_payload(good)
    payload["critic_traces"][0].update(score="high", action=None)
    path, lines, cut = (tmp_path / name for name in ("p.json", "all.jsonl", "cut.json"))
    path.write_text(json.dumps(payload, indent=1), encoding="utf-8")
    lines.write_bytes(payload_text(good) + b"\n[]\n{\n" + json.dumps(payload).encode())
    cut.write_bytes(payload_text(good)[:-9])
    two = [
        "critic_traces[0].action: expected string, got None",
        "critic_traces[0].score: expected number or null, got 'high'",
    ]
    code, out, error = run("check", path, lines, cut, tmp_path / "none")
    assert (code, out) == (1, b"")
    assert error[:3] == [*(f"{path}: {text}" for text in two), f"{lines}:3: expected object, got list"]
    assert error[3].startswith(f"{lines}:4: expected JSON: ")
    assert error[4:6] == [f"{lines}:5: {text}" for text in two]
    assert error[6].startswith(f"{cut}: expected JSON: ")
    assert error[7:] == [f"{tmp_path / 'none'}: cannot be read: {os.strerror(2)}"]


def test_schema_prints_the_schema(tmp_path):
    code, out, error = run("schema", cwd=tmp_path)
    assert (code, json.loads(out), error) == (0, snowl_compat.PAYLOAD_SCHEMA, [])


def test_version_and_help(tmp_path):
    version = f"{snowl_compat.__version__}\n".encode()
    code, out, error = run("--version", cwd=tmp_path)
    assert (code, out.replace(b"\r\n", b"\n"), error) == (0, version, [])
    for args in (["--help"], ["export", "-h"], ["check", "-h"], ["schema", "-h"]):
        code, out, error = run(*args, cwd=tmp_path)
        assert (code, error) == (0, [])
        assert out.isascii() and out.startswith(b"usage: snowl_compat.py")


# ---- where it runs


def test_it_speaks_utf8_whatever_the_locale(tmp_path):
    """U8: lm-evaluation-harness PR #2082, Snowl; open() takes the locale's encoding."""
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    path = write_run(tmp_path / "运行", {**CRITIC, "score": "高"})
    code, out, error = run("export", path, "--extended", env=env)
    payload = json.loads(out.decode("utf-8"))
    assert (code, payload["run"]["run_id"]) == (0, "运行")
    assert payload["critic_traces"][0]["critic_name"] == "评审"
    assert error == [ISSUE.replace("None", "'高'")]
    target = tmp_path / "载荷.json"
    assert run("export", path, "-o", target, env=env)[0] == 0
    assert json.loads(target.read_text(encoding="utf-8"))["step_count"] == 1
    code, out, error = run("export", tmp_path / "没有", env=env)
    assert (code, error) == (1, [f"{tmp_path / '没有'}: cannot be read: {os.strerror(2)}"])


def test_a_problem_is_one_line_whatever_is_in_it(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'{"critic_traces": [{"step_id": 0, "score": "1\\n\\u001b[31m2"}], "records": "\\u2028"}')
    code, _, error = run("export", path)
    assert code == 0
    assert error == [
        "records[0]: expected a record, got '\\u2028'; skipped",
        "critic_traces[0].score: expected a finite number, got '1\\n\\x1b[31m2'",
    ]


@POSIX
def test_a_path_of_two_lines_is_told_in_one(tmp_path):
    missing = f"{tmp_path}/a\nb"
    shown = missing.replace("\n", "\\n")
    assert run("export", missing) == (1, b"", [f"{shown}: cannot be read: {os.strerror(2)}"])


@POSIX
@pytest.mark.parametrize("command", ["export", "schema", "--help"])
def test_a_closed_pipe_is_quiet(tmp_path, command):
    source = write_run(tmp_path / "big", *[CRITIC] * 20, steps=2000)
    args = [command] if command in ("schema", "--help") else [command, str(source)]
    reader, writer = os.pipe()
    os.close(reader)
    # Of text that waits for the interpreter's last flush.
    env = {**os.environ, "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-X", "dev", str(SCRIPT), *args]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=env)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@POSIX
def test_closed_standard_streams_are_no_traceback(good):
    for fd, args, code in ((1, ["export", good], 1), (1, ["--version"], 0), (2, ["export", good], 0),
                           (0, ["export", "-"], 1), (2, ["export", "none"], 1)):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {fd}<&-', "sh", sys.executable, str(SCRIPT), *map(str, args)],
            capture_output=True, text=True, encoding="utf-8",
        )
        assert done.returncode == code, (fd, args, done)
        assert "Traceback" not in done.stderr


@POSIX
def test_progress_is_shown_on_a_terminal_only(good, odd, tmp_path):
    import pty

    target = tmp_path / "all.jsonl"
    screen, terminal = pty.openpty()
    args = [sys.executable, str(SCRIPT), "export", str(good), str(odd), "-o", str(target)]
    subprocess.run(args, stderr=terminal, check=True)
    os.close(terminal)
    shown = os.read(screen, 10_000).decode("utf-8")
    os.close(screen)
    assert "1 of 2" in shown and "2 of 2" in shown
    # What is left on the screen when the carriage has returned.
    left = [line.rpartition("\r")[2].rstrip() for line in shown.replace("\r\n", "\n").split("\n")]
    assert [line for line in left if line] == [f"{odd}: {ISSUE}"]
    assert len(target.read_bytes().splitlines()) == 2


def test_main_returns_its_exit_code(good, tmp_path, capsysbinary):
    assert snowl_compat.main(["export", str(good)]) == 0
    assert capsysbinary.readouterr() == (payload_text(good), b"")
    assert snowl_compat.main(["export", str(tmp_path / "none")]) == 1
    with pytest.raises(SystemExit) as caught:
        snowl_compat.main(["what"])
    assert caught.value.code == 2
