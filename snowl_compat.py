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

One file, Python 3.10 or newer, standard library only; copy it freely.

In:   an EngineResult, a list of StepRecords, a trace folder or a JSON file; objects and
      mappings are read by shape, never by class.
Out:  engine_config, tool_permissions, critic_traces, handoff_traces, step_count.

    text = snowl_compat.export_json(result, engine=engine)
    python snowl_compat.py export runs/my_run -o payload.json

What cannot be written as JSON costs its own leaf, never the run; every such change is
told as an Issue (path, message), or raised with strict=True. Rows are made from tables
of fields, and json.dumps writes them; only what it refuses, or would get silently
wrong, is walked by _Reading.convert.
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
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

if sys.version_info < (3, 10):
    raise ImportError("snowl_compat needs Python 3.10 or newer")

__all__ = [
    "Issue",
    "PAYLOAD_SCHEMA",
    "SCHEMA_VERSION",
    "SnowlCompatError",
    "__version__",
    "build_payload",
    "critic_traces",
    "dumps",
    "engine_config",
    "export_json",
    "handoff_traces",
    "load_payload",
    "read_run",
    "to_json_value",
    "tool_permissions",
    "validate_payload",
]

__version__ = "0.2.0"
SCHEMA_VERSION = "1.0"
"""Version of the payload's form, told by ``extended=True``."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # The module typing costs more to import than all the rest.
    from typing import Any, NamedTuple, TypeAlias, TypedDict

    class EngineConfigRow(TypedDict):
        agent_name: str
        model_id: str
        budget_max_steps: int | None
        budget_max_runtime_seconds: float | None
        budget_max_tokens: int | None
        critic_names: list[str]
        stop_criteria_names: list[str]
        has_checkpoint_store: bool
        has_tracing_provider: bool
        protocol_id: str | None
        delegate_depth: int | None
        has_shared_memory: bool
        has_env: bool
        tool_count: int | None

    class ToolPermissionRow(TypedDict):
        name: str
        description: str
        permissions: dict[str, bool]
        needs_approval: bool
        read_only: bool
        concurrency_safe: bool
        required_ops: list[str]

    class CriticRow(TypedDict):
        step_id: int
        critic_name: str
        action: str
        reason: str
        score: float | None
        details: dict[str, Any]
        instruction_patch: str | None
        state_patch: dict[str, Any] | None

    class HandoffRow(TypedDict):
        step_id: int
        from_agent: str
        to_agent: str
        context_strategy: str
        messages_passed: int

    class _FiveKeys(TypedDict):
        engine_config: EngineConfigRow
        tool_permissions: list[ToolPermissionRow]
        critic_traces: list[CriticRow]
        handoff_traces: list[HandoffRow]
        step_count: int

    class Payload(_FiveKeys, total=False):  # The two come with extended=True.
        schema_version: str
        run: dict[str, Any]

    class Issue(NamedTuple):
        path: str
        message: str

    _Place: TypeAlias = "tuple[_Place, str | int] | None"
    _Row: TypeAlias = dict[str, Any]
    _Found: TypeAlias = "Iterator[tuple[Any, _Place]]"
    _Fields: TypeAlias = dict[str, tuple[str, Any, Any]]
else:
    Issue = namedtuple("Issue", ("path", "message"))
    Issue.__doc__ = "One thing that was changed, left out or wrong, and where."


# -- Errors and issues ----------------------------------------------------------------


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
    """A place, which is a chain of pairs (outer place, key or index), as text."""
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


def _shown(value: object) -> str:
    """A value as messages show it: plain ones by repr, others by type."""
    plain = value is _MISSING or type(value) in (bool, int, float, type(None), str)
    try:
        return (
            repr(value[:80] if type(value) is str else value) if plain else _name(value)
        )
    except ValueError:  # An int of too many digits.
        return _name(value)


# -- Reading by shape -----------------------------------------------------------------

_MAX_DEPTH, _MAX_ITEMS = 100, 1_000_000
_CUT = {"$truncated": "depth"}
# Names by which one element of a list is known.
_VERDICT = ("action", "critic_name", "score")
_RECORD = ("critic_outputs", "phase_events", "decision", "actions", "step_id")
_EVENT = ("phase", "payload", "from_agent", "to_agent", "from", "to")
_SPEC_EXPORTS = ("export_permissions", "get_all_specs")  # The second as released.
_SPEC = ("name", "permissions", "spec", "needs_approval", "function")


def _is_mapping(value: object) -> bool:
    return issubclass(type(value), Mapping)


def _has(source: "Any", *names: str) -> bool:
    """Whether the mapping has one of the keys, or the object really an attribute."""
    if _is_mapping(source):
        return any(name in source for name in names)
    own = getattr(source, "__dict__", ())
    return any(hasattr(type(source), name) or name in own for name in names)


def _is_element(value: object, names: "tuple[str, ...]") -> bool:
    """Whether it is known by a name; of objects only the action makes a verdict."""
    lone = names is _VERDICT and not _is_mapping(value)
    return _has(value, *(names[:1] if lone else names))


def _is_list(value: object) -> bool:
    """Whether it may be read as a list; what answers to every name may not."""
    kind, others = type(value), (str, bytes, bytearray, set, frozenset, range, type)
    listed = hasattr(kind, "__iter__") and not hasattr(kind, "__getattr__")
    return listed and not issubclass(kind, others)


def _is_path(value: object) -> bool:
    kind = type(value)
    return hasattr(kind, "__fspath__") and not hasattr(kind, "__getattr__")


def _peek(source: object, path: str) -> "Any":
    """What stands at the end of a dotted path, or None; nothing is told."""
    for name in path.split("."):
        source = _Reading().get(source, name)
    return None if source is _MISSING else source


class _Reading:
    """One reading of a run: what is found on the way, and where issues go."""

    def __init__(self, issues: "list[Issue] | None" = None, strict: bool = False):
        self.issues = issues
        self.strict = strict
        self.above: set[int] = set()  # Ids of the containers that are being walked.
        self.spellings = {*_RECORD}
        self.handoffs: list[tuple[Any, _Place]] = []
        self.init: Any = None
        self.end: Any = None
        self.steps = self.events = self.phases = 0

    def tell(self, place: "_Place", message: str) -> None:
        """Collect, drop or raise one issue; its path is made only if it is kept."""
        if self.strict:
            raise SnowlCompatError(message, _path_text(place))
        if self.issues is not None:
            self.issues.append(Issue(_path_text(place), message))

    def get(self, source: "Any", name: str, place: "_Place" = None) -> "Any":
        """The key or attribute, or missing; one that raises is an issue."""
        if type(source) is dict:
            return source.get(name, _MISSING)
        try:
            if not hasattr(type(source), "__getattr__") and not _is_mapping(source):
                return getattr(source, name, _MISSING)
            if not _has(source, name):
                return _MISSING
            return source[name] if _is_mapping(source) else getattr(source, name)
        except Exception as error:
            self.tell((place, name), f"reading it raised {_name(error)}")
            return _MISSING

    def elements(
        self, value: "Any", names: "tuple[str, ...]", place: "_Place"
    ) -> "_Found":
        """Yield (element, place) of what should be a list of records.

        A lone record is a list of one, a list inside the list is read through, a mapping
        of records stands for its values; anything else is skipped with an issue.
        """
        last: _Place = (place, 0)
        try:
            if type(value) is not list and _is_element(value, names):
                value = [value]
            elif _is_mapping(value):
                mapping: Any = value
                items = [*mapping.values()]
                value = (
                    items
                    if all(_is_element(item, names) for item in items)
                    else [value]
                )
            if value is not None and value is not _MISSING and not _is_list(value):
                self.tell(place, f"expected a list, got {_shown(value)}")
            found: Any = value if _is_list(value) else ()
            for index, item in enumerate(found):
                last = spot = (place, index)
                if type(item) is dict or _is_mapping(item) or _is_element(item, names):
                    yield item, spot
                elif isinstance(item, tuple) and _has(item, "message"):
                    self.tell((None, item[0]), item[1])  # An issue of a file.
                elif isinstance(item, (list, tuple)):
                    yield from self.elements(item, names, spot)
                else:
                    self.tell(spot, f"expected a record, got {_shown(item)}; skipped")
                last = (place, index + 1)
        except SnowlCompatError:
            raise
        except Exception as error:
            self.tell(last, f"reading on raised {_name(error)}")

    def row(self, fields: "_Fields", source: object, place: "_Place") -> "_Row":
        """One row of the payload: each field as it is, or as what it says."""
        made: _Row = {}
        for name, (kind, missing, unusable) in fields.items():
            value, spot = self.get(source, name, place), (place, name)
            plain, expected, _ = _KINDS[kind]
            if value is _MISSING or (value is None and name not in _TOLD_IF_NONE):
                made[name] = missing
            elif type(value) in plain:
                made[name] = value
            else:
                try:
                    made[name] = self.taken(kind, value, spot)
                except SnowlCompatError:
                    raise
                except Exception:  # It says nothing of the kind.
                    self.tell(spot, f"expected {expected}, got {_shown(value)}")
                    made[name] = unusable
        return made

    def taken(self, kind: str, value: "Any", place: "_Place") -> "Any":
        """What a value of another type says for a kind of field; raises if nothing."""
        if kind in ("object", "object?", "any", "issues"):
            # An array will stand one level deeper, under "value".
            made = self.convert(value, place, 1 + (kind[0] == "o" and _is_list(value)))
            return (
                {"value": made} if kind[0] == "o" and type(made) is not dict else made
            )
        if kind == "texts":
            value = self.convert(value, place) if isinstance(value, _SETS) else value
            value = [value] if isinstance(value, (str, bytes)) else value
            fields = {index: ("text", None, None) for index in range(len(value))}
            texts = self.row(fields, dict(enumerate([*value])), place)  # type: ignore
            return [text for text in texts.values() if text is not None]
        if kind == "flags":
            own = getattr(value, "__dict__", ())
            further = value if _is_mapping(value) else (n for n in own if n[:1] != "_")
            if _is_mapping(value) or _has(value, *_FLAGS):
                flags = dict.fromkeys((*_FLAGS, *further), _TOOL["read_only"])
                return self.row(flags, value, place)
        plain = _Reading().convert(value, place)
        if kind in ("text", "text?", "patch?"):
            return self.text(kind, value, plain, place)
        if isinstance(plain, str) and kind == "flag":
            return _FLAG_WORDS[plain.strip().lower()]
        if isinstance(plain, str) and hasattr(value, "__float__"):  # A Decimal.
            plain = float(value)  # First, for int() of 1e999999999 would not end.
            whole = math.isfinite(plain) and value == int(value)
            plain = int(value) if whole else plain
        elif isinstance(plain, str):
            plain = json.loads(re.fullmatch(_JSON_NUMBER, plain)[0])  # type: ignore
        if kind == "flag":
            return {True: True, False: False}[bool(plain + 0)]
        if not math.isfinite(plain) or isinstance(plain, bool) and kind != "score?":
            raise ValueError("no finite number")
        if kind == "score?":
            return float(plain)
        if kind != "number?" and (plain % 1 or kind == "count" and plain < 0):
            raise ValueError("no such integer")
        return plain if kind == "number?" else int(plain)

    def text(self, kind: str, value: "Any", plain: "Any", place: "_Place") -> str:
        if isinstance(value, (bytes, bytearray)):
            plain = value.decode("utf-8", "replace")
            if plain.encode("utf-8") != value:
                self.tell(place, "expected UTF-8 text, got bytes that are not")
        elif isinstance(value, BaseException):
            plain = plain["message"]
        elif kind == "patch?" and not isinstance(plain, str):
            self.tell(place, f"expected text, got {_shown(value)}")
            plain = _compact(self.convert(value, place))
        elif isinstance(plain, dict) and not _is_mapping(value):
            plain = value.name
        plain = _compact(plain) if type(plain) in (bool, int, float) else plain
        if not isinstance(plain, str):
            raise TypeError("no text")
        return plain

    def convert(self, value: "Any", place: "_Place", level: int = 1) -> "Any":
        """A value as a new tree of dict, list, str, int, float, bool and None.

        Levels are counted from a field's own value: a payload's row is level 0.
        """
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, str) and not issubclass(kind, Enum):
            try:
                return value.encode("utf-8").decode("utf-8")
            except UnicodeEncodeError:
                found = f"got {_shown(str.__str__(value))}"
                self.tell(place, f"expected text without lone surrogates, {found}")
                return re.sub("[\ud800-\udfff]", "\ufffd", value)
        if issubclass(kind, float) and not issubclass(kind, Enum):
            if not math.isfinite(value):
                self.tell(place, f"expected a finite number, got {float(value)!r}")
            return float(value) if math.isfinite(value) else None
        if id(value) in self.above:
            self.tell(place, f"{_name(value)} contains itself")
            return {"$cycle": True}
        self.above.add(id(value))
        try:
            if issubclass(kind, int) and not issubclass(kind, Enum):
                return int(value) if str(value) else 0  # One too long to print raises.
            return self.compound(value, place, level)
        except SnowlCompatError:
            raise
        except Exception as error:
            return self.marker(value, place, f"which raised {_name(error)}")
        finally:
            self.above.discard(id(value))

    def compound(self, value: "Any", place: "_Place", level: int) -> "Any":
        """``convert`` for what may hold other values, or has a form of its own."""
        kind = type(value)
        leaf = value if kind is dict or kind is list else _leaf(value)
        if leaf is not value:
            return self.convert(leaf, place, level)
        made: Any = None
        if level > _MAX_DEPTH and value != _CUT:  # The mark of a cut stands there.
            self.tell(place, f"expected at most {_MAX_DEPTH} levels")
            return {**_CUT}
        if hasattr(kind, "__dataclass_fields__"):
            from dataclasses import fields  # Loaded already, if there is an instance.

            found = ((f.name, self.get(value, f.name, place)) for f in fields(value))
            made = self.mapping(found, place, level)
        elif issubclass(kind, Mapping):
            made = self.mapping(islice(value.items(), _MAX_ITEMS + 1), place, level)
        elif issubclass(kind, (list, tuple, deque, range)):
            items = enumerate(islice(value, _MAX_ITEMS + 1))
            made = [self.convert(item, (place, i), level + 1) for i, item in items]
        elif issubclass(kind, _SETS):
            first = len(self.issues or ())
            made = [self.convert(item, place, level + 1) for item in value]
            made.sort(key=_compact)  # The hash seed must not show.
            if self.issues is not None:
                self.issues[first:] = sorted(self.issues[first:])
        if made is not None and len(made) > _MAX_ITEMS:
            self.tell(place, f"expected at most {_MAX_ITEMS} items")
            return {"$truncated": "size"}
        for method, deeper in _FORMS if made is None else ():
            if hasattr(kind, method) and (deeper or _has(value, "dtype")):
                form = getattr(value, method)()
                if form is not value and (deeper or type(form) is not kind):
                    return self.convert(form, place, level + deeper)
        return self.marker(value, place) if made is None else made

    def mapping(self, items: "Iterable[Any]", place: "_Place", level: int) -> "_Row":
        made: _Row = {}
        for key, item in items:
            if not (type(key) is str and key.isascii()):
                is_odd = isinstance(key, float) and not math.isfinite(key)
                key = json.dumps(float(key)) if is_odd else self.convert(key, place)
                key = key if isinstance(key, str) else _compact(key)
            if key in made:
                self.tell(place, f"two keys become {_shown(key)}")
                key = next(k for n in count(2) if (k := f"{key}#{n}") not in made)
            kind = type(item)  # What is plain needs no call.
            if (
                kind is str
                and item.isascii()
                or item is None
                or kind is bool
                or kind is float
                and item - item == 0.0
                or kind is int
                and item in _SAFE
            ):
                made[key] = item
            elif item is not _MISSING:
                made[key] = self.convert(item, (place, key), level + 1)
        return made

    def marker(self, value: object, place: "_Place", why: str = "") -> "_Row":
        """What stands for a value that JSON cannot hold: a name, no address."""
        self.tell(place, f"expected JSON, got {_name(value)} {why}".rstrip())
        named: Any = value if issubclass(type(value), _NAMED) else type(value)
        parts = [getattr(named, part, None) for part in ("__module__", "__qualname__")]
        name = ".".join(part for part in parts if isinstance(part, str))
        name = (name or named.__name__).encode("utf-8", "replace").decode("utf-8")
        return {"$unserializable": name}

    # -- Sections: rows with their places, their values still the source's own

    def step_id(self, source: object, place: "_Place", outer: "int | None") -> int:
        """A row's own step id, else its record's, else its position, told."""
        found = self.get(source, "step_id", place)
        if type(found) is int and found in _SAFE:
            return found
        try:
            return int(self.taken("integer", found, place))
        except Exception:
            number = outer if outer is not None else int(place[1]) if place else 0
        if outer is None or not (found is None or found is _MISSING):
            what = f"expected an integer, got {_shown(found)}; using {number}"
            self.tell((place, "step_id"), what)
        return number

    def critic_row(self, output: "Any", place: "_Place", outer: "Any" = None) -> "_Row":
        row: _Row = {**_COLUMNS, **output} if type(output) is dict else {}
        if outer is not None and tuple(map(type, row.values())) in _USUAL_TYPES:
            row["step_id"] = outer  # Most verdicts need no reading of each field.
        else:
            prompt = self.get(output, "modified_prompt", place)
            row = {"step_id": self.step_id(output, place, outer)}
            row |= self.row(_CRITIC, output, place)
            row["modified_prompt"] = None if prompt is _MISSING else prompt
        prompt, action = row.pop("modified_prompt"), row["action"]
        if prompt is not None and "modified_prompt" in row["details"]:
            what = "the details have that key already; left out"
            self.tell((place, "modified_prompt"), what)
        elif prompt is not None:
            row["details"] = {**row["details"], "modified_prompt": prompt}
        if action not in _ACTIONS:
            row["action"] = known = action.strip().lower()
            if known not in _ACTIONS:
                what = f"expected continue, stop or retry, got {_shown(action)}"
                self.tell((place, "action"), what)
                row["action"] = action
        return row

    def critic_rows(self, run: object, events: bool, critics: "list[str]") -> "_Found":
        """Rows of the records' critic outputs, else of the run's critic traces.

        ``critics`` names, by position, the outputs of a record that have no name;
        with ``events`` those that the records hold are read too.
        """
        where: _Place = (None, "records")
        rows, records = 0, self.get(run, "records")
        records = self.elements(records, (*_RECORD, "action"), where)
        spot: _Place
        for record, place in records:
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
            for index, (output, spot) in enumerate(found):
                row = self.critic_row(output, spot, step_id)
                if row["critic_name"] == "unknown" and len(critics) == len(found):
                    row["critic_name"] = critics[index]
                yield row, spot
            rows += len(found)
        traces = None if rows else self.get(run, "critic_traces")
        for trace, place in self.elements(traces, _VERDICT, (None, "critic_traces")):
            yield self.critic_row(trace, place), place

    def tell_misspelt(self, record: "Any", place: "_Place") -> None:
        """Tell, once for each spelling, of keys that look like a record's."""
        from difflib import get_close_matches

        for key in {*map(str, record if _is_mapping(record) else ())} - self.spellings:
            self.spellings.add(key)
            for close in get_close_matches(key.lower(), _RECORD, 1):
                self.tell(place, f"unknown key {_shown(key)}, expected {close}?")

    def handoff_row(self, event: object, place: "_Place", outer: "Any") -> "_Row":
        """The row of a START event, or of a handoff trace, which has no payload."""
        row: _Row = {"step_id": self.step_id(event, place, outer)}
        body = self.get(event, "payload", place)
        if body is None or body is _MISSING:
            body = event
        else:
            place = (place, "payload")
            if not _is_mapping(body) and not _has(body, *_EVENT):
                self.tell(place, f"expected an object, got {_shown(body)}")
        for name in _HANDOFF:
            short = self.get(body, name.removesuffix("_agent"), place)
            absent = short is None or short is _MISSING
            row[name] = self.get(body, name, place) if absent else short
        row |= self.row(_HANDOFF, row, place)
        strategy = row["context_strategy"].upper()
        row["context_strategy"] = (
            strategy if strategy in _STRATEGIES else row["context_strategy"]
        )
        return row

    def read(
        self, events: "Any", place: "_Place", record: object = None, rows: bool = True
    ) -> int:
        """Take in handoffs, INIT and END of events; return how many events.

        ``record`` is the step record that holds the events.
        """
        found: Any = ()
        try:  # Of a plain list few events matter, and these are found quickly.
            get = itemgetter if type(events[0]) is dict else attrgetter
            phases = [*map(get("phase"), {list: events}[type(events)])]
            wanted = {phase for phase in set(phases) if _phase(phase) in _NOTABLE}
            at = [index for index, phase in enumerate(phases) if phase in wanted]
            found = ((events[index], (place, index)) for index in at)
            seen = quiet = len(phases) - len(at)
        except Exception:  # Something among them has no such phase.
            found, seen, quiet = self.elements(events, _EVENT, place), 0, 0
        for event, spot in found:
            value = self.get(event, "phase", spot)
            seen, quiet = seen + 1, quiet + (value is not _MISSING)
            phase = _phase(value)
            self.init = event if phase == "INIT" and self.init is None else self.init
            self.end = event if phase == "END" else self.end
            is_trace = value is _MISSING and _has(event, *_EVENT[2:])
            if rows and (is_trace or phase == "HANDOFF_START"):
                outer = place and record and self.step_id(record, place[0], None)
                self.handoffs.append((self.handoff_row(event, spot, outer), spot))
        self.phases += quiet if record is None else 0
        return seen

    def read_run(self, run: object, events: object) -> bool:
        """Read ``events``, else the run's; whether only the records tell of any."""
        self.events = self.read(events, (None, "events"))
        if self.events:
            return False
        traces = self.get(run, "handoff_traces")
        known = self.read(traces, (None, "handoff_traces"))
        self.events = self.read(
            self.get(run, "events"), (None, "events"), rows=not known
        )
        return not (known or self.events)

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

    def tool_rows(self, source: object) -> "_Found":
        where: _Place = (None, "tool_permissions")
        specs = self.exported(source, where, *_SPEC_EXPORTS)
        for spec, place in self.elements(specs, _SPEC, where):
            spec = _peek(spec, "spec") or spec
            if _is_mapping(spec):  # Released QitOS gives a model's form, in parts.
                parts = [spec, spec.get("capabilities"), spec.get("function")]
                spec = {k: v for p in parts if _is_mapping(p) for k, v in p.items()}
            row = self.row(_TOOL, spec, place)
            if not row["name"]:
                self.tell((place, "name"), "expected a name, got nothing")
                row["name"] = "unknown"
            yield row, place

    def config_row(self, source: "Any", account: object = None) -> "_Row":
        """An engine's configuration; ``account`` is what the run says of itself."""
        where: _Place = (None, "engine_config")
        config = self.exported(source, where, "export_config")
        facts = _facts(account, _SAID)
        if not _is_mapping(config) and not _has(config, *_CONFIG):
            if _has(config, "agent", "budget"):
                facts.update(_engine_facts(config))
            elif config is not None and not facts:
                what = f"expected an engine configuration, got {_shown(source)}"
                self.tell(where, what)
            config = facts
        return self.row(_CONFIG, config, where)

    def finished(self, rows: "_Found", as_text: bool = False) -> "Iterator[Any]":
        """Yield rows as strict JSON: in new dicts, or as pieces of text."""
        while chunk := [*islice(rows, 32)]:
            text = _strict_text([row for row, _ in chunk], -1) if as_text else None
            made = [] if text else [self.convert(row, at, 0) for row, at in chunk]
            if as_text:
                made = [(text or _encode(made))[1:-1]]
            yield from made


