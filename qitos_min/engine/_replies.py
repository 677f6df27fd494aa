"""What a model answered, read from the forms in which models answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core._json import dumps
from ..core.errors import ErrorCategory, QitosRuntimeError
from ._plain import plain

# Reasons for the end of a reply other than that the model was done, of OpenAI,
# Anthropic, Gemini, DeepSeek, Mistral, OpenRouter and vLLM.
_CUT = re.compile(
    "(?i)length|max_|filter|safety|recitation|blocklist|prohibited|spii|sensitive"
    "|error|abort|malformed|incomplete|insufficient|exceeded"
)
_PASSING = re.compile(
    r"(?i)rate.?limit|too.?many|resource.?exhausted|overloaded|unavailable|timeout"
    r"|(?:server|internal|api).?error"
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


class ToolCall(NamedTuple):
    """One native tool call of a reply."""

    id: str | None  # The model's; None when it is missing or was used before in the reply.
    name: str
    args: dict[str, Any] | str | None  # The arguments, or the JSON text the model sent for them.


class ServerError(NamedTuple):
    """The error in a body, whatever status the body came with."""

    message: str
    status: int | None
    passing: bool  # Whether asking again may help.


@dataclass(frozen=True)
class ModelReply:
    """What a model answered, detached from the value it came in."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    cut: str | None = None  # The finish reason of a reply that ended before the model was done.


def response_of(value: object) -> dict[str, Any]:
    """What a model returned as strict JSON values; text becomes ``{"content": text}``."""
    if isinstance(value, str):
        value = {"content": value}
    if isinstance(value, Mapping) or hasattr(value, "model_dump"):
        raw = plain(value)
        if isinstance(raw, dict):
            return raw
    kind = EmptyReplyError if value is None else ModelError
    what = type(value).__name__
    raise kind(f"the model returned {what}, expected text or a chat response as a dict")


def read_reply(value: object) -> ModelReply:
    """What a model returned: text, a chat response or one message of it.

    Raises ModelError for any other value, EmptyReplyError for an empty reply, CutReplyError
    for one that ended before it said anything, ParseError for a tool call without a name.
    """
    return reply_in(response_of(value))


def reply_in(raw: dict[str, Any]) -> ModelReply:
    message, finish = _message_in(raw)
    text, calls = _text_in(message.get("content")), tuple(_tool_calls_in(_calls_of(message)))
    cut = finish if isinstance(finish, str) and _CUT.search(finish) else None
    if not calls and not text.strip():
        if cut:
            raise CutReplyError(cut)
        refusal = message.get("refusal")
        why = f"refusal {refusal!r:.200}" if refusal else f"finish_reason {finish!r}"
        raise EmptyReplyError(f"the model's reply is empty ({why})")
    return ModelReply(text, calls, cut)


def _message_in(raw: dict[str, Any]) -> tuple[dict[str, Any], object]:
    """The message and its finish reason; an error is raised as what it is."""
    choices, inner = _objects(raw.get("choices")), raw.get("message")
    said = [(choice["message"], choice) for choice in choices if _objects(choice.get("message"))]
    found = inner if isinstance(inner, dict) else raw
    alone = "choices" not in raw
    if alone and not found.keys().isdisjoint(("content", "tool_calls", "function_call")):
        said = [(found, found)]
    errors = filter(None, map(server_error, (raw, *choices)))
    if not any(_says(message) for message, _ in said) and (error := next(errors, None)):
        kind = EmptyReplyError if error.passing else ModelError
        raise kind(f"the model answered with an error: {error.message:.300}")
    if not said and alone:
        told = f"the model returned a dict with the keys {list(raw)!r:.200}"
        raise ModelError(f"{told}, expected 'choices' or 'content'")
    if not said:
        raise EmptyReplyError("the chat response has no choices[0].message")
    # Some gateways put the text and the calls of one reply in two choices.
    message, holder = max(said, key=lambda pair: _says(pair[0]))
    return message, _finish(holder) or _finish(raw)


def _says(message: dict[str, Any]) -> int:
    """How much a message says: calls, text or nothing."""
    return 2 if _calls_of(message) else int(bool(_text_in(message.get("content")).strip()))


def _finish(value: dict[str, Any]) -> object:
    names = ("finish_reason", "stop_reason", "done_reason")
    return next((value[name] for name in names if value.get(name)), None)


def first_of(fields: dict[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list, or the one that stands where a list is expected."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _text_in(content: object) -> str:
    """A message's content: text, or a list of parts of which the text ones count."""
    if isinstance(content, str) or content is None:
        return content or ""
    if not isinstance(content, list):
        # A gateway decoded the text: an answer of 42, or a decision.
        return dumps(content)
    texts = [
        part.get("text") if isinstance(part, dict) else part
        for part in content
        if not isinstance(part, dict) or part.get("type") in (None, "text", "output_text")
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _calls_of(message: dict[str, Any]) -> list[Any]:
    """The calls of a message, in the current form, the older one or as parts."""
    calls, older = message.get("tool_calls"), message.get("function_call")
    if calls and isinstance(calls, (list, dict)):
        return calls if isinstance(calls, list) else [calls]
    if older and isinstance(older, dict):
        return [older]
    return [p for p in _objects(message.get("content")) if p.get("type") == "tool_use"]


def _tool_calls_in(calls: list[Any]) -> Iterator[ToolCall]:
    seen: set[object] = {None, ""}
    for index, call in enumerate(calls):
        call = call if isinstance(call, dict) else {}
        inner = call.get("function")
        entry = inner if isinstance(inner, dict) else call
        name = entry.get("name")
        # Templates of some servers leave a control token behind the name.
        name = name.split("<|")[0].strip() if isinstance(name, str) else ""
        if not name:
            raise ParseError(f"tool_calls[{index}] has no function name")
        given = call.get("id")
        own = given if isinstance(given, str) and given not in seen else None
        seen.add(own)
        yield ToolCall(own, name, first_of(entry, "arguments", "args", "input", "parameters"))


def usage_of(raw: dict[str, Any]) -> dict[str, int]:
    """The tokens that a response names, 0 where it names none."""
    holders = (raw, *_objects(raw.get("choices")))
    counts = next((h["usage"] for h in holders if _objects(h.get("usage"))), raw)

    def count(*names: str) -> int:
        return next(filter(None, (_count(counts.get(name)) for name in names)), 0)

    sent = count("prompt_tokens", "input_tokens", "prompt_eval_count")
    received = count("completion_tokens", "output_tokens", "eval_count")
    total = count("total_tokens") or sent + received
    return {"input_tokens": sent, "output_tokens": received, "total_tokens": total}


def _count(value: object) -> int:
    """A positive whole number, also as text or float; else 0."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,15}", value.strip()):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value > 0 else 0


def server_error(body: dict[str, Any]) -> ServerError | None:
    """The error that a body holds although it came as a success, if it holds one."""
    error = body.get("error")
    if not error and body.get("object") == "error":
        error = body
    fields = error if isinstance(error, dict) else {"message": error}
    if not any(fields.values()):
        return None
    said = fields.get("message")
    message = said if isinstance(said, str) and said else dumps(error)
    named = [fields.get(name) for name in ("code", "status", "status_code", "type")]
    status = next((n for n in map(_count, named) if 100 <= n < 600), None)
    if status is not None:
        return ServerError(message, status, status in (408, 429) or status >= 500)
    words = " ".join(word for word in named if isinstance(word, str))
    return ServerError(message, None, bool(_PASSING.search(words)))
