"""The program of a helper process: a replay in a process of its own, and what can be asked of it.

Ours and Reverb's run this same program, each in its own Python. It makes a replay, fills it, and then does
what each line of its input asks for. The clock stands here, so the way between the processes isn't measured.
How a library is called is in a module beside this one: `our_tables` or `reverb_calls`.

Left out: all that would need NumPy 2 or this package, because Reverb's Python has neither.
"""

import ctypes
import importlib
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = {"obs": 15, "act": 3, "rew": 1, "done": 1}  # of a step; float32
STEP_BYTES = 4 * sum(COLUMNS.values()) + 4 * len(COLUMNS)  # its values, and how many items name each
ITEM_STEPS = 2
MAX_SIZE = 20_000
STEPS = 1024  # different ones
PRIORITIES = (0.5, 1.0, 1.5)
ON_THEIR_WAY = 20  # items of a writer, at most
# batches of a queue: drawn before the clock runs, and timed at least
UNTIMED, MIN_CALLS = 10, 20
# of the table with a limiter: samples per insert, items before the first sample, half of the band
LIMIT = (8.0, 1000, 256.0)
LIMITED_BATCH = 64
WARM_UP = 0.5  # seconds


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


class Writer:
    """Writes steps of one episode to a table, and an item with each but the first."""

    def __init__(self, table: Any, steps: list[dict[str, Any]]) -> None:
        """Begin an episode."""
        self.table, self.writer = table, table.trajectory_writer()
        self.steps, self.priorities = itertools.cycle(steps), itertools.cycle(PRIORITIES)
        self.writer.append(next(self.steps))

    def step(self) -> None:
        """Append a step, and make an item of it and the one before."""
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
            writer.flush(ON_THEIR_WAY)


class Tables:
    """A table of trajectories that is full, or a connection to that of another process."""

    def __init__(self, module: Any, start: dict[str, Any]) -> None:
        """Make the table, or call the server of another process."""
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
        """Return a table that is full; note what an item takes beside its step."""
        small = self.module.make(kind, MAX_SIZE // 100, None, self.steps[0], "")
        self.write(small, MAX_SIZE // 50)  # so that all code is loaded by now
        small.close()
        before = resident_bytes()
        table = self.module.make(kind, MAX_SIZE, None, self.steps[0], serve)
        self.write(table, 2 * MAX_SIZE)  # so each item has made room for another
        if before:
            self.bytes_per_item = (resident_bytes() - before) / MAX_SIZE - STEP_BYTES
        return table

    def write(self, table: Any, count: int) -> None:
        """Write steps, an item with each, and wait until all items are in."""
        writer = Writer(table, self.steps)
        for _ in range(count):
            writer.step()
        writer.writer.flush()

    def made(self) -> dict[str, Any]:
        """Return what there is to know of it."""
        return {"address": self.table.address, "bytes_per_item": self.bytes_per_item}

    def calls(self, do: str, size: int) -> Calls:
        """Return the calls of this kind: "write", "sample" or "update"."""
        if do == "write":
            writer = Writer(self.table, self.steps)
            return Calls(writer.step, writer.writer.flush)
        if do == "sample":
            return Calls(self.table.sampler(size), queued=self.table.queued)
        return Calls(self.table.updater(size, PRIORITIES))

    def limited(self, writers: int, seconds: float) -> dict[str, float]:
        """Let threads write, and one sample, against a limiter; return what they reached in a second."""
        table = self.module.make("uniform", MAX_SIZE, LIMIT, self.steps[0], "")
        stop = threading.Event()
        written = [0] * writers
        longest = [0.0] * (writers + 1)  # seconds of a call, the sampler's last

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

        def look() -> Any:
            return np.array((time.perf_counter(), *table.counts(), *written), np.float64)

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
        span, inserts, samples, *items = (after - before).tolist()
        return {
            "items": inserts / span,
            "samples": samples / span,
            "ratio": samples / inserts / LIMIT[0],
            "least": min(items) / max(items),
            "writers_longest": 1000.0 * max(calls[:writers]),
            "sampler_longest": 1000.0 * calls[writers],
        }


def resident_bytes() -> int:
    """Return the bytes that this process needs, page by page; 0 where the system doesn't say."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system: the GNU library has it
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except (AttributeError, OSError):
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))


def main(name: str, start: dict[str, Any]) -> None:
    """Answer until the input ends: first what was made, then each order."""
    sys.path.append(str(Path(__file__).parent))
    module: Any = importlib.import_module(name)
    replay: Any = module.Rows(**start["rows"]) if "rows" in start else Tables(module, start)
    print(json.dumps({"version": module.version(), **replay.made()}, allow_nan=False), flush=True)
    known: dict[tuple[str, int], Calls] = {}
    for line in sys.stdin:
        order = json.loads(line)
        if order["kind"] == "limited":
            answer = replay.limited(order["writers"], order["seconds"])
        else:
            key = order["do"], order["size"]
            if key not in known:
                known.clear()  # a dataset goes on fetching as long as it lives
                known[key] = replay.calls(*key)
            if order["kind"] == "rate":
                answer = {"rate": known[key].rate(order["seconds"])}
            else:
                answer = {"seconds": known[key].seconds(order["calls"])}
        print(json.dumps(answer, allow_nan=False), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
