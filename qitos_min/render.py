"""A run as it goes, for people: one line a step."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any, TextIO

from .core._json import dumps
from .core._foreign import brief, shortened
from .engine import EngineHook, RuntimeEvent, StepRecord
from .kit.planning import format_action

_THEMES = {"research": "36", "minimal": "1", "neon": "95"}
_GOOD, _BAD, _DIM = "32", "31", "2"


@dataclass(eq=False)
class ClaudeStyleHook(EngineHook):
    """Prints the task, a line for each step, and how the run ended.

    Colours are for terminals without NO_COLOR; themes are ``research``, ``minimal`` and ``neon``.
    """

    output_jsonl: str | os.PathLike[str] | None = None  # Gets every event as a line of JSON.
    max_preview_chars: int = 800  # So much of a value is shown.
    theme: str = "research"  # The colour of a step.
    stream: TextIO | None = field(default=None, kw_only=True)  # None: ``sys.stderr`` at the time.

    def __post_init__(self) -> None:
        if self.theme not in _THEMES:
            raise ValueError(f"unknown theme {self.theme!r}, expected one of {', '.join(_THEMES)}")

    def on_run_start(self, task: str, state: Any, engine: Any) -> None:
        self._print(("task", _THEMES[self.theme]), (self._short(task), ""))

    def on_event(self, event: RuntimeEvent, state: Any, record: Any, engine: Any) -> None:
        if self.output_jsonl is not None:
            with open(self.output_jsonl, "a", encoding="utf-8") as file:
                file.write(dumps(event) + "\n")

    def on_step_end(self, record: StepRecord, state: Any, engine: Any) -> None:
        decision, parts = record.decision, [(f"step {record.step_id}", _THEMES[self.theme])]
        if decision is None:
            parts.append(("no decision", _BAD))
        elif decision.mode != "act":
            more = {"handoff": f"to {decision.target}", "final": decision.final_answer}
            text = f"{decision.mode} {self._short(more.get(decision.mode, ''))}"
            parts.append((text.strip(), ""))
        else:
            for index, action in enumerate(decision.actions):
                parts.append((self._short(format_action(action)), ""))
                parts += map(self._result, record.action_results[index : index + 1])
        for verdict in record.critic_outputs:
            if verdict["action"] != "continue":
                parts.append(("{critic_name}: {action}, {reason}".format_map(verdict), _BAD))
        self._print(*parts)

    def on_run_end(self, result: Any, engine: Any) -> None:
        spent = f"{result.step_count} steps, {result.runtime_seconds:.1f} s"
        spent += f", {result.total_tokens} tokens" if result.total_tokens else ""
        end = ("no answer", _BAD)
        if result.failure is not None:
            end = ("{type}: {message}".format_map(result.failure), _BAD)
        elif result.final_result is not None:
            end = (self._short(result.final_result), _GOOD)
        self._print(end, (f"{getattr(result.state, 'stop_reason', None)}, {spent}", _DIM))

    def _result(self, result: Any) -> tuple[str, str]:
        if isinstance(result, dict) and result.get("error") and "status" in result:
            return f"-> {result['status']}: {self._short(result['error'])}", _BAD
        return f"-> {self._short(result)}", _GOOD

    def _short(self, value: Any) -> str:
        if not isinstance(value, str):
            return brief(value, self.max_preview_chars)
        return shortened(" ".join(value.split()), self.max_preview_chars)

    def _print(self, *parts: tuple[str, str]) -> None:
        stream = self.stream or sys.stderr
        if stream is None:
            return  # A program without a console has none.
        coloured = stream.isatty() and not os.environ.get("NO_COLOR")
        texts = []
        for text, colour in parts:
            text = "".join(c if c.isprintable() else " " for c in text)
            texts.append(f"\x1b[{colour}m{text}\x1b[0m" if coloured and colour else text)
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write("  ".join(texts).encode(encoding, "replace").decode(encoding) + "\n")
        stream.flush()
