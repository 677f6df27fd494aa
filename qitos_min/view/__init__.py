"""Runs to look at, on a page or in a terminal; they are read without the runtime."""

from ._commands import show, view

__all__ = ["show", "view"]