# -- What the encoder writes by itself ------------------------------------------------

_SCALARS = frozenset((str, int, float, bool, type(None)))
_SETS = (set, frozenset)
_SAFE = range(-(1 << 63), 1 << 63)  # Ints that may be printed everywhere.
_NAMED = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
_TEXT_TYPES = {"decimal.Decimal", "fractions.Fraction", "uuid.UUID"}
_JSON_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
# Methods that give a plain form, and how much deeper it stands.
_FORMS = (("to_dict", 1), ("model_dump", 1), ("tolist", 0), ("item", 0))


def _leaf(value: "Any") -> "Any":
    """The plain form of what is no JSON but holds no other value, else itself.

    Of an enum member, a date, a number type, an identifier, a path, bytes or an
    exception: nothing is lost, so that nothing has to be told.
    """
    kind = type(value)
    if issubclass(kind, Enum):
        return value.value
    if issubclass(kind, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__len__"):
        return value
    if hasattr(kind, "isoformat"):
        return value.isoformat()
    if hasattr(kind, "total_seconds"):
        return value.total_seconds()
    if _TEXT_TYPES.intersection(f"{b.__module__}.{b.__name__}" for b in kind.__mro__):
        return str(value)
    if _is_path(value):
        return os.fsdecode(value)
    if issubclass(kind, BaseException):
        # The repr of an object in a message has its address, which says nothing.
        plain = all(isinstance(arg, (str, int)) for arg in value.args)
        message = str(value) if plain else re.sub(" at 0x[0-9A-Fa-f]+", "", str(value))
        return {"type": kind.__name__, "message": message}
    return value


# A value that is its own plain form goes round until the encoder refuses it.
_strict: "Any" = {"ensure_ascii": False, "allow_nan": False, "check_circular": False}
_encode = json.JSONEncoder(**_strict, default=_leaf).encode
_compact = json.JSONEncoder(**_strict, separators=(",", ":")).encode


def _check(value: "Any", level: int) -> None:
    """Raise for too many levels, and for keys that are no text and could collide."""
    if level > _MAX_DEPTH and value != _CUT:
        raise ValueError(f"expected at most {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        "".join(value)
        value = value.values()
    for item in value:
        if type(item) not in _SCALARS and isinstance(item, (dict, list, tuple)):
            _check(item, level + 1)


def _strict_text(value: "Any", level: int) -> "str | None":
    """The JSON text of a dict or list, or None if it has to be walked first."""
    try:
        _check(value, level)
        text = _encode(value)
        return text if text.isascii() or text.encode("utf-8") else None
    except Exception:  # Also what a value's own method raises.
        return None


def to_json_value(
    value: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "Any":
    """Return ``value`` as a new tree of dict, list, str, int, float, bool and None.

    Takes anything and never raises for a bad value. ``issues`` is a list that collects an
    ``Issue`` for each change with a loss, its path beginning at ``value``; with ``strict``
    the first is raised as ``SnowlCompatError``.
    """
    return _Reading(issues, strict).convert(value, (None, "value"))


# -- Kinds of fields: types that pass as they are, words, schema; a ? may be null -----

_NONE, _FLAGS = type(None), (
    "filesystem_read",
    "filesystem_write",
    "network",
    "command",
)
_FLAG_WORDS = {"true": True, "yes": True, "1": True}
_FLAG_WORDS.update({"false": False, "no": False, "0": False})
_BOOL, _STR, _NUMBER = {"type": "boolean"}, {"type": "string"}, "a finite number"


def _closed(properties: "_Row", further: object = False) -> "_Row":
    """The schema of an object that has all of the properties, and no others."""
    known = {"type": "object", "properties": properties, "required": [*properties]}
    return {**known, "additionalProperties": further}


_ISSUES = {"type": "array", "items": _closed({"path": _STR, "message": _STR})}
_KINDS: "dict[str, tuple[tuple[type, ...], str, _Row]]" = {
    "flag": ((bool,), "true or false", _BOOL),
    "flag?": ((bool,), "true or false", {"type": ["boolean", "null"]}),
    "text": ((str,), "text", _STR),
    "text?": ((str,), "text", {"type": ["string", "null"]}),
    "patch?": ((str,), "text", {"type": ["string", "null"]}),
    "texts": ((), "a list of text", {"type": "array", "items": _STR}),
    "integer": ((), "an integer", {"type": "integer"}),
    "integer?": ((), "an integer", {"type": ["integer", "null"]}),
    "count": ((), "an integer >= 0", {"type": "integer", "minimum": 0}),
    "number?": ((), _NUMBER, {"type": ["number", "null"]}),
    "score?": ((float,), _NUMBER, {"type": ["number", "null"]}),
    "object": ((dict,), "an object", {"type": "object"}),
    "object?": ((dict,), "an object", {"type": ["object", "null"]}),
    "flags": ((), "an object of flags", _closed(dict.fromkeys(_FLAGS, _BOOL), _BOOL)),
    "issues": ((), "issues", _ISSUES),
    "any": ((), "JSON", {}),
}

# -- Tables of fields: kind, what a missing and what an unusable one becomes ----------

_CONFIG: "_Fields" = {
    "agent_name": ("text", "", ""),
    "model_id": ("text", "", ""),
    "budget_max_steps": ("integer?", None, None),
    "budget_max_runtime_seconds": ("number?", None, None),
    "budget_max_tokens": ("integer?", None, None),
    "critic_names": ("texts", [], []),
    "stop_criteria_names": ("texts", [], []),
    "has_checkpoint_store": ("flag", False, False),
    "has_tracing_provider": ("flag", False, False),
    "protocol_id": ("text?", None, None),
    "delegate_depth": ("integer?", None, None),
    "has_shared_memory": ("flag", False, False),
    "has_env": ("flag", False, False),
    "tool_count": ("integer?", None, None),
}
_NO_FLAGS = dict.fromkeys(_FLAGS, False)
_TOOL: "_Fields" = {
    "name": ("text", "", ""),
    "description": ("text", "", ""),
    "permissions": ("flags", _NO_FLAGS, _NO_FLAGS),
    "needs_approval": ("flag", False, True),  # What may ask is said to ask.
    "read_only": ("flag", False, False),
    "concurrency_safe": ("flag", False, False),
    "required_ops": ("texts", [], []),
}
_CRITIC: "_Fields" = {
    "critic_name": ("text", "unknown", "unknown"),
    "action": ("text", "continue", "continue"),
    "reason": ("text", "", ""),
    "score": ("score?", 1.0, None),  # The guide's default, but no fake score.
    "details": ("object", {}, {}),
    "instruction_patch": ("patch?", None, None),
    "state_patch": ("object?", None, None),
}
_HANDOFF: "_Fields" = {
    "from_agent": ("text", "", ""),
    "to_agent": ("text", "", ""),
    "context_strategy": ("text", "", ""),
    "messages_passed": ("count", 0, 0),
}
_RUN: "_Fields" = {
    "run_id": ("text?", None, None),
    "agent_name": ("text?", None, None),
    "stop_reason": ("text?", None, None),
    "final_result": ("any", None, None),
    "runtime_seconds": ("number?", None, None),
    "total_tokens": ("integer?", None, None),
    "tool_calls_by_name": ("object?", None, None),
    "success_rate": ("number?", None, None),
    "partial": ("flag?", None, None),
    "issues": ("issues", [], []),
    "source": ("text?", None, None),
}
_STEP: "_Fields" = {"step_id": ("integer", None, None)}
_TOLD_IF_NONE = ("score", "messages_passed")  # None is no way to say nothing there.


def _schema(fields: "_Fields") -> "_Row":
    return _closed({name: _KINDS[kind][2] for name, (kind, _, _) in fields.items()})


_DOCUMENTED = {
    "engine_config": _schema(_CONFIG),
    "tool_permissions": {"type": "array", "items": _schema(_TOOL)},
    "critic_traces": {"type": "array", "items": _schema({**_STEP, **_CRITIC})},
    "handoff_traces": {"type": "array", "items": _schema({**_STEP, **_HANDOFF})},
    "step_count": _KINDS["count"][2],
}
PAYLOAD_SCHEMA: "dict[str, Any]" = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Snowl payload of a QitOS agent run",
    **_closed({**_DOCUMENTED, "schema_version": _STR, "run": _schema(_RUN)}),
    "required": [*_DOCUMENTED],
}
# Payloads that were written before 0.2.0 have no source.
PAYLOAD_SCHEMA["properties"]["run"]["required"].remove("source")
"""JSON Schema 2020-12 of the payload, with the two keys of ``extended=True``."""

_ACTIONS = ("continue", "stop", "retry")
_STRATEGIES = ("FULL", "SUMMARY", "ISOLATED")
_NOTABLE = ("INIT", "END", "HANDOFF_START")
# What most verdicts look like: dicts of these columns and types.
_COLUMNS = {name: missing for name, (_, missing, _) in {**_STEP, **_CRITIC}.items()}
_COLUMNS["modified_prompt"] = None
_USUAL = (_NONE, str, str, str, float, dict)
_USUAL_TYPES = {(*_USUAL, p, s, _NONE) for p in (str, _NONE) for s in (dict, _NONE)}


def _phase(value: object) -> str:
    """The upper-case name of a phase, whatever form it has."""
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str) else value.name
    return value.rpartition(".")[2].upper() if isinstance(value, str) else ""


# Where a configuration stands in an engine without export_config(), as released, and in
# a run's own account of itself: its manifest, or its INIT event.
_IN_ENGINE = {
    "agent_name": "agent.name",
    "model_id": "agent.llm.model",
    "budget_max_steps": "budget.max_steps",
    "budget_max_runtime_seconds": "budget.max_runtime_seconds",
    "budget_max_tokens": "budget.max_tokens",
    "protocol_id": "protocol.id protocol agent.model_protocol",
    "delegate_depth": "delegate_depth",
}
_SAID = {
    "agent_name": "agent_name run_meta.agent_name",
    "model_id": "model_id run_meta.model_name",
    "budget_max_steps": "task_meta.budget.max_steps",
    "budget_max_runtime_seconds": "task_meta.budget.max_runtime_seconds",
    "budget_max_tokens": "task_meta.budget.max_tokens",
    "protocol_id": "run_meta.protocol",
    "tool_count": "run_meta.tool_count",
}


def _facts(source: object, paths: "dict[str, str]") -> "_Row":
    """For each field what stands at the first of its paths that says anything."""
    found: _Row = {}
    for name, several in paths.items():
        values = [_peek(source, path) for path in several.split()]
        said = [value for value in values if value is not None and value != ""]
        found.update({name: said[0]} if said else {})
    return found


def _engine_facts(engine: object) -> "_Row":
    """What the attributes of an engine say that exports nothing."""
    facts, agent = _facts(engine, _IN_ENGINE), _peek(engine, "agent")
    facts.setdefault("agent_name", agent and _name(agent))
    for name, parts in ("critic_names", "critics"), (
        "stop_criteria_names",
        "stop_criteria",
    ):
        found = _peek(engine, parts)
        found = found if isinstance(found, (list, tuple)) else ()
        facts[name] = [_peek(part, "name") or _name(part) for part in found]
    for part in ("checkpoint_store", "tracing_provider", "shared_memory", "env"):
        facts[f"has_{part}"] = _peek(engine, part) is not None
    facts["has_tracing_provider"] |= _peek(engine, "trace_writer") is not None
    return facts


# -- Trace folders and files ----------------------------------------------------------

_FILES = ("manifest.json", "steps.jsonl", "events.jsonl")


class _Run(dict[str, "Any"]):
    """A run read from a path, by the keys of an engine result."""

    path: "str | None" = None
    bare = False  # Whether it has nothing but its lines.


class _Lines:
    """The objects of JSON Lines, read anew at each iteration; bad ones as issues.

    Lines end at LF only: other separators may stand inside a string.
    """

    def __init__(self, path: str, data: bytes = b"") -> None:
        self.path = path
        self.data = data
        self.told: list[Issue] = []

    def __iter__(self) -> "Iterator[Any]":
        yield from self.told
        name = os.path.basename(self.path)
        try:
            with io.BytesIO(self.data) if self.data else open(self.path, "rb") as file:
                for number, line in enumerate(file, 1):
                    try:
                        value = json.loads(line)
                    except (ValueError, RecursionError):
                        value = None
                    if type(value) is dict:
                        yield value
                    elif line.strip():
                        yield from _mended(line, f"{name}:{number}")
        except FileNotFoundError:
            return
        except OSError as error:
            yield Issue(name, f"cannot be read: {error.strerror}")


def _mended(line: bytes, place: str) -> "Iterator[Any]":
    """Yield an ``Issue`` for what is wrong with a line, and its object if any."""
    text = line.decode("utf-8-sig", "replace")
    if text.encode("utf-8") != line.removeprefix(b"\xef\xbb\xbf"):
        yield Issue(place, "expected UTF-8 text, got bytes that are not")
    try:
        # A crash of the system may leave NUL bytes where a line should be.
        value = _parse(text.strip("\0 \t\r\n"))
        what = f"expected an object, got {_shown(value)}"
        yield value if isinstance(value, dict) else Issue(place, f"{what}; skipped")
    except SnowlCompatError as error:
        what = error.message if line.endswith(b"\n") else "the line is cut off"
        yield Issue(place, f"{what}; skipped")


def _parse(text: "str | bytes", path: str = "", *, strict: bool = False) -> "Any":
    """The value of a JSON text; ``strict`` refuses NaN and its like."""

    def refuse(token: str) -> object:
        raise ValueError(f"{token} is not JSON")

    def number(digits: str) -> float:  # One too long to read must not cost the rest.
        return int(digits) if len(digits) < 4300 else float(digits)

    try:
        if strict:
            return json.loads(text, parse_constant=refuse)
        return json.loads(text, parse_int=number)
    except RecursionError:
        raise SnowlCompatError("expected JSON, got too many levels", path) from None
    except ValueError as error:
        raise SnowlCompatError(f"expected JSON: {error}", path) from None


def _bytes_of(path: str) -> bytes:
    """What a file holds, or standard input for ``-``."""
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError, AttributeError) as error:  # Or it is closed.
        why = getattr(error, "strerror", None) or error
        raise SnowlCompatError(f"cannot be read: {why}", _readable(path)) from None


