"""What a critic says of a step."""

from .critic import CriticResult as CriticResult
