"""Check a parameter mailbox: every pulled vector is complete, and none is older than its predecessor.

Every number in the vector of version v is v, so a vector with two numbers is torn. Another process publishes
as fast as it can while this one pulls. `OnePlace` is an incorrect first attempt. The death of a publisher
isn't tested.
"""

import time
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.local.supervisor import start_context
from replay_tutorial.shared.memory import SharedArrays
from replay_tutorial.teaching.exercises import CheckFailed
from replay_tutorial.teaching.writers import START_SECONDS, running

LENGTH = 100_000  # numbers per vector, as in a small network


class OnePlace:
    """A mailbox with a single vector. A reader can't detect that a writer is changing it."""

    def __init__(self, length: int) -> None:
        """Allocate the vector in shared memory."""
        vector, number = np.dtype(np.float32), np.dtype(np.int64)
        self.arrays = SharedArrays({"vector": ((length,), vector), "version": ((1,), number)})

    def publish(self, vector: npt.NDArray[np.float32]) -> None:
        """Overwrite the vector, and increment its version."""
        self.arrays["vector"][:] = vector
        self.arrays["version"][0] += 1

    def pull(self, known_version: int) -> tuple[int, npt.NDArray[np.float32]] | None:
        """Return the version and a copy of the vector, or None if the caller already has it."""
        version = int(self.arrays["version"][0])
        return None if version == known_version else (version, self.arrays["vector"].copy())


def publish(mailbox: Any) -> None:
    """Publish vectors of 1, 2, 3, … until the process is killed: the main function of the publisher."""
    for version in count(1):
        mailbox.publish(np.full(LENGTH, version, np.float32))


def check_mailbox(kind: Any, seconds: float = 1.0) -> None:
    """Check a mailbox while another process publishes.

    Args:
        kind: Class of the mailbox: `kind(length)`, with the methods `publish` and `pull` of `Mailbox`.
        seconds: Length of the check.

    Raises:
        CheckFailed: If a vector is torn, or older than its predecessor.
        TimeoutError: If no vector is published.
    """
    mailbox = kind(LENGTH)
    with running(start_context().Process(target=publish, args=(mailbox,), daemon=True)):
        pulls, skipped = pull_for(mailbox, seconds)
    name = getattr(kind, "__name__", str(kind))
    print(f"{name}: {pulls:,} vectors pulled, all complete; {skipped:,} versions skipped")


def pull_for(mailbox: Any, seconds: float) -> tuple[int, int]:
    """Pull and check vectors for some seconds after the first; return the numbers pulled and skipped."""
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
            raise CheckFailed(
                f"pull {pulls + 1:,}: {share:.0%} of the vector is {high:.0f}, and the rest is older"
            )
        if low < newest:
            raise CheckFailed(f"pull {pulls + 1:,} returned {low:.0f} after {newest:.0f}")
        pulls, skipped = pulls + 1, skipped + (version - known - 1 if known else 0)
        known, newest = version, low
    if not pulls:
        raise TimeoutError(f"no vector was published within {START_SECONDS:g} s")
    return pulls, skipped
