"""Writing a run to a folder while it goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..core._json import dumps
from ..core._foreign import summary
from ..engine.states import RuntimeEvent, StepRecord, utc_now

_FILES = ("manifest.json", "steps.jsonl", "events.jsonl")
_STATUS = dict.fromkeys(("interrupt", "cancelled_immediate", "cancelled_after_step"), "stopped")
# What QitOS's validator wants of a manifest; null where nobody says.
_TOLD = (
    "prompt_hash tool_versions seed run_config_hash git_sha package_version benchmark_name"
    " benchmark_split model_family prompt_protocol parser_name tool_manifest run_spec"
    " experiment_spec official_run token_usage latency_seconds cost"
)
# The values of a run's records are plain trees already, so nothing is looked for.
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode
_EVENT = ["run_id", *(f.name for f in fields(RuntimeEvent))]
_event_of = attrgetter(*_EVENT[1:])


class TraceWriter:
    """``manifest.json``, ``steps.jsonl`` and ``events.jsonl`` in QitOS's layout.

    A finished step is on disk when the next begins. Until the end the manifest says ``running``,
    then ``completed``, ``failed``, or ``stopped`` when Ctrl-C or ``cancel`` ended the run.
    ``output_dir`` is the run's folder, or with a ``run_id`` the folder of that. One that holds a
    run is a ValueError unless ``resume``: then this run is written again from its checkpoints.
    ``metadata`` joins the manifest; if ``strict_validate``, what JSON cannot hold ends the trace.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        run_id: str | None = None,
        schema_version: str = "v1",
        metadata: Mapping[str, Any] | None = None,
        strict_validate: bool = False,
        *,
        resume: bool = False,
    ) -> None:
        self.run_dir = self.folder = Path(output_dir, run_id or "")
        self.run_id = run_id
        held = next((name for name in _FILES if (self.run_dir / name).exists()), None)
        if held and not resume:
            raise ValueError(f"{str(self.run_dir)!r} holds a run already ({held})")
        self._resume, self._strict = resume, strict_validate
        head: dict[str, Any] = {"run_id": run_id, "schema_version": schema_version}
        head.update(status="running", updated_at="", event_count=0, step_count=0)
        self._manifest = {**head, **dict.fromkeys(_TOLD.split()), **(metadata or {})}
        self._waiting: list[RuntimeEvent] = []

    def __repr__(self) -> str:
        return summary(self, str(self.run_dir))

    def start(self, run_id: str, config: Mapping[str, Any], specs: list[dict[str, Any]]) -> None:
        """Make the folder, which may hold no other run, and write the manifest."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        path, known = self.run_dir / "manifest.json", self._manifest
        earlier = json.loads(path.read_bytes()) if path.exists() else {}
        if earlier.get("run_id", run_id) != run_id or earlier and not self._resume:
            held = earlier["run_id"]
            raise ValueError(f"{str(self.run_dir)!r} holds run {held!r}, not {run_id!r}")
        self.run_id = run_id
        known.update(run_id=run_id, updated_at=utc_now(), model_id=config["model_id"])
        known.update(engine_config=dict(config), tool_permissions=specs, summary={})
        known["prompt_protocol"] = known["prompt_protocol"] or config["protocol_id"]
        self._write_manifest()
        self._steps = open(self.run_dir / "steps.jsonl", "wb")
        self._events = open(self.run_dir / "events.jsonl", "wb")

    def write_event(self, run_id: str, event: RuntimeEvent) -> None:
        """Add one event; it is on disk when its step ends."""
        self._waiting.append(event)

    def write_step(self, run_id: str, record: StepRecord) -> None:
        """Add one finished step, and bring it and its events to disk."""
        try:
            self._write_events()
            self._write(self._steps, [{**record.to_row(), "run_id": run_id}])
        except Exception:  # The run goes on without its trace.
            self._close()
            raise
        self._manifest["step_count"] += 1

    def finalize(self, result: Any) -> None:
        """Close the files and write the manifest of a finished run."""
        try:
            self._write_events()
        finally:
            self._close()
        failures = [result.failure] if result.failure else []
        task_result = result.task_result.to_dict()
        reason, answer = task_result["stop_reason"], task_result["final_result"]
        report = {"failure_count": len(failures), "failures": failures, "stop_reason": reason}
        costs = {"token_usage": result.total_tokens, "latency_seconds": result.runtime_seconds}
        told = {"stop_reason": reason, "final_result": answer, "steps": result.step_count}
        told.update(failure_report=report, **costs, tool_calls_by_name=result.tool_calls_by_name)
        told.update(success_rate=result.success_rate, task_result=task_result)
        status = "failed" if failures else _STATUS.get(reason, "completed")
        self._manifest.update(costs, status=status, updated_at=utc_now(), summary=told)
        self._write_manifest()

    def _close(self) -> None:
        self._events.close()
        self._steps.close()

    def _write_events(self) -> None:
        rows = [dict(zip(_EVENT, (self.run_id, *_event_of(event)))) for event in self._waiting]
        self._write(self._events, rows)
        self._manifest["event_count"] += len(rows)  # Last, so that an interrupt loses none.
        self._waiting = []

    def _write(self, file: Any, rows: list[dict[str, Any]]) -> None:
        try:
            data = "\n".join([*map(_ENCODE, rows), ""]).encode("utf-8")
        except (TypeError, ValueError, RecursionError):
            if self._strict:
                raise
            data = "\n".join([*map(dumps, rows), ""]).encode("utf-8")
        file.write(data)
        file.flush()

    def _write_manifest(self) -> None:
        text, beside = dumps(self._manifest, indent=2), self.run_dir / "manifest.json.tmp"
        beside.write_text(f"{text}\n", encoding="utf-8", newline="\n")
        os.replace(beside, self.run_dir / "manifest.json")
