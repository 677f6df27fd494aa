"""Ready-made sets of tools, and single tools."""

from ._env_tools import EnvToolSet
from .coding import CodingToolSet, EditorToolSet, ReadFile, RunCommand, WriteFile
from .web import HTMLExtractText, HTTPGet

__all__ = ["CodingToolSet", "EditorToolSet", "EnvToolSet", "HTMLExtractText", "HTTPGet"]
__all__ += ["ReadFile", "RunCommand", "WriteFile"]
