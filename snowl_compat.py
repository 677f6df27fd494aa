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
from collections.abc import Iterable, Iterator, Mapping
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

    _Row = dict[str, Any]
    _Rows = Iterable[tuple[_Row, str]]  # Each with its place.
    _Found = Iterator[tuple[Any, str, int]]  # Something, its place and its position.
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
# Of each kind: the type that passes as it is, words, schema, what a missing one becomes.
_KINDS: "dict[str, tuple[type | None, str, _Row, Any]]" = {
    "bool": (bool, "true or false", _BOOL, False),
    "str": (str, "text", _STR, ""),
    "_Patch": (str, "text", _STR, ""),
    "list[str]": (None, "a list of text", {"type": "array", "items": _STR}, []),
    "int": (None, "an integer", {"type": "integer"}, None),
    "_Count": (None, "an integer >= 0", {"type": "integer", "minimum": 0}, 0),
    "_Number": (None, "a finite number", _NUM, None),
    "float": (float, "a finite number", _NUM, None),
    "dict[str, Any]": (dict, "an object", {"type": "object"}, {}),
    "_Flags": (None, "an object of flags", _FLAG_SCHEMA, dict.fromkeys(_FLAGS, False)),
    "list[Issue]": (None, "issues", _ISSUES, []),
    "Any": (None, "JSON", {}, None),
}
_FLAG, _TEXT = ("bool", bool, False, False), ("str", str, None, None)
_STEPS = {"step_count": ("_Count", None, None, None)}
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
        unusable = _UNUSABLE_IS.get(name, missing)
        fields[name] = (kind, _KINDS[kind][0], missing, unusable)
    return fields, _closed(schema)


