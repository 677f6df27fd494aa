"""What every model has: its name, what it is always told, and a call that gives text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Model:
    """Base class of models: write ``_call_api``, which gives the text of a reply.

    The engine prefers ``call_raw(messages, **options)``, the chat API's response, if it is there.
    """

    def __init__(
        self,
        model: str = "default",
        system_prompt: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        context_window: int | None = None,
    ) -> None:
        self.model, self.system_prompt, self.temperature = model, system_prompt, temperature
        self.max_tokens, self.context_window = max_tokens, context_window

    def __call__(self, messages: Sequence[dict[str, Any]], **options: Any) -> str:
        """The text that the model answers ``messages`` with."""
        return self._call_api(messages, **options)

    def _call_api(self, messages: Sequence[dict[str, Any]], **options: Any) -> str:
        raise NotImplementedError(f"{type(self).__qualname__} must define _call_api()")
