"""From a Python signature to a JSON schema, and from JSON arguments to its values."""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ._foreign import outcome
from ._introspect import documented, parameters, parse_docstring, resolved_hints
from ._json_schema import check_value, detach_json, same_json

__all__ = [
    "CallSignature",
    "convert_value",
    "function_schema",
    "parse_docstring",
    "type_to_json_schema",
]

Schema = dict[str, Any]

_EMPTY = inspect.Parameter.empty
_JSON_TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    list: "array",
    dict: "object",
}
_SETS = {set, frozenset, abc.Set, abc.MutableSet}
_LISTS = {list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection}
_MAPPINGS = {dict, abc.Mapping, abc.MutableMapping}
_NUMBERS = (int, float)
_UNIONS = (typing.Union, types.UnionType)
# Parameters that the runtime fills, and whether what it passes is a mapping.
_INJECTED = {
    "runtime_context": True,
    "ops": True,
    "env": False,
    "file_ops": False,
    "process_ops": False,
}


def type_to_json_schema(annotation: Any, _outer: tuple[Any, ...] = ()) -> Schema:
    """The JSON schema of the values of a type; ``{}`` when the type says nothing.

    A type that holds itself is described once.
    """
    if _is_alias(annotation):
        if annotation in _outer:
            return {}
        _outer = (*_outer, annotation)
    annotation, note = _unwrap(annotation)
    schema = _bare_schema(annotation, _outer)
    return {**schema, "description": note} if note else schema


def _bare_schema(annotation: Any, outer: tuple[Any, ...]) -> Schema:
    origin = typing.get_origin(annotation) or annotation
    args = typing.get_args(annotation)
    if origin is None:
        return {"type": "null"}
    if origin in _UNIONS:
        return _union_schema([type_to_json_schema(arg, outer) for arg in args])
    if origin is typing.Literal:
        return _enum_schema([_enum_value(arg) for arg in args])
    if not isinstance(origin, type):
        return {}
    if origin is tuple:
        return _tuple_schema(args, outer)
    if origin in _SETS or origin in _LISTS:
        unique = {"uniqueItems": True} if origin in _SETS else {}
        return {"type": "array", **_part("items", args[:1], outer), **unique}
    if origin in _MAPPINGS:
        return {"type": "object", **_part("additionalProperties", args[1:], outer)}
    if origin in _JSON_TYPES:
        return {"type": _JSON_TYPES[origin]}
    if issubclass(origin, Enum):
        return _enum_schema([_enum_value(member) for member in origin])
    return _record_schema(origin, outer) if _is_record(origin) else {}


def _unwrap(annotation: Any) -> tuple[Any, str]:
    """Take off what carries no type of its own; the text of ``Annotated`` is kept."""
    note = ""
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            texts = [text for text in annotation.__metadata__ if isinstance(text, str)]
            note = note or (texts[0] if texts else "")
            annotation = annotation.__origin__
        elif _field_mark(annotation) in ("Required", "NotRequired", "ReadOnly"):
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif _is_alias(annotation):
            value, error = outcome(getattr, annotation, "__value__")
            annotation = Any if error else value
        else:
            return annotation, note


def _is_alias(annotation: Any) -> bool:
    # ``type X = ...`` of Python 3.12.
    return type(annotation).__name__ == "TypeAliasType"


def _field_mark(annotation: Any) -> str:
    # By name, because typing gained these marks after 3.10 and a backport has them.
    return str(typing.get_origin(annotation)).rpartition(".")[2]


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (
        typing.is_typeddict(kind) or dataclasses.is_dataclass(kind)
    )


def _part(key: str, args: tuple[Any, ...], outer: tuple[Any, ...]) -> Schema:
    schema = type_to_json_schema(args[0], outer) if args else {}
    return {key: schema} if schema else {}


def _tuple_schema(args: tuple[Any, ...], outer: tuple[Any, ...]) -> Schema:
    if not args:
        return {"type": "array"}
    if args[-1] is Ellipsis:
        return {"type": "array", **_part("items", args[:1], outer)}
    items = [type_to_json_schema(arg, outer) for arg in args]
    size = {"minItems": len(items), "maxItems": len(items)}
    return {"type": "array", "prefixItems": items, **size}


