"""What makes any mailbox for parameters right: whole vectors, and never an older one than before.

Every number of the vector that is published as version v is v, so a vector with two numbers in it is torn. A
process of its own publishes as fast as it can, and this one pulls. `OnePlace` is the mailbox that one writes
first, and it is wrong.

Left out: a publisher that dies.
"""

import time
from itertools import count
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.shared.memory import SharedArrays
from replay_tutorial.teaching.exercises import CheckFailed
from replay_tutorial.teaching.writers import START_SECONDS, spawn

LENGTH = 100_000  # numbers of a vector: some layers of a network


class WrongMailbox(CheckFailed):
    """What was pulled can't have been published."""


class OnePlace:
    """A mailbox with one place. Nothing says that somebody is writing there."""

    def __init__(self, length: int) -> None:
        """Reserve room for one vector."""
        vector, number = np.dtype(np.float32), np.dtype(np.int64)
        self.arrays = SharedArrays({"vector": ((length,), vector), "version": ((1,), number)})

    def publish(self, vector: npt.NDArray[np.float32]) -> None:
        """Write a vector over the last one, and count it."""
        self.arrays["vector"][:] = vector
        self.arrays["version"][0] += 1

    def pull(self, known_version: int) -> tuple[int, npt.NDArray[np.float32]] | None:
        """Copy the vector, if it has been counted since."""
        version = int(self.arrays["version"][0])
        return None if version == known_version else (version, self.arrays["vector"].copy())


def publish(mailbox: Any, length: int, stop: Event) -> None:
    """Publish 1, 2, 3, … as vectors, until told to stop: a publisher's whole life."""
    for version in count(1):
        if stop.is_set():
            return
        mailbox.publish(np.full(length, version, np.float32))


def check_mailbox(kind: Any, seconds: float = 1.0, length: int = LENGTH) -> None:
    """Check a mailbox while another process publishes.

    Args:
        kind: `kind(length)` has `publish(vector)` and `pull(known_version)`, as `Mailbox` has them.
        seconds: To go on for.
        length: Of a vector.

    Raises:
        WrongMailbox: If a vector is torn, or older than the one before.
        TimeoutError: If nothing is published.
    """
    mailbox, stop = kind(length), spawn.Event()
    publisher = spawn.Process(target=publish, args=(mailbox, length, stop), daemon=True)
    publisher.start()
    try:
        pulls, skipped = pull_for(mailbox, seconds)
    finally:
        stop.set()
        publisher.join()
    name = getattr(kind, "__name__", str(kind))
    print(f"{name}: {pulls:,} vectors were pulled, all whole, and {skipped:,} versions skipped")


def pull_for(mailbox: Any, seconds: float) -> tuple[int, int]:
    """Pull for so long after the first vector, and look at each; return how many came, and did not."""
    known, newest, pulls, skipped = 0, 0.0, 0, 0
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        pulled = mailbox.pull(known)
        if pulled is None:
            continue
        if not pulls:
            end = time.monotonic() + seconds
        version, vector = pulled
        low, high = float(vector.min()), float(vector.max())
        if low != high:
            share = float(np.mean(vector == high))
            raise WrongMailbox(
                f"pull {pulls + 1:,}: {share:.0%} of the vector is {high:.0f}, the rest is older"
            )
        if low < newest:
            raise WrongMailbox(f"pull {pulls + 1:,} brought {low:.0f}, and {newest:.0f} had come before")
        pulls, skipped = pulls + 1, skipped + (version - known - 1 if known else 0)
        known, newest = version, low
    if not pulls:
        raise TimeoutError(f"nothing was published for {START_SECONDS:g} s")
    return pulls, skipped
