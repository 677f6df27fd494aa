"""A decision by the agent's model."""

from __future__ import annotations

from typing import Any

from ..core._json import dumps, to_json_value
from ..core.decision import Decision
from ..core.errors import ErrorCategory
from ..core.history import HistoryMessage
from ..core.tool import ToolSpec
from ._handoff_runtime import last_rounds
from ._replies import EmptyReplyError, ModelError, ModelReply, ParseError, read_reply
from ._run import Run
from .states import RuntimePhase

__all__ = ["decide_with_model"]


def decide_with_model(run: Run) -> Decision:
    """Ask the model of the agent at work what to do.

    A reply that cannot be parsed is fed back once with the reason; what cannot
    be parsed then is raised as ``ParseError``. No model, or one that answers
    twice with nothing, is a ``ModelError``.
    """
    seat = run.seat
    if seat.llm is None:
        raise ModelError(f"agent {seat.name!r} decided nothing and has no model")
    specs = [seat.registry.get(name).spec for name in seat.registry.list_tools()]
    messages = _messages(run, specs)
    run.record.protocol_id = seat.protocol.id
    run.emit(RuntimePhase.DECIDE, stage="model_input", messages=to_json_value(messages))
    said = "(a reply that cannot be read)"
    for last in (False, True):
        try:
            reply = _ask(run, messages, specs)
            said = reply.text or said
            decision = _parsed(run, reply)
        except ParseError as error:
            run.record.parser_attempts.append({"error": str(error), "text": said})
            if last:
                raise
            again = f"That reply cannot be used: {error}. Try again."
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": again},
            ]
        else:
            run.record.parser_fallback_used = last
            break
    _remember(run, reply, decision)
    return decision


def _ask(run: Run, messages: list[dict[str, Any]], specs: list[ToolSpec]) -> ModelReply:
    """One reply of the model; an empty one is asked for again, once."""
    try:
        return _call(run, messages, specs)
    except EmptyReplyError:
        return _call(run, messages, specs)


def _call(run: Run, messages: list[dict[str, Any]], specs: list[ToolSpec]) -> ModelReply:
    tools = run.seat.protocol.tools_argument(specs)
    options = {} if tools is None else {"tools": tools}
    sent = [dict(message) for message in messages]
    value = run.foreign(ErrorCategory.MODEL, lambda: run.seat.llm(sent, **options))
    reply = read_reply(value)
    run.total_tokens += reply.usage["total_tokens"]
    run.record.model_response = reply.raw
    run.record.native_tool_call_used = bool(reply.tool_calls)
    run.emit(RuntimePhase.DECIDE, stage="model_output", raw_output=reply.raw)
    return reply


def _parsed(run: Run, reply: ModelReply) -> Decision:
    parser = run.engine.parser
    if parser is None:
        return run.seat.protocol.parse(reply)
    run.record.parser_selected = type(parser).__name__
    parse = getattr(parser, "parse", parser)
    try:
        return parse(reply.text)
    except ValueError as error:
        raise ParseError(str(error)) from error


def _messages(run: Run, specs: list[ToolSpec]) -> list[dict[str, Any]]:
    """System prompt with the tools, the conversation, and what is to be seen now."""
    seat = run.seat
    base = run.modified_prompt
    if base is None:
        base = seat.agent.build_system_prompt(run.state) or ""
    messages = [{"role": "system", "content": seat.protocol.system_prompt(base, specs)}]
    native = seat.protocol.tools_argument(specs) is not None
    rounds = run.engine.context_config.max_history_rounds
    for message in last_rounds(run.messages, rounds):
        messages.append(_native(message) if native else _plain(message))
    prepared = seat.agent.prepare(run.state)
    parts = [prepared if isinstance(prepared, str) else dumps(prepared)]
    if run.observation["env"]["enabled"]:
        parts.append(f"Environment: {dumps(run.observation['env']['observation'])}")
    if run.instruction_patch:
        parts.append(f"Note: {run.instruction_patch}")
    return [*messages, {"role": "user", "content": "\n\n".join(parts)}]


def _plain(message: HistoryMessage) -> dict[str, Any]:
    """A message as text: what tools said is told by the user."""
    if message.role != "tool":
        return {"role": message.role, "content": message.content}
    name = message.metadata.get("name", "tool")
    return {"role": "user", "content": f"Result of {name}: {message.content}"}


def _native(message: HistoryMessage) -> dict[str, Any]:
    """A message in the form of the chat API, with tool calls and their ids."""
    calls = message.metadata.get("tool_calls")
    if message.role == "assistant" and calls:
        return {"role": "assistant", "content": message.content, "tool_calls": calls}
    if message.role == "tool" and message.metadata.get("native"):
        call_id = message.metadata["tool_call_id"]
        return {"role": "tool", "content": message.content, "tool_call_id": call_id}
    return _plain(message)


def _remember(run: Run, reply: ModelReply, decision: Decision) -> None:
    """Add the reply to the conversation, with its tool calls if it has any."""
    calls = [
        {
            "id": action.action_id or f"call_{run.step_id}_{index}",
            "type": "function",
            "function": {
                "name": action.name.replace(".", "__dot__"),
                "arguments": dumps(action.args),
            },
        }
        for index, action in enumerate(decision.actions)
        if reply.tool_calls
    ]
    run.say("assistant", reply.text, **({"tool_calls": calls} if calls else {}))
