"""Single tools for files, where QitOS has them."""

from .coding import ReadFile, WriteFile

__all__ = ["ReadFile", "WriteFile"]
