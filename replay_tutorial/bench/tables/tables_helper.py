"""One side of `tables_speed`: a program for our Python, or for the one that has Reverb.

It makes a table in this process, fills it, and then does what each line of its input asks for. Both sides run
this same program, with the same steps; only the module with the calls differs (`our_tables`,
`reverb_tables`). The clock stands here, so the way between the processes isn't measured.

Left out: all that would need NumPy 2 or this package: Reverb's Python has neither.
"""

import ctypes
import importlib
import json
import math
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

COLUMNS = {"obs": 15, "act": 3, "rew": 1, "done": 1}  # of a step; float32
STEP_BYTES = 4 * sum(COLUMNS.values()) + 4 * len(COLUMNS)  # its values, and how many items name each
ITEM_STEPS = 2
MAX_SIZE = 20_000
STEPS = 1024  # different ones
# batches of a queue: drawn before the clock runs, and timed at least
UNTIMED, MIN_CALLS = 10, 20
# of the table with a limiter: samples per insert, items before the first sample, half of the band
LIMIT = (8.0, 1000, 256.0)
LIMITED_BATCH = 64
WARM_UP = 0.5  # seconds


def random_steps() -> list[dict[str, Any]]:
    """Draw steps: of each column float32[n]."""
    rng = np.random.default_rng(0)
    return [{name: rng.random(n, dtype=np.float32) for name, n in COLUMNS.items()} for _ in range(STEPS)]


def resident_bytes() -> int:
    """Return the bytes that this process needs, page by page; 0 where the system doesn't say."""
    try:
        trim = ctypes.CDLL(None).malloc_trim  # what was freed goes back to the system: the GNU library has it
        trim(0)
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except (AttributeError, OSError):
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))


def write_items(writer: Any, count: int) -> None:
    """Write steps, an item with each, and wait until all items are in."""
    for _ in range(count):
        writer.step()
    writer.flush()


class Calls:
    """Calls of one kind, ready to be timed."""

    def __init__(
        self, one: Callable[[], object], finish: Callable[[], object] = int, *, queued: bool = False
    ) -> None:
        """Keep one call, what waits for those on their way, and whether they are answered from a queue."""
        self.one, self.finish, self.queued = one, finish, queued

    def seconds(self, calls: int) -> float:
        """Return the seconds of this many calls.

        A queue fills while others are measured: a few calls are made before, and more are timed than were
        asked for, or the clock would see the queue and not what fills it.
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
        """Return how many calls are made in a second, beside whoever else calls the server."""
        self.seconds(1)
        one, done, start = self.one, 0, time.perf_counter()
        while time.perf_counter() < start + seconds:
            one()
            done += 1
        self.finish()
        return done / (time.perf_counter() - start)


class Program:
    """A table, filled, and what can be asked for."""

    def __init__(self, module: str, start: dict[str, Any]) -> None:
        """Make the table, or call the server of another process."""
        self.calls_of: Any = importlib.import_module(module)
        self.steps = random_steps()
        self.bytes_per_item = 0.0
        if start["address"]:
            self.table: Any = self.calls_of.connect(start["address"], start["table"], self.steps)
        else:
            self.table = self.filled(start["table"], start["serve"])
        self.known: dict[tuple[str, int], Calls] = {}

    def filled(self, kind: str, serve: str) -> Any:
        """Return a table that is full; note what an item takes beside its step."""
        small = self.calls_of.make(kind, MAX_SIZE // 100, None, self.steps, "")
        write_items(small.writer(), MAX_SIZE // 50)  # so that all code is loaded by now
        small.close()
        before = resident_bytes()
        table = self.calls_of.make(kind, MAX_SIZE, None, self.steps, serve)
        write_items(table.writer(), 2 * MAX_SIZE)  # so each item has made room for another
        if before:
            self.bytes_per_item = (resident_bytes() - before) / MAX_SIZE - STEP_BYTES
        return table

    def calls(self, do: str, size: int) -> Calls:
        """Return the calls of this kind."""
        if (do, size) not in self.known:
            self.known.clear()  # a dataset goes on fetching as long as it lives
            if do == "write":
                writer = self.table.writer()
                self.known[do, size] = Calls(writer.step, writer.flush)
            else:
                make = self.table.sampler if do == "sample" else self.table.updater
                self.known[do, size] = Calls(make(size), queued=do == "sample" and self.table.queued)
        return self.known[do, size]

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked for."""
        if order["kind"] == "limited":
            return self.limited(order["writers"], order["seconds"])
        calls = self.calls(order["do"], order["size"])
        if order["kind"] == "rate":
            return {"rate": calls.rate(order["seconds"])}
        return {"seconds": calls.seconds(order["calls"])}

    def limited(self, writers: int, seconds: float) -> dict[str, Any]:
        """Let threads write, and one sample, against a limiter; return what they reached in a second."""
        table = self.calls_of.make("uniform", MAX_SIZE, LIMIT, self.steps, "")
        stop = threading.Event()
        written = [0] * writers
        longest = [0.0] * (writers + 1)  # seconds of a call, the sampler's last

        def write(number: int) -> None:
            writer, start = table.writer(), time.perf_counter()
            while not stop.is_set():
                writer.step()
                written[number] += 1
                start = note(number, start)
            writer.flush()

        def sample() -> None:
            draw, start = table.sampler(LIMITED_BATCH, 1.0), time.perf_counter()
            while any(thread.is_alive() for thread in threads):
                draw()
                start = note(writers, start)

        def note(number: int, start: float) -> float:
            now = time.perf_counter()
            longest[number] = max(longest[number], now - start)
            return now

        def look() -> FloatArray:
            return np.array((time.perf_counter(), *table.counts(), *table.waited(), *written), np.float64)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        everybody = [*threads, threading.Thread(target=sample)]
        for thread in everybody:
            thread.start()
        while not table.counts()[1]:  # it takes a while until there are enough items to sample
            time.sleep(0.01)
        time.sleep(WARM_UP)
        before = look()
        longest[:] = [0.0] * (writers + 1)
        time.sleep(seconds)
        after, calls = look(), list(longest)
        stop.set()
        for thread in everybody:
            thread.join()
        table.close()
        span, inserts, samples, waited, sampler_waited, *items = (after - before).tolist()
        figures = {
            "items": inserts / span,
            "samples": samples / span,
            "ratio": samples / inserts / LIMIT[0],
            "least": min(items) / max(items),
            "writers_waited": waited / writers / span,
            "sampler_waited": sampler_waited / span,
            "writers_longest": 1000.0 * max(calls[:writers]),
            "sampler_longest": 1000.0 * calls[writers],
        }
        return {name: None if math.isnan(figure) else figure for name, figure in figures.items()}


def main(module: str, start: dict[str, Any]) -> None:
    """Answer until the input ends: first what was made, then each order."""
    program = Program(module, start)
    made = {
        "version": program.calls_of.version(),
        "address": program.table.address,
        "bytes_per_item": program.bytes_per_item,
    }
    print(json.dumps(made, allow_nan=False), flush=True)
    for line in sys.stdin:
        print(json.dumps(program.answer(json.loads(line)), allow_nan=False), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
