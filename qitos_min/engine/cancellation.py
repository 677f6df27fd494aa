"""Telling a run to stop, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum

__all__ = ["CancelMode", "CancelToken"]


class CancelMode(str, Enum):
    """When a cancelled run stops."""

    NONE = "none"  # Not at all: nothing was asked for.
    IMMEDIATE = "immediate"  # Before the next stage or tool call; a tool at work is left behind.
    AFTER_STEP = "after_step"  # When the step under way is complete.


class CancelToken:
    """A request to stop; the stronger of two requests counts."""

    def __init__(self) -> None:
        # Of the kind that a handler of signals may take while this thread has it.
        self._lock = threading.RLock()
        self.watched: set[Callable[[], None]] = set()  # Called when ``immediate`` is asked for.
        self.mode: CancelMode | None = None  # What was asked for, or None.

    @property
    def is_cancel_requested(self) -> bool:
        """Whether anything was asked for."""
        return self.mode is not None

    def cancel(self, mode: CancelMode | str = CancelMode.IMMEDIATE) -> None:
        """Ask to stop; an unknown mode is a ``ValueError`` naming the modes."""
        if mode not in list(CancelMode):
            known = ", ".join(m.value for m in CancelMode if m is not CancelMode.NONE)
            raise ValueError(f"unknown cancel mode {mode!r}; known: {known}")
        wanted = CancelMode(mode)
        with self._lock:
            if wanted is not CancelMode.NONE and self.mode is not CancelMode.IMMEDIATE:
                self.mode = wanted
        if wanted is CancelMode.IMMEDIATE:
            for wake in list(self.watched):
                wake()

    request_cancel = cancel

    def clear(self) -> None:
        """Take the request back."""
        self.mode = None
