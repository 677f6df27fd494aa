# SPDX-License-Identifier: MIT
#
# Copyright (c) 2026 the snowl-compat authors
# The payload format comes from QitOS (MIT), Copyright (c) 2026 Qitor Research.
#
# Permission is hereby granted, free of charge, to any person obtaining a copy
# of this software and associated documentation files (the "Software"), to deal
# in the Software without restriction, including without limitation the rights
# to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
# copies of the Software, and to permit persons to whom the Software is
# furnished to do so, subject to the following conditions:
#
# The above copyright notice and this permission notice shall be included in all
# copies or substantial portions of the Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
# IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
# FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
# AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
# LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
# OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
# SOFTWARE.
"""Turn a QitOS agent run into the Snowl payload, as strict JSON.

One file, Python 3.10 or newer, standard library only; copy it freely.

In:   an EngineResult, a list of StepRecords, a trace folder or a JSON file;
      objects and mappings are read by shape, never by class.
Out:  the five documented keys: engine_config, tool_permissions, critic_traces,
      handoff_traces, step_count.

    import snowl_compat
    payload = snowl_compat.build_payload(result, engine=engine)
    text = snowl_compat.dumps(payload)

    python snowl_compat.py export runs/my_run -o payload.json

What cannot be written as JSON costs its own leaf, never the run; every such
change is told as an Issue (path, message), or raised with strict=True.
Exit codes: 0 fine, 1 a problem in the data, 2 wrong usage.
"""

import binascii
import json
import math
import os
import re
import sys
from collections import deque, namedtuple
from collections.abc import Mapping
from enum import Enum
from itertools import chain, count, islice
from operator import itemgetter
from types import SimpleNamespace

if sys.version_info < (3, 10):
    raise ImportError("snowl_compat needs Python 3.10 or newer")

