"""Writers in processes of their own, and rows that give themselves away.

Every value of a row is the row's number, `10 * count + writer`: writer 3's 17th row is 173 from its first
value to its last. A row with two numbers in it is torn, and a row of zeros was never written. Writers start
by spawn, as on macOS and Windows, so all that they run is defined here and not in a notebook.

Left out: the buffers that they write to.
"""

import multiprocessing
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Self

import numpy as np
import numpy.typing as npt

spawn = multiprocessing.get_context("spawn")

START_SECONDS = 120.0  # until a process is there, on the busiest of machines
CHUNK = 5  # rows of an `add`, at most
SAMPLE = 64  # rows of a `sample`


def fields_of(width: int) -> dict[str, Any]:
    """Describe a row: its number, and `width` values more."""
    return {"number": {"shape": (), "dtype": np.float64}, "values": {"shape": (width,), "dtype": np.float64}}


def rows_of(numbers: npt.NDArray[np.float64], width: int) -> dict[str, npt.NDArray[np.float64]]:
    """Make the rows with these numbers."""
    return {"number": numbers, "values": np.broadcast_to(numbers[:, np.newaxis], (len(numbers), width))}


def numbers_of(writer: int, first: int, count: int) -> npt.NDArray[np.float64]:
    """Number the rows `first` to `first + count - 1` of a writer; a writer counts from 1."""
    return 10.0 * np.arange(first, first + count, dtype=np.float64) + writer


@contextmanager
def running(*processes: BaseProcess) -> Generator[None]:
    """Start processes, and end them with the block: kill -9, or TerminateProcess on Windows."""
    try:
        for process in processes:
            process.start()
        yield
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()


def obey(buffer: Any, writer: int, width: int, orders: Connection) -> None:
    """Do what the parent asks, until it closes the pipe: a writer's whole life."""
    orders.send("here")
    written = 0
    while True:
        try:
            rows, seconds = orders.recv()
        except EOFError:
            return
        first, end = written, time.perf_counter() + seconds
        while written - first < rows and time.perf_counter() < end:
            count = min(1 + written % CHUNK, rows - (written - first))
            buffer.add(**rows_of(numbers_of(writer, written + 1, count), width))
            written += count
        orders.send(written)


def add_and_count(buffer: Any, rows: dict[str, Any], added: Any, writer: int) -> None:
    """Add the same batch without end, and count the rows in `added[writer]`: a writer in a race."""
    count = len(next(iter(rows.values())))
    while True:
        buffer.add(**rows)
        added[writer] += count


class Writers:
    """Some writers on a buffer, at the end of the block none.

    Example:
        with Writers(buffer, 2, width=8) as writers:
            writers.start(0, rows=100)
            writers.wait(0)
    """

    def __init__(self, buffer: Any, count: int, width: int) -> None:
        """Describe processes that may add to a buffer with `fields_of(width)`; they are numbered from 0."""
        pipes = [spawn.Pipe() for _ in range(count)]
        self.orders, self.ends = [mine for mine, _ in pipes], [theirs for _, theirs in pipes]
        self.processes = [
            spawn.Process(target=obey, args=(buffer, writer, width, theirs), daemon=True)
            for writer, theirs in enumerate(self.ends)
        ]

    def __enter__(self) -> Self:
        """Start them, and wait until they are there."""
        with ExitStack() as stack:
            stack.enter_context(running(*self.processes))
            for writer, end in enumerate(self.ends):
                end.close()  # or the end of the process would not be seen
                self.wait(writer)
            self.stack = stack.pop_all()
        return self

    def start(self, writer: int, rows: float = np.inf, seconds: float = 600.0) -> None:
        """Have one add so many rows, for so many seconds at most, as fast as it can."""
        self.orders[writer].send((rows, seconds))

    def is_done(self, writer: int) -> bool:
        """Return whether one has done what it was asked, or has died."""
        return self.orders[writer].poll()

    def wait(self, writer: int, seconds: float = START_SECONDS) -> Any:
        """Wait until one has done what it was asked; return how many rows it has added since it began.

        Raises:
            RuntimeError: If it died instead.
            TimeoutError: If it takes too long.
        """
        if not self.orders[writer].poll(seconds):
            raise TimeoutError(f"writer {writer} has not come back from `add` for {seconds:g} s")
        try:
            return self.orders[writer].recv()
        except EOFError:
            self.processes[writer].join()
            code = self.processes[writer].exitcode
            raise RuntimeError(
                f"writer {writer} died with exit code {code}; its error stands above"
            ) from None

    def __exit__(self, *_: object) -> None:
        """End them all."""
        self.stack.close()
        for orders in self.orders:
            orders.close()
