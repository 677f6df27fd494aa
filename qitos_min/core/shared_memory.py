"""Values that agents of one run share."""

from __future__ import annotations

from typing import Any


class InMemorySharedMemory:
    """Values by key; several threads may use it, as each operation is one of a dict."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def read(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self._values.get(key, default)

    def write(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        self._values[key] = value

    def delete(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return self._values.pop(key, self) is not self

    def list_keys(self, prefix: str = "") -> list[str]:
        """The keys that begin so, in the order in which they were first written."""
        return [key for key in list(self._values) if key.startswith(prefix)]

    def clear(self) -> None:
        """Remove every key."""
        self._values.clear()


class SharedMemoryManager:
    """Memories by name, and one for all, ``global_namespace``."""

    def __init__(self) -> None:
        self.global_namespace = InMemorySharedMemory()
        self._spaces: dict[str, InMemorySharedMemory] = {}

    def namespace(self, name: str) -> InMemorySharedMemory:
        """The memory of a name, made when it is first asked for."""
        return self._spaces.setdefault(name, InMemorySharedMemory())

    def list_namespaces(self) -> list[str]:
        """The names of the memories made so far."""
        return list(self._spaces)

    def clear_all(self) -> None:
        """Empty every memory, the one for all too."""
        for memory in (self.global_namespace, *list(self._spaces.values())):
            memory.clear()
