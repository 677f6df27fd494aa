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
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import chain, islice
from types import SimpleNamespace

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
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


Issue = namedtuple("Issue", ("path", "message"))
Issue.__doc__ = "One thing that was changed, left out or wrong, and where."


class _Report:
    """Where issues go: collected, dropped, or raised at the first one.

    A place is a chain of pairs (outer place, key or index); its text is made
    only when there is something to tell.
    """

    __slots__ = ("issues", "strict")

    def __init__(self, issues=None, strict=False):
        self.issues = issues
        self.strict = strict

    def __call__(self, where, message):
        if self.strict:
            raise SnowlCompatError(message, _path_text(where))
        if self.issues is not None:
            self.issues.append(Issue(_path_text(where), message))


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
    return "".join(reversed(parts))


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
    if value is None or kind in (bool, float):
        return repr(value)
    if kind is int and value.bit_length() < 2000:
        return repr(value)
    return _type_name(value)


# ---------------------------------------------------------------------------
# Reading by shape
# ---------------------------------------------------------------------------


def _mro(kind):
    return type.__dict__["__mro__"].__get__(kind)


def _declares(kind, name):
    """Whether the type itself, not ``__getattr__``, has the attribute."""
    return any(name in type.__dict__["__dict__"].__get__(base) for base in _mro(kind))


def _is_mapping(value):
    return isinstance(value, dict) or issubclass(type(value), Mapping)


def _has(source, name):
    """Whether the mapping has the key, or the object really the attribute."""
    if _is_mapping(source):
        return _attempt(lambda: name in source) == (True, True)
    if _declares(type(source), name):
        return True
    ok, own = _attempt(object.__getattribute__, source, "__dict__")
    return ok and isinstance(own, dict) and name in own


def _has_any(source, names):
    return any(_has(source, name) for name in names)


def _read(source, name, where, report):
    """The key or attribute, or ``_MISSING``; one that raises is an issue."""
    if type(source) is dict:
        return source.get(name, _MISSING)
    if not _has(source, name):
        return _MISSING
    if _is_mapping(source):
        ok, value = _attempt(lambda: source[name])
    else:
        ok, value = _attempt(getattr, source, name)
    if ok:
        return value
    report((where, name), f"reading it raised {_type_name(value)}")
    return _MISSING


def _read_first(source, names, where, report):
    """The first of several names that says something, else None or missing."""
    value = _MISSING
    for name in names:
        value = _read(source, name, where, report)
        if value is not _MISSING and value is not None:
            break
    return value


def _is_iterable(value):
    """Whether it may be walked as a list: text, bytes and classes may not."""
    return not isinstance(value, (str, bytes, bytearray, type)) and issubclass(
        type(value), Iterable
    )


def _elements(value, known, where, report, outer=()):
    """Yield (element, place) of what should be a list of records.

    ``known`` are the names by which one record is recognised. A lone record is
    a list of one, a list inside the list is read through, a mapping of records
    stands for its values; anything else is skipped with an issue.
    """
    if value is None or value is _MISSING:
        return
    if _has_any(value, known):
        yield value, (where, 0)
        return
    if _is_mapping(value):
        ok, items = _attempt(lambda: list(value.values()))
        if not (ok and items and all(_has_any(item, known) for item in items)):
            yield value, (where, 0)
            return
        value = items
    if not _is_iterable(value):
        report(where, f"expected a list, got {_shown(value)}")
        return
    if any(value is above for above in outer):
        report(where, "the list contains itself")
        return
    ok, iterator = _attempt(iter, value)
    index = 0
    while ok:
        ok, element = _attempt(next, iterator, _MISSING)
        place = (where, index)
        index += 1
        if not ok:
            report(place, f"reading on raised {_type_name(element)}")
        elif element is _MISSING:
            return
        elif _is_mapping(element) or _has_any(element, known):
            yield element, place
        elif type(element) in (list, tuple):
            yield from _elements(element, known, place, report, (*outer, value))
        elif _has(element, "path") and _has(element, "message"):
            report((None, str(element.path)), str(element.message))
        else:
            report(place, f"expected a record, got {_shown(element)}; skipped")


# ---------------------------------------------------------------------------
# Values: JSON means JSON
# ---------------------------------------------------------------------------

_MAX_DEPTH = 100
_MAX_VALUES = 1_000_000
_MAX_DIGITS = 4300

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _compact(value):
    """Strict JSON as its own text, which is what keys and patches become."""
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )


def _is_a(kind, module, name):
    """Whether a type is the named one, without importing its module.

    A module that nobody has imported has no instances.
    """
    wanted = getattr(sys.modules.get(module), name, None)
    return isinstance(wanted, type) and issubclass(kind, wanted)


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
    allowed = getattr(sys, "get_int_max_str_digits", int)() or _MAX_DIGITS
    return abs(number) >= 10 ** min(allowed, _MAX_DIGITS)


_TEXT_TYPES = (("decimal", "Decimal"), ("uuid", "UUID"), ("fractions", "Fraction"))
_PLAIN_FORMS = (("to_dict",), ("model_dump",), ("tolist", "dtype"), ("item", "dtype"))
_FUNCTION_TYPES = (type(_compact), type(len), type(_Report().__call__))


