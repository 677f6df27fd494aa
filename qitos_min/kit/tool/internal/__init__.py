"""Tools that are registered by name only, never as part of a toolset."""
