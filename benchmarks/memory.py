"""`python -m benchmarks memory`: memory per transition for several buffer layouts.

Each layout is filled with Atari-like transitions in a new process; the growth of its resident memory is
divided by the number of rows. A transition holds two stacks of four 84 × 84 images (56,448 bytes), action,
reward and done; one image (7,056 bytes) is new in each step. Episodes have 1,000 steps.
"""

import itertools
import json
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measuring.fresh import run_fresh
from benchmarks.measuring.output import add_count, add_outputs, new_parser, write_results
from benchmarks.measuring.process_memory import peak_memory, resident_memory
from benchmarks.measuring.provenance import Provenance
from benchmarks.peers.buffer import OURS, Buffer, Kind
from benchmarks.peers.lineup import PEERS
from replay_course.number_tables import table

FILL = """
import sys
from benchmarks.memory import fill
fill(int(sys.argv[1]), int(sys.argv[2]))
"""
SIDE, STACK, EPISODE = 84, 4, 1000
PICTURE = SIDE * SIDE  # bytes of an image
SHOWN = 2 * STACK * PICTURE  # bytes of a transition's images
TIMEOUT = 3600.0  # seconds for one layout
HEADS = ("library", "layout", "bytes per row", "compression", "peak, MiB")

Picture = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    """A library's buffer with certain options."""

    library: str
    name: str
    once: tuple[str, ...] = ()
    prioritized: bool = False
    shared: bool = False

    def make(self, capacity: int, rows: int) -> Buffer:
        """Create the buffer, and add `rows` transitions one at a time."""
        entry, axis = PEERS[self.library], 0 if self.library == "tianshou" else -1
        kind = Kind(capacity, prioritized=self.prioritized, once=self.once, shared=self.shared)
        buffer = entry.make(next(transitions(1, axis)), kind)
        for transition in transitions(rows, axis):
            add = buffer.adding(transition)
            assert add is not None
            add()
            if transition["done"]:
                ours = getattr(buffer.buffer, "end_episode", None)
                end = ours or getattr(buffer.buffer, "on_episode_end", None)
                if end is not None:
                    end()
        return buffer


NEXT, FRAMES, BOTH = ("dedupe_next",), ("dedupe_frames",), ("dedupe_next", "dedupe_frames")
LAYOUTS = (
    Layout(OURS, "plain"),
    Layout(OURS, "dedupe_next", NEXT),
    Layout(OURS, "dedupe_frames", FRAMES),
    Layout(OURS, "dedupe_next and dedupe_frames", BOTH),
    Layout(OURS, "prioritized, both", BOTH, prioritized=True),
    Layout(OURS, "many processes, both", BOTH, shared=True),
    Layout(OURS, "many processes, plain", shared=True),
    Layout("cpprb", "plain"),
    Layout("cpprb", "dedupe_next", NEXT),
    Layout("cpprb", "dedupe_frames", FRAMES),
    Layout("cpprb", "dedupe_next and dedupe_frames", BOTH),
    Layout("Stable-Baselines3", "plain"),
    Layout("Stable-Baselines3", "optimize_memory_usage", NEXT),
    Layout("TorchRL", "LazyTensorStorage"),
    Layout("deque", "of tuples"),
    Layout("tianshou", "plain"),
    Layout("tianshou", "ignore_obs_next, save_only_last_obs", BOTH),
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


def cells_of(taken: Mapping[str, Any]) -> list[str]:
    """Return a layout's row of the table."""
    smaller, peak = SHOWN / taken["bytes_per_row"], taken["peak"] / 2**20
    texts = f"{taken['bytes_per_row']:,.0f}", f"{smaller:.2f}", f"{peak:,.0f}"
    return [taken["library"], taken["layout"], *texts]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run on this system or can't write the table, else 0."""
    parser = new_parser("memory", "Measure the memory per transition for several buffer layouts.")
    # Fewer rows can fit into the memory that the small buffer of `fill` has freed, so that nothing grows.
    add_count(parser, "--rows", 20_000, "transitions per layout; 100,000 take up to 6 GB", 1_000)
    add_outputs(parser, "memory")
    arguments = parser.parse_args(argv)
    if not peak_memory():
        print("memory can't read a process's memory here; run it on Linux or macOS", file=sys.stderr)
        return 1
    rows: int = arguments.rows
    measured: list[dict[str, Any]] = []  # `peak` is the resident memory of the whole process in bytes
    skipped: list[str] = []
    for number, layout in enumerate(LAYOUTS):
        try:
            taken = run_fresh("-c", FILL, str(number), str(rows), timeout=TIMEOUT)
        except RuntimeError as error:  # for example because the library isn't installed
            skipped.append(f"{layout.library}, {layout.name}: {error}")
            print(f"skipped {skipped[-1]}", flush=True)
            continue
        named = {"library": layout.library, "layout": layout.name}
        measured.append({**named, "bytes_per_row": taken["growth"] / rows, "peak": taken["peak"]})
        print(" · ".join(cells_of(measured[-1])), flush=True)
    packages = (PEERS[each["library"]].distributions for each in measured)
    provenance = Provenance.of("memory", argv, dict.fromkeys(itertools.chain.from_iterable(packages)))
    body = {"rows": rows, "taken": measured, "skipped": skipped}
    lines = table(HEADS, [cells_of(each) for each in measured], words=2)
    return write_results(arguments, "memory", provenance, body, lines, how_measured(rows, skipped))


def how_measured(rows: int, skipped: Sequence[str]) -> str:
    """Return the caption of the table."""
    return (
        f"{rows:,} Atari-like transitions with {SHOWN:,} bytes of images, {PICTURE:,} of them new, added one "
        "at a time in a new process. Bytes per row: growth of the process's resident memory while the buffer "
        "is created and filled, divided by the rows. Compression: bytes of a transition's images, divided by "
        "the bytes per row. Peak: resident memory of the whole process, including the library."
        + "".join(f" Skipped: {reason}." for reason in skipped)
    )