def _marker(value):
    """What stands for a value that JSON cannot hold: its name, no address."""
    kind = type(value)
    if issubclass(kind, type) or kind not in (*_FUNCTION_TYPES, type(sys)):
        named = value if issubclass(kind, type) else kind
        slots = type.__dict__
        names = [slots[name].__get__(named) for name in ("__module__", "__qualname__")]
    else:
        wanted = ("__name__",) if kind is type(sys) else ("__module__", "__qualname__")
        names = [_attempt(getattr, value, name)[1] for name in wanted]
    text = ".".join(name if isinstance(name, str) else "?" for name in names)
    return {"$unserializable": _clean_text(text, None, _Report())}


class _Walk:
    """One conversion of one field: the place of issues, and what is left of it.

    ``convert`` is the whole table of values, in order; the first row that
    matches wins. Whatever it is given, it returns a tree of new dicts and
    lists with str, int, float, bool and None.
    """

    __slots__ = ("above", "left", "report")

    def __init__(self, report):
        self.report = report
        self.left = _MAX_VALUES
        self.above = set()

    def convert(self, value, where, level=1):
        self.left -= 1
        if self.left < 0:
            self.report(where, f"expected at most {_MAX_VALUES} values")
            return {"$truncated": "size"}
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, str):
            return _clean_text(str.__str__(value), where, self.report)
        if issubclass(kind, int):
            return self.integer(int.__int__(value), where)
        if issubclass(kind, float):
            return self.number(float.__float__(value), where)
        if level > _MAX_DEPTH:
            self.report(where, f"expected at most {_MAX_DEPTH} levels")
            return {"$truncated": "depth"}
        if id(value) in self.above:
            self.report(where, f"{_type_name(value)} contains itself")
            return {"$cycle": True}
        self.above.add(id(value))
        try:
            return self.compound(value, kind, where, level)
        finally:
            self.above.discard(id(value))

    def integer(self, value, where):
        if not _is_long(value):
            return value
        self.report(where, f"expected at most {_MAX_DIGITS} digits, got int")
        return {"$unserializable": "builtins.int"}

    def number(self, value, where):
        if math.isfinite(value):
            return value
        self.report(where, f"expected a finite number, got {value!r}")
        return None

    def compound(self, value, kind, where, level):
        if issubclass(kind, Enum):
            return self.result(value, where, level, lambda: value.value)
        if _declares(kind, "__dataclass_fields__") and "dataclasses" in sys.modules:
            return self.dataclass(value, where, level)
        if issubclass(kind, tuple) and _declares(kind, "_fields"):
            return self.members(value, where, level, lambda: zip(value._fields, value))
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
            ok, text = _attempt(binascii.b2a_base64, value)
            if ok:
                return {"$bytes": text.decode("ascii").rstrip("\n")}
            return self.unserializable(value, where)
        if issubclass(kind, BaseException):
            return self.exception(value, where)
        return self.foreign(value, kind, where, level)

    def result(self, value, where, level, call):
        """Convert what the call makes of a value, one level deeper."""
        ok, made = _attempt(call)
        if not ok:
            return self.unserializable(value, where, f"which raised {_type_name(made)}")
        if made is value or type(made) is type(value):
            return self.unserializable(value, where, "which converts to itself")
        return self.convert(made, where, level + 1)

    def unserializable(self, value, where, why=""):
        name = _type_name(value)
        self.report(where, f"expected a JSON value, got {name} {why}".rstrip())
        return _marker(value)

    def dataclass(self, value, where, level):
        ok, fields = _attempt(sys.modules["dataclasses"].fields, value)
        if not ok:
            return self.unserializable(value, where)
        result = {}
        for name in [field.name for field in fields]:
            if not _has(value, name):
                continue
            found = _read(value, name, where, self.report)
            place = (where, name)
            if found is _MISSING:
                result[name] = _marker(value)
            else:
                result[name] = self.convert(found, place, level + 1)
            if self.left < 0:
                break
        return result

    def members(self, value, where, level, call):
        ok, items = _attempt(lambda: [(k, v) for k, v in islice(call(), self.left + 1)])
        if not ok:
            return self.unserializable(value, where, f"which raised {_type_name(items)}")
        result = {}
        for key, item in items:
            name = self.key(key, where, level)
            if name in result:
                number = 2
                while f"{name}#{number}" in result:
                    number += 1
                self.report(where, f"two keys become {_shown(name)}")
                name = f"{name}#{number}"
            result[name] = self.convert(item, (where, name), level + 1)
            if self.left < 0:
                break
        return result

    def key(self, key, where, level):
        """The text of a mapping's key."""
        kind = type(key)
        if issubclass(kind, Enum) and not issubclass(kind, str):
            ok, found = _attempt(lambda: key.value)
            key = found if ok else key
        if isinstance(key, float) and not math.isfinite(key):
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
        try:
            for item in items:
                place, told = [where, 0], []
                self.report = lambda *issue, told=told: told.append(issue)
                made = self.convert(item, place, level + 1)
                rows.append((_compact(made), made, place, told))
        finally:
            self.report = report
        if self.left < 0:
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
            return value.isoformat
        if _is_a(kind, "datetime", "timedelta"):
            return value.total_seconds
        if any(_is_a(kind, *name) for name in _TEXT_TYPES):
            return lambda: str(value)
        if _declares(kind, "__fspath__"):
            return lambda: os.fsdecode(os.fspath(value))
        return None

    def exception(self, value, where):
        ok, message = _attempt(str, value)
        if not ok:
            self.report(where, f"its text raised {_type_name(message)}")
            message = ""
        message = _clean_text(message, (where, "message"), self.report)
        return {"type": _type_name(value), "message": message}

    def foreign(self, value, kind, where, level):
        """An object that offers a plain form of itself, else its marker."""
        why = ""
        for method, *needs in _PLAIN_FORMS:
            if not _declares(kind, method) or not all(_has(value, n) for n in needs):
                continue
            ok, made = _attempt(lambda: getattr(value, method)())
            if ok:
                return self.result(value, where, level, lambda: made)
            why = why or f"whose {method}() raised {_type_name(made)}"
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
    if isinstance(value, (str, int, float)):
        return value
    if issubclass(type(value), Enum):
        return _attempt(lambda: value.value)[1]
    if _declares(type(value), "item") and _has(value, "dtype"):
        ok, item = _attempt(lambda: value.item())
        return item if ok else value
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
    for module, name in (("decimal", "Decimal"), ("fractions", "Fraction")):
        if _is_a(kind, module, name):
            ok, whole = _attempt(int, value)
            if ok and whole == value:
                return None if _is_long(whole) else whole
            ok, value = _attempt(float, value)
            return value if ok and math.isfinite(value) else None
    return None


