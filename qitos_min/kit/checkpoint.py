"""Where a run's checkpoints are kept, to resume it after a crash."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..core._json import dumps
from ..core._foreign import summary


class MemoryCheckpointStore:
    """Checkpoints in memory, as JSON text, so that nothing changes them."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def __repr__(self) -> str:
        return summary(self, runs=len(self._lines))

    def append(self, run_id: str, entry: dict[str, Any]) -> None:
        """Add the next entry of a run: its beginning first, then its steps."""
        self._lines.setdefault(run_id, []).append(dumps(entry))

    def load(self, run_id: str) -> list[dict[str, Any]]:
        """The entries of a run in order; an unknown run is a ``KeyError``."""
        return [json.loads(line) for line in self._lines[run_id]]

    def list_runs(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        return list(self._lines)


class FileCheckpointStore:
    """Checkpoints in a folder, one file of JSON lines for each run, written as they are added."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return summary(self, str(self.folder))

    def append(self, run_id: str, entry: dict[str, Any]) -> None:
        with open(self._path(run_id), "ab") as file:
            file.write(dumps(entry).encode("utf-8") + b"\n")

    def load(self, run_id: str) -> list[dict[str, Any]]:
        try:
            with open(self._path(run_id), "r+b") as file:
                whole = file.read()  # A killed process may have left the last line unfinished.
                file.truncate(whole.rfind(b"\n") + 1)
        except FileNotFoundError:
            raise KeyError(run_id) from None
        return [json.loads(line) for line in whole.split(b"\n")[:-1]]

    def list_runs(self) -> list[str]:
        paths = sorted(self.folder.glob("*.jsonl"), key=lambda p: (p.stat().st_mtime, p.name))
        return [path.stem for path in paths]

    def _path(self, run_id: str) -> Path:
        if not run_id or not run_id.replace("_", "").replace("-", "").isalnum():
            raise ValueError(f"expected a run id of letters, digits, - and _, got {run_id!r}")
        return self.folder / f"{run_id}.jsonl"
