"""Runs to look at, the same each time; run as a script, this writes the golden files again."""

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

from qitos_min.__main__ import TASK, build_engine
from qitos_min.trace import TraceWriter

DATA = Path(__file__).parent / "data"
START = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def stamp(seconds):
    return (START + timedelta(seconds=seconds)).isoformat()


def example(folder):
    """The built-in run in a new folder, with an id and times of its own choice."""
    build_engine(trace_writer=TraceWriter(folder)).run(TASK)
    for path in sorted(folder.iterdir()):
        text = re.sub(r"run_[0-9a-f]{12}", "run_0123456789ab", path.read_text(encoding="utf-8"))
        text = re.sub(r'"latency_ms": [\d.e-]+', '"latency_ms": 40.0', text)
        text = re.sub(r'("\w+_seconds": )[\d.e-]+', r"\g<1>3.25", text)
        if path.name == "events.jsonl":
            lines = enumerate(text.splitlines())
            text = "".join(re.sub(r'"ts": "[^"]*"', f'"ts": "{stamp(n / 20)}"', line) + "\n" for n, line in lines)
        path.write_text(text, encoding="utf-8", newline="\n")
    return folder


def write_run(folder, steps, *, error_at=(), retry_at=(), seconds=0.5):
    """A trace of so many short steps in the layout of QitOS."""
    folder.mkdir()
    with open(folder / "steps.jsonl", "w", encoding="utf-8") as records, open(
        folder / "events.jsonl", "w", encoding="utf-8"
    ) as events:
        for n in range(steps):
            fault = "no file" if n in error_at else None
            verdict = {"critic_name": "steady", "action": "retry" if n in retry_at else "continue", "score": n % 10 / 10}
            record = {
                "step_id": n, "agent_id": "one",
                "decision": {"mode": "act", "rationale": f"look {n}"},
                "actions": [{"name": "look", "args": {"n": n}}],
                "tool_invocations": [{"tool_name": "look", "status": "error" if fault else "success",
                                      "error": fault, "latency_ms": 100}],
                "action_results": [f"seen {n}"],
                "critic_outputs": [verdict],
            }
            records.write(json.dumps(record) + "\n")
            for stage, after in (("state_ready", 0), ("action_results", 0.8)):
                event = {"step_id": n, "phase": "DECIDE", "ok": True, "payload": {"stage": stage},
                         "ts": stamp((n + after) * seconds)}
                events.write(json.dumps(event) + "\n")
    return folder


if __name__ == "__main__":
    import tempfile

    from qitos_min.view import _model, _page, _terminal

    with tempfile.TemporaryDirectory() as home:
        run = _model.load(str(example(Path(home) / "example")))
        for name, text in (("view.html", _page.page([run])), ("show.txt", _terminal.terminal(run) + "\n")):
            (DATA / name).write_text(text, encoding="utf-8", newline="\n")
