"""Takes secrets and host paths out of a tree of JSON values, and counts them."""

from __future__ import annotations

import re
from typing import Any

_SECRET, _PATH = "[REDACTED]", "[REDACTED_PATH]"
_SECRET_WORDS = set("apikey authorization cookie cookies credential credentials".split())
_SECRET_WORDS |= set("passphrase passwd password passwords privatekey secret secrets token".split())
# ``max_tokens`` and its like are counts, so the plural alone is no secret.
_SECRET_PAIRS = {(word, end) for word in ("access", "api", "private") for end in ("key", "keys")}
_SECRET_PAIRS |= {(word, "tokens") for word in ("access", "auth", "bearer", "refresh")}
# A name that ends so tells about a secret (``token_count``) instead of holding one.
_MEASURES = {"budget", "cost", "count", "counts", "ids", "index", "length", "limit", "limits"}
_MEASURES |= {"offset", "size", "type", "usage"}
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+"

# Each pattern starts where no other match of it can have begun, so that a long text
# costs no more than its length. ASCII classes: a secret may follow a CJK letter.
_PLAIN_WORD = r"(?:[A-Za-z][a-z]*|[A-Z]+)(?![\w+/=-]|\.\w)"
_BASE64 = r"[A-Za-z0-9_-]"
_SECRET_TEXTS = (  # The first group, if any, stays.
    # PEM blocks, also those that were cut off.
    r"(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)",
    # The user part of a URL.
    r"(?<=://)[^\s/?#\"'<>\[]+(?=@)",
    # HTTP credentials; what follows in prose ("bearer token", "basic usage") stays.
    r"(?i)(?<![a-z0-9_])(bearer[ \t]+)"
    r"(?!\[|(?:tokens?|auth\w*|scheme|realm|of|is|and|or|not|in)\b)[^\s\"',;<>]+",
    rf"(?<![A-Za-z0-9_])((?i:basic)[ \t]+)(?!{_PLAIN_WORD})[A-Za-z0-9+/=_.~-]{{6,}}",
    # JSON web tokens, and keys known by their first letters.
    rf"(?<![A-Za-z0-9_-])eyJ{_BASE64}+\.{_BASE64}+\.{_BASE64}*",
    rf"(?<![A-Za-z0-9])(?:sk-{_BASE64}{{6,}}|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{{12,}}"
    rf"|(?:gh[opsu]_|github_pat_|glpat-|xox[a-z]-){_BASE64}{{10,}}|(?:AIza|hf_){_BASE64}{{30,}})",
)
# A name with its value inside a text: a header, NAME=value and "name": "value".
_NAMED_TEXTS = (
    r"""(?i)(?<![a-z0-9_-])"""
    r"""((?:[a-z0-9_]{1,40}-){1,8}[a-z0-9_]{1,40}|authorization|cookie)"""
    r"""([ ]?:[ ]?)(?![ ]?\[REDACTED)([^\r\n"']+)""",
    r"""(?<![\w.-])([\w.-]{1,80})(=|["'][ ]?:[ ]?(?=["']))(?!["']?\[REDACTED)"""
    r"""("[^"]*"|'[^']*'|[^\s&;,"'()<>]+)""",
)
_NAME = r"[^\s/\\:*?\"'<>|,;()\[\]{}`&=#]+"
_HOST_PATH = (
    # POSIX, with two names at least: "/help" and "and/or" are no paths. The name of a
    # user may hold spaces.
    rf"(?<![A-Za-z0-9_/.~$%@#*)\]}}-])(?:file://)?"
    rf"/(?:Users/{_NAME}(?: {_NAME}){{0,3}}(?=/)|{_NAME})(?:/{_NAME})+/?"
    # A drive of Windows, or a share.
    rf"|(?:(?<![A-Za-z0-9])[A-Za-z]:[\\/]+|(?<![\w\\])\\{{2,4}}{_NAME}\\+)"
    rf"(?:{_NAME}(?: {_NAME}){{0,3}}\\+|{_NAME}/+)*{_NAME}"
)


def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret, by its words: ``X-API-Key``, ``apiKey``."""
    chunks = [chunk.lower() for chunk in re.findall(r"[^\W_]+", name)]
    words = [word.lower() for word in re.findall(_WORD, name)]
    if not words or words[-1] in _MEASURES:
        return False
    pairs = zip(words, words[1:])
    return not (_SECRET_WORDS.isdisjoint([*chunks, *words]) and _SECRET_PAIRS.isdisjoint(pairs))


def _is_short_secret_name(value: Any) -> bool:
    # A sentence that speaks of a password is no name.
    return isinstance(value, str) and len(value.split()) <= 2 and is_secret_name(value)


def redact(value: Any) -> tuple[Any, dict[str, int]]:
    """A copy of a JSON value without secrets and host paths, and how many of each it had.

    What stands under a secret name goes whole, of other texts only the recognised part.
    """
    removed = {"secret_values": 0, "secret_texts": 0, "host_paths": 0}

    def assigned(match: re.Match[str]) -> str:
        name, sign, value = match.groups()
        if not is_secret_name(name):
            return match[0]
        removed["secret_texts"] += 1
        quote = value[0] if value[0] in "\"'" else ""
        return f"{name}{sign}{quote}{_SECRET}{quote}"

    def safe_text(text: str) -> str:
        for pattern in _NAMED_TEXTS:
            text = re.sub(pattern, assigned, text)
        for pattern in _SECRET_TEXTS:
            text, count = re.subn(pattern, lambda found: "".join(found.groups()) + _SECRET, text)
            removed["secret_texts"] += count
        text, count = re.subn(_HOST_PATH, _PATH, text)
        removed["host_paths"] += count
        return text

    def tree(value: Any, secret: bool = False) -> Any:
        if secret:  # That there is none is no secret.
            removed["secret_values"] += value is not None
            return None if value is None else _SECRET
        if isinstance(value, str):
            return safe_text(value)
        if isinstance(value, list):
            named = len(value) == 2 and _is_short_secret_name(value[0])
            return [tree(item, named and index == 1) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        named = _is_short_secret_name(value.get("name", value.get("key")))
        safe: dict[str, Any] = {}
        for key, item in value.items():
            told = free = safe_text(key)
            number = 2
            while free in safe:
                free, number = f"{told}#{number}", number + 1
            safe[free] = tree(item, is_secret_name(key) or (named and key == "value"))
        return safe

    return tree(value), removed
