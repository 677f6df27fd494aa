# SPDX-License-Identifier: MIT
# Copyright (c) 2026 the snowl-compat authors
# The payload format comes from QitOS (MIT), Copyright (c) 2026 Qitor Research.
#
# Permission is hereby granted, free of charge, to any person obtaining a copy of this
# software and associated documentation files (the "Software"), to deal in the Software
# without restriction, including without limitation the rights to use, copy, modify,
# merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
# permit persons to whom the Software is furnished to do so, subject to the following
# conditions:
#
# The above copyright notice and this permission notice shall be included in all copies
# or substantial portions of the Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED,
# INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A
# PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT
# HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
# CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE
# OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""Turn a QitOS agent run into the Snowl payload, as strict JSON.

In:   an EngineResult, StepRecords, a trace folder or a JSON file; by shape, not class.
Out:  engine_config, tool_permissions, critic_traces, handoff_traces, step_count.

    text = snowl_compat.export_json(result, engine=engine)
    python snowl_compat.py export runs/my_run -o payload.json

What cannot be written as JSON costs its own leaf, never the run; every such change is
told as an Issue (path, message), or raised with strict=True. Rows are made from tables
of fields, and json.dumps writes them; only what it refuses, or would get silently
wrong, is walked by _Reading.convert. Python 3.10 or newer; copy the file freely.
"""

import base64
import io
import json
import math
import os
import re
import sys
from collections import deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import count, islice
from operator import attrgetter, itemgetter

if sys.version_info < (3, 10):
    raise ImportError("snowl_compat needs Python 3.10 or newer")

__all__ = ["Issue", "PAYLOAD_SCHEMA", "SCHEMA_VERSION", "SnowlCompatError"]
__all__ += ["__version__", "build_payload", "critic_traces", "dumps", "engine_config"]
__all__ += ["export_json", "handoff_traces", "load_payload", "read_run"]
__all__ += ["to_json_value", "tool_permissions", "validate_payload"]

__version__ = "0.2.0"
SCHEMA_VERSION = "1.0"
"""Version of the payload's form, told by ``extended=True``."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # The module typing costs more to import than all the rest.
    from typing import Any, TypeAlias, TypedDict

    class _FiveKeys(TypedDict):
        engine_config: "EngineConfigRow"
        tool_permissions: "list[ToolPermissionRow]"
        critic_traces: "list[CriticRow]"
        handoff_traces: "list[HandoffRow]"
        step_count: int

    class Payload(_FiveKeys, total=False):  # The two come with extended=True.
        schema_version: str
        run: "RunRow"

    _Place = tuple[Any, str | int] | None  # The place around it, and a key or index.
    _Row = dict[str, Any]
    _Found = Iterator[tuple[Any, _Place]]
    # Kinds of fields that are more than their type.
    _Count: TypeAlias = int
    _Flags: TypeAlias = dict[str, bool]
    _Number: TypeAlias = float
    _Patch: TypeAlias = str
else:
    TypedDict = dict

# -- The fields of the payload: their annotations are what is read and checked --------


class EngineConfigRow(TypedDict):
    agent_name: "str"
    model_id: "str"
    budget_max_steps: "int | None"
    budget_max_runtime_seconds: "_Number | None"
    budget_max_tokens: "int | None"
    critic_names: "list[str]"
    stop_criteria_names: "list[str]"
    has_checkpoint_store: "bool"
    has_tracing_provider: "bool"
    protocol_id: "str | None"
    delegate_depth: "int | None"
    has_shared_memory: "bool"
    has_env: "bool"
    tool_count: "int | None"


class ToolPermissionRow(TypedDict):
    name: "str"
    description: "str"
    permissions: "_Flags"
    needs_approval: "bool"
    read_only: "bool"
    concurrency_safe: "bool"
    required_ops: "list[str]"


class CriticRow(TypedDict):
    step_id: "int"
    critic_name: "str"
    action: "str"
    reason: "str"
    score: "float | None"
    details: "dict[str, Any]"
    instruction_patch: "_Patch | None"
    state_patch: "dict[str, Any] | None"


class HandoffRow(TypedDict):
    step_id: "int"
    from_agent: "str"
    to_agent: "str"
    context_strategy: "str"
    messages_passed: "_Count"


class RunRow(TypedDict):
    run_id: "str | None"
    agent_name: "str | None"
    stop_reason: "str | None"
    final_result: "Any"
    runtime_seconds: "_Number | None"
    total_tokens: "int | None"
    tool_calls_by_name: "dict[str, Any] | None"
    success_rate: "_Number | None"
    partial: "bool | None"
    issues: "list[Issue]"
    source: "str | None"


_FLAGS = ("filesystem_read", "filesystem_write", "network", "command")
_BOOL, _STR, _NUM = {"type": "boolean"}, {"type": "string"}, {"type": "number"}


def _closed(properties: "_Row", further: object = False) -> "_Row":
    """The schema of an object that has all of the properties, and no others."""
    known = {"type": "object", "properties": properties, "required": [*properties]}
    return {**known, "additionalProperties": further}


_FLAG_SCHEMA = _closed(dict.fromkeys(_FLAGS, _BOOL), _BOOL)
_ISSUES = {"type": "array", "items": _closed({"path": _STR, "message": _STR})}
# Of each kind: types that pass as they are, words, schema, what a missing one becomes.
_KINDS: "dict[str, tuple[tuple[type, ...], str, _Row, Any]]" = {
    "bool": ((bool,), "true or false", _BOOL, False),
    "str": ((str,), "text", _STR, ""),
    "_Patch": ((str,), "text", _STR, ""),
    "list[str]": ((), "a list of text", {"type": "array", "items": _STR}, []),
    "int": ((), "an integer", {"type": "integer"}, None),
    "_Count": ((), "an integer >= 0", {"type": "integer", "minimum": 0}, 0),
    "_Number": ((), "a finite number", _NUM, None),
    "float": ((float,), "a finite number", _NUM, None),
    "dict[str, Any]": ((dict,), "an object", {"type": "object"}, {}),
    "_Flags": ((), "an object of flags", _FLAG_SCHEMA, dict.fromkeys(_FLAGS, False)),
    "list[Issue]": ((), "issues", _ISSUES, []),
    "Any": ((), "JSON", {}, None),
}
# Fields that become something else than their kind says: missing, and unusable.
_MISSING_IS = {"critic_name": "unknown", "action": "continue", "score": 1.0}
_UNUSABLE_IS = {"score": None, "needs_approval": True}  # What may ask is said to ask.


def _table(row: type) -> "tuple[_Row, _Row]":
    """The fields (kind, what a missing and an unusable one become), and their schema."""
    fields, schema = {}, {}
    for name, kind in row.__annotations__.items():
        kind, nullable, _ = kind.partition(" | None")
        plain, missing = _KINDS[kind][2:]
        schema[name] = {**plain, "type": [plain["type"], "null"]} if nullable else plain
        missing = _MISSING_IS.get(name, None if nullable else missing)
        fields[name] = (kind, missing, _UNUSABLE_IS.get(name, missing))
    return fields, _closed(schema)


