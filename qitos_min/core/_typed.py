"""From any annotation to its JSON schema, and from JSON to the values it promises."""

from __future__ import annotations

import collections
import collections.abc as abc
import functools
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import InitVar, fields, is_dataclass
from decimal import Decimal
from enum import Enum, Flag
from pathlib import PurePath
from typing import Any

from ._foreign import described
from ._json import to_json_value
from ._json_schema import ANY, NULL, SCALARS, Form, Misfit, check_value
from ._json_schema import choice, misfit, record_schema, scalar, union_schema

_EMPTY = inspect.Parameter.empty
# As what a list, set or mapping in a signature is made.
_LISTS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection), list),
    **dict.fromkeys((set, abc.Set, abc.MutableSet), set),
    **{kind: kind for kind in (frozenset, tuple, collections.deque)},
}
_MAPPINGS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((dict, abc.Mapping, abc.MutableMapping), dict),
    **{kind: kind for kind in (collections.OrderedDict, collections.Counter)},
    collections.defaultdict: functools.partial(collections.defaultdict, None),
}
# What a state holds in a field for whole numbers is kept, whole or not.
_SAVED_INT = scalar((int, float), "a number", {"type": "integer"}, float)
_FUNCTION = Form(None, ANY.read)
_FUNCTIONS = (abc.Callable, types.FunctionType, types.MethodType, functools.partial)
_PLAIN = {**SCALARS, None: NULL, Any: ANY, object: ANY, **dict.fromkeys(_FUNCTIONS, _FUNCTION)}


def form_of(annotation: Any, *, saved: bool = False) -> Form:
    """The form of any annotation; what a program ``saved`` comes back as it was left."""
    return _Forms(saved).of(annotation)


def restored(kind: type, values: dict[str, Any], plain: Collection[str]) -> Any:
    """A dataclass's object of saved JSON values, the ``plain`` ones as they are; or ``Misfit``."""
    return _Forms(saved=True).record(kind, plain).read(values)


def like(value: Any, sample: Any) -> Any:
    """A value in the container of a sample: its maximal length, its default."""
    if isinstance(sample, collections.deque) and isinstance(value, (list, collections.deque)):
        return collections.deque(value, sample.maxlen)
    if isinstance(sample, collections.defaultdict) and isinstance(value, dict):
        return collections.defaultdict(sample.default_factory, value)
    return type(sample)(value) if type(value) is dict and type(sample) in _MAPPINGS else value


