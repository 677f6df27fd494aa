"""Whatever tools, rules and callbacks do, every call ends in one record of strict JSON."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from qitos_min.core.action import Action, ActionExecutionPolicy
from qitos_min.core.tool import ToolMeta
from qitos_min.core.tool_registry import ToolRegistry
from qitos_min.core.tool_result import ToolResult
from qitos_min.engine.action_executor import ActionExecutor, tool_invocation
from tool_results import VIEWS, strict


class Spite:
    """Raises whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError("repr")

    __str__ = __bool__ = __eq__ = __len__ = __iter__ = __repr__
    __hash__ = None


class SpitefulDict(dict):
    def items(self):
        raise RuntimeError("items")

    get = keys = items


class SpitefulError(BaseException):
    def __str__(self):
        raise KeyError


VALUES = [
    *(None, True, 1, -1, 10**5000, 1.5, float("nan"), "", "x", "\ud800", b"x"),
    *([], {}, (), {1, 2}, range(3), object(), Spite, Spite(), SpitefulDict(a=1)),
    *({"a": [SpitefulDict(z=1)]}, Exception("e"), len),
    *({"status": "error", "error": 5}, {"status": "success", "output": float("inf")}),
    *({"schema_version": "qitos.tool_result/v2"}, ToolResult(output=1)),
]
ERRORS = [
    *(ValueError("x"), SpitefulError(), SystemExit(0), GeneratorExit(), StopIteration(1)),
    *(StopAsyncIteration(), RecursionError(), MemoryError(), asyncio.CancelledError()),
]
FIELDS = ("status", "metadata", "output", "error", "attempts", "provenance")


def random_tool(chance: random.Random):
    value, error = chance.choice(VALUES), chance.choice(ERRORS)

    def give(x=None):
        return value

    def fail(x=None):
        raise error

    async def give_later(x=None):
        return value

    async def fail_later(x=None):
        raise error

    def spoil(x=None):
        result = ToolResult(output=1)
        setattr(result, chance.choice(FIELDS), value)
        return result

    return chance.choice([give, fail, give_later, fail_later, spoil, lambda **all: all])


def random_meta(chance: random.Random, name: str) -> ToolMeta:
    def answer(given):
        return chance.choice(VALUES)

    return ToolMeta(
        name=name,
        concurrency_safe=chance.choice([True, None]),
        max_retries=chance.choice([0, 0, 1]),
        needs_approval=chance.choice([False, False, True, answer]),
        result_max_chars=chance.choice([None, 3]),
        on_failure=chance.choice([None, answer]),
        rule_scope_builder=chance.choice([None, answer]),
    )


def random_context(chance: random.Random):
    rule = {"tool": "*", "decision": chance.choice(["ask", "deny", "allow"])}
    return {
        "auto_approve": chance.choice([True, 1, False]),
        "approval_callback": lambda *given: chance.choice(VALUES),
        "permission_rules": chance.choice([None, [rule], *VALUES]),
        "artifact_resolver": chance.choice([None, 5, Spite()]),
        "env": chance.choice([None, 5, Spite()]),
        "cancel_token": chance.choice([None, 5]),
    }


@pytest.mark.parametrize("seed", range(4))
def test_every_call_has_its_record(seed):
    chance = random.Random(seed)
    for _ in range(120):
        registry = ToolRegistry()
        for name in "abc":
            meta = random_meta(chance, name)
            registry.register(random_tool(chance), meta=meta)
        actions = [
            Action(
                chance.choice(["a", "b", "c", "A", ""]),
                chance.choice([{}, {"x": chance.choice(VALUES)}, chance.choice(VALUES)]),
                action_id=chance.choice([None, "id", 5]),
            )
            for _ in range(chance.randrange(1, 6))
        ]
        policy = ActionExecutionPolicy(
            chance.choice(["serial", "parallel"]), chance.choice([True, False]), 2
        )
        batch = ActionExecutor(registry, policy=policy).run_batch(
            actions, runtime_context=random_context(chance)
        )
        assert len(batch.results) == len(actions)
        strict(batch.execution)
        for action, result in zip(actions, batch.results):
            assert (result.tool_name, result.action_id) == (action.name, action.action_id)
            assert ToolResult.from_dict(strict(result.to_dict())) == result
            assert json.dumps(tool_invocation(result), allow_nan=False)
            for view in VIEWS:
                strict(getattr(result, view)())