_CONFIG, _CONFIG_SCHEMA = _table(EngineConfigRow)
_TOOL, _TOOL_SCHEMA = _table(ToolPermissionRow)
_CRITIC, _CRITIC_SCHEMA = _table(CriticRow)
_HANDOFF, _HANDOFF_SCHEMA = _table(HandoffRow)
_RUN, _RUN_SCHEMA = _table(RunRow)
_RUN_SCHEMA["required"].remove("source")  # Older payloads do not have it.
_SECTIONS = {
    "engine_config": _CONFIG_SCHEMA,
    "tool_permissions": {"type": "array", "items": _TOOL_SCHEMA},
    "critic_traces": {"type": "array", "items": _CRITIC_SCHEMA},
    "handoff_traces": {"type": "array", "items": _HANDOFF_SCHEMA},
    "step_count": _KINDS["_Count"][2],
}
PAYLOAD_SCHEMA: "dict[str, Any]" = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Snowl payload of a QitOS agent run",
    **_closed({**_SECTIONS, "schema_version": _STR, "run": _RUN_SCHEMA}),
    "required": [*_SECTIONS],
}
"""JSON Schema 2020-12 of the payload, with the two keys of ``extended=True``."""

_PHASES = ("INIT", "END", "HANDOFF_START")
_PARTS = {"critic_names": "critics", "stop_criteria_names": "stop_criteria"}
_FLAG = ("bool", False, False)
_TOLD_IF_NONE = ("score", "messages_passed")  # None is no way to say nothing there.
_OPTIONAL = ("checkpoint_store", "tracing_provider", "shared_memory", "env")
_SAID_IN = ("task_result", "task_result.metrics", "state", "run")
_OTHER_NAMES = {"runtime_seconds": "elapsed_seconds", "total_tokens": "token_usage"}
# What most verdicts look like: dicts of these columns and types.
_COLUMNS = {name: missing for name, (_, missing, _) in _CRITIC.items()}
_COLUMNS["modified_prompt"] = None
_NONE = type(None)
_FIRST = (_NONE, str, str, str, float, dict)
_USUAL = {(*_FIRST, i, s, _NONE) for i in (str, _NONE) for s in (dict, _NONE)}
_ACTIONS = ("continue", "stop", "retry")
_STRATEGIES = ("FULL", "SUMMARY", "ISOLATED")
# Names by which one element of a list is known.
_VERDICT = ("action", "critic_name", "score")
_RECORD = ("critic_outputs", "phase_events", "decision", "actions", "step_id")
_EVENT = ("phase", "payload", "from_agent", "to_agent", "from", "to")
_SPEC = ("name", "permissions", "spec", "needs_approval", "function")
_SPEC_EXPORTS = ("export_permissions", "get_all_specs")  # The second as released.
_RUN_KEYS = ("records", "events", "step_count", "critic_traces", "handoff_traces")
# Where a configuration stands in an engine without export_config(), as released, and in
# a run's own account of itself: its manifest, or its INIT event.
_SAID = {
    "agent_name": "agent.name agent_name run_meta.agent_name",
    "model_id": "agent.llm.model model_id run_meta.model_name",
    "budget_max_steps": "budget.max_steps task_meta.budget.max_steps",
    "budget_max_runtime_seconds": "budget.max_runtime_seconds"
    " task_meta.budget.max_runtime_seconds",
    "budget_max_tokens": "budget.max_tokens task_meta.budget.max_tokens",
    "protocol_id": "protocol.id protocol agent.model_protocol run_meta.protocol",
    "delegate_depth": "delegate_depth",
    "tool_count": "run_meta.tool_count",
}

# -- Errors and issues ----------------------------------------------------------------

Issue = namedtuple("Issue", ("path", "message"))
Issue.__doc__ = "One thing that was changed, left out or wrong, and where."