def _union_schema(members: list[Schema]) -> Schema:
    if {} in members:
        return {}
    distinct = [m for i, m in enumerate(members) if m not in members[:i]]
    if len(distinct) == 1:
        return distinct[0]
    others = [member for member in distinct if member != {"type": "null"}]
    if len(others) == 1 and "enum" in others[0]:
        return {**others[0], **_enum_schema([*others[0]["enum"], None])}
    if len(others) == 1 and "description" in others[0]:
        # The text of ``Optional[Annotated[X, "text"]]`` is about the whole.
        note = {"description": others[0].pop("description")}
        return {"anyOf": distinct, **note}
    return {"anyOf": distinct}


def _enum_schema(values: list[Any]) -> Schema:
    if not values:
        return {}
    kinds = list(dict.fromkeys(_JSON_TYPES[type(value)] for value in values))
    distinct: list[Any] = []
    for value in values:
        if not any(same_json(value, other) for other in distinct):
            distinct.append(value)
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": distinct}


def _enum_value(member: Any) -> Any:
    """What stands for a member in JSON: its value, or its name if JSON has no such."""
    value = member.value if isinstance(member, Enum) else member
    if value is None or isinstance(value, (str, int, float)):
        with suppress(ValueError):  # NaN, say
            return detach_json(value)
    return getattr(member, "name", str(member))


def _record_schema(record: type, outer: tuple[Any, ...]) -> Schema:
    if record in outer:
        return {"type": "object"}
    properties, required = {}, []
    for name, (annotation, default) in _record_fields(record).items():
        schema = type_to_json_schema(annotation, (*outer, record))
        properties[name] = _with_default(schema, default)
        if default is _EMPTY:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _record_fields(record: type) -> dict[str, tuple[Any, Any]]:
    """Type and default of each field; ``...`` is a default that cannot be shown."""
    hints = resolved_hints(record)
    if typing.is_typeddict(record):
        return {
            name: (hint, _EMPTY if _is_required(record, name, hint) else ...)
            for name, hint in hints.items()
        }
    found = {}
    for item in dataclasses.fields(record):
        default = item.default
        if default is dataclasses.MISSING:
            made = item.default_factory is not dataclasses.MISSING
            default = ... if made else _EMPTY
        if item.init:
            found[item.name] = (hints.get(item.name, Any), default)
    return found


def _is_required(record: Any, name: str, hint: Any) -> bool:
    # The class cannot see a mark that is still text when it is made, the hint can.
    mark = _field_mark(hint)
    if mark in ("Required", "NotRequired"):
        return mark == "Required"
    return name in record.__required_keys__


def _with_default(schema: Schema, default: Any) -> Schema:
    """Add a default that JSON can hold; any other is left out, never replaced."""
    if default is ... or default is _EMPTY:
        return schema
    if default is None and check_value(None, schema) is not None:
        note = schema.pop("description", None)
        schema = _union_schema([schema, {"type": "null"}])
        schema = {**schema, "description": note} if note else schema
    try:
        value = _enum_value(default) if isinstance(default, Enum) else default
        return {**schema, "default": detach_json(value)}
    except ValueError:
        return schema


