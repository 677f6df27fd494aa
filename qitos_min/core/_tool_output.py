"""Keeps a tool's output within the length that the tool declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._foreign import described, guarded
from ._json import dumps
from .artifact import ArtifactRef
from .tool_result import ToolResult

__all__ = ["limit_output"]

_CUT_MARK = "...[TRUNCATED]"


def limit_output(
    result: ToolResult, limit: int | None, context: Mapping[str, Any]
) -> None:
    """Cut what a model is shown to ``limit`` characters; None leaves it as it is.

    An artifact store (``artifact_resolver`` of the context, or ``artifact_store`` of
    its environment) takes an output that is longer, and ``output`` keeps the beginning
    of it; without a store the output stays whole.
    """
    if limit is None:
        return
    text = _text(result.output)
    if len(text) > limit:
        ref, error = guarded(_stored, result.output, context)
        if error is not None:
            result.metadata["artifact_error"] = described(error)
        elif ref is not None:
            result.artifact_refs = tuple(dict.fromkeys((*result.artifact_refs, ref)))
            result.output = _cut(result, text, limit)
            result.complete = False
            text = ""
    if result.model_output is not None:
        text = _text(result.model_output)
    if len(text) > limit:
        result.model_output = _cut(result, text, limit)


def _cut(result: ToolResult, text: str, limit: int) -> str:
    result.truncated = True
    result.omitted = {**result.omitted, "chars": len(text) - limit}
    return text[:limit] + _CUT_MARK


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dumps(value)


def _stored(output: Any, context: Mapping[str, Any]) -> ArtifactRef | None:
    """The reference to an output in the store; None where there is no store."""
    store = context.get("artifact_resolver")
    if store is None:
        store = getattr(context.get("env"), "artifact_store", None)
    if store is None:
        return None
    # Few outputs are too long, and only they pay for the import.
    import hashlib

    body = _text(output).encode("utf-8")
    digest = hashlib.sha256(body).hexdigest()
    ref = ArtifactRef(
        artifact_id=f"output-{digest}",
        resolver_key=store.resolver_key,
        sha256=digest,
        media_type="text/plain" if isinstance(output, str) else "application/json",
        byte_length=len(body),
        encoding="utf-8",
    )
    store.put(ref, body)
    return ref
