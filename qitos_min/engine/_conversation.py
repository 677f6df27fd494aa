"""What a model is sent: a conversation that servers accept, made of what was recorded.

The strictest templates want one system prompt, then a user, then user and assistant in
turns, each call with its result directly behind it, and each call's id once. A user
message after a result is refused by some, so nothing is said between a result and the
model's next turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ..core._json import dumps
from ..core.action import Action
from ..core.history import HistoryMessage

_NO_RESULT = "(no result: the call did not finish)"
_NO_ANSWER = "(no answer)"
_NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_-]")


def recorded_calls(actions: Iterable[Action]) -> list[dict[str, Any]]:
    """Actions as the ``tool_calls`` of a message, in the chat API's form."""
    named = [(a.action_id, a.name.replace(".", "__dot__"), dumps(a.args)) for a in actions]
    return [
        {"id": own, "type": "function", "function": {"name": name, "arguments": args}}
        for own, name, args in named
    ]


def calls_of(message: HistoryMessage) -> list[tuple[str, str]]:
    """Name and JSON arguments of the calls of a message whose text does not say them."""
    if not message.metadata.get("native"):
        return []
    calls = (call["function"] for call in message.metadata.get("tool_calls") or ())
    return [(c["name"].replace("__dot__", "."), c["arguments"]) for c in calls]


def conversation(
    messages: Iterable[HistoryMessage],
    *,
    task: str,
    system: str,
    view: str,
    write: Callable[[list[tuple[str, str]]], str] | None,
) -> list[dict[str, Any]]:
    """The messages of a request, from the recorded ones and what is to be seen now.

    ``view`` is what the model is to answer. ``write`` turns calls into text; None
    means that calls and results are sent in the chat API's own form.
    """
    turns = _Turns(task, write)
    exchanges: list[tuple[HistoryMessage | None, list[HistoryMessage]]] = [(None, [])]
    for message in messages:
        if message.role == "tool":
            exchanges[-1][1].append(message)
        else:
            exchanges.append((message, []))
    for said, results in exchanges:
        turns.add(said, results)
    turns.see(view)
    systems = "\n\n".join(filter(None, [system, *turns.system]))
    head = [{"role": "system", "content": systems}] if systems else []
    return [*head, *turns.sent]


class _Turns:
    """The turns after the system prompt, as they are put together."""

    def __init__(self, task: str, write: Callable[..., str] | None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.system: list[str] = []
        self._task = task
        self._begun: str | None = None
        """The task of the run whose messages are being added, where one is named."""
        self._write = write
        self._ids: set[str] = set()

    def add(self, message: HistoryMessage | None, results: list[HistoryMessage]) -> None:
        """Add a message, if there is one, with the results of its calls."""
        if message is not None and message.role == "assistant":
            task = message.metadata.get("task")
            if task is not None and (task != self._begun or self._last == "assistant"):
                self._begun = task
                self._user(f"Task: {task}")
            results = self._assistant(message, results)
        elif message is not None and message.role in ("system", "developer"):
            self.system.append(_text(message.content))
        elif message is not None:
            self._user(_text(message.content))
        for result in results:
            name = result.metadata.get("name", "tool")
            self._user(f"Result of {name}: {_text(result.content)}")

    def see(self, view: str) -> None:
        """Add what the model is to answer, so that its turn comes next."""
        view = view if view.strip() else self._opening
        if self._last != "tool" or self._begun not in (None, self._task):
            self._user(view)
            return
        # Behind results nothing may stand: the user's last message tells it.
        asked = next(turn for turn in reversed(self.sent) if turn["role"] == "user")
        if asked["content"] == self._opening:
            asked["content"] = view
        elif view not in asked["content"]:
            asked["content"] += f"\n\n{view}"

    @property
    def _last(self) -> str | None:
        return self.sent[-1]["role"] if self.sent else None

    @property
    def _opening(self) -> str:
        return f"Task: {self._begun or self._task}"

    def _user(self, text: str) -> None:
        if not text.strip():
            return
        if self._last == "user":
            self.sent[-1]["content"] += f"\n\n{text}"
            return
        if self._last == "tool":
            self.sent.append({"role": "assistant", "content": _NO_ANSWER})
        self.sent.append({"role": "user", "content": text})

    def _assistant(
        self, message: HistoryMessage, results: list[HistoryMessage]
    ) -> list[HistoryMessage]:
        """Add what a model said; return the results that are still to be told."""
        if self._last not in ("user", "tool"):
            self._user(self._opening)
        text = _text(message.content)
        calls = message.metadata.get("tool_calls") or []
        found = _completed(calls, results)
        if self._write is not None or not message.metadata.get("native"):
            written = self._write(calls_of(message)) if self._write else ""
            parts = [part for part in (text, written) if part.strip()]
            self.sent.append({"role": "assistant", "content": "\n".join(parts) or _NO_ANSWER})
            return found
        if not calls:
            self.sent.append({"role": "assistant", "content": text.strip() and text or _NO_ANSWER})
            return found
        said = {"role": "assistant", "content": text if text.strip() else None, "tool_calls": []}
        self.sent.append(said)
        for result, call in zip(found, calls):
            call_id = self._fresh(call["id"])
            name = _NOT_IN_NAMES.sub("_", call["function"]["name"])[:64]
            function = {**call["function"], "name": name}
            said["tool_calls"].append({**call, "id": call_id, "function": function})
            told = {"role": "tool", "content": _text(result.content), "tool_call_id": call_id}
            self.sent.append(told)
        return found[len(calls) :]

    def _fresh(self, call_id: str) -> str:
        """An id that no call before has; the strictest servers want 9 such signs."""
        number = len(self._ids)
        while not call_id or call_id in self._ids:
            call_id, number = f"call{number:05d}", number + 1
        self._ids.add(call_id)
        return call_id


def _completed(calls: list[dict[str, Any]], results: list[HistoryMessage]) -> list[HistoryMessage]:
    """One result for each call in order, then the results of no call here."""
    found: list[HistoryMessage] = []
    left = list(results)
    for call in calls:
        match = next((r for r in left if r.metadata.get("tool_call_id") == call["id"]), None)
        if match is not None:
            left.remove(match)
        name = call["function"]["name"].replace("__dot__", ".")
        found.append(match or HistoryMessage("tool", _NO_RESULT, metadata={"name": name}))
    return [*found, *left]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else dumps(content)