class _Forms:
    """Makes the forms of one annotation; a type that holds itself is told once."""

    def __init__(self, saved: bool) -> None:
        self.saved = saved
        self.outer: dict[Any, list[Form]] = {}

    def of(self, annotation: Any) -> Form:
        kind, args = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
        if not isinstance(kind, abc.Hashable):  # ``x: [int]`` is legal, and says nothing.
            return ANY
        if kind is typing.Annotated:
            form, note = self.of(args[0]), next((a for a in args[1:] if isinstance(a, str)), "")
            if not note or form.schema is None:
                return form
            return Form({**form.schema, "description": note}, form.read)
        if field_mark(annotation) in ("Required", "NotRequired", "Final"):
            return self.of(args[0])
        if isinstance(annotation, InitVar):
            return self.of(annotation.type)
        if hasattr(annotation, "__supertype__"):  # NewType
            return self.of(annotation.__supertype__)
        if kind in (typing.Union, types.UnionType):
            return self.union(args)
        if kind is typing.Literal:
            return choice(args)
        if kind is int and self.saved:
            return _SAVED_INT
        if kind in _PLAIN or not isinstance(kind, type):
            return _PLAIN.get(kind, ANY)
        if kind in _LISTS:
            return self.array(kind, args)
        return self.mapping(kind, args) if kind in _MAPPINGS else self.of_class(kind)

    def of_class(self, kind: type) -> Form:
        name = f"a {kind.__name__}"
        if issubclass(kind, Enum) and not issubclass(kind, Flag):
            return choice(tuple(kind))
        for base, given in ((Flag, int), (PurePath, str), (str, str), (int, int), (float, float)):
            if issubclass(kind, base):
                return scalar(kind, name, SCALARS[given].schema or {}, kind, given)
        schema, validate = (getattr(kind, n, None) for n in ("model_json_schema", "model_validate"))
        if schema and validate:
            given = schema()
            return Form(_inlined(given, given.get("$defs", {})), _reader(kind, validate))
        if is_dataclass(kind) or typing.is_typeddict(kind) or _is_named_tuple(kind):
            return self.record(kind)
        if not self.saved or getattr(kind, "_is_protocol", False):
            return ANY
        return Form({}, _reader(kind, getattr(kind, "from_dict", None)))

    def union(self, args: tuple[Any, ...]) -> Form:
        members = [form for form in map(self.of, args) if form is not _FUNCTION]
        others = [form for form in members if form is not NULL]
        if not others:
            return _FUNCTION
        read = others[0].read if len(others) == 1 else functools.partial(_best_fit, others)
        return Form(union_schema([m.schema for m in members if m.schema is not None]), read)

    def array(self, kind: Any, args: tuple[Any, ...]) -> Form:
        make, sized = _LISTS[kind], kind is tuple and args[-1:] not in ((), (...,))
        parts = [self.of(arg) for arg in args if arg not in ((), ...)]
        parts = parts if sized else parts[:1] or [ANY]

        def read(value: Any) -> Any:
            if value is None or (make is not list and isinstance(value, make)):
                return value
            if not isinstance(value, (list, tuple)) or (sized and len(value) != len(parts)):
                raise misfit(f"an array of {len(parts)} items" if sized else "an array", value)
            rows = zip(parts if sized else parts * len(value), value)
            return _built(kind, make, [_part(f, v, f"[{i}]") for i, (f, v) in enumerate(rows)])

        schemas = [part.schema or {} for part in parts]
        if not sized:
            return Form({"type": "array", "items": schemas[0]}, read)
        # ``items`` is for readers that do not know ``prefixItems``.
        items = {"prefixItems": schemas, "items": union_schema(schemas)}
        size = {"minItems": len(parts), "maxItems": len(parts)}
        return Form({"type": "array", **items, **size}, read)

    def mapping(self, kind: Any, args: tuple[Any, ...]) -> Form:
        key = self.of(args[0]) if args else ANY
        item = self.of(int if kind is collections.Counter else args[1] if args else Any)

        def read(value: Any) -> Any:
            if value is None:
                return value
            if not isinstance(value, abc.Mapping):
                raise misfit("an object", value)
            rows = {_key(key, k): _part(item, v, f"[{k!r}]") for k, v in value.items()}
            return _MAPPINGS[kind](rows)

        further = {"additionalProperties": item.schema} if item.schema else {}
        return Form({"type": "object", **further}, read)

    def record(self, kind: type, plain: Collection[str] = ()) -> Form:
        if kind in self.outer:
            found = self.outer[kind]
            return Form({"type": "object"}, lambda value: found[0].read(value))
        self.outer[kind] = made = []
        members, hints, typed_dict = _members(kind), resolved_hints(kind), typing.is_typeddict(kind)
        stored = [field.name for field in fields(kind)] if is_dataclass(kind) else []
        names = dict.fromkeys((*members, *stored))
        forms = {n: ANY if n in plain else self.of(hints.get(n, Any)) for n in names}
        del self.outer[kind]
        stored = stored if self.saved else []

        def read(value: Any) -> Any:
            if value is None or (not typed_dict and isinstance(value, kind)):
                return value
            if _is_named_tuple(kind) and isinstance(value, list):
                value = dict(zip(members, value))
            if not isinstance(value, dict):
                raise misfit(f"an object of the fields of {kind.__name__}", value)
            parts = {n: _part(forms.get(n, ANY), v, f".{n}") for n, v in value.items()}
            lacking = [n for n in members if members[n] is _EMPTY and n not in parts]
            # The values that a constructor only uses are gone when the object was saved.
            bare = bool(stored and lacking) and not any(n in stored for n in lacking)
            if lacking and not bare and not (self.saved and typed_dict):  # It may be filled later.
                raise Misfit(f"lacks the field {lacking[0]!r}")
            if typed_dict:
                return parts
            if unknown := [n for n in parts if n not in members and n not in stored]:
                raise Misfit(f"has the field {unknown[0]!r}, which {kind.__name__} does not know")
            given = {n: part for n, part in parts.items() if n in members}
            record = object.__new__(kind) if bare else _built(kind, lambda: kind(**given))
            for name in stored:
                if name in parts:  # As it was left, whatever the constructor makes of it.
                    object.__setattr__(record, name, parts[name])
            return record

        made.append(Form(record_schema(forms, members, {}), read))
        return made[0]


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _members(kind: type) -> dict[str, Any]:
    """Default of each part that makes a record; ``...`` is one that cannot be shown."""
    if not typing.is_typeddict(kind):
        return defaults_of(parameters(kind))
    # The class cannot see a mark that is still text when it is made, the hint can.
    known, hints = {"Required": True, "NotRequired": False}, resolved_hints(kind).items()
    needed = {n: known.get(field_mark(hint), n in kind.__required_keys__) for n, hint in hints}
    return {name: _EMPTY if is_needed else ... for name, is_needed in needed.items()}


