"""Where the tools of a run are at work: threads that can be left behind, and a loop."""

from __future__ import annotations

import contextvars
import inspect
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ._foreign import AT_WORK, DaemonThreads, outcome, settled_alone
from ._limits import check_timeout

__all__ = ["LAST_GRACE", "LeftBehind", "RunThreads"]

_GRACE = 0.1
"""Seconds that work has to end by itself when a run cannot wait any longer."""
LAST_GRACE = 0.5
"""Seconds that the end of a run waits for the clean-up when something hangs."""
_LOOK_AROUND = 60.0
"""Seconds after which an idle thread looks whether its run is still there."""
# Ctrl-C does not reach a thread of Windows that waits for a lock.
_LONGEST_WAIT = 0.2 if os.name == "nt" else threading.TIMEOUT_MAX

_Outcome = tuple[Any, BaseException | None]


class _Signal:
    """Something happened. A bare lock: a handler of signals may set it at any moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let the one who waits go on."""
        with suppress(RuntimeError):  # It is set already.
            self._lock.release()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, and take it back; False when the time is up."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _LONGEST_WAIT if end is None else max(end - time.monotonic(), 0)
            if self._lock.acquire(timeout=min(left, _LONGEST_WAIT)):
                return True
            if end is not None and time.monotonic() >= end:
                return False


@dataclass(frozen=True)
class LeftBehind:
    """Work that was not waited for any longer."""

    cause: str
    """``timeout``, ``cancelled``, or ``budget_time`` when the run has no time left."""
    running: bool
    """False for a coroutine that ended when it was cancelled."""


class Work:
    """A call in a thread of a run, or (without one) what a run does in its own thread."""

    def __init__(self, threads: RunThreads, call: Callable[[], Any] | None = None) -> None:
        self.threads = threads
        self.found: _Outcome | None = None
        self.changed = _Signal()
        self.tasks: set[Any] = set()
        """Its coroutines; only the thread of the loop changes the set."""
        self.loop: _Loop | None = None
        self.is_left = False
        if call is not None:
            self._call = call
            self._context = contextvars.copy_context()
            # What the loop itself waits for must not wait for the loop.
            self._context.run(AT_WORK.set, None if threads.on_loop() else self)

    def do(self) -> None:
        """Make the call, in this thread."""
        found = self._context.run(outcome, self._call)
        del self._call, self._context  # The context holds this object.
        self.found = found

    def settled(self, value: Any) -> Any:
        """What an awaitable gives, on the loop of the run."""
        loop = self.threads.loop()
        if loop is None or loop.is_here():
            return settled_alone(value)
        self.loop = loop
        return loop.settled(value, self)

    def leave(self) -> _Signal:
        """Cancel its coroutines; the signal is set when they have been told."""
        self.is_left, told = True, _Signal()

        def cancel() -> None:
            for task in list(self.tasks):
                task.cancel()
            told.set()

        if self.loop is not None:
            self.loop.call(cancel)
        return told


