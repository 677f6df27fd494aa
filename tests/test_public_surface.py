"""What can be imported, what imports what, and how large things may get."""

import ast
import configparser
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = sorted(p for p in (ROOT / "qitos_min").rglob("*.py"))
SHIM = ROOT / "snowl_compat.py"

MIRRORED = {
    "qitos_min": "AgentModule Engine EngineResult StepSummary StateSchema Decision Action Task"
    " TaskBudget TaskResult Observation ToolRegistry ToolMeta ToolPermission ToolResult BaseTool"
    " tool function_tool AgentSpec AgentRegistry ContextStrategy HandoffContext StateAdapter"
    " StopReason QitosRuntimeError Env",
    "qitos_min.core": "ToolRegistry ToolMeta ToolPermission AgentModule Decision Action Task",
    "qitos_min.core.errors": "ErrorCategory StopReason RuntimeErrorInfo QitosRuntimeError",
    "qitos_min.core.state": "StateSchema StateValidationError StateMigrationError",
    "qitos_min.core.decision": "Decision",
    "qitos_min.core.action": "Action ActionKind ActionStatus ActionResult ActionExecutionPolicy",
    "qitos_min.core.task": "Task TaskBudget TaskResource TaskResult",
    "qitos_min.core.observation": "Observation",
    "qitos_min.core.agent_module": "AgentModule",
    "qitos_min.core.agent_spec": "AgentSpec AgentRegistry ContextStrategy HandoffContext"
    " StateAdapter",
    "qitos_min.core.tool": "ToolPermission ToolMeta ToolSpec ToolPermissionSpec BaseTool"
    " FunctionTool RetryPolicy tool",
    "qitos_min.core.tool_registry": "ToolRegistry",
    "qitos_min.core.tool_schema": "function_schema type_to_json_schema",
    "qitos_min.core.function_tool_decorator": "function_tool",
    "qitos_min.core.tool_result": "ToolResult ToolResultContractError",
    "qitos_min.core.artifact": "ArtifactRef ArtifactContractError",
    "qitos_min.core.session": "AttemptIdentity",
    "qitos_min.core.env": "Env EnvObservation EnvStepResult EnvCapabilityError",
    "qitos_min.core.history": "History HistoryMessage",
    "qitos_min.engine": "Engine EngineResult StepSummary EngineConfig CriticTrace HandoffTrace"
    " RuntimePhase RuntimeBudget RuntimeEvent StepRecord ContextConfig CancelMode CancelToken"
    " EngineHook critic Critic CriticResult",
    "qitos_min.engine.engine": "Engine EngineResult StepSummary",
    "qitos_min.engine.states": "RuntimePhase RuntimeBudget ContextConfig RuntimeEvent StepRecord"
    " CriticTrace HandoffTrace EngineConfig StepResult",
    "qitos_min.engine.critic": "Critic",
    "qitos_min.engine.critic_result": "CriticResult",
    "qitos_min.engine.critic_decorator": "critic",
    "qitos_min.engine.stop_criteria": "StopCriteria MaxStepsCriteria FinalResultCriteria"
    " MaxRuntimeCriteria MaxTokensCriteria StagnationCriteria",
    "qitos_min.engine.hooks": "EngineHook HookContext",
    "qitos_min.engine.cancellation": "CancelMode CancelToken",
    "qitos_min.engine.recovery": "RecoveryPolicy RecoveryDecision",
    "qitos_min.engine.action_executor": "ActionExecutor ActionExecutionPolicy",
    "qitos_min.kit.critic": "PassThroughCritic SelfReflectionCritic ScoreCritic",
    "qitos_min.models": "OpenAICompatibleModel",
    "qitos_min.trace": "TraceWriter",
}


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree, *, top_level):
    """Yield (level, module) of the imports of a file."""
    nodes = tree.body if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


def absolute(path, level, module):
    if not level:
        return module
    base = module_name(path).split(".")
    if path.name != "__init__.py":
        base = base[:-1]
    base = base[: len(base) - level + 1]
    return ".".join([*base, module] if module else base)


@pytest.mark.parametrize("module", sorted(MIRRORED))
def test_mirrored_names_are_there(module):
    found = importlib.import_module(module)
    assert [name for name in MIRRORED[module].split() if not hasattr(found, name)] == []


@pytest.mark.parametrize("path", [SHIM, *PACKAGE], ids=module_name)
def test_all_is_sorted_and_true(path):
    if path.name == "__main__.py":
        return
    module = importlib.import_module(module_name(path))
    names = getattr(module, "__all__", [])
    assert list(names) == sorted(names)
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", [SHIM, *PACKAGE], ids=module_name)
def test_only_the_standard_library(path):
    # annotationlib belongs to the standard library from 3.14 on.
    allowed = sys.stdlib_module_names | {"qitos_min", "annotationlib"}
    # These do without the runtime, which ``core/_json.py`` would load.
    alone = module_name(path).startswith(("qitos_min.snowl", "qitos_min.view"))
    if alone or module_name(path) in ("qitos_min.core._json", "qitos_min.__main__"):
        allowed |= {"snowl_compat"}
    if path == SHIM:
        allowed -= {"qitos_min"}
    found = {absolute(path, *item).split(".")[0] for item in imports(tree_of(path), top_level=False)}
    assert found - allowed == set()


