"""What a run is composed of besides the agent."""

from .states import RuntimeComposition as RuntimeComposition