class SnowlCompatError(ValueError):
    """Something that cannot be read or, with ``strict=True``, expressed.

    ``message`` says what is wrong, ``path`` where (``records[3].step_id``).
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, path)  # Both, so that it can be pickled.
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


_MISSING: "Any" = type("_Missing", (), {"__repr__": lambda self: "nothing"})()


def _path_text(place: "_Place") -> str:
    text = ""
    while place is not None:
        place, key = place
        if isinstance(key, int):
            key = f"[{key}]"
        elif place is not None:
            key = f".{key}" if re.fullmatch(r"[\w$-]+", key) else f"[{json.dumps(key)}]"
        text = f"{key}{text}"
    return text


def _name(value: object) -> str:
    return type(value).__name__


def _shown(value: "Any") -> str:
    """A value as messages show it: plain ones by repr, others by type."""
    if type(value) is str:
        return repr(value[:80])
    try:
        is_plain = value is _MISSING or type(value) in _SCALARS
        return repr(value)[:80] if is_plain else _name(value)
    except ValueError:  # An int of too many digits.
        return _name(value)


# -- Reading by shape -----------------------------------------------------------------


def _offers(value: object, method: str) -> bool:
    """Whether its type has the method, and does not answer to every name."""
    return hasattr(type(value), method) and not hasattr(type(value), "__getattr__")


def _is_list(value: object) -> bool:
    others = (str, bytes, bytearray, set, frozenset, range, type)
    return _offers(value, "__iter__") and not isinstance(value, others)


def _has(source: "Any", *names: str) -> bool:
    """Whether the mapping has one of the keys, or the object really an attribute."""
    if isinstance(source, Mapping):
        return any(name in source for name in names)
    own = getattr(source, "__dict__", ())
    return any(hasattr(type(source), name) or name in own for name in names)


def _peek(source: object, path: str) -> "Any":
    """What stands at the end of a dotted path, or None; nothing is told."""
    for name in path.split("."):
        source = _Reading().get(source, name)
    return None if source is _MISSING else source


def _absent(value: object) -> bool:
    return value is None or value is _MISSING


def _first(values: "Iterable[Any]") -> "Any":
    """The first value that says something, or None."""
    said = (value for value in values if value is not None)
    return next((value for value in said if type(value) is not str or value), None)


def _phase(value: object) -> str:
    """The upper-case name of a phase, whatever form it has."""
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str) else value.name
    return value.rpartition(".")[2].upper() if isinstance(value, str) else ""


def _facts(source: object) -> "_Row":
    """What an engine's attributes, or a run's account of itself, say of its set-up."""
    facts = {
        name: _first(_peek(source, path) for path in paths.split())
        for name, paths in _SAID.items()
    }
    if _has(source, "agent", "budget"):
        facts["agent_name"] = facts["agent_name"] or _name(_peek(source, "agent"))
        for names, parts in _PARTS.items():
            found = _peek(source, parts)
            found = found if isinstance(found, (list, tuple)) else ()
            facts[names] = [_peek(part, "name") or _name(part) for part in found]
        for part in _OPTIONAL:
            facts[f"has_{part}"] = _peek(source, part) is not None
    return {name: fact for name, fact in facts.items() if fact is not None}


class _Reading:
    """One reading of a run: what is found on the way, and where issues go."""

    def __init__(self, issues: "list[Issue] | None" = None, strict: bool = False):
        self.issues = [] if strict and issues is None else issues
        self.strict = strict
        self.before = len(self.issues or ())
        self.above: set[int] = set()  # Ids of the containers that are being walked.
        self.spellings = {*_RECORD}
        self.handoffs: list[tuple[Any, _Place]] = []
        self.phases: _Row = {}  # The INIT and END events.
        self.steps = self.events = 0

    def tell(self, place: "_Place", message: str) -> None:
        if self.issues is not None:  # A path is made only if it is kept.
            self.issues.append(Issue(_path_text(place), message))

    def done(self, made: "Any") -> "Any":
        """What was made, unless something had to be told and that is not allowed."""
        if self.strict:
            for path, message in (self.issues or ())[self.before :]:
                raise SnowlCompatError(message, path)
        return made

    def wrong(self, at: "_Place", expected: str, value: object, but: str = "") -> None:
        self.tell(at, f"expected {expected}, got {_shown(value)}{but}")

    def get(self, source: "Any", name: str, place: "_Place" = None) -> "Any":
        """The key or attribute, or missing; one that raises is an issue."""
        if type(source) is dict:
            return source.get(name, _MISSING)
        try:
            if isinstance(source, Mapping):
                return source.get(name, _MISSING)
            if hasattr(type(source), "__getattr__") and not _has(source, name):
                return _MISSING
            return getattr(source, name, _MISSING)
        except Exception as error:
            self.tell((place, name), f"reading it raised {_name(error)}")
            return _MISSING

    def elements(
        self, value: "Any", names: "tuple[str, ...]", at: "_Place"
    ) -> "_Found":
        """Yield (element, place) of what should be a list of records.

        A lone record is a list of one, a list inside the list is read through, a mapping
        of records stands for its values; anything else is skipped with an issue.
        """
        place: _Place = (at, 0)
        try:
            if type(value) is list:
                pass
            elif _has(value, *names):
                value = [value]
            elif isinstance(value, Mapping):
                held = [*value.values()]
                value = held if all(_has(item, *names) for item in held) else [value]
            elif not _is_list(value):
                if not _absent(value):
                    self.wrong(at, "a list", value)
                return
            # Of objects only the action makes a verdict.
            of_objects = names[:1] if names is _VERDICT else names
            for index, item in enumerate(value):
                place = (at, index)
                if isinstance(item, Mapping) or _has(item, *of_objects):
                    yield item, place
                elif isinstance(item, tuple) and _has(item, "message"):
                    self.tell((None, item[0]), item[1])  # An issue of a file.
                elif isinstance(item, (list, tuple)):
                    yield from self.elements(item, names, place)
                else:
                    self.wrong(place, "a record", item, "; skipped")
                place = (at, index + 1)
        except Exception as error:
            self.tell(place, f"reading on raised {_name(error)}")

    # -- Fields of all kinds

    def row(
        self, fields: "_Row", source: object, place: "_Place", outer: "Any" = None
    ) -> "_Row":
        """One row: each field as it is, or as what it says; ``outer``: see step_id."""
        made: _Row = {}
        for name, (kind, missing, unusable) in fields.items():
            plain, expected = _KINDS[kind][:2]
            value = self.get(source, name, place)
            if name == "step_id":
                made[name] = self.step_id(source, place, outer)
            elif value is _MISSING or value is None and name not in _TOLD_IF_NONE:
                made[name] = missing
            elif type(value) in plain:
                made[name] = value
            else:
                try:
                    made[name] = self.taken(kind, value, (place, name))
                except Exception:  # It says nothing of the kind.
                    self.wrong((place, name), expected, value)
                    made[name] = unusable
        return made

    def taken(self, kind: str, value: "Any", place: "_Place") -> "Any":
        """What a value of another type says for a kind of field; raises if nothing."""
        value = value.value if isinstance(value, Enum) else value
        if kind == "dict[str, Any]":  # An array will stand one level deeper.
            made = self.convert(value, place, 1 + _is_list(value))
            return made if type(made) is dict else {"value": made}
        if kind in ("Any", "list[Issue]"):
            return self.convert(value, place)
        if kind == "list[str]":
            value = self.convert(value, place) if isinstance(value, _SETS) else value
            items = [value] if isinstance(value, (str, bytes)) else value
            fields: Any = dict.fromkeys(range(len(items)), ("str", None, None))
            texts: Any = self.row(fields, dict(enumerate(items)), place)
            return [text for text in texts.values() if text is not None]
        if kind == "_Flags":
            if not isinstance(value, Mapping) and not _has(value, *_FLAGS):
                value = _Reading().convert(value, place)
                if not _has(value, *_FLAGS):
                    raise TypeError("no flags")
            own = (
                value if isinstance(value, Mapping) else getattr(value, "__dict__", ())
            )
            names = (*_FLAGS, *(name for name in own if str(name)[:1] != "_"))
            return self.row(dict.fromkeys(names, _FLAG), value, place)
        plain = _Reading().convert(value, place)
        if kind in ("str", "_Patch"):
            return self.text(kind, value, plain, place)
        if isinstance(plain, str) and kind == "bool":
            return _WORDS[plain.strip().lower()]
        if isinstance(plain, str):  # In JSON's syntax, or of a number like Fraction.
            number = re.fullmatch(_JSON_NUMBER, plain)
            plain = json.loads(plain) if number else value.__float__()
        if kind == "bool":
            return {True: True, False: False}[bool(plain + 0)]
        if not math.isfinite(plain) or isinstance(plain, bool) and kind != "float":
            raise ValueError("no finite number")
        if kind == "float" or kind == "_Number":
            return float(plain) if kind == "float" else plain
        if plain % 1 or kind == "_Count" and plain < 0:
            raise ValueError("no such integer")
        return int(plain)

    def text(self, kind: str, value: "Any", plain: "Any", place: "_Place") -> str:
        if isinstance(value, (bytes, bytearray)):
            plain = value.decode("utf-8", "replace")
            if plain.encode("utf-8") != value:
                self.tell(place, "expected UTF-8 text, got bytes that are not")
        elif isinstance(value, BaseException):
            plain = plain["message"]
        elif kind == "_Patch" and not isinstance(plain, str):
            self.wrong(place, "text", value)
            plain = _compact(self.convert(value, place))
        elif isinstance(plain, dict) and not isinstance(value, Mapping):
            plain = value.name
        plain = _compact(plain) if type(plain) in (bool, int, float) else plain
        if not isinstance(plain, str):
            raise TypeError("no text")
        return plain

    def step_id(self, source: object, place: "_Place", outer: "int | None") -> int:
        """A row's own step id, else its record's, else its position, told."""
        found = self.get(source, "step_id", place)
        if type(found) is int and found in _SAFE:
            return found
        if outer is not None and _absent(found):
            return outer
        try:
            return int(self.taken("int", found, place))
        except Exception:
            number = outer if outer is not None else int(place[1]) if place else 0
        self.wrong((place, "step_id"), "an integer", found, f"; using {number}")
        return number

    # -- Values

    def convert(self, value: "Any", place: "_Place", level: int = 1) -> "Any":
        """A value as a new tree of dict, list, str, int, float, bool and None.

        Levels are counted from a field's own value: a payload's row is level 0.
        """
        kind = type(value)
        if value is None or kind is bool or kind is int and value in _SAFE:
            return value
        if isinstance(value, str) and not isinstance(value, Enum):
            text = re.sub("[\ud800-\udfff]", "\ufffd", value[:])
            if text != value:
                self.wrong(place, "text without lone surrogates", value[:])
            return text
        if isinstance(value, float) and not isinstance(value, Enum):
            if not math.isfinite(value):
                self.wrong(place, "a finite number", float(value))
            return float(value) if math.isfinite(value) else None
        if id(value) in self.above:
            self.tell(place, f"{_name(value)} contains itself")
            return {"$cycle": True}
        self.above.add(id(value))
        try:
            return self.compound(value, place, level)
        except Exception as error:
            return self.marker(value, place, f" which raised {_name(error)}")
        finally:
            self.above.discard(id(value))

    def compound(self, value: "Any", place: "_Place", level: int) -> "Any":
        """``convert`` for what may hold other values, or has a form of its own."""
        kind = type(value)
        if isinstance(value, int) and not isinstance(value, Enum):
            return int(value) if str(value) else 0  # One too long to print raises.
        leaf = value.value if isinstance(value, Enum) else _leaf(value)
        if leaf is not _NO_LEAF:
            return self.convert(leaf, place, level)
        if level > _MAX_DEPTH and value != _CUT:  # The mark of a cut stands there.
            self.tell(place, f"expected at most {_MAX_DEPTH} levels")
            return {**_CUT}
        if isinstance(value, Mapping):
            return self.mapping(value.items(), place, level)
        if hasattr(kind, "__dataclass_fields__"):
            names = [field.name for field in sys.modules["dataclasses"].fields(value)]
            held = ((name, self.get(value, name, place)) for name in names)
            return self.mapping(held, place, level)
        if isinstance(value, (list, tuple, deque, range, *_SETS)):
            items = sorted(value, key=_order) if isinstance(value, _SETS) else value
            listed = [*islice(items, _MAX_ITEMS + 1)]
            if len(listed) > _MAX_ITEMS:
                self.tell(place, f"expected at most {_MAX_ITEMS} items")
                return {"$truncated": "size"}
            pairs = enumerate(listed)
            return [self.convert(item, (place, i), level + 1) for i, item in pairs]
        for method, deeper in _FORMS:
            if hasattr(kind, method) and (deeper or _has(value, "dtype")):
                form = getattr(value, method)()
                if form is not value and (deeper or type(form) is not kind):
                    return self.convert(form, place, level + deeper)
        return self.marker(value, place)

    def mapping(self, items: "Iterable[Any]", place: "_Place", level: int) -> "_Row":
        made: _Row = {}
        for key, item in items:
            if type(key) is not str or not key.isascii():
                is_odd = isinstance(key, float) and not math.isfinite(key)
                key = json.dumps(float(key)) if is_odd else self.convert(key, place)
                key = key if isinstance(key, str) else _compact(key)
            if key in made:
                self.tell(place, f"two keys become {_shown(key)}")
                key = next(k for n in count(2) if (k := f"{key}#{n}") not in made)
            if item is not _MISSING:
                made[key] = self.convert(item, (place, key), level + 1)
        return made

    def marker(self, value: "Any", place: "_Place", why: str = "") -> "_Row":
        """What stands for a value that JSON cannot hold: a name, no address."""
        self.tell(place, f"expected JSON, got {_name(value)}{why}")
        named: Any = value if _name(value) in _NAMED else type(value)
        parts = [getattr(named, part, None) for part in ("__module__", "__qualname__")]
        name = ".".join(part for part in parts if isinstance(part, str))
        return {"$unserializable": name or named.__name__}

    def json(self, rows: "list[Any]", level: int = 0) -> str:
        """The text of the array of rows, which come with their places."""
        made = [row for row, _ in rows]
        held = [value for row in made for value in row.values()]
        text = _strict_text(made, level, held)  # The keys of rows are our own.
        if text or len(rows) < 2:
            return text or _encode([self.convert(row, at, level) for row, at in rows])
        half = len(rows) // 2  # One bad row must not cost the others.
        return f"{self.json(rows[:half])[:-1]}, {self.json(rows[half:])[1:]}"

    # -- Sections: rows with their places, their values still the source's own

    def critic_row(self, output: "Any", place: "_Place", outer: "Any" = None) -> "_Row":
        row: _Row = {**_COLUMNS, **output} if type(output) is dict else {}
        if outer is not None and tuple(map(type, row.values())) in _USUAL:
            row["step_id"] = outer  # Most verdicts need no reading of each field.
            prompt = row.pop("modified_prompt")
        else:
            row = self.row(_CRITIC, output, place, outer)
            prompt = self.get(output, "modified_prompt", place)
        if not _absent(prompt):
            if "modified_prompt" in row["details"]:
                what = "the details have that key already; left out"
                self.tell((place, "modified_prompt"), what)
            else:
                row["details"] = {**row["details"], "modified_prompt": prompt}
        known = row["action"].strip().lower()
        if known in _ACTIONS:
            row["action"] = known
        else:
            self.wrong((place, "action"), "continue, stop or retry", row["action"])
        return row

    def critic_rows(self, run: object, events: bool, critics: "list[str]") -> "_Found":
        """Rows of the records' critic outputs, else of the run's critic traces.

        ``critics`` names, by position, the outputs of a record that have no name;
        with ``events`` those that the records hold are read too.
        """
        names: Any = dict(enumerate(critics))
        rows = 0
        known, records = (*_RECORD, "action"), self.get(run, "records")
        for record, place in self.elements(records, known, (None, "records")):
            outputs = self.get(record, "critic_outputs", place)
            if outputs is _MISSING and not _has(record, *_RECORD[:4]):
                if _has(record, *_VERDICT):
                    rows += 1
                    yield self.critic_row(record, place), place
                    continue
                self.tell_misspelt(record, place)
            self.steps += 1
            if events:
                held = self.get(record, "phase_events", place)
                self.read(held, (place, "phase_events"), record)
            found = [*self.elements(outputs, _VERDICT, (place, "critic_outputs"))]
            step_id = self.step_id(record, place, None) if found else 0
            listed = type(outputs) in (list, tuple) and len(outputs) == len(names)
            for output, spot in found:
                row = self.critic_row(output, spot, step_id)
                if listed and row["critic_name"] == "unknown":
                    row["critic_name"] = names.get(spot and spot[1], "unknown")
                yield row, spot
            rows += len(found)
        traces = None if rows else self.get(run, "critic_traces")
        for trace, place in self.elements(traces, _VERDICT, (None, "critic_traces")):
            yield self.critic_row(trace, place), place

    def tell_misspelt(self, record: object, place: "_Place") -> None:
        """Tell, once for each spelling, of keys that look like a record's."""
        from difflib import get_close_matches

        for key in map(str, record if isinstance(record, Mapping) else ()):
            close = [] if key in self.spellings else [*_RECORD]
            self.spellings.add(key)
            for known in get_close_matches(key.lower(), close, 1):
                self.tell(place, f"unknown key {_shown(key)}, expected {known}?")

    def handoff_row(self, event: object, place: "_Place", outer: "Any") -> "_Row":
        """The row of a START event, or of a handoff trace, which has no payload."""
        step_id = self.step_id(event, place, outer)
        body = self.get(event, "payload", place)
        if not _absent(body):
            event, place = body, (place, "payload")
        if not isinstance(event, Mapping) and not _has(event, *_EVENT):
            self.wrong(place, "an object", event)
        row: _Row = {}
        for name, field in _HANDOFF.items():
            short = name.removesuffix("_agent")
            short = name if _absent(self.get(event, short)) else short
            row[name] = self.row({short: field}, event, place, step_id)[short]
        if row["context_strategy"].upper() in _STRATEGIES:
            row["context_strategy"] = row["context_strategy"].upper()
        return {**row, "step_id": step_id}

    def read(
        self, events: "Any", place: "_Place", record: object = None, rows: bool = True
    ) -> int:
        """Take in handoffs, INIT and END of events; return how many events.

        ``record`` is the step record that holds the events.
        """
        found: Any
        try:  # Of a plain list few events matter, and these are found quickly.
            get = itemgetter if type(events[0]) is dict else attrgetter
            phases = [*map(get("phase"), {list: events}[type(events)])]
            wanted = {phase for phase in set(phases) if _phase(phase) in _PHASES}
            at = [index for index, phase in enumerate(phases) if phase in wanted]
            found = ((events[index], (place, index)) for index in at)
            seen = len(phases) - len(at)
        except Exception:  # Something among them has no such phase.
            seen, found = 0, self.elements(events, _EVENT, place)
        for event, spot in found:
            value, seen = self.get(event, "phase", spot), seen + 1
            phase = _phase(value)
            self.phases.update({phase: event} if phase in _PHASES[:2] else {})
            is_trace = value is _MISSING and _has(event, *_EVENT[2:])
            if rows and (is_trace or phase == "HANDOFF_START"):
                outer = place and record and self.step_id(record, place[0], None)
                self.handoffs.append((self.handoff_row(event, spot, outer), spot))
        return seen

    def exported(self, source: object, place: "_Place", *methods: str) -> "Any":
        """What a registry or an engine exports, None if that raises, else itself."""
        for method in methods:
            if hasattr(type(source), method):
                try:
                    return getattr(source, method)()
                except Exception as error:
                    self.tell(place, f"{method}() raised {_name(error)}")
                    return None
        return source

    def tool_rows(self, specs: object) -> "_Found":
        for spec, place in self.elements(specs, _SPEC, (None, "tool_permissions")):
            spec = _peek(spec, "spec") or spec
            if isinstance(spec, Mapping):  # Released QitOS gives it in parts.
                for part in (spec.get("capabilities"), spec.get("function")):
                    spec = {**spec, **part} if isinstance(part, Mapping) else spec
            row = self.row(_TOOL, spec, place)
            if not row["name"]:
                self.wrong((place, "name"), "a name", _MISSING)
                row["name"] = "unknown"
            yield row, place

    def config_row(self, source: "Any", account: object = None) -> "_Row":
        """An engine's configuration; ``account`` is what the run says of itself."""
        where = (None, "engine_config")
        config = self.exported(source, where, "export_config")
        if not isinstance(config, Mapping) and not _has(config, *_CONFIG):
            facts = {**_facts(account), **_facts(config)}
            if config is not None and not facts:
                self.wrong(where, "an engine configuration", source)
            config = facts
        return self.row(_CONFIG, config, where)


