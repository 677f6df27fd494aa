"""What an engine is given: a part that cannot work is refused, by its argument's name."""

from __future__ import annotations

import os
from typing import Any

from ..core._shorten import brief
from .hooks import EngineHook, listeners

_PLAIN = (str, bytes, int, float, os.PathLike, list, tuple, dict, set)
# What a part is called, what a run uses of it, and which class a path makes it of.
_KINDS: dict[str, tuple[str, str, str]] = {
    "agent": ("an AgentModule", "init_state decide reduce should_stop", ""),
    "checkpoint_store": ("a checkpoint store", "append", "FileCheckpointStore"),
    "env": ("an Env", "setup reset observe step is_terminal teardown", "HostEnv"),
    "history": ("a History", "append retrieve", ""),
    "history_policy": ("a HistoryPolicy", "roles max_messages", ""),
    "protocol": ("a Protocol or the name of one", "id system_prompt tools_argument parse", ""),
    "recovery_policy": ("a RecoveryPolicy", "reset handle", ""),
    "search": ("a Search", "expand score select prune backtrack", ""),
    # A run reports it and asks nothing of it.
    "tracing_provider": ("an object that traces", "", ""),
    "trace_writer": ("a TraceWriter", "start write_event write_step finalize", "TraceWriter"),
}


def first(given: Any, source: Any, name: str, default: Any = None) -> Any:
    """What was given, else what a source has under a name, else the default."""
    found = getattr(source, name, None) if given is None else given
    return default if found is None else found


def check_type(argument: str, value: Any, kind: type) -> None:
    """Raise ``TypeError`` for what is neither None nor of a kind."""
    if value is not None and not isinstance(value, kind):
        what = type(value).__name__
        raise TypeError(f"{argument} must be of type {kind.__name__}, got {what}")


def checked_part(argument: str, part: Any) -> Any:
    """A part that has what a run uses of it, or None; else a ``TypeError``."""
    what, uses, maker = _KINDS[argument]
    plain = isinstance(part, (type, *_PLAIN))
    lacking = [name for name in uses.split() if getattr(part, name, None) is None]
    fits = not lacking and not isinstance(part, type) if uses else not plain
    if fits or part is None and argument != "agent":
        return part
    text = f"{argument} must be {what}, got {_given(part)}"
    if maker and isinstance(part, (str, os.PathLike)):
        text += f"; {maker}({brief(os.fspath(part))}) makes one"
    elif not plain and argument != "agent":
        text += f", which lacks {', '.join(lacking)}"
    raise TypeError(text)


def checked_parser(parser: Any) -> Any:
    """A parser, or None: something to call, or with a method ``parse``."""
    if parser is None or not isinstance(parser, type):
        if parser is None or callable(getattr(parser, "parse", parser)):
            return parser
    raise TypeError(f"parser must be a function or have parse(), got {_given(parser)}")


def checked_hook(argument: str, hook: Any) -> Any:
    """A hook that listens to something; else a ``TypeError``."""
    known = isinstance(hook, EngineHook) or bool(listeners([hook]))
    if known and not isinstance(hook, type):
        return hook
    raise TypeError(
        f"{argument} must be an EngineHook or have some of its methods, got {_given(hook)}"
    )


def checked_list(argument: str, parts: Any, method: str | None = None) -> list[Any]:
    """A new list of parts that have a method, or that are hooks if it is None."""
    if not isinstance(parts, (list, tuple, type(None))):
        raise TypeError(f"{argument} must be a list, got {type(parts).__name__}")
    for index, part in enumerate(parts or ()):
        label, what = f"{argument}[{index}]", _type_of(part)
        if isinstance(part, type):
            raise TypeError(f"{label} must be an instance, got {what}")
        if method is None:
            checked_hook(label, part)
        elif not callable(getattr(part, method, None)):
            raise TypeError(f"{label} has no {method}() method, got {what}")
    return list(parts or ())


def _type_of(part: Any) -> str:
    return "a class" if isinstance(part, type) else type(part).__name__


def _given(part: Any) -> str:
    return brief(part) if isinstance(part, _PLAIN) else _type_of(part)