__all__ = [
    "InstalledAgent",
    "Issue",
    "PAYLOAD_SCHEMA",
    "QitOSAdapter",
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

__version__ = "0.1.0"
SCHEMA_VERSION = "1.0"
"""Version of the payload's form, told by ``extended=True``."""


# ---------------------------------------------------------------------------
# Errors and issues
# ---------------------------------------------------------------------------


class SnowlCompatError(ValueError):
    """Something that cannot be read or, with ``strict=True``, expressed.

    ``message`` says what is wrong, ``path`` where (``records[3].step_id``).
    """

    def __init__(self, message, path=""):
        super().__init__(_encodable(f"{path}: {message}" if path else message))
        self.message = message
        self.path = path


Issue = namedtuple("Issue", ("path", "message"))
Issue.__doc__ = "One thing that was changed, left out or wrong, and where."


class _Report:
    """Where issues go: collected, dropped, or raised at the first one.

    A place is a chain of pairs (outer place, key or index); its text is made
    only when there is something to tell.
    """

    __slots__ = ("honest", "issues", "strict")

    def __init__(self, issues=None, strict=False):
        self.issues = issues
        self.strict = strict
        self.honest = {}

    def __call__(self, where, message):
        if self.strict:
            raise SnowlCompatError(message, _path_text(where))
        if self.issues is not None:
            self.issues.append(Issue(_path_text(where), _encodable(message)))


class _Held(_Report):
    """Issues that wait for their place to be complete."""

    __slots__ = ()

    def __call__(self, where, message):
        self.issues.append((where, message))


def _encodable(text):
    """The text with lone surrogates, which UTF-8 cannot hold, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _path_text(where):
    parts = []
    while where is not None:
        where, key = where
        if where is None:
            parts.append(key)
        elif isinstance(key, int):
            parts.append(f"[{key}]")
        elif re.fullmatch(r"[\w$-]+", key):
            parts.append(f".{key}")
        else:
            parts.append(f"[{json.dumps(key)}]")
    return _encodable("".join(reversed(parts)))


_MISSING = type("_Missing", (), {"__repr__": lambda self: "missing"})()


def _attempt(call, *args):
    """(True, what the call returns), or (False, what it raised).

    The one place where foreign code runs, which may raise anything; only
    Ctrl-C is not for us.
    """
    try:
        return True, call(*args)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: B902
        return False, error


def _type_name(value):
    # Read past the metaclass, which may answer anything.
    return type.__dict__["__name__"].__get__(type(value))


def _shown(value):
    """A value as messages show it: plain ones by repr, others by type."""
    if value is _MISSING:
        return "nothing"
    kind = type(value)
    if kind is str:
        return repr(value[:80])
    if value is None or kind is bool or kind is float:
        return repr(value)
    if kind is int and value.bit_length() < 2000:
        return repr(value)
    return _type_name(value)


# ---------------------------------------------------------------------------
# Reading by shape
# ---------------------------------------------------------------------------


def _mro(kind):
    return type.__dict__["__mro__"].__get__(kind)


def _declared(kind, name):
    """What the type itself, not ``__getattr__``, has by a name, or missing."""
    for base in _mro(kind):
        table = type.__dict__["__dict__"].__get__(base)
        if name in table:
            return table[name]
    return _MISSING


def _declares(kind, name):
    return _declared(kind, name) is not _MISSING


def _is_mapping(value):
    # By type: an object may lie about its class, and a class about its hash.
    kind = type(value)
    return issubclass(kind, dict) or _attempt(issubclass, kind, Mapping) == (True, True)


def _has(source, name):
    """Whether the mapping has the key, or the object really the attribute."""
    if _is_mapping(source):
        return _attempt(lambda: name in source) == (True, True)
    if _declares(type(source), name):
        return True
    ok, own = _attempt(object.__getattribute__, source, "__dict__")
    return ok and issubclass(type(own), dict) and dict.__contains__(own, name)


def _has_any(source, names):
    return any(_has(source, name) for name in names)


_PLAIN_GETTERS = (object.__getattribute__, SimpleNamespace.__getattribute__)


def _is_honest(kind, report):
    """Whether ``getattr`` finds just what such objects really have.

    Asked once for each type and report.
    """
    if type(kind) is not type:
        return False  # A metaclass may answer anything, even to ``==``.
    known = report.honest.get(kind)
    if known is None:
        known = report.honest[kind] = (
            kind.__getattribute__ in _PLAIN_GETTERS
            and not _declares(kind, "__getattr__")
            and not issubclass(kind, Mapping)
        )
    return known


def _read(source, name, where, report):
    """The key or attribute, or ``_MISSING``; one that raises is an issue."""
    kind = type(source)
    if kind is dict:
        ok, value = _attempt(source.get, name, _MISSING)
    elif _is_honest(kind, report):
        ok, value = _attempt(getattr, source, name, _MISSING)
    else:
        ok, value = False, None
    if ok:
        return value
    if _is_mapping(source):
        ok, value = _attempt(lambda: source[name] if name in source else _MISSING)
    elif _has(source, name):
        ok, value = _attempt(getattr, source, name)
    else:
        return _MISSING
    if ok:
        return value
    if type(_declared(type(source), name)) is not type(_Report.issues):
        report((where, name), f"reading it raised {_type_name(value)}")
    return _MISSING  # A slot that was never filled is no issue.


_METHOD_TYPES = (type(_mro), type(list.__iter__), type(list.append))


def _has_method(value, name):
    """Whether the type has it as a function, which a mock's methods are not."""
    return issubclass(type(_declared(type(value), name)), _METHOD_TYPES)


def _is_iterable(value):
    """Whether it may be walked as a list: text, bytes and classes may not."""
    if issubclass(type(value), (str, bytes, bytearray, range, type)):
        return False
    return _has_method(value, "__iter__")


def _is_issue(value):
    """Whether it is an ``Issue``, of this or another copy of the file."""
    named = issubclass(type(value), tuple) and _has(value, "path") and _has(value, "message")
    return named and all(type(part) is str for part in tuple.__iter__(value))


def _is_plain_list(value):
    """Whether it can be walked without care: no foreign code, nothing raised."""
    kind = type(value)
    return kind is list or kind is tuple or kind is _Lines


def _is_element(element, known, report):
    """Whether one element of a list may be read as a record.

    A verdict that is no mapping needs its action: anything may have a reason.
    """
    kind = type(element)
    if kind is dict:
        return True
    if known is _CRITIC_NAMES and not _is_mapping(element):
        known = known[:1]
    if _is_honest(kind, report):
        ok, value = _attempt(getattr, element, known[0], _MISSING)
        if ok and value is not _MISSING:
            return True
    return _is_mapping(element) or _has_any(element, known)


def _elements(value, known, where, report, outer=(), first=0):
    """Yield (element, place) of what should be a list of records.

    ``known`` are the names by which one record is recognised. A lone record is
    a list of one, a list inside the list is read through, a mapping of records
    stands for its values; anything else is skipped with an issue. ``first`` is
    the index of the first element.
    """
    if value is None or value is _MISSING:
        return
    plain = _is_plain_list(value)
    if not plain and _has_any(value, known):
        yield value, (where, 0)
        return
    if not plain and _is_mapping(value):
        items = _values(value)
        if not all(_has_any(item, known) for item in items):
            yield value, (where, 0)
            return
        value = items
    if not plain and not _is_iterable(value):
        report(where, f"expected a list, got {_shown(value)}")
        return
    if len(outer) > _MAX_DEPTH or any(value is above for above in outer):
        report(where, "expected a list of records, got too many lists in lists")
        return
    if issubclass(type(value), (set, frozenset)):
        value = _in_order(value)
    elements = value if plain else _carefully(value, where, report)
    for index, element in enumerate(elements, first):
        place = (where, index)
        if _is_element(element, known, report):
            yield element, place
        elif _is_issue(element):
            report((None, element.path), element.message)
        elif issubclass(type(element), (list, tuple)):
            yield from _elements(element, known, place, report, (*outer, value))
        else:
            report(place, f"expected a record, got {_shown(element)}; skipped")


def _in_order(values):
    """A set's elements by step id and JSON text, which no hash seed changes."""

    def place(element):
        return _integer(_meta(element, "step_id")) or 0, dumps(element)

    ok, ordered = _attempt(lambda: sorted(values, key=place))
    return ordered if ok else values


def _carefully(value, where, report):
    """Iterate over anything; what a foreign iterator raises ends it, told."""
    ok, iterator = _attempt(iter, value)
    for index in count():
        ok, element = _attempt(next, iterator, _MISSING) if ok else (ok, iterator)
        if element is _MISSING:
            return
        if not ok:
            report((where, index), f"reading on raised {_type_name(element)}")
            return
        yield element


def _values(mapping):
    """The values of a mapping; itself as the only one if they cannot be had."""
    ok, values = _attempt(lambda: list(mapping.values()))
    return values if ok else [mapping]


# ---------------------------------------------------------------------------
# Values: JSON means JSON
# ---------------------------------------------------------------------------

_MAX_DEPTH = 100
_TOO_DEEP = {"$truncated": "depth"}
_MAX_VALUES = 1_000_000
_MAX_DIGITS = 4300

_compact = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode
"""Strict JSON as its own text, which is what keys and patches become."""


def _is_a(kind, module, name):
    """Whether a type is the named one, without importing its module.

    A module that nobody has imported has no instances.
    """
    wanted = getattr(sys.modules.get(module), name, None)
    return any(base is wanted for base in _mro(kind))


def _clean_text(text, where, report):
    """The text with each lone surrogate, which UTF-8 cannot hold, replaced."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        report(where, f"expected text without lone surrogates, got {_shown(text)}")
        return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _is_long(number):
    """Whether an int has more digits than may be written here."""
    if number.bit_length() < 2000:
        return False
    # A process may allow fewer, and then json.dumps refuses them too.
    allowed = getattr(sys, "get_int_max_str_digits", int)() or _MAX_DIGITS
    return abs(number) >= 10 ** min(allowed, _MAX_DIGITS)


_TEXT_TYPES = (("decimal", "Decimal"), ("uuid", "UUID"), ("fractions", "Fraction"))
_PLAIN_FORMS = ("to_dict", "model_dump")
_ARRAY_FORMS = ("tolist", "item")
_FUNCTION_TYPES = (type(_is_a), type(len), type(_compact))


def _names(value):
    """Module and name of a class, function or module; of others nothing."""
    kind = type(value)
    if issubclass(kind, type):
        slots = [type.__dict__[name] for name in ("__module__", "__qualname__")]
        found = [_attempt(slot.__get__, value)[1] for slot in slots]
    elif issubclass(kind, _FUNCTION_TYPES):
        found = [_attempt(getattr, value, n)[1] for n in ("__module__", "__qualname__")]
    else:
        found = [_attempt(getattr, value, "__name__")[1]] if kind is type(sys) else []
    return [name for name in found if issubclass(type(name), str)]


def _marker(value):
    """What stands for a value that JSON cannot hold: its name, no address."""
    text = ".".join(_names(value) or _names(type(value)))
    return {"$unserializable": _clean_text(text, None, _Report())}


class _Walk:
    """One conversion of one field: the place of issues, and what is left of it.

    ``convert`` and ``compound`` are the whole table of values, in order; the
    first row that matches wins. Whatever they are given, they return a tree of
    new dicts and lists with str, int, float, bool and None.
    """

    __slots__ = ("above", "left", "report")

    def __init__(self, report):
        self.report = report
        self.left = _MAX_VALUES
        self.above = set()

    def convert(self, value, where, level=1):
        self.left -= 1
        if self.left < 0:
            if self.left == -1:
                self.report(where, f"expected at most {_MAX_VALUES} values")
            return {"$truncated": "size"}
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, str):
            return _clean_text(str.__str__(value), where, self.report)
        if issubclass(kind, int) and not _is_long(int.__int__(value)):
            return int.__int__(value)
        if issubclass(kind, float):
            return self.number(float.__float__(value), where)
        deep = level > _MAX_DEPTH
        if deep and not self.may_be_scalar(value, kind):
            self.report(where, f"expected at most {_MAX_DEPTH} levels")
            return dict(_TOO_DEEP)
        if id(value) in self.above:
            self.report(where, f"{_type_name(value)} contains itself")
            return {"$cycle": True}
        self.above.add(id(value))
        try:
            if level < 3 and (kind is dict or kind is list):
                try:
                    size = _strict_size(value, _MAX_DEPTH + 1 - level)
                except _Awkward:
                    size = sys.maxsize  # Then all of it is walked.
                if size <= self.left:
                    self.left -= size
                    return _copied(value)
            made = self.compound(value, kind, where, level)
        except RecursionError:
            # The caller left little of the stack: what fits on it is written.
            self.report(where, "expected fewer levels, so near the stack's end")
            made = dict(_TOO_DEEP)
        finally:
            self.above.discard(id(value))
        return dict(_TOO_DEEP) if deep and type(made) is dict else made

    def may_be_scalar(self, value, kind):
        """Whether it may become text, a number or a flag at the last level."""
        if issubclass(kind, Enum) or _declares(kind, "dtype"):
            return True
        return self.text_of(value, kind) is not None

    def number(self, value, where):
        if math.isfinite(value):
            return value
        self.report(where, f"expected a finite number, got {value!r}")
        return None

    def compound(self, value, kind, where, level):
        if kind is dict:  # The most frequent kinds are no other's subclass.
            return self.members(value, where, level, value.items)
        if kind is list:
            return self.array(value, where, level)
        if issubclass(kind, int):
            self.report(where, f"expected at most {_MAX_DIGITS} digits, got int")
            return {"$unserializable": "builtins.int"}
        if issubclass(kind, Enum):
            return self.result(value, where, level, lambda: value.value)
        if _declares(kind, "__dataclass_fields__") and "dataclasses" in sys.modules:
            return self.dataclass(value, kind, where, level)
        if issubclass(kind, tuple) and _declares(kind, "_fields"):
            names, items = _attempt(lambda: kind._fields)[1], tuple.__iter__(value)
            if type(names) is tuple and len(names) == tuple.__len__(value):
                return self.members(value, where, level, lambda: zip(names, items))
        if _is_mapping(value):
            return self.members(value, where, level, lambda: value.items())
        if issubclass(kind, (list, tuple, deque, range)):
            return self.array(value, where, level)
        if issubclass(kind, (set, frozenset)):
            return self.sorted_array(value, where, level)
        text = self.text_of(value, kind)
        if text is not None:
            return self.result(value, where, level, text)
        if issubclass(kind, (bytes, bytearray, memoryview)):
            ok, data = _attempt(lambda: memoryview(value).tobytes())
            if not ok:
                return self.unserializable(value, where)
            return {"$bytes": binascii.b2a_base64(data, newline=False).decode("ascii")}
        if issubclass(kind, BaseException):
            return self.exception(value, where)
        return self.foreign(value, kind, where, level)

    def result(self, value, where, level, call):
        """Convert what the call makes of a value, in whose place it stands."""
        ok, made = _attempt(call)
        if not ok:
            return self.unserializable(value, where, f"which raised {_type_name(made)}")
        if made is value:
            return self.unserializable(value, where, "which converts to itself")
        self.left += 1
        return self.convert(made, where, level)

    def unserializable(self, value, where, why=""):
        name = _type_name(value)
        self.report(where, f"expected a JSON value, got {name} {why}".rstrip())
        return _marker(value)

    def dataclass(self, value, kind, where, level):
        """An object of the fields that are set; one that raises is a marker."""
        ok, names = _attempt(
            lambda: [str(field.name) for field in sys.modules["dataclasses"].fields(kind)]
        )
        if not ok:
            return self.unserializable(value, where)
        result = {}
        for name in names:
            place = (where, name)
            ok, found = _attempt(getattr, value, name)
            if ok:
                result[name] = self.convert(found, place, level + 1)
            elif type(found) is not AttributeError:
                self.report(place, f"reading it raised {_type_name(found)}")
                result[name] = _marker(value)
            if self.left < 0:
                break
        return result

    def members(self, value, where, level, call):
        ok, items = _attempt(
            lambda: [(k, v) for k, v in list(islice(call(), self.left + 1))]
        )
        if not ok:
            return self.unserializable(value, where, f"which raised {_type_name(items)}")
        result, numbers = {}, {}
        for key, item in items:
            name = self.key(key, where, level)
            if name in result:
                number = numbers.get(name, 2)
                while f"{name}#{number}" in result:
                    number += 1
                numbers[name] = number + 1
                self.report(where, f"two keys become {_shown(name)}")
                name = f"{name}#{number}"
            result[name] = self.convert(item, (where, name), level + 1)
            if self.left < 0:
                break
        return result

    def key(self, key, where, level):
        """The text of a mapping's key."""
        if type(key) is str:
            return _clean_text(key, where, self.report)
        key = _unwrapped(key)
        if issubclass(type(key), float) and not math.isfinite(float.__float__(key)):
            return json.dumps(float.__float__(key))
        self.left += 1  # A key is no value of its own.
        key = self.convert(key, where, level + 1)
        return key if isinstance(key, str) else _compact(key)

    def array(self, value, where, level):
        ok, items = _attempt(lambda: list(islice(value, self.left + 1)))
        if not ok:
            return self.unserializable(value, where, f"which raised {_type_name(items)}")
        result = []
        for index, item in enumerate(items):
            result.append(self.convert(item, (where, index), level + 1))
            if self.left < 0:
                break
        return result

    def sorted_array(self, value, where, level):
        """A set in the order of its items' JSON text, whatever the hash seed.

        The items' issues wait until their index is known.
        """
        report, rows = self.report, []
        ok, items = _attempt(lambda: list(islice(value, self.left + 1)))
        if not ok:
            return self.unserializable(value, where, f"which raised {_type_name(items)}")
        if len(items) > self.left:
            self.left, items = -1, ()
        try:
            for item in items:
                place, told = [where, 0], []
                self.report = _Held(told)
                made = self.convert(item, place, level + 1)
                words = told and [(_path_text(spot), said) for spot, said in told]
                rows.append(((_compact(made), words), made, place, told))
        finally:
            self.report = report
        if self.left < 0:  # Which items came first is an accident.
            report(where, f"expected at most {_MAX_VALUES} values")
            return {"$truncated": "size"}
        rows.sort(key=lambda row: row[0])
        for index, (_, _, place, told) in enumerate(rows):
            place[1] = index
            for issue in told:
                report(*issue)
        return [made for _, made, _, _ in rows]

    @staticmethod
    def text_of(value, kind):
        """How a date, a number type, an identifier or a path becomes text."""
        if any(_is_a(kind, "datetime", name) for name in ("date", "time")):
            return lambda: value.isoformat()
        if _is_a(kind, "datetime", "timedelta"):
            return lambda: value.total_seconds()
        if any(_is_a(kind, *name) for name in _TEXT_TYPES):
            return lambda: str(value)
        if _has_method(value, "__fspath__"):
            return lambda: os.fsdecode(os.fspath(value))
        return None

    def exception(self, value, where):
        ok, message = _attempt(str, value)
        if not ok:
            self.report(where, f"its text raised {_type_name(message)}")
            message = ""
        message = _clean_text(str.__str__(message), (where, "message"), self.report)
        given = BaseException.args.__get__(value)
        if not all(issubclass(type(arg), (str, int)) for arg in given):
            # The repr of a foreign object has its address, which says nothing.
            message = re.sub(" at 0x[0-9A-Fa-f]+", "", message)
        return {"type": _type_name(value), "message": message}

    def foreign(self, value, kind, where, level):
        """An object that offers a plain form of itself, else its marker."""
        why = ""
        arrays = _ARRAY_FORMS if _has(value, "dtype") else ()
        for method in (*_PLAIN_FORMS, *arrays):
            if not _declares(kind, method):
                continue
            ok, made = _attempt(lambda: getattr(value, method)())
            if _type_name(made) == "coroutine":
                _attempt(made.close)  # Nobody awaits it; that needs no warning.
            if not ok:
                why = why or f"whose {method}() raised {_type_name(made)}"
            elif method in _PLAIN_FORMS:
                return self.result(value, where, level + 1, lambda: made)
            else:
                made = value if type(made) is kind else made
                return self.result(value, where, level, lambda: made)
        return self.unserializable(value, where, why)


def to_json_value(value, *, strict=False, issues=None):
    """Return ``value`` as a detached tree that strict JSON can hold.

    Takes anything and returns new dicts and lists of str, int, float, bool and
    None; it never calls ``repr`` and never raises for a bad value. ``issues``
    is a list that collects an ``Issue`` for each change with a loss, with
    paths that begin at ``value``; with ``strict`` the first one is raised as
    ``SnowlCompatError``.
    """
    return _Walk(_Report(issues, strict)).convert(value, (None, "value"))


# ---------------------------------------------------------------------------
# Fields: one reader for each kind of field
# ---------------------------------------------------------------------------
# A reader takes (value, default, where, report); the value may be missing.


def _unwrapped(value):
    """The plain value inside an Enum member or a NumPy-like scalar."""
    for _ in range(3):  # One may hold another.
        kind, ok = type(value), False
        if value is None or issubclass(kind, (str, int, float)):
            break
        if issubclass(kind, Enum):
            ok, inner = _attempt(lambda: value.value)
        elif _declares(kind, "item") and _has(value, "dtype"):
            ok, inner = _attempt(lambda: value.item())
        if not ok:
            break
        value = inner
    return value


def _number(value):
    """The finite number that a value says exactly, else None; bool is none."""
    value = _unwrapped(value)
    kind = type(value)
    if kind is bool:
        return None
    if issubclass(kind, str):
        return _number_in(str.__str__(value))
    if issubclass(kind, int):
        value = int.__int__(value)
        return None if _is_long(value) else value
    if issubclass(kind, float):
        value = float.__float__(value)
        return value if math.isfinite(value) else None
    if _is_exact_number(kind):
        ok, number = _attempt(_nearest, value)
        return number if ok and type(number) in (int, float) else None
    return None


def _is_exact_number(kind):
    return _is_a(kind, "decimal", "Decimal") or _is_a(kind, "fractions", "Fraction")


def _nearest(value):
    """The int equal to a finite Decimal or Fraction, else the nearest float."""
    number = float(value)
    if not math.isfinite(number):
        return None  # An int of an exponent like 1e999999999 would not end.
    whole = int(value)
    return whole if whole == value else number


def _number_in(text):
    if len(text) > _MAX_DIGITS:
        return None
    if not re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", text):
        return None
    ok, value = _attempt(json.loads, text)
    return _number(value) if ok and not isinstance(value, str) else None


def _integer(value):
    """The integer that a value says exactly, else None."""
    number = _number(value)
    if isinstance(number, float):
        return int(number) if number.is_integer() else None
    return number


def _read_text(value, default, where, report):
    value = _unwrapped(value)
    if value is None or value is _MISSING:
        return default
    kind = type(value)
    if issubclass(kind, str):
        return _clean_text(str.__str__(value), where, report)
    number = value if kind is bool else _number(value)
    if number is not None and not _is_exact_number(kind):
        return _compact(number)
    ok, text = False, None
    if number is not None:
        ok, text = _attempt(str, value)  # A Decimal keeps its digits.
    elif issubclass(kind, (bytes, bytearray)):
        ok, text = _attempt(str, value, "utf-8")
        if type(text) is UnicodeDecodeError:
            report(where, "expected UTF-8 text, got bytes that are not")
            ok, text = _attempt(str, value, "utf-8", "replace")
    elif _has_method(value, "__fspath__"):
        ok, text = _attempt(lambda: os.fsdecode(os.fspath(value)))
    elif not issubclass(kind, Enum) and not _is_mapping(value) and _has(value, "name"):
        ok, text = _attempt(getattr, value, "name")
    if ok and issubclass(type(text), str):
        return _clean_text(str.__str__(text), where, report)
    report(where, f"expected text, got {_shown(value)}")
    return default


_ACTIONS = ("continue", "stop", "retry")


def _read_action(value, default, where, report):
    text = _read_text(value, default, where, report)
    word = text.strip().lower()
    if word in _ACTIONS:
        return word
    report(where, f"expected continue, stop or retry, got {_shown(text)}")
    return text


def _read_strategy(value, default, where, report):
    text = _read_text(value, default, where, report)
    word = text.upper()
    return word if word in ("FULL", "SUMMARY", "ISOLATED") else text


def _read_score(value, default, where, report):
    if value is _MISSING:
        return default
    plain = _unwrapped(value)
    ok, score = _attempt(float, plain if type(plain) is bool else _number(plain))
    if ok and math.isfinite(score):
        return score
    report(where, f"expected a finite number, got {_shown(value)}")
    return None


def _read_integer(value, default, where, report):
    """An integer; None and missing are the default, which may be None.

    Of text and number-like objects the whole part is used, which is told.
    """
    if value is None or value is _MISSING:
        return default
    number = _integer(value)
    if number is not None:
        return number
    found = f"got {_shown(value)}"
    if not issubclass(type(value), float) and _number(value) is not None:
        default = int(_number(value))
        found = f"{found}; using {default}"
    report(where, f"expected an integer, {found}")
    return default


def _read_count(value, default, where, report):
    """An integer that is not negative; None is told, unlike missing."""
    number = _integer(value)
    if value is _MISSING or (number is not None and number >= 0):
        return default if number is None else number
    report(where, f"expected an integer >= 0, got {_shown(value)}")
    return default


def _read_budget(value, default, where, report):
    if value is None or value is _MISSING:
        return default
    number = _number(value)
    if number is None:
        report(where, f"expected a finite number, got {_shown(value)}")
        return default
    return number


def _read_flag(value, default, where, report):
    """A flag; ``default`` is also the safe side for what cannot be one."""
    if value is None or value is _MISSING:
        return False
    value = _unwrapped(value)
    if value is None or type(value) is bool:
        return bool(value)
    if issubclass(type(value), str):
        word = str.__str__(value).strip().lower()
        if word in ("true", "yes", "1", "false", "no", "0"):
            return word in ("true", "yes", "1")
    elif _number(value) is not None:
        return _number(value) != 0
    report(where, f"expected true or false, got {_shown(value)}")
    return default


def _read_object(value, default, where, report):
    if value is None or value is _MISSING:
        return {} if default == {} else default
    # An array will stand one level deeper, under "value".
    level = 1 + issubclass(type(value), (list, tuple, deque, range, set, frozenset))
    converted = _Walk(report).convert(value, where, level)
    return converted if isinstance(converted, dict) else {"value": converted}


def _read_patch(value, default, where, report):
    """Text or null; another value becomes its compact JSON text."""
    if value is None or value is _MISSING:
        return default
    converted = _Walk(report).convert(_unwrapped(value), where)
    if isinstance(converted, str):
        return converted
    report(where, f"expected text, got {_shown(value)}")
    return _compact(converted)


def _read_json(value, default, where, report):
    return None if value is _MISSING else _Walk(report).convert(value, where)


def _read_texts(value, default, where, report):
    """A list of text; a lone text is one element, a set is sorted."""
    if value is None or value is _MISSING:
        return []
    unordered = issubclass(type(value), (set, frozenset))
    if issubclass(type(value), (str, bytes)):
        value = (value,)
    if not unordered and not issubclass(type(value), (list, tuple, deque)):
        report(where, f"expected a list of text, got {_shown(value)}")
        return []
    ok, items = _attempt(lambda: list(islice(value, _MAX_VALUES + 1)))
    if not ok:
        report(where, f"reading it raised {_type_name(items)}")
        return []
    if len(items) > _MAX_VALUES:
        report(where, f"expected at most {_MAX_VALUES} values")
        items.pop()
    texts, told = [], []
    for index, item in enumerate(items):
        place = where if unordered else (where, index)
        text = _read_text(item, None, place, lambda *issue: told.append(issue))
        if text is not None:
            texts.append(text)
        elif _unwrapped(item) is None:
            told.append((place, f"expected text, got {_shown(item)}"))
    if unordered:  # The hash seed must not show.
        texts.sort()
        told.sort(key=lambda issue: issue[1])
    for issue in told:
        report(*issue)
    return texts


_PERMISSION_FLAGS = ("filesystem_read", "filesystem_write", "network", "command")


def _read_permissions(value, default, where, report):
    """The four documented flags, then further ones that the source has."""
    flags = dict.fromkeys(_PERMISSION_FLAGS, False)
    if value is None or value is _MISSING:
        return flags
    if _is_mapping(value):
        ok, pairs = _attempt(
            lambda: [(k, v) for k, v in islice(value.items(), _MAX_VALUES)]
        )
        if not ok:
            report(where, f"reading it raised {_type_name(pairs)}")
            return flags
    elif _has_any(value, _PERMISSION_FLAGS):
        names = (*_PERMISSION_FLAGS, *_further_names(value))
        pairs = [(name, _read(value, name, where, report)) for name in names]
    else:
        report(where, f"expected an object of flags, got {_shown(value)}")
        return flags
    for key, item in pairs:
        name = _Walk(report).key(key, where, 1)
        flags[name] = _read_flag(item, False, (where, name), report)
    return flags


def _further_names(value):
    """Public names of an object beyond the four documented flags."""
    if _declares(type(value), "__dataclass_fields__"):
        ok, names = _attempt(lambda: list(type(value).__dataclass_fields__))
    else:
        ok, names = _attempt(lambda: list(object.__getattribute__(value, "__dict__")))
    return [
        name
        for name in (names if ok else ())
        if type(name) is str and name not in _PERMISSION_FLAGS and name[:1] != "_"
    ]


# ---------------------------------------------------------------------------
# The tables of fields, which drive reading, defaults and the schema
# ---------------------------------------------------------------------------

_Field = namedtuple("_Field", ("name", "read", "default", "schema"))

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_TEXTS = {"type": "array", "items": _TEXT}
_OBJECT = {"type": "object"}


def _nullable(schema):
    return {**schema, "type": [schema["type"], "null"]}


_CONFIG_FIELDS = (
    _Field("agent_name", _read_text, "", _TEXT),
    _Field("model_id", _read_text, "", _TEXT),
    _Field("budget_max_steps", _read_integer, None, {"type": ["integer", "null"]}),
    _Field("budget_max_runtime_seconds", _read_budget, None, {"type": ["number", "null"]}),
    _Field("budget_max_tokens", _read_integer, None, {"type": ["integer", "null"]}),
    _Field("critic_names", _read_texts, [], _TEXTS),
    _Field("stop_criteria_names", _read_texts, [], _TEXTS),
    _Field("has_checkpoint_store", _read_flag, False, _FLAG),
    _Field("has_tracing_provider", _read_flag, False, _FLAG),
    _Field("protocol_id", _read_text, None, _nullable(_TEXT)),
    _Field("delegate_depth", _read_integer, None, {"type": ["integer", "null"]}),
    _Field("has_shared_memory", _read_flag, False, _FLAG),
    _Field("has_env", _read_flag, False, _FLAG),
    _Field("tool_count", _read_integer, None, {"type": ["integer", "null"]}),
)

_FLAGS = {
    "type": "object",
    "properties": {name: _FLAG for name in _PERMISSION_FLAGS},
    "required": list(_PERMISSION_FLAGS),
    "additionalProperties": _FLAG,
}

_SPEC_FIELDS = (
    _Field("name", _read_text, "", _TEXT),
    _Field("description", _read_text, "", _TEXT),
    _Field("permissions", _read_permissions, {}, _FLAGS),
    _Field("needs_approval", _read_flag, True, _FLAG),
    _Field("read_only", _read_flag, False, _FLAG),
    _Field("concurrency_safe", _read_flag, False, _FLAG),
    _Field("required_ops", _read_texts, [], _TEXTS),
)

_CRITIC_FIELDS = (
    _Field("step_id", _read_integer, None, {"type": "integer"}),
    _Field("critic_name", _read_text, "unknown", _TEXT),
    _Field("action", _read_action, "continue", _TEXT),
    _Field("reason", _read_text, "", _TEXT),
    _Field("score", _read_score, 1.0, {"type": ["number", "null"]}),
    _Field("details", _read_object, {}, _OBJECT),
    _Field("instruction_patch", _read_patch, None, _nullable(_TEXT)),
    _Field("state_patch", _read_object, None, _nullable(_OBJECT)),
)

_HANDOFF_FIELDS = (
    _Field("step_id", _read_integer, None, {"type": "integer"}),
    _Field("from_agent", _read_text, "", _TEXT),
    _Field("to_agent", _read_text, "", _TEXT),
    _Field("context_strategy", _read_strategy, "", _TEXT),
    _Field("messages_passed", _read_count, 0, _COUNT),
)

_ISSUE = {
    "type": "object",
    "properties": {"path": _TEXT, "message": _TEXT},
    "required": ["path", "message"],
    "additionalProperties": False,
}

_RUN_FIELDS = (
    _Field("run_id", _read_text, None, _nullable(_TEXT)),
    _Field("agent_name", _read_text, None, _nullable(_TEXT)),
    _Field("stop_reason", _read_text, None, _nullable(_TEXT)),
    _Field("final_result", _read_json, None, {}),
    _Field("runtime_seconds", _read_budget, None, {"type": ["number", "null"]}),
    _Field("total_tokens", _read_integer, None, {"type": ["integer", "null"]}),
    _Field("tool_calls_by_name", _read_object, None, _nullable(_OBJECT)),
    _Field("success_rate", _read_budget, None, {"type": ["number", "null"]}),
    _Field("partial", _read_json, None, {"type": ["boolean", "null"]}),
    _Field("issues", _read_json, [], {"type": "array", "items": _ISSUE}),
)


def _object_schema(fields, **more):
    return {
        "type": "object",
        "properties": {field.name: field.schema for field in fields},
        "required": [field.name for field in fields],
        "additionalProperties": False,
        **more,
    }


_PAYLOAD_KEYS = (
    "engine_config",
    "tool_permissions",
    "critic_traces",
    "handoff_traces",
    "step_count",
)

PAYLOAD_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Snowl payload of a QitOS agent run",
    "type": "object",
    "properties": {
        "engine_config": _object_schema(_CONFIG_FIELDS),
        "tool_permissions": {"type": "array", "items": _object_schema(_SPEC_FIELDS)},
        "critic_traces": {"type": "array", "items": _object_schema(_CRITIC_FIELDS)},
        "handoff_traces": {"type": "array", "items": _object_schema(_HANDOFF_FIELDS)},
        "step_count": _COUNT,
        "schema_version": _TEXT,
        "run": _object_schema(_RUN_FIELDS),
    },
    "required": list(_PAYLOAD_KEYS),
    "additionalProperties": False,
}
"""JSON Schema 2020-12 of the payload, with the two keys of ``extended=True``."""

