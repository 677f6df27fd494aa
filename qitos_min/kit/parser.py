"""Parsers as objects: each reads one of the forms in which a model decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.decision import Decision
from ..engine._protocols import resolve_protocol
from ..engine._replies import ModelError, ParseError, read_reply


class _Parser:
    """Takes QitOS's options for other labels, which must be None: ours are fixed."""

    protocol = ""

    def __init__(self, **labels: Any) -> None:
        for name, value in labels.items():
            if value is not None or not name.endswith(("_keys", "_tags")):
                raise TypeError(f"{type(self).__name__} takes no {name!r}, its labels are fixed")

    def parse(self, raw: Any, context: Mapping[str, Any] | None = None) -> Decision:
        """The decision in a reply, text or of the chat API; without one to wait.

        An engine, whose ``context`` names the protocol, gets the error instead.
        """
        try:
            return resolve_protocol(self.protocol).parse(read_reply(raw)).decision
        except (ModelError, ParseError) as error:
            if context and "protocol" in context:
                raise
            told = {"parser_error": True, "parser_feedback": str(error)}
            return Decision.wait(rationale=str(error), meta=told)


class ReActTextParser(_Parser):
    """Reads lines that begin with Thought, Action or Final Answer."""

    protocol = "react_text_v1"


class JsonDecisionParser(_Parser):
    """Reads a JSON object with ``actions`` or a ``final_answer``."""

    protocol = "json_decision_v1"


class XmlDecisionParser(_Parser):
    """Reads a ``<decision>`` element with ``<action>`` or ``<final_answer>``."""

    protocol = "xml_decision_v1"
