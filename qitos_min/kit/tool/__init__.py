"""Ready-made sets of tools."""

from ._coding import CodingToolSet
from ._env_tools import EnvToolSet

__all__ = ["CodingToolSet", "EnvToolSet"]
