"""The pictures of a page: inline SVG whose numbers are percent across and pixels down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from ._model import Run, Step, calls
from ._words import duration, printable, words

COLOURS = 6  # Classes ``c0`` to ``c5`` of the page's style.
SCORES = {"top": 24, "height": 150}
"""Pixels: above the highest score, and from there down to the lowest."""
SIGNS = {"retry": "↻", "stop": "■"}
_LANE, _LABEL, _BAR, _HEIGHT = 52, 12, 20, 22
"""Pixels: of a lane; from its top to its label's baseline and to its bars; of a bar."""
_MOST_POINTS = 120  # Scores of a critic that get a point each; more are a line only.


def nice_step(span: float, most: int = 5) -> float:
    """Return the least of 1, 2, 5, 10, … of any size of which ``span`` holds at most ``most``."""
    if span <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(span / most))
    return next(size * n for n in (1, 2, 5, 10) if span / (size * n) <= most * 1.0001)


def bars(run: Run) -> list[tuple[Step, Step, float, float]]:
    """Return first and last step of each bar, its begin and its width in percent of the run."""
    ends, unit = [(group[0], group[-1]) for group in run.groups], 100 / run.length
    return [(one, end, one.began * unit, (end.ended - one.began) * unit) for one, end in ends]


def timeline(run: Run, link: Callable[[Step], str], prefix: str) -> str:
    """Return the steps of a run on its time axis, a lane for each agent.

    ``link`` gives the address of a step's details, ``prefix`` makes ids unique.
    """
    agents = dict.fromkeys(step.agent for step in run.steps)
    handoffs = run.payload["handoff_traces"]
    agents.update(dict.fromkeys(row[end] for row in handoffs for end in ("from_agent", "to_agent")))
    lanes = {agent: n for n, agent in enumerate(agents)}
    bottom = _LANE * len(lanes)
    parts = [*_axis(run, bottom)]
    for agent, lane in lanes.items():
        parts.append(_tag("text", _text(agent or "agent"), x=0, y=_LANE * lane + _LABEL))
    for first, last, begin, width in bars(run):
        parts.append(_bar(run, first, last, begin, width, lanes[first.agent], link))
    ended = {step.number: 100 * step.ended / run.length for step in run.steps}
    for row in handoffs:
        if row["step_id"] in ended and row["from_agent"] != row["to_agent"]:
            parts.append(_arrow(row, ended[row["step_id"]], lanes, f"url(#{prefix}head)"))
    head = _tag("path", d="M0 0L8 4L0 8z", class_="arrow handoff")
    size = {"markerWidth": 7, "markerHeight": 7, "refX": 7, "refY": 4, "viewBox": "0 0 8 8"}
    parts.append(_tag("marker", head, id=f"{prefix}head", orient="auto", **size))
    length = f"over {duration(run.length)}" if run.timed else "without times"
    label = f"{len(run.steps)} steps of {len(agents)} agents {length}"
    return _picture(label, bottom + 22, parts)


def _bar(
    run: Run, first: Step, last: Step, begin: float, width: float, lane: int, link: Any
) -> str:
    """One bar with its tools and marks inside, and what they are as tooltips."""
    top, shape = _LANE * lane + _BAR, f"c{lane % COLOURS}"
    told = f" of {words(first.agent)}"
    told += f", {duration(last.ended - first.began)}" if run.timed else ""
    place = {"x": _percent(begin), "y": top, "width": _percent(max(width, 0.2)), "height": _HEIGHT}
    if first.record is None:
        title = _title(f"steps {first.number} to {last.number}{told}: left out")
        return _tag("rect", title, **place, class_=f"bar left {shape}")
    title = _title(", ".join([f"step {first.number}{told}", *first.marks]))
    parts = [_tag("rect", title, **place, class_=f"bar {shape}")]
    for call in calls(first) if run.timed else ():
        if call.seconds is not None:
            title = _title(f"{call.name}, {duration(call.seconds)}")
            wide = min(call.seconds, max(first.ended - call.began, 0)) / run.length
            place.update(x=_percent(100 * call.began / run.length), y=top + 12, height=7)
            place.update(width=_percent(max(100 * wide, 0.1)))
            parts.append(_tag("rect", title, **place, class_="tool"))
    for mark in [mark for mark in first.marks if mark != "handoff"][:1]:
        place.update(x=_percent(begin), y=top + _HEIGHT + 2, height=4)
        place.update(width=_percent(max(width, 0.4)))
        parts.append(_tag("rect", **place, class_=mark))
    return _tag("a", "".join(parts), href=link(first), aria_label=f"step {first.number}")


def _arrow(row: Any, at: float, lanes: dict[str, int], head: str) -> str:
    start, end = (_LANE * lanes[row[name]] + _BAR for name in ("from_agent", "to_agent"))
    start, end = (start + _HEIGHT, end) if end > start else (start, end + _HEIGHT)
    told = f"step {row['step_id']}: {row['from_agent']} hands over to {row['to_agent']}"
    place = {"x1": _percent(at), "y1": start, "x2": _percent(at), "y2": end}
    return _tag("line", _title(told), **place, class_="handoff", marker_end=head)


