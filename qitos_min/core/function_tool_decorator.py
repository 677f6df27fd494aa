"""Where QitOS has the decorator that makes a tool of a function."""

from .tool import function_tool as function_tool