_KNOWN_KEYS = PAYLOAD_SCHEMA["properties"].keys()


def _row(fields, source, where, report, **known):
    """One object of a section: each field read by its reader, or already known."""
    row = {}
    for name, read, default, _ in fields:
        if name in known:
            row[name] = known[name]
        else:
            value = _read(source, name, where, report)
            row[name] = read(value, default, (where, name), report)
    return row


# ---------------------------------------------------------------------------
# The plain lane: what needs no repair is passed on without a walk
# ---------------------------------------------------------------------------
# Most rows of most runs hold exact built-in types with nothing to change. These
# functions give for them just what the readers above give, only faster. What
# needs a repair is awkward, which ends the lane.

_LONG = 1 << 2000


class _Awkward(Exception):
    """Something that has to be read with care."""


def _strict_size(value, levels=_MAX_DEPTH):
    """How many values a dict or list holds; raises ``_Awkward``."""
    size = len(value)
    if type(value) is dict:
        for key in value:
            if type(key) is not str or not (key.isascii() or _encodes(key)):
                raise _Awkward
        value = value.values()
    for item in value:
        kind = type(item)
        if kind is str:
            if not (item.isascii() or _encodes(item)):
                raise _Awkward
        elif kind is int:
            if not -_LONG < item < _LONG:
                raise _Awkward
        elif kind is float:
            if item - item != 0.0:  # NaN and the infinities.
                raise _Awkward
        elif item is None or kind is bool:
            continue
        elif (kind is dict or kind is list) and levels > 1 and size < _MAX_VALUES:
            size += _strict_size(item, levels - 1)
        else:
            raise _Awkward
    if size >= _MAX_VALUES:
        raise _Awkward
    return size


def _copied(value):
    """A copy of a strict dict or list, and of those in it."""
    copy = value.copy()
    for key, item in copy.items() if type(copy) is dict else enumerate(copy):
        if type(item) is dict or type(item) is list:
            copy[key] = _copied(item)
    return copy


def _encodes(text):
    try:
        text.encode("utf-8")
        return True
    except UnicodeEncodeError:
        return False


_CRITIC_DEFAULTS = {field.name: field.default for field in _CRITIC_FIELDS[1:]}
_CRITIC_DEFAULTS["modified_prompt"] = None
_CRITIC_VALUES = itemgetter(*_CRITIC_DEFAULTS)


def _plain_critic_row(output, step_id, copy):
    """The row of a critic output; raises if any of it needs a repair.

    Without ``copy`` it shares details and patches with the output.
    """
    if type(output) is not dict:
        raise _Awkward
    try:
        values = _CRITIC_VALUES(output)
    except KeyError:
        values = _CRITIC_VALUES({**_CRITIC_DEFAULTS, **output})
    name, action, reason, score, details, patch, state, prompt = values
    details = {} if details is None else details
    if (
        not (type(name) is str and (name.isascii() or _encodes(name)))
        or not (type(action) is str and action in _ACTIONS)
        or not (type(reason) is str and (reason.isascii() or _encodes(reason)))
        or not (type(score) is float and score - score == 0.0)
        or type(details) is not dict
        or not (patch is None or type(patch) is str and _encodes(patch))
        or not (state is None or type(state) is dict)
        or prompt is not None
        or output.get("step_id") is not None
    ):
        raise _Awkward
    _strict_size(details)
    if state:
        _strict_size(state)
    if copy:
        details = _copied(details)
        state = state if state is None else _copied(state)
    return {  # In the order of the table, which is too slow to go through here.
        "step_id": step_id,
        "critic_name": name,
        "action": action,
        "reason": reason,
        "score": score,
        "details": details,
        "instruction_patch": patch,
        "state_patch": state,
    }


_RECORD_ITEMS = itemgetter("critic_outputs", "step_id")


def _plain_rows(records, report, copy, done):
    """Append (step id, rows) of each record; raises at one that needs a repair."""
    honest = None
    for record in records:
        kind = type(record)
        if kind is dict:
            outputs, step_id = _RECORD_ITEMS(record)
        elif kind is honest or _is_honest(kind, report):
            honest = kind
            outputs, step_id = record.critic_outputs, record.step_id
        else:
            raise _Awkward
        if type(outputs) is not list or type(step_id) is not int:
            raise _Awkward
        if not -_LONG < step_id < _LONG:
            raise _Awkward
        rows = [_plain_critic_row(output, step_id, copy) for output in outputs]
        done.append((step_id, rows))


_NOTABLE = ("INIT", "HANDOFF_START", "END")


def _phases(events, kind):
    """The phases of the events that are of a kind."""
    if kind is dict:
        return [event["phase"] for event in events if type(event) is kind]
    return [event.phase for event in events if type(event) is kind]


def _notable(events, report):
    """Positions of plain events that matter: INIT, HANDOFF_START and END.

    None when they are not all of one plain type and have to be read one by one.
    """
    kind = type(events[0])
    if not (kind is dict or _is_honest(kind, report)):
        return None
    ok, phases = _attempt(_phases, events, kind)
    if not ok or len(phases) < len(events):
        return None
    # Texts are hashed fast; members of an Enum are not, but are few objects.
    if all([type(phase) is str for phase in phases]):
        keys, named = phases, {phase: phase for phase in set(phases)}
    else:
        keys = list(map(id, phases))
        named = dict(zip(keys, phases))
    positions = []
    for key, phase in named.items():
        if _phase({"phase": phase}, None, report) in _NOTABLE:
            at = -1
            for _ in range(keys.count(key)):
                at = keys.index(key, at + 1)
                positions.append(at)
    return sorted(positions)


