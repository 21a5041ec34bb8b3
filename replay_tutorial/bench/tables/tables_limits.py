"""Threads against a limiter: some write as fast as they may, one samples.

A limiter ties both sides together, so what is asked is whether it holds the ratio, whether both go on, and
how much of their time threads spend in waiting for the other side. In what is left of its seconds, a thread
works, or waits for the lock, for the interpreter, or for a core.

Left out: threads without a limiter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from replay_tutorial.bench.peers.peer import OURS
from replay_tutorial.bench.tables.tables_helper import LIMIT
from replay_tutorial.bench.tables.tables_sides import Side
from replay_tutorial.measuring.markdown import spread_text, table
from replay_tutorial.measuring.timing import Spread

WRITERS = (1, 2, 4)
MOST_OFF = 0.01  # that the ratio may be off
# In the record, and the heads of the table.
SHOWN = {
    "items": "items/s",
    "samples": "samples/s",
    "ratio": "samples / (8 · items)",
    "least": "slowest / fastest writer",
    "writers_waited": "of its seconds a writer waits",
    "sampler_waited": "and the sampler",
    "writers_longest": "longest call of a writer, ms",
    "sampler_longest": "and of the sampler",
}


@dataclass(frozen=True)
class Limited:
    """What one side reached with this many writers."""

    writers: int
    side: str
    figures: dict[str, Spread | None]  # as in SHOWN; None where nobody knows

    @property
    def holds(self) -> bool:
        """Whether the ratio is what it shall be."""
        ratio = self.figures["ratio"]
        return ratio is not None and abs(ratio.median - 1.0) <= MOST_OFF

    def cells(self) -> list[str]:
        """Return a line of the table."""
        return [f"{self.writers}", self.side, *(spread_text(self.figures[name]) for name in SHOWN)]


def limited_by(sides: Sequence[Side], rounds: int, seconds: float) -> list[Limited]:
    """Measure each number of writers, the sides in turns."""
    measured: list[Limited] = []
    for writers in WRITERS:
        slots = [
            [side.ask("limited", writers=writers, seconds=seconds) for side in sides] for _ in range(rounds)
        ]
        for place, side in enumerate(sides):
            answers = [slot[place] for slot in slots]
            figures = {
                name: None
                if answers[0][name] is None
                else Spread.of(np.array([answer[name] for answer in answers]))
                for name in SHOWN
            }
            measured.append(Limited(writers, side.name, figures))
            print(" · ".join(measured[-1].cells()), flush=True)
    return measured


def verdict(limited: Sequence[Limited]) -> str:
    """Say whether our limiter holds its ratio."""
    ours = [each for each in limited if each.side == OURS]
    wrong = [each for each in ours if not each.holds]
    numbers = ", ".join(f"{each.writers}" for each in wrong or ours)
    held = f"off by more than {MOST_OFF:.0%}" if wrong else f"within {MOST_OFF:.0%}"
    return (
        f"Threads against a limiter of {LIMIT[0]:g} samples per insert: the ratio of ours is {held} with "
        f"{numbers} writers."
    )


def lines_of(measured: Sequence[Limited]) -> list[str]:
    """Return the table."""
    return table(["writers", "side", *SHOWN.values()], [each.cells() for each in measured], words=2)
