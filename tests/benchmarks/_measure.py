"""Interleaved timing, and the synthetic run that the benchmarks share."""

import dataclasses
import gc
import os
import statistics
import sys
import time
import tracemalloc
from types import SimpleNamespace

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

PHASES = ("DECIDE", "DECIDE", "DECIDE", "ACT", "ACT", "REDUCE", "CRITIC", "CHECK_STOP")
HANDOFF_EVERY = 50


def interleaved(functions, rounds):
    """Median seconds of each function, called in turn in every round."""
    times = [[] for _ in functions]
    for _ in range(rounds):
        for function, taken in zip(functions, times):
            gc.collect()
            start = time.perf_counter()
            result = function()
            taken.append(time.perf_counter() - start)
            del result
    return [statistics.median(taken) for taken in times]


def peak_of(function):
    """Peak of the memory that a call allocates, in MiB."""
    gc.collect()
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def details(step, number, awkward):
    values = {
        "step": step,
        "number": number,
        "passed": step % 3 != 0,
        "ratio": step / 7,
        "note": f"checked the result of step {step}",
        "tags": ["style", "facts"],
        "limit": 0.75,
        "previous": None,
        "judge": "gpt-judge-large",
        "unit": "分",
    }
    if awkward and (2 * step + number) % 100 == 0:
        values["ratio"] = (float("nan"), {3, 1}, b"\x00\xff")[step % 3]
    return values


def critic_outputs(step, awkward):
    return [
        {
            "critic_name": ("style", "facts")[number],
            "action": "continue",
            "reason": "nothing to say against it",
            "score": 0.5 + number / 4,
            "details": details(step, number, awkward),
            "modified_prompt": None,
            "instruction_patch": None,
            "state_patch": None,
        }
        for number in range(2)
    ]


def events(step):
    rows = [(phase, {"stage": "start", "step_id": step}) for phase in PHASES]
    if step % HANDOFF_EVERY == HANDOFF_EVERY - 1:
        handoff = {"from": "a", "to": "b", "context_strategy": "SUMMARY", "messages_passed": 7}
        rows[-1] = ("HANDOFF_START", handoff)
    return rows


def record_fields(step, awkward):
    return {
        "step_id": step,
        "observation": {"task": "t", "step": step},
        "decision": {"mode": "act"},
        "actions": [{"name": "look", "args": {"n": n}} for n in range(3)],
        "action_results": ["r" * 500 for _ in range(3)],
        "tool_invocations": [
            {"tool_name": "look", "status": "success", "attempts": 1, "latency_ms": 0.5, "error": None}
            for _ in range(3)
        ],
        "critic_outputs": critic_outputs(step, awkward),
        "state_diff": {},
    }


def plain_run(steps, awkward=False):
    """The run as simple objects, as another framework might have them."""
    records = [SimpleNamespace(**record_fields(step, awkward)) for step in range(steps)]
    happened = [
        SimpleNamespace(step_id=step, phase=phase, ok=True, payload=payload, error=None, ts="t")
        for step in range(steps)
        for phase, payload in events(step)
    ]
    return SimpleNamespace(
        records=records, events=happened, step_count=steps, critic_traces=[], handoff_traces=[]
    )


def classes_run(steps, awkward=False):
    """The same run in the classes of ``qitos_min``."""
    from qitos_min.engine import EngineResult, RuntimeEvent, RuntimePhase, StepRecord

    records = [StepRecord(**record_fields(step, awkward)) for step in range(steps)]
    happened = [
        RuntimeEvent(step, RuntimePhase[phase], payload=payload, ts="t")
        for step in range(steps)
        for phase, payload in events(step)
    ]
    return EngineResult(None, records, happened, steps)


@dataclasses.dataclass
class GuideTrace:
    """What the guide's loop makes of each output, and then a dict of."""

    step_id: int
    critic_name: str
    action: str
    reason: str
    score: float
    details: dict
    instruction_patch: object
    state_patch: object

    def to_dict(self):
        return dict(vars(self))


def guide_loop(result):
    """The integration guide's own loops, with no check of anything."""
    traces = []
    for record in result.records:
        for output in record.critic_outputs:
            if not isinstance(output, dict):
                continue
            traces.append(
                GuideTrace(
                    step_id=record.step_id,
                    critic_name=str(output.get("critic_name", "unknown")),
                    action=str(output.get("action", "continue")),
                    reason=str(output.get("reason", "")),
                    score=float(output.get("score", 1.0)),
                    details=output.get("details", {}),
                    instruction_patch=output.get("instruction_patch"),
                    state_patch=output.get("state_patch"),
                )
            )
    handoffs = []
    for event in result.events:
        if event.phase != "HANDOFF_START":
            continue
        payload = event.payload or {}
        handoffs.append(
            {
                "step_id": event.step_id,
                "from_agent": str(payload.get("from", "")),
                "to_agent": str(payload.get("to", "")),
                "context_strategy": str(payload.get("context_strategy", "")),
                "messages_passed": int(payload.get("messages_passed", 0)),
            }
        )
    return {
        "engine_config": {},
        "tool_permissions": [],
        "critic_traces": [trace.to_dict() for trace in traces],
        "handoff_traces": handoffs,
        "step_count": result.step_count,
    }