def _built(kind: Any, make: Callable[..., Any], *args: Any) -> Any:
    try:
        return make(*args)
    except Exception as error:
        raise Misfit(f"cannot become a {kind.__name__}: {described(error)}") from None


def _reader(kind: type, make: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value is None or isinstance(value, kind):
            return value
        if make is None:
            raise misfit(f"a {kind.__name__}", value)
        return _built(kind, make, value)

    return read


def _inlined(schema: Any, names: dict[str, Any], outer: tuple[str, ...] = ()) -> Any:
    """The schema that a class gives of itself, without references."""
    if isinstance(schema, list):
        return [_inlined(item, names, outer) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {key: part for key, part in schema.items() if key not in ("$ref", "$defs")}
    further = {key: _inlined(part, names, outer) for key, part in shown.items()}
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        if name in outer or name not in names:
            return {"type": "object", **further}
        return {**_inlined(names[name], names, (*outer, name)), **further}
    return {"items": {}, **further} if further.get("type") == "array" else further


def _part(form: Form, value: Any, place: str) -> Any:
    try:
        return form.read(value)
    except Misfit as fault:
        raise Misfit(str(fault), place + fault.place) from None


def _key(form: Form, key: Any) -> Any:
    """A key of a mapping: its text, or what the text is as JSON."""
    try:
        return form.read(key)
    except Misfit as fault:
        with suppress(ValueError, TypeError):
            return form.read(json.loads(key))
        raise Misfit(f"has the key {key!r}, which {fault}") from None


def _best_fit(members: list[Form], value: Any) -> Any:
    """The value under the member of a union that it fits best, of equal ones the first."""
    found, faults = [], []
    for member in members:
        try:
            made = member.read(value)
        except Misfit as fault:
            faults.append(str(fault))
            continue
        shown = to_json_value(made)
        same = made is value or (type(shown) is type(value) and shown == value)
        # Any text is a text, but hardly any is a date by chance.
        sure = same and member.schema not in (SCALARS[str].schema, SCALARS[Decimal].schema)
        found.append((sure, check_value(value, member.schema) is None, made))
    if not found:
        raise Misfit("; ".join(dict.fromkeys(faults)))
    return max(found, key=lambda row: row[:2])[2]


def parameters(func: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters but a method's own ``self``; ``ValueError`` if they cannot be read."""
    found = list(inspect.signature(func).parameters.values())
    return found[1:] if found and found[0].name == "self" else found


def defaults_of(found: list[inspect.Parameter]) -> dict[str, Any]:
    """The default of each parameter but ``*args`` and ``**kwargs``."""
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {item.name: item.default for item in found if item.kind not in stars}


def resolved_hints(owner: Any) -> dict[str, Any]:
    """The annotations of a function or class; what cannot be resolved is ``Any``."""
    if (found := _evaluated(owner)) is not None:
        return found
    hints: dict[str, Any] = {}
    for scope in reversed(getattr(owner, "__mro__", (owner,))):
        module = sys.modules.get(getattr(scope, "__module__", None) or "")
        names = getattr(inspect.unwrap(scope), "__globals__", None) or vars(module or typing)
        for name, annotation in inspect.get_annotations(scope).items():
            if isinstance(annotation, str):  # Python 3.10 cannot evaluate it.
                annotation = re.sub(r"^(\w+\.)?InitVar\[(.*)\]$", r"\2", annotation)
            alone = type("alone", (), {"__annotations__": {name: annotation}})
            hints[name] = (_evaluated(alone, names) or {}).get(name, Any)
    return hints


def _evaluated(owner: Any, names: dict[str, Any] | None = None) -> dict[str, Any] | None:
    try:
        return typing.get_type_hints(owner, names, include_extras=True)
    except Exception:  # The text of an annotation is foreign code.
        return None


def field_mark(annotation: Any) -> str:
    """The name of what marks a field, such as ``NotRequired``."""
    # By name, because typing gained these marks after 3.10 and a backport has them.
    return str(typing.get_origin(annotation)).rpartition(".")[2]