def _readable(path: str) -> str:
    """A path whose bytes the locale could not read taken as UTF-8."""
    try:
        return os.fsencode(path).decode("utf-8", "replace")
    except UnicodeError:
        return ascii(path)


def read_run(path: "str | os.PathLike[str]") -> "dict[str, Any]":
    """Return the run that a path holds, for ``build_payload``.

    ``path`` is a trace folder (``manifest.json``, ``steps.jsonl``, ``events.jsonl``; any
    may be missing, empty or cut off), a JSON file with an engine result, step records or
    a payload, JSON Lines of steps or events, or ``-`` for standard input. Lines of files
    are read when they are needed. Raises ``SnowlCompatError`` for what cannot be read.
    """
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise SnowlCompatError(f"expected a path, got {_name(path)}") from None
    if os.path.isdir(name):
        run = _folder_run(name)
    elif name.endswith(".jsonl") and os.path.isfile(name):
        run = _lines_run(_Lines(name))
    else:
        data = _bytes_of(name)
        try:
            value = _parse(data, _readable(name))
            if not isinstance(value, (dict, list)):
                what = f"expected an object or a list, got {_shown(value)}"
                raise SnowlCompatError(what, _readable(name))
            run = _Run(value if isinstance(value, dict) else {"records": value})
        except SnowlCompatError:
            first, _, rest = data.partition(b"\n")
            if not rest.strip() or not isinstance(next(_mended(first, "")), dict):
                raise
            run = _lines_run(_Lines(name, data))
    run.path = _readable(name)
    return run


