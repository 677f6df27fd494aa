"""Replaces several files of one folder together: all of them, or none."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..._folder import write_new

__all__ = ["NewFile", "RollbackFailed", "swap_files"]


@dataclass(frozen=True)
class NewFile:
    """What one file of the folder is to become."""

    name: str
    body: bytes
    mode: int
    """Permission bits of a file that is new; a replaced one keeps its own."""
    replaces: bool
    """Whether a file of this name is there already."""


class RollbackFailed(Exception):
    """Some files are new and some are old, and it could not be helped.

    ``kept`` gives, for each file that stayed new, the file that has its old content,
    or None when it had none.
    """

    def __init__(self, kept: dict[str, str | None]) -> None:
        super().__init__(f"not rolled back: {', '.join(kept)}")
        self.kept = kept


def swap_files(folder: Path, files: list[NewFile], still_wanted: Callable[[str], object]) -> None:
    """Put all ``files`` in their places.

    ``still_wanted`` is asked by name before a file is written beside its place, and
    right before it is moved there; it raises to stop. Whatever is raised half way is
    raised again when the old files are back in place.

    Raises:
        RollbackFailed: They are not.
    """
    steps = [_Step(folder, file) for file in files]
    stuck: list[_Step] = []
    try:
        for step in steps:
            still_wanted(step.file.name)
            step.stage()
        for step in steps:
            still_wanted(step.file.name)
            step.publish()
    except BaseException as error:
        stuck = [step for step in reversed(steps) if not step.undo()]
        if stuck:
            raise RollbackFailed({s.file.name: s.kept_in for s in stuck}) from error
        raise
    finally:
        for step in steps:
            step.clean(keep_old=step in stuck)


class _Step:
    """One file on its way: written beside its place, then moved there, perhaps back."""

    def __init__(self, folder: Path, file: NewFile) -> None:
        tag = uuid.uuid4().hex
        self.file = file
        self._target = folder / file.name
        self._new = folder / f".{tag}.new"
        self._old = folder / f".{tag}.old"
        self.kept_in = self._old.name if file.replaces else None
        self._inode: int | None = None

    def stage(self) -> None:
        """Write the new file beside its place, and keep the old one."""
        like = self._target if self.file.replaces else None
        write_new(self._new, self.file.body, like)
        if like is None:
            os.chmod(self._new, self.file.mode)
        else:
            os.link(self._target, self._old)
        self._inode = self._new.lstat().st_ino

    def publish(self) -> None:
        """Move the new file to its place."""
        if self.file.replaces:
            os.replace(self._new, self._target)
        else:
            os.link(self._new, self._target)  # fails when there is a file by now

    def undo(self) -> bool:
        """Put the old file back if the new one is in its place; False if that fails."""
        try:
            found = os.path.lexists(self._target)
            if found and self._target.lstat().st_ino == self._inode:
                if self.file.replaces:
                    os.replace(self._old, self._target)
                else:
                    os.unlink(self._target)
        except OSError:
            return False
        return True

    def clean(self, *, keep_old: bool) -> None:
        """Remove what lies beside the place."""
        for path in (self._new,) if keep_old else (self._new, self._old):
            with suppress(OSError):
                os.unlink(path)
