"""What an agent sees at the beginning of a step."""

from __future__ import annotations

from typing import Any

__all__ = ["Observation"]

Observation = dict[str, Any]
"""Keys: task, step, state (a snapshot as a dict), env, action_results (those of
the last step); for ``reduce`` also decision, and the results of this step."""
