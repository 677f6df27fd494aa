"""The pictures of a page: inline SVG whose numbers are percent across and pixels down.

So a picture is as wide as the page, and its words stay readable at any width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any

from ._model import Run, Step, calls, duration, printable, words

__all__ = [
    "COLOURS",
    "SCORES",
    "SIGNS",
    "TIMELINE",
    "bars",
    "nice_step",
    "score_lines",
    "scores",
    "timeline",
]

COLOURS = 6
"""Classes ``c0`` to ``c5`` of the page's style."""
TIMELINE = {"lane": 52, "label": 12, "bar": 20, "height": 22}
"""Pixels: of a lane; from its top to its label's baseline and its bars; of a bar."""
SCORES = {"top": 24, "height": 150}
"""Pixels: above the highest score, and down to the lowest."""
_MOST_POINTS = 120
"""Scores of a critic that get a point each; more are a line only."""
SIGNS = {"retry": "↻", "stop": "■"}


def nice_step(span: float, most: int = 5) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, … of any size of which ``span`` holds at most ``most``."""
    if span <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(span / most))
    return next(size * n for n in (1, 2, 5, 10) if span / (size * n) <= most * 1.0001)


def bars(run: Run) -> list[tuple[Step, Step, float, float]]:
    """Return first and last step of each bar, with its begin and width in percent of the run.

    A step that the page shows has a bar of its own; stretches of steps of one agent
    that it leaves out share one.
    """
    whole = run.length
    return [
        (group[0], group[-1], 100 * group[0].began / whole,
         100 * (group[-1].ended - group[0].began) / whole)
        for group in run.groups
    ]  # fmt: skip


def timeline(run: Run, link: Callable[[Step], str], prefix: str) -> str:
    """Return the steps of a run on its time axis, a lane for each agent.

    ``link`` gives the address of a step's details, ``prefix`` makes ids unique.
    """
    agents = list(dict.fromkeys(step.agent for step in run.steps))
    for row in run.payload["handoff_traces"]:
        agents += [row[end] for end in ("from_agent", "to_agent") if row[end] not in agents]
    lanes = {agent: TIMELINE["lane"] * n for n, agent in enumerate(agents)}
    bottom = TIMELINE["lane"] * len(lanes)
    parts = [*_axis(run, bottom)]
    for agent, top in lanes.items():
        name = _text(agent or "agent")
        parts.append(f'<text x="0" y="{top + TIMELINE["label"]}" class="lane">{name}</text>')
    for first, last, begin, width in bars(run):
        top = lanes[first.agent] + TIMELINE["bar"]
        parts.append(_bar(run, first, last, begin, width, top, agents.index(first.agent), link))
    ended = {step.number: 100 * step.ended / run.length for step in run.steps}
    for row in run.payload["handoff_traces"]:
        parts += _arrow(row, ended.get(row["step_id"]), lanes, f"{prefix}head")
    head = (
        f'<defs><marker id="{prefix}head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" class="arrow"/></marker></defs>'
    )
    length = f"over {duration(run.length)}" if run.timed else "without times"
    label = f"{len(run.steps)} steps of {len(agents)} agents {length}"
    return _picture(label, bottom + 22, [head, *parts])


def _bar(
    run: Run, first: Step, last: Step, begin: float, width: float, top: int, colour: int,
    link: Callable[[Step], str],
) -> str:  # fmt: skip
    """One bar with its tools and marks inside, and what they are as tooltips."""
    height, shape = TIMELINE["height"], f"c{colour % COLOURS}"
    told = f", {duration(last.ended - first.began)}" if run.timed else ""
    place = f'x="{begin:.3f}%" y="{top}" width="{max(width, 0.2):.3f}%" height="{height}"'
    if first.record is None:
        title = f"steps {first.number} to {last.number} of {words(first.agent)}{told}: left out"
        return f'<rect {place} class="bar left {shape}"><title>{_text(title)}</title></rect>'
    title = ", ".join([f"step {first.number} of {words(first.agent)}{told}", *first.marks])
    parts = [f'<rect {place} class="bar {shape}"><title>{_text(title)}</title></rect>']
    whole = run.length
    for call in calls(first) if run.timed else ():
        if call.seconds is not None:
            wide = min(call.seconds, max(first.ended - call.began, 0))
            x, w = 100 * call.began / whole, max(100 * wide / whole, 0.1)
            title = _text(f"{call.name}, {duration(call.seconds)}")
            parts.append(
                f'<rect x="{x:.3f}%" y="{top + 12}" width="{w:.3f}%" height="7" class="tool">'
                f"<title>{title}</title></rect>"
            )
    kinds = [mark for mark in first.marks if mark != "handoff"]
    if kinds:
        parts.append(
            f'<rect x="{begin:.3f}%" y="{top + height + 2}" width="{max(width, 0.4):.3f}%"'
            f' height="4" class="{kinds[0]}"/>'
        )
    return f'<a href="{link(first)}" aria-label="step {first.number}">{"".join(parts)}</a>'


def _arrow(row: Any, at: float | None, lanes: dict[str, int], marker: str) -> Iterator[str]:
    start, end = lanes[row["from_agent"]], lanes[row["to_agent"]]
    if at is not None and start != end:
        x = f"{at:.3f}%"
        low, high = TIMELINE["bar"], TIMELINE["bar"] + TIMELINE["height"]
        y1, y2 = (start + high, end + low) if end > start else (start + low, end + high)
        title = _text(f"step {row['step_id']}: {row['from_agent']} hands over to {row['to_agent']}")
        yield (
            f'<line x1="{x}" y1="{y1}" x2="{x}" y2="{y2}" class="handoff"'
            f' marker-end="url(#{marker})"><title>{title}</title></line>'
        )


def _axis(run: Run, bottom: int) -> Iterator[str]:
    whole = run.length
    gap = nice_step(whole, 4)
    for n in range(int(whole / gap + 1e-9) + 1):
        x, label = 100 * n * gap / whole, duration(n * gap) if run.timed else f"{n * gap:g} steps"
        where = ' text-anchor="end"' if x > 92 else "" if x < 8 else ' text-anchor="middle"'
        yield f'<line x1="{x:.3f}%" y1="0" x2="{x:.3f}%" y2="{bottom}" class="grid"/>'
        yield f'<text x="{x:.3f}%" y="{bottom + 16}"{where} class="tick">{label}</text>'


def score_lines(rows: Sequence[Any]) -> dict[str, list[tuple[float, float | None, Any]]]:
    """Return for each critic its verdicts: percent across, pixels down or None, and the row.

    Step ids go from the first to the last, scores from the lowest to the highest, which
    are 0 and 1 unless some lie outside.
    """
    steps = [row["step_id"] for row in rows]
    first, span = min(steps), max(max(steps) - min(steps), 1)
    low, high = _range(rows)
    lines: dict[str, list[tuple[float, float | None, Any]]] = {}
    for row in rows:
        score = row["score"]
        down = None
        if score is not None:
            down = SCORES["top"] + SCORES["height"] * _share(high - score, high - low)
        across = 100 * (row["step_id"] - first) / span
        lines.setdefault(row["critic_name"], []).append((across, down, row))
    return lines


def scores(rows: Sequence[Any]) -> str:
    """Return the scores of critic rows over their steps, a line for each critic; no rows, no text."""
    if not rows:
        return ""
    low, high = _range(rows)
    parts = []
    for value in (high, (low + high) / 2, low):
        y = SCORES["top"] + SCORES["height"] * _share(high - value, high - low)
        parts.append(f'<line x1="0" y1="{y:.1f}" x2="100%" y2="{y:.1f}" class="grid"/>')
        parts.append(
            f'<text x="-6" y="{y + 4:.1f}" text-anchor="end" class="tick">{value:.3g}</text>'
        )
    for n, (name, points) in enumerate(score_lines(rows).items()):
        parts += _line(name, points, f"c{n % COLOURS}")
    steps = [row["step_id"] for row in rows]
    bottom = SCORES["top"] + SCORES["height"]
    for x, number in dict([(0, min(steps)), (100, max(steps))]).items():
        where = "start" if x == 0 else "end"
        parts.append(
            f'<text x="{x}%" y="{bottom + 20}" text-anchor="{where}" class="tick">step {number}</text>'
        )
    label = f"scores of {len(set(row['critic_name'] for row in rows))} critics over their steps"
    return _picture(label, bottom + 26, parts)


def _line(
    name: str, points: Sequence[tuple[float, float | None, Any]], shape: str
) -> Iterator[str]:
    """The line of a critic, broken where it has no score, with points and signs."""
    path, pen = [], "M"
    for x, y, _ in points:
        if y is not None:
            path.append(f"{pen}{10 * x:.1f} {y:.1f}")
        pen = "M" if y is None else "L"
    height = SCORES["top"] + SCORES["height"]
    yield (
        f'<svg width="100%" height="{height}" viewBox="0 0 1000 {height}" preserveAspectRatio="none">'
        f'<path d="{"".join(path)}" class="line {shape}" vector-effect="non-scaling-stroke"/></svg>'
    )
    for x, y, row in points:
        sign, score = SIGNS.get(row["action"]), words(row["score"])
        if sign is None and (y is None or len(points) > _MOST_POINTS):
            continue
        title = _text(f"step {row['step_id']}, {name}: {row['action']}, {score}")
        if y is not None:
            yield f'<circle cx="{x:.3f}%" cy="{y:.1f}" r="4" class="dot {shape}"><title>{title}</title></circle>'
        if sign is not None:
            yield (
                f'<text x="{x:.3f}%" y="12" text-anchor="middle" class="sign {row["action"]}">'
                f"{sign}<title>{title}</title></text>"
            )


def _range(rows: Iterable[Any]) -> tuple[float, float]:
    known = [row["score"] for row in rows if row["score"] is not None]
    return min([0.0, *known]), max([1.0, *known])


def _share(part: float, whole: float) -> float:
    """Part of the whole; scores may be so large that only halves of them can be subtracted."""
    return part / whole if math.isfinite(part) and math.isfinite(whole) else 0.5


def _text(text: str) -> str:
    return escape(printable(text if len(text) <= 200 else text[:199] + "…"))


def _picture(label: str, height: int, parts: Iterable[str]) -> str:
    name = escape(label)
    return (
        f'<svg role="img" aria-label="{name}" width="100%" height="{height}">{"".join(parts)}</svg>'
    )
