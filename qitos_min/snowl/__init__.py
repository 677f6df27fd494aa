"""QitOS agents, real ones or this package's, as agents that Snowl runs; loads no runtime."""

from .adapter import QitOSAdapter
from .installed_agent import InstalledAgent

__all__ = ["InstalledAgent", "QitOSAdapter"]
