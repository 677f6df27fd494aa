"""Calls as models write them in text: ``key=1, other="text"`` or one dict.

Nothing is evaluated: JSON is decoded, Python's notation is parsed and read node by
node, and only what JSON can hold is taken.
"""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from ._replies import ParseError

__all__ = ["DECODER", "arguments_at", "object_at", "unreadable"]

# Line breaks inside JSON texts are let through: models write code that way.
DECODER = json.JSONDecoder(strict=False)

_TEXT = (
    r"(?P<raw>[rR]?)"
    r'(?P<text>"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
    r"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
    r'|"[^"\\]*(?:\\.[^"\\]*)*"'
    r"|'[^'\\]*(?:\\.[^'\\]*)*')"
)
_QUOTED = re.compile(_TEXT, re.DOTALL)
_TOKEN = re.compile(_TEXT + r"""|[()\[\]{}"']""", re.DOTALL)
# An octal escape beyond one byte is as wrong in Python as an unknown letter.
_ESCAPE = re.compile(r"\\([4-7][0-7]{2}|.)", re.DOTALL)
_ESCAPED = frozenset("\\'\"abfnrtvxuUN01234567")
_WORDS = MappingProxyType({"true": True, "false": False, "null": None})


def arguments_at(text: str, start: int, name: str) -> tuple[dict[str, Any], int]:
    """The arguments in the round bracket at ``start``, and where it ends.

    Raises ParseError, like ``object_at``.
    """
    end = _closing(text, start, name)
    return _call_args(name, text[start + 1 : end - 1]), end


def object_at(text: str, start: int, name: str) -> tuple[dict[str, Any], int]:
    """The JSON or Python dict that opens at ``start``, and where it ends."""
    if not text.startswith("{", start):
        raise unreadable(name, "no object follows it")
    try:
        args, end = DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        end = _closing(text, start, name)
        args = _call_args(name, text[start:end])
    return args, end


def _closing(text: str, start: int, name: str) -> int:
    """Where the bracket at ``start`` is closed; brackets in quotes do not count."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        mark = token[0]
        if mark in ("'", '"'):
            raise unreadable(name, "a quote is not closed")
        depth += (mark in "([{") - (mark in ")]}")
        if depth == 0:
            return token.end()
    raise unreadable(name, "a bracket is not closed")


def _call_args(name: str, source: str) -> dict[str, Any]:
    """The arguments written in ``source``: ``key=value, ...`` or one dict."""
    source = source.strip()
    args: dict[str, Any] = {}
    if source.startswith("{"):
        with suppress(ValueError, RecursionError):
            args = DECODER.decode(source)
            return args
    try:
        return _python_args(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise unreadable(name, getattr(error, "msg", None) or str(error)) from None


def _python_args(source: str) -> dict[str, Any]:
    """The arguments of a call in Python's notation, read without running it."""
    tidy = _QUOTED.sub(_as_python, source)
    call = ast.parse(f"_({tidy}\n)", mode="eval").body
    if not isinstance(call, ast.Call):
        raise ValueError("it is not one call")
    args: dict[str, Any] = {}
    if len(call.args) == 1 and isinstance(call.args[0], ast.Dict) and not call.keywords:
        args = _literal(call.args[0])
        return args
    args = {word.arg: _literal(word.value) for word in call.keywords if word.arg}
    if call.args or len(args) < len(call.keywords):
        raise ValueError("an argument has no name of its own")
    return args


def _as_python(quoted: re.Match[str]) -> str:
    """A quoted text as Python accepts it: line breaks and odd backslashes escaped."""
    if quoted["raw"]:
        return quoted[0]
    text = _ESCAPE.sub(lambda m: ("" if m[1] in _ESCAPED else "\\") + m[0], quoted[0])
    return text.replace("\r\n", "\n").replace("\n", "\\n")


def _literal(node: ast.expr) -> Any:
    """The JSON value that ``node`` spells; ValueError for anything else."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Name(id="true" | "false" | "null" as word):
            return _WORDS[word]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as n)):
            return -n
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(k): _literal(v) for k, v in zip(keys, values)}
    raise ValueError("a value is neither a literal nor quoted")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError("a key is not text")


def unreadable(name: str, why: str) -> ParseError:
    """The error for a call of ``name`` that cannot be read, with the right forms."""
    return ParseError(
        f"cannot read the call of {name!r}: {why}, "
        'expected tool(key=1, other="text") or tool({"key": 1})'
    )