@dataclass(frozen=True)
class CallSignature:
    """What a function takes, split by who fills it."""

    schema: dict[str, Any]
    """JSON schema of the arguments that a caller fills."""
    injected: tuple[str, ...]
    """Parameters that the runtime fills."""
    unset: frozenset[str]
    """Those of the injected parameters that have no default."""
    positional: dict[str, Any]
    """Default by name of the parameters that cannot be passed by name, in order."""
    converted: dict[str, Any]
    """Type by name of the arguments whose Python value is not the JSON value."""

    @classmethod
    def of(cls, func: Callable[..., Any]) -> CallSignature:
        """Read the signature of any callable; ``ValueError`` if it has none."""
        hints = resolved_hints(documented(func))
        _, notes = parse_docstring(documented(func).__doc__)
        properties: dict[str, Any] = {}
        required, injected, positional, converted = [], {}, {}, {}
        further: dict[str, Any] = {}
        for item in parameters(func):
            hint = hints.get(item.name, Any)
            if item.kind is item.VAR_POSITIONAL:
                continue
            if item.kind is item.VAR_KEYWORD:
                further = {"additionalProperties": type_to_json_schema(hint) or True}
                continue
            if item.kind is item.POSITIONAL_ONLY:
                positional[item.name] = item.default
            if _is_injected(item, hint):
                injected[item.name] = item.default
                continue
            schema = _with_default(type_to_json_schema(hint), item.default)
            note = {"description": notes[item.name]} if item.name in notes else {}
            properties[item.name] = {**note, **schema}
            if item.default is _EMPTY:
                required.append(item.name)
            if _is_converted(hint):
                converted[item.name] = hint
        parts = {"type": "object", "properties": properties, "required": required}
        unset = frozenset(n for n, default in injected.items() if default is _EMPTY)
        schema = {**parts, **further}
        return cls(schema, tuple(injected), unset, positional, converted)

    def bind(
        self, args: Mapping[str, Any], injected: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The positional and named values of one call; ``injected`` beats ``args``."""
        values = dict(args)
        for name, annotation in self.converted.items():
            if name in values:
                values[name] = convert_value(values[name], annotation)
        values.update(injected)
        first = [
            values.pop(name, default)
            for name, default in self.positional.items()
            if name in values or default is not _EMPTY
        ]
        return first, values


def function_schema(func: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of the arguments that a caller of ``func`` fills.

    Raises ``ValueError`` for a callable without a readable signature.
    """
    return CallSignature.of(func).schema


def _is_injected(item: inspect.Parameter, annotation: Any) -> bool:
    """Whether the runtime fills a parameter: by name, unless its type is plain data."""
    if item.name not in _INJECTED:
        return False
    mapping, default = _INJECTED[item.name], item.default
    empty = isinstance(default, dict) and not default
    if not (default is _EMPTY or default is None or empty):
        return False
    schema = type_to_json_schema(annotation)
    members = [m for m in schema.get("anyOf", [schema]) if m != {"type": "null"}]
    if mapping and len(members) == 1 and members[0].get("type") == "object":
        return "properties" not in members[0]
    return not schema


def _is_converted(annotation: Any, outer: tuple[Any, ...] = ()) -> bool:
    """Whether some value of a type arrives as another value in JSON."""
    if _is_alias(annotation):
        if annotation in outer:
            return False
        outer = (*outer, annotation)
    annotation, _ = _unwrap(annotation)
    origin = typing.get_origin(annotation) or annotation
    if isinstance(origin, type) and (issubclass(origin, Enum) or _is_record(origin)):
        return True
    if origin is tuple or (isinstance(origin, type) and origin in _SETS):
        return True
    parts = () if origin is typing.Literal else typing.get_args(annotation)
    if origin in _MAPPINGS and parts and parts[0] in _NUMBERS:
        return True
    return any(_is_converted(part, outer) for part in parts)


def convert_value(value: Any, annotation: Any) -> Any:
    """The Python value that a JSON value stands for under a type.

    Enum members, dataclasses, tuples and sets are made, at any depth; a value that
    does not fit the type is returned as it is.
    """
    annotation, _ = _unwrap(annotation)
    origin = typing.get_origin(annotation) or annotation
    args = typing.get_args(annotation)
    if origin in _UNIONS:
        for member in args:
            if check_value(value, type_to_json_schema(member)) is None:
                return convert_value(value, member)
        return value
    if not isinstance(origin, type):
        return value
    if issubclass(origin, Enum):
        found = [m for m in origin if same_json(_enum_value(m), value)]
        return found[0] if found else value
    if isinstance(value, list):
        return _converted_list(value, origin, args)
    if isinstance(value, dict):
        return _converted_dict(value, origin, args)
    return value


def _converted_list(value: list[Any], origin: type, args: tuple[Any, ...]) -> Any:
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            args = args[:1] * len(value)
        kinds = args or (Any,) * len(value)
        return tuple(convert_value(item, kind) for item, kind in zip(value, kinds))
    items = [convert_value(item, args[0]) for item in value] if args else value
    if origin in _SETS:
        return frozenset(items) if origin is frozenset else set(items)
    return items


def _converted_dict(value: dict[str, Any], origin: type, args: tuple[Any, ...]) -> Any:
    if _is_record(origin):
        kinds = {name: kind for name, (kind, _) in _record_fields(origin).items()}
        made = {n: convert_value(v, kinds.get(n, Any)) for n, v in value.items()}
        return origin(**made)
    if len(args) == 2 and origin in _MAPPINGS:
        return {
            _converted_key(name, args[0]): convert_value(item, args[1])
            for name, item in value.items()
        }
    return value


def _converted_key(name: str, kind: Any) -> Any:
    if kind not in _NUMBERS:
        return convert_value(name, kind)
    try:
        return kind(name)
    except ValueError:
        return name
