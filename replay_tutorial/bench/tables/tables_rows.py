"""What is measured of one table, and what it shall reach.

Left out: threads against a limiter (`tables_limits`) and other processes (`tables_clients`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from replay_tutorial.bench.peers.peer import OURS
from replay_tutorial.bench.tables.tables_sides import REVERB, Side
from replay_tutorial.measuring.markdown import figure, spread_text, table
from replay_tutorial.measuring.timing import FloatArray, Spread, measure

SLOT_SECONDS = 0.02


@dataclass(frozen=True)
class Goal:
    """What a figure of ours shall reach."""

    at_most: float | None = None
    times: float | None = None  # better than Reverb's, at least

    def __str__(self) -> str:
        """Return it as it stands in the table."""
        most = [] if self.at_most is None else [f"≤ {self.at_most:g}"]
        return ", ".join(most if self.times is None else [*most, f"≥ {self.times:g} times"])


@dataclass(frozen=True)
class Row:
    """One figure of each side."""

    operation: str
    unit: str  # of the figures: the fewer the better, or the more if it is one of "... a second"
    figures: dict[str, Spread]
    ratio: Spread | None  # how many times better ours is, taken round by round; None without Reverb
    goal: Goal

    @classmethod
    def of(cls, operation: str, unit: str, figures: dict[str, FloatArray], goal: Goal) -> "Row":
        """Take the spreads; figures of the same round stand at the same place."""
        ratio = None
        if REVERB in figures:
            ours, theirs = figures[OURS], figures[REVERB]
            ratio = Spread.of(ours / theirs if unit.endswith("a second") else theirs / ours)
        return cls(operation, unit, {name: Spread.of(each) for name, each in figures.items()}, ratio, goal)

    @property
    def met(self) -> str:
        """Say whether the goal was met; "" where there is none, or no Reverb."""
        wanted: list[bool] = []
        if self.goal.at_most is not None:
            wanted.append(self.figures[OURS].median <= self.goal.at_most)
        if self.goal.times is not None and self.ratio is not None:
            wanted.append(self.ratio.median >= self.goal.times)
        return "" if not wanted else "yes" if all(wanted) else "no"

    def cells(self) -> list[str]:
        """Return a line of the table."""
        ours, theirs = (text_of(self.figures.get(name)) for name in (OURS, REVERB))
        return [self.operation, self.unit, ours, theirs, text_of(self.ratio), f"{self.goal}", self.met]


WRITE = Goal(30.0, 6.0)
SAMPLE = Goal(60.0, 20.0)
# table → what is done with it: the operation, how it is asked for, how large, and the goal
OPERATIONS = {
    "uniform": [("a step and an item", "write", 1, WRITE), ("sample 32", "sample", 32, SAMPLE)],
    "prioritized": [
        ("a step and an item", "write", 1, WRITE),
        ("sample 32", "sample", 32, SAMPLE),
        ("update 256", "update", 256, Goal(40.0)),
    ],
}


def rows_of(kind: str, sides: Sequence[Side], rounds: int) -> list[Row]:
    """Measure a table of this kind, full, on each side in turns."""
    rows: list[Row] = []
    for operation, do, size, goal in OPERATIONS[kind]:
        workloads = {side.name: side.workload(do, size) for side in sides}
        seconds = measure(workloads, rounds=rounds, slot_seconds=SLOT_SECONDS)
        micros = {name: each * 1e6 for name, each in seconds.items()}
        rows.append(Row.of(f"{operation}, {kind}", "µs", micros, goal))
        print(" · ".join(rows[-1].cells()), flush=True)
    return rows


def memory_rows(kind: str, sides: Sequence[Side]) -> list[Row]:
    """Return what an item takes on each side; nothing where a system doesn't say."""
    figures = {side.name: np.array([side.bytes_per_item]) for side in sides}
    if not all(figures.values()):
        return []
    return [Row.of(f"memory of an item beside its step, {kind}", "bytes", figures, Goal(100.0))]


def text_of(spread: Spread | None) -> str:
    """Write a figure and its quartiles, or, of a single one, the figure alone."""
    single = spread is not None and spread.lower == spread.upper
    return figure(spread.median) if spread is not None and single else spread_text(spread)


def lines_of(rows: Sequence[Row]) -> list[str]:
    """Return the table."""
    heads = ["operation", "unit", OURS, REVERB, "times better", "goal", "met"]
    return table(heads, [row.cells() for row in rows], words=2)