# -- What the encoder writes by itself ------------------------------------------------

_MAX_DEPTH, _MAX_ITEMS = 100, 1_000_000
_CUT = {"$truncated": "depth"}
_SCALARS = frozenset((str, int, float, bool, type(None)))
_SETS = (set, frozenset)
_SAFE = range(-(1 << 63), 1 << 63)  # Ints that may be printed everywhere.
_JSON_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
_NO_LEAF = float("nan")  # Which the encoder refuses.
_NAMED = {"type", "function", "builtin_function_or_method", "method", "module"}
_TEXT_TYPES = {"decimal.Decimal", "fractions.Fraction", "uuid.UUID"}
# Methods that give a plain form, and how much deeper it stands.
_FORMS = (("to_dict", 1), ("model_dump", 1), ("tolist", 0), ("item", 0))
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _leaf(value: "Any") -> "Any":
    """The plain form of what is no JSON but holds no other value, or _NO_LEAF."""
    kind = type(value)
    if isinstance(value, Enum):  # What holds other values has to be walked.
        return value.value if type(value.value) in _SCALARS else _NO_LEAF
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__len__"):
        return _NO_LEAF
    if hasattr(kind, "isoformat"):
        return value.isoformat()
    if hasattr(kind, "total_seconds"):
        return value.total_seconds()
    if _TEXT_TYPES.intersection(f"{b.__module__}.{b.__name__}" for b in kind.__mro__):
        return str(value)
    if _offers(value, "__fspath__"):
        return os.fsdecode(value)
    if isinstance(value, BaseException):  # An object's address says nothing.
        message = re.sub(" at 0x[0-9A-Fa-f]+>", ">", str(value))
        return {"type": kind.__name__, "message": message}
    return _NO_LEAF


