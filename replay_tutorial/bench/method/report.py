"""Writes a measurement down: as text while it runs, as JSON for machines, as Markdown for the README.

A figure without its machine, versions, command and spread can't be checked, so they travel in one record, and
the tables are only ever made from that record.

Left out: charts.
"""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.timing import Spread
from replay_tutorial.bench.one_process.buffers import Row
from replay_tutorial.bench.peers.lineup import CEILING, OURS

OPERATION_WIDTH = 54  # characters of the text table's first column


@dataclass(frozen=True)
class Report:
    """All that a reader needs to believe the figures, or to take them again."""

    benchmark: str
    provenance: Provenance
    capacity: int
    rounds: int
    row: str  # the fields of one row, in words
    skipped: dict[str, str]
    rows: list[Row]

    def to_json(self) -> str:
        """The whole record as JSON."""
        return json.dumps(asdict(self) | self.provenance._asdict(), indent=2, allow_nan=False) + "\n"

    def to_markdown(self) -> str:
        """The table, and below it how it came about."""
        peers = list(dict.fromkeys(name for row in self.rows for name in row.microseconds))
        others = [name for name in peers if name not in (OURS, CEILING)]
        heads = ["operation", *(f"{name}, µs" for name in peers), *(f"times faster than {n}" for n in others)]
        lines = [[*heads, "of the ceiling"], ["---", *["---:"] * len(heads)]]
        lines += [markdown_cells(row, peers, others) for row in self.rows]
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return f"{table}\n\n{self.about()}\n"

    def about(self) -> str:
        """One paragraph: how to read the figures, and where they come from."""
        skipped = "".join(f" Skipped: {name} ({why})." for name, why in self.skipped.items())
        return (
            f"Medians of {self.rounds} interleaved rounds, quartiles in brackets; ratios are taken inside each "
            f"round. Capacity {self.capacity:,}, full; {self.row}. The ceiling moves the same bytes by the "
            f"barest NumPy call: no drawing, no tree, no checks. Our `sample` shows the fields in place in rows, cpprb's "
            f"copies each to an array of its own; one row has ours copied, too. {self.provenance}{skipped}"
        )


def markdown_cells(row: Row, peers: Sequence[str], others: Sequence[str]) -> list[str]:
    """The cells of one row, empty where a peer can't do it; the ceiling's ratio is its share of our time."""
    times = [spread_text(row.microseconds.get(name)) for name in peers]
    ratios = [spread_text(row.ratios.get(name)) for name in others]
    return [row.operation, *times, *ratios, f"{row.ratios[CEILING].median:.0%}"]


def spread_text(spread: Spread | None) -> str:
    """Writes a median and its quartiles, as in `8.41 (8.30, 8.66)`; nothing of nothing."""
    if spread is None:
        return ""
    return f"{figure(spread.median)} ({figure(spread.lower)}, {figure(spread.upper)})"


def figure(value: float) -> str:
    """Writes three significant digits or whole numbers, never a power of ten, and no more than four decimals.

    Example:
        >>> figure(12345.6), figure(27.04), figure(0.0623)
        ('12,346', '27.0', '0.0623')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = 2 - math.floor(math.log10(max(abs(value), 0.01)))
    return f"{value:.{decimals}f}"


def heading_line(peers: Sequence[str]) -> str:
    """The head of the text table."""
    others = [name for name in peers if name not in (OURS, CEILING)]
    times = "".join(f"{name + ', µs':>24}" for name in peers)
    return (
        f"{'operation':<{OPERATION_WIDTH}}{times}"
        + "".join(f"{'times ' + n:>22}" for n in others)
        + f"{'ceiling':>9}"
    )


def text_line(row: Row, peers: Sequence[str]) -> str:
    """One row of the text table, with an empty place where a peer can't do it."""
    others = [name for name in peers if name not in (OURS, CEILING)]
    times = "".join(f"{spread_text(row.microseconds.get(name)):>24}" for name in peers)
    ratios = "".join(f"{spread_text(row.ratios.get(name)):>22}" for name in others)
    return f"{row.operation:<{OPERATION_WIDTH}}{times}{ratios}{row.ratios[CEILING].median:>9.0%}"


def put_table(path: Path | None, name: str, table: str) -> bool:
    """Put a table into a file, if one is asked for; says what is wrong, and tells whether all is well."""
    if path is not None:
        try:
            write_between_marks(path, name, table)
        except (OSError, ValueError) as error:
            print(f"the table was not written: {error}", file=sys.stderr)
            return False
    return True


def write_between_marks(path: Path, name: str, table: str) -> None:
    """Replaces what stands between the two marks of a name in a file; the rest stays as it is.

    Raises:
        ValueError: the file does not hold each mark once, in order.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition(begin)
    _, end_found, tail = rest.partition(end)
    if not end_found or text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(
            f"{path} must hold the marks {begin} and {end} once each, in this order; add them first."
        )
    path.write_text(f"{head}{begin}\n{table}{end}{tail}", encoding="utf-8")
