"""Runs to look at, as a page or in a terminal, read through ``snowl_compat`` without the runtime."""

from ._commands import show, view

__all__ = ["show", "view"]
