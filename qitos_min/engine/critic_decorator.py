"""The decorator ``@critic``."""

from .critic import critic as critic
