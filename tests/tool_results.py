"""What the tests of ToolResult share."""

from __future__ import annotations

import json
from typing import Any

from qitos_min.core.action import Action
from qitos_min.core.artifact import ArtifactRef

SECRET = "fake-value-never-shown"
MARK = "...[TRUNCATED]"
CLOSURE = "qitos.tool_batch_closure/v1"
VIEWS = ("to_dict", "to_model_dict", "to_trace_safe_dict")


def strict(value: Any) -> Any:
    """Writes as UTF-8 JSON and reads back, refusing what only Python accepts."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return json.loads(text.encode("utf-8"), parse_constant=refuse)


def ref(artifact_id: str = "a1") -> ArtifactRef:
    return ArtifactRef(artifact_id, "store", "0" * 64, "text/plain", 3)


def failed(**values: Any) -> dict[str, Any]:
    return {
        "status": "error",
        "error_kind": "execution",
        "error_code": "broken",
        **values,
    }


def nested(levels: int) -> list[Any]:
    tree: list[Any] = []
    for _ in range(levels):
        tree = [tree]
    return tree


def endless() -> dict[str, Any]:
    tree: dict[str, Any] = {}
    tree["self"] = tree
    return tree


DEFAULTS = {
    "status": "success",
    "output": None,
    "error": None,
    "metadata": {},
    "tool_name": None,
    "action_id": None,
    "model_output": None,
    "error_kind": None,
    "error_code": None,
    "recoverable": False,
    "recovery_hint": None,
    "next_action": None,
    "complete": True,
    "truncated": False,
    "omitted": {},
    "attempts": 1,
    "latency_ms": 0.0,
    "declared_effects": [],
    "filesystem_changes": [],
    "artifact_refs": (),
    "normalized_request": {},
    "provenance": {},
    "worker_still_running": False,
    "attempt_id": None,
    "effect_ref": None,
    "effect_state": "no_effect_declared",
    "idempotency_ref": None,
    "retry_disposition": "not_evaluated",
    "reconciliation_required": False,
    "outcome_unknown": False,
    "late_result": False,
    "owner_generation": None,
    "stale_owner": False,
    "batch_closure": {},
    "schema_version": "qitos.tool_result/v2",
}


def result_of(registry, name, /, runtime_context=None, **args):
    """The result of a call, where ``registry.call`` gives its value or raises."""
    return registry.execute(Action(name, args), runtime_context)
