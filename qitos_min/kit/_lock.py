"""One lock for each real folder, between threads, objects and processes."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["lock_of"]


@contextmanager
def lock_of(folder: Path, *, most: float = 10.0) -> Iterator[None]:
    """Hold the system's lock of a folder, which ends with the process that has it.

    The folder itself is locked, so that nothing lies about and every way to it leads to
    one lock. Where that cannot be, as on Windows, it is a file in the folder for
    temporary files, named after the real path. Raises ``TimeoutError`` when others
    hold it for longer than ``most`` seconds, and OSError when nothing can be locked.
    """
    end, pause = time.monotonic() + most, 0.001
    descriptor, held = _begin(folder)
    try:
        while not held:
            if time.monotonic() >= end:
                text = f"another writer has kept its folder locked for {most:g} s"
                raise TimeoutError(errno.ETIMEDOUT, text, str(folder))
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
            held = _take(descriptor)
        yield
    finally:
        if held:  # A child process may have the descriptor too: closing is not enough.
            _give_back(descriptor)
        os.close(descriptor)


def _begin(folder: Path) -> tuple[int, bool]:
    """An open descriptor that stands for a folder, and whether it is locked already."""
    if sys.platform != "win32":
        # Some folders can be written to and not read, some file systems lock no folders.
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                return descriptor, _take(descriptor)
            except OSError:
                os.close(descriptor)
    descriptor = _open_file(folder)
    return descriptor, _take(descriptor)


def _open_file(folder: Path) -> int:
    name = os.fsencode(os.path.normcase(folder))
    path = Path(tempfile.gettempdir()) / f"qitos-{hashlib.sha256(name).hexdigest()[:32]}.lock"
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
    try:
        # Linux lets nobody "create" the file of another user in a shared folder.
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        with suppress(OSError):
            os.chmod(path, 0o666)  # Other users share the lock, whatever the umask.
        return descriptor


def _take(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        raise
    return True


def _give_back(descriptor: int) -> None:
    if sys.platform == "win32":
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
