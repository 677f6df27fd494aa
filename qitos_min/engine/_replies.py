"""What a model answered, read from the forms in which models answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core._json import to_json_value
from ..core.errors import ErrorCategory, QitosRuntimeError

__all__ = ["EmptyReplyError", "ModelError", "ModelReply", "ParseError", "ToolCall", "read_reply"]


class ModelError(QitosRuntimeError):
    """The model could not be reached or gave no usable reply."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCategory.MODEL)


class EmptyReplyError(ModelError):
    """The model answered with nothing; asking again may help."""


class ParseError(QitosRuntimeError):
    """A reply does not follow its protocol; the message can be shown to the model."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCategory.PARSE)


class ToolCall(NamedTuple):
    """One native tool call of a reply."""

    id: str | None
    """The model's id; None when it is missing or was used before in the reply."""
    name: str
    args: dict[str, Any] | str
    """The arguments, or the JSON text the model sent for them."""


@dataclass(frozen=True)
class ModelReply:
    """What a model answered, detached from the value it came in."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: dict[str, int]
    """Tokens as ``input_tokens``, ``output_tokens``, ``total_tokens``; 0 if unknown."""
    raw: dict[str, Any]
    """The whole answer as strict JSON values."""


def read_reply(value: object) -> ModelReply:
    """What a model returned: text, a chat response or one message of it.

    Raises ModelError for any other value and for an empty reply, ParseError for a
    tool call without a name.
    """
    if isinstance(value, str):
        value = {"content": value}
    if not isinstance(value, Mapping):
        raise ModelError(
            f"the model returned {type(value).__name__}, "
            "expected text or a chat response as a dict"
        )
    raw: dict[str, Any] = to_json_value(value)
    message, finish = _message_in(raw)
    text = _text_in(message.get("content"))
    calls = tuple(_tool_calls_in(message.get("tool_calls")))
    if not calls and not text.strip():
        refusal = message.get("refusal")
        why = f"refusal {refusal!r:.200}" if refusal else f"finish_reason {finish!r}"
        raise EmptyReplyError(f"the model's reply is empty ({why})")
    return ModelReply(text, calls, _usage_in(raw.get("usage")), raw)


def _message_in(raw: dict[str, Any]) -> tuple[dict[str, Any], object]:
    """The message and its finish reason."""
    if "choices" not in raw:
        if "content" in raw or "tool_calls" in raw:
            return raw, None
        raise ModelError(
            f"the model returned a dict with the keys {list(raw)!r:.200}, "
            "expected 'choices' or 'content'"
        )
    choices = raw["choices"]
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise ModelError("the chat response has no choices[0].message")
    return choice["message"], choice.get("finish_reason")


def _text_in(content: object) -> str:
    """A message's content: text, or a list of parts of which the text ones count."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        kind = type(content).__name__
        raise ModelError(f"the reply's content is {kind}, expected text")
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _tool_calls_in(calls: object) -> Iterable[ToolCall]:
    seen: set[object] = {None, ""}
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        call = call if isinstance(call, dict) else {}
        entry = call.get("function", call)
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name.strip():
            raise ParseError(f"tool_calls[{index}] has no function name")
        given = call.get("id")
        own = given if isinstance(given, str) and given not in seen else None
        seen.add(own)
        args = entry.get("arguments")
        yield ToolCall(own, name.strip(), "" if args is None else args)


def _usage_in(usage: object) -> dict[str, int]:
    counts = usage if isinstance(usage, dict) else {}

    def count(*names: str) -> int:
        values = (counts.get(name) for name in names)
        return next((v for v in values if type(v) is int and v > 0), 0)

    sent = count("prompt_tokens", "input_tokens")
    received = count("completion_tokens", "output_tokens")
    total = count("total_tokens") or sent + received
    return {"input_tokens": sent, "output_tokens": received, "total_tokens": total}