def _is_run(path: str) -> bool:
    return any(os.path.isfile(os.path.join(path, name)) for name in _FILES)


def _lines_run(lines: _Lines) -> _Run:
    """The run in a single file of steps or events."""
    first = next((line for line in lines if isinstance(line, dict)), {})
    if "engine_config" in first and "critic_traces" in first:
        what = "expected one run, got a payload on each line"
        raise SnowlCompatError(what, _readable(lines.path))
    run = _Run({"events" if _has(first, *_EVENT[:2]) else "records": lines})
    run.bare = True
    return run


def _folder_run(path: str) -> _Run:
    if not _is_run(path):
        raise SnowlCompatError(f"expected one of {', '.join(_FILES)}", _readable(path))
    manifest_at, steps_at, events_at = (os.path.join(path, name) for name in _FILES)
    found: list[Any] = []
    if os.path.isfile(manifest_at):
        try:
            found = list(_mended(_bytes_of(manifest_at) + b"\n", "manifest.json"))
        except SnowlCompatError as error:
            found = [Issue("manifest.json", error.message)]
    manifest = next((item for item in found if isinstance(item, dict)), {})
    summary = _peek(manifest, "summary")
    run = _Run(summary if isinstance(summary, dict) else {})
    own = manifest.get("engine_config")
    tools = manifest.get("tool_permissions") or _peek(summary, "run_meta.tools")
    run.update(
        records=_Lines(steps_at),
        events=_Lines(events_at),
        engine_config=own or _facts({**run, **manifest}, _SAID),
        tool_permissions=tools,
        run_id=manifest.get("run_id")
        or os.path.basename(_readable(os.path.abspath(path))),
        has_config=bool(own),
    )
    run["records"].told = [item for item in found if isinstance(item, Issue)]
    run.bare = not manifest
    return run