def _number_in(text):
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
    if kind is bool or _number(value) is not None:
        return _compact(value if kind is bool else _number(value))
    ok, text = False, None
    if issubclass(kind, (bytes, bytearray)):
        ok, text = _attempt(bytes(value).decode, "utf-8", "replace")
        if "\ufffd" in text:
            report(where, "expected UTF-8 text, got bytes that are not")
    elif _declares(kind, "__fspath__"):
        ok, text = _attempt(lambda: os.fsdecode(os.fspath(value)))
    elif not _is_mapping(value) and _has(value, "name"):
        ok, text = _attempt(getattr, value, "name")
    if ok and isinstance(text, str):
        return _clean_text(str.__str__(text), where, report)
    report(where, f"expected text, got {_shown(value)}")
    return default


def _read_action(value, default, where, report):
    text = _read_text(value, default, where, report)
    word = text.strip().lower()
    if word in ("continue", "stop", "retry"):
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
    number = float(value) if isinstance(value, bool) else _number(value)
    ok, score = _attempt(float, number)
    if ok and math.isfinite(score):
        return score
    report(where, f"expected a finite number, got {_shown(value)}")
    return None


def _read_integer(value, default, where, report):
    """An integer; None and missing are the default, which may be None."""
    if value is None or value is _MISSING:
        return default
    number = _integer(value)
    if number is None:
        report(where, f"expected an integer, got {_shown(value)}")
        return default
    return number


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
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "yes", "1", "false", "no", "0"):
            return word in ("true", "yes", "1")
    elif _number(value) is not None:
        return _number(value) != 0
    report(where, f"expected true or false, got {_shown(value)}")
    return default


def _read_object(value, default, where, report):
    if value is None or value is _MISSING:
        return {} if default == {} else default
    converted = _Walk(report).convert(value, where)
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
    kind = type(value)
    if issubclass(kind, (str, bytes)):
        value = [value]
    elif not issubclass(kind, (list, tuple, set, frozenset, deque)):
        report(where, f"expected a list of text, got {_shown(value)}")
        return []
    elif issubclass(kind, (set, frozenset)):
        value = to_json_value(value)  # In an order that the hash seed cannot change.
    texts = []
    for index, item in enumerate(value):
        text = _read_text(item, None, (where, index), report)
        if text is not None:
            texts.append(text)
        elif item is None:
            report((where, index), "expected text, got None")
    return sorted(texts) if issubclass(kind, (set, frozenset)) else texts


_PERMISSION_FLAGS = ("filesystem_read", "filesystem_write", "network", "command")


def _read_permissions(value, default, where, report):
    """The four documented flags, then further ones that the source has."""
    flags = dict.fromkeys(_PERMISSION_FLAGS, False)
    if value is None or value is _MISSING:
        return flags
    if not _is_mapping(value) and not _has_any(value, _PERMISSION_FLAGS):
        report(where, f"expected an object of flags, got {_shown(value)}")
        return flags
    for name in (*_PERMISSION_FLAGS, *_further_names(value)):
        place = (where, name)
        flag = _read_flag(_read(value, name, where, report), False, place, report)
        flags[_clean_text(name, place, report)] = flag
    return flags


def _further_names(value):
    """Public names of a mapping or object beyond the four documented flags."""
    if _is_mapping(value):
        ok, names = _attempt(lambda: list(value))
    elif _declares(type(value), "__dataclass_fields__"):
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
    _Field("issues", _read_json, [], {"type": "array"}),
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
# The sections
# ---------------------------------------------------------------------------

