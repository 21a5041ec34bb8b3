"""`python -m replay_tutorial bench memory`: how many bytes a transition takes, in each layout.

Each layout is filled in a fresh process with Atari-like transitions, and the growth of that process's
resident memory is divided by their number. A transition is a stack of four 84 by 84 pictures, the next
stack, action, reward and done. Each step brings one new picture; an episode has 1,000 steps and begins with
its first picture four times. So 7,056 bytes of a transition are new, and 56,448 are what it shows. A layout
that would not fit into the machine's memory is measured with a tenth of the rows, or a hundredth, and the
table says so.
"""

import importlib.util
import itertools
import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.bench.peers.lineup import PEERS
from replay_tutorial.bench.peers.peer import OURS, Buffer, Kind
from replay_tutorial.measuring.fresh import run_fresh
from replay_tutorial.measuring.markdown import table
from replay_tutorial.measuring.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.measuring.provenance import Provenance
from replay_tutorial.measuring.system_memory import free_memory, peak_memory, resident_memory

FILL = """
import sys
from replay_tutorial.bench.memory import fill
fill(int(sys.argv[1]), int(sys.argv[2]))
"""
SIDE, STACK, EPISODE = 84, 4, 1000
PICTURE = SIDE * SIDE  # bytes
SHOWN = 2 * STACK * PICTURE  # bytes that a transition shows
ROOM = 0.8  # of the free memory: the rest of the machine needs some
TIMEOUT = 3600.0  # seconds for one layout

Picture = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    """One way to keep transitions."""

    library: str
    name: str
    pictures: int  # kept of a transition, roughly: to see whether it fits
    once: tuple[str, ...] = ()
    prioritized: bool = False
    shared: bool = False

    def make(self, capacity: int, rows: int) -> Buffer:
        """Make its buffer, and add rows one at a time."""
        entry, axis = PEERS[self.library], 0 if self.library == "tianshou" else -1
        kind = Kind(capacity, prioritized=self.prioritized, once=self.once, shared=self.shared)
        module = importlib.import_module(entry.package)
        buffer = entry.make(module, next(transitions(1, axis)), kind)
        for transition in transitions(rows, axis):
            add = buffer.adding(transition)
            assert add is not None
            add()
            if transition["done"] and hasattr(buffer.buffer, "on_episode_end"):
                buffer.buffer.on_episode_end()
        return buffer


NEXT_OF, STACKS, BOTH = ("next_of",), ("stack_compress",), ("next_of", "stack_compress")
LAYOUTS = (
    Layout(OURS, "plain", 8),
    Layout(OURS, "next_of", 5, NEXT_OF),
    Layout(OURS, "stack_compress", 2, STACKS),
    Layout(OURS, "next_of and stack_compress", 2, BOTH),
    Layout(OURS, "prioritized, both", 2, BOTH, prioritized=True),
    Layout(OURS, "many processes, both", 2, BOTH, shared=True),
    Layout(OURS, "many processes, plain", 8, shared=True),
    Layout("cpprb", "plain", 8),
    Layout("cpprb", "next_of", 4, NEXT_OF),
    Layout("cpprb", "stack_compress", 3, STACKS),
    Layout("cpprb", "next_of and stack_compress", 2, BOTH),
    Layout("Stable-Baselines3", "plain", 8),
    Layout("Stable-Baselines3", "optimize_memory_usage", 4, NEXT_OF),
    Layout("TorchRL", "LazyTensorStorage", 8),
    Layout("deque", "of tuples", 4),
    Layout("tianshou", "plain", 8),
    Layout("tianshou", "ignore_obs_next, save_only_last_obs", 1, BOTH),
)