# -- The payload ----------------------------------------------------------------------

_RUN_KEYS = ("records", "events", "step_count", "critic_traces", "handoff_traces")


def _as_run(source: "Any") -> "Any":
    """The object or mapping with a run's attributes that a source stands for."""
    if isinstance(source, str) or _is_path(source):
        source = read_run(source)
    if _has(source, *_RUN_KEYS):
        return source
    values = [*source.values()] if _is_mapping(source) else []
    listed = (
        all(_has(item, *_RECORD) for item in values) if values else _is_list(source)
    )
    if _has(source, *_RECORD) or listed and (values or not _is_mapping(source)):
        return {"records": source}
    what = "expected an engine result, step records, a payload or a path"
    found = "dict" if isinstance(source, dict) else _name(source)
    raise SnowlCompatError(f"{what}, got {found}", _path_of(source) or "")


def _path_of(run: object) -> "str | None":
    return getattr(run, "path", None) if isinstance(run, dict) else None


def _built(
    source: object,
    options: "_Row",
    extended: bool,
    reading: _Reading,
    text: bool = False,
) -> "_Row":
    """The payload; with ``text`` its critic rows are pieces of their text."""
    run, engine = _as_run(source), options["engine"]
    again = not any(x is not None for x in options.values()) and _is_payload(run)
    if again:
        reading = _Reading()  # A payload reproduces itself: there is nothing to tell.
    reading.issues = [] if reading.issues is None else reading.issues
    first = len(reading.issues)
    names = _Reading().config_row(engine)["critic_names"] if engine is not None else []
    alone = reading.read_run(run, options["events"])
    critics = [*reading.finished(reading.critic_rows(run, alone, names), text)]
    if getattr(run, "bare", None) is True and not reading.steps + reading.events:
        what = "expected steps, events or a manifest, got nothing that can be read"
        raise SnowlCompatError(what, run.path)
    specs, row = _tools_and_config(reading, run, options)
    if row["tool_count"] is None and specs is not None and not again:
        row["tool_count"] = len(specs)
    said = reading.get(run, "step_count")
    steps = _Reading().row({"n": ("count", None, None)}, {"n": said}, None)["n"]
    if steps is None and said is not None and said is not _MISSING:
        what = f"expected an integer >= 0, got {_shown(said)}; counted {reading.steps}"
        reading.tell((None, "step_count"), what)
    payload: _Row = {
        "engine_config": reading.convert(row, (None, "engine_config"), 0),
        "tool_permissions": specs or [],
        "critic_traces": critics,
        "handoff_traces": [*reading.finished(iter(reading.handoffs))],
        "step_count": reading.steps if steps is None else steps,
    }
    if extended:
        version = _peek(run, "schema_version") if again else None
        payload["schema_version"] = version or SCHEMA_VERSION
        row = _run_row(reading, run, payload["engine_config"]["agent_name"])
        payload["run"] = reading.convert(row, (None, "run"), 0)
        told_now = reading.issues[first:] if not again else ()
        payload["run"]["issues"] += [issue._asdict() for issue in told_now]
    return payload


