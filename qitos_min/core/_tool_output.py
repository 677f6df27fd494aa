"""What is kept of a tool's output: within its declared length, and when it raised."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ._foreign import described, guarded, traced
from ._json import to_json_value
from ._shorten import CUT_MARK, both_ends, joined, within
from .artifact import ArtifactRef
from .tool_result import ToolResult


def limit_output(result: ToolResult, limit: int | None, context: Mapping[str, Any]) -> None:
    """Cut what a model is shown to ``limit`` characters; None leaves it as it is.

    An artifact store (``artifact_resolver`` of the context, or ``artifact_store`` of
    its environment) takes an output that is longer, and ``output`` keeps both ends of
    it; without a store the output stays whole. Of an object each part is cut by itself.
    """
    if limit is None:
        return
    text = joined(result.output)
    if len(text) > limit:
        ref, error = guarded(_stored, result.output, context)
        if error is not None:
            result.metadata["artifact_error"] = described(error)
        elif ref is not None:
            result.artifact_refs = tuple(dict.fromkeys((*result.artifact_refs, ref)))
            result.output = _cut(result, result.output, text, limit)
            result.complete = False
            text = ""
    if result.model_output is not None:
        text = joined(result.model_output)
    if len(text) > limit:
        shown = result.output if result.model_output is None else result.model_output
        result.model_output = _cut(result, shown, text, limit)


def _cut(result: ToolResult, value: Any, text: str, limit: int) -> Any:
    """What is left of a value whose text is too long; the mark of a text is not counted."""
    kept = within(value, limit) if isinstance(value, dict) else both_ends(text, limit)
    result.truncated = True
    left_out = len(text) - len(joined(kept).replace(CUT_MARK, ""))
    result.omitted = {**result.omitted, "chars": left_out}
    return kept


def _stored(output: Any, context: Mapping[str, Any]) -> ArtifactRef | None:
    """The reference to an output in the store; None where there is no store."""
    store = context.get("artifact_resolver")
    if store is None:
        store = getattr(context.get("env"), "artifact_store", None)
    if store is None:
        return None
    body = joined(output).encode("utf-8")
    digest = hashlib.sha256(body).hexdigest()
    kind = "text/plain" if isinstance(output, str) else "application/json"
    ref = ArtifactRef(f"output-{digest}", store.resolver_key, digest, kind, len(body), "utf-8")
    store.put(ref, body)
    return ref


def raised(error: BaseException, given: Sequence[Any] = ()) -> ToolResult:
    """The result of a tool that raised; it may have yielded ``given`` before.

    What a command that it ran has printed is kept too, as the last value if there are
    others.
    """
    # The attributes of subprocess.CalledProcessError and TimeoutExpired.
    printed = {name: _told(getattr(error, name, None)) for name in ("stdout", "stderr")}
    output: Any = printed if any(printed.values()) else None
    if given:
        output = to_json_value([*given, output] if output else list(given))
    return ToolResult.execution_error(
        code="tool_execution_failed",
        error=described(error),
        output=output,
        metadata={"traceback": traced(error)},
    )


def _told(text: Any) -> str | None:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return to_json_value(text) if isinstance(text, str) else None
