"""Running foreign code: tools, rules and callbacks, which may raise or hang."""

from __future__ import annotations

import contextvars
import inspect
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ._json import to_json_value
from ._shorten import shortened

__all__ = [
    "AT_WORK",
    "DaemonThreads",
    "described",
    "error_text",
    "guarded",
    "outcome",
    "settled",
    "traced",
]

_MOST_INNER = 20
"""Exceptions of a group that a message names."""
_MOST_FRAMES = 20
_MOST_TRACED = 20_000
"""Characters of a traceback."""
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


def error_text(error: BaseException) -> str:
    """What an exception says, as JSON can hold it; the type's name if it says nothing."""
    return _said(error) or type(error).__name__


def described(error: BaseException) -> str:
    """Type and message of an exception, even of one that cannot say its message."""
    text, kind = _said(error), type(error).__name__
    return f"{kind}: {text}" if text else kind


def _said(error: BaseException) -> str:
    """The message; that of a group names the exceptions in it."""
    text, _ = outcome(str, error)
    text = to_json_value(text) or ""
    # By attribute: the class of groups is built in from 3.11 on and a package before.
    inner = getattr(error, "exceptions", None)
    if not isinstance(inner, (list, tuple)):
        return text
    told = [described(e) for e in inner[:_MOST_INNER] if isinstance(e, BaseException)]
    if len(inner) > _MOST_INNER:
        told.append(f"and {len(inner) - _MOST_INNER} more")
    return f"{text}: {'; '.join(told)}" if told else text


def traced(error: BaseException) -> str:
    """The last 20 frames of an exception as text, as JSON can hold it.

    Its causes are told too, and from Python 3.11 on what is in a group.
    """
    told, _ = guarded(_formatted, error)
    return to_json_value(told) or described(error)


def _formatted(error: BaseException) -> str:
    found = traceback.TracebackException(
        type(error), error, error.__traceback__, limit=-_MOST_FRAMES
    )
    return shortened("".join(found.format()).rstrip(), _MOST_TRACED)


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