def _tools_and_config(
    reading: _Reading, run: "Any", options: "_Row"
) -> "tuple[list[Any] | None, _Row]":
    """The rows of the tools, None if nothing says any, and the configuration.

    What is given comes first, then the engine, then the run's own; a run's account of
    itself, its INIT event, speaks where nothing else does.
    """
    engine, own = options["engine"], _peek(run, "engine_config")
    account = _peek(reading.init, "payload")
    told, own_tools = _peek(account, "run_meta.tools"), _peek(run, "tool_permissions")
    if reading.handoffs and told and _peek(run, "has_config") is False:
        # After a handoff a manifest tells of the last agent's tools only.
        own, own_tools = {**own, "tool_count": None}, told
    own = run if own is None and hasattr(type(run), "export_config") else own
    sources = [options["tool_permissions"], options["tool_registry"]]
    found = [_peek(engine, "tool_registry"), _peek(engine, "agent.tool_registry")]
    found += [_peek(run, "tool_registry"), own_tools]
    found += [told] if own is None else []
    sources += [x for x in found if _is_list(x) or _has(x, *_SPEC_EXPORTS)]
    source = next((found for found in sources if found is not None), None)
    source = reading.exported(source, (None, "tool_permissions"), *_SPEC_EXPORTS)
    specs = [*reading.finished(reading.tool_rows(source))]
    configs = (options["engine_config"], engine, own)
    config = next((found for found in configs if found is not None), None)
    row = reading.config_row(config, account if own is None else None)
    return (None if source is None else specs), row


