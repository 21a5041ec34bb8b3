"""`python -m replay_tutorial bench memory`: memory per transition for several buffer layouts.

Each layout is filled with Atari-like transitions in a new process; the growth of its resident memory is
divided by the number of rows. A transition holds two stacks of four 84 × 84 images (56,448 bytes), action,
reward and done; one image (7,056 bytes) is new in each step. Episodes have 1,000 steps. If a layout wouldn't
fit into the free memory, the number of rows is divided by 10 until it does.
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
from replay_tutorial.measuring.output import add_count, add_outputs, new_parser, write_results
from replay_tutorial.measuring.provenance import Provenance
from replay_tutorial.measuring.system_memory import peak_memory, resident_memory
from replay_tutorial.shared.memory import free_memory

FILL = """
import sys
from replay_tutorial.bench.memory import fill
fill(int(sys.argv[1]), int(sys.argv[2]))
"""
SIDE, STACK, EPISODE = 84, 4, 1000
PICTURE = SIDE * SIDE  # bytes of an image
SHOWN = 2 * STACK * PICTURE  # bytes of a transition's images
ROOM = 0.8  # fraction of the free memory to use
TIMEOUT = 3600.0  # seconds for one layout
HEADS = ("library", "layout", "rows", "bytes per row", "compression", "peak, MiB")

Picture = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    """A library's buffer with certain options."""

    library: str
    name: str
    pictures: int  # approximate number of images stored per transition, to estimate the memory
    once: tuple[str, ...] = ()
    prioritized: bool = False
    shared: bool = False

    def make(self, capacity: int, rows: int) -> Buffer:
        """Create the buffer, and add `rows` transitions one at a time."""
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
    """Yield transitions in episodes of `EPISODE` steps, whose frame stacks along `axis` move by one image."""
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
    """Create and fill a buffer of `rows` rows, and print its memory in bytes as one line of JSON."""
    layout = LAYOUTS[number]
    # Create a small buffer first, so that one-time allocations of the library aren't counted.
    layout.make(100, 8)
    before = resident_memory()
    _kept = layout.make(rows, rows)
    print(json.dumps({"growth": resident_memory() - before, "peak": peak_memory()}, allow_nan=False))


@dataclass(frozen=True)
class LayoutMemory:
    """The memory of one layout."""

    library: str
    layout: str
    rows: int
    bytes_per_row: float
    peak: int  # resident bytes of the whole process

    def cells(self) -> list[str]:
        """Return the layout's row of the table."""
        smaller, peak = SHOWN / self.bytes_per_row, self.peak / 2**20
        figures = (f"{self.rows:,}", f"{self.bytes_per_row:,.0f}", f"{smaller:.2f}", f"{peak:,.0f}")
        return [self.library, self.layout, *figures]


def rows_that_fit(layout: Layout, rows: int, free: int | None) -> int:
    """Return `rows`, divided by 10 until the layout fits into `free` bytes; None if that is unknown."""
    while free is not None and rows * (layout.pictures * PICTURE) > ROOM * free and rows >= 10:
        rows //= 10
    return rows


def measure(number: int, rows: int) -> LayoutMemory:
    """Measure a layout in a new process.

    Raises:
        RuntimeError: If the library isn't installed, or the process fails.
    """
    layout = LAYOUTS[number]
    if importlib.util.find_spec(PEERS[layout.library].package) is None:
        raise RuntimeError("not installed")
    fitting = rows_that_fit(layout, rows, free_memory())
    taken = run_fresh(FILL, [str(number), str(fitting)], timeout=TIMEOUT)
    return LayoutMemory(layout.library, layout.name, fitting, taken["growth"] / fitting, taken["peak"])


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run on this system or can't write the table, else 0."""
    parser = new_parser("memory", "Measure the memory per transition for several buffer layouts.")
    add_count(parser, "--rows", 20_000, "transitions per layout")
    add_outputs(parser, "memory")
    arguments = parser.parse_args(argv)
    if not peak_memory():
        print("bench memory can't read a process's memory here; run it on Linux or macOS", file=sys.stderr)
        return 1
    measured: list[LayoutMemory] = []
    skipped: list[str] = []
    for number, layout in enumerate(LAYOUTS):
        try:
            measured.append(measure(number, arguments.rows))
            print(" · ".join(measured[-1].cells()), flush=True)
        except RuntimeError as error:
            skipped.append(f"{layout.library}, {layout.name}: {error}")
            print(f"skipped {skipped[-1]}", flush=True)
    named = (PEERS[layout.library].distributions for layout in LAYOUTS)
    provenance = Provenance.of("memory", argv, dict.fromkeys(itertools.chain.from_iterable(named)))
    body = {"rows": arguments.rows, "taken": measured, "skipped": skipped}
    lines = table(HEADS, [layout.cells() for layout in measured], words=2)
    return write_results(arguments, "memory", provenance, body, lines, how_measured(skipped))


def how_measured(skipped: Sequence[str]) -> str:
    """Return the caption of the table."""
    return (
        f"Atari-like transitions with {SHOWN:,} bytes of images, {PICTURE:,} of them new, added one at a "
        "time in a new process. Bytes per row: growth of the process's resident memory while the buffer is "
        "created and filled, divided by the rows. Compression: bytes of a transition's images, divided by "
        "the bytes per row. Peak: resident memory of the whole process, including the library."
        + "".join(f" Skipped: {reason}." for reason in skipped)
    )
