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
from replay_tutorial.measuring.timing import Spread, Workload, measure

ROUNDS = 15
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


HEADS = ["rung", "what it fixes", "lines"]


def cell_of(spread: Spread, source: str) -> str:
    """Write a median, and on a page of the site its quartiles."""
    return spread_text(spread) if source else figure(spread.median)


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
        microseconds: Rung's name → operation → µs per call, with its spread.
        ceiling: Operation → µs of the barest call; empty if there is none.
    """

    def __init__(self, rungs: Sequence[Rung], times: Mapping[tuple[str, str], Spread]) -> None:
        """Take the rungs, and (name, operation) → µs; the ceiling has the name ""."""
        self.rungs, self.operations = rungs, list(dict.fromkeys(operation for _, operation in times))
        self.ceiling = {operation: spread for (name, operation), spread in times.items() if not name}
        self.microseconds = {
            rung.kind.__name__: {
                operation: times[rung.kind.__name__, operation] for operation in self.operations
            }
            for rung in rungs
        }

    def medians(self, operation: str) -> dict[str, float]:
        """Return the median µs of an operation: rung's name → µs."""
        return {name: spreads[operation].median for name, spreads in self.microseconds.items()}

    def __repr__(self) -> str:
        return self._repr_markdown_()

    def _repr_markdown_(self) -> str:
        return "\n".join(self.table())

    def share(self, rung: Rung, operation: str) -> str:
        """Return the ceiling's median over the rung's, as a table has it."""
        return share_text(
            self.ceiling[operation].median / self.microseconds[rung.kind.__name__][operation].median
        )

    def table(self, source: str = "") -> list[str]:
        """Return the lines of the table.

        Args:
            source: From a page of the site to its pages of source; the rungs are then linked, and the
                quartiles stand behind the medians.
        """
        names = [*HEADS]
        for operation in self.operations:
            names += [f"{operation}, µs", *(["of the ceiling"] if self.ceiling else [])]
        rows: list[list[str]] = []
        for rung in self.rungs:
            rows.append(rung.cells(source))
            for operation, spread in self.microseconds[rung.kind.__name__].items():
                rows[-1] += [
                    cell_of(spread, source),
                    *([self.share(rung, operation)] if self.ceiling else []),
                ]
        if self.ceiling:
            bare = [cell for spread in self.ceiling.values() for cell in (cell_of(spread, source), "")]
            rows.append(["*ceiling*", "", "", *bare])
        return table(names, rows, words=2)


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
