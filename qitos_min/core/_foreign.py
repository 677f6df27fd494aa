"""Running foreign code: tools, rules and callbacks, which may raise or hang."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ._limits import check_timeout

__all__ = ["described", "guarded", "in_thread", "outcome", "settled"]


def outcome(work: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """The value of a call and what it raised; one of the two is None."""
    try:
        return work(*args), None
    except BaseException as error:  # Whatever it is, it becomes part of a record.
        return None, error


def guarded(work: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """Like :func:`outcome`, but an interrupt by the user is raised at once."""
    value, error = outcome(work, *args)
    if isinstance(error, KeyboardInterrupt):
        raise error
    return value, error


def described(error: BaseException) -> str:
    """Type and message of an exception, even of one that cannot say its message."""
    text, _ = outcome(str, error)
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


def in_thread(
    work: Callable[[], Any], limit: float | None = None
) -> tuple[Any, BaseException | None] | None:
    """The outcome of work in a thread of its own; None when ``limit`` seconds passed.

    The thread is a daemon, so that the process can end while it hangs. Raises
    ``ValueError`` for a limit that is no number of seconds, before the work begins.
    """
    check_timeout(limit)
    found: list[tuple[Any, BaseException | None]] = []
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=lambda: found.append(outcome(context.run, work)),
        name="qitos-tool",
        daemon=True,
    )
    thread.start()
    thread.join(None if limit is None else min(limit, threading.TIMEOUT_MAX))
    return found[0] if found else None


class _DaemonThreads(ThreadPoolExecutor):
    """Gives each piece of work a daemon thread; a pool's own are joined at exit."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            value, error = outcome(lambda: work(*args, **named))
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        threading.Thread(target=run, name="qitos-tool", daemon=True).start()
        return future


def settled(value: Any) -> Any:
    """A value, or what it gives when it has to be awaited."""
    if not inspect.isawaitable(value):
        return value
    # Only asynchronous code pays for the import.
    import asyncio

    async def settle() -> Any:
        asyncio.get_running_loop().set_default_executor(_DaemonThreads())
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(settle())
    # A loop runs in this thread and cannot be entered again.
    result, error = in_thread(lambda: asyncio.run(settle())) or (None, None)
    if error is not None:
        raise error
    return result
