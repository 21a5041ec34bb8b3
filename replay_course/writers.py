"""Writer processes, and rows that reveal whether they are torn.

Every value of a row is the row's number, `10 * count + writer`: all values of writer 3's 17th row are 173. A
row with two numbers is torn, and a row of zeros was never written. Writers start by spawn, as on macOS and
Windows, so the functions that they run are defined in this module and not in a notebook.
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

START_SECONDS = 120.0  # timeout for the start of a process, even on a very busy machine
CHUNK = 5  # most rows per `add` call
SAMPLE = 64  # rows per `sample` call


def fields_of(width: int) -> dict[str, Any]:
    """Return the fields of a row: its number, and `width` further values."""
    return {"number": {"dtype": np.float64}, "values": {"shape": (width,), "dtype": np.float64}}


def rows_of(numbers: npt.NDArray[np.float64], width: int) -> dict[str, npt.NDArray[np.float64]]:
    """Return the rows with these numbers."""
    return {"number": numbers, "values": np.broadcast_to(numbers[:, np.newaxis], (len(numbers), width))}


def numbers_of(writer: int, first: int, count: int) -> npt.NDArray[np.float64]:
    """Return the numbers of a writer's rows `first` to `first + count - 1`, counted from 1."""
    return 10.0 * np.arange(first, first + count, dtype=np.float64) + writer


@contextmanager
def running(*processes: BaseProcess) -> Generator[None]:
    """Start processes; kill them at the end of the block (SIGKILL, or TerminateProcess on Windows)."""
    try:
        for process in processes:
            process.start()
        yield
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()


def run_writer(buffer: Any, writer: int, width: int, orders: Connection) -> None:
    """Main function of a writer: add the rows that the parent requests, until the parent closes the pipe."""
    orders.send("started")
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
    """Add the same batch forever, and count its rows in `added[writer]`: the main function in a race."""
    count = len(next(iter(rows.values())))
    while True:
        buffer.add(**rows)
        added[writer] += count


class Writers:
    """Writer processes of a buffer, which are killed at the end of the block.

    Example:
        with Writers(buffer, 2, width=8) as writers:
            writers.start(0, rows=100)
            writers.wait(0)
    """

    def __init__(self, buffer: Any, count: int, width: int) -> None:
        """Create `count` writers, numbered from 0, of a buffer with `fields_of(width)`; start none."""
        pipes = [spawn.Pipe() for _ in range(count)]
        self.orders, self.ends = [mine for mine, _ in pipes], [theirs for _, theirs in pipes]
        self.processes = [
            spawn.Process(target=run_writer, args=(buffer, writer, width, theirs), daemon=True)
            for writer, theirs in enumerate(self.ends)
        ]

    def __enter__(self) -> Self:
        """Start all writers, and wait until they run."""
        with ExitStack() as stack:
            stack.enter_context(running(*self.processes))
            for writer, end in enumerate(self.ends):
                end.close()  # otherwise the death of the process would go unnoticed
                self.wait(writer)
            self.stack = stack.pop_all()
        return self

    def start(self, writer: int, rows: float = np.inf, seconds: float = 600.0) -> None:
        """Request that a writer add up to `rows` rows in up to `seconds` seconds, as fast as it can."""
        self.orders[writer].send((rows, seconds))

    def is_done(self, writer: int) -> bool:
        """Return whether a writer has finished its last request, or has died."""
        return self.orders[writer].poll()

    def wait(self, writer: int, seconds: float = START_SECONDS) -> Any:
        """Wait until a writer has finished its last request; return the rows that it has added in total.

        Raises:
            RuntimeError: If the writer died.
            TimeoutError: If it has not finished after `seconds` seconds.
        """
        if not self.orders[writer].poll(seconds):
            raise TimeoutError(f"writer {writer} has not finished adding after {seconds:g} s")
        try:
            return self.orders[writer].recv()
        except EOFError:
            self.processes[writer].join()
            code = self.processes[writer].exitcode
            raise RuntimeError(f"writer {writer} died with exit code {code}; see its error above") from None

    def __exit__(self, *_: object) -> None:
        self.stack.close()
        for orders in self.orders:
            orders.close()