_SAID_IN = ("task_result", "task_result.metrics", "state", "run")
_OTHER_NAMES = {"runtime_seconds": "elapsed_seconds", "total_tokens": "token_usage"}


def _run_row(reading: _Reading, run: object, agent: str) -> "_Row":
    """What the run says of itself; nothing in it is guessed."""
    places = [run, *(_peek(run, path) for path in _SAID_IN)]
    places += [_peek(event, "payload") for event in (reading.end, reading.init)]
    values: _Row = {}
    for name in _RUN:
        names = (name, _OTHER_NAMES.get(name, name))
        found = (_peek(place, key) for place in places for key in names)
        values[name] = next((value for value in found if value is not None), None)
    if reading.phases or reading.end:
        values["partial"] = reading.end is None
    values["agent_name"] = agent or None
    if _peek(run, "run") is None:
        values["source"] = _path_of(run)
    return reading.row(_RUN, values, (None, "run"))


def _is_whole(value: object) -> bool:
    return isinstance(value, dict) and value.keys() >= _DOCUMENTED.keys()


def _is_payload(run: "Any") -> bool:
    return _is_whole(run) and not validate_payload({**run})


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
    options = {"engine": engine, "tool_registry": tool_registry, "events": events}
    options.update(engine_config=engine_config, tool_permissions=tool_permissions)
    payload: Any = _built(source, options, extended, _Reading(issues, strict))
    return payload  # type: ignore[no-any-return]