def _chunks(values, most):
    """Yield (index of the first, elements) of a list or file, piece by piece."""
    if not _is_plain_list(values):
        yield 0, values
        return
    # Few lines of a file at a time, for each may be large.
    most = 8 if type(values) is _Lines else most
    iterator, first = iter(values), 0
    while True:
        chunk = list(islice(iterator, most))
        if not chunk:
            return
        yield first, chunk
        first += len(chunk)


# ---------------------------------------------------------------------------
# The sections
# ---------------------------------------------------------------------------

_OWN_RECORD_NAMES = ("critic_outputs", "phase_events", "decision", "actions")
_RECORD_NAMES = (*_OWN_RECORD_NAMES, "step_id")
_CRITIC_NAMES = ("action", "critic_name", "score", "reason", "details")
_HANDOFF_NAMES = ("from_agent", "to_agent", "from", "to")
_EVENT_NAMES = ("phase", "payload", *_HANDOFF_NAMES)
_SPEC_NAMES = ("name", "permissions", "spec", "needs_approval", "function")


def _step_id(source, where, report, position, outer=None):
    """A row's own step id, else its record's, else its position, told."""
    place = (where, "step_id")
    value = _read(source, "step_id", where, report)
    number = _integer(value)
    if number is not None:
        return number
    fallback = position if outer is None else outer()
    if outer is None or not (value is None or value is _MISSING):
        report(place, f"expected an integer, got {_shown(value)}; using {fallback}")
    return fallback


def _critic_row(output, where, report, position, outer=None):
    step_id = _step_id(output, where, report, position, outer)
    row = _row(_CRITIC_FIELDS, output, where, report, step_id=step_id)
    prompt = _read(output, "modified_prompt", where, report)
    if prompt is not None and prompt is not _MISSING:
        place = (where, "modified_prompt")
        if "modified_prompt" in row["details"]:
            report(place, "the details have that key already; left out")
        else:
            row["details"]["modified_prompt"] = _Walk(report).convert(prompt, place, 2)
    return row


def _is_record(element):
    """Whether it is a step record, not a critic's verdict by itself."""
    return _has_any(element, _OWN_RECORD_NAMES) or not _has_any(element, _CRITIC_NAMES)


def _phase(event, where, report):
    """The upper-case name of an event's phase, whatever form it has."""
    value = _read(event, "phase", where, report)
    if issubclass(type(value), Enum) and not issubclass(type(_unwrapped(value)), str):
        value = _attempt(lambda: value.name)[1]
    value = _unwrapped(value)
    if not issubclass(type(value), str):
        return ""
    return str.__str__(value).rpartition(".")[2].upper()


def _handoff_row(event, where, report, position, outer=None):
    """The row of a START event, or of a handoff trace, which has no payload."""
    step_id = _step_id(event, where, report, position, outer)
    body = _read(event, "payload", where, report)
    if body is None or body is _MISSING:
        body = event
    else:
        where = (where, "payload")
        if not _is_mapping(body) and not _has_any(body, _HANDOFF_NAMES):
            report(where, f"expected an object, got {_shown(body)}")
    agents = {}
    for name, short in (("from_agent", "from"), ("to_agent", "to")):
        found = short if _meta(body, short) is not None else name
        value = _read(body, found, where, report)
        agents[name] = _read_text(value, "", (where, found), report)
    return _row(_HANDOFF_FIELDS, body, where, report, step_id=step_id, **agents)


class _Scan:
    """What a pass over the events finds: handoff rows, the first INIT, END."""

    def __init__(self):
        self.rows = []
        self.init = None
        self.end = None
        self.count = 0
        self.steps = 0
        self.chosen = False

    def read(self, events, where, report, *, rows=True, outer=None):
        """Take in some events; ``outer`` gives the step id of their record."""
        for first, chunk in _chunks(events, 4000):
            notable = _notable(chunk, report) if type(chunk) is list else None
            if notable is None:
                elements = _elements(chunk, _EVENT_NAMES, where, report, first=first)
            else:
                elements = ((chunk[i], (where, first + i)) for i in notable)
                self.count += len(chunk) if outer is None else 0
            for event, place in elements:
                if notable is None:
                    self.count += outer is None and _has(event, "phase")
                self.take(event, place, report, rows, outer)
        return self

    def read_inner(self, record, place, report, step_id):
        """Take in a record's own events, where no others were."""
        events = _read(record, "phase_events", place, report)
        self.read(events, (place, "phase_events"), report, outer=step_id)

    def take(self, event, place, report, rows, outer):
        phase = _phase(event, place, report)
        if phase == "INIT" and self.init is None:
            self.init = event
        elif phase == "END":
            self.end = event
        wanted = phase == "HANDOFF_START" or (
            not _has(event, "phase") and _has_any(event, _HANDOFF_NAMES)
        )
        if rows and wanted:
            self.rows.append(_handoff_row(event, place, report, place[1], outer))


_SPEC_EXPORTS = ("export_permissions", "get_all_specs")
"""How a registry gives its specs: documented, and as released QitOS does it."""


def _spec_row(spec, where, report):
    inner = _meta(spec, "spec")
    if inner is not None:
        spec, where = inner, (where, "spec")
    parts = [_meta(spec, name) for name in ("capabilities", "function")]
    if type(spec) is dict and any(type(part) is dict for part in parts):
        # A model's form of a spec, in which get_all_specs() gives it.
        parts = [part for part in (spec, *parts) if type(part) is dict]
        spec = {name: value for part in parts for name, value in part.items()}
    name = _read(spec, "name", where, report)
    name = _read_text(name, "", (where, "name"), report)
    if not name:
        report((where, "name"), "expected a name, got nothing")
        name = "unknown"
    approval = _read(spec, "needs_approval", where, report)
    if callable(approval):
        report((where, "needs_approval"), "a callable may ask: exported as true")
        approval = True
    approval = _read_flag(approval, True, (where, "needs_approval"), report)
    return _row(_SPEC_FIELDS, spec, where, report, name=name, needs_approval=approval)


def _exported_specs(source, where, report):
    """What a registry exports, None if that raises; anything else itself."""
    method = next((name for name in _SPEC_EXPORTS if _declares(type(source), name)), None)
    if method is None:
        return source
    ok, specs = _attempt(lambda: getattr(source, method)())
    if not ok:
        report(where, f"{method}() raised {_type_name(specs)}")
    return specs if ok else None


def _permission_rows(specs, where, report):
    elements = _elements(specs, _SPEC_NAMES, where, report)
    return [_spec_row(spec, place, report) for spec, place in elements]


def _is_config(source):
    names = ("export_config", *(field.name for field in _CONFIG_FIELDS))
    return _is_mapping(source) or _has_any(source, names)


def _config_row(source, where, report, tool_count=None):
    if _declares(type(source), "export_config"):
        ok, config = _attempt(lambda: source.export_config())
        if not ok:
            report(where, f"export_config() raised {_type_name(config)}")
        source = config if ok else {}
    if source is None:
        source = {}
    elif not _is_config(source):
        report(where, f"expected an engine configuration, got {_shown(source)}")
        source = {}
    row = _row(_CONFIG_FIELDS, source, where, report)
    if row["tool_count"] is None:
        row["tool_count"] = tool_count
    return row


# ---------------------------------------------------------------------------
# Trace folders and files
# ---------------------------------------------------------------------------

_RUN_FILES = ("manifest.json", "steps.jsonl", "events.jsonl")


class _Lines:
    """The JSON objects of a file, one a line, read anew at each iteration.

    A line that is none is yielded as the ``Issue`` that says so. Lines end at
    LF only: other separators may stand inside a string.
    """

    def __init__(self, path, issues=()):
        self.path = path
        self.issues = issues

    def __iter__(self):
        yield from self.issues
        name = os.path.basename(self.path)
        try:
            with open(self.path, "rb") as file:
                for number, line in enumerate(file, 1):
                    ok, value = _attempt(_loads_line, line)
                    if ok and type(value) is dict:
                        yield value
                    elif line.strip():
                        yield from _parsed_line(line, f"{name}:{number}")
        except FileNotFoundError:
            return
        except OSError as error:
            yield Issue(name, f"cannot be read: {error.strerror or error}")


_raw_decode = json.JSONDecoder().raw_decode


def _loads_line(line):
    """The value of a line as it should be: UTF-8, one value, LF; else raises."""
    text = line.decode("utf-8")
    value, end = _raw_decode(text)
    if text[end:] not in ("\n", "\r\n", ""):
        raise ValueError("more than one value")
    return value


def _parsed_line(line, place):
    """Yield the object of a line, and an ``Issue`` for what is wrong with it."""
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = line.decode("utf-8-sig", "replace")
        yield Issue(place, "expected UTF-8 text, got bytes that are not")
    try:
        # A crash of the system may leave NUL bytes where a line should be.
        value = _parse(text.strip("\0 \t\r\n"), strict=False)
    except SnowlCompatError as error:
        what = error.message if line.endswith(b"\n") else "the line is cut off"
        yield Issue(place, f"{what}; skipped")
        return
    if isinstance(value, dict):
        yield value
    else:
        yield Issue(place, f"expected an object, got {_shown(value)}; skipped")


def _first_line(error):
    return str(error).partition("\n")[0] or type(error).__name__


def _path_as_text(path):
    """A path with the bytes that the locale could not read taken as UTF-8."""
    return re.sub(
        "[\udc80-\udcff]+",
        lambda found: os.fsencode(found[0]).decode("utf-8", "replace"),
        path,
    )


def _meta(source, *names):
    """What stands at the end of a path of names, or None; nothing is told."""
    for name in names:
        if source is None:
            return None
        source = _read(source, name, None, _Report())
        source = None if source is _MISSING else source
    return source


def _meta_config(run_meta, task_meta, model_id=None):
    """The configuration that a run's own account of itself holds."""
    return {
        "agent_name": _meta(run_meta, "agent_name"),
        "model_id": _meta(run_meta, "model_name") if model_id is None else model_id,
        "protocol_id": _meta(run_meta, "protocol"),
        "tool_count": _meta(run_meta, "tool_count"),
        "budget_max_steps": _meta(task_meta, "budget", "max_steps"),
        "budget_max_runtime_seconds": _meta(task_meta, "budget", "max_runtime_seconds"),
        "budget_max_tokens": _meta(task_meta, "budget", "max_tokens"),
    }


def read_run(path):
    """Return the run that a path holds, for ``build_payload``.

    ``path`` is a trace folder (``manifest.json``, ``steps.jsonl``,
    ``events.jsonl``; any may be missing, empty or cut off) or a JSON file with
    an engine result, a list of step records or a payload. Steps and events of
    a folder are read line by line when they are needed, not here. Raises
    ``SnowlCompatError`` when there is nothing to read.
    """
    ok, name = _attempt(os.fsdecode, path)
    if not ok:
        raise SnowlCompatError(f"expected a path, got {_type_name(path)}")
    path = str.__str__(name)
    if _is_run(path):
        return _folder_run(path)
    name = _path_as_text(path)
    if os.path.isdir(path):
        raise SnowlCompatError(f"expected one of {', '.join(_RUN_FILES)}", name)
    if path.endswith(".jsonl") and os.path.isfile(path):
        return _lines_run(path, name)
    return _json_run(_file_bytes(path), name)


def _is_run(path):
    return any(os.path.isfile(os.path.join(path, name)) for name in _RUN_FILES)


def _file_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SnowlCompatError(f"cannot be read: {why}", _path_as_text(path)) from None


def _json_run(data, name):
    """The run in a JSON text; ``name`` says where it is from, for errors."""
    value = _parse(data, name, strict=False)
    if isinstance(value, list):
        return {"records": value}
    if isinstance(value, dict):
        return value
    raise SnowlCompatError(f"expected an object or a list, got {_shown(value)}", name)


def _lines_run(path, name):
    """The run in a single file of steps or events."""
    lines = _Lines(path)
    first = next((line for line in lines if isinstance(line, dict)), {})
    if _is_payload(first):
        raise SnowlCompatError("expected one run, got a payload on each line", name)
    if _has_any(first, ("phase", "payload")):
        return SimpleNamespace(records=None, events=lines)
    return SimpleNamespace(records=lines, events=None)


def _parse(text, path="", strict=True):
    """The value of a JSON text; ``strict`` refuses NaN and its like."""

    def refuse(token):
        raise ValueError(f"{token} is not JSON")

    try:
        if strict:
            return json.loads(text, parse_constant=refuse)
        ok, value = _attempt(json.loads, text)
        # An integer that Python refuses to read must not cost the rest.
        return value if ok else json.loads(text, parse_int=_parsed_int)
    except RecursionError:
        raise SnowlCompatError("expected JSON, got too many levels", path) from None
    except ValueError as error:
        raise SnowlCompatError(f"expected JSON: {_first_line(error)}", path) from None


def _parsed_int(text):
    """An integer of any length, though Python reads only so many digits at once."""
    digits, value = text.lstrip("-"), 0
    for start in range(0, len(digits), 600):
        part = digits[start : start + 600]
        value = value * 10 ** len(part) + int(part)
    return -value if text.startswith("-") else value


def _folder_run(path):
    found, name = [{}], os.path.join(path, "manifest.json")
    if os.path.isfile(name):
        ok, data = _attempt(_file_bytes, name)
        found = list(_parsed_line(data + b"\n", "manifest.json")) if ok else [
            Issue("manifest.json", data.message)
        ]
    issues = [item for item in found if _is_issue(item)]
    manifest = next((item for item in found if isinstance(item, dict)), {})
    summary = _meta(manifest, "summary")
    run_meta, task_meta = _meta(summary, "run_meta"), _meta(summary, "task_meta")
    config = _meta_config(run_meta, task_meta, manifest.get("model_id"))
    return SimpleNamespace(
        records=_Lines(os.path.join(path, "steps.jsonl"), issues),
        events=_Lines(os.path.join(path, "events.jsonl")),
        engine_config=manifest.get("engine_config") or config,
        tool_permissions=manifest.get("tool_permissions") or _meta(run_meta, "tools"),
        run_id=manifest.get("run_id") or os.path.basename(_path_as_text(os.path.abspath(path))),
        stop_reason=_meta(summary, "stop_reason"),
        final_result=_meta(summary, "final_result"),
        task_result=_meta(summary, "task_result"),
        total_tokens=_meta(summary, "token_usage"),
        tool_calls_by_name=_meta(summary, "tool_calls_by_name"),
        success_rate=_meta(summary, "success_rate"),
        manifest_step_count=_meta(manifest, "step_count"),
        manifest_event_count=_meta(manifest, "event_count"),
    )


