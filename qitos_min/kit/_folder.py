"""Files of one folder and of nothing outside it; a failed write leaves the old content.

A write goes to a new file, which is renamed under a lock that all writers of the folder share.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_SECRET = ".aws .azure .docker .env .git-credentials .gnupg .kube .netrc .npmrc .pypirc .ssh"
_PROTECTED = {*_SECRET.split(), ".git", ".hg", ".svn"}
# Neither is on Windows; O_NONBLOCK keeps a pipe from blocking.
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_Name = str | os.PathLike[str]


class FileRefusal(ValueError):
    """A file operation not carried out: a ``code``, if it has one, and a ``reason`` for people."""

    def __init__(self, code: str, reason: str, name: object = "") -> None:
        super().__init__(f"{str(name)!r}: {reason}" if name else reason)
        self.code, self.reason = code, reason


def need(fine: bool, code: str, reason: str, name: object = "") -> None:
    if not fine:
        raise FileRefusal(code, reason, name)


def is_protected(part: str) -> bool:
    # Upper case, and on Windows dots and spaces at the end, can lead to the same file.
    plain = part.rstrip(". ").casefold()
    return plain in _PROTECTED or plain.startswith(".env.")


def read_regular(path: Path, most: int = -1) -> bytes:
    """Up to ``most`` bytes (-1: all) of a regular file; OSError for a link or device."""
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | _CAREFUL)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path.name)
        return stream.read(most)


@contextmanager
def beside(path: Path, data: bytes, like: Path | None = None) -> Iterator[Path]:
    """A file in the same folder, with owner and mode of ``like``; gone at the end or renamed."""
    new, mode = path.with_name(f".{uuid.uuid4().hex}.tmp"), 0o600 if like else 0o666
    try:
        with open(new, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if like is not None:
            # Only root may give a file away, and on Windows nobody.
            with suppress(AttributeError, PermissionError):
                os.chown(new, like.stat().st_uid, like.stat().st_gid)
            shutil.copymode(like, new)
        yield new
    finally:
        with suppress(OSError):
            new.unlink()


class Folder:
    """The file operations of one existing folder; they raise ``FileRefusal`` and OSError."""

    def __init__(self, root: _Name, *, protect: bool = False) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise NotADirectoryError(f"workspace root {str(root)!r} is not an existing folder")
        self._protect = protect  # Keeps ``.git``, ``.env`` and so on out of reach.

    def find(self, name: _Name) -> Path:
        """The real path behind ``name``, which need not exist."""
        code = "path_outside_workspace" if self._protect else ""
        try:
            path = (self.root / name).resolve()
            parts = path.relative_to(self.root).parts
            if os.name == "nt" and any(":" in part for part in parts):
                raise ValueError("a.txt:hidden is another stream of a.txt")
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            # So do link loops, NUL characters and values that are no paths.
            raise FileRefusal(code, "outside the workspace", name) from error
        # A protected name may be a link to one that is not.
        spelt = Path(os.path.relpath(self.root / name, self.root)).parts
        hidden = self._protect and any(map(is_protected, (*spelt, *parts)))
        need(not hidden, "protected_path", "protected name", name)
        return path

    def read_bytes(self, name: _Name) -> bytes:
        return read_regular(self.find(name))

    def read_text(self, name: _Name) -> str:
        return self.read_bytes(name).decode("utf-8")

    def write_bytes(self, name: _Name, data: bytes, *, expected: bytes | None = None) -> None:
        """Give a file, which must hold ``expected`` if given, new content; make its folder."""
        path = self.find(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        replaces = expected is not None or path.exists()
        if replaces and not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(name))
        if replaces and not os.access(path, os.W_OK):
            raise OSError(errno.EACCES, "read-only file", str(name))
        with beside(path, data, path if replaces else None) as new, lock_of(path.parent):
            same = self.find(name) == path and (expected is None or read_regular(path) == expected)
            need(same, "stale_file", "file changed while it was written", name)
            os.replace(new, path)

    def write_text(self, name: _Name, content: str) -> None:
        self.write_bytes(name, content.encode("utf-8"))

    def exists(self, name: _Name) -> bool:
        return self.find(name).exists()

    def list_files(self, name: _Name = ".", limit: int = 200) -> list[str]:
        """Up to ``limit`` files below a folder, as ``/`` paths relative to the root."""
        start, found = self.find(name), []
        if not start.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(name))
        for folder, folders, files in os.walk(start):
            for names in (folders, files):
                names[:] = sorted(n for n in names if not (self._protect and is_protected(n)))
            found += [(Path(folder) / n).relative_to(self.root).as_posix() for n in files]
            if len(found) >= limit:
                break
        return found[:limit]


@contextmanager
def lock_of(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, one of 256 temporary files, which ends with the process."""
    number = crc32(os.fsencode(os.path.normcase(folder))) % 256
    user = getattr(os, "getuid", int)()  # nobody can write to another user's file
    with open(Path(tempfile.gettempdir()) / f"qitos-{user}-{number}.lock", "ab") as file:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
