"""Running foreign code: tools, rules and callbacks, which may raise or hang."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["AT_WORK", "DaemonThreads", "described", "guarded", "outcome", "settled"]

AT_WORK: contextvars.ContextVar[Any] = contextvars.ContextVar("AT_WORK", default=None)
"""The work of a run in which this code is called (``core._threads.Work``), if any."""


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


class DaemonThreads(ThreadPoolExecutor):
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
    """A value, or what it gives when it has to be awaited.

    In the work of a run it is awaited on the run's own event loop, so that a client
    opened in one call works in the next; elsewhere on a loop of its own.
    """
    if not inspect.isawaitable(value):
        return value
    work = AT_WORK.get()
    return settled_alone(value) if work is None else work.settled(value)


def settled_alone(value: Any) -> Any:
    """The same on a loop that lives for this value only."""
    # Only asynchronous code pays for the import.
    import asyncio

    async def settle() -> Any:
        AT_WORK.set(None)  # The run's loop may be waiting for this value.
        asyncio.get_running_loop().set_default_executor(DaemonThreads())
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(settle())
    # A loop runs in this thread and cannot be entered again.
    found: list[tuple[Any, BaseException | None]] = []
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=lambda: found.append(outcome(context.run, asyncio.run, settle())),
        name="qitos-tool",
        daemon=True,
    )
    thread.start()
    thread.join()
    result, error = found[0]
    if error is not None:
        raise error
    return result
