"""Ready-made sets of tools, and single tools."""

from .coding import CodingToolSet, EditorToolSet, EnvToolSet, ReadFile, RunCommand, WriteFile
from .web import HTMLExtractText, HTTPGet

__all__ = ["CodingToolSet", "EditorToolSet", "EnvToolSet", "HTMLExtractText", "HTTPGet"]
__all__ += ["ReadFile", "RunCommand", "WriteFile"]
