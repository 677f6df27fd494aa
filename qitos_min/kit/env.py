"""Ready-made environments: a folder of this machine, and a private copy of one."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core._contract import is_number
from ..core._foreign import shortened
from ..core.env import Env, EnvObservation, EnvStepResult
from ._folder import Folder

_MAX_OUTPUT = 1_000_000  # characters of each stream that are kept, from both its ends
_TEXT: dict[str, Any] = {"mode": "w+", "encoding": "utf-8", "errors": "replace"}
_MAX_WRITTEN = 100_000_000  # bytes of each stream after which a command is killed


class Processes:
    """Runs shell commands in one folder; every ``stop`` begins another ``generation``."""

    def __init__(self, root: Path) -> None:
        self._root, self.generation, self._lock = root, 1, threading.Lock()
        self.running: set[subprocess.Popen[bytes]] = set()

    def run(self, command: str, timeout: float = 30) -> dict[str, Any]:
        """Run a shell command; after ``timeout`` seconds or 100 MB it is killed with its children.

        ``status`` is ``success``, ``partial`` if it failed, or ``error`` with ``error`` and maybe
        ``timed_out``; ``command``, ``returncode``, ``stdout``, ``stderr``, ``truncated`` follow.
        """
        if not (is_number(timeout) and 0 < timeout < float("inf")):
            raise ValueError(f"timeout must be a number of seconds above 0, got {timeout!r}")
        # No pipes: a child that outlives its shell would keep them open.
        with tempfile.TemporaryFile(**_TEXT) as out, tempfile.TemporaryFile(**_TEXT) as err:
            streams = {"stdout": out, "stderr": err}
            where: dict[str, Any] = {"cwd": self._root, "stdin": subprocess.DEVNULL, **streams}
            with self._lock:  # A session of its own can be killed as one.
                process = subprocess.Popen(command, shell=True, start_new_session=True, **where)
                self.running.add(process)
            try:
                fault = _wait(process, timeout, (out, err))
            finally:
                _kill_tree(process)
                self.running.discard(process)
            status = "error" if fault else "partial" if process.returncode else "success"
            told = {"status": status, "command": command, **fault, "returncode": process.returncode}
            for name, stream in streams.items():
                stream.seek(0)
                text = stream.read(_MAX_WRITTEN)
                told[name] = shortened(text, _MAX_OUTPUT)
                told["truncated"] = told.get("truncated", False) or len(text) > _MAX_OUTPUT
        return told

    def stop(self) -> None:
        """Kill the commands that still run, and begin the next generation."""
        with self._lock:
            self.generation += 1
            for process in list(self.running):
                _kill_tree(process)


def _wait(process: Any, timeout: float, outputs: tuple[Any, ...]) -> dict[str, Any]:
    """What is wrong with a command if it has to be ended."""
    end = time.monotonic() + min(timeout, threading.TIMEOUT_MAX)
    while (left := end - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(left, 0.2))
            return {}
        if any(os.fstat(o.fileno()).st_size > _MAX_WRITTEN for o in outputs):
            return {"error": f"command wrote more than {_MAX_WRITTEN} bytes of output"}
    return {"error": f"command timed out after {timeout:g} s", "timed_out": True}


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        if os.name == "posix":
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            kill = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
            subprocess.run(kill, capture_output=True, check=False)
        process.wait()


class HostEnv(Env):
    """A folder of this machine, worked on in place by tools; commands are not isolated.

    ``files`` keeps ``.git``, ``.env``... out of reach. NotADirectoryError for no existing folder.
    """

    name = "host_env"

    def __init__(self, workspace_root: str | os.PathLike[str] = ".") -> None:
        self.files = Folder(workspace_root, protect=True)
        self.processes = Processes(self.files.root)

    def get_ops(self, group: str) -> Any:
        return {"file": self.files, "process": self.processes}.get(group)

    def reset(self, task: Any = None, workspace: Any = None, **kwargs: Any) -> EnvObservation:
        return self.observe()

    def observe(self, state: Any = None) -> EnvObservation:
        """``workspace_root`` and the first 200 ``files`` with their ``file_count``."""
        files, root = self.files.list_files(), str(self.files.root)
        return EnvObservation({"workspace_root": root, "file_count": len(files), "files": files})

    def step(self, action: Any, state: Any = None) -> EnvStepResult:
        return EnvStepResult(self.observe(state))

    def close(self) -> None:
        self.processes.stop()


class WorkspaceEnv(HostEnv):
    """A private copy, until it is closed, of the folder ``source``, which only publications change.

    ``input_digest`` is the SHA-256 of what was copied, ``input_entries`` says what each path was.
    NotADirectoryError for no existing folder, ValueError for one with the temporary files in it.
    """

    name = "workspace_env"

    def __init__(self, source: str | os.PathLike[str], *, artifact_store: Any = None) -> None:
        self.source, self.artifact_store = Folder(source).root, artifact_store
        if Path(tempfile.gettempdir()).resolve().is_relative_to(self.source):
            raise ValueError(f"source {os.fspath(source)!r} holds the folder for temporary files")
        self._home = tempfile.TemporaryDirectory(prefix="workspace-", ignore_cleanup_errors=True)
        copy = Path(self._home.name, "copy")
        try:
            shutil.copytree(self.source, copy, symlinks=True, ignore=_special_files)
            found = {path.relative_to(copy).as_posix(): path for path in copy.rglob("*")}
            self.input_entries = {name: entry_of(found[name]) for name in sorted(found)}
        except BaseException:
            self._home.cleanup()
            raise
        text = "".join(f"{name}\0{entry}\0" for name, entry in self.input_entries.items())
        self.input_digest = hashlib.sha256(os.fsencode(text)).hexdigest()
        super().__init__(copy)

    def close(self) -> None:
        super().close()
        self._home.cleanup()


def _special_files(folder: str, names: list[str]) -> list[str]:
    plain = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
    return [n for n in names if stat.S_IFMT(os.lstat(Path(folder, n)).st_mode) not in plain]


def entry_of(path: Path) -> str:
    """``absent``, ``folder``, ``special``, ``file`` with SHA-256 or ``link`` with target."""
    if path.is_symlink():
        return f"link {os.readlink(path)}"
    if not path.is_file():
        with suppress(FileNotFoundError, NotADirectoryError):  # What is forbidden is not absent.
            return "folder" if stat.S_ISDIR(path.stat().st_mode) else "special"
        return "absent"
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return f"file {digest.hexdigest()}"
