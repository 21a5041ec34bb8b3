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

from replay_tutorial.bench.method.markdown import figure, table
from replay_tutorial.bench.method.timing import Spread, Workload, measure

ROUNDS = 15


class Rung(NamedTuple):
    """One version in a ladder.

    Attributes:
        kind: Its class.
        fixes: What it does better than the one before, in a few words.
    """

    kind: Any
    fixes: str

    @property
    def lines(self) -> int:
        """The lines of the file that it stands in."""
        path = inspect.getsourcefile(self.kind)
        return len(Path(path).read_text(encoding="utf-8").splitlines()) if path else 0


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
        heads = ["rung", "what it fixes", "lines"]
        for operation in self.operations:
            heads += [f"{operation}, µs", *(["of the ceiling"] if self.ceiling else [])]
        rows: list[list[str]] = []
        for rung in self.rungs:
            row = [f"`{rung.kind.__name__}`", rung.fixes, str(rung.lines)]
            for operation, spread in self.microseconds[rung.kind.__name__].items():
                row.append(figure(spread.median))
                if self.ceiling:
                    share = self.ceiling[operation].median / spread.median
                    row.append(f"{share:.1%}" if share < 0.1 else f"{share:.0%}")
            rows.append(row)
        if not self.ceiling:
            return "\n".join(table(heads, rows, words=2))
        bare = ["*ceiling*", "", ""]
        for spread in self.ceiling.values():
            bare += [figure(spread.median), ""]
        return "\n".join(table(heads, [*rows, bare], words=2))


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
