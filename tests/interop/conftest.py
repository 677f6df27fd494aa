"""Real Snowl and real QitOS, where they are installed.

Tests ask for ``need("snowl")`` and are skipped without the package, or fail
when ``REQUIRE_INTEROP=1`` says that it has to be there.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import qitos_min
import snowl_compat

HERE = Path(__file__).parent
SOURCES = [Path(snowl_compat.__file__).parent, Path(qitos_min.__file__).parent.parent]


@pytest.fixture(scope="session")
def need():
    def check(*names):
        missing = [name for name in names if importlib.util.find_spec(name) is None]
        if missing and os.environ.get("REQUIRE_INTEROP") == "1":
            pytest.fail(f"not installed: {', '.join(missing)}")
        if missing:
            pytest.skip(f"not installed: {', '.join(missing)}")

    return check


def of_framework(text, framework):
    """A program with its agents on another framework; the adapter stays ours."""
    return re.sub(r"\bqitos_min\b(?!\.snowl)", framework, text)


def refuse(text):
    raise ValueError(f"{text} is no strict JSON")


class Evaluation:
    """What one ``snowl eval`` left behind."""

    def __init__(self, folder, done):
        self.returncode = done.returncode
        self.said = done.stdout + done.stderr
        (self.folder,) = (folder / ".snowl" / "runs").glob("2*")

    def outcomes(self):
        """The trials by sample id, read strictly."""
        text = (self.folder / "outcomes.json").read_text(encoding="utf-8")
        rows = json.loads(text, parse_constant=refuse)
        return {row["task_result"]["sample_id"]: row for row in rows}

    def documents(self):
        """Every JSON document of the run, read strictly."""
        found = []
        for path in sorted(self.folder.rglob("*.json*")):
            text = path.read_text(encoding="utf-8")
            parts = text.split("\n") if path.suffix == ".jsonl" else [text]
            for part in filter(None, parts):
                found.append(json.loads(part, parse_constant=refuse))
        assert len(found) > 20
        return found


@pytest.fixture(scope="session")
def evaluate(tmp_path_factory, need):
    """Evaluate a project: the files of ``project/``, some of them replaced."""

    def run(framework="qitos_min", **replaced):
        need("snowl", framework)
        folder = tmp_path_factory.mktemp("snowl") / "project"
        shutil.copytree(HERE / "project", folder)
        for name, text in replaced.items():
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
        script = folder / "agent.py"
        text = script.read_text(encoding="utf-8")
        script.write_text(of_framework(text, framework), encoding="utf-8")
        flags = ("--no-ui", "--no-web-monitor")
        done = subprocess.run(
            [sys.executable, "-m", "snowl", "eval", str(folder), *flags],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCES))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
        )
        return Evaluation(folder, done)

    return run


@pytest.fixture
def project(tmp_path):
    """The project's agent module, imported with the given framework."""

    def load(framework="qitos_min"):
        text = (HERE / "project" / "agent.py").read_text(encoding="utf-8")
        path = tmp_path / f"agent_of_{framework}.py"
        path.write_text(of_framework(text, framework), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # Dataclasses look for their module.
        spec.loader.exec_module(module)
        return module

    yield load
    for name in [name for name in sys.modules if name.startswith("agent_of_")]:
        del sys.modules[name]
