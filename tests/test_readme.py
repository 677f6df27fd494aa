"""The README is true: its Python runs, its outputs are real, its tables match."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import snowl_compat

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "qitos_min" / "GUIDE.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)


def python_blocks():
    """Yield each Python block with the text block that follows it, or None."""
    for index, (kind, code) in enumerate(BLOCKS):
        # Files of the Snowl project run in tests/interop, where Snowl is.
        if kind == "python" and not code.startswith("# demo/"):
            after = BLOCKS[index + 1] if index + 1 < len(BLOCKS) else ("", "")
            yield pytest.param(code, after[1] if after[0] == "text" else None, id=f"block{index}")


@pytest.mark.parametrize("code, output", list(python_blocks()))
def test_python_blocks_run_and_print_what_they_say(code, output, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "PATH": ""},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.stderr == ""
    assert output is None or done.stdout == output


def test_the_shown_text_is_that_of_the_demo(tmp_path):
    folder = tmp_path / "demo"
    run = [sys.executable, "-m", "qitos_min", "--trace", str(folder)]
    printed = subprocess.run(run, cwd=ROOT, capture_output=True, check=True)
    show, export = (
        subprocess.run([sys.executable, *args, str(folder)], cwd=ROOT, capture_output=True, check=True)
        for args in (["-m", "qitos_min", "show"], ["snowl_compat.py", "export", "--indent", "2"])
    )
    assert export.stdout.replace(b"\r\n", b"\n") == printed.stdout.replace(b"\r\n", b"\n")
    page = re.sub(r"run_[0-9a-f]{12}", "run_0123456789ab", show.stdout.decode("utf-8"))
    page = re.sub(r"(seconds +)[\d.]+", r"\g<1>0.01", page)
    page = re.sub(r"  [\d.]+ m?s\b", "  1.0 ms", page)
    shown = next(code for kind, code in BLOCKS if kind == "text")
    assert page.replace("\r\n", "\n").startswith(shown) and "RETRY" in shown


def test_the_table_of_keys_is_that_of_the_schema():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", TEXT.split("## The payload")[1].split("\n## ")[0], re.M)
    schema = snowl_compat.PAYLOAD_SCHEMA["properties"]
    assert [name for name, _ in rows] == snowl_compat.PAYLOAD_SCHEMA["required"]
    for name, value in rows:
        counted = re.search(r"(\d+) fields", value)
        if counted:
            section = schema[name].get("items", schema[name])
            assert int(counted[1]) == len(section["properties"]), name


def test_the_table_of_defaults_is_true():
    table = TEXT.split("| not said | is |")[1].split("\n\n")[0]
    payload = snowl_compat.build_payload(
        [{"critic_outputs": [{"reason": "r"}]}], events=[{"phase": "HANDOFF_START"}]
    )
    rows = (payload["critic_traces"][0], payload["handoff_traces"][0], payload["engine_config"])
    names = "score messages_passed action critic_name tool_count protocol_id delegate_depth".split()
    for name, value in zip(names, (1.0, 0, "continue", "unknown", None, None, None)):
        assert f"`{name}`" in table
        assert [row[name] for row in rows if name in row] == [value]


def test_it_begins_with_something_to_look_at_and_stays_short():
    lines = TEXT.splitlines()
    assert len(lines) < 250
    first = lines.index("```bash")
    assert first < 10 and lines[first + 2] == "python -m qitos_min view runs/demo"
    assert lines.index("```python") < 60
    assert next(n for n, line in enumerate(lines) if "(qitos_min/GUIDE.md)" in line) < 120


def test_its_links_lead_somewhere():
    for text, folder in ((TEXT, ROOT), (GUIDE, ROOT / "qitos_min")):
        for name, anchor in re.findall(r"\]\((?!https:)([^)#]*)#?([^)]*)\)", text):
            assert not name or (folder / name).exists(), name
            target = (folder / name).read_text(encoding="utf-8") if name else text
            heads = [re.sub(r"[^\w -]", "", head).lower() for head in re.findall(r"^#+ (.+)$", target, re.M)]
            assert not anchor or anchor in [head.replace(" ", "-") for head in heads], anchor
