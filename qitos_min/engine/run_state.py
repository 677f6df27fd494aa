"""A finished run as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from ..core._json import dumps, to_json_value
from ..core.state import StateMigrationError
from .states import utc_now

__all__ = ["CURRENT_SCHEMA_VERSION", "RunState", "SCHEMA_VERSION_SUMMARIES"]

CURRENT_SCHEMA_VERSION = "1.0"
Convert = Callable[[Any], Any] | None
SCHEMA_VERSION_SUMMARIES = {"1.0": "state, records, events, budget and token usage of one run"}


@dataclass
class RunState:
    """Everything a run left, in plain values."""

    schema_version: str = CURRENT_SCHEMA_VERSION
    agent_name: str = ""
    step: int = 0  # Number of finished steps.
    task_text: str = ""
    state_data: Any = field(default_factory=dict)
    state_type: str = ""  # ``module.Name`` of the state's class.
    records: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    checkpoint_id: str | None = None
    trace_state: dict[str, Any] | None = None
    context_metadata: dict[str, Any] = field(default_factory=dict)
    budget: dict[str, Any] = field(default_factory=dict)
    token_usage: int = 0
    created_at: str = field(default_factory=utc_now)

    @classmethod
    def from_engine_result(
        cls, result: Any, agent_name: str = "", checkpoint_id: str | None = None
    ) -> RunState:
        """Return the state of a finished run, its values copied; only ``state`` is needed."""
        state, kind = result.state, type(result.state)
        records = getattr(result, "records", None) or []
        names = ("run_id", "task_result", "failure")
        return cls(
            agent_name=agent_name or (records[0].agent_id if records else ""),
            step=getattr(result, "step_count", len(records)),
            task_text=str(getattr(state, "task", "")),
            state_data=to_json_value(state),
            state_type=f"{kind.__module__}.{kind.__qualname__}",
            records=[to_json_value(record.to_row()) for record in records],
            events=[event.to_dict() for event in getattr(result, "events", None) or ()],
            checkpoint_id=checkpoint_id,
            context_metadata=to_json_value({name: getattr(result, name, None) for name in names}),
            token_usage=getattr(result, "total_tokens", 0),
        )

    def to_json(self, *, pretty: bool = True, context_serializer: Convert = None) -> str:
        """Return the document as strict JSON text; the serializer is given ``state_data``."""
        document = {f.name: getattr(self, f.name) for f in fields(self)}
        document = {"$schemaVersion": document.pop("schema_version"), **document}
        converts = context_serializer is not None
        document["_serialization_meta"] = {
            "original_type": self.state_type or type(self.state_data).__name__,
            "serialized_via": "context_serializer" if converts else "strict JSON",
            "requires_deserializer": converts,
        }
        if context_serializer is not None:
            document["state_data"] = context_serializer(self.state_data)
        return dumps(document, indent=2 if pretty else None)

    @classmethod
    def from_json(cls, raw: str | bytes, *, context_deserializer: Convert = None) -> RunState:
        """Return the run that ``to_json`` wrote; every key but the version may be missing.

        Text that is no such document is a ``ValueError``; an unknown version is
        a ``StateMigrationError`` that lists the known ones.
        """
        document = json.loads(raw)
        if not isinstance(document, dict):
            raise ValueError(f"expected an object, got {type(document).__name__}")
        version = document.pop("$schemaVersion", None)
        if version not in SCHEMA_VERSION_SUMMARIES:
            known = ", ".join(f"{v} ({what})" for v, what in SCHEMA_VERSION_SUMMARIES.items())
            raise StateMigrationError(f"Unsupported run state version {version!r}; known: {known}")
        document.pop("_serialization_meta", None)
        for name in document.keys() - {f.name for f in fields(cls)}:
            raise ValueError(f"unknown field {name!r} of RunState")
        if context_deserializer is not None and "state_data" in document:
            document["state_data"] = context_deserializer(document["state_data"])
        return cls(**{"schema_version": version, **document})
