"""A finished run as one JSON document."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ..core._json import dumps, to_json_value
from ..core.state import StateMigrationError
from ._result import EngineResult
from .states import utc_now

__all__ = ["RunState"]

SCHEMA_VERSION = "1.0"
SCHEMA_VERSIONS = {"1.0": "state, records, events, budget and token usage of one run"}


@dataclass
class RunState:
    """Everything a run left, in plain values."""

    agent_name: str = ""
    step: int = 0
    """Number of finished steps."""
    task_text: str = ""
    state_data: dict[str, Any] = field(default_factory=dict)
    state_type: str = ""
    """``module.Name`` of the state's class."""
    records: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    checkpoint_id: str | None = None
    trace_state: dict[str, Any] = field(default_factory=dict)
    context_metadata: dict[str, Any] = field(default_factory=dict)
    budget: dict[str, Any] = field(default_factory=dict)
    token_usage: dict[str, int] = field(default_factory=dict)
    created_at: str = field(default_factory=utc_now)

    @classmethod
    def from_engine_result(
        cls, result: EngineResult, *, agent_name: str = "", budget: Any = None
    ) -> RunState:
        """Return the state of a finished run; its values are copied."""
        kind = type(result.state)
        first = result.records[0] if result.records else None
        return cls(
            agent_name=agent_name or (first.agent_id if first else "") or "",
            step=result.step_count,
            task_text=str(getattr(result.state, "task", "")),
            state_data=to_json_value(result.state),
            state_type=f"{kind.__module__}.{kind.__qualname__}",
            records=[to_json_value(record.to_row()) for record in result.records],
            events=[event.to_dict() for event in result.events],
            context_metadata={
                "run_id": result.run_id,
                "task_result": to_json_value(result.task_result),
                "failure": to_json_value(result.failure),
            },
            budget=to_json_value(budget) if budget is not None else {},
            token_usage={"total_tokens": result.total_tokens},
        )

    def to_json(self, pretty: bool = True) -> str:
        """Return the document as strict JSON text."""
        document = {
            "$schemaVersion": SCHEMA_VERSION,
            **vars(self),
            "_serialization_meta": {"format": "qitos_min", "values": "strict JSON"},
        }
        return dumps(document, indent=2 if pretty else None)

    @classmethod
    def from_json(cls, text: str | bytes) -> RunState:
        """Return the run that ``to_json`` wrote.

        Text that is no such document is a ``ValueError``; an unknown version is
        a ``StateMigrationError`` that lists the known ones.
        """
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError(f"expected an object, got {type(document).__name__}")
        version = document.pop("$schemaVersion", None)
        if version not in SCHEMA_VERSIONS:
            known = ", ".join(f"{v} ({what})" for v, what in SCHEMA_VERSIONS.items())
            raise StateMigrationError(f"unknown run state version {version!r}; known: {known}")
        document.pop("_serialization_meta", None)
        unknown = sorted(set(document) - set(cls.__dataclass_fields__))
        if unknown:
            raise ValueError(f"unknown field {unknown[0]!r} of RunState")
        return cls(**document)
