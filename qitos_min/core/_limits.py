"""Checks of the numbers that people set: counts and time limits."""

from __future__ import annotations

from typing import Any


def is_number(value: Any) -> bool:
    """Whether ``value`` is an int or float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_count(value: Any, name: str, *, least: int) -> None:
    """Raise ``ValueError`` unless ``value`` is an int of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")


def check_seconds(value: Any, name: str) -> None:
    """Raise ``ValueError`` unless ``value`` is a finite number of at least 0."""
    if not (is_number(value) and 0 <= value < float("inf")):
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")


def check_timeout(value: Any) -> None:
    """Raise ``ValueError`` unless ``value`` is None or a number of seconds above 0."""
    if value is not None and not (is_number(value) and 0 < value < float("inf")):
        raise ValueError(f"timeout_s must be a number of seconds above 0, got {value!r}")
