"""Models that an agent can be given as its ``llm``."""

from .base import Model
from .openai_compatible import OpenAICompatibleModel

__all__ = ["Model", "OpenAICompatibleModel"]
