"""The traces of a run; the only place that extracts them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import _json
from .states import CriticTrace, HandoffTrace, RuntimeEvent, RuntimePhase, StepRecord

__all__ = ["critic_traces", "handoff_traces"]


def critic_traces(records: Iterable[StepRecord | Any]) -> list[CriticTrace]:
    """Return one trace for each critic output, by the payload's own rules."""
    judged = [record for record in records if record.critic_outputs]
    return [CriticTrace(**row) for row in _json.critic_traces(judged)]


def handoff_traces(events: Iterable[RuntimeEvent | Any]) -> list[HandoffTrace]:
    """Return one trace for each HANDOFF_START event."""
    starts = [event for event in events if event.phase == RuntimePhase.HANDOFF_START]
    return [HandoffTrace(**row) for row in _json.handoff_traces(starts)]
