"""The program that runs in a helper process and times calls of our tables or of Reverb.

It creates and fills a table, or a buffer of rows, and prints its description. Then it answers each line of
its input. All messages are JSON. Calls are timed here, so the communication between the processes isn't
measured.

    argument    {"rows": …}, or "table", "serve" and "address"    what to create, or where to connect
    requests    "calls" of an operation, its "rate", "limited", "load", or "processor_time"
    answers     seconds, a rate, rates, durations, or seconds

`helper_our_tables` and `helper_reverb` wrap the two libraries: each has a `VERSION`, and functions `make` and
`connect` that return a table; `helper_reverb` also has `Rows`. This module must not require NumPy 2 or Numba,
because Reverb's interpreter has neither.
"""

import contextlib
import ctypes
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measuring.process_memory import resident_memory

COLUMNS = {"obs": 15, "act": 3, "rew": 1, "done": 1}  # column → length, float32
STEP_BYTES = 4 * sum(COLUMNS.values()) + 4 * len(COLUMNS)  # values and reference counts
ITEM_STEPS = 2
MAX_SIZE = 20_000
STEPS = 1024  # distinct steps that the writers repeat
PRIORITIES = (0.5, 1.0, 1.5)
IN_FLIGHT = 20  # items in a message of ours; items that Reverb's `flush` leaves unconfirmed
# for calls with prefetched batches: calls before the clock starts, minimum number of timed calls
UNTIMED, MIN_CALLS = 10, 20
# rate limiter: samples per insert, minimum size, error buffer
LIMIT = (8.0, 1000, 256.0)
LIMITED_BATCH = 64
LOAD_BATCH = 32
WARM_UP = 0.5  # seconds


class Calls:
    """A call that can be timed."""

    def __init__(
        self, one: Callable[[], object], finish: Callable[[], object] = lambda: None, *, queued: bool = False
    ) -> None:
        """Wrap the call `one`.

        `finish` waits for items in flight, and is part of the measured time. `queued` states whether batches
        are prefetched.
        """
        self.one, self.finish, self.queued = one, finish, queued

    def seconds(self, calls: int) -> float:
        """Return the duration of this many calls in seconds.

        A queue of prefetched batches fills while other workloads run. So it is emptied first, and at least
        `MIN_CALLS` calls are timed; otherwise the time to fill the queue would be missed.
        """
        one, timed = self.one, max(calls, MIN_CALLS) if self.queued else calls
        for _ in range(UNTIMED if self.queued else 0):
            one()
        start = time.perf_counter()
        for _ in range(timed):
            one()
        self.finish()
        return (time.perf_counter() - start) * calls / timed

    def rate(self, seconds: float) -> float:
        """Return the calls per second, measured for `seconds`."""
        self.seconds(1)
        one, done, start = self.one, 0, time.perf_counter()
        while time.perf_counter() < start + seconds:
            one()
            done += 1
        self.finish()
        return done / (time.perf_counter() - start)


class Writer:
    """Appends the steps of one episode; every step after the first also creates an item."""

    def __init__(self, table: Any, steps: list[dict[str, Any]]) -> None:
        self.table, self.writer = table, table.trajectory_writer()
        self.steps, self.priorities = itertools.cycle(steps), itertools.cycle(PRIORITIES)
        self.writer.append(next(self.steps))

    def step(self) -> None:
        """Append a step, and create an item of the newest two steps."""
        writer = self.writer
        writer.append(next(self.steps))
        history = writer.history
        trajectory = {
            "obs": history["obs"][-2:],
            "act": history["act"][-2:],
            "rew": history["rew"][-2:],
            "done": history["done"][-2:],
        }
        writer.create_item(self.table.name, next(self.priorities), trajectory)
        if self.table.flushes:
            writer.flush(IN_FLIGHT)


