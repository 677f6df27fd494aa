"""What a model is sent: a conversation that the strictest servers accept.

One system prompt, then user and assistant in turns, each call with its result directly behind
it and an id of its own, and nothing said between a result and the model's next turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ..core import Action, HistoryMessage
from ..core._foreign import joined
from ..core._json import dumps

Write = Callable[[list[tuple[str, str]]], str] | None
_NO_RESULT = "(no result: the call did not finish)"
_NO_ANSWER = "(no answer)"
_NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_-]")


def recorded_calls(actions: Iterable[Action]) -> list[dict[str, Any]]:
    """Actions as the ``tool_calls`` of a message, in the chat API's form."""
    calls = []
    for action in actions:
        name = _NOT_IN_NAMES.sub("_", action.name.replace(".", "__dot__"))[:64]
        function = {"name": name, "arguments": dumps(action.args)}
        calls.append({"id": action.action_id, "type": "function", "function": function})
    return calls


def calls_of(message: HistoryMessage) -> list[tuple[str, str]]:
    """Name and JSON arguments of the calls of a message whose text does not say them."""
    if not message.metadata.get("native"):
        return []
    calls = (call["function"] for call in message.metadata.get("tool_calls") or ())
    return [(c["name"].replace("__dot__", "."), c["arguments"]) for c in calls]


def conversation(
    messages: Iterable[HistoryMessage], *, task: str, system: str, view: str, write: Write
) -> list[dict[str, Any]]:
    """The messages of a request, from the recorded ones and ``view``, which is to be answered.

    ``write`` turns calls into text; None sends calls and results in the chat API's own form.
    """
    turns, systems, begun = _Turns(), [system], None
    exchanges: list[tuple[HistoryMessage, list[Any]]] = [(HistoryMessage("user", ""), [])]
    for message in messages:
        if message.role == "tool":
            exchanges[-1][1].append(message)
        else:
            exchanges.append((message, []))
    for said, results in exchanges:
        text, calls = joined(said.content), said.metadata.get("tool_calls") or []
        if said.role == "assistant":
            own = said.metadata.get("task")
            if own is not None and (own != begun or turns.last == "assistant"):
                begun = own
                turns.user(f"Task: {own}")
            elif turns.last not in ("user", "tool"):
                turns.user(f"Task: {begun or task}")
            results = _completed(calls, results)
            if calls and write is None and said.metadata.get("native"):
                turns.calls(text, calls, results)
                results = results[len(calls) :]
            else:
                written = write(calls_of(said)) if write else ""
                text = "\n".join(part for part in (text, written) if part.strip())
                turns.sent.append({"role": "assistant", "content": text or _NO_ANSWER})
        elif said.role in ("system", "developer"):
            systems.append(text)
        else:
            turns.user(text)
        for result in results:
            name = result.metadata.get("name", "tool")
            turns.user(f"Result of {name}: {joined(result.content)}")
    turns.see(view, f"Task: {begun or task}", begun in (None, task))
    told = "\n\n".join(filter(None, systems))
    return ([{"role": "system", "content": told}] if told else []) + turns.sent


class _Turns:
    """The turns after the system prompt, as they are put together."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self._ids: set[str] = set()

    @property
    def last(self) -> str | None:
        return self.sent[-1]["role"] if self.sent else None

    def user(self, text: str) -> None:
        if self.last == "user" and text.strip():
            self.sent[-1]["content"] += f"\n\n{text}"
        elif text.strip():
            if self.last == "tool":
                self.sent.append({"role": "assistant", "content": _NO_ANSWER})
            self.sent.append({"role": "user", "content": text})

    def see(self, view: str, opening: str, same_run: bool) -> None:
        """Add what the model is to answer, so that its turn comes next."""
        view = view if view.strip() else opening
        if self.last != "tool" or not same_run:
            self.user(view)
            return
        # Behind results nothing may stand: the user's last message tells it.
        asked = next(turn for turn in reversed(self.sent) if turn["role"] == "user")
        if asked["content"] == opening:
            asked["content"] = view
        elif view not in asked["content"]:
            asked["content"] += f"\n\n{view}"

    def calls(self, text: str, calls: list[dict[str, Any]], results: list[HistoryMessage]) -> None:
        """Add calls in the chat API's form, each result behind them."""
        made: list[dict[str, Any]] = []
        content = text if text.strip() else None
        self.sent.append({"role": "assistant", "content": content, "tool_calls": made})
        for call, result in zip(calls, results):
            own, number = call["id"], len(self._ids)
            # No call before may have it; the strictest servers want 9 such signs.
            while not own or own in self._ids:
                own, number = f"call{number:05d}", number + 1
            self._ids.add(own)
            made.append({**call, "id": own})
            told = {"role": "tool", "content": joined(result.content), "tool_call_id": own}
            self.sent.append(told)


def _completed(calls: list[dict[str, Any]], results: list[HistoryMessage]) -> list[HistoryMessage]:
    """One result for each call in order, then the results of no call here."""
    left = {r.metadata.get("tool_call_id", place): r for place, r in enumerate(results)}
    found = []
    for call in calls:
        name = call["function"]["name"].replace("__dot__", ".")
        missing = HistoryMessage("tool", _NO_RESULT, metadata={"name": name})
        found.append(left.pop(call["id"], missing))
    return [*found, *left.values()]