def transitions(rows: int, axis: int) -> Iterator[dict[str, Any]]:
    """Yield transitions whose stacks slide by one new picture along an axis, in episodes of EPISODE steps."""
    rng, shown, obs = np.random.default_rng(0), deque[Picture](maxlen=STACK), np.zeros(0, np.uint8)

    def picture() -> Picture:
        return rng.integers(0, 256, (SIDE, SIDE), dtype=np.uint8)

    for step in range(rows):
        if step % EPISODE == 0:
            shown.extend([picture()] * STACK)
            obs = np.stack(shown, axis)
        shown.append(picture())
        next_obs, done = np.stack(shown, axis), np.float32((step + 1) % EPISODE == 0)
        yield {"obs": obs, "act": np.int64(1), "rew": np.float32(1.0), "next_obs": next_obs, "done": done}
        obs = next_obs


def fill(number: int, rows: int) -> None:
    """Make a buffer of `rows` rows, fill it, and print what that took, in bytes, as one line of JSON."""
    layout = LAYOUTS[number]
    # A small one first, so that what a library sets up once is there before the count begins.
    layout.make(100, 8)
    before = resident_memory()
    _kept = layout.make(rows, rows)
    print(json.dumps({"growth": resident_memory() - before, "peak": peak_memory()}, allow_nan=False))


@dataclass(frozen=True)
class Taken:
    """What one layout took."""

    library: str
    layout: str
    rows: int
    bytes_per_row: float
    peak: int  # bytes, of the whole process

    def cells(self) -> list[str]:
        """Return one row of the table."""
        smaller, peak = SHOWN / self.bytes_per_row, self.peak / 2**20
        figures = (f"{self.rows:,}", f"{self.bytes_per_row:,.0f}", f"{smaller:.2f}", f"{peak:,.0f}")
        return [self.library, self.layout, *figures]


def rows_that_fit(layout: Layout, rows: int, free: int | None) -> int:
    """Divide the rows by ten until they fit; not at all where the free memory is unknown, None."""
    while free is not None and rows * (layout.pictures * PICTURE) > ROOM * free and rows >= 10:
        rows //= 10
    return rows


def run(libraries: Sequence[str], rows: int) -> Iterator[Taken | str]:
    """Measure one layout after the other; a text says why one could not be measured."""
    for number, layout in enumerate(LAYOUTS):
        if layout.library not in libraries:
            continue
        if importlib.util.find_spec(PEERS[layout.library].package) is None:
            yield f"{layout.library}, {layout.name}: it is not installed"
            continue
        fitting = rows_that_fit(layout, rows, free_memory())
        try:
            taken = run_fresh(FILL, [str(number), str(fitting)], timeout=TIMEOUT)
        except RuntimeError as error:
            yield f"{layout.library}, {layout.name}: {error}"
        else:
            yield Taken(layout.library, layout.name, fitting, taken["growth"] / fitting, taken["peak"])


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run here or the table was not written, else 0."""
    parser = new_parser("memory", "Measure the memory that transitions take.")
    add_count(parser, "--rows", 20_000, "transitions")
    libraries = list(dict.fromkeys(layout.library for layout in LAYOUTS))
    parser.add_argument("--libraries", nargs="+", choices=libraries, default=libraries, help="only these")
    add_outputs(parser, "memory")
    arguments = parser.parse_args(argv)
    if not peak_memory():
        print("bench memory needs a system that shows a process's memory: Linux or macOS.", file=sys.stderr)
        return 1
    measured: list[Taken] = []
    skipped: list[str] = []
    for result in run(arguments.libraries, arguments.rows):
        if isinstance(result, Taken):
            measured.append(result)
            print(" · ".join(result.cells()), flush=True)
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
    named = (PEERS[library].distributions for library in arguments.libraries)
    provenance = Provenance.of("memory", argv, dict.fromkeys(itertools.chain.from_iterable(named)))
    body = {"rows": arguments.rows, "taken": measured, "skipped": skipped}
    lines = table(heads, [taken.cells() for taken in measured], words=2)
    return hand_over(arguments, "memory", provenance, body, lines, about)