def engine_config(
    source: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "EngineConfigRow":
    """Return the 14 fields of an engine, an ``EngineConfig`` or a mapping.

    What it does not say is ``""``, ``[]``, false or None. Options as everywhere.
    """
    reading = _Reading(issues, strict)
    row: Any = reading.convert(reading.config_row(source), (None, "engine_config"), 0)
    return row  # type: ignore[no-any-return]


def tool_permissions(
    source: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "list[ToolPermissionRow]":
    """Return a row of 7 fields for each tool of a registry or list of specs."""
    reading = _Reading(issues, strict)
    return [*reading.finished(reading.tool_rows(source))]


def critic_traces(
    records: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "list[CriticRow]":
    """Return a row of 8 fields for each critic output of step records or of a run."""
    reading = _Reading(issues, strict)
    run = records if _has(records, *_RUN_KEYS) else {"records": records}
    return [*reading.finished(reading.critic_rows(run, False, []))]


def handoff_traces(
    events: object, *, strict: bool = False, issues: "list[Issue] | None" = None
) -> "list[HandoffRow]":
    """Return a row of 5 fields for each HANDOFF_START of events or of a run."""
    reading = _Reading(issues, strict)
    run = events if _has(events, *_RUN_KEYS) else {"events": events}
    if reading.read_run(run, None):
        records, where = _peek(run, "records"), (None, "records")
        for record, place in reading.elements(records, _RECORD, where):
            held = reading.get(record, "phase_events", place)
            reading.read(held, (place, "phase_events"), record)
    return [*reading.finished(iter(reading.handoffs))]


# -- JSON text, and back --------------------------------------------------------------


def dumps(payload: object, *, indent: "int | None" = None) -> str:
    """Return strict JSON text of a payload, or of any other value.

    What JSON cannot hold is converted as by ``to_json_value``; text stays readable (no
    ``\\u`` escapes) and always encodes as UTF-8. ``indent`` is the number of spaces of
    each level, None for one line.
    """
    # Levels are counted from the fields of a payload's rows.
    level, is_json = -2 if _is_whole(payload) else 1, type(payload) in (dict, list)
    text = _strict_text(payload, level) if is_json else None
    if text is not None and indent is None:
        return text
    value = _Reading().convert(payload, None, level) if text is None else payload
    return json.dumps(value, ensure_ascii=False, indent=indent, default=_leaf)


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

    Takes and raises what ``build_payload`` does; without ``indent`` rows become text as
    they are read, and no copy of them is made.
    """
    options = {"engine": engine, "tool_registry": tool_registry, "events": events}
    options.update(engine_config=engine_config, tool_permissions=tool_permissions)
    reading, as_text = _Reading(issues, strict), indent is None
    payload = _built(source, options, extended, reading, as_text)
    if not as_text:
        return dumps(payload, indent=indent)
    rows, payload["critic_traces"] = ", ".join(payload["critic_traces"]), []
    return _encode(payload).replace(
        '"critic_traces": []', f'"critic_traces": [{rows}]', 1
    )


def load_payload(source: "str | bytes | Mapping[str, Any]") -> "Payload":
    """Return the payload that a JSON text, UTF-8 bytes or a mapping holds.

    Raises ``SnowlCompatError`` with the place of the first problem; NaN is one.
    """
    payload: Any = source
    if isinstance(source, (str, bytes, bytearray)):
        payload = _parse(source, strict=True)
    for issue in validate_payload({**payload} if _is_mapping(payload) else payload):
        raise SnowlCompatError(issue.message, issue.path)
    return _Reading().convert(payload, None, -2)  # type: ignore[no-any-return]


def validate_payload(payload: object) -> "list[Issue]":
    """Return an ``Issue`` for each place where a payload breaks the schema.

    The empty list means valid: every value is then one that strict JSON can hold.
    """
    issues: list[Issue] = []
    _validate(payload, PAYLOAD_SCHEMA, None, _Reading(issues))
    return issues


_TYPES: "dict[str, tuple[tuple[type, ...], str]]" = {
    "object": ((dict,), "an object"),
    "array": ((list,), "an array"),
    "string": ((str,), "text"),
    "number": ((int, float), "a number"),
    "integer": ((int,), "an integer"),
    "boolean": ((bool,), "true or false"),
    "null": ((_NONE,), "null"),
}


def _validate(value: "Any", schema: "_Row", place: "_Place", reading: _Reading) -> None:
    """Interpret the part of JSON Schema that ``PAYLOAD_SCHEMA`` uses."""
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    kinds = tuple(kind for name in names for kind in _TYPES[name][0])
    fits = isinstance(value, kinds) and (type(value) is not bool or bool in kinds)
    fits = fits or int in kinds and type(value) is float and value.is_integer()
    if names and not fits:
        expected = " or ".join(_TYPES[name][1] for name in names)
        reading.tell(place, f"expected {expected}, got {_shown(value)}")
    elif "properties" in schema and isinstance(value, dict):
        for name in schema["required"]:
            if name not in value:
                reading.tell((place, name), "missing")
        for name, item in value.items():
            inner = schema["properties"].get(name, schema["additionalProperties"])
            if not isinstance(name, str):
                reading.tell(place, f"expected text keys, got {_shown(name)}")
            elif inner is False:
                reading.tell((place, name), "unexpected key")
            else:
                _validate(item, inner, (place, name), reading)
    elif "items" in schema and isinstance(value, list):
        for index, item in enumerate(value):
            _validate(item, schema["items"], (place, index), reading)
    elif "minimum" in schema and value < schema["minimum"]:
        reading.tell(place, f"expected at least {schema['minimum']}, got {value!r}")
    else:
        found = len(reading.issues or ())
        made = reading.convert(value, place)
        if made != value and found == len(reading.issues or ()):
            reading.tell(place, f"expected JSON, got {_shown(value)}")


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
    what = (
        "a trace folder, a file of JSON or JSON Lines, a folder of runs, or - (stdin)"
    )
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
            parser.error(
                "--indent is a number >= 0, for one run: several are JSON Lines"
            )
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
        for issue in issues:
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


def _check_files(paths: "list[str]") -> int:
    code = 0
    for path in paths:
        lines = [*enumerate(_bytes_of(path).split(b"\n"), 1)]
        texts = [(f"{path}:{number}", line) for number, line in lines if line.strip()]
        try:
            _parse(texts[0][1] if len(texts) > 1 else b"", strict=True)
        except SnowlCompatError:  # It is one text, not one in each line.
            texts = [(path, b"\n".join(line for _, line in lines))]
        for place, text in texts:
            try:
                for issue in validate_payload(_parse(text, strict=True)):
                    code = _tell(place, *issue)
            except SnowlCompatError as error:
                code = _tell(place, error.message)
    return code


def main(argv: "list[str] | None" = None) -> int:
    """Run the command line and return its exit code."""
    try:
        args = _arguments(argv)
        if args.command == "check":
            return _check_files(args.files)
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
