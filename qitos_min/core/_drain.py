"""The values of a tool that yields them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from io import IOBase
from typing import Any

from ._threads import settled

__all__ = ["drained"]

_MAX_YIELDED = 10_000


def drained(value: Any, given: list[Any]) -> Any:
    """A value, or the list of those that a generator or another iterator gives.

    They are added to ``given`` as they come, so that a failure costs none of them. A
    value that a generator returns at its end comes last.
    """

    def take(item: Any) -> None:
        if len(given) == _MAX_YIELDED:
            raise ValueError(f"the tool yielded more than {_MAX_YIELDED} values")
        given.append(item)

    if isinstance(value, AsyncIterator):
        settled(_drain(value, take))
        return given
    if not isinstance(value, Iterator) or isinstance(value, IOBase):
        return value
    try:
        while True:
            take(next(value))
    except StopIteration as end:
        if end.value is not None:
            take(end.value)
    finally:
        if isinstance(value, Generator):
            value.close()
    return given


async def _drain(value: AsyncIterator[Any], take: Callable[[Any], None]) -> None:
    try:
        async for item in value:
            take(item)
    finally:
        if isinstance(value, AsyncGenerator):
            await value.aclose()