_strict: "Any" = {"ensure_ascii": False, "allow_nan": False, "check_circular": False}
_encode = json.JSONEncoder(**_strict, default=_leaf).encode
_compact = json.JSONEncoder(**_strict, separators=(",", ":")).encode


def _order(item: object) -> "tuple[str, list[Issue]]":
    """By what an item of a set is sorted: its text, and what has to be told of it."""
    issues: list[Issue] = []
    return _compact(to_json_value(item, issues=issues)), issues


def _check(value: "Any", level: int) -> None:
    """Raise for too many levels, and for keys that are no text and could collide."""
    if level > _MAX_DEPTH and value != _CUT:
        raise ValueError(f"expected at most {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        "".join(value)
        value = value.values()
    for item in [item for item in value if type(item) not in _SCALARS]:
        if isinstance(item, (dict, list, tuple)):
            _check(item, level + 1)


def _strict_text(value: "Any", level: int, held: "Any" = None) -> "str | None":
    """The JSON text of a dict or list, or None if it has to be walked first."""
    try:
        _check(value if held is None else held, level)
        text = _encode(value)
        return text if text.isascii() or text.encode("utf-8") else None
    except Exception:  # Also what a value's own method raises.
        return None


# -- Trace folders and files ----------------------------------------------------------

_FILES = ("manifest.json", "steps.jsonl", "events.jsonl")


class _Run(dict[str, "Any"]):
    """A run read from a path, by the keys of an engine result."""

    path = ""
    bare = False  # Whether it has nothing but its lines.


class _Lines:
    """The objects of JSON Lines, read anew at each iteration; bad ones as issues."""

    def __init__(self, path: str, told: "Iterable[Issue]" = (), data: bytes = b""):
        self.path = path
        self.told = told
        self.data = data

    def __iter__(self) -> "Iterator[Any]":
        yield from self.told
        name = os.path.basename(self.path)
        try:
            with io.BytesIO(self.data) if self.data else open(self.path, "rb") as file:
                for number, line in enumerate(file, 1):
                    yield from _objects(line, f"{name}:{number}")
        except FileNotFoundError:
            return
        except OSError as error:
            yield Issue(name, f"cannot be read: {error.strerror}")


def _objects(line: bytes, place: str) -> "Iterator[Any]":
    """Yield the object of a line, and an ``Issue`` for what is wrong with it."""
    if line.isspace():
        return
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        text = line.decode("utf-8-sig", "replace")
        if text.encode("utf-8") != line.removeprefix(b"\xef\xbb\xbf"):
            yield Issue(place, "expected UTF-8 text, got bytes that are not")
        try:  # A crash of the system may leave NUL bytes where a line should be.
            value = _parse(text.strip("\0 \t\r\n"))
        except SnowlCompatError as error:
            is_cut = not line.endswith(b"\n")
            what = "the line is cut off" if is_cut else error.message
            value = Issue(place, f"{what}; skipped")
    if isinstance(value, (dict, Issue)):
        yield value
    else:
        yield Issue(place, f"expected an object, got {_shown(value)}; skipped")


def _parse(text: "str | bytes", path: str = "") -> "Any":
    def number(digits: str) -> float:  # One too long to read must not cost the rest.
        return int(digits) if len(digits) < 4300 else float(digits)

    try:
        return json.loads(text, parse_int=number)
    except RecursionError:
        raise SnowlCompatError("expected JSON, got too many levels", path) from None
    except ValueError as error:
        raise SnowlCompatError(f"expected JSON: {error}", path) from None


def _bytes_of(path: str) -> bytes:
    """What a file holds, or standard input for ``-``."""
    try:
        with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
            return file.read()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SnowlCompatError(f"cannot be read: {why}", _readable(path)) from None


def _readable(path: str) -> str:
    """A path whose bytes the locale could not read taken as UTF-8."""
    try:
        return os.fsencode(path).decode("utf-8", "replace")
    except UnicodeError:
        return ascii(path)


def _is_run(path: str) -> bool:
    return any(os.path.isfile(os.path.join(path, name)) for name in _FILES)


def read_run(path: "str | os.PathLike[str]") -> "dict[str, Any]":
    """Return the run that a path holds, for ``build_payload``.

    ``path`` is a trace folder (``manifest.json``, ``steps.jsonl``, ``events.jsonl``; any
    may be missing, empty or cut off), a JSON file with an engine result, step records or
    a payload, JSON Lines of steps or events, or ``-`` for standard input. Lines of files
    are read when they are needed. Raises ``SnowlCompatError`` for what cannot be read.
    """
    if not isinstance(path, (str, bytes)) and not _offers(path, "__fspath__"):
        raise SnowlCompatError(f"expected a path, got {_name(path)}")
    name = os.fsdecode(path)
    run = _folder_run(name) if os.path.isdir(name) else _file_run(name)
    run.path = _readable(name)
    return run


def _file_run(path: str) -> _Run:
    is_lines = path.endswith(".jsonl") and os.path.isfile(path)
    data, name = b"" if is_lines else _bytes_of(path), _readable(path)
    try:
        value: Any = None if is_lines else _parse(data, name)
        if isinstance(value, (dict, list)):
            return _Run(value if isinstance(value, dict) else {"records": value})
        if not is_lines:
            what = f"expected an object or a list, got {_shown(value)}"
            raise SnowlCompatError(what, name)
    except SnowlCompatError:
        line, _, rest = data.partition(b"\n")
        if not rest.strip() or not isinstance(next(_objects(line, "")), dict):
            raise
    lines = _Lines(path, (), data)
    first = next((line for line in lines if isinstance(line, dict)), {})
    if _is_whole(first):
        raise SnowlCompatError("expected one run, got a payload on each line", name)
    run = _Run({"events" if _has(first, *_EVENT[:2]) else "records": lines})
    run.bare = True
    return run


def _folder_run(path: str) -> _Run:
    name = _readable(os.path.abspath(path))
    if not _is_run(path):
        raise SnowlCompatError(f"expected one of {', '.join(_FILES)}", _readable(path))
    manifest_at, steps_at, events_at = (os.path.join(path, name) for name in _FILES)
    try:
        has_one = os.path.isfile(manifest_at)
        data = (_bytes_of(manifest_at) or b"\0") if has_one else b""
        found = [*_objects(data + b"\n", "manifest.json")]
    except SnowlCompatError as error:
        found = [Issue("manifest.json", error.message)]
    manifest = next((item for item in found if isinstance(item, dict)), {})
    summary = _peek(manifest, "summary")
    run = _Run(summary if isinstance(summary, dict) else {})
    own, tools = manifest.get("engine_config"), _peek(summary, "run_meta.tools")
    run.update(
        records=_Lines(steps_at, [item for item in found if isinstance(item, Issue)]),
        events=_Lines(events_at),
        engine_config=own or _facts({**run, **manifest}),
        tool_permissions=manifest.get("tool_permissions") or tools,
        run_id=manifest.get("run_id") or os.path.basename(name),
        has_config=bool(own),
    )
    run.bare = not manifest
    return run


# -- The payload ----------------------------------------------------------------------


def _as_run(source: "Any") -> "Any":
    """The object or mapping with a run's attributes that a source stands for."""
    if isinstance(source, str) or _offers(source, "__fspath__"):
        source = read_run(source)
    if _has(source, *_RUN_KEYS):
        return source
    held = [*source.values()] if isinstance(source, Mapping) else []
    listed = all(_has(item, *_RECORD) for item in held) if held else _is_list(source)
    if _has(source, *_RECORD) or listed and source != {}:
        return {"records": source}
    what = "expected an engine result, step records, a payload or a path"
    is_run = isinstance(source, _Run)
    found, path = ("dict", source.path) if is_run else (_name(source), "")
    raise SnowlCompatError(f"{what}, got {found}", path)


def _tools_and_config(reading: _Reading, run: "Any", given: "_Row") -> "Any":
    """The rows of the tools, None if nothing says any, and the configuration.

    What is given comes first, then the engine, then the run's own; a run's account of
    itself, its INIT event, speaks where nothing else does.
    """
    engine, own = given["engine"], _peek(run, "engine_config")
    account = _peek(reading.phases.get("INIT"), "payload")
    told, own_tools = _peek(account, "run_meta.tools"), _peek(run, "tool_permissions")
    if reading.handoffs and told and _peek(run, "has_config") is False:
        # After a handoff a manifest tells of the last agent's tools only.
        own, own_tools = {**own, "tool_count": None}, told
    own = run if own is None and hasattr(type(run), "export_config") else own
    found = [_peek(engine, "tool_registry"), _peek(engine, "agent.tool_registry")]
    found += [_peek(run, "tool_registry"), own_tools, told if own is None else None]
    found = [x for x in found if _is_list(x) or _has(x, *_SPEC_EXPORTS)]
    source = _first([given["tool_permissions"], given["tool_registry"], *found])
    source = reading.exported(source, (None, "tool_permissions"), *_SPEC_EXPORTS)
    specs = None if source is None else [*reading.tool_rows(source)]
    config = _first([given["engine_config"], engine, own])
    return specs, reading.config_row(config, account if own is None else None)


def _run_row(reading: _Reading, run: object, agent: str) -> "_Row":
    """What the run says of itself; nothing in it is guessed."""
    ends = [_peek(reading.phases.get(phase), "payload") for phase in ("END", "INIT")]
    places = [run, *(_peek(run, path) for path in _SAID_IN), *ends]
    values: _Row = {}
    for name in _RUN:
        names = (name, _OTHER_NAMES.get(name, name))
        found = (_peek(place, key) for place in places for key in names)
        values[name] = next((value for value in found if value is not None), None)
    if reading.events or "END" in reading.phases:
        values["partial"] = "END" not in reading.phases
    if _peek(run, "run") is None:
        values["source"] = getattr(run, "path", "") or None
    return reading.row(_RUN, {**values, "agent_name": agent or None}, (None, "run"))


def _is_whole(value: object) -> bool:
    return isinstance(value, dict) and value.keys() >= _SECTIONS.keys()


def _text(source: object, extended: bool, reading: _Reading, **given: object) -> str:
    """The payload as text: json.loads of it is a copy that shares nothing."""
    run, engine, again = _as_run(source), given["engine"], False
    if all(value is None for value in given.values()) and _is_whole(run):
        again = not validate_payload({**run})
    if again:
        reading = _Reading()  # A payload reproduces itself: there is nothing to tell.
    reading.issues = [] if reading.issues is None else reading.issues
    first = len(reading.issues)
    names = _Reading().config_row(engine)["critic_names"] if engine is not None else []
    read, own = reading.read, reading.get
    reading.events = known = read(given["events"], (None, "events"))
    if not known:
        known = read(own(run, "handoff_traces"), (None, "handoff_traces"))
        reading.events = read(own(run, "events"), (None, "events"), rows=not known)
    found = reading.critic_rows(run, not (known or reading.events), names)
    critics: list[str] = []  # Of many rows each; no copy of all is made before the end.
    while chunk := [*islice(found, 32)]:
        critics += [", ", reading.json(chunk)[1:-1]]
    if getattr(run, "bare", False) is True and not reading.steps + reading.events:
        what = "expected steps, events or a manifest, got nothing that can be read"
        raise SnowlCompatError(what, getattr(run, "path", ""))
    specs, config = _tools_and_config(reading, run, given)
    if config["tool_count"] is None and specs is not None and not again:
        config["tool_count"] = len(specs)
    said, count_of = reading.get(run, "step_count"), {"n": ("_Count", None, None)}
    steps = _Reading().row(count_of, {"n": said}, None)["n"]
    if steps is None and not _absent(said):
        but = f"; counted {reading.steps}"
        reading.wrong((None, "step_count"), "an integer >= 0", said, but)
    texts = {
        "engine_config": [reading.json([(config, (None, "engine_config"))])[1:-1]],
        "tool_permissions": [reading.json(specs or [])],
        "critic_traces": ["[", *critics[1:], "]"],
        "handoff_traces": [reading.json(reading.handoffs)],
        "step_count": [_encode(reading.steps if steps is None else steps)],
    }
    if extended:
        version = _peek(run, "schema_version") if again else None
        texts["schema_version"] = [_encode(version or SCHEMA_VERSION)]
        row = _run_row(reading, run, config["agent_name"])
        row = reading.convert(row, (None, "run"), 0)
        told = [] if again else reading.issues[first:]
        row["issues"] = [*row["issues"], *(issue._asdict() for issue in told)]
        texts["run"] = [_encode(row)]
    parts = [part for name in texts for part in (f', "{name}": ', *texts[name])]
    return str(reading.done("".join(["{", parts[0][2:], *parts[1:], "}"])))


def build_payload(
    source: object,
    *,
    engine: object = None,
    tool_registry: object = None,
    events: object = None,
    engine_config: object = None,
    tool_permissions: object = None,
    extended: bool = False,
    strict: bool = False,
    issues: "list[Issue] | None" = None,
) -> "Payload":
    """Return the Snowl payload of one QitOS run as a new dict.

    ``source`` is an engine result, step records, a trace folder, a JSON file or a
    payload. What it does not hold comes from ``engine`` (what it exports, else its
    attributes, and its registry), ``tool_registry``, ``events``, ``engine_config`` and
    ``tool_permissions``, which win over it. ``extended`` adds ``schema_version`` and
    ``run`` to the five keys.

    Bad values are repaired; each repair is an ``Issue`` in the list ``issues`` or, with
    ``strict``, raised. Raises ``SnowlCompatError`` for a source that is no run or of
    which nothing can be read, and nothing else.
    """
    given = {"engine": engine, "tool_registry": tool_registry, "events": events}
    given.update(engine_config=engine_config, tool_permissions=tool_permissions)
    text = _text(source, extended, _Reading(issues, strict), **given)
    return json.loads(text)  # type: ignore[no-any-return]


def engine_config(
    source: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "EngineConfigRow":
    """Return the 14 fields of an engine, an ``EngineConfig`` or a mapping."""
    run = build_payload([], engine_config=source, strict=strict, issues=issues)
    return run["engine_config"]


def tool_permissions(
    source: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "list[ToolPermissionRow]":
    """Return a row of 7 fields for each tool of a registry or list of specs."""
    run = build_payload([], tool_permissions=source, strict=strict, issues=issues)
    return run["tool_permissions"]


def critic_traces(
    records: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "list[CriticRow]":
    """Return a row of 8 fields for each critic output of step records or of a run."""
    run = records if _has(records, *_RUN_KEYS) else {"records": records}
    return build_payload(run, strict=strict, issues=issues)["critic_traces"]


def handoff_traces(
    events: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "list[HandoffRow]":
    """Return a row of 5 fields for each HANDOFF_START of events or of a run."""
    run = events if _has(events, *_RUN_KEYS) else {"events": events}
    return build_payload(run, strict=strict, issues=issues)["handoff_traces"]


# -- JSON text, and back --------------------------------------------------------------


def to_json_value(
    value: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "Any":
    """Return ``value`` as a new tree of dict, list, str, int, float, bool and None.

    Takes anything and never raises for a bad value. ``issues`` is a list that collects an
    ``Issue`` for each change with a loss, its path beginning at ``value``; with ``strict``
    the first is raised as ``SnowlCompatError``.
    """
    reading = _Reading(issues, strict)
    return reading.done(reading.convert(value, (None, "value")))


def dumps(payload: object, *, indent: "int | None" = None) -> str:
    """Return strict JSON text of a payload, or of any other value.

    What JSON cannot hold is converted as by ``to_json_value``; text stays readable (no
    ``\\u`` escapes) and always encodes as UTF-8. ``indent`` is the number of spaces of
    each level, None for one line.
    """
    # Levels are counted from the fields of a payload's rows.
    level, is_json = -2 if _is_whole(payload) else 1, type(payload) in (dict, list)
    text = _strict_text(payload, level) if is_json else None
    if text is None:
        text = _encode(_Reading().convert(payload, None, level))
    return _indented(text, indent)


def _indented(text: str, indent: "int | None") -> str:
    if indent is None:
        return text
    return json.dumps(json.loads(text), ensure_ascii=False, indent=indent)


def export_json(
    source: object,
    *,
    engine: object = None,
    tool_registry: object = None,
    events: object = None,
    engine_config: object = None,
    tool_permissions: object = None,
    extended: bool = False,
    strict: bool = False,
    issues: "list[Issue] | None" = None,
    indent: "int | None" = None,
) -> str:
    """Return the text of ``dumps(build_payload(source, …), indent=indent)``.

    Takes and raises what ``build_payload`` does, but makes no copy of the rows.
    """
    given = {"engine": engine, "tool_registry": tool_registry, "events": events}
    given.update(engine_config=engine_config, tool_permissions=tool_permissions)
    text = _text(source, extended, _Reading(issues, strict), **given)
    return _indented(text, indent)


def load_payload(source: "str | bytes | Mapping[str, Any]") -> "Payload":
    """Return the payload that a JSON text, UTF-8 bytes or a mapping holds.

    Raises ``SnowlCompatError`` with the place of the first problem; NaN is one.
    """
    payload: Any = source
    if isinstance(source, (str, bytes, bytearray)):
        payload = _parse(source)
    payload = {**payload} if isinstance(payload, Mapping) else payload
    for issue in validate_payload(payload):
        raise SnowlCompatError(issue.message, issue.path)
    return json.loads(dumps(payload))  # type: ignore[no-any-return]


def validate_payload(payload: object) -> "list[Issue]":
    """Return an ``Issue`` for each place where a payload breaks the schema.

    The empty list means valid: every value is then one that strict JSON can hold.
    """
    issues: list[Issue] = []
    _validate(payload, PAYLOAD_SCHEMA, None, _Reading(issues))
    return issues


_TYPES: "_Row" = {
    "object": (dict, "an object"),
    "array": (list, "an array"),
    "string": (str, "text"),
    "number": ((int, float), "a number"),
    "integer": (int, "an integer"),
    "boolean": (bool, "true or false"),
    "null": (type(None), "null"),
}


def _is_a(value: object, kind: str) -> bool:
    if type(value) is float and kind == "integer":
        return value.is_integer()
    odd = type(value) is bool and kind != "boolean"
    return isinstance(value, _TYPES[kind][0]) and not odd


def _validate(value: "Any", schema: "_Row", place: "_Place", reading: _Reading) -> None:
    """Interpret the part of JSON Schema that ``PAYLOAD_SCHEMA`` uses."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is_a(value, kind) for kind in kinds):
        reading.wrong(place, " or ".join(_TYPES[kind][1] for kind in kinds), value)
    elif "properties" in schema and value is not None:
        for name in schema["required"]:
            if name not in value:
                reading.tell((place, name), "missing")
        for name, item in value.items():
            inner = schema["properties"].get(name, schema["additionalProperties"])
            if not isinstance(name, str):
                reading.wrong(place, "text keys", name)
            elif inner is False:
                reading.tell((place, name), "unexpected key")
            else:
                _validate(item, inner, (place, name), reading)
    elif "items" in schema:
        for index, item in enumerate(value or ()):
            _validate(item, schema["items"], (place, index), reading)
    elif "minimum" in schema and value < schema["minimum"]:
        reading.wrong(place, f"at least {schema['minimum']}", value)
    else:
        found = len(reading.issues or ())
        if reading.convert(value, place) != value and found == len(
            reading.issues or ()
        ):
            reading.wrong(place, "JSON", value)


# -- The command line -----------------------------------------------------------------


def _arguments(argv: "list[str] | None") -> "Any":
    import argparse

    parser = argparse.ArgumentParser(
        prog="snowl_compat.py",
        description="Turn QitOS agent runs into Snowl payloads (strict JSON).",
        epilog="Exit codes: 0 fine, 1 a problem in the data, 2 wrong usage.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    export = commands.add_parser("export", help="write the payload of a run")
    what = "a trace folder, a JSON or JSON Lines file, a folder of runs, or - (stdin)"
    export.add_argument("runs", nargs="+", metavar="RUN", help=what)
    export.add_argument("-o", dest="output", default="-", metavar="FILE")
    export.add_argument("--indent", type=int, metavar="N", help="spaces of each level")
    export.add_argument("--extended", action="store_true", help="add what the run says")
    export.add_argument("--strict", action="store_true", help="fail at the first issue")
    check = commands.add_parser("check", help="validate payload files")
    check.add_argument("files", nargs="+", metavar="FILE")
    commands.add_parser("schema", help="print the JSON Schema of the payload")
    args = parser.parse_args(argv)
    if args.command == "export":
        given, args.runs = args.runs, []
        for path in given:  # A folder of runs stands for these.
            is_folder = os.path.isdir(path) and not _is_run(path)
            names = sorted(os.listdir(path)) if is_folder else []
            inner = [p for p in (os.path.join(path, n) for n in names) if _is_run(p)]
            args.runs += inner or [path]
        args.many = args.runs != given or len(given) > 1
        if args.indent is not None and (args.many or args.indent < 0):
            what = "--indent is a number >= 0, for one run: several are JSON Lines"
            parser.error(what)
    return args


def _write(stream: "Any", text: str) -> None:
    """Write UTF-8 to a standard stream, whatever the locale says."""
    if stream is None:
        raise SnowlCompatError("cannot be written: it is closed", "standard output")
    stream.flush()
    stream.buffer.write(text.encode("utf-8", "backslashreplace"))
    stream.flush()


def _tell(*parts: str) -> int:
    """Write one line about a problem to standard error; return exit code 1."""
    text = ": ".join(part for part in parts if part)
    line = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    if sys.stderr is not None:
        _write(sys.stderr, f"{line}\n")
    return 1


def _export(args: "Any", put: "Callable[[str], object]") -> int:
    """Give each run's text to ``put``; of several, a bad one is told and left out."""
    code = 0
    for number, path in enumerate(args.runs, 1):
        issues: list[Issue] = []
        if args.many and sys.stderr is not None and sys.stderr.isatty():
            _write(sys.stderr, f"\r{number} of {len(args.runs)}\r")
        options = {"strict": args.strict, "issues": issues, "indent": args.indent}
        try:
            extended = args.extended or args.many
            put(f"{export_json(read_run(path), extended=extended, **options)}\n")
        except SnowlCompatError as error:
            name = _readable(path)
            code = _tell(name, error.path.removeprefix(name), error.message)
        for issue in [] if args.strict else issues:  # The first was raised.
            _tell(_readable(path) if args.many else "", *issue)
    return code


def _export_into(path: str, args: "Any") -> int:
    """Export into a file, which is then whole, or as it was; a device is just written."""
    final = os.path.realpath(path)
    is_file = os.path.isfile(path) or not os.path.exists(path)
    beside = f"{final}.{os.getpid()}.tmp" if is_file else path
    try:
        with open(beside, "wb") as file:
            code = _export(args, lambda text: file.write(text.encode("utf-8")))
            written = file.tell() if is_file else 0
        if written:
            if os.path.exists(final):
                os.chmod(beside, os.stat(final).st_mode & 0o7777)
            os.replace(beside, final)
        return code
    except BrokenPipeError:
        raise
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise SnowlCompatError(what, _readable(path)) from None
    finally:
        if is_file and os.path.exists(beside):
            os.unlink(beside)


def _check_file(path: str) -> int:
    """Tell the problems of the payload in a file, or of those on its lines."""
    code, data = 0, _bytes_of(path)
    texts = [(path, data)]
    if path.endswith(".jsonl"):
        lines = enumerate(data.split(b"\n"), 1)
        texts = [(f"{path}:{number}", line) for number, line in lines if line.strip()]
    for place, text in texts:
        try:
            for issue in validate_payload(_parse(text)):
                code = _tell(place, *issue)
        except SnowlCompatError as error:
            code = _tell(place, error.message)
    return code


def main(argv: "list[str] | None" = None) -> int:
    """Run the command line and return its exit code."""
    try:
        args = _arguments(argv)
        if args.command == "check":
            return max([_check_file(path) for path in args.files])
        if args.command == "export" and args.output != "-":
            return _export_into(args.output, args)
        if args.command == "export":
            return _export(args, lambda text: _write(sys.stdout, text))
        _write(sys.stdout, f"{json.dumps(PAYLOAD_SCHEMA, indent=2)}\n")
    except SnowlCompatError as error:
        return _tell(str(error))
    except BrokenPipeError:
        # Whoever read us has enough; the interpreter's last flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return _tell(str(error.filename or ""), error.strerror or str(error))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
