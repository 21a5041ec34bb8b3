"""`python -m replay_tutorial bench shared`: a learner at work while explorers add rows, as fast as they can or at a rate.

Every way for rows to reach the learner gets a short slot in every round, with processes and a buffer of its own. What
is counted are the learner's steps and the explorers' rows, a second. A slot that does not end in time is said to
hang, and its processes are killed.

The last line compares one writer's `add` of 100 rows into shared memory with that into a buffer of its own.

Left out: the learner's own work between two steps; with it, every way would look better than it is.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from replay_tutorial.bench.many_processes import explorers
from replay_tutorial.bench.many_processes.explorers import CHUNK, Contender, env_dict, random_chunk
from replay_tutorial.bench.many_processes.storm import end_group, lead_group
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.record import add_outputs, at_least
from replay_tutorial.bench.method.report import put_table, spread_text
from replay_tutorial.bench.method.timing import Spread, measure
from replay_tutorial.bench.peers.lineup import OURS
from replay_tutorial.buffers.uniform import ReplayBuffer
from replay_tutorial.shared.mp_prioritized import MPPrioritizedReplayBuffer
from replay_tutorial.shared.mp_uniform import MPReplayBuffer

PROGRAM = "python -m replay_tutorial bench shared"
EXPLORERS = (1, 2, 4)
CONTENDERS: dict[str, Callable[[int], Contender]] = {
    OURS: explorers.ours,
    "cpprb": explorers.cpprb,
    "full lock": explorers.locked,
    "Queue": explorers.queued,
    "Manager": explorers.managed,
}
FILLED = 20_000  # rows, before anybody explores: cpprb hangs if it is sampled before its first rows are whole
WARM_UP, POLL_SECONDS = 0.5, 30.0  # seconds; patience is beyond the slot


@dataclass(frozen=True)
class Row:
    """What was measured with so many explorers: by contender, of the rounds in which it did not hang."""

    explorers: int
    steps: dict[str, Spread | None]  # the learner's, a second; None: it hung in every round
    rows: dict[str, Spread | None]  # of all explorers, a second
    step_ratios: dict[str, Spread | None]  # our steps / theirs, taken round by round
    row_ratios: dict[str, Spread | None]
    hung: dict[str, int]  # rounds


def parser() -> argparse.ArgumentParser:
    """Describes the arguments."""
    arguments = argparse.ArgumentParser(
        prog=PROGRAM, description="Measure shared buffers while explorers add rows."
    )
    arguments.add_argument("--capacity", type=at_least(1), default=2**20, help="rows (default: %(default)s)")
    arguments.add_argument(
        "--rounds", type=at_least(1), default=3, help="slots of each (default: %(default)s)"
    )
    arguments.add_argument("--seconds", type=float, default=2.0, help="of a slot (default: %(default)s)")
    arguments.add_argument(
        "--rate",
        type=float,
        default=math.inf,
        help="rows a second that each explorer adds at most, asleep in between (default: as fast as it can)",
    )
    add_outputs(arguments, "shared")  # with a rate, the marks are `shared-rate`
    return arguments


def explore(contender: Contender, counts: Any, number: int, rate: float) -> None:
    """Add chunks for ever, and count the rows."""
    chunk = random_chunk(np.random.default_rng(number))
    due = time.perf_counter()
    with contextlib.suppress(EOFError, ConnectionError):  # the manager may be ended first
        while True:
            contender.add(chunk)
            counts[number] += CHUNK
            due += CHUNK / rate
            if (early := due - time.perf_counter()) > 0 and rate < math.inf:
                time.sleep(early)


def run_slot(
    make: Callable[[int], Contender], capacity: int, count: int, seconds: float, rate: float, answer: Any
) -> None:
    """Run one slot in this process, in a process group of its own; answer steps and rows a second."""
    lead_group()
    contender = make(capacity)
    rng = np.random.default_rng(0)
    for _ in range(FILLED // CHUNK):
        contender.add(random_chunk(rng))
    counts: Any = explorers.context.RawArray("q", count)
    for number in range(count):
        explorers.context.Process(target=explore, args=(contender, counts, number, rate), daemon=True).start()
    priorities = rng.exponential(size=(256, explorers.BATCH))
    steps, started, rows_before = 0, 0.0, 0
    warm = time.perf_counter() + WARM_UP
    while True:
        contender.step(priorities[steps % 256])
        steps += 1
        now = time.perf_counter()
        if not started and now >= warm:
            steps, started, rows_before = 0, now, sum(counts)
        elif started and now - started >= seconds:
            break
    answer.send((steps / (now - started), (sum(counts) - rows_before) / (now - started)))


def slot(
    make: Callable[[int], Contender],
    capacity: int,
    count: int,
    seconds: float,
    *,
    rate: float = math.inf,
    patience: float = POLL_SECONDS,
) -> tuple[float, float]:
    """Run one slot; gives steps and rows a second, NaN if it hung."""
    ours, theirs = explorers.context.Pipe(duplex=False)
    process = explorers.context.Process(target=run_slot, args=(make, capacity, count, seconds, rate, theirs))
    process.start()
    theirs.close()
    try:
        if ours.poll(seconds + patience):
            return ours.recv()
    except EOFError:
        print(f"{make.__name__} broke down", file=sys.stderr)
    finally:
        end_group(process)
    return float("nan"), float("nan")


def run(
    contenders: Mapping[str, Callable[[int], Contender]],
    capacity: int,
    rounds: int,
    seconds: float,
    rate: float,
) -> Iterator[Row]:
    """Measure with 1, 2 and 4 explorers, every contender in every round; the order turns with the rounds."""
    names = list(contenders)
    for count in EXPLORERS:
        steps = {name: np.empty(rounds) for name in names}
        rows = {name: np.empty(rounds) for name in names}
        for turn in range(rounds):
            for place in range(len(names)):
                name = names[(place + turn) % len(names)]
                steps[name][turn], rows[name][turn] = slot(
                    contenders[name], capacity, count, seconds, rate=rate
                )
        yield Row(
            count,
            {name: spread_of(steps[name]) for name in names},
            {name: spread_of(rows[name]) for name in names},
            {name: spread_of(steps[OURS] / steps[name]) for name in names if name != OURS},
            {name: spread_of(rows[OURS] / rows[name]) for name in names if name != OURS},
            {name: int(np.isnan(steps[name]).sum()) for name in names},
        )


def spread_of(figures: Any) -> Spread | None:
    """The spread of the figures that are there; None if there is none."""
    there = figures[np.isfinite(figures)]
    return Spread.of(there) if len(there) else None


def add_costs(capacity: int, rounds: int = 60) -> dict[str, Spread]:
    """Microseconds of one writer's `add` of 100 rows, alone: in shared memory and not."""
    chunk = random_chunk(np.random.default_rng(0))
    rows = {name: chunk[name] for name in env_dict()}
    single = ReplayBuffer(capacity, env_dict())
    uniform = MPReplayBuffer(capacity, env_dict())
    prioritized = MPPrioritizedReplayBuffer(capacity, env_dict())
    works = {
        "ReplayBuffer": lambda: single.add(**rows),
        "MPReplayBuffer": lambda: uniform.add(**rows),
        "MPPrioritizedReplayBuffer, priorities given": lambda: prioritized.add(**chunk),
    }
    seconds = measure(works, rounds=rounds)
    costs = {name: Spread.of(figures * 1e6) for name, figures in seconds.items()}
    return costs | {
        f"{name} / ReplayBuffer": Spread.of(figures / seconds["ReplayBuffer"])
        for name, figures in seconds.items()
        if name != "ReplayBuffer"
    }


