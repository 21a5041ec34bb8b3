"""Measured ladders: all versions of a component in one table, up to the package's own.

Each row has the number of lines, what the version fixes, and the time of each operation. The ceiling is the
simplest call that moves the same bytes; if there is one, each row also has its share of the ceiling. All
versions are measured in interleaved rounds, as in the benchmarks.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replay_course.number_tables import spread_text, table, three_digits
from replay_course.timing import Spread, Workload, calls_that_fill, measure, seconds_for

ROUNDS = 15
SLOTS, SLOT_SECONDS = 5, 0.01
ROOT = Path(__file__).parents[1]


class Rung(NamedTuple):
    """One version in a ladder.

    Attributes:
        kind: Class of the version.
        fixes: The flaw of its predecessor that it fixes, in a few words.
    """

    kind: Any
    fixes: str

    @property
    def file(self) -> Path:
        """Path of the source file."""
        return Path(inspect.getfile(self.kind))

    @property
    def lines(self) -> int:
        """Number of lines of the source file."""
        return len(self.file.read_text(encoding="utf-8").splitlines())

    def cells(self, source: str) -> list[str]:
        """Return name, fixes and lines; `source` is the relative URL of the source pages, "" for no link."""
        name = f"`{self.kind.__name__}`"
        if source:
            name = f"[{name}]({source}/{self.file.relative_to(ROOT).with_suffix('.md').as_posix()})"
        return [name, self.fixes, str(self.lines)]


def share_text(share: float) -> str:
    """Format a share of the ceiling.

    Example:
        >>> share_text(0.824), share_text(0.0213), share_text(0.00002)
        ('82%', '2.1%', '<0.1%')
    """
    if share < 0.001:
        return "<0.1%"
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


@dataclass(frozen=True)
class Ladder:
    """A measured ladder, which a notebook displays as a table.

    Attributes:
        rungs: The versions, in order.
        figures: Rung name → operation → measured value with its spread.
        ceiling: Operation → measured value of the ceiling; empty without a ceiling.
        unit: Unit of the values: "µs", where lower is better, or "per second", where higher is better.
    """

    rungs: Sequence[Rung]
    figures: Mapping[str, Mapping[str, Spread]]
    ceiling: Mapping[str, Spread]
    unit: str = "µs"

    def spreads(self, operation: str) -> dict[str, Spread]:
        """Return the measured values of an operation for each rung, by name."""
        return {name: spreads[operation] for name, spreads in self.figures.items()}

    def medians(self, operation: str) -> dict[str, float]:
        """Return the median of an operation for each rung: name → value."""
        return {name: spread.median for name, spread in self.spreads(operation).items()}

    def __repr__(self) -> str:
        return self._repr_markdown_()

    def _repr_markdown_(self) -> str:
        return "\n".join(self.table())

    def share(self, rung: Rung, operation: str) -> str:
        """Return the formatted share of the ceiling that a rung reaches."""
        own, top = self.figures[rung.kind.__name__][operation].median, self.ceiling[operation].median
        return share_text(top / own if self.unit == "µs" else own / top)

    def table(self, source: str = "") -> list[str]:
        """Return the lines of the table.

        Args:
            source: Relative URL of the site's source pages; if given, the names of the rungs are links, and
                the quartiles follow the medians.
        """

        def cell(spread: Spread) -> str:
            return spread_text(spread) if source else three_digits(spread.median)

        comma = "," if self.unit == "µs" else ""
        heads = ["rung", "what it fixes", "lines"]
        for operation in next(iter(self.figures.values())):
            heads += [f"{operation}{comma} {self.unit}", *(["of the ceiling"] if self.ceiling else [])]
        rows: list[list[str]] = []
        for rung in self.rungs:
            rows.append(rung.cells(source))
            for operation, spread in self.figures[rung.kind.__name__].items():
                rows[-1] += [cell(spread), *([self.share(rung, operation)] if self.ceiling else [])]
        if self.ceiling:
            bare = [text for spread in self.ceiling.values() for text in (cell(spread), "")]
            rows.append(["*ceiling*", "", "", *bare])
        return table(heads, rows, words=2)


def measure_ladder(
    rungs: Sequence[Rung],
    workloads_of: Callable[[Any], Mapping[str, Workload]],
    ceiling: Mapping[str, Workload],
    rounds: int = ROUNDS,
) -> Ladder:
    """Measure all rungs and the ceiling in interleaved rounds.

    Args:
        rungs: The versions, in order.
        workloads_of: Creates an instance of a class and returns its operations, keyed by name.
        ceiling: The ceiling of each operation; may be empty.
        rounds: Number of rounds.
    """
    works = {rung.kind.__name__: workloads_of(rung.kind) for rung in rungs} | {"ceiling": ceiling}
    named = {f"{name}: {each}": work for name, calls in works.items() for each, work in calls.items()}
    seconds = measure(named, rounds=rounds)
    figures = {
        name: {each: Spread.of(seconds[f"{name}: {each}"] * 1e6) for each in calls}
        for name, calls in works.items()
    }
    ceilings = figures.pop("ceiling")
    return Ladder(rungs, figures, ceilings)


def microseconds(call: Workload) -> float:
    """Return the duration of a call in µs, as the minimum of five repetitions of 10 ms.

    Longer repetitions were delayed by other processes. To compare two calls, measure them in interleaved
    rounds, as `measure_ladder` does.
    """
    calls = calls_that_fill(call, SLOT_SECONDS)
    return min(seconds_for(call, calls) for _ in range(SLOTS)) / calls * 1e6


def times_as_long(call: Workload, other: Workload) -> float:
    """Return how many times as long a call takes as another, as the median of interleaved rounds."""
    seconds = measure({"call": call, "other": other}, rounds=41, slot_seconds=0.001)
    return float(np.median(seconds["call"] / seconds["other"]))
