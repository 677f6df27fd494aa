"""Prompts with names to fill in, and the ones that most agents begin with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..engine._protocols import resolve_protocol

_Values = Mapping[str, Any] | None
_DOUBLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_EITHER = re.compile(rf"{_DOUBLE.pattern}|\{{(\w+)\}}")


def render_prompt(
    template: str, values: _Values = None, *, strict: bool = False, enable_single_brace: bool = True
) -> str:
    """``template`` with values for ``{{name}}`` and ``{name}``; ``strict``: each needs one."""
    known = values or {}

    def fill(match: re.Match[str]) -> str:
        name = match[match.lastindex or 1]
        return str(known[name]) if strict or name in known else match[0]

    return (_EITHER if enable_single_brace else _DOUBLE).sub(fill, template)


_TOOLS = "Tools:\n{{tool_schema}}"
_STEP_BY_STEP = f"""\
You work on a task step by step. Think about what is known and what is missing, and use \
a tool where it helps. Never make up a result, and call no tool that is not listed.

{_TOOLS}"""
_FORM = resolve_protocol("react_text_v1").form

REACT_SYSTEM_PROMPT = f"{_STEP_BY_STEP}\n\n{_FORM}"
JSON_DECISION_SYSTEM_PROMPT = f"{_STEP_BY_STEP}\n\n{resolve_protocol('json_decision_v1').form}"
XML_DECISION_SYSTEM_PROMPT = f"{_STEP_BY_STEP}\n\n{resolve_protocol('xml_decision_v1').form}"

PLAN_DRAFT_PROMPT = """\
Make a plan for this task: {{task}}

Write numbered lines, one step a line, each a single thing that can be checked when it \
is done. Write nothing else."""

PLAN_EXEC_SYSTEM_PROMPT = f"""\
You carry out one step of a plan. Do that step only; when it is done, say as the final \
answer what came of it.

{_TOOLS}

{_FORM}"""