class Tables:
    """A full table of trajectories, or a client of another process's table."""

    def __init__(self, module: Any, start: dict[str, Any]) -> None:
        """Create and fill the table, or connect to the server of another process."""
        rng = np.random.default_rng(0)
        self.module, self.bytes_per_item = module, 0.0
        self.steps = [
            {name: rng.random(n, dtype=np.float32) for name, n in COLUMNS.items()} for _ in range(STEPS)
        ]
        if start["address"]:
            self.table: Any = module.connect(start["address"], start["table"], self.steps[0])
        else:
            self.table = self.filled(start["table"], start["serve"])

    def filled(self, kind: str, serve: str) -> Any:
        """Return a full table, and set `bytes_per_item`: memory per item without the values of a step."""
        small = self.module.make(kind, MAX_SIZE // 100, None, self.steps[0], "")
        self.write(small, MAX_SIZE // 50)  # loads and compiles all code before the measurement
        small.close()
        before = resident_bytes()
        table = self.module.make(kind, MAX_SIZE, None, self.steps[0], serve)
        self.write(table, 2 * MAX_SIZE)  # every item of the first half is evicted
        self.bytes_per_item = (resident_bytes() - before) / MAX_SIZE - STEP_BYTES
        return table

    def write(self, table: Any, count: int) -> None:
        """Write steps with an item each, and wait until all items are inserted."""
        writer = Writer(table, self.steps)
        for _ in range(count):
            writer.step()
        writer.writer.flush()

    def description(self) -> dict[str, Any]:
        """Return the description for the first response."""
        return {"address": self.table.address, "bytes_per_item": self.bytes_per_item}

    def calls(self, do: str, size: int) -> Calls:
        """Return calls of `do`: "write", "sample" or "update"."""
        if do == "write":
            writer = Writer(self.table, self.steps)
            return Calls(writer.step, writer.writer.flush)
        if do == "sample":
            return Calls(self.table.sampler(size), queued=self.table.queued)
        return Calls(self.table.updater(size, PRIORITIES))

    def limited(self, writers: int, seconds: float) -> dict[str, float]:
        """Run writers and a sampler under a rate limiter; `bench.tables.LIMITER_HEADS` states the results."""
        table = self.module.make("uniform", MAX_SIZE, LIMIT, self.steps[0], "")
        stop = threading.Event()
        written = [0] * writers
        longest = [0.0] * (writers + 1)  # seconds of the longest call per thread; the sampler is last

        def write(number: int) -> None:
            writer, start = Writer(table, self.steps), time.perf_counter()
            while not stop.is_set():
                writer.step()
                written[number] += 1
                start = note(number, start)
            writer.writer.flush()

        def sample() -> None:
            draw, start = table.sampler(LIMITED_BATCH, 1.0), time.perf_counter()
            while any(thread.is_alive() for thread in threads):
                draw()
                start = note(writers, start)

        def note(number: int, start: float) -> float:
            now = time.perf_counter()
            longest[number] = max(longest[number], now - start)
            return now

        def snapshot() -> Any:
            return np.array((time.perf_counter(), *table.counts(), *written), np.float64)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        all_threads = [*threads, threading.Thread(target=sample)]
        for thread in all_threads:
            thread.start()
        while not table.counts()[1]:  # until the table has reached its minimum size
            time.sleep(0.01)
        time.sleep(WARM_UP)
        before = snapshot()
        longest[:] = [0.0] * (writers + 1)
        time.sleep(seconds)
        after, calls = snapshot(), list(longest)
        stop.set()
        for thread in all_threads:
            thread.join()
        table.close()
        span, inserts, samples, *items = (after - before).tolist()
        return {
            "items": inserts / span,
            "samples": samples / span,
            "ratio": samples / inserts / LIMIT[0],
            "least": min(items) / max(items),
            "writers_longest": 1000.0 * max(calls[:writers]),
            "sampler_longest": 1000.0 * calls[writers],
        }


class Load:
    """Threads that write and sample at the same time, each as a client of its own."""

    def __init__(self, tables: Tables, writers: int, samplers: int, prefetched: int) -> None:
        """Create the clients; `prefetched` is the number of batches that a sampler keeps in flight."""
        self.writers = [Writer(tables.table, tables.steps) for _ in range(writers)]
        self.samplers = [
            tables.table.prefetching_sampler(LOAD_BATCH, prefetched)
            if prefetched
            else tables.table.sampler(LOAD_BATCH)
            for _ in range(samplers)
        ]

    def run(self, seconds: float) -> dict[str, Any]:
        """Call for some seconds, and return the durations of the calls in µs, and the processor time."""
        stop_at = time.perf_counter() + seconds
        durations: dict[str, list[int]] = {"write": [], "sample": []}

        def repeat(name: str, call: Callable[[], object]) -> None:
            took, start = durations[name], time.perf_counter()
            while start < stop_at:
                call()
                now = time.perf_counter()
                took.append(round(1e6 * (now - start)))
                start = now

        calls = [("write", writer.step) for writer in self.writers]
        calls += [("sample", sampler) for sampler in self.samplers]
        threads = [threading.Thread(target=repeat, args=call) for call in calls]
        before = time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for writer in self.writers:
            writer.writer.flush()
        return {**durations, "processor_time": time.process_time() - before}


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, without memory that has been freed."""
    with contextlib.suppress(AttributeError):  # only glibc has this function
        ctypes.CDLL(None).malloc_trim(0)
    return resident_memory()


def main(module: Any) -> None:
    """Create the table and send its description, then respond to requests until the input ends."""
    start: dict[str, Any] = json.loads(sys.argv[1])
    replay: Any = module.Rows(**start["rows"]) if "rows" in start else Tables(module, start)
    print(json.dumps({"version": module.VERSION, **replay.description()}, allow_nan=False), flush=True)
    known: dict[tuple[str, int], Calls] = {}
    loads: dict[tuple[int, int, int], Load] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["kind"] == "limited":
            answer = replay.limited(request["writers"], request["seconds"])
        elif request["kind"] == "processor_time":
            answer = {"processor_time": time.process_time()}
        elif request["kind"] == "load":
            clients = request["writers"], request["samplers"], request["prefetched"]
            if clients not in loads:
                loads[clients] = Load(replay, *clients)
            answer = loads[clients].run(request["seconds"])
        else:
            key = request["do"], request["size"]
            if key not in known:
                known.clear()  # a dataset prefetches as long as it exists
                known[key] = replay.calls(*key)
            if request["kind"] == "rate":
                answer = {"rate": known[key].rate(request["seconds"])}
            else:
                answer = {"seconds": known[key].seconds(request["calls"])}
        print(json.dumps(answer, allow_nan=False), flush=True)
