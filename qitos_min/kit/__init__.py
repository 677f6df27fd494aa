"""Ready-made parts: environments, tools, artifact stores, critics.

What is exported here is imported when it is asked for: ``engine`` uses some of these
parts, and others use ``engine``.
"""

from importlib import import_module
from typing import Any

__all__ = ["CodingToolSet", "EnvToolSet", "HostEnv", "WorkspaceEnv", "compose"]

_HOMES = {
    "CodingToolSet": ".tool",
    "EnvToolSet": ".tool",
    "HostEnv": ".env",
    "WorkspaceEnv": ".env",
    "compose": "._compose",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return __all__
