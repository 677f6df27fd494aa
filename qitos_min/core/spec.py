"""How a run or an experiment is described beside its trace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from .. import __version__
from ._contract import Record
from ._json import dumps

_Kind = TypeVar("_Kind", bound="_Spec")


class _Spec(Record):
    @classmethod
    def from_value(cls: type[_Kind], value: Any) -> _Kind:
        """The record itself, or that of a mapping, whose unknown keys go into ``metadata``."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise TypeError(f"expected a {cls.__name__} or a mapping, got {type(value).__name__}")
        known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        given = {name: item for name, item in value.items() if name in known}
        if further := {name: item for name, item in value.items() if name not in known}:
            given["metadata"] = {**given.get("metadata", {}), **further}
        return cls(**given)


@dataclass
class RunSpec(_Spec):
    """With what a run was made."""

    model_family: str | None = None
    model_name: str | None = None
    prompt_protocol: str | None = None
    parser_name: str | None = None
    toolset_name: str | None = None
    tool_manifest: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    stop_criteria: list[str] = field(default_factory=list)
    git_sha: str | None = None
    package_version: str = field(default_factory=lambda: __version__)
    trace_schema_version: str = "v1"
    benchmark_name: str | None = None
    benchmark_split: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def infer(cls, **known: Any) -> RunSpec:
        """The description with the fields that are known; None counts as not known."""
        spec = cls(**{name: value for name, value in known.items() if value is not None})
        if spec.model_name and spec.model_family is None:
            spec.model_family = spec.model_name.rpartition("/")[2].partition("-")[0].lower()
        return spec

    def fingerprint(self) -> str:
        """SHA-256 of the description: equal descriptions have equal ones."""
        return hashlib.sha256(dumps(self.to_dict()).encode("utf-8")).hexdigest()

    def is_official_run(self) -> bool:
        """Whether it names a benchmark, its split, the model and the commit."""
        return all((self.benchmark_name, self.benchmark_split, self.model_name, self.git_sha))


@dataclass
class ExperimentSpec(_Spec):
    """The experiment that a run belongs to."""

    name: str | None = None
    benchmark_name: str | None = None
    benchmark_split: str | None = None
    judge_config: dict[str, Any] = field(default_factory=dict)
    benchmark_metadata: dict[str, Any] = field(default_factory=dict)
    run_defaults: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class BenchmarkRunResult(_Spec):
    """How one task of a benchmark went."""

    task_id: str
    benchmark: str
    split: str
    prediction: Any
    success: bool
    stop_reason: str | None
    steps: int
    latency_seconds: float
    token_usage: int
    cost: float
    trace_run_dir: str | None
    run_spec_ref: str | None
    metadata: dict[str, Any] = field(default_factory=dict)