# ---------------------------------------------------------------------------
# The payload
# ---------------------------------------------------------------------------

_RUN_NAMES = ("records", "events", "step_count", "critic_traces", "handoff_traces")


def _as_run(source):
    """The object or mapping with a run's attributes that a source stands for."""
    if issubclass(type(source), str) or _has_method(source, "__fspath__"):
        source = read_run(source)
    if _has_any(source, _RUN_NAMES):
        return source
    if _is_mapping(source):
        ok, items = _attempt(lambda: list(source.values()))
        good = ok and items and all(_has_any(item, _RECORD_NAMES) for item in items)
        if good or _has_any(source, _RECORD_NAMES):
            return {"records": source}
    elif _has_any(source, _RECORD_NAMES) or _is_iterable(source):
        return {"records": source}
    raise SnowlCompatError(
        "expected an engine result, step records, a payload or a path,"
        f" got {_type_name(source)}"
    )


def _filled(value, where, report):
    """The value if it holds anything, else None; an iterator keeps its first."""
    if value is None or value is _MISSING or _is_mapping(value) and not _values(value):
        return None
    if _is_mapping(value) or not _is_iterable(value):
        return value
    ok, iterator = _attempt(iter, value)
    ok, first = _attempt(next, iterator, _MISSING) if ok else (ok, iterator)
    if not ok:
        report((where, 0), f"reading on raised {_type_name(first)}")
    if first is _MISSING or not ok:
        return None
    return chain([first], iterator) if iterator is value else value


def _scan_events(run, events, report):
    """Handoff rows from the first of ``events=``, the run's traces, its events."""
    scan = _Scan()
    at_traces, at_events = (None, "handoff_traces"), (None, "events")
    own, traces = _filled(events, at_events, report), None
    if own is None:
        traces = _read(run, "handoff_traces", None, report)
        traces = _filled(traces, at_traces, report)
        own = _filled(_read(run, "events", None, report), at_events, report)
    scan.read(traces, at_traces, report)
    scan.read(own, at_events, report, rows=traces is None)
    scan.chosen = traces is not None or own is not None
    return scan


def _scan_records(run, scan, report, collect=list):
    """Critic rows of a run; ``scan`` counts its records, and reads their events.

    ``collect`` makes of the rows what is wanted; if that is not the list of
    them, they may share values with the records.
    """
    copy = collect is list
    rows = collect(_critic_rows(_read(run, "records", None, report), scan, report, copy))
    if not rows:
        traces = _read(run, "critic_traces", None, report)
        rows = collect(_verdict_rows(traces, (None, "critic_traces"), report))
    return rows


def _verdict_rows(traces, where, report):
    for row, place in _elements(traces, _CRITIC_NAMES, where, report):
        yield _critic_row(row, place, report, place[1])


def _critic_rows(records, scan, report, copy):
    """Yield the critic rows of step records, counting these in ``scan``."""
    where = (None, "records")
    if not _is_plain_list(records):
        yield from _careful_rows(records, where, scan, report)
        return
    for first, chunk in _chunks(records, 32):
        while chunk:
            # A key may be hostile, an attribute missing, the stack near its end.
            done = []
            _attempt(_plain_rows, chunk, report, copy, done)
            for record, (step_id, rows) in zip(chunk, done):
                scan.steps += 1
                yield from rows
                if not scan.chosen:
                    scan.read_inner(record, (where, first), report, lambda: step_id)
                first += 1
            for record in chunk[len(done) : len(done) + 1]:  # What ended it.
                if type(record) is list or type(record) is tuple:
                    place, outer = (where, first), (records,)
                    yield from _careful_rows(record, place, scan, report, outer)
                else:
                    yield from _careful_rows([record], where, scan, report, first=first)
                first += 1
            chunk = chunk[len(done) + 1 :]


def _careful_rows(records, where, scan, report, outer=(), first=0):
    """The same for records of any kind, one field after the other."""
    known = (*_RECORD_NAMES, *_CRITIC_NAMES)
    for record, place in _elements(records, known, where, report, outer, first):
        if not _is_record(record):
            yield _critic_row(record, place, report, place[1])
            continue
        scan.steps += 1
        step_id = _told_once(record, place, report)
        outputs = _read(record, "critic_outputs", place, report)
        inner = (place, "critic_outputs")
        for output, spot in _elements(outputs, _CRITIC_NAMES, inner, report):
            yield _critic_row(output, spot, report, spot[1], step_id)
        if not scan.chosen:
            scan.read_inner(record, place, report, step_id)


def _told_once(record, place, report):
    """A function that gives a record's step id, looked up when first asked."""
    told = []

    def step_id():
        if not told:
            told.append(_step_id(record, place, report, place[1]))
        return told[0]

    return step_id


def _step_count(run, counted, report):
    value = _read(run, "step_count", None, report)
    number = _integer(value)
    if number is not None and number >= 0:
        return number
    if value is not None and value is not _MISSING:
        message = f"expected an integer >= 0, got {_shown(value)}; counted {counted}"
        report((None, "step_count"), message)
    return counted


def _check_counts(run, counts, report):
    """Tell where a folder's manifest disagrees with its lines, which win."""
    for name, counted in counts:
        said = _meta(run, f"manifest_{name}")
        if counted is not None and said is not None and said != counted:
            message = f"expected {counted}, the number of lines, got {_shown(said)}"
            report((None, f"manifest.{name}"), message)


def _permission_source(run, engine, init):
    """Where specs come from, by precedence; None when nothing says any."""
    for source in (engine, _meta(engine, "agent"), run):
        for name in ("tool_registry", "tool_permissions"):
            found = _meta(source, name)
            methods = any(_declares(type(found), method) for method in _SPEC_EXPORTS)
            if methods or _is_iterable(found):
                return found
    return _meta(init, "payload", "run_meta", "tools")


def _config_source(run, engine, init):
    """Where the configuration comes from, by precedence.

    Released engines have no ``export_config()``; then the run speaks for itself.
    """
    own = _meta(run, "engine_config")
    if own is None and _declares(type(run), "export_config"):
        own = run
    if own is None and init is not None:
        body = _meta(init, "payload")
        own = _meta_config(_meta(body, "run_meta"), _meta(body, "task_meta"))
    return engine if own is None or _is_config(engine) else own


_METRIC_NAMES = {"runtime_seconds": "elapsed_seconds", "total_tokens": "token_usage"}


def _run_row(run, scan, config, report):
    """What the run says of itself; nothing in it is guessed."""
    init, end = _meta(scan.init, "payload"), _meta(scan.end, "payload")
    task, state, told = (_meta(run, name) for name in ("task_result", "state", "run"))
    places = (run, task, _meta(task, "metrics"), state, told, end, init)
    values = {}
    for field in _RUN_FIELDS:
        names = (field.name, _METRIC_NAMES.get(field.name, field.name))
        found = (_meta(place, name) for place in places for name in names)
        values[field.name] = next((v for v in found if v is not None), None)
    values["agent_name"] = config["agent_name"] or None
    partial = scan.end is None if scan.count or scan.end is not None else None
    known = {"partial": partial, "issues": []}
    return _row(_RUN_FIELDS, values, (None, "run"), report, **known)


def build_payload(
    source,
    *,
    engine=None,
    tool_registry=None,
    events=None,
    engine_config=None,
    tool_permissions=None,
    extended=False,
    strict=False,
    issues=None,
):
    """Return the Snowl payload of one QitOS run as a new dict.

    ``source`` is an engine result, step records, a trace folder, a JSON file
    or a payload. What it does not hold comes from ``engine`` (its
    ``export_config()`` and registry), ``tool_registry``, ``events``,
    ``engine_config`` and ``tool_permissions``, which win over it.
    ``extended`` adds ``schema_version`` and ``run`` to the five keys.

    Bad values are repaired; each repair is an ``Issue`` in the list ``issues``
    or, with ``strict``, raised. Raises ``SnowlCompatError`` for a source that
    is no run, and nothing else.
    """
    given = (engine, tool_registry, events, engine_config, tool_permissions)
    return _built(source, given, extended, _Report(issues, strict))


def _built(source, given, extended, report, collect=list):
    """The payload; its critic rows are what ``collect`` makes of them."""
    engine, registry, events, config, permissions = given
    report.issues = [] if report.issues is None else report.issues
    first = len(report.issues)
    run = _as_run(source)
    if not any(value is not None for value in given) and _is_payload(run):
        payload = _payload_again(run, extended)
        payload["critic_traces"] = collect(payload["critic_traces"])
        return payload
    scan = _scan_events(run, events, report)
    critics = _scan_records(run, scan, report, collect)
    # A folder's or payload's own configuration is all that it says.
    init = scan.init if _meta(run, "engine_config") is None else None
    tools = registry if permissions is None else permissions
    if tools is None:
        tools = _permission_source(run, engine, init)
    tools = _exported_specs(tools, (None, "tool_permissions"), report)
    specs = _permission_rows(tools, (None, "tool_permissions"), report)
    config = _config_source(run, engine, init) if config is None else config
    tool_count = None if tools is None else len(specs)
    config = _config_row(config, (None, "engine_config"), report, tool_count)
    payload = {
        "engine_config": config,
        "tool_permissions": specs,
        "critic_traces": critics,
        "handoff_traces": scan.rows,
        "step_count": _step_count(run, scan.steps, report),
    }
    counted = scan.count if events is None else None
    _check_counts(run, (("step_count", scan.steps), ("event_count", counted)), report)
    if extended:
        payload["schema_version"] = SCHEMA_VERSION
        payload["run"] = _run_row(run, scan, config, report)
        told = [issue._asdict() for issue in report.issues[first:]]
        payload["run"]["issues"] = told
    return payload


def _is_payload(run):
    """Whether it is a valid payload, which reproduces itself."""
    return _is_whole(run) and not validate_payload(run)


def _payload_again(payload, extended):
    keys = [*_PAYLOAD_KEYS, *(("schema_version", "run") if extended else ())]
    again = {key: payload[key] for key in keys if key in payload}
    again = _converted(again, -2)
    if extended and "run" not in again:
        again["schema_version"] = SCHEMA_VERSION
        again["run"] = _run_row({}, _Scan(), again["engine_config"], _Report([]))
    return again


def engine_config(source, *, strict=False, issues=None):
    """Return the 14 fields of an engine configuration.

    ``source`` is an engine, an ``EngineConfig`` or a mapping; what it does not
    say is ``""``, ``[]``, false or None. Options as in ``build_payload``.
    """
    report = _Report(issues, strict)
    return _config_row(source, (None, "engine_config"), report)


def tool_permissions(source, *, strict=False, issues=None):
    """Return one row of 7 fields for each tool of a registry or list of specs.

    Options as in ``build_payload``.
    """
    report, where = _Report(issues, strict), (None, "tool_permissions")
    return _permission_rows(_exported_specs(source, where, report), where, report)


def critic_traces(records, *, strict=False, issues=None):
    """Return one row of 8 fields for each critic output of step records.

    Takes step records (objects or mappings), critic rows, or a whole run.
    Options as in ``build_payload``.
    """
    report = _Report(issues, strict)
    if not _has_any(records, _RUN_NAMES):
        records = {"records": records}
    scan = _Scan()
    scan.chosen = True
    return _scan_records(records, scan, report)


def handoff_traces(events, *, strict=False, issues=None):
    """Return one row of 5 fields for each HANDOFF_START among runtime events.

    Takes events or handoff traces (objects or mappings), or a whole run.
    Options as in ``build_payload``.
    """
    report = _Report(issues, strict)
    if not _has_any(events, _RUN_NAMES):
        return _Scan().read(events, (None, "events"), report).rows
    scan = _scan_events(events, None, report)
    if not scan.chosen:
        records = _read(events, "records", None, report)
        for record, place in _elements(records, _RECORD_NAMES, (None, "records"), report):
            inner = _read(record, "phase_events", place, report)
            step_id = _told_once(record, place, report)
            scan.read(inner, (place, "phase_events"), report, outer=step_id)
    return scan.rows


# ---------------------------------------------------------------------------
# JSON text, and back
# ---------------------------------------------------------------------------


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False
).encode


def _is_whole(payload):
    if not issubclass(type(payload), dict):
        return False
    held = (_attempt(dict.__contains__, payload, key) for key in _PAYLOAD_KEYS)
    return all(found == (True, True) for found in held)


def _converted(value, level):
    """A value as strict JSON, in new dicts and lists.

    Levels up to 0 are those of a payload and its rows; their fields have limits
    of their own.
    """
    walk = _Walk(_Report())
    if level < 0:
        walk.left = sys.maxsize // 2
    elif level == 0:
        walk.left *= 4  # The few fields of a row had their limits already.
    return walk.convert(value, (None, "value"), level)


def _strict_rows(rows):
    """Yield rows as strict JSON: themselves, or what they are converted to."""
    for first in range(0, len(rows), 64):
        chunk = rows[first : first + 64]
        ok, _ = _attempt(_strict_size, chunk, _MAX_DEPTH + 2)
        yield from chunk if ok else (_converted(row, 0) for row in chunk)


def _row_texts(rows):
    """JSON texts of strict rows, and what stands between them."""
    texts, rows = [], iter(rows)
    while True:
        chunk = list(islice(rows, 64))
        if not chunk:
            return texts
        if texts:
            texts.append(", ")
        texts.append(_encode(chunk)[1:-1])


def _section_texts(section):
    if type(section) is not list:
        return [_encode(_converted(section, -1))]
    return ["[", *_row_texts(_strict_rows(section)), "]"]


def _joined(sections):
    """The text of an object, of (key, texts of its value) pairs, in one copy."""
    texts = []
    for key, parts in sections:
        texts += (", " if texts else "{", _encode(key), ": ", *parts)
    texts.append("}")
    return "".join(texts)


