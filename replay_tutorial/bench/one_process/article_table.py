"""The points of `bench article`, and what can be said of them: tables, and where ours is the fastest.

Left out: the picture; `article_chart` draws it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from replay_tutorial.bench.method.markdown import figure, table
from replay_tutorial.bench.method.timing import Spread
from replay_tutorial.bench.one_process.operations import medians_of
from replay_tutorial.bench.peers.peer import CEILING, OURS

PANELS = ("add, uniform", "add, prioritized", "sample, uniform", "sample, prioritized")
ADDS_AS = {
    "Reverb dataset": "Reverb writer"
}  # peers whose rows are added by one class and sampled by another


@dataclass(frozen=True)
class Point:
    """What was measured at one place of one panel."""

    capacity: int
    panel: str
    rows: int
    microseconds: dict[str, Spread]  # peer → one call
    ratios: dict[str, Spread]  # peer → its time / ours, taken round by round

    def __str__(self) -> str:
        """Return one line, for those who wait."""
        return f"{self.capacity:,} rows, {self.panel}, {self.rows}: {medians_of(self.microseconds)}"


def names_at(measured: Sequence[Point], panel: str) -> list[str]:
    """Return the peers of a panel, ours first and the ceiling last."""
    names = dict.fromkeys(name for point in measured if point.panel == panel for name in point.microseconds)
    return sorted(names, key=lambda name: (name == CEILING, name != OURS))


def label_of(name: str, panel: str) -> str:
    """Return what a panel calls a peer: after the class that it measures."""
    return ADDS_AS.get(name, name) if panel.startswith("add") else name


def tables_of(measured: Sequence[Point]) -> str:
    """Return one table for each panel: medians in microseconds, in bold where a peer was faster than ours."""
    parts: list[str] = []
    for panel in PANELS:
        names = names_at(measured, panel)
        rows = [
            [f"{point.rows:,}", *(cell(point, name) for name in names), f"{point.ratios[CEILING].median:.0%}"]
            for point in measured
            if point.panel == panel
        ]
        labels = [label_of(name, panel) for name in names]
        lines = table(["rows", *labels, "of the ceiling"], rows, words=0)
        parts.append(f"**{panel}**, µs per call\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def cell(point: Point, name: str) -> str:
    """Return a median, in bold if it is a peer's and less than ours."""
    if name not in point.microseconds:
        return ""
    text = figure(point.microseconds[name].median)
    return f"**{text}**" if name not in (OURS, CEILING) and point.ratios[name].median < 1 else text


def verdict(measured: Sequence[Point]) -> str:
    """Return at how many points ours was the fastest, and where it wasn't."""
    faster: dict[str, list[int]] = {}
    behind = 0
    for point in measured:
        ahead = [n for n, ratio in point.ratios.items() if n != CEILING and ratio.median < 1]
        behind += bool(ahead)
        for name in ahead:
            faster.setdefault(f"{label_of(name, point.panel)} ({point.panel})", []).append(point.rows)
    places = "; ".join(f"{name} at {', '.join(map(str, rows))} rows" for name, rows in faster.items())
    return (
        f"Ours is the fastest library at {len(measured) - behind} of {len(measured)} points."
        f"{f' Faster than ours: {places}.' if places else ''}"
    )


def relative_spread(measured: Sequence[Point]) -> float:
    """Return the width between the quartiles over the median: the median of all figures."""
    spreads = [spread for point in measured for spread in point.microseconds.values()]
    return float(np.median([(s.upper - s.lower) / s.median for s in spreads]))


def section_of(capacity: int, measured: Sequence[Point], skipped: dict[str, str], *, chart: bool) -> str:
    """Return what the page says of one size of buffer."""
    here = [point for point in measured if point.capacity == capacity]
    picture = f"![add and sample over the number of rows](article-{capacity}.svg)\n\n" if chart else ""
    reasons = "".join(f" {name}: {reason}." for name, reason in skipped.items())
    absent = f" Not measured:{reasons}" if reasons else ""
    return f"### {capacity:,} rows\n\n{picture}{verdict(here)}{absent}\n\n{tables_of(here)}\n\n"
