"""`python -m benchmarks shared`: a learner samples while explorer processes add rows.

Measures learner steps per second and explorer rows per second for several routes: our shared buffer, cpprb's,
ours under a single lock (to show what the lock costs), a `multiprocessing.Queue` and a `multiprocessing`
manager. In every round, each route runs for a short slot with new processes and a new buffer. A slot that
doesn't end in time counts as hung, and its processes are killed.

The last line compares the `add` of 100 rows to shared memory with `add` to a buffer of one process. The
learner does no work between two steps, because that would hide differences between the routes.
"""

import argparse
import contextlib
import importlib.util
import math
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from benchmarks.measuring import output
from benchmarks.measuring.provenance import Provenance
from benchmarks.peers.buffer import OURS
from replay_course.number_tables import spread_text, table
from replay_course.timing import FloatArray, Spread, measure
from replay_tutorial.buffers.prioritized import PrioritizedReplayBuffer
from replay_tutorial.buffers.uniform import ReplayBuffer
from replay_tutorial.shared.mp_prioritized import MPPrioritizedReplayBuffer
from replay_tutorial.shared.mp_uniform import MPReplayBuffer

# field → shape; float32, 44 bytes per row
FIELDS = {"obs": 4, "act": 1, "rew": 1, "next_obs": 4, "done": 1}
CHUNK, BATCH = 100, 64
QUEUE_CHUNKS = 64  # maximum length of the queue
CHUNKS_PER_STEP = 16  # maximum number of chunks that the learner moves to its buffer before a step
EXPLORERS = (1, 2, 4)
# rows added before the explorers start: cpprb hangs if it is sampled before its first rows are complete
FILLED = 20_000
WARM_UP = 0.5  # seconds
HANG_SECONDS = 30.0  # after the end of the slot

Chunk = Mapping[str, Any]
context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None)


def specs() -> dict[str, Any]:
    """Return the declaration of the fields; a new one in every call, because cpprb modifies its argument."""
    return {name: {"shape": shape} for name, shape in FIELDS.items()}


def random_chunk(rng: np.random.Generator) -> dict[str, Any]:
    """Return random rows with priorities."""
    rows = {name: rng.random((CHUNK, shape), dtype=np.float32) for name, shape in FIELDS.items()}
    return rows | {"priorities": rng.exponential(size=CHUNK).astype(np.float32)}


class Route:
    """A route from explorers to a learner; the base class uses one buffer shared by all processes."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def add(self, chunk: Chunk) -> None:
        """Add a chunk; called by explorers."""
        self.buffer.add(**chunk)

    def step(self, priorities: FloatArray) -> None:
        """Sample a batch and update its priorities; called by the learner."""
        self.buffer.update_priorities(self.buffer.sample(BATCH)["indexes"], priorities)


class Locked:
    """A buffer whose calls hold a lock."""

    def __init__(self, buffer: Any, lock: Any) -> None:
        def locked(call: Callable[..., Any]) -> Callable[..., Any]:
            def under_lock(*arguments: Any, **named: Any) -> Any:
                with lock:
                    return call(*arguments, **named)

            return under_lock

        self.add, self.sample = locked(buffer.add), locked(buffer.sample)
        self.update_priorities = locked(buffer.update_priorities)


class Queued(Route):
    """A private buffer of the learner; explorers send chunks through a queue."""

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self.owner = multiprocessing.current_process().pid
        self.chunks: Any = context.Queue(QUEUE_CHUNKS)

    def add(self, chunk: Chunk) -> None:
        """Put a chunk into the queue, or add it directly in the learner's process."""
        if multiprocessing.current_process().pid == self.owner:
            self.buffer.add(**chunk)
        else:
            self.chunks.put(chunk)

    def step(self, priorities: FloatArray) -> None:
        """Add up to `CHUNKS_PER_STEP` queued chunks, then sample and update."""
        for _ in range(CHUNKS_PER_STEP):
            try:
                self.buffer.add(**self.chunks.get_nowait())
            except queue.Empty:
                break
        super().step(priorities)


class Managed(Route):
    """A proxy of a buffer in a manager process, which serves each client in a separate thread."""

    def __init__(self, capacity: int) -> None:
        self.manager: Any = BufferManager(ctx=context)  # kept alive for the proxy
        self.manager.start()
        super().__init__(self.manager.buffer(capacity))


def shared_buffer(capacity: int, package: str = "replay_tutorial") -> Any:
    """Return the multi-process buffer of a package; ours and cpprb's have the same name."""
    return importlib.import_module(package).MPPrioritizedReplayBuffer(capacity, specs())


class BufferManager(BaseManager):
    """A manager that serves a buffer under a lock."""


