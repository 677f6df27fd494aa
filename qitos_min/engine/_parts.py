"""What an engine is given: a part that cannot work is refused, by its argument's name."""

from __future__ import annotations

import os
from typing import Any

from ..core._shorten import brief
from .hooks import HOOK_METHODS

_PLAIN = (str, bytes, int, float, os.PathLike, list, tuple, dict, set)
# What a part is called, what a run uses of it (with ``|`` any will do), and which class a
# path makes it of.
_KINDS: dict[str, tuple[str, str, str]] = {
    "agent": ("an AgentModule", "init_state decide reduce should_stop", ""),
    "checkpoint_store": ("a checkpoint store", "append", "FileCheckpointStore"),
    "critics": ("a Critic", "evaluate", ""),
    "env": ("an Env", "setup reset observe step is_terminal teardown", "HostEnv"),
    "history": ("a History", "append retrieve", ""),
    "history_policy": ("a HistoryPolicy", "roles max_messages", ""),
    "hooks": ("an EngineHook or have some of its methods", "|".join(HOOK_METHODS), ""),
    "parser": ("a function or have parse()", "parse|__call__", ""),
    "protocol": ("a Protocol or the name of one", "id system_prompt tools_argument parse", ""),
    "recovery_policy": ("a RecoveryPolicy", "reset handle", ""),
    "search": ("a Search", "expand score select prune backtrack", ""),
    "stop_criteria": ("a StopCriteria", "should_stop", ""),
    # A run reports it and asks nothing of it.
    "tracing_provider": ("an object that traces", "", ""),
    "trace_writer": ("a TraceWriter", "start write_event write_step finalize", "TraceWriter"),
}


def first(given: Any, source: Any, name: str, default: Any = None) -> Any:
    """What was given, else what a source has under a name, else the default."""
    found = getattr(source, name, None) if given is None else given
    return default if found is None else found


def checked(argument: str, value: Any, kind: type) -> Any:
    """A value of a kind, or None; else a ``TypeError``."""
    if value is None or isinstance(value, kind):
        return value
    raise TypeError(f"{argument} must be of type {kind.__name__}, got {type(value).__name__}")


def checked_part(argument: str, part: Any, *, label: str = "") -> Any:
    """A part that has what a run uses of it, or None; else a ``TypeError``."""
    if part is None and argument != "agent":
        return part
    what, uses, maker = _KINDS[argument]
    lacking = [
        name
        for name in uses.split()
        if all(getattr(part, one, None) is None for one in name.split("|"))
    ]
    if not lacking and not isinstance(part, type if uses else _PLAIN):
        return part
    plain = isinstance(part, _PLAIN)
    given = "a class" if isinstance(part, type) else type(part).__name__
    text = f"{label or argument} must be {what}, got {brief(part) if plain else given}"
    if maker and isinstance(part, (str, os.PathLike)):
        text += f"; {maker}({brief(os.fspath(part))}) makes one"
    elif not plain and given != "a class" and "|" not in uses:
        text += f", which lacks {', '.join(lacking)}"
    raise TypeError(text)


def checked_list(argument: str, parts: Any, *, kind: str = "") -> list[Any]:
    """A new list of such parts; a ``TypeError`` for any other value but None."""
    if not isinstance(parts, (list, tuple, type(None))):
        raise TypeError(f"{argument} must be a list, got {type(parts).__name__}")
    return [
        checked_part(kind or argument, part, label=f"{argument}[{index}]")
        for index, part in enumerate(parts or ())
    ]