_RECORD_NAMES = ("critic_outputs", "phase_events", "step_id", "decision", "actions")
_CRITIC_NAMES = ("action", "critic_name", "score", "reason", "details")
_EVENT_NAMES = ("phase", "from_agent", "to_agent", "payload")
_SPEC_NAMES = ("name", "permissions", "spec", "needs_approval")


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
            row["details"]["modified_prompt"] = _Walk(report).convert(prompt, place)
    return row


def _critic_rows(records, where, report, seen=None):
    """Yield the rows of step records, or of critic outputs by themselves.

    ``seen(record, place, position)`` is told of every record on the way.
    """
    for position, (record, place) in enumerate(
        _elements(records, _RECORD_NAMES + _CRITIC_NAMES, where, report)
    ):
        if seen is not None:
            seen(record, place, position)
        if not _has(record, "critic_outputs"):
            if _has_any(record, _CRITIC_NAMES):
                yield _critic_row(record, place, report, position)
            continue

        def record_step(record=record, place=place, position=position):
            return _step_id(record, place, report, position)

        outputs = _read(record, "critic_outputs", place, report)
        inner = (place, "critic_outputs")
        for output, spot in _elements(outputs, _CRITIC_NAMES, inner, report):
            yield _critic_row(output, spot, report, position, record_step)


def _phase(event, where, report):
    """The upper-case name of an event's phase, whatever form it has."""
    value = _read(event, "phase", where, report)
    if isinstance(value, Enum) and not isinstance(_unwrapped(value), str):
        value = _attempt(lambda: value.name)[1]
    value = _unwrapped(value)
    return value.rpartition(".")[2].upper() if isinstance(value, str) else ""


def _handoff_row(event, where, report, position, outer=None):
    body, place = event, where
    if _has(event, "phase"):
        body, place = _read(event, "payload", where, report), (where, "payload")
        body = {} if body is None or body is _MISSING else body
    known = {"step_id": _step_id(event, where, report, position, outer)}
    for name, short in (("from_agent", "from"), ("to_agent", "to")):
        value = _read_first(body, (short, name), place, report)
        known[name] = _read_text(value, "", (place, name), report)
    return _row(_HANDOFF_FIELDS, body, place, report, **known)


class _Scan:
    """What a pass over the events finds: handoff rows, the first INIT, END."""

    def __init__(self):
        self.rows = []
        self.init = None
        self.end = None
        self.count = 0
        self.chosen = False

    def read(self, events, where, report, *, rows=True, outer=None):
        for position, (event, place) in enumerate(
            _elements(events, _EVENT_NAMES, where, report)
        ):
            phase = _phase(event, place, report)
            bare = not _has(event, "phase")
            self.count += not bare
            if phase == "INIT" and self.init is None:
                self.init = event
            elif phase == "END":
                self.end = event
            elif rows and (bare or phase == "HANDOFF_START"):
                self.rows.append(_handoff_row(event, place, report, position, outer))
        return self


def _spec_row(spec, where, report):
    inner = _read(spec, "spec", where, report)
    if inner is not _MISSING and inner is not None:
        spec, where = inner, (where, "spec")
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


def _permission_rows(source, where, report):
    registry = source
    for method in ("export_permissions", "get_all_specs"):
        if _declares(type(registry), method):
            ok, specs = _attempt(lambda: getattr(registry, method)())
            source = specs if ok else None
            if ok:
                break
            report(where, f"{method}() raised {_type_name(specs)}")
    elements = _elements(source, _SPEC_NAMES, where, report)
    return [_spec_row(spec, place, report) for spec, place in elements]


def _config_row(source, where, report, tool_count=None):
    if _declares(type(source), "export_config"):
        ok, config = _attempt(lambda: source.export_config())
        if not ok:
            report(where, f"export_config() raised {_type_name(config)}")
        source = config if ok else {}
    names = [field.name for field in _CONFIG_FIELDS]
    if source is None or source is _MISSING:
        source = {}
    elif not _is_mapping(source) and not _has_any(source, names):
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

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        name = os.path.basename(self.path)
        try:
            with open(self.path, "rb") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield _parsed_line(line, f"{name}:{number}")
        except FileNotFoundError:
            return
        except OSError as error:
            yield Issue(name, f"cannot be read: {error.strerror or error}")


def _parsed_line(line, place):
    ok, value = _attempt(json.loads, line.decode("utf-8-sig", "replace"))
    if ok and isinstance(value, dict):
        return value
    if ok:
        return Issue(place, f"expected an object, got {_shown(value)}; skipped")
    what = "is not JSON" if line.endswith(b"\n") else "is cut off"
    return Issue(place, f"the line {what} ({_first_line(value)}); skipped")


def _first_line(error):
    return str(error).partition("\n")[0] or type(error).__name__


def _silent(where, message):
    """Tell nobody: for what is only looked for."""


def _meta(source, *names):
    """What stands at the end of a path of names, or None; nothing is told."""
    for name in names:
        if source is None:
            return None
        source = _read(source, name, None, _silent)
        source = None if source is _MISSING else source
    return source


