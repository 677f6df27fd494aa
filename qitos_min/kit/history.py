"""Histories to choose from, where QitOS has them."""

from ..core.history import History, HistoryMessage
from .memory import WindowHistory

__all__ = ["History", "HistoryMessage", "WindowHistory"]