class _Worker:
    """A daemon thread that does one piece of work after the other for an owner."""

    def __init__(self, owner: RunThreads) -> None:
        # A run that was never taken to its end leaves nobody who would end the thread.
        self._owner = weakref.ref(owner)
        self.inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self.is_busy = True
        threading.Thread(target=self._serve, name="qitos-tool", daemon=True).start()

    def _serve(self) -> None:
        while self._owner() is not None:
            with suppress(queue.Empty):
                work = self.inbox.get(timeout=_LOOK_AROUND)
                if work is None:
                    return
                work.do()
                self.is_busy = False
                work.changed.set()
                del work  # Not to be kept until the next one comes.


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self, owner: RunThreads) -> None:
        self._owner = weakref.ref(owner)
        self._loop: Any = None
        self._closed = False
        self._ready = _Signal()
        self._thread = threading.Thread(target=self._serve, name="qitos-loop", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._loop is None:
            raise RuntimeError("the event loop of the run could not be started")

    def _serve(self) -> None:
        # Only asynchronous code pays for the import.
        import asyncio

        async def stay() -> None:
            self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
            self._loop.set_default_executor(DaemonThreads())
            self._ready.set()
            while self._owner() is not None and not self._end.is_set():
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._end.wait(), _LOOK_AROUND)

        try:
            # Cancels the tasks that are left, and closes asynchronous generators.
            asyncio.run(stay())
        finally:
            self._ready.set()

    def is_here(self) -> bool:
        """Whether this thread is the loop's."""
        return threading.current_thread() is self._thread

    def is_usable(self) -> bool:
        """Whether it runs, and was not told to end."""
        return self._thread.is_alive() and not self._closed

    def call(self, work: Callable[[], Any]) -> bool:
        """Let the loop make a call; False when it has ended."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            return False
        return True

    def settled(self, value: Any, work: Work) -> Any:
        """What an awaitable gives; what it raises is raised here."""
        found: list[_Outcome] = []
        done = _Signal()

        async def settle() -> None:
            try:
                found.append((await value, None))
            except BaseException as error:  # SystemExit would end the loop.
                found.append((None, error))

        def start() -> None:
            task = self._loop.create_task(settle())
            work.tasks.add(task)
            task.add_done_callback(ended)
            if work.is_left:
                task.cancel()

        def ended(task: Any) -> None:
            if not found:  # It was cancelled before it began.
                found.append((None, RuntimeError("cancelled before it began")))
            if inspect.iscoroutine(value):
                value.close()
            work.tasks.discard(task)
            done.set()

        if not self.call(start):
            return settled_alone(value)
        try:
            done.wait()
        except BaseException:
            work.leave()
            raise
        result, error = found[0]
        if error is not None:
            raise error
        return result

    def close(self, wait: float = LAST_GRACE) -> None:
        """End it, and wait that long for what it still does."""
        self._closed = True
        if self.call(self._end.set):
            self._thread.join(wait)


class RunThreads:
    """The threads and the event loop in which the tools of one run work.

    Tools run one after the other in one daemon thread, calls that may overlap in
    several, so that the thread that called ``run`` can leave one behind that hangs: when
    the run is cancelled at once, when its time is used up, at Ctrl-C. The thread is
    the same from call to call until one was left behind. Contextvars of the caller are
    seen by a tool; what it sets itself is not seen outside. The loop begins with the first
    awaitable and ends with the run; a run within a tool shares it.

    Args:
        token: The run's ``CancelToken``, or None.
        time_left: Gives the seconds that the run has left, or None without a limit.
    """

    def __init__(
        self, token: Any = None, time_left: Callable[[], float | None] | None = None
    ) -> None:
        self._token = token
        self._time_left = time_left
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        self._loop: _Loop | None = None
        self._closed = self._hangs = False
        around = AT_WORK.get()
        shares = around is not None and not around.threads.on_loop()
        self._around: RunThreads | None = around.threads if shares else None
        self.caller = Work(self)
        """Stands for what is called in the run's own thread, such as approvals."""

    def run(
        self, call: Callable[[], Any], limit: float | None = None, *, patient: bool = False
    ) -> _Outcome | LeftBehind:
        """The value of a call in a thread and what it raised, one of them None.

        Waits at most ``limit`` seconds, and not when the run is to end at once; a
        ``patient`` call waits whatever the run is told. A call from within the work of
        the run is made where it is. Raises ``ValueError`` for a limit that is no number
        of seconds, and ``KeyboardInterrupt`` when that comes to the waiting thread.
        """
        check_timeout(limit)
        around = AT_WORK.get()
        within = around is not None and around.threads is self
        if limit is None and within and around is not self.caller:
            return outcome(call)
        work = Work(self, call)
        try:
            worker = self._start(work)
        except RuntimeError:  # The system has no thread to spare.
            if limit is not None:
                raise
            return outcome(call)
        try:
            cause = self._wait(work, limit, patient)
        except BaseException:
            work.leave()
            self._drop(worker)
            raise
        if cause is None:
            assert work.found is not None
            return work.found
        return self._give_up(work, worker, cause)

    def do(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call a part of the tools, such as their setup, where they work.

        Raises what it raises, and ``TimeoutError`` when it may be held up by a tool
        that was left behind.
        """
        limit = LAST_GRACE if self._hangs else None
        done = self.run(lambda: call(*args), limit, patient=True)
        if isinstance(done, LeftBehind):
            raise TimeoutError("did not end, as a tool before it did not")
        if done[1] is not None:
            raise done[1]
        return done[0]

    def pause(self, seconds: float) -> bool:
        """Wait; False when the run is to end meanwhile."""
        return self._wait(Work(self), seconds) == "timeout"

    def on_loop(self) -> bool:
        """Whether this is the thread of the run's event loop."""
        if self._around is not None:
            return self._around.on_loop()
        return self._loop is not None and self._loop.is_here()

    def loop(self) -> _Loop | None:
        """The event loop of the run; None when the run has ended."""
        if self._around is not None:
            return self._around.loop()
        with self._lock:
            if self._closed:
                return None
            if self._loop is None or not self._loop.is_usable():
                self._loop = _Loop(self)
            return self._loop

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

    def _start(self, work: Work) -> _Worker:
        with self._lock:
            # The first that is free, so that calls in turn stay in one thread.
            worker = next((w for w in self._workers if not w.is_busy), None)
            if worker is None:
                worker = _Worker(self)
                self._workers.append(worker)
            worker.is_busy = True
        worker.inbox.put(work)
        return worker

    def _drop(self, worker: _Worker) -> None:
        with self._lock:
            if worker in self._workers:
                self._workers.remove(worker)
            self._hangs = True
        worker.inbox.put(None)

    def _wait(self, work: Work, limit: float | None, patient: bool = False) -> str | None:
        """None when the work has ended, else why it is not waited for any longer."""
        end = None if limit is None else time.monotonic() + limit
        token = None if patient else self._token
        time_left = None if patient else self._time_left
        watched = getattr(token, "watched", None)
        if watched is not None:
            watched.add(work.changed.set)
        try:
            while work.found is None:
                if getattr(token, "mode", None) == "immediate":
                    return "cancelled"
                left, cause = None, None
                if end is not None:
                    left, cause = end - time.monotonic(), "timeout"
                run_left = time_left() if time_left is not None else None
                if run_left is not None and (left is None or run_left < left):
                    left, cause = run_left, "budget_time"
                if left is not None and left <= 0:
                    return cause
                work.changed.wait(left)
        finally:
            if watched is not None:
                watched.discard(work.changed.set)
        return None

    def _give_up(self, work: Work, worker: _Worker, cause: str) -> _Outcome | LeftBehind:
        """What became of work in the moment that it is given to end."""
        told = work.leave()
        end = time.monotonic() + _GRACE
        if work.loop is not None or cause != "timeout":
            while work.found is None and (left := end - time.monotonic()) > 0:
                work.changed.wait(left)
        if work.found is None:
            self._drop(worker)
            if work.loop is not None and not told.wait(0):
                work.loop.close(0)  # A coroutine blocks it; the next call gets another.
            return LeftBehind(cause, running=True)
        stopped = work.loop is not None and work.found[1] is not None
        if cause == "timeout" or stopped:
            return LeftBehind(cause, running=False)
        return work.found
