"""Models that an agent can be given as its ``llm``."""

from .openai_compatible import OpenAICompatibleModel

__all__ = ["OpenAICompatibleModel"]
