"""Histories to choose from, where QitOS has them."""

from ..core.history import History as History, HistoryMessage as HistoryMessage
from .memory import WindowHistory as WindowHistory
