"""Files of one folder and of nothing outside it; a failed write leaves the old content.

Links and ``..`` are followed before a path is compared with the folder, and paths are
never compared as text. A write goes to a new file beside the old one, looks once more
at what is to be replaced, and renames; these two under a lock that all writers of the
file's real folder share, in whatever object, process or spelling. If a parent folder becomes a link between these
two, the new file is not beside the path any more and the rename fails.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ._lock import lock_of

__all__ = [
    "FileRefusal",
    "Folder",
    "PROTECTED_NAMES",
    "is_protected",
    "read_regular",
    "write_new",
]

PROTECTED_NAMES = frozenset(
    ".aws .azure .docker .env .git .git-credentials .gnupg .hg .kube .netrc .npmrc"
    " .pypirc .ssh .svn".split()
)

# O_BINARY is Windows' alone, the others are not; O_NONBLOCK keeps a pipe from blocking.
_PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _PLAIN | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN


class FileRefusal(ValueError):
    """A file operation that was not carried out.

    ``code`` is for programs, ``reason`` for people; ``name`` is the file, if known.
    """

    def __init__(self, code: str, reason: str, name: str = "") -> None:
        super().__init__(f"{name!r}: {reason}" if name else reason)
        self.code = code
        self.reason = reason


def is_protected(part: str) -> bool:
    """Whether a file or folder name holds secrets or a repository's own data.

    Upper case, and on Windows dots and spaces at the end, can lead to the same file.
    """
    plain = part.rstrip(". ").casefold()
    return plain in PROTECTED_NAMES or plain.startswith(".env.")


def read_regular(path: Path, most: int = -1) -> bytes:
    """The first ``most`` bytes of a regular file, or (-1) all of them.

    OSError for a link, a folder or a device.
    """
    descriptor = os.open(path, _READ)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path.name)
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(most)
    finally:
        os.close(descriptor)


class Folder:
    """The file operations of one folder.

    Every ``name`` is relative to the folder, or absolute and inside it. With
    ``protect``, names such as ``.git`` and ``.env`` are out of reach. Every operation
    raises ``FileRefusal`` with the code ``path_outside_workspace``, ``protected_path``
    or ``stale_file``, and OSError for what the system refuses; the constructor raises
    NotADirectoryError when ``root`` is not an existing folder.
    """

    def __init__(self, root: str | os.PathLike[str], *, protect: bool = False) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise NotADirectoryError(
                f"workspace root {os.fspath(root)!r} is not an existing folder"
            )
        self._protect = protect
        self._mine = threading.local()

    def find(self, name: str | os.PathLike[str]) -> Path:
        """The real path behind ``name``, which need not exist."""
        outside = FileRefusal(
            "path_outside_workspace", "outside the workspace", str(name)
        )
        try:
            path = (self.root / name).resolve()
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            # Link loops, NUL characters and values that are no paths lead nowhere.
            raise outside from error
        if not path.is_relative_to(self.root):
            raise outside
        parts = path.relative_to(self.root).parts
        if os.name == "nt" and any(":" in part for part in parts):
            raise outside  # "a.txt:hidden" names another stream of a.txt
        if self._protect and any(map(is_protected, (*self._spelt(name), *parts))):
            raise FileRefusal("protected_path", "protected name", str(name))
        return path

    def _spelt(self, name: str | os.PathLike[str]) -> tuple[str, ...]:
        # A protected name may be a link to one that is not.
        path = Path(name)
        inside = path.is_relative_to(self.root)
        return (path.relative_to(self.root) if inside else path).parts

    def read_bytes(self, name: str | os.PathLike[str]) -> bytes:
        """The content of a regular file."""
        path = self.find(name)
        data = read_regular(path)
        if self.find(name) != path:
            raise FileRefusal("stale_file", "path changed while it was read", str(name))
        return data

    def read_text(self, name: str | os.PathLike[str]) -> str:
        """The content of a UTF-8 file, line ends as they are.

        Raises:
            UnicodeDecodeError: The file is not UTF-8.
        """
        return self.read_bytes(name).decode("utf-8")

    @contextmanager
    def locked(self, name: str | os.PathLike[str]) -> Iterator[None]:
        """Keep other writers away from the folder of a file, if there is one.

        The thread that is inside may enter again. Raises ``TimeoutError`` when others
        stay for 10 s. Programs that take no lock, such as commands, are not kept away.
        """
        folder = self.find(name).parent
        mine = vars(self._mine).setdefault("folders", set())
        if folder in mine or not folder.is_dir():
            yield
            return
        with lock_of(folder):
            mine.add(folder)
            try:
                yield
            finally:
                mine.discard(folder)

    def write_bytes(
        self,
        name: str | os.PathLike[str],
        data: bytes,
        *,
        expected: bytes | None = None,
    ) -> None:
        """Give a file new content; missing parent folders are made.

        With ``expected`` the file must hold these bytes until it is replaced.
        """
        path = self.find(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.stat() if expected is not None or path.exists() else None
        if before is not None and not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(name))
        if before is not None and not os.access(path, os.W_OK):
            # A rename would replace a file that may not be written.
            raise OSError(errno.EACCES, "read-only file", str(name))
        temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
        try:
            write_new(temporary, data, path if before else None)
            with self.locked(name):
                if self.find(name) != path or (
                    expected is not None and read_regular(path) != expected
                ):
                    raise FileRefusal(
                        "stale_file", "file changed while it was written", str(name)
                    )
                os.replace(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink()

    def write_text(self, name: str | os.PathLike[str], content: str) -> None:
        """Give a file new content as UTF-8, line ends as they are."""
        self.write_bytes(name, content.encode("utf-8"))

    def exists(self, name: str | os.PathLike[str]) -> bool:
        """Whether there is a file or folder of this name."""
        return self.find(name).exists()

    def list_files(
        self, name: str | os.PathLike[str] = ".", limit: int = 200
    ) -> list[str]:
        """Up to ``limit`` files below a folder, as ``/`` paths relative to the root."""
        start, found = self.find(name), []
        if not start.is_dir():
            raise OSError(errno.ENOTDIR, "not a folder", str(name))
        for folder, folders, files in os.walk(start):
            if self._protect:
                folders[:] = [part for part in folders if not is_protected(part)]
                files = [part for part in files if not is_protected(part)]
            folders.sort()
            for file in sorted(files):
                if len(found) >= limit:
                    return found
                found.append((Path(folder) / file).relative_to(self.root).as_posix())
        return found


def write_new(path: Path, data: bytes, like: Path | None) -> None:
    """Write a file that must not exist yet, with owner, mode and so on of ``like``."""
    descriptor = os.open(path, _CREATE, 0o600 if like else 0o666)
    with open(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)
    if like is None:
        return
    wanted, made = like.stat(), path.stat()
    if (wanted.st_uid, wanted.st_gid) != (made.st_uid, made.st_gid):
        with suppress(PermissionError):  # only root may give a file away
            os.chown(path, wanted.st_uid, wanted.st_gid)
    shutil.copystat(like, path)
    os.utime(path)
