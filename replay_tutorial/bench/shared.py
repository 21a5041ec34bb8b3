"""`python -m replay_tutorial bench shared`: a learner samples while explorers add rows.

Every route by which rows reach the learner gets a short slot in every round, with processes and a buffer of
its own. What is counted are the learner's steps and the explorers' rows, per second. A slot that does not
end in time is said to hang, and its processes are killed.

The last line compares one writer's `add` of 100 rows into shared memory with that into a buffer of its own.

Left out: the learner's own work between two steps; with it, every route would look better than it is.
"""

import argparse
import contextlib
import importlib.util
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from replay_tutorial.bench.peers.peer import OURS
from replay_tutorial.bench.routes import BATCH, CHUNK, FIELDS, ROUTES, Route, context, env_dict, random_chunk
from replay_tutorial.buffers.uniform import ReplayBuffer
from replay_tutorial.measuring.markdown import spread_text, table
from replay_tutorial.measuring.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.measuring.provenance import Provenance
from replay_tutorial.measuring.timing import FloatArray, Spread, measure
from replay_tutorial.shared.mp_prioritized import MPPrioritizedReplayBuffer
from replay_tutorial.shared.mp_uniform import MPReplayBuffer

EXPLORERS = (1, 2, 4)
# rows, before anybody explores: cpprb hangs if it is sampled before its first rows are whole
FILLED = 20_000
WARM_UP = 0.5  # seconds
HANG_SECONDS = 30.0  # beyond the slot


@dataclass(frozen=True)
class Row:
    """What was measured with this many explorers: by route, of the rounds in which it did not hang."""

    explorers: int
    steps: dict[str, Spread | None]  # the learner's, per second; None: it hung in every round
    rows: dict[str, Spread | None]  # of all explorers, per second
    step_ratios: dict[str, Spread | None]  # our steps / theirs, taken round by round
    row_ratios: dict[str, Spread | None]
    hung: dict[str, int]  # rounds

    def cells(self, name: str) -> list[str]:
        """Return a route's line of the table."""
        measured = (self.steps, self.rows, self.step_ratios, self.row_ratios)
        texts = ["" if name not in each else spread_text(each[name]) or "-" for each in measured]
        return [f"{self.explorers}", name, *texts, f"{self.hung[name]}"]


def lead_group() -> None:
    """Make this process the leader of a group of its own, which is killed when this process's parent dies."""
    os.setsid()
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            multiprocessing.connection.wait([parent.sentinel])
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()


def end_group(process: BaseProcess) -> None:
    """Kill the leader of a group and all that it started, whatever state they are in."""
    try:
        if process.pid is not None:
            os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.join()


def explore(route: Route, counts: Any, number: int, rate: float) -> None:
    """Add chunks forever, no faster than `rate` even after a pause, and count the rows."""
    chunk = random_chunk(np.random.default_rng(number))
    due = time.perf_counter()
    with contextlib.suppress(EOFError, ConnectionError):  # the manager may be ended first
        while True:
            route.add(chunk)
            counts[number] += CHUNK
            now = time.perf_counter()
            due = max(due + CHUNK / rate, now)  # what a pause cost is not made up for
            if due > now:
                time.sleep(due - now)


def run_slot(
    make: Callable[[int], Route], capacity: int, count: int, seconds: float, rate: float, answer: Any
) -> None:
    """Run one slot in this process, in a process group of its own; answer steps and rows per second."""
    lead_group()
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
        if not started and now >= warm and all(counts):  # each explorer is at work
            steps, started, rows_before = 0, now, sum(counts)
        elif started and now - started >= seconds:
            break
    rows = sum(counts) - rows_before
    spent = time.perf_counter() - started  # after the last count: a pause makes no figure larger
    answer.send((steps / spent, rows / spent))