def _axis(run: Run, bottom: int) -> Iterator[str]:
    gap = nice_step(run.length, 4)
    for n in range(int(run.length / gap + 1e-9) + 1):
        across = 100 * n * gap / run.length
        label = duration(n * gap) if run.timed else f"{n * gap:g} steps"
        anchor = "start" if across < 8 else "end" if across > 92 else "middle"
        x = _percent(across)
        yield _tag("line", x1=x, y1=0, x2=x, y2=bottom, class_="grid")
        yield _tag("text", label, x=x, y=bottom + 16, text_anchor=anchor, class_="tick")


def score_lines(rows: Sequence[Any]) -> dict[str, list[tuple[float, float | None, Any]]]:
    """Return for each critic its verdicts: percent across, pixels down or None, and the row."""
    steps = [row["step_id"] for row in rows]
    start, span = min(steps), max(max(steps) - min(steps), 1)
    limits = _limits(rows)
    lines: dict[str, list[tuple[float, float | None, Any]]] = {}
    for row in rows:
        down = None if row["score"] is None else _down(row["score"], *limits)
        across = 100 * (row["step_id"] - start) / span
        lines.setdefault(row["critic_name"], []).append((across, down, row))
    return lines


def scores(rows: Sequence[Any]) -> str:
    """Return the scores of critic rows, at least one, over their steps: a line for each critic."""
    low, high = _limits(rows)
    bottom = SCORES["top"] + SCORES["height"]
    parts = []
    for value in (high, low / 2 + high / 2, low):
        y = _down(value, low, high)
        parts.append(_tag("line", x1=0, y1=y, x2="100%", y2=y, class_="grid"))
        parts.append(_tag("text", f"{value:.3g}", x=-6, y=y + 4, text_anchor="end", class_="tick"))
    lines = score_lines(rows)
    for n, (name, points) in enumerate(lines.items()):
        parts += _line(name, points, f"c{n % COLOURS}")
    steps = [row["step_id"] for row in rows]
    place = {"y": bottom + 20, "class_": "tick"}
    parts.append(_tag("text", f"step {min(steps)}", x=0, **place))
    if max(steps) > min(steps):
        parts.append(_tag("text", f"step {max(steps)}", x="100%", text_anchor="end", **place))
    return _picture(f"scores of {len(lines)} critics over their steps", bottom + 26, parts)


def _line(name: str, points: Sequence[tuple[float, float | None, Any]], shape: str) -> list[str]:
    """The line of a critic, broken where it has no score, with points and signs."""
    path, pen, parts = "", "M", []
    for x, y, row in points:
        if y is not None:
            path += f"{pen}{10 * x:.1f} {y:.1f}"
        pen = "M" if y is None else "L"
        sign = SIGNS.get(row["action"])
        if sign is None and len(points) > _MOST_POINTS:
            continue
        title = _title(f"step {row['step_id']}, {name}: {row['action']}, {words(row['score'])}")
        if y is not None:
            parts.append(_tag("circle", title, cx=_percent(x), cy=y, r=4, class_=f"dot {shape}"))
        if sign is not None:
            place = {"x": _percent(x), "y": 12, "text_anchor": "middle"}
            parts.append(_tag("text", sign + title, **place, class_=f"sign {row['action']}"))
    line = _tag("path", d=path, class_=f"line {shape}", vector_effect="non-scaling-stroke")
    height = SCORES["top"] + SCORES["height"]
    size = {"width": "100%", "height": height, "viewBox": f"0 0 1000 {height}"}
    return [_tag("svg", line, **size, preserveAspectRatio="none"), *parts]


def _limits(rows: Sequence[Any]) -> tuple[float, float]:
    known = [row["score"] for row in rows if row["score"] is not None]
    return min([0.0, *known]), max([1.0, *known])


def _down(score: float, low: float, high: float) -> float:
    # Halves, because the difference of two scores may be too large for a number.
    share = (high / 2 - score / 2) / (high / 2 - low / 2)
    return round(SCORES["top"] + SCORES["height"] * share, 2)


def _picture(label: str, height: int, parts: Sequence[str]) -> str:
    size = {"width": "100%", "height": height}
    return _tag("svg", "".join(parts), role="img", aria_label=label, **size)


def _tag(name: str, inner: str = "", /, **attributes: Any) -> str:
    """An element; in the names of attributes ``_`` is ``-``, and nothing at their end."""
    names = [key.rstrip("_").replace("_", "-") for key in attributes]
    told = "".join(f' {key}="{value}"' for key, value in zip(names, attributes.values()))
    return f"<{name}{told}>{inner}</{name}>"


def _percent(value: float) -> str:
    return f"{value:.3f}%"


def _title(text: str) -> str:
    return f"<title>{_text(text)}</title>"


def _text(text: str) -> str:
    return escape(printable(text if len(text) <= 200 else text[:199] + "…"))
