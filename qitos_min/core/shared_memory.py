"""Values that agents of one run share."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["InMemorySharedMemory", "SharedMemoryManager"]


class InMemorySharedMemory:
    """Values by key; may be used by several threads at once."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._lock = threading.Lock()

    def read(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self._values.get(key, default)

    def write(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        with self._lock:
            self._values[key] = value

    def delete(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        with self._lock:
            return self._values.pop(key, self) is not self

    def list_keys(self, prefix: str = "") -> list[str]:
        """The keys that begin so, in the order in which they were first written."""
        with self._lock:
            return [key for key in self._values if key.startswith(prefix)]

    def clear(self) -> None:
        """Remove every key."""
        with self._lock:
            self._values.clear()


class SharedMemoryManager:
    """Memories by name, and one for all."""

    def __init__(self) -> None:
        self._global = InMemorySharedMemory()
        self._spaces: dict[str, InMemorySharedMemory] = {}
        self._lock = threading.Lock()

    def namespace(self, name: str) -> InMemorySharedMemory:
        """The memory of a name, made when it is first asked for."""
        with self._lock:
            return self._spaces.setdefault(name, InMemorySharedMemory())

    @property
    def global_namespace(self) -> InMemorySharedMemory:
        """The memory for all."""
        return self._global

    def list_namespaces(self) -> list[str]:
        """The names of the memories made so far."""
        return list(self._spaces)

    def clear_all(self) -> None:
        """Empty every memory, the one for all too."""
        for memory in (self._global, *list(self._spaces.values())):
            memory.clear()
