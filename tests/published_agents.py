"""The agents of ``tests/published``, on one framework or the other.

Each file is written as published ones are: it imports from ``qitos_min``, has agents
of its own and ``main(scripted, folder)``, which gives a result and what else is to be
compared. Another framework takes the place of the import root in its text.
"""

import importlib
import json
import re
import sys
import types
from pathlib import Path

HERE = Path(__file__).parent
FILES = {path.stem: path for path in sorted((HERE / "published").glob("*.py"))}
ENDS = json.loads((HERE / "data" / "published_ends.json").read_text(encoding="utf-8"))
"""How each agent ends: on the real QitOS wherever that has the parts."""


def scripted_model(root):
    """The class of models that answer from a list, made as published ones are."""
    base = importlib.import_module(f"{root}.models").Model

    class Scripted(base):
        def __init__(self, answers):
            super().__init__(model="scripted")
            self.answers = list(answers)
            self.asked = []

        def _call_api(self, messages, **options):
            self.asked.append([dict(message) for message in messages])
            return self.answers.pop(0)

    return Scripted


def load(name, root):
    """The module of one agent with its imports from ``root``."""
    text = re.sub(r"\bqitos_min\b", root, FILES[name].read_text(encoding="utf-8"))
    module = types.ModuleType(f"published_{root}_{name}")
    sys.modules[module.__name__] = module  # Dataclasses look for their module.
    try:
        exec(compile(text, str(FILES[name]), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def called(action):
    return action["name"] if isinstance(action, dict) else action.name


def end_of(name, root, folder):
    """How an agent ends: reason, answer, steps, tools called, and what else it tells."""
    module = load(name, root)
    try:
        result, told = module.main(scripted_model(root), folder)
    finally:
        del sys.modules[module.__name__]
    state = result.state
    reason = getattr(state.stop_reason, "value", state.stop_reason)
    end = {
        "stop_reason": "max_steps" if reason == "budget_steps" else reason,
        "final_result": state.final_result,
        "steps": result.step_count,
        "tools": [called(action) for record in result.records for action in record.actions],
        "told": told,
    }
    return json.loads(json.dumps(end))