def lines_of(row: Row) -> list[str]:
    """The lines of the table for so many explorers."""
    lines: list[str] = []
    for name, hung in row.hung.items():
        measured = (row.steps, row.rows, row.step_ratios, row.row_ratios)
        figures = ["" if name not in each else spread_text(each[name]) or "-" for each in measured]
        lines.append("| " + " | ".join([f"{row.explorers}", name, *figures, f"{hung}"]) + " |")
    return lines


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark.

    Args:
        argv: What follows `bench shared` on the command line.

    Returns:
        The exit status: 0, or 1 if it can't run here, ours hung or broke down, or the table could not be written.
    """
    arguments = parser().parse_args(argv)
    if not arguments.rate > 0:
        parser().error(f"--rate {arguments.rate}: explorers add at least some rows")
    if not 0 < arguments.seconds < math.inf:
        parser().error(f"--seconds {arguments.seconds}: a slot must take some time, and end")
    if not hasattr(os, "fork"):
        print("bench shared needs a system with fork: Linux or macOS.", file=sys.stderr)
        return 1
    contenders = dict(CONTENDERS)
    if importlib.util.find_spec("cpprb") is None:
        del contenders["cpprb"]
        print("skipped cpprb: it is not installed")
    lines = [
        "| explorers | rows come by | steps/s | rows/s | our steps / theirs | our rows / theirs | rounds that hung |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    print(*lines, sep="\n", flush=True)
    rows: list[Row] = []
    for row in run(contenders, arguments.capacity, arguments.rounds, arguments.seconds, arguments.rate):
        rows.append(row)
        lines += lines_of(row)
        print(*lines_of(row), sep="\n", flush=True)
    costs = add_costs(arguments.capacity)
    figures = [f"{name} {spread_text(spread)}" for name, spread in costs.items()]
    lines += ["", f"One writer's `add` of {CHUNK} rows, alone, in µs, and its ratios: {'; '.join(figures)}."]
    provenance = Provenance.of(PROGRAM, argv, [name for name in contenders if name == "cpprb"])
    lines += ["", f"{how_measured(arguments)} {provenance}"]
    print(*lines[-3:], sep="\n")
    if arguments.json is not None:
        spreads = {name: asdict(spread) for name, spread in costs.items()}
        whole = {
            "benchmark": "shared",
            **provenance._asdict(),
            "rows": [asdict(row) for row in rows],
            "add": spreads,
        }
        arguments.json.write_text(json.dumps(whole, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    mark = "shared" if arguments.rate == math.inf else "shared-rate"
    written = put_table(arguments.markdown, mark, "\n".join(lines) + "\n")
    return 0 if written and not any(row.hung[OURS] for row in rows) else 1


def how_measured(arguments: argparse.Namespace) -> str:
    """What the figures mean, in a few sentences."""
    fields = "+".join(str(shape) for shape in explorers.FIELDS.values())
    pace = (
        "as fast as they can" if arguments.rate == math.inf else f"{arguments.rate:,.0f} rows a second each"
    )
    return (
        f"Medians of {arguments.rounds} interleaved rounds of {arguments.seconds:g} s, quartiles in brackets; ratios "
        f"are taken inside each round. A step is sample({explorers.BATCH}) and its update_priorities; explorers add "
        f"chunks of {CHUNK} rows of {fields} float32, {pace}; capacity {arguments.capacity:,}."
    )
