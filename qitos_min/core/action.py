"""One call that an agent asks for, its plain record, and how a batch is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ._contract import Record, check_count, check_timeout

_SPELLINGS = {"action": "name", "arguments": "args", "id": "action_id"}


class ActionKind(str, Enum):
    """What an action asks for."""

    TOOL = "tool"


class ActionStatus(str, Enum):
    """How an action ended; the words of ``ToolResult.status``."""

    SUCCESS = "success"
    ERROR = "error"
    SKIPPED = "skipped"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


@dataclass
class Action(Record):
    """One tool call, with fields that are keys too; ``ValueError`` for a bad limit or count."""

    name: str
    # What a model sent is kept as it is, so that wrong arguments fail the call alone.
    args: dict[str, Any] = field(default_factory=dict)
    kind: ActionKind = ActionKind.TOOL
    action_id: str | None = None  # What a model gave as something else becomes text.
    timeout_s: float | None = None  # Seconds for one attempt; overrides the time limit of the tool.
    max_retries: int = 0  # Further attempts after an exception; above 0 it beats the tool's.
    idempotent: bool = True  # False: the call is made once, whatever the tool's retries say.
    classification: str = "default"
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kind = self.kind if self.kind is ActionKind.TOOL else ActionKind(self.kind)
        if not isinstance(self.action_id, (str, type(None))):
            self.action_id = str(self.action_id)
        check_timeout(self.timeout_s)
        check_count(self.max_retries, "max_retries", least=0)

    def __getitem__(self, key: str) -> Any:
        if key not in _SPELLINGS and key not in self.__dataclass_fields__:
            raise KeyError(key)
        return getattr(self, _SPELLINGS.get(key, key))

    def get(self, key: str, default: Any = None) -> Any:
        """The field of that name, or ``default`` when there is none."""
        return getattr(self, _SPELLINGS.get(key, key), default)

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Action:
        """Read a call; ``TypeError`` for no mapping, ``ValueError`` for no name or a bad value."""
        if not isinstance(payload, Mapping):
            raise TypeError(f"an action must be a mapping, got {type(payload).__qualname__}")
        given = {_SPELLINGS.get(key, key): value for key, value in payload.items()} | dict(payload)
        if not isinstance(name := given.get("name"), str) or not name:
            raise ValueError(f"an action needs a non-empty text 'name', got {name!r}")
        known = cls.__dataclass_fields__
        return cls(**{n: v for n, v in given.items() if n in known and v is not None})


@dataclass
class ActionResult(Record):
    """The short form of a call's outcome, as QitOS agents read it."""

    name: str
    status: ActionStatus
    output: Any = None
    error: str | None = None
    action_id: str | None = None
    attempts: int = 1
    latency_ms: float = 0.0  # Milliseconds over all attempts.
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ActionExecutionPolicy:
    """How the calls of one decision are run; raises ``ValueError`` or ``TypeError``."""

    mode: str = "serial"  # Or ``sequential``; ``parallel`` runs ``concurrency_safe`` neighbours.
    fail_fast: bool = False  # True: after a call without success no further call is started.
    max_concurrency: int = 4
    parallel_tool_names: frozenset[str] | None = None  # If given, only these may run together.

    def __post_init__(self) -> None:
        if self.mode not in (modes := ("serial", "sequential", "parallel")):
            raise ValueError(f"unknown mode {self.mode!r}, expected one of {', '.join(modes)}")
        check_count(self.max_concurrency, "max_concurrency", least=1)
        names = self.parallel_tool_names
        if isinstance(names, str) or not all(isinstance(name, str) for name in names or ()):
            raise TypeError(f"parallel_tool_names must be a collection of names, got {names!r}")
        if names is not None:
            object.__setattr__(self, "parallel_tool_names", frozenset(names))
