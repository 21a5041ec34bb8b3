"""A storm: writers are killed and stopped at random moments, and the sampler looks at every row that it gets.

One process samples, checks and updates as fast as it can, and between its samples kills a writer (SIGKILL)
and starts another, or stops one (SIGSTOP) and lets it go on once the others have lapped it. A second process
samples, too, and is killed and replaced now and then. The first one's speed is measured before and after. The
whole storm runs in a process group of its own, so that a buffer that hangs can be ended.

Left out: Windows, where processes can neither be forked nor stopped.
"""

import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from checked_rows import CheckedRows

from benchmarks.shared import kill_process_group, start_process_group
from replay_tutorial.shared.mp_prioritized import MPPrioritizedReplayBuffer
from replay_tutorial.shared.processes import PID_BITS
from replay_tutorial.shared.protocol import is_held, owner_of

WRITERS, MAX_STOPPED = 4, 2
BATCH = 64
MAX_CHUNK = 20  # rows
SPEED_SECONDS, SPEED_ROUNDS = 0.25, 7

MakeBuffer = Callable[[int, dict[str, Any]], Any]


class WatchedBuffer(MPPrioritizedReplayBuffer):
    """The shared buffer, and a look at its stamps."""

    def held(self) -> int:
        return int(is_held(self._ring.stamps).sum())

    def holds(self, process: int | None) -> bool:
        """Return whether a process, dead or alive, holds a slot."""
        stamps, owners = self._ring.stamps, self._block["owners"]
        holders = owners[owner_of(stamps[is_held(stamps)])]
        return bool((holders & ((1 << PID_BITS) - 1) == process).any())


@dataclass
class Outcome:
    """What a storm has done to a buffer. Times are in seconds."""

    capacity: int
    row_bytes: int
    kills: int = 0
    kills_inside: int | None = None  # of writers that were copying a row just then
    stops: int = 0
    samples: int = 0
    samples_beside: int | None = None  # by the processes that only sample
    rejected: int | None = None  # rows drawn again; None where the library does not count them
    torn: int = 0
    never_written: int = 0
    worst_sample: float = 0.0
    speed_before: list[float] = field(default_factory=list[float])  # samples per second, round by round
    speed_after: list[float] = field(default_factory=list[float])
    held_after_lap: int | None = None
    miscounted: int = 0  # rows that `len` counts beyond those that can be read, or leaves out
    hung: bool = False
    error: str = ""

    @property
    def end(self) -> str:
        return "hung" if self.hung else self.error or "intact"

    def __str__(self) -> str:
        counts = f"{self.kills} kills, {self.samples:,} samples, {self.torn} torn"
        return f"{self.capacity:,} rows of {self.row_bytes:,} bytes: {counts}, {self.end}"

    @property
    def good(self) -> bool:
        faults = self.torn + self.never_written + (self.held_after_lap or 0) + self.miscounted
        return not (faults or self.hung or self.error)


def write_forever(buffer: Any, rows: CheckedRows, writer: int, max_rows: int) -> None:
    """Add chunks of random length, until the process is killed."""
    rng, first = random.Random(writer), 0
    while True:
        count = rng.randint(1, max_rows)
        buffer.add(**rows.make(writer, first, count), priorities=np.ones(count))
        first += count


def sample_forever(buffer: Any, rows: CheckedRows, counts: Any) -> None:
    """Sample and check until the process is killed; count samples, torn rows and rows never written."""
    while True:
        faults = rows.check(buffer.sample(BATCH))
        for i, count in enumerate((1, *faults)):
            counts[i] += count