def _meta_config(run_meta, task_meta, model_id=None):
    """The configuration that a run's own account of itself holds."""
    return {
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
    path = os.fspath(path)
    if os.path.isdir(path):
        if not any(os.path.exists(os.path.join(path, name)) for name in _RUN_FILES):
            raise SnowlCompatError(f"expected one of {', '.join(_RUN_FILES)}", path)
        return _folder_run(path)
    value = _parse(_file_bytes(path), path, strict=False)
    if isinstance(value, list):
        return {"records": value}
    if isinstance(value, dict):
        return value
    raise SnowlCompatError(f"expected an object or a list, got {_shown(value)}", path)


def _file_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SnowlCompatError(f"cannot be read: {error.strerror or error}", path)


def _parse(text, path="", strict=True):
    """The value of a JSON text; ``strict`` refuses NaN and its like."""

    def refuse(token):
        raise ValueError(f"{token} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse if strict else None)
    except RecursionError:
        raise SnowlCompatError("expected JSON, got too many levels", path) from None
    except ValueError as error:
        raise SnowlCompatError(f"expected JSON: {_first_line(error)}", path) from None


def _folder_run(path):
    manifest, issues = {}, []
    name = os.path.join(path, "manifest.json")
    if os.path.exists(name):
        try:
            manifest = _parse(_file_bytes(name), strict=False)
        except SnowlCompatError as error:
            issues.append(Issue("manifest.json", error.message))
        if not isinstance(manifest, dict):
            issues.append(Issue("manifest.json", "expected an object"))
            manifest = {}
    summary = _meta(manifest, "summary")
    run_meta, task_meta = _meta(summary, "run_meta"), _meta(summary, "task_meta")
    config = _meta_config(run_meta, task_meta, manifest.get("model_id"))
    return SimpleNamespace(
        records=_Lines(os.path.join(path, "steps.jsonl")),
        events=_Lines(os.path.join(path, "events.jsonl")),
        engine_config=manifest.get("engine_config") or config,
        tool_permissions=manifest.get("tool_permissions") or _meta(run_meta, "tools"),
        run_id=manifest.get("run_id") or os.path.basename(os.path.abspath(path)),
        stop_reason=_meta(summary, "stop_reason"),
        final_result=_meta(summary, "final_result"),
        runtime_seconds=_meta(summary, "task_result", "metrics", "elapsed_seconds"),
        total_tokens=_meta(summary, "token_usage"),
        tool_calls_by_name=_meta(summary, "tool_calls_by_name"),
        success_rate=_meta(summary, "success_rate"),
        manifest_step_count=_meta(manifest, "step_count"),
        manifest_event_count=_meta(manifest, "event_count"),
        issues=issues,
    )


# ---------------------------------------------------------------------------
# The payload
# ---------------------------------------------------------------------------

_RUN_NAMES = ("records", "events", "step_count", "critic_traces", "handoff_traces")


def _as_run(source):
    """The object or mapping with a run's attributes that a source stands for."""
    if isinstance(source, str) or _declares(type(source), "__fspath__"):
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


def _filled(value):
    """The value if it holds anything, else None; an iterator keeps its first."""
    if value is None or value is _MISSING:
        return None
    if _is_mapping(value) or not _is_iterable(value):
        return value
    ok, iterator = _attempt(iter, value)
    if not ok:
        return value
    ok, first = _attempt(next, iterator, _MISSING)
    if first is _MISSING:
        return None
    return chain([first], iterator) if ok and iterator is value else value


def _scan_events(run, events, report):
    """Handoff rows from the first of ``events=``, the run's traces, its events."""
    scan = _Scan()
    own, traces = _filled(events), None
    if own is None:
        traces = _filled(_read(run, "handoff_traces", None, report))
        own = _filled(_read(run, "events", None, report))
    scan.read(traces, (None, "handoff_traces"), report)
    scan.read(own, (None, "events"), report, rows=traces is None)
    scan.chosen = traces is not None or own is not None
    return scan


def _scan_records(run, scan, report):
    """Critic rows and the number of records; handoffs too if no events said."""
    steps = 0

    def seen(record, place, position):
        nonlocal steps
        bare = not _has(record, "critic_outputs") and _has_any(record, _CRITIC_NAMES)
        steps += not bare
        if not scan.chosen:
            inner = _read(record, "phase_events", place, report)

            def outer():
                return _step_id(record, place, report, position)

            scan.read(inner, (place, "phase_events"), report, outer=outer)

    records = _read(run, "records", None, report)
    rows = list(_critic_rows(records, (None, "records"), report, seen))
    if not rows:
        traces = _read(run, "critic_traces", None, report)
        rows = list(_critic_rows(traces, (None, "critic_traces"), report))
    return rows, steps


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
        if said is not None and said != counted:
            message = f"expected {counted}, the number of lines, got {_shown(said)}"
            report((None, f"manifest.{name}"), message)


def _permission_source(run, engine, registry, init):
    """Where specs come from, by precedence; None when nothing says any."""
    if registry is not None:
        return registry
    for source in (run, engine, _meta(engine, "agent")):
        for name in ("tool_permissions", "tool_registry"):
            found = _meta(source, name)
            if found is not None:
                return found
    return _meta(init, "payload", "run_meta", "tools")


def _config_source(run, engine, init):
    if engine is not None:
        return engine
    found = _meta(run, "engine_config")
    if found is not None:
        return found
    body = _meta(init, "payload")
    return _meta_config(_meta(body, "run_meta"), _meta(body, "task_meta"))


def _run_row(run, scan, config, report):
    """What the run says of itself; nothing in it is guessed."""
    init, end = _meta(scan.init, "payload"), _meta(scan.end, "payload")
    places = (run, _meta(run, "task_result"), _meta(run, "state"), end, init)
    values = {}
    for field in _RUN_FIELDS:
        found = (_meta(place, field.name) for place in places)
        values[field.name] = next((v for v in found if v is not None), None)
    values["agent_name"] = config["agent_name"] or None
    known = {
        "partial": scan.end is None if scan.count else None,
        "issues": [issue._asdict() for issue in report.issues],
    }
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
    report = _Report([] if issues is None else issues, strict)
    first = len(report.issues)
    run = _as_run(source)
    given = (engine, tool_registry, events, engine_config, tool_permissions)
    if not any(value is not None for value in given) and _is_payload(run):
        return _payload_again(run, extended)
    for found in _meta(run, "issues") or ():
        report((None, found.path), found.message)
    scan = _scan_events(run, events, report)
    critics, steps = _scan_records(run, scan, report)
    # A folder's or payload's own configuration is all that it says.
    init = scan.init if _meta(run, "engine_config") is None else None
    registry = tool_registry if tool_permissions is None else tool_permissions
    tools = _permission_source(run, engine, registry, init)
    specs = _permission_rows(tools, (None, "tool_permissions"), report)
    if engine_config is None:
        engine_config = _config_source(run, engine, init)
    tool_count = None if tools is None else len(specs)
    config = _config_row(engine_config, (None, "engine_config"), report, tool_count)
    payload = {
        "engine_config": config,
        "tool_permissions": specs,
        "critic_traces": critics,
        "handoff_traces": scan.rows,
        "step_count": _step_count(run, steps, report),
    }
    counts = (("step_count", steps), ("event_count", scan.count))
    _check_counts(run, counts, report)
    if extended:
        report = _Report(report.issues[first:], strict)
        payload["schema_version"] = SCHEMA_VERSION
        payload["run"] = _run_row(run, scan, config, report)
    return payload


def _is_payload(run):
    """Whether it is a valid payload, which reproduces itself."""
    return isinstance(run, dict) and run.keys() >= {*_PAYLOAD_KEYS} and not (
        validate_payload(run)
    )


def _payload_again(payload, extended):
    keys = [*_PAYLOAD_KEYS, *(("schema_version", "run") if extended else ())]
    again = _detached({key: payload[key] for key in keys if key in payload})
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
    report = _Report(issues, strict)
    return _permission_rows(source, (None, "tool_permissions"), report)


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
    return _scan_records(records, scan, report)[0]


def handoff_traces(events, *, strict=False, issues=None):
    """Return one row of 5 fields for each HANDOFF_START among runtime events.

    Takes events or handoff traces (objects or mappings), or a whole run.
    Options as in ``build_payload``.
    """
    report = _Report(issues, strict)
    if not _has_any(events, _RUN_NAMES):
        return _Scan().read(events, (None, "events"), report).rows
    scan = _scan_events(events, None, report)
    _scan_records(events, scan, _Report())
    return scan.rows


# ---------------------------------------------------------------------------
# JSON text, and back
# ---------------------------------------------------------------------------


def _detached(payload):
    """A strict copy of anything; fields of a payload have their own limits."""
    walk, level = _Walk(_Report()), 1
    if isinstance(payload, dict) and payload.keys() >= {*_PAYLOAD_KEYS}:
        walk.left, level = sys.maxsize // 2, -2
    return walk.convert(payload, None, level)


def dumps(payload, *, indent=None):
    """Return strict JSON text of a payload, or of any other value.

    What JSON cannot hold is converted as by ``to_json_value``; text stays
    readable (no ``\\u`` escapes) and always encodes as UTF-8. ``indent`` is the
    number of spaces of each level, None for one line.
    """
    value = _detached(payload)
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
    """Return ``dumps(build_payload(source, …), indent=indent)`` in one go."""
    payload = build_payload(
        source,
        engine=engine,
        tool_registry=tool_registry,
        events=events,
        engine_config=engine_config,
        tool_permissions=tool_permissions,
        extended=extended,
        strict=strict,
        issues=issues,
    )
    return dumps(payload, indent=indent)


def load_payload(source):
    """Return the payload that a JSON text, UTF-8 bytes or a mapping holds.

    The parser is strict (no NaN) and the result is validated: raises
    ``SnowlCompatError`` with the place of the first problem.
    """
    if isinstance(source, (str, bytes, bytearray)):
        payload = _parse(source)
    else:
        payload = source
    for issue in validate_payload(payload):
        raise SnowlCompatError(issue.message, issue.path)
    return _detached(payload)


def validate_payload(payload):
    """Return an ``Issue`` for each place where a payload breaks the schema.

    The empty list means valid. Beyond ``PAYLOAD_SCHEMA`` every value must be one
    that strict JSON can hold.
    """
    report = _Report([])
    _validate(payload, PAYLOAD_SCHEMA, None, report)
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


def _is_type(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _JSON_TYPES[name][0])


def _validate(value, schema, where, report):
    """Interpret the part of JSON Schema that ``PAYLOAD_SCHEMA`` uses."""
    wanted = schema.get("type", list(_JSON_TYPES))
    names = [wanted] if isinstance(wanted, str) else wanted
    if not any(_is_type(value, name) for name in names):
        expected = " or ".join(_JSON_TYPES[name][1] for name in names)
        report(where, f"expected {expected}, got {_shown(value)}")
    elif isinstance(value, dict):
        _validate_object(value, schema, where, report)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _validate(item, schema.get("items", {}), (where, index), report)
    elif isinstance(value, str):
        _clean_text(value, where, report)
    elif isinstance(value, float) and not math.isfinite(value):
        report(where, f"expected a finite number, got {value!r}")
    elif "minimum" in schema and value < schema["minimum"]:
        report(where, f"expected at least {schema['minimum']}, got {value!r}")


def _validate_object(value, schema, where, report):
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            report((where, name), "missing")
    for name, item in value.items():
        if not isinstance(name, str):
            report(where, f"expected text keys, got {_shown(name)}")
            continue
        _clean_text(name, where, report)
        inner = known.get(name, schema.get("additionalProperties", {}))
        if inner is False:
            report((where, name), "unexpected key")
        else:
            _validate(item, inner, (where, name), report)


# ---------------------------------------------------------------------------
# The page for people: show
# ---------------------------------------------------------------------------

_WIDTH = 80


def _cell(value):
    """A value on one line: control characters escaped, numbers short."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else _compact(value)
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character):
    return json.dumps(character)[1:-1]


def _columns(text):
    """Columns on a terminal, where most CJK characters and emoji take two."""
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text
    )


def _fit(text, width):
    """The text cut to a number of columns, and filled up to it."""
    if _columns(text) > width:
        while _columns(text) > width - 3:
            text = text[:-1]
        text += "..."
    return text + " " * (width - _columns(text))


def _table(head, rows, most):
    """Lines of a table: as wide as its cells, at most as wide as ``most`` says."""
    rows = [head, *([_cell(value) for value in row] for row in rows)]
    widths = [
        min(limit, max(_columns(row[i]) for row in rows)) for i, limit in enumerate(most)
    ]
    return [
        ("  " + "  ".join(_fit(cell, w) for cell, w in zip(row, widths))).rstrip()
        for row in rows
    ]


def _pair_lines(pairs):
    """Lines of labels and values; a long value goes on under its beginning."""
    import textwrap

    lines = []
    for label, value in pairs:
        text = _fit(_cell(value), 400).rstrip()
        parts = textwrap.wrap(text, _WIDTH - 18) or ["-"]
        for part in parts:
            lines.append(f"  {label:<16}{_fit(part, _WIDTH - 18).rstrip()}")
            label = ""
    return lines


def _page(payload):
    """The lines of one payload for people: ASCII apart from its own words."""
    config, run = payload["engine_config"], payload.get("run", {})
    attached = [name[4:] for name, value in config.items() if value is True]
    partial = {True: "no END event: the run was cut off", False: "yes"}
    parts = [("Run", _pair_lines((
        ("run", run.get("run_id")),
        ("agent", config["agent_name"]),
        ("model", config["model_id"]),
        ("steps", payload["step_count"]),
        ("stop reason", run.get("stop_reason")),
        ("complete", partial.get(run.get("partial"))),
        ("result", run.get("final_result")),
    )))]
    budget = [f"{config['budget_' + name]} {word}" for name, word in _BUDGET_WORDS
              if config["budget_" + name] is not None]
    parts.append(("Configuration", _pair_lines((
        ("budget", ", ".join(budget)),
        ("protocol", config["protocol_id"]),
        ("critics", ", ".join(config["critic_names"])),
        ("stop criteria", ", ".join(config["stop_criteria_names"])),
        ("attached", ", ".join(attached).replace("_", " ")),
        ("depth", config["delegate_depth"]),
    ))))
    parts.append(_tool_part(payload["tool_permissions"]))
    critics = [(row["step_id"], row["critic_name"], row["action"], row["score"],
                row["reason"]) for row in payload["critic_traces"]]
    head = ["step", "critic", "action", "score", "reason"]
    parts.append(("Critics", _table(head, critics, (6, 20, 8, 8, 28))))
    handoffs = [(row["step_id"], row["from_agent"], row["to_agent"],
                 row["context_strategy"], row["messages_passed"])
                for row in payload["handoff_traces"]]
    head = ["step", "from", "to", "context", "messages"]
    parts.append(("Handoffs", _table(head, handoffs, (6, 22, 22, 10, 8))))
    issues = [f"{issue['path']}: {issue['message']}" for issue in run.get("issues", ())]
    parts.append(("Issues", [line for text in issues for line in _pair_lines([("", text)])]))
    lines = []
    for title, body in parts:
        empty = len(body) < 2 and title in ("Tools", "Critics", "Handoffs")
        lines += [title, *(["  none"] if empty or not body else body), ""]
    return lines[:-1]


_BUDGET_WORDS = (
    ("max_steps", "steps"),
    ("max_runtime_seconds", "seconds"),
    ("max_tokens", "tokens"),
)


def _tool_part(specs):
    rows = []
    for spec in specs:
        allowed = [name for name, value in spec["permissions"].items() if value]
        marks = [word for name, word in (("needs_approval", "approval"),
                 ("read_only", "read only"), ("concurrency_safe", "parallel"))
                 if spec[name]]
        rows.append((spec["name"], ", ".join(allowed), ", ".join(marks)))
    return "Tools", _table(["tool", "may use", "marks"], rows, (24, 28, 22))


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


def _is_run(path):
    return any(os.path.isfile(os.path.join(path, name)) for name in _RUN_FILES)


def _print_problem(place, message):
    text = f"{place}: {message}" if place else message
    stream, line = sys.stderr, "".join(c if c.isprintable() else _escaped(c) for c in text)
    if stream is not None:
        data = f"{line}\n".encode("utf-8", "backslashreplace")
        getattr(stream, "buffer", None) and stream.flush()
        _write(stream, data)


def _write(stream, data):
    """Write UTF-8 bytes to a text stream, whatever its encoding is."""
    binary = getattr(stream, "buffer", None)
    if binary is None:
        stream.write(data.decode("utf-8"))
    else:
        binary.write(data)
        binary.flush()


class _Output:
    """Standard output, or a file that is whole or not there at all."""

    def __init__(self, path):
        self.path = path
        self.file = self.name = None

    def __enter__(self):
        if self.path is not None:
            self.path = os.path.realpath(self.path)
            # A device or pipe cannot be renamed over.
            plain = os.path.isfile(self.path) or not os.path.exists(self.path)
            self.name = f"{self.path}.{os.getpid()}.tmp" if plain else self.path
            self.file = open(self.name, "wb")
        return self

    def write(self, text):
        data = f"{text}\n".encode("utf-8")
        if self.file is None:
            _write(sys.stdout, data)
        else:
            self.file.write(data)

    def __exit__(self, kind, error, traceback):
        if self.file is None:
            return
        self.file.close()
        if self.name != self.path:
            if kind is None:
                os.replace(self.name, self.path)
            else:
                os.unlink(self.name)


def _export_command(args):
    failed, total = False, len(args.runs)
    terminal = sys.stderr is not None and sys.stderr.isatty()
    with _Output(args.output) as output:
        for number, path in enumerate(args.runs, 1):
            if args.many and terminal:
                sys.stderr.write(f"\r{number}/{total}\x1b[K" + "\n" * (number == total))
            label = path if args.many else ""
            try:
                text = _exported(path, args, label)
            except SnowlCompatError as error:
                failed = True
                _print_problem(label, str(error))
                if not args.many:
                    raise SystemExit(1) from None
            else:
                output.write(text)
    return int(failed)


def _exported(path, args, label):
    issues = []
    source = read_run(path) if path != "-" else _parse_run(sys.stdin)
    text = export_json(
        source,
        extended=args.extended or args.many,
        strict=args.strict,
        issues=issues,
        indent=args.indent,
    )
    for issue in issues:
        _print_problem(label, f"{issue.path}: {issue.message}")
    return text


def _parse_run(stream):
    data = stream.buffer.read() if hasattr(stream, "buffer") else stream.read()
    value = _parse(data, "-", strict=False)
    return {"records": value} if isinstance(value, list) else value


def _check_command(args):
    failed = False
    for path in args.files:
        for place, problem in _checked(path):
            failed = True
            _write(sys.stdout, f"{place}: {problem}\n".encode("utf-8", "backslashreplace"))
    return int(failed)


def _checked(path):
    """Yield (place, problem) of a payload file, or of JSON Lines of payloads."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else _file_bytes(path)
        lines = [line for line in data.split(b"\n") if line.strip()]
        whole = len(lines) < 2 or not _attempt(_parse, lines[0])[0]
        texts = [(path, data)] if whole else [
            (f"{path}:{number}", line)
            for number, line in enumerate(data.split(b"\n"), 1) if line.strip()
        ]
    except SnowlCompatError as error:
        yield path, error.message
        return
    for place, text in texts:
        try:
            for issue in validate_payload(_parse(text)):
                yield place, f"{issue.path or 'payload'}: {issue.message}"
        except SnowlCompatError as error:
            yield place, error.message


def _show_command(args):
    source = read_run(args.run) if args.run != "-" else _parse_run(sys.stdin)
    payload = build_payload(source, extended=True)
    _write(sys.stdout, "".join(f"{line}\n" for line in _page(payload)).encode("utf-8"))
    return 0


def _schema_command(args):
    _write(sys.stdout, f"{json.dumps(PAYLOAD_SCHEMA, indent=2)}\n".encode())
    return 0


def main(argv=None):
    """Run the command line and return its exit code."""
    commands = {
        "export": _export_command,
        "check": _check_command,
        "show": _show_command,
        "schema": _schema_command,
    }
    args = _arguments(argv)
    try:
        return commands[args.command](args)
    except SnowlCompatError as error:
        _print_problem("", str(error))
        return 1
    except BrokenPipeError:
        # Whoever read us has enough; keep the interpreter's last flush quiet.
        sys.stdout = None
        return 1
    except OSError as error:
        _print_problem(str(error.filename or ""), error.strerror or str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