def slot(
    make: Callable[[int], Route],
    capacity: int,
    count: int,
    seconds: float,
    *,
    rate: float = math.inf,
    patience: float = HANG_SECONDS,
) -> tuple[float, float]:
    """Run one slot; return steps and rows per second, NaN if it hung."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=run_slot, args=(make, capacity, count, seconds, rate, theirs))
    process.start()
    theirs.close()
    try:
        if ours.poll(seconds + patience):
            return ours.recv()
    except EOFError:
        print("a route broke down", file=sys.stderr)
    finally:
        end_group(process)
    return float("nan"), float("nan")


def run(
    chosen: Mapping[str, Callable[[int], Route]], capacity: int, rounds: int, seconds: float, rate: float
) -> Iterator[Row]:
    """Measure with 1, 2 and 4 explorers, every route in every round; the order turns with the rounds."""
    names = list(chosen)
    for count in EXPLORERS:
        steps = {name: np.empty(rounds) for name in names}
        rows = {name: np.empty(rounds) for name in names}
        for turn in range(rounds):
            for place in range(len(names)):
                name = names[(place + turn) % len(names)]
                steps[name][turn], rows[name][turn] = slot(chosen[name], capacity, count, seconds, rate=rate)
        yield Row(
            count,
            {name: spread_of(steps[name]) for name in names},
            {name: spread_of(rows[name]) for name in names},
            {name: spread_of(steps[OURS] / steps[name]) for name in names if name != OURS},
            {name: spread_of(rows[OURS] / rows[name]) for name in names if name != OURS},
            {name: int(np.isnan(steps[name]).sum()) for name in names},
        )


def spread_of(figures: FloatArray) -> Spread | None:
    """Return the spread of the figures that are not NaN; None if there is none."""
    there = figures[np.isfinite(figures)]
    return Spread.of(there) if len(there) else None


def add_costs(capacity: int, rounds: int = 60) -> dict[str, Spread]:
    """Return the microseconds of one writer's `add` of 100 rows, alone: in shared memory and not."""
    chunk = random_chunk(np.random.default_rng(0))
    rows = {name: chunk[name] for name in env_dict()}
    single = ReplayBuffer(capacity, env_dict())
    uniform = MPReplayBuffer(capacity, env_dict())
    prioritized = MPPrioritizedReplayBuffer(capacity, env_dict())
    workloads = {
        "ReplayBuffer": lambda: single.add(**rows),
        "MPReplayBuffer": lambda: uniform.add(**rows),
        "MPPrioritizedReplayBuffer, priorities given": lambda: prioritized.add(**chunk),
    }
    seconds = measure(workloads, rounds=rounds)
    costs = {name: Spread.of(figures * 1e6) for name, figures in seconds.items()}
    return costs | {
        f"{name} / ReplayBuffer": Spread.of(figures / seconds["ReplayBuffer"])
        for name, figures in seconds.items()
        if name != "ReplayBuffer"
    }


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run here, ours hung, or the table was not written, else 0."""
    parser = new_parser("shared", "Measure shared buffers while explorers add rows.")
    add_count(parser, "--capacity", 2**20, "rows")
    add_count(parser, "--rounds", 3, "slots of each")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a slot (default: %(default)s)")
    parser.add_argument(
        "--rate",
        type=float,
        default=math.inf,
        help="rows per second that each explorer adds at most (default: as fast as it can)",
    )
    add_outputs(parser, "shared")  # with a rate, the marks are `shared-rate`
    arguments = parser.parse_args(argv)
    if not arguments.rate > 0:
        parser.error(f"--rate {arguments.rate}: explorers add at least some rows")
    if not 0 < arguments.seconds < math.inf:
        parser.error(f"--seconds {arguments.seconds}: a slot must take some time, and end")
    if not hasattr(os, "fork"):
        print("bench shared needs a system with fork: Linux or macOS.", file=sys.stderr)
        return 1
    chosen = dict(ROUTES)
    if importlib.util.find_spec("cpprb") is None:
        del chosen["cpprb"]
        print("skipped cpprb: it is not installed")
    rows: list[Row] = []
    for row in run(chosen, arguments.capacity, arguments.rounds, arguments.seconds, arguments.rate):
        rows.append(row)
        print("\n".join(" · ".join(row.cells(name)) for name in row.hung), flush=True)
    costs = add_costs(arguments.capacity)
    provenance = Provenance.of("shared", argv, [name for name in chosen if name == "cpprb"])
    body, about = {"rows": rows, "add": costs}, how_measured(arguments)
    mark = "shared" if arguments.rate == math.inf else "shared-rate"
    status = hand_over(arguments, "shared", provenance, body, lines_of(rows, costs), about, mark=mark)
    return status if not any(row.hung[OURS] for row in rows) else 1


def lines_of(rows: Sequence[Row], costs: Mapping[str, Spread]) -> list[str]:
    """Return the table, and the costs of `add` below it."""
    ratios = ("our steps / theirs", "our rows / theirs")
    heads = ["explorers", "rows come by", "steps/s", "rows/s", *ratios, "rounds that hung"]
    lines = table(heads, [row.cells(name) for row in rows for name in row.hung], words=2)
    figures = "; ".join(f"{name} {spread_text(spread)}" for name, spread in costs.items())
    return [*lines, "", f"One writer's `add` of {CHUNK} rows, alone, in µs, and its ratios: {figures}."]


def how_measured(arguments: argparse.Namespace) -> str:
    """Return what the figures mean, in a few sentences."""
    fields = "+".join(map(str, FIELDS.values()))
    limited = arguments.rate < math.inf
    pace = f"{arguments.rate:,.0f} rows per second each" if limited else "as fast as they can"
    return (
        f"Medians of {arguments.rounds} interleaved rounds of {arguments.seconds:g} s, quartiles in "
        f"brackets; ratios are taken inside each round. A step is sample({BATCH}) and its "
        f"update_priorities; explorers add chunks of {CHUNK} rows of {fields} float32, {pace}; capacity "
        f"{arguments.capacity:,}."
    )