@pytest.mark.parametrize("path", PACKAGE, ids=module_name)
def test_imports_point_downwards(path):
    """core < engine < kit, trace and models, which sit on top."""
    layers = ("core", "engine", "kit", "trace", "models")
    parts = path.relative_to(ROOT / "qitos_min").parts
    if len(parts) < 2:
        return
    forbidden = {"core": layers[1:], "engine": layers[2:]}.get(parts[0], ())
    found = [absolute(path, *item) for item in imports(tree_of(path), top_level=True)]
    bad = [name for name in found for layer in forbidden if name.startswith(f"qitos_min.{layer}")]
    assert bad == []


def functions(tree):
    return [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


@pytest.mark.parametrize("path", [SHIM, *PACKAGE], ids=module_name)
def test_functions_fit_on_a_screen(path):
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in functions(tree_of(path))
        # Mirrored signatures take most of these.
        if node.name not in ("__init__", "build_payload", "export_json")
        and node.end_lineno - node.lineno + 1 > 50
    }
    assert long == {}


@pytest.mark.parametrize("path", PACKAGE, ids=module_name)
def test_files_stay_small(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_the_package_does_not_grow():
    """A ceiling that only falls; what is asked is 12,000."""
    files = (ROOT / "qitos_min").rglob("*.py")
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= 12_000


def test_the_top_level_holds_what_it_should():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )
    if listed.returncode:
        pytest.skip("not a checkout")
    names = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert {name for name in names if not name.startswith(".")} == {
        "README.md", "qitos_min", "setup.cfg", "snowl_compat.py", "tests",
    }


def test_importing_does_nothing_but_define():
    code = (
        "import sys, qitos_min.engine\n"
        "heavy = {'asyncio', 'http.client', 'urllib.request', 'tempfile'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


LAZY = """
import json, sys
__import__(sys.argv[1])
own = {name for name in sys.modules if name.partition(".")[0] == "qitos_min"}
heavy = {"http.client", "urllib.request", "tempfile", "argparse"} & set(sys.modules)
print(*sorted({".".join(name.split(".")[:2]) for name in own} | heavy))
"""


@pytest.mark.parametrize("package", ["qitos_min.snowl", "qitos_min.view", "qitos_min"])
def test_who_brings_agents_or_runs_of_their_own_does_not_load_the_runtime(package):
    done = subprocess.run(
        [sys.executable, "-S", "-c", LAZY, package],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    assert (done.stdout.split(), done.stderr) == (sorted({"qitos_min", package}), "")


USES = [
    ("import qitos_min", "qitos_min.Engine is qitos_min.engine.engine.Engine"),
    ("import qitos_min", "qitos_min.core.action.Action is qitos_min.Action"),
    ("import qitos_min", "set(qitos_min.__all__) | {'core', 'engine'} <= set(dir(qitos_min))"),
    ("import qitos_min", "not hasattr(qitos_min, 'Nothing')"),
    ("from qitos_min import *", "Engine and Task and tool"),
    ("from qitos_min import engine, Engine", "engine.Engine is Engine"),
    ("import qitos_min, pickle", "pickle.loads(pickle.dumps(qitos_min.Task)) is qitos_min.Task"),
    ("import qitos_min", "qitos_min.__version__ == '0.1.0'"),
]


@pytest.mark.parametrize("imported, held", USES)
def test_names_are_there_when_they_are_asked_for(imported, held):
    code = f"{imported}\nassert {held}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_type_checkers_see_the_names():
    (block,) = (n for n in tree_of(ROOT / "qitos_min" / "__init__.py").body if isinstance(n, ast.If))
    import qitos_min
    import qitos_min.core

    known = {"*": qitos_min.core.__all__}
    seen = {
        name: node.module
        for node in block.body for alias in node.names
        for name in known.get(alias.name, [alias.name])
    }
    assert {name: seen[name] for name in qitos_min.__all__} == qitos_min._HOME


def test_the_wheel_declares_the_adapter_and_its_types():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    _, _, place = setup["options.entry_points"]["snowl.adapters"].strip().partition(" = ")
    module, _, name = place.partition(":")
    assert getattr(importlib.import_module(module), name).framework_name == "qitos"
    assert setup["options.package_data"]["qitos_min"] == "py.typed"
    assert (ROOT / "qitos_min" / "py.typed").read_bytes() == b""


def test_every_public_name_says_what_it_is():
    silent = []
    for path in [SHIM, *PACKAGE]:
        tree = tree_of(path)
        listed = next(
            (ast.literal_eval(n.value) for n in tree.body
             if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
             and isinstance(n.value, ast.List)), None)
        if listed is None:  # Then the names without an underscore, of modules without one.
            names = [] if path.name.startswith("_") else [getattr(n, "name", "_") for n in tree.body]
            listed = [name for name in names if not name.startswith("_")]
        for node in tree.body:
            if getattr(node, "name", None) in listed and not ast.get_docstring(node):
                silent.append(f"{module_name(path)}.{node.name}")
        if not ast.get_docstring(tree):
            silent.append(module_name(path))
    assert silent == []


def test_the_guide_maps_to_existing_names():
    guides = ROOT.parent / "shared" / "seeds"
    if not guides.is_dir():
        pytest.skip("the guides are not here")
    missing = []
    for guide in guides.glob("*.txt"):
        text = guide.read_text(encoding="utf-8")
        for module, names in re.findall(r"^from (qitos[\w.]*) import ([\w, ]+)$", text, re.M):
            found = importlib.import_module(re.sub(r"^qitos\b", "qitos_min", module))
            missing += [n for n in names.replace(" ", "").split(",") if not hasattr(found, n)]
    assert missing == []