def guarded(capacity: int) -> Locked:
    """Return our single-process buffer under a lock, for the threads of a manager."""
    return Locked(PrioritizedReplayBuffer(capacity, specs()), threading.Lock())


BufferManager.register("buffer", guarded)

ROUTES: dict[str, Callable[[int], Route]] = {
    OURS: lambda capacity: Route(shared_buffer(capacity)),
    "cpprb": lambda capacity: Route(shared_buffer(capacity, "cpprb")),
    "full lock": lambda capacity: Route(Locked(shared_buffer(capacity), context.Lock())),
    "Queue": lambda capacity: Queued(PrioritizedReplayBuffer(capacity, specs())),
    "Manager": Managed,
}


@dataclass(frozen=True)
class Row:
    """The measurements with one number of explorers, keyed by route, without rounds in which a route hung."""

    explorers: int
    steps: dict[str, Spread | None]  # of the learner, per second; None if the route hung in every round
    rows: dict[str, Spread | None]  # of all explorers, per second
    step_ratios: dict[str, Spread | None]  # our steps / theirs, computed within each round
    row_ratios: dict[str, Spread | None]
    hung: dict[str, int]  # number of rounds

    def cells(self, name: str) -> list[str]:
        """Return a route's line of the table."""
        measured = (self.steps, self.rows, self.step_ratios, self.row_ratios)
        texts = ["" if name not in each else spread_text(each[name]) or "-" for each in measured]
        return [f"{self.explorers}", name, *texts, f"{self.hung[name]}"]


def start_process_group() -> None:
    """Start a process group with this process as its leader, and kill the group when the parent dies."""
    os.setsid()
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            multiprocessing.connection.wait([parent.sentinel])
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()


def kill_process_group(process: BaseProcess) -> None:
    """Kill a process group: its leader and all processes that the leader started."""
    try:
        if process.pid is not None:
            os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.join()


def explore(route: Route, counts: Any, number: int, rate: float) -> None:
    """Add chunks forever, at most `rate` rows per second, and count the rows in `counts[number]`."""
    chunk = random_chunk(np.random.default_rng(number))
    due = time.perf_counter()
    with contextlib.suppress(EOFError, ConnectionError):  # the manager may be killed first
        while True:
            route.add(chunk)
            counts[number] += CHUNK
            now = time.perf_counter()
            due = max(due + CHUNK / rate, now)  # a delay is not made up for
            if due > now:
                time.sleep(due - now)


