"""What an engine is given: a part that cannot work is refused, by its argument's name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..core._shorten import brief
from .hooks import EngineHook, listeners

__all__ = [
    "checked_agent",
    "checked_hook",
    "checked_list",
    "checked_parser",
    "checked_part",
    "first",
]

_AGENT_METHODS = ("init_state", "decide", "reduce", "should_stop")
_PLAIN = (str, bytes, int, float, os.PathLike, list, tuple, dict, set)


@dataclass(frozen=True)
class _Kind:
    """What a part is called, what a run uses of it, and which class a path makes it of."""

    what: str
    uses: tuple[str, ...] = ()
    maker: str = ""


_KINDS = {
    "checkpoint_store": _Kind("a checkpoint store", ("append",), "FileCheckpointStore"),
    "env": _Kind(
        "an Env", ("setup", "reset", "observe", "step", "is_terminal", "teardown"), "HostEnv"
    ),
    "history": _Kind("a History", ("append", "retrieve")),
    "history_policy": _Kind("a HistoryPolicy"),
    "search": _Kind("a Search", ("expand", "score", "select", "prune", "backtrack")),
    "protocol": _Kind(
        "a Protocol or the name of one", ("id", "system_prompt", "tools_argument", "parse")
    ),
    "recovery_policy": _Kind("a RecoveryPolicy", ("reset", "handle")),
    # A run reports it and asks nothing of it.
    "tracing_provider": _Kind("an object that traces"),
    "trace_writer": _Kind(
        "a TraceWriter", ("start", "write_event", "write_step", "finalize"), "TraceWriter"
    ),
}


def first(given: Any, source: Any, name: str, default: Any = None) -> Any:
    """What was given, else what a source has under a name, else the default."""
    found = getattr(source, name, None) if given is None else given
    return default if found is None else found


def checked_part(argument: str, part: Any) -> Any:
    """A part that has what a run uses of it, or None; else a ``TypeError``."""
    kind, plain = _KINDS[argument], isinstance(part, (type, *_PLAIN))
    lacking = [name for name in kind.uses if getattr(part, name, None) is None]
    fits = not lacking and not isinstance(part, type) if kind.uses else not plain
    if part is None or fits:
        return part
    text = f"{argument} must be {kind.what}, got {_given(part)}"
    if kind.maker and isinstance(part, (str, os.PathLike)):
        text += f"; {kind.maker}({brief(os.fspath(part))}) makes one"
    elif not plain:
        text += f", which lacks {', '.join(lacking)}"
    raise TypeError(text)


def checked_parser(parser: Any) -> Any:
    """A parser, or None: something to call, or with a method ``parse``."""
    if not isinstance(parser, type):
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


def checked_agent(agent: Any) -> Any:
    """An agent; else a ``TypeError``."""
    lacking = [name for name in _AGENT_METHODS if not callable(getattr(agent, name, None))]
    if lacking or isinstance(agent, type):
        raise TypeError(f"agent must be an AgentModule, got {_type_of(agent)}")
    return agent


def checked_list(argument: str, parts: Any, method: str | None = None) -> list[Any]:
    """A new list of parts that have a method, or that are hooks if it is None."""
    if parts is None:
        return []
    if not isinstance(parts, (list, tuple)):
        raise TypeError(f"{argument} must be a list, got {type(parts).__name__}")
    for index, part in enumerate(parts):
        label, what = f"{argument}[{index}]", _type_of(part)
        if isinstance(part, type):
            raise TypeError(f"{label} must be an instance, got {what}")
        if method is None:
            checked_hook(label, part)
        elif not callable(getattr(part, method, None)):
            raise TypeError(f"{label} has no {method}() method, got {what}")
    return list(parts)


def _type_of(part: Any) -> str:
    return "a class" if isinstance(part, type) else type(part).__name__


def _given(part: Any) -> str:
    return brief(part) if isinstance(part, _PLAIN) else _type_of(part)
