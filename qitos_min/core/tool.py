"""What a tool is: its traits, its record for export, and the two kinds of tools."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any

from ._contract import Record, check_count, check_seconds, check_timeout
from .tool_schema import CallSignature, docstring_parts, documented

_MARK = "__qitos_tool_meta__"


@dataclass
class ToolPermission:
    """What a tool may touch."""

    filesystem_read: bool = False
    filesystem_write: bool = False
    network: bool = False
    command: bool = False  # Whether it starts other programs.


@dataclass
class RetryPolicy:
    """When and how often a failed call is tried again; raises ``ValueError``, ``TypeError``."""

    max_attempts: int = 3  # The first call included.
    backoff_factor: float = 0.5  # Seconds before the second attempt; each further wait doubles.
    max_backoff: float = 60.0  # Longest wait in seconds.
    jitter: bool = True  # Whether each wait is a random part, at least half, of the computed one.
    retryable_exceptions: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        check_count(self.max_attempts, "max_attempts", least=1)
        check_seconds(self.backoff_factor, "backoff_factor")
        check_seconds(self.max_backoff, "max_backoff")
        kinds = self.retryable_exceptions
        kinds = tuple(kinds) if isinstance(kinds, (list, set, tuple)) else (kinds,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError(f"retryable_exceptions must contain exception types, got {kind!r}")
        self.retryable_exceptions = kinds

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the failed attempt of this number, counted from 1."""
        wait = min(self.backoff_factor * 2.0 ** min(attempt - 1, 60), self.max_backoff)
        return wait * random.uniform(0.5, 1.0) if self.jitter else wait


@dataclass
class ToolMeta:
    """What the author of a tool declares; everything is optional."""

    name: str | None = None
    description: str | None = None
    _: KW_ONLY
    prompt: str | None = None  # The description for models, if another than for people.
    timeout_s: float | None = None  # Seconds for one attempt; None means no limit.
    max_retries: int = 0  # Further attempts after an exception, at once; ``retry_policy`` beats it.
    retry_policy: RetryPolicy | None = None
    on_failure: Callable[[BaseException], Any] | None = None  # Its answer becomes the result.
    permissions: ToolPermission = field(default_factory=ToolPermission)
    required_ops: list[str] = field(default_factory=list)  # Of the environment, as ``file``.
    input_schema: dict[str, Any] | None = None  # JSON schema in place of the signature's.
    output_schema: dict[str, Any] | None = None
    read_only: bool = False  # Promises that a call changes nothing, so it may be repeated.
    concurrency_safe: bool | None = None  # Whether calls may overlap; None: nobody said so.
    needs_approval: bool | Callable[[dict[str, Any]], bool] = False  # From the arguments.
    requires_user_interaction: bool = False
    supports_background: bool = False
    result_max_chars: int | None = None  # For a model; an artifact store takes what is longer.
    produces_artifact: bool = False
    rule_scope_builder: Callable[[dict[str, Any]], str | None] | None = None  # Of rules.

    def __post_init__(self) -> None:
        check_timeout(self.timeout_s)
        check_count(self.max_retries, "max_retries", least=0)
        check_count(self.result_max_chars, "result_max_chars", least=0, optional=True)
        own = {"permissions": self.permissions, "retry_policy": self.retry_policy or RetryPolicy()}
        for (name, part), kind in zip(own.items(), (ToolPermission, RetryPolicy)):
            if not isinstance(part, kind):
                raise TypeError(f"{name} must be a {kind.__name__}, got {type(part).__qualname__}")
        if isinstance(self.required_ops, str):
            raise TypeError(f"required_ops must be a list of texts, got {self.required_ops!r}")


