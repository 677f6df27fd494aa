"""Writing a run to a folder while it goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core._json import dumps
from ..core._shorten import summary
from ..engine.states import RuntimeEvent, StepRecord, utc_now

__all__ = ["TraceWriter"]

_FILES = ("manifest.json", "steps.jsonl", "events.jsonl")
_SCHEMA_VERSION = "v1"
_STATUS = dict.fromkeys(("interrupt", "cancelled_immediate", "cancelled_after_step"), "stopped")


class _Lines:
    """A file of JSON lines; those of an earlier run that come again stay as they are.

    The first line that differs from what the file holds takes the place of all that
    is left of it: a step that was not finished, the end that an interrupt made, the
    torn line of a killed process.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "r+b" if path.exists() else "wb")
        self._held = self._file.readlines() if self._file.readable() else []
        self._held.reverse()
        self._file.seek(0)

    def put(self, value: Any) -> None:
        """Add the next line."""
        line = dumps(value).encode("utf-8") + b"\n"
        if self._held:
            if self._held[-1] == line:
                self._held.pop()
                self._file.seek(len(line), os.SEEK_CUR)
                return
            self.cut()
        self._file.write(line)

    def cut(self) -> None:
        """Take away what the file still holds of an earlier run."""
        self._file.truncate()
        self._held = []

    def flush(self) -> None:
        """Bring the lines to disk."""
        self._file.flush()

    def close(self) -> None:
        """Close the file, which then holds the lines put here and no others."""
        if self._held:
            self.cut()
        self._file.close()


class TraceWriter:
    """``manifest.json``, ``steps.jsonl`` and ``events.jsonl`` in QitOS's layout.

    ``folder`` is made if it is missing; one that holds a run already is a
    ``ValueError``, because two runs in one folder can no longer be told apart, unless
    ``resume`` says that the same run goes on there (else the trace stops at its start).
    Every finished step is on disk when the next begins, so that a killed
    process loses none; until the end the manifest says ``running``, then
    ``completed``, ``failed``, or ``stopped`` when Ctrl-C or ``cancel`` ended the run.
    """

    def __init__(self, folder: str | os.PathLike[str], *, resume: bool = False) -> None:
        self.folder = Path(folder)
        held = [name for name in _FILES if (self.folder / name).exists()]
        if held and not resume:
            raise ValueError(f"{str(self.folder)!r} holds a run already ({held[0]})")
        self._manifest: dict[str, Any] = {}
        self._steps: Any = None
        self._events: Any = None

    def __repr__(self) -> str:
        return summary(self, str(self.folder))

    def start(self, run_id: str, config: Mapping[str, Any], specs: list[dict[str, Any]]) -> None:
        """Make the folder and write the manifest of a run that begins or goes on.

        Raises ``ValueError`` for a folder that holds another run.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "manifest.json"
        earlier = json.loads(path.read_bytes()) if path.exists() else {}
        if earlier.get("run_id", run_id) != run_id:
            raise ValueError(
                f"{str(self.folder)!r} holds run {earlier['run_id']!r}, not {run_id!r}"
            )
        self._manifest = {
            "run_id": run_id,
            "schema_version": _SCHEMA_VERSION,
            "status": "running",
            "updated_at": utc_now(),
            "event_count": 0,
            "step_count": 0,
            "model_id": config["model_id"],
            "engine_config": dict(config),
            "tool_permissions": specs,
            "summary": {},
        }
        self._write_manifest()
        self._steps = _Lines(self.folder / "steps.jsonl")
        self._events = _Lines(self.folder / "events.jsonl")

    def write_event(self, run_id: str, event: RuntimeEvent) -> None:
        """Add one event; it is on disk when its step ends."""
        line = {
            "run_id": run_id,
            "step_id": event.step_id,
            "phase": event.phase.value,
            "ok": event.ok,
            "payload": event.payload,
            "error": event.error,
            "ts": event.ts,
        }
        self._events.put(line)
        self._manifest["event_count"] += 1

    def write_step(self, run_id: str, record: StepRecord) -> None:
        """Add one finished step, and bring it and its events to disk."""
        self._steps.put({**record.to_row(), "run_id": run_id})
        self._manifest["step_count"] += 1
        self._events.flush()
        self._steps.flush()

    def finalize(self, result: Any) -> None:
        """Close the files and write the manifest of a finished run."""
        self._events.close()
        self._steps.close()
        failures = [result.failure] if result.failure else []
        task_result = result.task_result.to_dict()
        reason = task_result["stop_reason"]
        self._manifest.update(
            status="failed" if failures else _STATUS.get(reason, "completed"),
            updated_at=utc_now(),
            summary={
                "stop_reason": reason,
                "final_result": task_result["final_result"],
                "steps": result.step_count,
                "failure_report": {
                    "failure_count": len(failures),
                    "failures": failures,
                    "stop_reason": reason,
                },
                "token_usage": result.total_tokens,
                "latency_seconds": result.runtime_seconds,
                "tool_calls_by_name": result.tool_calls_by_name,
                "success_rate": result.success_rate,
                "task_result": task_result,
            },
        )
        self._write_manifest()

    def _write_manifest(self) -> None:
        path = self.folder / "manifest.json"
        beside = self.folder / "manifest.json.tmp"
        beside.write_text(dumps(self._manifest, indent=2) + "\n", encoding="utf-8", newline="\n")
        os.replace(beside, path)
