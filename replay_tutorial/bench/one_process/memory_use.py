"""`python -m replay_tutorial bench memory`: how many bytes a transition takes, in each layout.

Each layout is filled in a fresh process with Atari-like transitions (`memory_layouts`), and the growth of
that process's resident memory is divided by their number. A layout that would not fit into the machine's
memory is measured with a tenth of the rows, or a hundredth, and the table says so.

Left out: memory on a GPU.
"""

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replay_tutorial.bench.method.fresh import run_fresh
from replay_tutorial.bench.method.markdown import table
from replay_tutorial.bench.method.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.system_memory import free_memory, peak_memory
from replay_tutorial.bench.one_process.memory_layouts import LAYOUTS, PICTURE, STACK, Layout

FILL = """
import sys
from replay_tutorial.bench.one_process.memory_layouts import fill
fill(int(sys.argv[1]), int(sys.argv[2]))
"""
ROOM = 0.8  # of the free memory: the rest of the machine needs some
TIMEOUT = 3600.0  # seconds for one layout
SHOWN = 2 * STACK * PICTURE  # bytes that a transition shows


@dataclass(frozen=True)
class Taken:
    """What one layout took."""

    library: str
    layout: str
    rows: int
    bytes_per_row: float
    peak: int  # bytes, of the whole process


def rows_that_fit(layout: Layout, rows: int, free: int | None) -> int:
    """Divide the rows by ten until they fit; not at all where `free` is None, because nobody knows."""
    while free is not None and rows * (layout.pictures * PICTURE) > ROOM * free and rows >= 10:
        rows //= 10
    return rows


def run(layouts: Sequence[Layout], rows: int) -> Iterator[Taken | str]:
    """Measure one layout after the other; a text says why one could not be measured."""
    for number, layout in enumerate(LAYOUTS):
        if layout not in layouts:
            continue
        if importlib.util.find_spec(layout.package) is None:
            yield f"{layout.library}, {layout.name}: it is not installed"
            continue
        fitting = rows_that_fit(layout, rows, free_memory())
        try:
            taken = run_fresh(FILL, [str(number), str(fitting)], timeout=TIMEOUT)
        except RuntimeError as error:
            yield f"{layout.library}, {layout.name}: {error}"
        else:
            yield Taken(layout.library, layout.name, fitting, taken["growth"] / fitting, taken["peak"])


def cells(taken: Taken) -> list[str]:
    """Return one row of the table."""
    return [
        taken.library,
        taken.layout,
        f"{taken.rows:,}",
        f"{taken.bytes_per_row:,.0f}",
        f"{SHOWN / taken.bytes_per_row:.2f}",
        f"{taken.peak / 2**20:,.0f}",
    ]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run here or the table was not written, else 0."""
    parser = new_parser("memory", "Measure the memory that transitions take.")
    add_count(parser, "--rows", 20_000, "transitions")
    libraries = sorted({layout.library for layout in LAYOUTS})
    parser.add_argument("--libraries", nargs="+", choices=libraries, default=libraries, help="only these")
    add_outputs(parser, "memory")
    arguments = parser.parse_args(argv)
    if not peak_memory():
        print("bench memory needs a system that shows a process's memory: Linux or macOS.", file=sys.stderr)
        return 1
    chosen = [layout for layout in LAYOUTS if layout.library in arguments.libraries]
    measured: list[Taken] = []
    skipped: list[str] = []
    for result in run(chosen, arguments.rows):
        if isinstance(result, Taken):
            measured.append(result)
            print(" · ".join(cells(result)), flush=True)
        else:
            skipped.append(result)
            print(f"skipped {result}", flush=True)
    heads = ["library", "layout", "rows", "bytes per row", "times smaller than shown", "peak, MiB"]
    about = (
        f"Atari-like transitions, which show {SHOWN:,} bytes of pictures and bring {PICTURE:,} new ones, "
        "added one by one in a fresh process. Bytes per row: growth of its resident memory while the buffer "
        "is made and filled, divided by the rows; peak: of the whole process, with the library."
        + "".join(f" Skipped: {reason}." for reason in skipped)
    )
    packages = dict.fromkeys(layout.package for layout in chosen if layout.library not in ("ours", "deque"))
    provenance = Provenance.of("memory", argv, packages)
    body = {"rows": arguments.rows, "taken": measured, "skipped": skipped}
    lines = table(heads, [cells(taken) for taken in measured], words=2)
    return hand_over(arguments, "memory", provenance, body, lines, about)