class Storm:
    """One buffer, its writers, the sampler that is this process, and one that only samples."""

    def __init__(self, buffer: Any, rows: CheckedRows, outcome: Outcome, seed: int) -> None:
        self.buffer, self.rows, self.outcome = buffer, rows, outcome
        self.rng = random.Random(seed)
        self.context = multiprocessing.get_context("fork")
        self.writers: list[BaseProcess] = []
        self.stopped: list[tuple[BaseProcess, int]] = []  # with the index that was next at its stop
        self.started = 0
        self.counts = self.context.RawArray("q", 3)
        self.sampler: BaseProcess | None = None

    def start_sampler(self) -> None:
        arguments = self.buffer, self.rows, self.counts
        self.sampler = self.context.Process(target=sample_forever, args=arguments, daemon=True)
        self.sampler.start()

    def end_sampler(self) -> None:
        """Kill the process that only samples, and add up what it counted."""
        if self.sampler is None:
            return
        if not self.sampler.is_alive():
            raise RuntimeError("the process that only samples has ended by itself")
        self.sampler.kill()
        self.sampler.join()
        self.sampler = None
        samples, torn, never_written = self.counts
        self.outcome.samples_beside = samples
        self.outcome.torn += torn
        self.outcome.never_written += never_written
        self.counts[1] = self.counts[2] = 0

    def start_writer(self) -> None:
        self.started += 1
        arguments = (self.buffer, self.rows, self.started, min(MAX_CHUNK, self.outcome.capacity))
        process = self.context.Process(target=write_forever, args=arguments, daemon=True)
        process.start()
        self.writers.append(process)

    def sample(self) -> None:
        start = time.perf_counter()
        batch = self.buffer.sample(BATCH)
        self.outcome.worst_sample = max(self.outcome.worst_sample, time.perf_counter() - start)
        self.outcome.samples += 1
        faults = self.rows.check(batch)
        self.outcome.torn += faults.torn
        self.outcome.never_written += faults.never_written
        self.buffer.update_priorities(batch["indexes"], np.full(BATCH, self.rng.uniform(0.1, 2.0)))

    def strike(self) -> None:
        """Kill a writer, stop one, or let one go on that has been lapped."""
        chance = self.rng.random()
        if chance < 0.5:
            process = self.writers.pop(self.rng.randrange(len(self.writers)))
            self.stopped = [(other, index) for other, index in self.stopped if other is not process]
            process.kill()
            process.join()
            self.outcome.kills += 1
            if isinstance(self.buffer, WatchedBuffer):
                self.outcome.kills_inside = (self.outcome.kills_inside or 0) + self.buffer.holds(process.pid)
            self.start_writer()
        elif chance < 0.75 and len(self.stopped) < MAX_STOPPED:
            process = self.rng.choice(self.writers)
            if all(other is not process for other, _ in self.stopped):
                os.kill(process.pid, signal.SIGSTOP)
                self.stopped.append((process, self.next_index()))
                self.outcome.stops += 1
        else:
            self.let_go_on(self.outcome.capacity)

    def let_go_on(self, rows_since: int) -> None:
        """Continue the writers since whose stop at least this many rows have been added."""
        for process, index in list(self.stopped):
            if self.next_index() - index >= rows_since:
                self.stopped.remove((process, index))
                os.kill(process.pid, signal.SIGCONT)

    def next_index(self) -> int:
        """Return the index of the next row; cpprb knows only its slot, which says nothing about laps."""
        known = isinstance(self.buffer, WatchedBuffer)
        return self.buffer.next_index if known else time.monotonic_ns()

    def speed(self) -> float:
        start, before = time.perf_counter(), self.outcome.samples
        while time.perf_counter() - start < SPEED_SECONDS:
            self.sample()
        return (self.outcome.samples - before) / (time.perf_counter() - start)

    def lap(self) -> int | None:
        """Add two buffers full of rows, alone; return how many slots are still held then."""
        if not isinstance(self.buffer, WatchedBuffer):
            return None
        for chunk in range(2 * self.outcome.capacity):
            self.buffer.add(**self.rows.make(self.started + 1, chunk, 1))
        return self.buffer.held()

    def end_writers(self) -> None:
        for process in self.writers:
            process.kill()
            process.join()
        self.writers, self.stopped = [], []


def run_storm(make: MakeBuffer, outcome: Outcome, kills: int, seed: int, reports: Any) -> None:
    """Run a storm over a new buffer, in a process group of its own; send the outcome every few samples."""
    start_process_group()
    rows = CheckedRows(outcome.row_bytes)
    buffer = make(outcome.capacity, rows.fields)
    buffer.add(**rows.make(0, 0, outcome.capacity), priorities=np.ones(outcome.capacity))
    storm = Storm(buffer, rows, outcome, seed)
    for _ in range(WRITERS):
        storm.start_writer()
    try:
        storm.sample()
        outcome.speed_before = [storm.speed() for _ in range(SPEED_ROUNDS)]
        outcome.worst_sample = 0.0
        if isinstance(buffer, WatchedBuffer):
            storm.start_sampler()
        while outcome.kills < kills:
            if storm.sampler and storm.rng.random() < 0.05:
                storm.end_sampler()
                storm.start_sampler()
            for _ in range(storm.rng.randrange(1, 4)):
                storm.sample()
            reports.send((outcome, False))
            storm.strike()
        storm.end_sampler()
        storm.let_go_on(0)
        outcome.speed_after = [storm.speed() for _ in range(SPEED_ROUNDS)]
        storm.end_writers()
        if isinstance(buffer, WatchedBuffer):
            outcome.miscounted = abs(len(buffer) - len(buffer[:]["number"]))
        outcome.held_after_lap = storm.lap()
        if isinstance(buffer, WatchedBuffer):
            outcome.rejected = buffer.statistics().rows_rejected
    except (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        outcome.error = f"{type(error).__name__}: {error}"
    if storm.sampler:
        storm.sampler.kill()
    storm.end_writers()
    reports.send((outcome, True))


def survive(
    make: MakeBuffer, capacity: int, row_bytes: int, kills: int, *, patience: float, seed: int
) -> Outcome:
    """Run a storm to its end, or until it has not reported for `patience` seconds: then the buffer hangs.

    Returns what happened; of a storm that hung, until its last report.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    outcome = Outcome(capacity, row_bytes)
    process = context.Process(target=run_storm, args=(make, outcome, kills, seed, theirs))
    process.start()
    theirs.close()  # or the pipe's end would never be seen
    finished = False
    try:
        while not finished:
            if not ours.poll(patience):
                outcome.hung = True
                break
            outcome, finished = ours.recv()
    except EOFError:
        outcome.error = "the sampler's process ended without a report"
    kill_process_group(process)
    return outcome
