"""Runs to look at, on a page or in a terminal; they are read without the runtime."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from snowl_compat import SnowlCompatError

from ._model import Run, load, printable
from ._page import page
from ._terminal import terminal

__all__ = ["show", "view"]


def view(runs: Sequence[str], output: str | None = None) -> int:
    """Write the page of runs, print its path, and return the exit code of a command.

    The page goes to ``view.html`` beside the first run unless ``output`` names a file. 1 is a run
    that cannot be read (the page has the others), or the file cannot be written; a line says so.
    """
    found = [run for run in map(_loaded, runs) if run is not None]
    if output is None:
        folder = runs[0] if os.path.isdir(runs[0]) else os.path.dirname(runs[0])
        output = os.path.join(folder, "view.html")
    try:
        if found:
            with open(output, "wb") as file:
                file.write(page(found).encode("utf-8"))
            _put(sys.stdout, output)
    except OSError as error:
        _put(sys.stderr, f"{output}: cannot be written: {error.strerror}")
        return 1
    return int(len(found) < len(runs))


def show(run: str, width: int | None = None) -> int:
    """Print a run in ``width`` columns, or the terminal's; the exit code is as of ``view``."""
    found = _loaded(run)
    if found is not None:
        width = max(width or shutil.get_terminal_size().columns, 40)
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        _put(sys.stdout, terminal(found, width, colour=colour))
    return int(found is None)


def _loaded(run: str) -> Run | None:
    try:
        return load(run)
    except SnowlCompatError as error:
        _put(sys.stderr, printable(str(error)))
        return None


def _put(stream: TextIO, text: str) -> None:
    try:
        # UTF-8 whatever the locale says.
        stream.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
        stream.flush()
    except BrokenPipeError:
        # Whoever read us has enough; the interpreter's last flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
