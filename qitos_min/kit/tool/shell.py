"""The tool that runs commands, where QitOS has it."""

from .coding import RunCommand as RunCommand
