"""Single tools for files, where QitOS has them."""

from .coding import ReadFile as ReadFile, WriteFile as WriteFile
