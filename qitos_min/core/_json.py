"""The one door to the rules of ``snowl_compat``: values, critic and handoff rows."""

from snowl_compat import critic_traces, dumps, handoff_traces, to_json_value

__all__ = ["critic_traces", "dumps", "handoff_traces", "to_json_value"]
