"""QitOS agents as agents that Snowl runs; QitOS's or this package's, nothing is imported.

Snowl drops what it does not know from an agent's output, so the payload travels in
the trace events: first the payload, then one event a step, then the failure if any.
"""

from .adapter import QitOSAdapter
from .installed_agent import InstalledAgent

__all__ = ["InstalledAgent", "QitOSAdapter"]
