"""The table of a ladder: rungs from the first to the package's own, measured in one run, beside a ceiling.

A rung has its lines, what it fixes of the one before, and for each operation the microseconds. Where a
ceiling is given, the barest call that moves the same bytes, each rung has its share of it, too. All rungs
take turns, as in the benchmarks.

Left out: which rungs there are (`ladder_…`).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from replay_tutorial.measuring.markdown import figure, spread_text, table
from replay_tutorial.measuring.timing import Spread, Workload, calls_that_fill, measure, seconds_for

ROUNDS = 15
SLOTS, SLOT_SECONDS = 5, 0.01
PACKAGE = Path(__file__).parents[1]


class Rung(NamedTuple):
    """One version in a ladder.

    Attributes:
        kind: Its class.
        fixes: What it does better than the one before, in a few words.
    """

    kind: Any
    fixes: str

    @property
    def file(self) -> Path:
        """The file that it stands in."""
        return Path(inspect.getfile(self.kind))

    @property
    def lines(self) -> int:
        """The lines of that file."""
        return len(self.file.read_text(encoding="utf-8").splitlines())

    def cells(self, source: str) -> list[str]:
        """Return the first cells of its row; `source` leads to the site's pages of source, "" to none."""
        name = f"`{self.kind.__name__}`"
        if source:
            name = f"[{name}]({source}/{self.file.relative_to(PACKAGE).with_suffix('.md').as_posix()})"
        return [name, self.fixes, str(self.lines)]


def share_text(share: float) -> str:
    """Write a share of the ceiling.

    Example:
        >>> share_text(0.824), share_text(0.0213), share_text(0.00002)
        ('82%', '2.1%', '<0.1%')
    """
    if share < 0.001:
        return "<0.1%"
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


class Ladder:
    """A measured ladder, which a notebook shows as a table.

    Attributes:
        figures: Rung's name → operation → its figure, with its spread.
        ceiling: Operation → the figure of the barest call; empty if there is none.
        unit: Of the figures: "µs", of which a better rung needs fewer, or "per second".
    """

    def __init__(
        self, rungs: Sequence[Rung], figures: Mapping[tuple[str, str], Spread], unit: str = "µs"
    ) -> None:
        """Take the rungs, and (name, operation) → figure; the ceiling has the name ""."""
        self.rungs, self.unit = rungs, unit
        self.ceiling = {operation: spread for (name, operation), spread in figures.items() if not name}
        self.figures: dict[str, dict[str, Spread]] = {rung.kind.__name__: {} for rung in rungs}
        for (name, operation), spread in figures.items():
            if name:
                self.figures[name][operation] = spread

    def medians(self, operation: str) -> dict[str, float]:
        """Return the median figures of an operation: rung's name → figure."""
        return {name: spreads[operation].median for name, spreads in self.figures.items()}

    def __repr__(self) -> str:
        return self._repr_markdown_()

    def _repr_markdown_(self) -> str:
        return "\n".join(self.table())

    def share(self, rung: Rung, operation: str) -> str:
        """Return how much of the ceiling a rung reaches, as a table has it."""
        own, top = self.figures[rung.kind.__name__][operation].median, self.ceiling[operation].median
        return share_text(top / own if self.unit == "µs" else own / top)

    def table(self, source: str = "") -> list[str]:
        """Return the lines of the table.

        Args:
            source: From a page of the site to its pages of source; the rungs are then linked, and the
                quartiles stand behind the medians.
        """

        def cell(spread: Spread) -> str:
            return spread_text(spread) if source else figure(spread.median)

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
    """Measure all rungs and the ceiling in turns.

    Args:
        rungs: From the first to the last.
        workloads_of: Makes one of a kind, and returns its operations by name.
        ceiling: The barest call for each operation, or nothing.
        rounds: Slots of each.
    """
    workloads = {("", operation): workload for operation, workload in ceiling.items()}
    for rung in rungs:
        for operation, workload in workloads_of(rung.kind).items():
            workloads[rung.kind.__name__, operation] = workload
    keys = {f"{name}: {operation}": (name, operation) for name, operation in workloads}
    seconds = measure({text: workloads[key] for text, key in keys.items()}, rounds=rounds)
    return Ladder(rungs, {key: Spread.of(seconds[text] * 1e6) for text, key in keys.items()})


def microseconds(call: Workload) -> float:
    """Return the microseconds of one call, made as often as it fits into five slots of 10 ms.

    It is the shortest of the slots: what is longer was somebody else's work. Two things are compared in
    turns, as a ladder is, and not by this.
    """
    calls = calls_that_fill(call, SLOT_SECONDS)
    return min(seconds_for(call, calls) for _ in range(SLOTS)) / calls * 1e6