_CONFIG, _CONFIG_SCHEMA = _table(EngineConfigRow)
_TOOL, _TOOL_SCHEMA = _table(ToolPermissionRow)
_CRITIC, _CRITIC_SCHEMA = _table(CriticRow)
_HANDOFF, _HANDOFF_SCHEMA = _table(HandoffRow)
_RUN, _RUN_SCHEMA = _table(RunRow)
_RUN_SCHEMA["required"].remove("source")  # Older payloads do not have it.
del _CRITIC["step_id"], _HANDOFF["step_id"]  # Read by _Reading.step_id.
_TOLD_IF_NONE = ("score", "messages_passed")  # None is no way to say nothing there.
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
# Keys or attributes by which one element of a list is known.
_RECORD = ("critic_outputs", "phase_events", "decision", "actions", "step_id", "action")
_VERDICT = ("action", "critic_name", "score")
_EVENT = ("phase", "payload", "from_agent", "to_agent", "from", "to")
_SPEC = ("name", "permissions", "spec", "needs_approval", "function")
_RUN_KEYS = ("records", "events", "step_count", "critic_traces", "handoff_traces")
_PARTS = ("agent", "budget")  # What an engine has, and a configuration does not.
_SPEC_EXPORTS = ("export_permissions", "get_all_specs")  # The second as released.
# Where a configuration stands in an engine without export_config(), as released, and in
# a run's own account of itself: its manifest, or its INIT event.
_SAID = {
    "agent_name": "agent.name agent_name run_meta.agent_name",
    "model_id": "agent.llm.model llm.model model_id run_meta.model_name",
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
        self.message, self.path = message, path

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


_MISSING: "Any" = type("nothing", (), {})()
_RAISED: "Any" = object()
_SCALARS = frozenset((str, int, float, bool, type(None)))
_SAFE = range(-(1 << 63), 1 << 63)  # Ints that may be printed everywhere.


def _at(place: str, key: "str | int") -> str:
    is_name = type(key) is str and key.isidentifier()
    return f"{place}.{key}" if is_name else f"{place}[{json.dumps(key, default=str)}]"


def _name(value: object) -> str:
    return type(value).__name__


def _shown(value: "Any") -> str:
    """A value as messages show it: plain ones by repr, others by type."""
    if type(value) is int and value not in _SAFE or type(value) not in _SCALARS:
        return _name(value)
    return repr(value[:80] if type(value) is str else value)


# -- Reading by shape -----------------------------------------------------------------


def _offers(value: object, method: str) -> bool:
    """Whether its type has the method, and does not answer to every name."""
    return hasattr(type(value), method) and not hasattr(type(value), "__getattr__")


def _is_list(value: object) -> bool:
    others = (str, bytes, bytearray, set, frozenset, range, type)
    return _offers(value, "__iter__") and not isinstance(value, others)


def _has(source: "Any", names: "Iterable[str]") -> bool:
    """Whether the mapping has one of the keys, or the object really an attribute."""
    is_mapping = isinstance(source, (dict, Mapping))
    own = source if is_mapping else getattr(source, "__dict__", ())
    for name in names:
        if name in own or not is_mapping and hasattr(type(source), name):
            return True
    return False


def _peek(source: object, path: str) -> "Any":
    """What stands at the end of a dotted path, or None; nothing is told."""
    for name in path.split(".") if source is not None else ():
        source = _Reading().get(source, name)
    return None if source is _MISSING else source


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
    if _has(source, _PARTS):
        agent = _peek(source, "agent")
        if agent is not None and not facts["agent_name"]:
            facts["agent_name"] = _name(agent)
        for key, parts in (("critic", "critics"), ("stop_criteria", "stop_criteria")):
            found = _peek(source, parts)
            found = found if isinstance(found, (list, tuple)) else ()
            facts[f"{key}_names"] = [_peek(x, "name") or _name(x) for x in found]
        for name in (name for name in _CONFIG if name.startswith("has_")):
            facts[name] = _peek(source, name[4:]) is not None
    return {name: fact for name, fact in facts.items() if fact is not None}


class _Reading:
    """One reading of a run: what is found on the way, and where issues go."""

    def __init__(self, issues: "list[Issue] | None" = None, strict: bool = False):
        self.issues = [] if issues is None else issues
        self.strict, self.before = strict, len(self.issues)
        self.above: set[int] = set()  # Ids of the containers that are being walked.
        self.spellings = {*_RECORD}
        self.handoffs: list[tuple[_Row, str]] = []
        self.phases: _Row = {}  # The INIT and END events.
        self.steps = self.events = 0

    def tell(self, place: str, message: str) -> None:
        self.issues.append(Issue(place.removeprefix("."), message))

    def wrong(self, place: str, expected: str, value: object, but: str = "") -> None:
        self.tell(place, f"expected {expected}, got {_shown(value)}{but}")

    def done(self, made: "Any") -> "Any":
        """What was made, unless something had to be told and that is not allowed."""
        for path, message in self.issues[self.before :] if self.strict else ():
            raise SnowlCompatError(message, path)
        return made

    def get(
        self, source: "Any", name: str, place: str = "", raised: "Any" = _MISSING
    ) -> "Any":
        """The key or attribute, or missing; one that raises is an issue."""
        try:
            if isinstance(source, (dict, Mapping)):
                return source.get(name, _MISSING)
            if hasattr(type(source), "__getattr__") and not _has(source, (name,)):
                return _MISSING
            return getattr(source, name, _MISSING)
        except Exception as error:
            self.tell(_at(place, name), f"reading it raised {_name(error)}")
            return raised

    def elements(self, value: "Any", names: "tuple[str, ...]", place: str) -> "_Found":
        """Yield (element, place, position) of a list, however it comes."""
        index = -1
        try:
            if type(value) is list:
                pass
            elif isinstance(value, Mapping) and not _has(value, names):  # By their ids.
                held = [*value.values()]
                value = held if all(_has(item, names) for item in held) else [value]
            elif not _is_list(value) or _has(value, names):
                value = [] if value is None or value is _MISSING else [value]
            for index, item in enumerate(value):
                if isinstance(item, (dict, Mapping)) or _has(item, names):
                    yield item, f"{place}[{index}]", index
                elif getattr(item, "_fields", ()) == Issue._fields:
                    self.tell(*item)  # Of a line in a file.
                elif isinstance(item, (list, tuple)) and item is not value:
                    yield from self.elements(item, names, f"{place}[{index}]")
                else:
                    self.wrong(f"{place}[{index}]", "a record", item, "; skipped")
        except Exception as error:
            self.tell(f"{place}[{index + 1}]", f"reading on raised {_name(error)}")

    # -- Fields of all kinds

    def row(self, fields: "_Row", source: "Any", place: str) -> "_Row":
        """One row: each field as it is, or as what it says."""
        made: _Row = {}
        own = source if type(source) is dict else None
        for name, (kind, plain, missing, unusable) in fields.items():
            if own:
                value = own.get(name, _MISSING)
            else:
                value = self.get(source, name, place, _RAISED)
            if type(value) is plain:
                made[name] = value
            elif value is _RAISED:
                made[name] = unusable
            elif value is _MISSING or value is None and name not in _TOLD_IF_NONE:
                made[name] = missing
            else:
                at = _at(place, name)
                try:
                    made[name] = self.taken(kind, value, at)
                except Exception:  # It says nothing of the kind.
                    self.wrong(at, _KINDS[kind][1], value)
                    made[name] = unusable
        return made

    def taken(self, kind: str, value: "Any", place: str) -> "Any":
        """What a value of another type says for a kind of field; raises if nothing."""
        value = value.value if isinstance(value, Enum) else value
        if kind in ("dict[str, Any]", "Any", "list[Issue]"):
            made = self.convert(value, place, 1 + _is_list(value))
            lone = kind == "dict[str, Any]" and type(made) is not dict
            return {"value": made} if lone else made
        if kind == "list[str]":
            if not isinstance(value, (list, tuple, str, bytes)):
                value = [] + _Reading().convert(value, place)  # Raises if it is none.
            lone = isinstance(value, (str, bytes))
            held: Any = dict(enumerate([value] if lone else value))
            texts = self.row(dict.fromkeys(held, _TEXT), held, place)
            return [text for text in texts.values() if text is not None]
        if kind == "_Flags":
            if not isinstance(value, Mapping):
                value = getattr(value, "__dict__", None) or self.convert(value, place)
            names = [key for key in dict(value) if str(key)[:1] not in "_$"]
            return self.row(dict.fromkeys([*_FLAGS, *names], _FLAG), value, place)
        plain = _Reading().convert(value, place)
        if kind == "str" or kind == "_Patch":
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

    def text(self, kind: str, value: "Any", plain: "Any", place: str) -> str:
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

    def step_id(self, source: object, at: str, index: int, outer: "Any" = None) -> int:
        """A row's own step id, else its record's, else its position, told."""
        found = self.get(source, "step_id", at)
        if type(found) is int and found in _SAFE:
            return found
        if outer is not None and (found is None or found is _MISSING):
            return int(outer)
        try:
            return int(self.taken("int", found, at))
        except Exception:
            number = index if outer is None else int(outer)
            self.wrong(f"{at}.step_id", "an integer", found, f"; using {number}")
            return number

    # -- Values

    def convert(self, value: "Any", place: str, level: int = 1) -> "Any":
        """A value as a new tree of dict, list, str, int, float, bool and None.

        Levels are counted from a field's own value: a payload's row is level 0.
        """
        if value is None or type(value) is bool:
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

    def compound(self, value: "Any", place: str, level: int) -> "Any":
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
            return [self.convert(item, f"{place}[{i}]", level + 1) for i, item in pairs]
        for method, deeper in _FORMS:
            if hasattr(kind, method) and (deeper or _has(value, ("dtype",))):
                form = getattr(value, method)()
                if form is not value and (deeper or type(form) is not kind):
                    return self.convert(form, place, level + deeper)
        return self.marker(value, place)

    def mapping(self, items: "Iterable[Any]", place: str, level: int) -> "_Row":
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
                made[key] = self.convert(item, _at(place, key), level + 1)
        return made

    def marker(self, value: "Any", place: str, why: str = "") -> "_Row":
        """What stands for a value that JSON cannot hold: a name, no address."""
        self.tell(place, f"expected JSON, got {_name(value)}{why}")
        named: Any = value if _name(value) in _NAMED else type(value)
        parts = [getattr(named, part, None) for part in ("__module__", "__qualname__")]
        name = ".".join(part for part in parts if isinstance(part, str))
        return {"$unserializable": name or named.__name__}

    def json(self, rows: "list[tuple[Any, str]]", level: int = 0) -> str:
        """The text of rows, which come with their places, as an array's items."""
        made = [row for row, _ in rows]
        try:
            _check(made, level - 1)
            text = _encode(made)
            text.encode("utf-8")
        except Exception:  # The encoder cannot write it, or a value's method raised.
            half = len(rows) // 2  # One bad row must not cost the others.
            if half:
                halves = rows[:half], rows[half:]
                return ", ".join([self.json(part, level) for part in halves])
            text = _encode([self.convert(row, place, level) for row, place in rows])
        return text[1:-1]

    # -- Sections

    def verdict(self, output: "Any", place: str, outer: int) -> "_Row":
        row: _Row = {"step_id": self.step_id(output, place, outer, outer)}
        row.update(self.row(_CRITIC, output, place))
        prompt = self.get(output, "modified_prompt", place)
        if prompt is not None and prompt is not _MISSING:
            if "modified_prompt" in row["details"]:
                what = "the details have that key already; left out"
                self.tell(f"{place}.modified_prompt", what)
            else:
                row["details"] = {**row["details"], "modified_prompt": prompt}
        action = row["action"].strip().lower()
        if action in ("continue", "stop", "retry"):
            row["action"] = action
        else:
            self.wrong(f"{place}.action", "continue, stop or retry", row["action"])
        return row

    def critic_rows(self, run: object, events: bool, critics: "list[str]") -> "_Rows":
        """Rows of the records' outputs, named by position if at all, else of traces."""
        found = 0
        records = self.elements(self.get(run, "records"), _RECORD, "records")
        for record, at, index in records:
            outputs = self.get(record, "critic_outputs", at)
            place = f"{at}.critic_outputs"
            self.steps += 1
            if outputs is _MISSING and not _has(record, _RECORD[:4]):
                if _has(record, _VERDICT):
                    outputs = record  # The verdicts by themselves.
                else:
                    self.tell_misspelt(record, at)
            if events:
                held = self.get(record, "phase_events", at)
                self.read(held, f"{at}.phase_events", (record, at, index))
            listed = isinstance(outputs, (list, tuple)) and len(outputs) == len(critics)
            step_id = None
            for output, spot, number in self.elements(outputs, _VERDICT, place):
                if step_id is None:
                    step_id = self.step_id(record, at, index)
                row, found = self.verdict(output, spot, step_id), found + 1
                if listed and row["critic_name"] == "unknown":
                    row["critic_name"] = critics[number]
                yield row, spot
        traces = None if found else self.get(run, "critic_traces")
        for trace, place, index in self.elements(traces, _VERDICT, "critic_traces"):
            step_id = self.step_id(trace, place, index)
            yield self.verdict(trace, place, step_id), place

    def tell_misspelt(self, record: object, place: str) -> None:
        """Tell, once for each spelling, of keys that look like a record's."""
        from difflib import get_close_matches

        for key in map(str, record if isinstance(record, Mapping) else ()):
            close = () if key in self.spellings else _RECORD
            self.spellings.add(key)
            for known in get_close_matches(key.lower(), close, 1):
                self.tell(place, f"unknown key {_shown(key)}, expected {known}?")

    def read(
        self, events: "Any", at: str, record: "Any" = None, rows: bool = True
    ) -> int:
        """Take in handoffs, INIT and END of events; return how many events."""
        found: _Found
        try:  # Of a plain list few events matter, and these are found quickly.
            get = itemgetter if type(events[0]) is dict else attrgetter
            phases = [*map(get("phase"), {list: events}[type(events)])]
            wanted = {phase for phase in set(phases) if _phase(phase) in _PHASES}
            which = [index for index, phase in enumerate(phases) if phase in wanted]
            found = ((events[index], f"{at}[{index}]", index) for index in which)
            seen = len(phases) - len(which)
        except Exception:  # Something among them has no such phase.
            seen, found = 0, self.elements(events, _EVENT, at)
        for event, place, index in found:
            value, seen = self.get(event, "phase", place), seen + 1
            phase = _phase(value)
            is_trace = value is _MISSING and _has(event, _EVENT[2:])
            if phase in _PHASES[:2]:
                self.phases[phase] = event
            elif rows and (phase == "HANDOFF_START" or is_trace):
                outer = self.step_id(*record) if record else None
                self.handoff(event, place, index, outer)
        return seen

    def handoff(self, event: object, place: str, index: int, outer: "Any") -> None:
        """Add the row of a START event, or of a handoff trace, which has no payload."""
        step_id = self.step_id(event, place, index, outer)
        body = self.get(event, "payload", place)
        if body is not None and body is not _MISSING:
            event, place = body, f"{place}.payload"
        if not isinstance(event, Mapping) and not _has(event, _EVENT):
            self.wrong(place, "an object", event)
        row: _Row = {"step_id": step_id}
        for name, field in _HANDOFF.items():
            short = name.removesuffix("_agent")
            short = name if _peek(event, short) is None else short
            row[name] = self.row({short: field}, event, place)[short]
        if row["context_strategy"].upper() in ("FULL", "SUMMARY", "ISOLATED"):
            row["context_strategy"] = row["context_strategy"].upper()
        self.handoffs.append((row, place))

    def exported(self, source: object, place: str, *methods: str) -> "Any":
        """What a registry or an engine exports, None if that raises, else itself."""
        for method in methods:
            if hasattr(type(source), method):
                try:
                    return getattr(source, method)()
                except Exception as error:
                    self.tell(place, f"{method}() raised {_name(error)}")
                    return None
        return source

    def tool_rows(self, specs: object) -> "_Rows":
        for spec, place, index in self.elements(specs, _SPEC, "tool_permissions"):
            spec = _peek(spec, "spec") or spec
            if isinstance(spec, Mapping):  # Released QitOS gives it in parts.
                for part in (spec.get("capabilities"), spec.get("function")):
                    spec = {**spec, **part} if isinstance(part, Mapping) else spec
            row = self.row(_TOOL, spec, place)
            if not row["name"]:
                self.wrong(f"{place}.name", "a name", _MISSING)
                row["name"] = "unknown"
            yield row, place

    def config_row(self, source: "Any", account: object = None) -> "_Row":
        """An engine's configuration; ``account`` is what the run says of itself."""
        config = self.exported(source, "engine_config", "export_config")
        is_engine = _has(config, _PARTS) or not _has(config, _CONFIG)
        if is_engine and not isinstance(config, Mapping):
            facts = {**_facts(account), **_facts(config)}
            if config is not None and not facts:
                self.wrong("engine_config", "an engine configuration", source)
            config = facts
        return self.row(_CONFIG, config, "engine_config")

    def tools_and_config(
        self, run: object, engine: object, tools: "list[Any]", config: object
    ) -> "tuple[list[tuple[_Row, str]], _Row]":
        """Tools and configuration: as given, else the engine's, the run's, INIT's."""
        own, specs = _peek(run, "engine_config"), _peek(run, "tool_permissions")
        account = _peek(self.phases.get("INIT"), "payload")
        told = _peek(account, "run_meta.tools")
        if self.handoffs and told and _peek(run, "has_config") is False:
            # After a handoff a manifest tells of the last agent's tools only.
            own, specs = own and {**own, "tool_count": None}, told
        own = run if own is None and hasattr(type(run), "export_config") else own
        held = [_peek(engine, "tool_registry"), _peek(engine, "agent.tool_registry")]
        held += [_peek(run, "tool_registry"), specs, told if own is None else None]
        held = [x for x in held if _is_list(x) or _has(x, _SPEC_EXPORTS)]
        source = _first([*tools, *held])
        source = self.exported(source, "tool_permissions", *_SPEC_EXPORTS)
        rows = None if source is None else [*self.tool_rows(source)]
        config = _first([config, engine, own])
        row = self.config_row(config, account if own is None else None)
        if row["tool_count"] is None and rows is not None:
            row["tool_count"] = len(rows)
        return rows or [], row

    def run_row(self, run: object, agent: str) -> "_Row":
        """What the run says of itself; nothing in it is guessed."""
        ends = [_peek(self.phases.get(phase), "payload") for phase in ("END", "INIT")]
        said_in = ("task_result", "task_result.metrics", "state", "run")
        places = [run, *(_peek(run, path) for path in said_in), *ends]
        others = {"runtime_seconds": "elapsed_seconds", "total_tokens": "token_usage"}
        values: _Row = {}
        for name in _RUN:
            keys = (name, others.get(name, name))
            found = (_peek(place, key) for place in places for key in keys)
            values[name] = next((value for value in found if value is not None), None)
        if self.events or "END" in self.phases:
            values["partial"] = "END" not in self.phases
        if _peek(run, "run") is None:
            values["source"] = getattr(run, "path", "") or None
        return self.row(_RUN, {**values, "agent_name": agent or None}, "run")


# -- What the encoder writes by itself ------------------------------------------------

_MAX_DEPTH, _MAX_ITEMS = 100, 1_000_000
_CUT = {"$truncated": "depth"}
_SETS = (set, frozenset)
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
    if level > _MAX_DEPTH:
        raise ValueError(f"expected at most {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        "".join(value)
        value = value.values()
    for item in value:
        if type(item) not in _SCALARS and isinstance(item, (dict, list, tuple)):
            _check(item, level + 1)


# -- Trace folders and files ----------------------------------------------------------

_FILES = ("manifest.json", "steps.jsonl", "events.jsonl")


class _Run(dict[str, "Any"]):
    """A run read from a path, by the keys of an engine result."""

    path = ""
    bare = False  # Whether it has nothing but its lines.


class _Lines:
    """The objects of JSON Lines, read anew at each iteration; bad ones as issues."""

    def __init__(self, path: str, told: "Iterable[Issue]" = (), data: bytes = b""):
        self.path, self.told, self.data = path, told, data

    def __iter__(self) -> "Iterator[dict[str, Any] | Issue]":
        yield from self.told
        name = os.path.basename(self.path)
        try:
            with io.BytesIO(self.data) if self.data else open(self.path, "rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.isspace():
                        yield from _objects(line, f"{name}:{number}")
        except FileNotFoundError:
            return
        except OSError as error:
            yield Issue(name, f"cannot be read: {error.strerror}")


def _objects(line: bytes, place: str) -> "Iterator[dict[str, Any] | Issue]":
    """Yield the object of a line, and an ``Issue`` for what is wrong with it."""
    text = line.decode("utf-8-sig", "replace")
    if "\ufffd" in text and "\ufffd".encode() not in line:
        yield Issue(place, "expected UTF-8 text, got bytes that are not")
    try:  # A crash of the system may leave NUL bytes where a line should be.
        value = _parse(text.strip("\0 \t\r\n"))
        if not isinstance(value, dict):
            raise SnowlCompatError(f"expected an object, got {_shown(value)}")
        yield value
    except SnowlCompatError as error:
        what = error.message if line.endswith(b"\n") else "the line is cut off"
        yield Issue(place, f"{what}; skipped")


def _parse(text: "str | bytes", path: str = "") -> "Any":
    try:
        return json.loads(text)
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
    lines, name = _Lines(path), _readable(path)
    if not path.endswith(".jsonl") or not os.path.isfile(path):
        lines.data = _bytes_of(path)
        try:
            value = _parse(lines.data, name)
            if isinstance(value, (dict, list)):
                return _Run(value if isinstance(value, dict) else {"records": value})
            what = f"expected an object or a list, got {_shown(value)}"
            raise SnowlCompatError(what, name)
        except SnowlCompatError:
            several = lines.data.strip().count(b"\n")
            if not several or not isinstance(next(iter(lines)), dict):
                raise
    first = next((line for line in lines if isinstance(line, dict)), {})
    if _is_whole(first):
        raise SnowlCompatError("expected one run, got a payload on each line", name)
    run = _Run({"events" if _has(first, _EVENT[:2]) else "records": lines})
    run.bare = True
    return run


def _folder_run(path: str) -> _Run:
    name = _readable(os.path.abspath(path))
    if not _is_run(path):
        raise SnowlCompatError(f"expected one of {', '.join(_FILES)}", _readable(path))
    manifest_at, steps_at, events_at = (os.path.join(path, name) for name in _FILES)
    found: list[Any] = []
    if os.path.isfile(manifest_at):
        found = [*_objects(_bytes_of(manifest_at) + b"\n", "manifest.json")]
    manifest = next((item for item in found if isinstance(item, dict)), {})
    told = [item for item in found if isinstance(item, Issue)]
    summary = _peek(manifest, "summary")
    run = _Run(summary if isinstance(summary, dict) else {})
    own, tools = manifest.get("engine_config"), _peek(summary, "run_meta.tools")
    run.update(
        records=_Lines(steps_at, told),
        events=_Lines(events_at),
        engine_config=own or _facts({**run, **manifest}) or None,
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
    if _has(source, _RUN_KEYS):
        return source
    listed = _is_list(source)
    if isinstance(source, Mapping):
        held = [*source.values()]
        listed = bool(held) and all(_has(item, _RECORD) for item in held)
    if listed or _has(source, _RECORD):
        return {"records": source}
    what = "expected an engine result, step records, a payload or a path"
    is_run = isinstance(source, _Run)
    found, path = ("dict", source.path) if is_run else (_name(source), "")
    raise SnowlCompatError(f"{what}, got {found}", path)


def _is_whole(value: object) -> bool:
    return isinstance(value, dict) and value.keys() >= _SECTIONS.keys()


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
    """Return the Snowl payload of one QitOS run as strict JSON text.

    ``source`` is an engine result, step records, a trace folder, a JSON file or a
    payload. What it does not hold comes from ``engine`` (what it exports, else its
    attributes, and its registry), ``tool_registry``, ``events``, ``engine_config`` and
    ``tool_permissions``, which win over it. ``extended`` adds ``schema_version`` and
    ``run`` to the five keys. ``indent`` is as for ``dumps``.

    Bad values are repaired; each repair is an ``Issue`` in the list ``issues`` or, with
    ``strict``, raised. Raises ``SnowlCompatError`` for a source that is no run or of
    which nothing can be read, and nothing else.
    """
    reading, run = _Reading(issues, strict), _as_run(source)
    tools = [tool_permissions, tool_registry]
    given = [value is not None for value in (engine, events, engine_config, *tools)]
    again = _is_whole(run) and not any(given)
    if again and not validate_payload({**run}):  # It reproduces itself.
        made = {name: run[name] for name in _SECTIONS}
        if extended:
            made["schema_version"] = run.get("schema_version", SCHEMA_VERSION)
            agent = run["engine_config"]["agent_name"]
            made["run"] = run.get("run") or reading.run_row(run, agent)
        return dumps(made, indent=indent)
    first = len(reading.issues)
    critics = _Reading().config_row(engine)["critic_names"]
    read, own = reading.read, reading.get
    reading.events = known = read(events, "events")
    if not known:
        known = read(own(run, "handoff_traces"), "handoff_traces")
        reading.events = read(own(run, "events"), "events", rows=not known)
    found = reading.critic_rows(run, not (known or reading.events), critics)
    verdicts: list[str] = []  # Of a few rows each: no copy of all is made.
    while chunk := [*islice(found, 16)]:
        verdicts += [", ", reading.json(chunk)]
    if getattr(run, "bare", False) is True and not reading.steps + reading.events:
        what = "expected steps, events or a manifest, got nothing that can be read"
        raise SnowlCompatError(what, getattr(run, "path", ""))
    specs, config = reading.tools_and_config(run, engine, tools, engine_config)
    steps = reading.row(_STEPS, run, "")["step_count"]
    parts = ['{"engine_config": ', reading.json([(config, "engine_config")])]
    parts += [', "tool_permissions": [', reading.json(specs)]
    parts += ['], "critic_traces": [', *verdicts[1:]]
    parts += ['], "handoff_traces": [', reading.json(reading.handoffs)]
    parts += ['], "step_count": ', _encode(reading.steps if steps is None else steps)]
    if extended:
        row = reading.convert(reading.run_row(run, config["agent_name"]), "run", 0)
        row["issues"] += [issue._asdict() for issue in reading.issues[first:]]
        parts += [f', "schema_version": "{SCHEMA_VERSION}", "run": ', _encode(row)]
    return _indented(reading.done("".join([*parts, "}"])), indent)


def build_payload(source: object, **options: "Any") -> "Payload":
    """Return the payload of ``export_json``, with the same options, as a new dict."""
    # What was parsed shares nothing with the run.
    return json.loads(export_json(source, **options))  # type: ignore[no-any-return]


def engine_config(source: object, **options: "Any") -> "EngineConfigRow":
    """Return the 14 fields of an engine, an ``EngineConfig`` or a mapping.

    This and the next three take ``strict`` and ``issues`` as ``export_json`` does.
    """
    return build_payload([], engine_config=source, **options)["engine_config"]


def tool_permissions(source: object, **options: "Any") -> "list[ToolPermissionRow]":
    """Return a row of 7 fields for each tool of a registry or list of specs."""
    return build_payload([], tool_permissions=source, **options)["tool_permissions"]


def critic_traces(records: object, **options: "Any") -> "list[CriticRow]":
    """Return a row of 8 fields for each critic output of step records or of a run."""
    run = records if _has(records, _RUN_KEYS) else {"records": records}
    return build_payload(run, **options)["critic_traces"]


def handoff_traces(events: object, **options: "Any") -> "list[HandoffRow]":
    """Return a row of 5 fields for each HANDOFF_START of events or of a run."""
    run = events if _has(events, _RUN_KEYS) else {"events": events}
    return build_payload(run, **options)["handoff_traces"]


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
    return reading.done(reading.convert(value, "value"))


def dumps(payload: object, *, indent: "int | None" = None) -> str:
    """Return strict JSON text of a payload, or of any other value.

    What JSON cannot hold is converted as by ``to_json_value``; text stays readable (no
    ``\\u`` escapes) and always encodes as UTF-8. ``indent`` is the number of spaces of
    each level, None for one line.
    """
    # Levels are counted from the fields of a payload's rows.
    level = -2 if _is_whole(payload) else 1
    return _indented(_Reading().json([(payload, "")], level), indent)


def _indented(text: str, indent: "int | None") -> str:
    if indent is None:
        return text
    return json.dumps(json.loads(text), ensure_ascii=False, indent=indent)


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
    reading = _Reading()
    _validate(payload, PAYLOAD_SCHEMA, "", reading)
    return reading.issues


_TYPES: "_Row" = {"object": dict, "array": list, "string": str, "null": type(None)}
_TYPES.update(number=(int, float), integer=int, boolean=bool)


def _validate(value: "Any", schema: "_Row", place: str, reading: _Reading) -> None:
    """Interpret the part of JSON Schema that ``PAYLOAD_SCHEMA`` uses."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = any(isinstance(value, _TYPES[kind]) for kind in kinds)
    if _name(value) == "bool":
        fits = "boolean" in kinds
    elif _name(value) == "float":
        fits = "number" in kinds or "integer" in kinds and not value % 1
    if kinds and not fits:
        reading.wrong(place, " or ".join(kinds), value)
    elif "properties" in schema and value is not None:
        for name in schema["required"]:
            if name not in value:
                reading.tell(_at(place, name), "missing")
        for name, item in value.items():
            inner = schema["properties"].get(name, schema["additionalProperties"])
            if not isinstance(name, str):
                reading.wrong(place, "text keys", name)
            elif inner is False:
                reading.tell(_at(place, name), "unexpected key")
            else:
                _validate(item, inner, _at(place, name), reading)
    elif "items" in schema:
        for index, item in enumerate(value or ()):
            _validate(item, schema["items"], f"{place}[{index}]", reading)
    elif "minimum" in schema and value < schema["minimum"]:
        reading.wrong(place, f"at least {schema['minimum']}", value)
    else:
        found = len(reading.issues)
        if reading.convert(value, place) != value and found == len(reading.issues):
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
    parser.set_defaults(output="-")
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
            parser.error("--indent is a number >= 0, and for one run only")
    return args


def _tell(*parts: str) -> int:
    """Write one line about a problem to standard error; return exit code 1."""
    text = ": ".join(part for part in parts if part)
    if sys.stderr is not None:
        line = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
        print(line, file=sys.stderr)
    return 1


def _export(args: "Any", file: "Any") -> int:
    """Write each run's text to a file; of several, a bad one is told and left out."""
    code = 0
    for number, path in enumerate(args.runs, 1):
        issues: list[Issue] = []
        if args.many and sys.stderr is not None and sys.stderr.isatty():
            progress = f"\r{number} of {len(args.runs)}\r"
            print(progress, end="", file=sys.stderr, flush=True)
        options = {"strict": args.strict, "issues": issues, "indent": args.indent}
        try:
            extended = args.extended or args.many
            file.write(f"{export_json(read_run(path), extended=extended, **options)}\n")
        except SnowlCompatError as error:
            name = _readable(path)
            code = _tell(name, error.path.removeprefix(name), error.message)
        for issue in () if args.strict else issues:  # The first was raised.
            _tell(_readable(path) if args.many else "", *issue)
    return code


def _export_into(path: str, args: "Any") -> int:
    """Export into a file, which is then whole, or as it was; a device is just written."""
    final = os.path.realpath(path)
    is_file = os.path.isfile(path) or not os.path.exists(path)
    beside = f"{final}.{os.getpid()}.tmp" if is_file else path
    try:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            code = _export(args, file)
        if is_file and os.path.getsize(beside):
            if os.path.exists(final):
                os.chmod(beside, os.stat(final).st_mode & 0o7777)
            os.replace(beside, final)
        return code
    finally:
        if is_file and os.path.exists(beside):
            os.unlink(beside)


def _check_file(path: str) -> int:
    """Tell the problems of the payload in a file, or of those on its lines."""
    data, code = _bytes_of(path), 0
    lines = data.split(b"\n") if path.endswith(".jsonl") else [data]
    for number, line in enumerate(lines, 1):
        place = path if len(lines) == 1 else f"{path}:{number}"
        try:
            blank = not line.strip() and len(lines) > 1
            for issue in () if blank else validate_payload(_parse(line)):
                code = _tell(place, *issue)
        except SnowlCompatError as error:
            code = _tell(place, error.message)
    return code


def main(argv: "list[str] | None" = None) -> int:
    """Run the command line and return its exit code."""
    utf8: Any = {"encoding": "utf-8", "errors": "backslashreplace", "newline": "\n"}
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(**utf8)  # Whatever the locale says.
    args = None
    try:
        try:
            args = _arguments(argv)
        finally:  # That is the end of --help.
            print(end="", flush=True)
        if args.command == "check":
            return max([_check_file(path) for path in args.files])
        if args.output != "-":
            return _export_into(args.output, args)
        if sys.stdout is None:
            return _tell("standard output", "cannot be written: it is closed")
        code = 0
        if args.command == "export":
            code = _export(args, sys.stdout)
        else:
            print(json.dumps(PAYLOAD_SCHEMA, indent=2))
        sys.stdout.flush()
        return code
    except SnowlCompatError as error:
        return _tell(str(error))
    except BrokenPipeError:
        # Whoever read us has enough; the interpreter's last flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        name = args.output if args else ""
        return _tell(name, f"cannot be written: {error.strerror}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
