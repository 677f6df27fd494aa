"""The decorator that turns a function or method into a :class:`FunctionTool`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .tool import FunctionTool, RetryPolicy, ToolMeta

__all__ = ["function_tool"]


def function_tool(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    max_retries: int = 0,
    retry_policy: RetryPolicy | None = None,
    on_failure: Callable[..., Any] | None = None,
    read_only: bool = False,
    concurrency_safe: bool | None = None,
    needs_approval: bool | Callable[..., bool] = False,
    **extra_meta: Any,
) -> Any:
    """Make a tool of a function; with or without parentheses, also in a class body.

    The keywords are the fields of :class:`ToolMeta`; any other keyword becomes an
    attribute of the tool's ``meta``. Raises ``ValueError`` or ``TypeError`` for a
    value that a field refuses.
    """
    given = {**locals(), **extra_meta}
    known = {name: given[name] for name in ToolMeta.__dataclass_fields__ if name in given}
    meta = ToolMeta(**known)
    vars(meta).update({name: extra_meta[name] for name in extra_meta if name not in known})
    if func is None:
        return lambda wrapped: FunctionTool(wrapped, meta)
    return FunctionTool(func, meta)
