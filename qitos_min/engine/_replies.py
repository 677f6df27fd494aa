"""What a model answered, read from the forms in which servers answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core._json import dumps
from ..core.action import Action
from ..core.errors import ErrorCategory, QitosRuntimeError
from ._plain import plain

# Line breaks inside JSON texts are let through: models write code that way.
DECODER = json.JSONDecoder(strict=False)
# Reasons for the end of a reply other than that the model was done, of OpenAI,
# Anthropic, Gemini, DeepSeek, Mistral, OpenRouter and vLLM.
_CUT = re.compile(
    "length|max_|filter|safety|recitation|blocklist|prohibited|spii|error|abort|malformed|exceeded",
    re.I,
)


class ModelError(QitosRuntimeError):
    """The model could not be reached or gave no usable reply."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCategory.MODEL)


class EmptyReplyError(ModelError):
    """The model answered with nothing; asking again may help."""


class CutReplyError(ModelError):
    """The reply ended before the model was done; its finish reason says why."""

    def __init__(self, finish: str) -> None:
        super().__init__(f"the model's reply is not whole (finish_reason {finish!r:.80})")


class ParseError(QitosRuntimeError):
    """A reply does not follow its protocol; the message can be shown to the model."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCategory.PARSE)


class ModelReply(NamedTuple):
    """What a model answered."""

    text: str
    tool_calls: list[Action]
    cut: str | None = None  # The finish reason of a reply that ended before the model was done.


def response_of(value: object) -> dict[str, Any]:
    """What a model returned as strict JSON values; text becomes ``{"content": text}``."""
    raw = {"content": value} if isinstance(value, str) else value
    if isinstance(raw, Mapping) or hasattr(raw, "model_dump"):
        raw = plain(raw)
        if isinstance(raw, dict):
            return raw
    kind, what = EmptyReplyError if value is None else ModelError, type(value).__name__
    raise kind(f"the model returned {what}, expected text or a chat response as a dict")


def read_reply(value: object) -> ModelReply:
    """What a model returned: text, a chat response or one message of it.

    Raises EmptyReplyError for an empty reply, CutReplyError for one that ended before it
    said anything, ParseError for a call that cannot be read, ModelError for other values.
    """
    raw = response_of(value)
    choices = objects(raw["choices"]) if "choices" in raw else [{"message": raw, **raw}]
    # Some gateways put the text and the calls of one reply in two choices.
    calling = [one for one in choices if _calls_in(_message(one))]
    choice = (*calling, *choices, {})[0]
    message = _message(choice)
    text, calls = _text_in(message.get("content")), _calls_in(message)
    finish = first_of(choice, "finish_reason", "stop_reason", "done_reason")
    cut = finish if isinstance(finish, str) and _CUT.search(finish) else None
    if calls or text.strip():
        try:
            return ModelReply(text, [_action(*call) for call in enumerate(calls)], cut)
        except ParseError:
            if not cut:
                raise
            raise CutReplyError(cut) from None
    for holder in (raw, *choices):
        error, passing = server_error(holder)
        if error:
            kind = EmptyReplyError if passing else ModelError
            raise kind(f"the model answered with {error}")
    if cut:
        raise CutReplyError(cut)
    if "choices" not in raw and message.keys().isdisjoint(("content", "tool_calls")):
        raise ModelError(
            f"the model returned a dict with the keys {list(raw)!r:.200}, "
            "expected 'choices' or 'content'"
        )
    refusal = message.get("refusal")
    why = f"refusal {refusal!r:.200}" if refusal else f"finish_reason {finish!r}"
    raise EmptyReplyError(f"the model's reply is empty ({why})")


def first_of(values: Mapping[str, Any], *names: str) -> Any:
    """The first of some values of a mapping that is there and not None."""
    return next((values[name] for name in names if values.get(name) is not None), None)


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list, or the one that stands where a list is expected."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict) and item]


def _message(choice: dict[str, Any]) -> dict[str, Any]:
    return (*objects(choice.get("message")), {})[0]


def _text_in(content: object) -> str:
    """A message's content: text, or a list of parts of which the text ones count."""
    parts = content if isinstance(content, list) else [content]
    texts = [
        part.get("text") if isinstance(part, dict) and part.get("type", "text") == "text" else part
        for part in parts
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _calls_in(message: dict[str, Any]) -> list[Any]:
    """The calls of a message, in the current form or the older one."""
    calls = message.get("tool_calls")
    if calls:
        return calls if isinstance(calls, list) else [calls]
    return objects(message.get("function_call"))


def _action(index: int, call: Any) -> Action:
    call = call if isinstance(call, dict) else {}
    entry = (*objects(call.get("function")), call)[0]
    name, own = entry.get("name"), call.get("id")
    if not isinstance(name, str) or not name.strip():
        raise ParseError(f"tool_calls[{index}] has no function name")
    name = name.strip().replace("__dot__", ".")
    args = args_of(name, first_of(entry, "arguments", "args", "parameters"))
    return Action(name, args, action_id=own if isinstance(own, str) else None)


def args_of(name: str, value: object) -> dict[str, Any]:
    """Arguments given as an object, as its JSON text (encoded again by some), or not at all."""
    while isinstance(value, str):
        try:
            value = DECODER.decode(value.strip() or "{}")
        except (ValueError, RecursionError) as error:
            raise ParseError(f"the arguments of {name!r} are not JSON: {error}") from None
    if value is not None and not isinstance(value, dict):
        kind = type(value).__name__
        raise ParseError(f"the arguments of {name!r} are {kind}, expected an object")
    return value or {}


def usage_of(raw: dict[str, Any]) -> int:
    """The tokens that a response was paid with, 0 where it names none."""
    counts = (*objects(raw.get("usage")), raw)[0]
    sent = first_of(counts, "prompt_tokens", "input_tokens", "prompt_eval_count")
    received = first_of(counts, "completion_tokens", "output_tokens", "eval_count")
    return _count(counts.get("total_tokens")) or _count(sent) + _count(received)


def _count(value: Any) -> int:
    """A positive whole number, also as text or float; else 0."""
    try:
        return 0 if isinstance(value, bool) else max(int(value), 0)
    except (TypeError, ValueError):
        return 0


def server_error(body: dict[str, Any]) -> tuple[str, bool]:
    """The error in a body that came as a success, or "", and whether asking again may help."""
    error = body.get("error")
    fields = error if isinstance(error, dict) else {"message": error}
    if not any(fields.values()):
        return "", False
    said = fields.get("message")
    said = said if isinstance(said, str) and said else dumps(error)
    named = (fields.get(name) for name in ("code", "status", "status_code"))
    status = next((n for n in map(_count, named) if 100 <= n < 600), 0)
    number = f" {status}" if status else ""
    return f"an error{number}: {said:.300}", may_pass(status)


def may_pass(status: int) -> bool:
    """Whether asking again may help after an HTTP status."""
    return status in (408, 429) or status >= 500
