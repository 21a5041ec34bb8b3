"""Kill a writer of a shared buffer in the middle of `add`, and measure whether the other processes continue.

There are two processes. The victim adds long rows forever, and is killed; its rows are so long that it is
almost always inside `add`. The survivor then adds rows for five laps while another of its threads samples. A
call that takes longer than `patience` counts as blocked.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from replay_course.writers import START_SECONDS, fields_of, numbers_of, rows_of, running, spawn

CAPACITY = 8
WIDTH = 1 << 17  # values per row: 1 MiB
CHUNK = 8  # rows per `add` call of the victim
ROWS, SAMPLES = 40, 10  # calls of `add`, with one row each, and of `sample` by the survivor
ALONE = 0.2  # seconds for which the victim runs alone before it is killed
PATIENCE = 2.0  # seconds


class Aftermath(NamedTuple):
    """Whether the survivor's calls returned after the kill.

    Attributes:
        add: Duration of the survivor's calls of `add` in seconds; None if they did not return.
        sample: Duration of its calls of `sample` in seconds; None if they did not return.
        patience: Timeout in seconds.
    """

    add: float | None
    sample: float | None
    patience: float

    @property
    def is_blocked(self) -> bool:
        """Whether a call did not return in time."""
        return None in self

    def __str__(self) -> str:
        late = f"did not return within {self.patience:g} s"
        add, sample = (late if each is None else f"returned after {each:.3f} s" for each in self[:2])
        return f"{'blocked' if self.is_blocked else 'continues'} (add {add}, sample {sample})"


def add_forever(buffer: Any, orders: Connection) -> None:
    """Add long rows until the process is killed: the victim's main function."""
    rows = rows_of(numbers_of(1, 1, CHUNK), WIDTH)
    buffer.add(**rows)
    orders.send("adding")
    while True:
        buffer.add(**rows)


def survive(buffer: Any, orders: Connection, sampled: Connection) -> None:
    """Sample until a "stop" command, wait for "continue", then add and sample, and send both durations."""

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

    while not orders.poll(0.01):  # otherwise a full queue would block the victim in its first `add`
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
    """Kill a writer in the middle of `add`, and measure whether the other processes continue.

    Args:
        kind: Class of a shared replay buffer, as in `check_shared`.
        patience: Seconds after which a call counts as blocked.

    Returns:
        Duration of the survivor's calls. All processes have ended.
    """
    buffer = kind(CAPACITY, fields_of(WIDTH))
    (victim_orders, theirs), (orders, of_survivor), (sampled, sample_end) = (spawn.Pipe() for _ in range(3))
    victim = spawn.Process(target=add_forever, args=(buffer, theirs), daemon=True)
    survivor = spawn.Process(target=survive, args=(buffer, of_survivor, sample_end), daemon=True)
    with contextlib.closing(buffer), running(survivor, victim):
        theirs.close()  # otherwise the death of a victim that raises an error would go unnoticed
        answer(victim_orders, START_SECONDS)
        orders.send("stop")
        answer(orders, START_SECONDS)
        time.sleep(ALONE)
        victim.kill()
        victim.join()
        orders.send("continue")
        end = time.monotonic() + patience
        added = answer(orders, end - time.monotonic())
        return Aftermath(added, answer(sampled, end - time.monotonic()), patience)


def answer(pipe: Connection, seconds: float) -> Any:
    """Return the next object from a pipe, or None after a timeout."""
    return pipe.recv() if pipe.poll(max(0.0, seconds)) else None
