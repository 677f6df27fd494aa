"""Runs to look at. They are read through ``snowl_compat`` only, without the runtime."""

from ._show import page, show

__all__ = ["page", "show"]