def dumps(payload, *, indent=None):
    """Return strict JSON text of a payload, or of any other value.

    What JSON cannot hold is converted as by ``to_json_value``; text stays
    readable (no ``\\u`` escapes) and always encodes as UTF-8. ``indent`` is the
    number of spaces of each level, None for one line.
    """
    whole = _is_whole(payload)
    if indent is None and whole and type(payload) is dict and len(payload) < 8:
        parts = payload.items()
        if payload.keys() <= _KNOWN_KEYS:
            return _joined((key, _section_texts(part)) for key, part in parts)
    value = _converted(payload, -2 if whole else 1)
    if indent is None:
        return _encode(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def export_json(
    source,
    *,
    engine=None,
    tool_registry=None,
    events=None,
    engine_config=None,
    tool_permissions=None,
    extended=False,
    strict=False,
    issues=None,
    indent=None,
):
    """Return the text of ``dumps(build_payload(source, …), indent=indent)``.

    Takes and raises what ``build_payload`` does; without ``indent`` rows become
    text as they are read, and no copy of them is made.
    """
    given = (engine, tool_registry, events, engine_config, tool_permissions)
    report = _Report(issues, strict)
    if indent is not None:
        return dumps(_built(source, given, extended, report), indent=indent)
    payload = _built(source, given, extended, report, _row_texts)
    rows = ["[", *payload["critic_traces"], "]"]
    return _joined(
        (key, rows if key == "critic_traces" else [_encode(section)])
        for key, section in payload.items()
    )


def load_payload(source):
    """Return the payload that a JSON text, UTF-8 bytes or a mapping holds.

    The parser is strict (no NaN) and the result is validated: raises
    ``SnowlCompatError`` with the place of the first problem.
    """
    is_text = isinstance(source, (str, bytes, bytearray))
    payload = _parse(source) if is_text else source
    if _is_mapping(payload) and not isinstance(payload, dict):
        payload = dict(payload)
    for issue in validate_payload(payload):
        raise SnowlCompatError(issue.message, issue.path)
    return payload if is_text else _converted(payload, -2)


def validate_payload(payload):
    """Return an ``Issue`` for each place where a payload breaks the schema.

    The empty list means valid. Beyond ``PAYLOAD_SCHEMA`` every value must be one
    that strict JSON can hold.
    """
    report = _Report([])
    # As everywhere, levels are counted from the value of a row's field.
    _validate(payload, PAYLOAD_SCHEMA, None, report, -2)
    return report.issues


_JSON_TYPES = {
    "object": (dict, "an object"),
    "array": (list, "an array"),
    "string": (str, "text"),
    "number": ((int, float), "a number"),
    "integer": (int, "an integer"),
    "boolean": (bool, "true or false"),
    "null": (type(None), "null"),
}


class _Check(_Walk):
    """A walk over what must be JSON already: all that it would change is told."""

    __slots__ = ()

    def may_be_scalar(self, value, kind):
        # The mark of a cut stands where the next level would begin.
        return kind is dict and value == _TOO_DEEP

    def compound(self, value, kind, where, level):
        if issubclass(kind, dict):
            return self.members(value, where, level, value.items)
        if issubclass(kind, list):
            return self.array(value, where, level)
        if issubclass(kind, int):
            return super().compound(value, kind, where, level)
        return self.unserializable(value, where)

    def key(self, key, where, level):
        if not issubclass(type(key), str):
            self.report(where, f"expected text keys, got {_shown(key)}")
        return super().key(key, where, level)


def _is_type(value, name):
    kind = type(value)
    if kind is bool:
        return name == "boolean"
    if name == "integer" and issubclass(kind, float):
        return float.is_integer(value)
    return issubclass(kind, _JSON_TYPES[name][0])


def _validate(value, schema, where, report, level):
    """Interpret the part of JSON Schema that ``PAYLOAD_SCHEMA`` uses."""
    names, kind = schema.get("type", ()), type(value)
    names = [names] if isinstance(names, str) else names
    if names and not any(_is_type(value, name) for name in names):
        expected = " or ".join(_JSON_TYPES[name][1] for name in names)
        report(where, f"expected {expected}, got {_shown(value)}")
    elif "properties" in schema and issubclass(kind, dict):
        _validate_object(value, schema, where, report, level)
    elif "items" in schema and issubclass(kind, list):
        for index, item in enumerate(value):
            _validate(item, schema["items"], (where, index), report, level + 1)
    elif "minimum" in schema and value < schema["minimum"]:
        report(where, f"expected at least {schema['minimum']}, got {value!r}")
    else:
        # A field has its limit when it is built; here it only keeps what is
        # shared over and over from never ending.
        walk = _Check(report)
        walk.left *= 3
        walk.convert(value, where, level)


def _validate_object(value, schema, where, report, level):
    known = schema["properties"]
    for name in schema["required"]:
        if not _has(value, name):
            report((where, name), "missing")
    for name, item in value.items():
        if not issubclass(type(name), str):
            report(where, f"expected text keys, got {_shown(name)}")
            continue
        name = str.__str__(name)
        _clean_text(name, where, report)
        inner = known.get(name, schema["additionalProperties"])
        if inner is False:
            report((where, name), "unexpected key")
        else:
            _validate(item, inner, (where, name), report, level + 1)


# ---------------------------------------------------------------------------
# The Snowl side: an agent that Snowl can run
# ---------------------------------------------------------------------------
# Snowl writes all trials of an evaluation in one go, and one value that JSON
# cannot hold loses them all. So everything is converted before it reaches
# Snowl's state, and a failed run is told as one exception with clean text.

_STOP_REASONS = {
    "completed": (
        *("success", "final", "final_result"),
        *("agent_condition", "critic_stop", "env_terminal"),
    ),
    "max_steps": ("max_steps", "budget_steps", "stagnation"),
    "limit_exceeded": ("budget_time", "budget_tokens", "context_overflow"),
    "cancelled": ("cancelled_immediate", "cancelled_after_step", "interrupt"),
    "error": (),
}
"""Snowl's stop reasons, each with those of QitOS; any other is an error."""

# Snowl compares the text and asks for ``.value``: a plain str will not do.
_SnowlStop = Enum(
    "_SnowlStop", {word.upper(): word for word in _STOP_REASONS}, type=str
)
_SnowlAction = namedtuple("_SnowlAction", ("action_type", "payload"))
_SnowlObservation = namedtuple("_SnowlObservation", ("observation_type", "payload"))

_RESULT_NAMES = ("records", "events", "step_count", "task_result")
_OUTCOME_NAMES = ("status", "output")
_AGENT_NAMES = ("build_engine", "run")
_EVENT_NAME = "qitos.snowl_payload"

_Told = namedtuple(
    "_Told",
    "result payload events actions observations answer usage stop failure cause",
)
_Told.__doc__ = "All that one run says to Snowl, as strict JSON beside the result."


def _peek(source, *names):
    """The first of the names that says something, else None; never raises."""
    found = (_meta(source, name) for name in names)
    return next((value for value in found if value is not None), None)


def _peek_text(source, *names):
    return _read_text(_peek(source, *names), "", None, _Report())


def _peek_list(source, name, known):
    rows = _elements(_peek(source, name), known, None, _Report())
    return [row for row, _ in rows]


def _error_text(error):
    """The words of an exception, or its type's name when it has none."""
    told = to_json_value(error)
    if isinstance(error, Exception) and told["message"].strip():
        return told["message"]
    return f"{told['type']}: {told['message']}".rstrip(": ")


# What a run says


def _step_event(record, index):
    """One step at a glance, for people who follow the trace.

    Its calls say ``tool_name``: rows with ``name`` are calls to Snowl's
    scorers, which would then count each a second time.
    """
    calls = []
    for call in _peek_list(record, "tool_invocations", ("tool_name", "name", "status")):
        row = {
            "tool_name": _peek_text(call, "tool_name", "name"),
            "status": _peek_text(call, "status") or None,
            "latency_ms": _number(_peek(call, "latency_ms")),
        }
        error = _peek_text(call, "error")
        calls.append({**row, "error": error} if error else row)
    step_id = _integer(_peek(record, "step_id"))
    verdict = ("critic_name", "action", "reason", "score")
    critics = critic_traces([record])
    return {
        "event": "qitos.step",
        "step_id": index if step_id is None else step_id,
        "agent_id": _peek_text(record, "agent_id") or None,
        "mode": _peek_text(_peek(record, "decision"), "mode") or None,
        "tool_calls": calls,
        "critics": [{name: row[name] for name in verdict} for row in critics],
    }


def _snowl_actions(record):
    """The calls that a step decided on, in order, as Snowl's scorers read them."""
    decided = _peek_list(record, "actions", ("name", "args"))
    if not decided:
        decided = _peek_list(_peek(record, "decision"), "actions", ("name", "args"))
    for action in decided:
        payload = {
            "tool_name": _peek_text(action, "name"),
            "arguments": _read_object(_peek(action, "args"), {}, None, _Report()),
        }
        call_id = _peek_text(action, "action_id")
        yield _SnowlAction(
            "tool_call", {**payload, "tool_call_id": call_id} if call_id else payload
        )


def _snowl_observations(record, calls):
    """A step's results in order, each under the name of the call it belongs to.

    Results follow the invocations, not the actions: QitOS appends what the
    environment says, and that is no tool's result.
    """
    results = _peek(record, "action_results")
    results = list(results) if isinstance(results, (list, tuple)) else []
    results += [{"error": call.get("error")} for call in calls[len(results) :]]
    for index, result in enumerate(results):
        call = calls[index] if index < len(calls) else {}
        name = call.get("tool_name")
        if not _is_mapping(result) and all(_has(result, n) for n in _OUTCOME_NAMES):
            name = _peek_text(result, "tool_name", "name") or name
            error = _peek_text(result, "error")
            result = {"error": error} if error else _peek(result, "output")
        payload = {"result": to_json_value(result)}
        if name:
            payload = {"tool_name": name, **payload, "status": call.get("status")}
        yield _SnowlObservation("tool_result" if name else "environment", payload)


def _usage(result):
    """Token counts as Snowl has them; QitOS may know only the total."""
    metrics = _peek(_peek(result, "task_result"), "metrics")

    def count(source, name):
        return max(_integer(_peek(source, name)) or 0, 0)

    used = count(metrics, "prompt_tokens_total")
    made = count(metrics, "completion_tokens_total")
    total = count(result, "total_tokens") or count(metrics, "token_usage")
    return {
        "input_tokens": used,
        "output_tokens": made,
        "total_tokens": total or used + made,
    }


def _failure_text(result, reason):
    """The words that a failed run ended with."""
    failure = _peek(result, "failure")
    text = _peek_text(failure, "message") or _peek_text(failure, "type")
    if not text and reason == "unrecoverable_error":
        events = _peek_list(result, "events", _EVENT_NAMES)
        errors = [_peek_text(event, "error") for event in events]
        text = next((error for error in reversed(errors) if error), "")
    if text or reason:
        return text or f"the run ended with stop reason {reason!r}"
    return "the run ended with neither a stop reason nor an answer"


def _read_result(result, engine, event_name, cause=None):
    """Read a result, a bare answer, or what is left after ``cause`` was raised."""
    is_result = _has_any(result, _RESULT_NAMES)
    answered = None if cause is not None else result
    source = result if is_result else {"step_count": 0, "final_result": answered}
    # An engine that cannot describe itself would hide what the events say.
    described = engine if _has(engine, "export_config") else None
    payload = build_payload(source, engine=described)
    events = [
        {"event": event_name, "schema_version": SCHEMA_VERSION, "payload": payload}
    ]
    actions, observations = [], []
    for index, record in enumerate(_peek_list(source, "records", _RECORD_NAMES)):
        events.append(_step_event(record, index))
        actions += _snowl_actions(record)
        observations += _snowl_observations(record, events[-1]["tool_calls"])
    places = (_peek(source, "task_result"), _peek(source, "state"), source)
    answers = [_peek(place, "final_result") for place in places]
    answer = to_json_value(next((a for a in answers if a is not None), None))
    if not isinstance(answer, (str, type(None))):
        answer = _compact(answer)
    reasons = [_peek_text(place, "stop_reason") for place in reversed(places)]
    reason = next(filter(None, reasons), "").strip().lower()
    stop = next((s for s, words in _STOP_REASONS.items() if reason in words), "error")
    if not reason and answer is not None:
        stop = "completed"
    failure = _failure_text(source, reason) if stop == "error" else None
    if cause is not None:
        stop, failure = "error", _error_text(cause)
    told = (result, payload, events, actions, observations, answer, _usage(source))
    return _Told(*told, _SnowlStop(stop), failure, cause)


def _fill(state, told):
    """Put a told run on Snowl's state, in lists of its own."""
    message = {"role": "assistant", "content": told.answer or ""}
    if told.answer is not None:
        state.messages = [*state.messages, dict(message)]
    state.actions = [*state.actions, *told.actions]
    state.observations = [*state.observations, *told.observations]
    state.output = {
        "message": message,
        "usage": told.usage,
        "trace_events": told.events,
    }
    state.stop_reason = told.stop
    return state


# Snowl's tools


class _SnowlTool:
    """One Snowl tool as a callable that QitOS's registries take.

    A copy of it is its meta, under the mark that QitOS's decorator leaves on
    a function, so the schema arrives as Snowl wrote it; the attributes up here
    are what a meta must have besides. Snowl checks a tool's ``required_ops``
    against its own environment, so QitOS must not check them again.
    """

    prompt = timeout_s = retry_policy = on_failure = None
    output_schema = result_max_chars = rule_scope_builder = None
    needs_approval = read_only = concurrency_safe = produces_artifact = False
    requires_user_interaction = supports_background = False
    max_retries = 0

    def __init__(self, tool, loop=None):
        import copy
        from types import SimpleNamespace

        self.__name__ = self.name = _peek_text(tool, "name")
        self.__doc__ = self.description = _peek_text(tool, "description")
        self.input_schema = to_json_value(_peek(tool, "parameters") or {})
        self.required_ops = []
        self.__signature__ = _signature_of(self.input_schema)
        self._callable = tool.callable
        self._loop = loop
        meta = self.__qitos_tool_meta__ = copy.copy(self)
        meta.permissions = SimpleNamespace(**dict.fromkeys(_PERMISSION_FLAGS, False))

    def __call__(self, **arguments):
        return _waited_for(self._callable(**arguments), self._loop)

    def execute(self, args, runtime_context=None):
        """Call the tool, for a registry that asks objects rather than callables."""
        return self(**args)


_PARAMETER_TYPES = {
    **{"string": str, "integer": int, "number": float, "boolean": bool},
    **{"array": list, "object": dict},
}


def _signature_of(schema):
    """A JSON schema's properties as a signature, which QitOS shows to models."""
    import inspect

    parameters = []
    for name, part in (schema.get("properties") or {}).items():
        kind = part.get("type") if isinstance(part, dict) else None
        options = {"annotation": _PARAMETER_TYPES.get(str(kind), object)}
        if name not in schema.get("required", ()):
            options["default"] = None
        keyword = inspect.Parameter.KEYWORD_ONLY
        ok, made = _attempt(lambda: inspect.Parameter(name, keyword, **options))
        if ok:  # A name such as "max-results" is no Python parameter.
            parameters.append(made)
    return inspect.Signature(parameters)


def _waited_for(made, loop):
    """What was made; if that is awaitable what it gives, awaited on Snowl's loop."""
    import asyncio
    import inspect

    if not inspect.isawaitable(made):
        return made

    async def wait():
        return await made

    if loop is None:
        return asyncio.run(wait())
    return asyncio.run_coroutine_threadsafe(wait(), loop).result()


def _framework_part(agent, name):
    """The class of that name in the framework the agent comes from, or None."""
    for kind in _mro(type(agent)):
        root = str(kind.__module__).partition(".")[0]
        for module in (root, root + ".engine"):
            part = getattr(sys.modules.get(module), name, None)
            if isinstance(part, type):
                return part
    return None


def _with_tools(agent, registry, tools):
    """A copy of the registry, with containers of its own, that has the tools too.

    The agent's own registry may serve other trials at the same time.
    """
    import copy

    if registry is None:
        kind = _framework_part(agent, "ToolRegistry")
        if kind is None:
            text = f"{_type_name(agent)} has no tool registry for Snowl's tool"
            raise SnowlCompatError(f"{text} {tools[0].name!r}")
        registry = kind()
    registry = copy.copy(registry)
    for name, part in list(vars(registry).items()):
        if isinstance(part, (dict, list, set)):
            setattr(registry, name, copy.copy(part))
    for tool in tools:
        ok, error = _attempt(registry.register, tool)
        if not ok:
            text = f"Snowl's tool {tool.name!r} cannot stand beside the agent's own"
            raise SnowlCompatError(f"{text}: {_error_text(error)}")
    return registry


# One trial


class _Trial:
    """One run of an agent in a thread: what to run, and how it is told to stop."""

    def __init__(self, task, tools, emit, config):
        self.task = task
        self.tools = tools
        self.emit = emit
        self.config = config
        self.engine = None
        self.cancelled = False
        self.steps = 0

    def stop(self):
        """Tell the engine to stop; from here on the trial says nothing more."""
        self.cancelled = True
        if _has(self.engine, "cancel"):
            _attempt(self.engine.cancel, "immediate")
        elif _has(self.engine, "budget"):
            _attempt(self.end_budget)

    def end_budget(self):
        """QitOS 0.3.0 cannot be cancelled, but it looks at its budget."""
        import copy

        budget = copy.copy(self.engine.budget)
        budget.max_steps = 0
        self.engine.budget = budget

    def on_step_end(self, record, state, engine):
        """The engine's hook: tell Snowl of a finished step while the run goes on."""
        if not self.cancelled:
            event = {**_step_event(record, self.steps), "event": "runtime.agent.step"}
            self.steps += 1
            _attempt(self.emit, event)

    def run(self, make):
        """Make the agent, run it and tell all of it; only Ctrl-C is raised."""
        ok, agent = _attempt(make)
        if not ok:
            return _read_result(None, None, self.config["event_name"], agent)
        own = _peek(agent, "tool_registry")
        ok, result = _attempt(self.run_agent, agent)
        cause = None if ok else result
        if not ok:
            left = _peek(self.engine, "last_result")
            result = self.engine if left is None else left
        told = _read_result(result, self.engine, self.config["event_name"], cause)
        if self.tools:
            _attempt(setattr, agent, "tool_registry", own)
        return told

    def run_agent(self, agent):
        if not _has_any(agent, _AGENT_NAMES):
            raise SnowlCompatError(
                f"expected an agent, the factory gave {_shown(agent)}"
            )
        settings = dict(self.config["engine_kwargs"])
        options = dict(self.config["state_kwargs"])
        steps = self.config["max_steps"]
        if steps is not None:
            options["max_steps"] = steps
        if self.tools and "tool_registry" in settings:
            registry = settings["tool_registry"]
            settings["tool_registry"] = _with_tools(agent, registry, self.tools)
        elif self.tools:
            registry = _peek(agent, "tool_registry")
            agent.tool_registry = _with_tools(agent, registry, self.tools)
        if not _has(agent, "build_engine"):
            return _run_plain(agent, self.task, options, settings)
        if steps is not None:
            # The state's own limit alone would end the run as a failure.
            from types import SimpleNamespace

            kind = _framework_part(agent, "RuntimeBudget") or SimpleNamespace
            settings["budget"] = kind(max_steps=steps)
        self.engine = agent.build_engine(**settings)
        if self.emit is not None and _has(self.engine, "register_hook"):
            _attempt(self.engine.register_hook, self)
        return None if self.cancelled else self.engine.run(self.task, **options)


def _run_plain(agent, task, options, settings):
    """Run an agent that has no ``build_engine``, with what its ``run`` takes."""
    import inspect

    if settings:
        options["engine_kwargs"] = settings
    parameters = inspect.signature(agent.run).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if takes_any or "return_state" in parameters:
        options["return_state"] = True
    if takes_any or "task" in parameters:
        return _waited_for(agent.run(task=task, **options), None)
    return _waited_for(agent.run(task, **options), None)


async def _in_thread(work, stop):
    """Await ``work()`` in a thread of its own, which no exit waits for.

    When the waiting is cancelled, ``stop()`` is called and the thread is left
    to end by itself.
    """
    import asyncio
    import contextvars
    import threading

    loop = asyncio.get_running_loop()
    done = loop.create_future()
    context = contextvars.copy_context()

    def settle(ok, value):
        if not done.done():
            done.set_result((ok, value))

    def main():
        try:
            outcome = True, context.run(work)
        except BaseException as error:  # noqa: B902  Raised where it is awaited.
            outcome = False, error
        _attempt(loop.call_soon_threadsafe, settle, *outcome)

    threading.Thread(target=main, name="qitos-trial", daemon=True).start()
    try:
        ok, value = await done
    except asyncio.CancelledError:
        stop()
        raise
    if not ok:
        raise value
    return value


# The two classes

_CONFIG = {
    "engine_kwargs": ({}, _is_mapping, "a mapping"),
    "event_name": (_EVENT_NAME, lambda v: isinstance(v, str) and v.strip(), "a name"),
    "max_steps": (None, lambda v: type(v) is int and v > 0, "an int >= 1"),
    "state_kwargs": ({}, _is_mapping, "a mapping"),
}
"""Default, check and description of each setting of ``wrap``."""

_HOOKS = ("setup", "on_trial_start", "on_trial_end", "on_trial_error", "teardown")


def _check_names(given, known, what):
    for name in given:
        if name not in known:
            text = f"unknown {what} {_shown(name)}, expected one of {', '.join(known)}"
            raise SnowlCompatError(text)


def _checked_config(config):
    _check_names(config, ("agent_id", *_CONFIG), "config")
    for name, value in config.items():
        default, check, expected = _CONFIG[name]
        if value is not default and not check(value):
            raise SnowlCompatError(f"expected {expected}, got {_shown(value)}", name)
    config = {name: config.get(name, row[0]) for name, row in _CONFIG.items()}
    if config["max_steps"] is not None and "budget" in config["engine_kwargs"]:
        raise SnowlCompatError("expected no budget beside max_steps", "engine_kwargs")
    return config


def _checked_agent_id(agent_id, agent):
    """An id that is safe in the file names that Snowl makes of it."""
    if agent_id is None:
        names = [_attempt(getattr, agent, name) for name in ("name", "__name__")]
        names = [name for ok, name in names if ok and isinstance(name, str)]
        name = (*names, _type_name(agent))[0]
        return re.sub(r"[^\w.-]+", "-", name).strip(".-")[:64] or "qitos-agent"
    if isinstance(agent_id, str) and re.fullmatch(
        r"\w([\w.@+ -]{0,62}[\w@+-])?", agent_id
    ):
        return agent_id
    text = "expected a file name of at most 64 letters, digits, spaces or any of _.@+-"
    raise SnowlCompatError(f"{text}, got {_shown(agent_id)}", "agent_id")


class InstalledAgent:
    """A QitOS agent that Snowl runs, packaged with hooks on its life.

    ``factory`` is a class or zero-argument callable that makes an agent for
    each trial, or one agent object, whose trials then run one at a time.
    ``agent_id`` becomes part of Snowl's file names. ``hooks`` is an object or
    mapping with any of ``setup(context)``, ``on_trial_start(task, context)``,
    ``on_trial_end(task, result, payload)``, ``on_trial_error(task, error)``
    and ``teardown()``, sync or async. The rest is the config of
    ``QitOSAdapter.wrap``. Raises ``SnowlCompatError`` for what it cannot use.
    """

    def __init__(self, factory, *, agent_id=None, hooks=None, **config):
        import threading

        self._config = _checked_config(config)
        self.agent_id = _checked_agent_id(agent_id, factory)
        self._shared = not isinstance(factory, type) and _has_any(factory, _AGENT_NAMES)
        if not self._shared and not callable(factory):
            text = f"expected an agent or a factory of agents, got {_shown(factory)}"
            raise SnowlCompatError(text)
        if _is_mapping(hooks):
            _check_names(hooks, _HOOKS, "hook")
        self._factory = factory
        self._hooks = hooks
        self._turn = threading.Lock()  # Held by the one trial of a shared agent.
        self._lock = threading.Lock()  # Guards the two fields below.
        self._setup = None
        self._torn_down = False

    async def run(self, state, context, tools=None):
        """Run one trial and return the same state, filled.

        Raises ``SnowlCompatError`` with the run's own message when it failed;
        what it left is then on the state too.
        """
        import asyncio

        await self._set_up(context)
        task = QitOSAdapter().unwrap_state(state)
        try:
            await self._hook("on_trial_start", task, context)
            told = await self._run_trial(task, context, tools)
            _fill(state, told)
            if told.failure is not None:
                raise SnowlCompatError(told.failure) from told.cause
        except (Exception, asyncio.CancelledError) as error:
            try:
                await self._hook("on_trial_error", task, error)
            except SnowlCompatError as second:
                if isinstance(error, asyncio.CancelledError):
                    raise error from None
                text = f"{second.message}; the trial had failed: {_error_text(error)}"
                raise SnowlCompatError(text) from error
            raise
        # A hook may write to its payload, but not to what Snowl is going to write.
        payload = to_json_value(told.payload)
        await self._hook("on_trial_end", task, told.result, payload)
        return state

    async def _run_trial(self, task, context, tools):
        import asyncio

        loop = asyncio.get_running_loop()
        emit = _peek(_peek(context, "metadata"), "__snowl_emit_event")

        def send(event):
            loop.call_soon_threadsafe(_attempt, emit, event)

        def work():
            if not self._shared:
                return trial.run(self._factory)
            with self._turn:
                return None if trial.cancelled else trial.run(lambda: self._factory)

        tools = [_SnowlTool(tool, loop) for tool in tools or ()]
        trial = _Trial(task, tools, send if callable(emit) else None, self._config)
        return await _in_thread(work, trial.stop)

    async def _hook(self, name, *args):
        import asyncio
        import inspect

        hook = _peek(self._hooks, name)
        if hook is None:
            return
        ok, made = _attempt(hook, *args)
        if ok and inspect.isawaitable(made):
            # Gathered, so that only a real cancellation passes as one.
            (made,) = await asyncio.gather(made, return_exceptions=True)
            ok = not isinstance(made, BaseException)
        if not ok:
            text = f"hook {name} raised {_type_name(made)}: {_error_text(made)}"
            raise SnowlCompatError(text) from made

    async def _set_up(self, context):
        """Run the setup hook once; trials that come meanwhile wait for it.

        They may come from other event loops, so they wait for a future that
        belongs to none. It gives None, the message of what went wrong, or
        itself when the setup was cancelled, and then one of them does it.
        """
        import asyncio
        from concurrent.futures import Future

        while True:
            with self._lock:
                if self._torn_down:
                    raise SnowlCompatError(f"agent {self.agent_id!r} is torn down")
                setup = self._setup
                if setup is None:
                    outcome = setup = self._setup = Future()
                    break
            outcome = await asyncio.shield(asyncio.wrap_future(setup))
            if outcome is None:
                return
            if outcome is not setup:
                raise SnowlCompatError(outcome)
        try:
            await self._hook("setup", context)
            outcome = None
        except SnowlCompatError as error:
            outcome = error.message
            raise
        finally:
            if outcome is not None:
                self._setup = None
            setup.set_result(outcome)

    async def teardown(self):
        """Call the teardown hook, at most once; no trial may start after it.

        Snowl 0.1.0 does not call it: use ``async with``, or call it yourself.
        """
        with self._lock:
            torn_down, self._torn_down = self._torn_down, True
        if not torn_down:
            await self._hook("teardown")

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.teardown()


class QitOSAdapter:
    """Makes QitOS agents into agents that Snowl can run."""

    framework_name = "qitos"

    def wrap(self, agent_or_factory, **config):
        """Return a Snowl agent: ``agent_id`` and ``async run(state, context, tools)``.

        A factory (class or zero-argument callable) gives each trial a fresh
        agent; an agent object runs its trials one at a time. Config:
        ``agent_id`` (text safe in file names), ``max_steps`` (int >= 1),
        ``engine_kwargs`` (for ``build_engine``), ``state_kwargs`` (for ``run``)
        and ``event_name``; anything else is a ``SnowlCompatError``.
        """
        _check_names(config, ("agent_id", *_CONFIG), "config")
        return InstalledAgent(agent_or_factory, **config)

    def unwrap_state(self, state):
        """Return the task: the text of the last user message, its parts as lines.

        Raises ``SnowlCompatError`` when the state has no such text.
        """
        for message in reversed(_peek(state, "messages") or []):
            if _peek_text(message, "role") == "user":
                content = _peek(message, "content")
                parts = content if isinstance(content, (list, tuple)) else [content]
                texts = (p if isinstance(p, str) else _peek(p, "text") for p in parts)
                task = "\n".join(text for text in texts if isinstance(text, str))
                if task.strip():
                    return task
                raise SnowlCompatError("the last user message has no text")
        raise SnowlCompatError("the state has no user message")

    def wrap_result(self, result, state, *, engine=None, event_name=_EVENT_NAME):
        """Fill Snowl's state with all that a result tells, and return it.

        ``result`` is an engine result or a bare answer; ``engine`` tells the
        configuration. A failed run only sets ``stop_reason`` here.
        """
        return _fill(state, _read_result(result, engine, event_name))

    def wrap_tools(self, tools):
        """Return one callable for each Snowl tool, for QitOS's registry to register.

        Each has the tool's name, description and parameter schema; a tool
        whose callable is async is awaited by it.
        """
        return [_SnowlTool(tool) for tool in tools or ()]


# ---------------------------------------------------------------------------
# The page for people: show
# ---------------------------------------------------------------------------

_WIDTH = 80
_MOST_ROWS = 50
_BUDGET_WORDS = (
    ("budget_max_steps", "steps"),
    ("budget_max_runtime_seconds", "seconds"),
    ("budget_max_tokens", "tokens"),
)
_SPEC_WORDS = (
    ("needs_approval", "asks first"),
    ("read_only", "read only"),
    ("concurrency_safe", "parallel"),
)


def _cell(value):
    """A value on one line: numbers short, control characters escaped."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.3g}"
    text = value if isinstance(value, str) else _compact(value)
    text = text if len(text) <= 300 else text[:297] + "..."
    return _printable(" ".join(text.split()))


def _printable(text):
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _columns(text):
    """Columns on a terminal, where most CJK characters and emoji take two."""
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text
    )


def _fit(text, width, right=False):
    """The text cut to a number of columns, and filled up to it."""
    if _columns(text) > width:
        text = text[:width]
        while _columns(text) > width - 3:
            text = text[:-1]
        text += "..."
    room = " " * (width - _columns(text))
    return room + text if right else text + room


def _wrapped(text, width):
    """The text in lines of so many columns, broken at spaces where it has any."""
    lines = []
    while _columns(text) > width:
        end = width
        while _columns(text[:end]) > width:
            end -= 1
        space = text.rfind(" ", 1, end + 1)
        end = space if space > 0 else end
        lines.append(text[:end])
        text = text[end:].lstrip()
    return [*lines, text]


def _pairs(pairs):
    """Lines of labels and values; what is not known has no line."""
    lines = []
    for label, value in pairs:
        if value not in (None, "", {}):
            for part in _wrapped(_cell(value), _WIDTH - 18):
                lines.append(f"  {label:<16}{part}")
                label = ""
    return lines


def _table(columns, rows):
    """Lines of a table; ``columns`` are (head, most columns, if to the right).

    A column that is empty in every row is left out.
    """
    cells = [[_cell(value) for value in row] for row in rows[:_MOST_ROWS]]
    lines = ["" for _ in range(len(cells) + 1)] if cells else []
    for index, (head, most, right) in enumerate(columns):
        column = [head, *(row[index] for row in cells)]
        if any(column[1:]):
            left = _WIDTH - 2 - _columns(lines[0])
            width = min(most, left, max(map(_columns, column)))
            lines = [f"{line}  {_fit(cell, width, right)}" for line, cell in zip(lines, column)]
    return [*(line.rstrip() for line in lines), *_rest(rows)]


def _rest(items):
    left = len(items) - _MOST_ROWS
    return [f"  ... and {left} more"] if left > 0 else []


def _run_part(payload):
    run, partial = payload["run"], "no: there is no END event"
    calls = (run["tool_calls_by_name"] or {}).items()
    return _pairs((
        ("run", run["run_id"]),
        ("agent", payload["engine_config"]["agent_name"]),
        ("model", payload["engine_config"]["model_id"]),
        ("steps", payload["step_count"]),
        ("stop reason", run["stop_reason"]),
        ("complete", {True: partial, False: "yes"}.get(run["partial"])),
        ("result", run["final_result"]),
        ("seconds", run["runtime_seconds"]),
        ("tokens", run["total_tokens"]),
        ("tool calls", ", ".join(f"{_cell(count)} {name}" for name, count in calls)),
        ("success rate", run["success_rate"]),
    ))


def _config_part(config):
    budget = [f"{config[name]} {word}" for name, word in _BUDGET_WORDS if config[name] is not None]
    attached = [name[4:].replace("_", " ") for name, value in config.items() if value is True]
    return _pairs((
        ("budget", ", ".join(budget)),
        ("protocol", config["protocol_id"]),
        ("critics", ", ".join(config["critic_names"])),
        ("stop criteria", ", ".join(config["stop_criteria_names"])),
        ("attached", ", ".join(attached)),
        ("delegated", config["delegate_depth"] or None),
    ))


def _tool_part(specs):
    rows = []
    for spec in specs:
        allowed = [name.replace("_", " ") for name, flag in spec["permissions"].items() if flag]
        notes = [word for name, word in _SPEC_WORDS if spec[name]]
        notes += [f"needs {name}" for name in spec["required_ops"]]
        rows.append((spec["name"], ", ".join(allowed), ", ".join(notes)))
    return _table((("tool", 24, False), ("may use", 24, False), ("notes", 80, False)), rows)


def _critic_part(traces):
    names = ("step_id", "critic_name", "action", "score", "reason")
    columns = (("step", 7, True), ("critic", 18, False), ("action", 9, False),
               ("score", 8, True), ("reason", 80, False))
    return _table(columns, [[row[name] for name in names] for row in traces])


def _handoff_part(traces):
    columns = (("step", 7, True), ("handoff", 46, False), ("context", 9, False),
               ("messages", 8, True))
    return _table(columns, [
        (row["step_id"], f"{_fit(_cell(row['from_agent']), 21).rstrip()} -> {row['to_agent']}",
         row["context_strategy"], row["messages_passed"])
        for row in traces
    ])


def _issue_part(issues):
    lines = []
    for issue in issues[:_MOST_ROWS]:
        first, *more = _wrapped(_cell(f"{issue['path']}: {issue['message']}"), _WIDTH - 4)
        lines += [f"  {first}", *(f"    {line}" for line in more)]
    return lines + _rest(issues)


def _page(payload):
    """The text of one extended payload for people: ASCII apart from its words."""
    parts = (
        ("Run", _run_part(payload)),
        ("Configuration", _config_part(payload["engine_config"])),
        ("Tools", _tool_part(payload["tool_permissions"])),
        ("Critics", _critic_part(payload["critic_traces"])),
        ("Handoffs", _handoff_part(payload["handoff_traces"])),
        ("Issues", _issue_part(payload["run"]["issues"])),
    )
    return "\n\n".join("\n".join([title, *(body or ["  none"])]) for title, body in parts)


# ---------------------------------------------------------------------------
# The command line
# ---------------------------------------------------------------------------


def _arguments(argv):
    import argparse

    parser = argparse.ArgumentParser(
        prog="snowl_compat.py",
        description="Turn QitOS agent runs into Snowl payloads (strict JSON).",
        epilog="Exit codes: 0 fine, 1 a problem in the data, 2 wrong usage.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    export = commands.add_parser("export", help="write the payload of a run")
    export.add_argument("runs", nargs="+", metavar="RUN", help=(
        "a trace folder, a JSON file, a folder of trace folders, or - for standard input"
    ))
    export.add_argument("-o", dest="output", metavar="FILE", help="instead of standard output")
    export.add_argument("--indent", type=int, metavar="N", help="spaces of each level")
    export.add_argument("--extended", action="store_true", help="add schema_version and run")
    export.add_argument("--strict", action="store_true", help="fail at the first issue")
    check = commands.add_parser("check", help="validate payload files")
    check.add_argument("files", nargs="+", metavar="FILE")
    show = commands.add_parser("show", help="a run at a glance, for people")
    show.add_argument("run", metavar="FILE_OR_RUN")
    commands.add_parser("schema", help="print the JSON Schema of the payload")
    args = parser.parse_args(argv)
    if args.command == "export":
        args.runs, args.many = _expanded(args.runs)
        if args.many and args.indent is not None:
            parser.error("--indent is for one run: several are JSON Lines")
        if args.indent is not None and args.indent < 0:
            parser.error("--indent must not be negative")
    return args


def _expanded(paths):
    """The runs that paths name, folders of runs opened, and if they are many."""
    runs, many = [], len(paths) > 1
    for path in paths:
        inner = []
        if os.path.isdir(path) and not _is_run(path):
            names = sorted(os.listdir(path))
            inner = [p for p in (os.path.join(path, n) for n in names) if _is_run(p)]
        many = many or bool(inner)
        runs += inner or [path]
    return runs, many


def _write(stream, text):
    """Write UTF-8 to a standard stream, whatever the locale says."""
    if stream is None:
        raise SnowlCompatError("cannot be written: it is closed", "standard output")
    data = text.encode("utf-8", "backslashreplace")
    binary = getattr(stream, "buffer", None)
    if binary is None:
        stream.write(data.decode("utf-8"))
    else:
        stream.flush()
        binary.write(data)
        binary.flush()


def _tell(*parts):
    """Write one line about a problem to standard error, if there is one."""
    line = _printable(": ".join(part for part in parts if part))
    _attempt(_write, sys.stderr, f"{line}\n")


def _progress(text):
    """Show how far we are, on a terminal only; the next text goes over it."""
    if sys.stderr is not None and sys.stderr.isatty():
        _attempt(_write, sys.stderr, f"\r{text:<24}\r")


def _input(path):
    if path != "-":
        return _file_bytes(path)
    if sys.stdin is None:
        raise SnowlCompatError("cannot be read: it is closed", "standard input")
    return sys.stdin.buffer.read()


def _run_at(path):
    return read_run(path) if path != "-" else _json_run(_input(path), "standard input")


def _export_command(args):
    if args.output is None:
        return _export_runs(args, lambda text: _write(sys.stdout, text))
    return _into_file(
        args.output,
        lambda file: _export_runs(args, lambda text: file.write(text.encode("utf-8"))),
    )


def _export_runs(args, put):
    """Give each run's text to ``put``; of several, a bad one is told and left out."""
    failed = False
    for number, path in enumerate(args.runs, 1):
        issues, label = [], _path_as_text(path) if args.many else ""
        if args.many:
            _progress(f"{number} of {len(args.runs)}")
        try:
            text = export_json(
                _run_at(path),
                extended=args.extended or args.many,
                strict=args.strict,
                issues=issues,
                indent=args.indent,
            )
        except SnowlCompatError as error:
            if not args.many:
                raise
            failed, text = True, ""
            issues = [Issue("" if error.path == label else error.path, error.message)]
        if args.many:
            _progress("")
        for issue in issues:
            _tell(label, issue.path, issue.message)
        if text:
            put(f"{text}\n")
    return int(failed)


def _into_file(path, fill):
    """Return what ``fill(file)`` does; the file is then whole, or as it was.

    It is written beside and renamed, through links and with the mode of the
    file it replaces. A device or a pipe is written as it is.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file:
                return fill(file)
        final = os.path.realpath(path)
        beside = f"{final}.{os.getpid()}.tmp"
        try:
            with open(beside, "wb") as file:
                result = fill(file)
                empty = file.tell() == 0
            if empty:
                os.unlink(beside)
                return result
            if os.path.exists(final):
                os.chmod(beside, os.stat(final).st_mode & 0o7777)
            os.replace(beside, final)
        except BaseException:
            _attempt(os.unlink, beside)
            raise
        return result
    except OSError as error:
        why = error.strerror or error
        raise SnowlCompatError(f"cannot be written: {why}", _path_as_text(path)) from None


def _check_command(args):
    failed = False
    for path in args.files:
        for problem in _problems(path):
            failed = True
            _tell(*problem)
    return int(failed)


def _problems(path):
    """Yield what is wrong with a payload's file, or with the payload of a line."""
    try:
        data = _input(path)
    except SnowlCompatError as error:
        yield error.path, error.message
        return
    path = _path_as_text(path)
    texts = [
        (f"{path}:{number}", line)
        for number, line in enumerate(data.split(b"\n"), 1)
        if line.strip()
    ]
    if len(texts) < 2 or not _attempt(_parse, texts[0][1])[0]:
        texts = [(path, data)]
    for place, text in texts:
        ok, payload = _attempt(_parse, text)
        for issue in validate_payload(payload) if ok else [Issue("", payload.message)]:
            yield place, issue.path, issue.message


def _show_command(args):
    payload = build_payload(_run_at(args.run), extended=True)
    _write(sys.stdout, f"{_page(payload)}\n")
    return 0


def _schema_command(args):
    _write(sys.stdout, f"{json.dumps(PAYLOAD_SCHEMA, indent=2)}\n")
    return 0


def main(argv=None):
    """Run the command line and return its exit code."""
    commands = {
        "export": _export_command,
        "check": _check_command,
        "show": _show_command,
        "schema": _schema_command,
    }
    try:
        try:
            args = _arguments(argv)
            return commands[args.command](args)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # The help may still be in there.
    except SnowlCompatError as error:
        _tell(str(error))
        return 1
    except BrokenPipeError:
        # Whoever read us has enough; the interpreter's last flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _tell(_path_as_text(str(error.filename or "")), error.strerror or str(error))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
