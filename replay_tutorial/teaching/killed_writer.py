"""What remains of a shared buffer when one of its writers is killed: do the others go on?

Two processes: one adds long rows without end, and is killed in the middle of that. The other one then adds
rows for five laps, and samples. A call that takes longer than the patience lasts is frozen.

Left out: where in `add` the writer was. Its rows are so long that it is hardly ever anywhere else.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from replay_tutorial.teaching.writers import START_SECONDS, fields_of, numbers_of, rows_of, running, spawn

CAPACITY = 8
WIDTH = 1 << 17  # values of a row: a megabyte
CHUNK = 8  # rows of each `add` of the victim
ROWS, SAMPLES = 40, 10  # that the survivor adds, one by one, and draws
ALONE = 0.2  # seconds that the victim has to itself before it is killed
PATIENCE = 2.0


class Aftermath(NamedTuple):
    """What came back after the kill.

    Attributes:
        add: Seconds that the survivor's calls of `add` took; None if they did not come back.
        sample: The same of `sample`.
        patience: Seconds that were waited.
    """

    add: float | None
    sample: float | None
    patience: float

    @property
    def is_frozen(self) -> bool:
        """Whether a call never came back."""
        return None in self

    def __str__(self) -> str:
        parts = [
            f"{name} "
            + (f"not back after {self.patience:g} s" if taken is None else f"back after {taken:.3f} s")
            for name, taken in zip(self._fields, self[:2], strict=False)
        ]
        return f"{'frozen' if self.is_frozen else 'goes on'} ({', '.join(parts)})"


def add_for_ever(buffer: Any, orders: Connection) -> None:
    """Add long rows until the end: the victim's life."""
    rows = rows_of(numbers_of(1, 1, CHUNK), WIDTH)
    buffer.add(**rows)
    orders.send("adding")
    while True:
        buffer.add(**rows)


def survive(buffer: Any, orders: Connection, sampled: Connection) -> None:
    """Sample until told to stop; when told to go on, add and sample, and send how long each took."""

    def add() -> None:
        start = time.perf_counter()
        for number in range(1, ROWS + 1):
            buffer.add(**rows_of(numbers_of(2, number, 1), WIDTH))
        orders.send(time.perf_counter() - start)

    def sample() -> None:
        start = time.perf_counter()
        for _ in range(SAMPLES):
            buffer.sample(CAPACITY)
        sampled.send(time.perf_counter() - start)

    while not orders.poll(0.01):  # else a queue would be full, and the victim would not come to its first row
        with contextlib.suppress(ValueError):
            buffer.sample(CAPACITY)
    orders.send(orders.recv())
    orders.recv()
    threads = [threading.Thread(target=work, daemon=True) for work in (add, sample)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def kill_a_writer(kind: Callable[..., Any], patience: float = PATIENCE) -> Aftermath:
    """Kill a writer in the middle of `add`, and see whether the others go on.

    Args:
        kind: Makes a shared replay buffer, as for `check_shared`.
        patience: Seconds after which what has not come back is frozen.

    Returns:
        How long the survivor's calls took. What is frozen is ended.
    """
    buffer = kind(CAPACITY, fields_of(WIDTH))
    (victim_orders, theirs), (orders, of_survivor), (sampled, sample_end) = (spawn.Pipe() for _ in range(3))
    victim = spawn.Process(target=add_for_ever, args=(buffer, theirs), daemon=True)
    survivor = spawn.Process(target=survive, args=(buffer, of_survivor, sample_end), daemon=True)
    with contextlib.closing(buffer), running(survivor, victim):
        theirs.close()  # or a victim that dies of an error would be waited for
        answer(victim_orders, START_SECONDS)
        orders.send("stop")
        answer(orders, START_SECONDS)
        time.sleep(ALONE)
        victim.kill()
        victim.join()
        orders.send("go on")
        end = time.monotonic() + patience
        added = answer(orders, end - time.monotonic())
        return Aftermath(added, answer(sampled, end - time.monotonic()), patience)


def answer(pipe: Connection, seconds: float) -> Any:
    """Return what comes out of a pipe, or None if nothing does."""
    return pipe.recv() if pipe.poll(max(0.0, seconds)) else None