def run_slot(
    make: Callable[[int], Route], capacity: int, count: int, seconds: float, rate: float, answer: Any
) -> None:
    """Run one slot in this process, in a new process group; send steps and rows per second to `answer`."""
    start_process_group()
    route = make(capacity)
    rng = np.random.default_rng(0)
    for _ in range(FILLED // CHUNK):
        route.add(random_chunk(rng))
    counts: Any = context.RawArray("q", count)
    for number in range(count):
        context.Process(target=explore, args=(route, counts, number, rate), daemon=True).start()
    priorities = rng.exponential(size=(256, BATCH))
    steps, started, rows_before = 0, 0.0, 0
    warm = time.perf_counter() + WARM_UP
    while True:
        route.step(priorities[steps % 256])
        steps += 1
        now = time.perf_counter()
        if not started and now >= warm and all(counts):  # every explorer has added rows
            steps, started, rows_before = 0, now, sum(counts)
        elif started and now - started >= seconds:
            break
    rows = sum(counts) - rows_before
    spent = time.perf_counter() - started  # read after the counts, so that a delay can't raise the rates
    answer.send((steps / spent, rows / spent))


def slot(
    make: Callable[[int], Route], capacity: int, count: int, seconds: float, rate: float = math.inf
) -> tuple[float, float]:
    """Run one slot in a new process; return steps and rows per second, or NaN for both if it hung."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=run_slot, args=(make, capacity, count, seconds, rate, theirs))
    process.start()
    theirs.close()
    try:
        if ours.poll(seconds + HANG_SECONDS):
            return ours.recv()
    except EOFError:
        print("the process of a route ended with an error; this measurement counts as hung", file=sys.stderr)
    finally:
        kill_process_group(process)
    return float("nan"), float("nan")


def run(
    chosen: Mapping[str, Callable[[int], Route]], capacity: int, rounds: int, seconds: float, rate: float
) -> Iterator[Row]:
    """Measure every route with 1, 2 and 4 explorers; the order of the routes rotates from round to round."""
    names = list(chosen)
    for count in EXPLORERS:
        steps = {name: np.empty(rounds) for name in names}
        rows = {name: np.empty(rounds) for name in names}
        for turn in range(rounds):
            for place in range(len(names)):
                name = names[(place + turn) % len(names)]
                steps[name][turn], rows[name][turn] = slot(chosen[name], capacity, count, seconds, rate)
        yield Row(
            count,
            {name: spread_of(steps[name]) for name in names},
            {name: spread_of(rows[name]) for name in names},
            {name: spread_of(steps[OURS] / steps[name]) for name in names if name != OURS},
            {name: spread_of(rows[OURS] / rows[name]) for name in names if name != OURS},
            {name: int(np.isnan(steps[name]).sum()) for name in names},
        )


def spread_of(figures: FloatArray) -> Spread | None:
    """Return the spread of the figures without NaN; None if all are NaN."""
    there = figures[np.isfinite(figures)]
    return Spread.of(there) if len(there) else None


def add_costs(capacity: int) -> dict[str, Spread]:
    """Return the time of an `add` of 100 rows by one writer, in µs, and the ratios to private memory."""
    chunk = random_chunk(np.random.default_rng(0))
    rows = {name: chunk[name] for name in FIELDS}
    single = ReplayBuffer(capacity, specs())
    uniform = MPReplayBuffer(capacity, specs())
    prioritized = MPPrioritizedReplayBuffer(capacity, specs())
    workloads = {
        "ReplayBuffer": lambda: single.add(**rows),
        "MPReplayBuffer": lambda: uniform.add(**rows),
        "MPPrioritizedReplayBuffer with priorities": lambda: prioritized.add(**chunk),
    }
    seconds = measure(workloads, rounds=60)
    costs = {name: Spread.of(figures * 1e6) for name, figures in seconds.items()}
    return costs | {
        f"{name} / ReplayBuffer": Spread.of(figures / seconds["ReplayBuffer"])
        for name, figures in seconds.items()
        if name != "ReplayBuffer"
    }


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run here, ours hung, or the table wasn't written, else 0."""
    parser = output.new_parser("shared", "Measure shared buffers while explorer processes add rows.")
    output.add_count(parser, "--capacity", 2**20, "rows in the buffer")
    output.add_count(parser, "--rounds", 3, "measurements per route")
    output.add_seconds(parser, 2.0, "length of a measurement in seconds")
    rate_help = "maximum rows per second of each explorer (default: unlimited)"
    parser.add_argument("--rate", type=output.positive, default=math.inf, help=rate_help)
    output.add_outputs(parser, "shared, or shared-rate with --rate")
    arguments = parser.parse_args(argv)
    if not hasattr(os, "fork"):
        print("shared requires os.fork; run it on Linux or macOS", file=sys.stderr)
        return 1
    chosen = dict(ROUTES)
    if importlib.util.find_spec("cpprb") is None:
        del chosen["cpprb"]
        print("skipped cpprb: not installed; pip install cpprb")
    rows: list[Row] = []
    for row in run(chosen, arguments.capacity, arguments.rounds, arguments.seconds, arguments.rate):
        rows.append(row)
        print("\n".join(" · ".join(row.cells(name)) for name in row.hung), flush=True)
    costs = add_costs(arguments.capacity)
    provenance = Provenance.of("shared", argv, [name for name in chosen if name == "cpprb"])
    body, about = {"rows": rows, "add": costs}, how_measured(arguments)
    mark = "shared" if arguments.rate == math.inf else "shared-rate"
    status = output.write_results(
        arguments, "shared", provenance, body, lines_of(rows, costs), about, mark=mark
    )
    return status if not any(row.hung[OURS] for row in rows) else 1


def lines_of(rows: Sequence[Row], costs: Mapping[str, Spread]) -> list[str]:
    """Return the table, followed by a line with the costs of `add`."""
    ratios = ("our steps / theirs", "our rows / theirs")
    heads = ["explorers", "route", "steps/s", "rows/s", *ratios, "hung rounds"]
    lines = table(heads, [row.cells(name) for row in rows for name in row.hung], words=2)
    figures = "; ".join(f"{name} {spread_text(spread)}" for name, spread in costs.items())
    return [*lines, "", f"`add` of {CHUNK} rows by a single writer, in µs, and ratios: {figures}."]


def how_measured(arguments: argparse.Namespace) -> str:
    """Return the caption of the table."""
    fields = "+".join(map(str, FIELDS.values()))
    limited = arguments.rate < math.inf
    pace = f"at {arguments.rate:,.0f} rows per second each" if limited else "as fast as they can"
    return (
        f"Medians of {arguments.rounds} interleaved rounds of {arguments.seconds:g} s, quartiles in "
        f"brackets; ratios are computed within each round. A step is `sample({BATCH})` and its "
        f"`update_priorities`. Explorers add chunks of {CHUNK} rows of {fields} float32 {pace}. Capacity "
        f"{arguments.capacity:,}, of which {FILLED:,} rows are filled at the start."
    )