@dataclass
class ToolSpec(ToolMeta):
    """A tool as the runtime sees it."""

    name: str = ""
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)  # JSON schemas by name.
    required: list[str] = field(default_factory=list)

    @classmethod
    def from_attributes(cls, source: Any, doc: str | None) -> ToolSpec:
        """The spec that attributes spell out; ``doc`` stands in for a description."""
        found = {item.name: getattr(source, item.name, None) for item in fields(cls)}
        found["description"] = found["description"] or docstring_parts(doc)[0]
        return cls(**{name: value for name, value in found.items() if value is not None})

    def arguments_schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments; one without properties allows any."""
        if self.input_schema is not None:
            return self.input_schema
        parts = {"properties": self.parameters, "required": self.required}
        return {"type": "object", **{name: part for name, part in parts.items() if part}}


@dataclass(frozen=True)
class ToolPermissionSpec(Record):
    """What a tool may do, as it is exported; holds copies only."""

    name: str
    description: str = ""
    permissions: ToolPermission = field(default_factory=ToolPermission)
    needs_approval: bool = False  # True also when the tool decides case by case.
    read_only: bool = False
    concurrency_safe: bool = False
    required_ops: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        flags = ("needs_approval", "read_only", "concurrency_safe")
        own = {"permissions": replace(self.permissions), "required_ops": list(self.required_ops)}
        vars(self).update({name: bool(getattr(self, name)) for name in flags}, **own)

    @classmethod
    def from_spec(cls, spec: ToolSpec) -> ToolPermissionSpec:
        """The record of a tool, detached from it."""
        return cls(**{name: getattr(spec, name) for name in cls.__dataclass_fields__})

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> ToolPermissionSpec:
        """Read what :meth:`to_dict` wrote; absent keys keep their defaults."""
        known = {n: v for n, v in payload.items() if n in cls.__dataclass_fields__}
        known["permissions"] = ToolPermission(**known.get("permissions") or {})
        return cls(**known)


class BaseTool:
    """Base of class tools: write ``execute`` (or ``run``); class attributes are its spec."""

    name: str = ""
    description: str = ""
    # As signals and windows ask for; then it is waited for, unless it has a limit.
    in_calling_thread: bool = False

    def __init__(self, spec: ToolSpec | None = None) -> None:
        if spec is not None:  # Not by assignment: a subclass may have read-only properties.
            vars(self).update(spec=spec, name=spec.name, description=spec.description)

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """What the runtime knows about this tool."""
        own = self.run.__doc__ if self._signature else None
        spec = ToolSpec.from_attributes(self, type(self).__doc__ or own)
        if self._signature and not spec.parameters and spec.input_schema is None:
            spec.input_schema = self._signature.schema
        return spec

    @functools.cached_property
    def _signature(self) -> CallSignature | None:
        """How the arguments of ``run`` are read, if that is what this tool defines."""
        if type(self).run is BaseTool.run:
            return None
        own = any(getattr(self, n, None) is not None for n in ("parameters", "input_schema"))
        return CallSignature.of(self.run, tool=self.name, described=own)

    def validate_input(
        self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None
    ) -> str | None:
        """A text that says what is wrong with the arguments, or None."""
        return None

    def execute(self, args: dict[str, Any], runtime_context: dict[str, Any] | None = None) -> Any:
        """Do the work; what is returned becomes the output of a ``ToolResult``."""
        if self._signature is None:
            raise NotImplementedError(f"{type(self).__qualname__} must define execute()")
        first, named = self._signature.bind(args, runtime_context or {})
        return (self.func if isinstance(self, FunctionTool) else self.run)(*first, **named)

    def run(self, **args: Any) -> Any:
        """The older way to call a tool: the arguments by name."""
        return self.execute(args)


def build_tool_spec(func: Callable[..., Any], meta: ToolMeta | None = None) -> ToolSpec:
    """The spec of a function as a tool: what ``meta`` leaves open comes from its signature."""
    return FunctionTool(func, meta).spec


class FunctionTool(BaseTool):
    """A tool made from a function or bound method, which stays callable."""

    def __init__(self, func: Callable[..., Any], meta: ToolMeta | None = None) -> None:
        self.func = func
        self.meta = meta or get_tool_meta(func) or ToolMeta()
        given = {item.name: getattr(self.meta, item.name) for item in fields(ToolMeta)}
        own, name, text = self.meta.input_schema, self.meta.name, self.meta.description
        self._signature = CallSignature.of(func, tool=name or "", described=own is not None)
        given["input_schema"] = schema = own or self._signature.schema
        given["name"] = getattr(func, "__name__", "") if name is None else name
        text = docstring_parts(documented(func).__doc__)[0] if text is None else text
        properties, required = schema.get("properties", {}), schema.get("required", [])
        given |= {"description": text, "parameters": properties, "required": required}
        super().__init__(ToolSpec(**given))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> FunctionTool:
        if instance is None or not hasattr(self.func, "__get__"):
            return self
        return FunctionTool(self.func.__get__(instance, owner), self.meta)


def get_tool_meta(func: Any) -> ToolMeta | None:
    """What :func:`tool` noted on a function or method; None without it."""
    return getattr(func, _MARK, None)


def tool(name: Any = None, description: str | None = None, **meta: Any) -> Any:
    """Mark a function as a tool, with the fields of :class:`ToolMeta`; it stays as it is."""
    if callable(name):
        return tool()(name)
    noted = ToolMeta(name=name, description=description, **meta)

    def mark(func: Callable[..., Any]) -> Callable[..., Any]:
        setattr(func, _MARK, noted)
        return func

    return mark


def function_tool(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    max_retries: int = 0,
    retry_policy: RetryPolicy | None = None,
    on_failure: Callable[..., Any] | None = None,
    read_only: bool = False,
    concurrency_safe: bool | None = None,
    needs_approval: bool | Callable[..., bool] = False,
    **extra_meta: Any,
) -> Any:
    """Make a tool of a function; with or without parentheses, also in a class body.

    Other keywords become attributes of the tool's ``meta``.
    """
    given = {**locals(), **extra_meta}
    known = {name: given[name] for name in ToolMeta.__dataclass_fields__ if name in given}
    meta = ToolMeta(**known)
    vars(meta).update({name: extra_meta[name] for name in extra_meta if name not in known})
    return functools.partial(FunctionTool, meta=meta) if func is None else FunctionTool(func, meta)


class _ToolObject(BaseTool):
    """A foreign tool object, or a tool under another name or with other traits."""

    def __init__(self, target: Any, spec: ToolSpec) -> None:
        super().__init__(spec)
        self.target = target
        self.in_calling_thread = getattr(target, "in_calling_thread", False)
        self._signature = target._signature if isinstance(target, BaseTool) else None
        own = {name: getattr(target, name, None) for name in ("execute", "validate_input")}
        vars(self).update({name: method for name, method in own.items() if callable(method)})


def as_tool(item: Any, name: str | None = None, meta: ToolMeta | None = None) -> BaseTool:
    """The tool that an item is or becomes; ``TypeError`` if it is none."""
    if inspect.ismethod(item) and isinstance(item.__func__, FunctionTool):
        # What a class method is, made of a tool, from Python 3.13 on.
        item = item.__func__.__get__(item.__self__, type(item.__self__))
    elif is_function(item) and not isinstance(item, BaseTool):
        item = FunctionTool(item, _merged(get_tool_meta(item) or ToolMeta(), meta, name))
        name = meta = None
    if isinstance(item, BaseTool):
        func: Any = getattr(item, "func", None)
        names = func.__code__.co_varnames if inspect.isfunction(func) else ()
        if names[:1] == ("self",) and func.__code__.co_argcount:
            what = "is a method without its object, register it from an instance"
            raise TypeError(f"{func.__qualname__} {what}")
        alone = name is None and meta is None
        return item if alone else _ToolObject(item, _merged(item.spec, meta, name))
    if isinstance(item, type):
        raise TypeError(f"class {item.__qualname__} is no tool, register an instance")
    run = getattr(item, "run", item)
    if not callable(getattr(item, "execute", run)):
        wanted = "a function, a method or an object with execute() or run()"
        raise TypeError(f"expected {wanted}, got {type(item).__qualname__}")
    own = getattr(item, "spec", None)
    spec = own if isinstance(own, ToolSpec) else ToolSpec.from_attributes(own or item, item.__doc__)
    if not hasattr(item, "execute"):  # Its signature gives the arguments.
        own = spec.arguments_schema() if spec.parameters or spec.input_schema else None
        item = FunctionTool(run, ToolMeta(name=spec.name, input_schema=own))
        text = spec.description or item.spec.description
        spec = replace(spec, input_schema=item.spec.input_schema, description=text)
    return _ToolObject(item, _merged(spec, meta, name))


def is_function(item: Any) -> bool:
    """Whether an item is a function, a method, a part of one or a tool made of one."""
    return inspect.isroutine(item) or isinstance(item, (FunctionTool, functools.partial))


def _merged(base: Any, meta: ToolMeta | None, name: str | None) -> Any:
    """A copy of a meta or spec with the fields of ``meta`` that are set, and a name."""
    unset = vars(ToolMeta())
    given = {n: v for n, v in vars(meta or ToolMeta()).items() if n in unset and v != unset[n]}
    if name is not None or base.name:
        given["name"] = base.name if name is None else name
    return replace(base, **given)


def shown(item: Any) -> str:
    """How an item is named in messages: by what it was made from."""
    while isinstance(item, (_ToolObject, FunctionTool)):
        item = item.target if isinstance(item, _ToolObject) else item.func
    if inspect.isroutine(item):
        return f"the function {item.__module__}.{item.__qualname__}"
    return f"an object of {type(item).__module__}.{type(item).__qualname__}"
