"""Where the tools of a run are at work: threads that can be left behind, and a loop."""

from __future__ import annotations

import contextvars
import functools
import inspect
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from ._contract import check_timeout
from ._foreign import outcome

_GRACE = 0.1  # Seconds that work has to end by itself when a run cannot wait any longer.
LAST_GRACE = 0.5  # Seconds that the end of a run waits for the clean-up.
# Ctrl-C does not reach a thread of Windows that waits for a lock.
_LONGEST_WAIT = 0.2 if os.name == "nt" else 3600.0
# The work of a run in which this code is called, if any.
AT_WORK: contextvars.ContextVar[Work | None] = contextvars.ContextVar("AT_WORK", default=None)

_Outcome = tuple[Any, BaseException | None]


def _thread(work: Callable[[], Any], name: str = "qitos-tool") -> threading.Thread:
    """A started daemon thread, which does not keep the process from its exit."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


class DaemonThreads(futures.ThreadPoolExecutor):
    """Gives each piece of work a daemon thread; a pool's own are joined at exit."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        future: futures.Future[Any] = futures.Future()

        def run() -> None:
            value, error = outcome(lambda: work(*args, **named))
            future.set_result(value) if error is None else future.set_exception(error)

        future.set_running_or_notify_cancel()
        _thread(run)
        return future


@dataclass(frozen=True)
class LeftBehind:
    cause: str  # ``timeout``, ``cancelled``, or ``budget_time`` when the run has no time left.
    running: bool  # False for a coroutine that ended when it was cancelled.


class Work:
    """A call in a thread of a run, or what a run does in its own thread."""

    def __init__(self, threads: RunThreads) -> None:
        self.threads = threads
        self.found: _Outcome | None = None
        # Of all signals between threads only this queue's may be sent by a handler of signals.
        self.changed: SimpleQueue[bool] = SimpleQueue()
        self.wake = functools.partial(self.changed.put, True)
        self.tasks: set[Any] = set()  # Its coroutines; only the thread of the loop changes the set.
        self.loop: _Loop | None = None
        self.is_left = False

    def has_changed(self, end: float) -> bool:
        """Whether a signal came before the clock came to ``end``."""
        while (left := end - time.monotonic()) > 0:
            with suppress(Empty):
                return self.changed.get(timeout=min(left, _LONGEST_WAIT))
        return False

    def settled(self, value: Any) -> Any:
        loop = self.threads.loop()
        if loop is None or self.threads.on_loop():
            return settled_alone(value)
        import asyncio

        async def settle() -> _Outcome:
            task = asyncio.current_task()
            self.tasks.add(task)
            try:
                if self.is_left:
                    raise asyncio.CancelledError
                return await value, None
            except BaseException as error:  # SystemExit would end the loop.
                return None, error
            finally:
                self.tasks.discard(task)
                if inspect.iscoroutine(value):
                    value.close()

        self.loop, begun = loop, settle()
        try:
            future = asyncio.run_coroutine_threadsafe(begun, loop.loop)
        except RuntimeError:  # The loop has ended.
            begun.close()
            return settled_alone(value)
        try:
            while not future.done():
                futures.wait([future], _LONGEST_WAIT)
        except KeyboardInterrupt:
            self.leave()
            raise
        return _given(future.result())

    def leave(self) -> None:
        self.is_left = True
        if self.loop is not None:
            self.loop.call(lambda: [task.cancel() for task in list(self.tasks)])


