"""A decision by the agent's model."""

from __future__ import annotations

from typing import Any

from ..core import Decision, ErrorCategory, HistoryMessage, ToolSpec
from ..core._json import dumps
from ._conversation import conversation
from ._handoff import last_rounds, rounds_of
from ._plain import plain
from ._protocols import Parsed, give_types
from ._replies import CutReplyError, EmptyReplyError, ModelError, ModelReply, ParseError
from ._replies import reply_in, response_of, usage_of
from ._run import Run
from .hooks import taken
from .states import RuntimePhase


def decide_with_model(run: Run) -> tuple[Decision, str]:
    """Ask the model of the agent at work what to do; what it said is told too.

    A reply that cannot be parsed or is not whole is fed back once with the reason; what is
    wrong then is raised as ``ParseError`` or ``ModelError``, as is no model or no answer twice.
    """
    seat = run.seat
    if seat.llm is None:
        raise ModelError(f"agent {seat.name!r} decided nothing and has no model")
    specs = [seat.registry.get(name).spec for name in seat.registry.list_tools()]
    tools = seat.protocol.tools_argument(specs)
    messages = _messages(run, specs, write=None if tools else seat.protocol.write)
    run.record.protocol_id = seat.protocol.id
    run.emit(stage="model_input", messages=plain(messages))
    for last in (False, True):
        said = ""
        try:
            try:
                reply = _call(run, messages, tools)
            except EmptyReplyError:
                reply = _call(run, messages, tools)
            said = reply.text.strip()
            parsed = _parsed(run, reply)
        except (ParseError, CutReplyError) as error:
            said = said or "(a reply that cannot be read)"
            run.record.parser_attempts.append({"error": str(error), "text": said})
            if last:
                raise
            again = f"That reply cannot be used: {error}. Try again."
            if isinstance(error, CutReplyError):
                again += " Keep it short."
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": again}]
        else:
            run.record.parser_fallback_used = last
            break
    give_types(parsed.decision, specs)
    return parsed.decision, parsed.said


def _call(run: Run, messages: list[dict[str, Any]], tools: Any) -> ModelReply:
    options = {} if tools is None else {"tools": tools}
    sent = [dict(message) for message in messages]
    # The whole response, where calling the model gives only its text.
    ask = getattr(run.seat.llm, "call_raw", None) or run.seat.llm
    raw = response_of(run.foreign(ErrorCategory.MODEL, lambda: ask(sent, **options)))
    run.stamp()
    # A reply is paid for before anybody knows whether it can be used.
    run.charge(usage_of(raw)["total_tokens"])
    run.record.model_response = raw
    run.emit(stage="model_output", raw_output=raw)
    reply = reply_in(raw)
    run.record.native_tool_call_used = bool(reply.tool_calls)
    return reply


def _parsed(run: Run, reply: ModelReply) -> Parsed:
    """What a reply decides; a reply that was cut decides only what it had finished."""
    parser, protocol = run.engine.parser, run.seat.protocol
    try:
        if parser is None or reply.tool_calls:
            called = any(message.metadata.get("native") for message in run.messages)
            parsed = protocol.parse(reply, called=called)
        else:
            run.record.parser_selected = type(parser).__name__
            parse = getattr(parser, "parse", parser)
            context = {"protocol": protocol.id, "step": run.step_id}
            options = {"context": context} if taken(parse, ["context"]) else {}
            parsed = Parsed(parse(reply.text, **options), reply.text, False)
    except (ParseError, ValueError) as error:
        if reply.cut:
            raise CutReplyError(reply.cut) from None
        if isinstance(error, ParseError):
            raise
        raise ParseError(str(error)) from error
    if reply.cut and not parsed.more:
        raise CutReplyError(reply.cut)
    return parsed


def _messages(run: Run, specs: list[ToolSpec], write: Any) -> list[dict[str, Any]]:
    """System prompt with the tools, the conversation, and what is to be seen now."""
    seat = run.seat
    base = run.modified_prompt
    base = seat.agent.build_system_prompt(run.state) or "" if base is None else base
    prepared = seat.agent.prepare(run.state)
    parts = [prepared if isinstance(prepared, str) else dumps(prepared)]
    if run.observation["env"]["enabled"]:
        parts.append(f"Environment: {dumps(run.observation['env']['observation'])}")
    if run.instruction_patch:
        parts.append(f"Note: {run.instruction_patch}")
    return conversation(
        _remembered(run),
        task=run.task_text,
        system=seat.protocol.system_prompt(base, specs),
        view="\n\n".join(part for part in parts if part.strip()),
        write=write,
    )


def _remembered(run: Run) -> list[HistoryMessage]:
    """The messages that the context and the history policy leave; whole rounds go at a time."""
    policy = run.engine.history_policy
    messages = last_rounds(run.messages, run.engine.context_config.max_history_rounds)
    if policy is None:
        return messages
    window = getattr(policy, "step_window", None)
    first = run.step_id - window + 1 if window else 0
    # Results stay with their calls.
    roles = {*policy.roles, *(("tool",) if "assistant" in policy.roles else ())}
    rounds = rounds_of([m for m in messages if m.role in roles and m.step_id >= first])
    start, count, most = len(rounds), 0, policy.max_messages
    while start and (not count or most is None or count + len(rounds[start - 1]) <= most):
        start -= 1
        count += len(rounds[start])
    return [message for one in rounds[start:] for message in one]
