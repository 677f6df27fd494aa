"""The pictures of a page: inline SVG. A float is percent across, an int is pixels down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ._model import Row, Run, Step, duration, html_text, words

SIGNS = {"retry": "↻", "stop": "■"}
# Heights: of a lane; from its top to its label's baseline and to its bars; of a bar.
_LANE, _LABEL, _BAR, _HEIGHT = 52, 12, 20, 22
_TOP, _BOTTOM = 24, 174  # Of the highest score and the lowest.
_MOST_POINTS = 120  # Scores of a critic that get a point each; more are a line only.


def colour(number: int) -> str:
    """The class, in the page's style, of the agent or critic of a number."""
    return f"c{number % 6}"


def timeline(run: Run, prefix: str) -> str:
    """The steps of a run on its time axis, a lane for each agent; ``prefix`` makes ids unique."""
    handoffs = run.payload["handoff_traces"]
    names = [step.agent for step in run.steps]
    names += [row[end] for row in handoffs for end in ("from_agent", "to_agent")]
    lanes = {name: n for n, name in enumerate(dict.fromkeys(names))}
    bottom = _LANE * len(lanes)
    parts = [*_axis(run, bottom)]
    for name, lane in lanes.items():
        parts.append(_tag("text", html_text(name or "agent"), x=0, y=_LANE * lane + _LABEL))
    parts += [_bar(run, step, lanes[step.agent], prefix) for step in run.steps]
    ended = {step.number: 100 * step.ended / run.length for step in run.steps}
    for row in handoffs:
        start, end = (_LANE * lanes[row[name]] + _BAR for name in ("from_agent", "to_agent"))
        if row["step_id"] in ended and start != end:
            told = f"step {row['step_id']}: {row['from_agent']} hands over to {row['to_agent']}"
            x, down = ended[row["step_id"]], _HEIGHT if start < end else 0
            ends = {"x1": x, "y1": start + down, "x2": x, "y2": end + _HEIGHT - down}
            look = {"class": "handoff", "marker_end": f"url(#{prefix}head)"}
            parts.append(_tag("line", "", told, **ends, **look))
    head = _tag("path", d="M0 0L8 4L0 8z", class_="arrow handoff")
    size = {"markerWidth": 7, "markerHeight": 7, "refX": 7, "refY": 4, "viewBox": "0 0 8 8"}
    parts.append(_tag("marker", head, id=f"{prefix}head", orient="auto", **size))
    label = f"{sum(step.left or 1 for step in run.steps)} steps of {len(lanes)} agents"
    return _picture(f"{label} over {duration(run.length)}", bottom + 22, parts)


def _bar(run: Run, step: Step, lane: int, prefix: str) -> str:
    top, seconds, shape = _LANE * lane + _BAR, step.ended - step.began, colour(lane)

    def part(shape: str, told: str, began: float, seconds: float, y: int, height: int) -> str:
        x, width = 100 * began / run.length, max(100 * seconds / run.length, 0.2)
        return _tag("rect", "", told, x=x, width=width, y=y, height=height, class_=shape)

    told = f" of {step.agent}, {duration(seconds)}"
    if step.left:
        told = f"steps {step.number} to {step.last}{told}: left out"
        return part(f"bar left {shape}", told, step.began, seconds, top, _HEIGHT)
    told = ", ".join([f"step {step.number}{told}", *step.marks])
    parts = [part(f"bar {shape}", told, step.began, seconds, top, _HEIGHT)]
    for call in step.calls:
        if call.seconds is not None:
            told = f"{call.name}, {duration(call.seconds)}"
            wide = min(call.seconds, max(step.ended - call.began, 0))
            parts.append(part("tool", told, call.began, wide, top + 12, 7))
    for mark in [mark for mark in step.marks if mark != "handoff"][:1]:
        parts.append(part(mark, mark, step.began, seconds, top + _HEIGHT + 2, 4))
    link = f"#{prefix}s{step.position}"
    return _tag("a", "".join(parts), href=link, aria_label=f"step {step.number}")


def _axis(run: Run, bottom: int) -> Iterator[str]:
    size = 10.0 ** math.floor(math.log10(run.length / 4))
    gap = next(size * n for n in (1, 2, 5, 10) if run.length <= size * n * 4.0001)
    for n in range(int(run.length / gap + 1e-9) + 1):
        x = 100 * n * gap / run.length
        anchor = "start" if x < 8 else "end" if x > 92 else "middle"
        yield _tag("line", x1=x, y1=0, x2=x, y2=bottom, class_="grid")
        yield _tag("text", duration(n * gap), x=x, y=bottom + 16, text_anchor=anchor, class_="tick")


def scores(rows: Sequence[Row]) -> str:
    """The scores of critic rows, at least one, over their steps: a line for each critic."""
    known = [row["score"] for row in rows if row["score"] is not None]
    low, high = min([0.0, *known]), max([1.0, *known])
    numbers = [row["step_id"] for row in rows]
    first, last = min(numbers), max(numbers)

    def down(score: float) -> int:
        # Halves, because the difference of two scores may be too large for a number.
        return round(_TOP + (_BOTTOM - _TOP) * ((high / 2 - score / 2) / (high / 2 - low / 2)))

    parts = []
    for value in (high, low / 2 + high / 2, low):
        y = down(value)
        parts.append(_tag("line", x1=0, y1=y, x2=100.0, y2=y, class_="grid"))
        parts.append(_tag("text", f"{value:.3g}", x=-6, y=y + 4, text_anchor="end", class_="tick"))
    for x, anchor, number in ((0.0, "start", first), (100.0, "end", last))[: 1 + (first < last)]:
        place = {"x": x, "y": _BOTTOM + 20, "text_anchor": anchor}
        parts.append(_tag("text", f"step {number}", **place, class_="tick"))
    names = dict.fromkeys(row["critic_name"] for row in rows)
    for n, name in enumerate(names):
        line, look = [row for row in rows if row["critic_name"] == name], colour(n)
        before = None  # The point of the verdict before; a line is broken where one has no score.
        for row in line:
            score, sign = row["score"], SIGNS.get(row["action"])
            x = 100 * (row["step_id"] - first) / max(last - first, 1)
            point = None if score is None else (x, down(score))
            told = f"step {row['step_id']}, {name}: {row['action']}, {words(score)}"
            if before and point:
                ends = dict(zip(("x1", "y1", "x2", "y2"), before + point))
                parts.append(_tag("line", **ends, class_=f"line {look}"))
            if point and (sign or len(line) <= _MOST_POINTS):
                parts.append(_tag("circle", "", told, cx=x, cy=point[1], r=4, class_=f"dot {look}"))
            if sign:
                place = {"x": x, "y": 12, "text_anchor": "middle"}
                parts.append(_tag("text", sign, told, **place, class_=f"sign {row['action']}"))
            before = point
    return _picture(f"scores of {len(names)} critics over their steps", _BOTTOM + 26, parts)


def _picture(label: str, height: int, parts: Iterable[str]) -> str:
    return _tag("svg", "".join(parts), role="img", aria_label=label, width="100%", height=height)


def _tag(name: str, inner: str = "", told: str = "", /, **attributes: Any) -> str:
    """An element with a tooltip; in attributes ``_`` is ``-``, and nothing at their end."""
    title, text = f"<title>{html_text(told)}</title>" if told else "", ""
    for key, value in attributes.items():
        value = f"{value:.3f}%" if isinstance(value, float) else value
        text += f' {key.rstrip("_").replace("_", "-")}="{value}"'
    return f"<{name}{text}>{inner}{title}</{name}>"