class _Worker:
    """The inbox of a daemon thread that does one piece of work after the other."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.is_busy = True
        _thread(self._serve)

    def _serve(self) -> None:
        while (given := self.inbox.get()) is not None:
            work, context, call = given
            work.found = context.run(outcome, call)
            self.is_busy = False
            work.wake()
            del given, work, context, call  # Not to be kept until the next one comes.


class _Loop:
    def __init__(self, owner: RunThreads) -> None:
        import asyncio  # Only asynchronous code pays for it.

        started: SimpleQueue[Any] = SimpleQueue()

        async def stay() -> None:
            loop, end = asyncio.get_running_loop(), asyncio.Event()
            loop.set_default_executor(DaemonThreads())
            started.put((loop, end))
            await end.wait()

        def serve() -> None:
            # This cancels what is left, and closes generators.
            started.put(outcome(lambda: asyncio.run(stay())))

        self.thread = _thread(serve, name="qitos-loop")
        self.is_closed = False
        self.loop, self._end = started.get()
        if self.loop is None:
            raise RuntimeError("the event loop of the run could not be started") from self._end
        weakref.finalize(owner, self.call, self._end.set)

    def call(self, work: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # The loop has ended.
            self.loop.call_soon_threadsafe(work)

    def close(self, wait: float) -> None:
        self.is_closed = True
        self.call(self._end.set)
        self.thread.join(wait)


class RunThreads:
    """The daemon threads and the event loop in which the tools of one run work.

    A tool that hangs is left behind when ``token`` or Ctrl-C says so, or no time is left.
    """

    def __init__(self, token: Any = None, time_left: Callable[[], Any] | None = None) -> None:
        self._token, self._time_left = token, time_left
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        self._loop: _Loop | None = None
        self._closed = self._hangs = False
        around = AT_WORK.get()
        shares = around is not None and not around.threads.on_loop()
        self._root: RunThreads = around.threads._root if around and shares else self
        self.caller = Work(self)  # For what is called in the run's own thread, as approvals.

    def run(
        self, call: Callable[[], Any], limit: float | None = None, *, patient: bool = False
    ) -> _Outcome | LeftBehind:
        """The value of a call in a thread, or what it raised; raises ``KeyboardInterrupt``.

        Waits at most ``limit`` seconds, and longer than the run lasts only if ``patient``.
        """
        check_timeout(limit)
        around = AT_WORK.get()
        within = around is not None and around.threads is self and around is not self.caller
        if limit is None and within:  # Which would wait for itself.
            return outcome(call)
        work, worker = self.start(call)
        try:
            cause = self.wait(work, limit, patient)
        except BaseException:
            work.leave()
            self._drop(worker)
            raise
        return work.found or self._give_up(work, worker, cause or "")

    def start(self, call: Callable[[], Any]) -> tuple[Work, _Worker]:
        """Begin a call in a thread; ``RuntimeError`` where the system has none to spare."""
        work, context = Work(self), contextvars.copy_context()
        # What the loop itself waits for must not wait for the loop.
        context.run(AT_WORK.set, None if self.on_loop() else work)
        with self._lock:
            # The first that is free, so that calls in turn stay in one thread.
            worker = next((w for w in self._workers if not w.is_busy), None)
            if worker is None:
                worker = _Worker()
                self._workers.append(worker)
                # A run that was never taken to its end leaves nobody to end the thread.
                weakref.finalize(self, worker.inbox.put, None)
            worker.is_busy = True
        worker.inbox.put((work, context, call))
        return work, worker

    def wait(self, work: Work, limit: float | None = None, patient: bool = False) -> str | None:
        """None when the work has ended, else why it is not waited for any longer."""
        limit_end = math.inf if limit is None else time.monotonic() + limit
        token = None if patient else self._token
        watched: set[Any] = getattr(token, "watched", set())
        watched.add(work.wake)
        try:
            while work.found is None:
                if getattr(token, "mode", None) == "immediate":
                    return "cancelled"
                left = None if patient or self._time_left is None else self._time_left()
                now = time.monotonic()
                time_end = math.inf if left is None else now + left
                end, cause = min((limit_end, "timeout"), (time_end, "budget_time"))
                if end <= now:
                    return cause
                work.has_changed(end)
        finally:
            watched.discard(work.wake)
        return None

    def do(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call a part of the tools, as their setup; ``TimeoutError`` if one left holds it up."""
        done = self.run(lambda: call(*args), LAST_GRACE if self._hangs else None, patient=True)
        if isinstance(done, LeftBehind):
            raise TimeoutError("did not end, as a tool before it did not")
        return _given(done)

    def pause(self, seconds: float) -> bool:
        """Wait; False when the run is to end meanwhile."""
        return self.wait(Work(self), seconds) == "timeout"

    def on_loop(self) -> bool:
        loop = self._root._loop
        return loop is not None and loop.thread is threading.current_thread()

    def loop(self) -> _Loop | None:
        """The event loop of the run; None when the run has ended."""
        root = self._root
        with root._lock:
            if not root._closed and (root._loop is None or root._loop.is_closed):
                root._loop = _Loop(root)
            return root._loop

    def close(self, wait: float = LAST_GRACE) -> None:
        """Let the threads end; wait so many seconds for the clean-up of the loop."""
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, []
            loop, self._loop = self._loop, None
            self.caller.loop = None
        for worker in workers:
            worker.inbox.put(None)
        if loop is not None:
            loop.close(min(wait, _GRACE) if self._hangs else wait)

    def _drop(self, worker: _Worker) -> None:
        with self._lock:
            if worker in self._workers:
                self._workers.remove(worker)
            self._hangs = True
        worker.inbox.put(None)

    def _give_up(self, work: Work, worker: _Worker, cause: str) -> _Outcome | LeftBehind:
        """What became of work in the moment that it is given to end."""
        work.leave()
        end = time.monotonic() + (_GRACE if work.loop is not None or cause != "timeout" else 0)
        while work.found is None and work.has_changed(end):
            pass
        if work.found is None:
            self._drop(worker)
            if work.loop is not None:
                work.loop.close(0)  # A coroutine may block it; the next call gets another.
            return LeftBehind(cause, running=True)
        stopped = cause == "timeout" or (work.loop is not None and work.found[1] is not None)
        return LeftBehind(cause, running=False) if stopped else work.found


def _given(found: _Outcome) -> Any:
    value, error = found
    if error is not None:
        raise error
    return value


def settled(value: Any) -> Any:
    """A value, or what it gives when awaited: in a run on the run's own event loop."""
    if not inspect.isawaitable(value):
        return value
    work = AT_WORK.get()
    return settled_alone(value) if work is None else work.settled(value)


def settled_alone(value: Any) -> Any:
    """What an awaitable gives on a loop that lives for it only."""
    threads = RunThreads()
    threads._root = threads
    try:
        return threads.caller.settled(value)
    finally:
        threads.close()
