"""A mailbox for the newest parameters: the learner publishes, each actor pulls when it likes, nobody waits.

Only the newest parameters are of use, so there is no queue: a slow actor skips versions instead of falling
behind. Two places take turns, version v in place v mod 2, so the newest whole version stays untouched while
the next one is written. A reader copies first and looks afterwards whether its place was written to
meanwhile; if so there is a newer version, and it takes that.

A learner that is killed while it publishes leaves the last whole version, and another may go on from there.

Left out: several learners at once.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Integers, compile_now, kernel
from replay_tutorial.shared.atomics import fence_acquire, fence_release, load_acquire, store_release
from replay_tutorial.shared.memory import SharedArrays

# Where the counters stand in int64[16], a cache line each: the newest whole version, and the newest begun.
VERSION, BEGUN = 0, 8
PLACES = 2


@kernel
def begin(counters: Integers) -> int:
    """Announce that the next version's place is about to be written to; return that version."""
    version = load_acquire(counters, VERSION) + 1
    store_release(counters, BEGUN, version)
    fence_release()  # or a reader might see the first new bytes before the announcement
    return version


@kernel
def finish(counters: Integers, version: int) -> None:
    """Make a version the newest: who reads its number also reads its bytes."""
    store_release(counters, VERSION, version)


@kernel
def newest(counters: Integers) -> int:
    """Return the newest whole version."""
    return load_acquire(counters, VERSION)


@kernel
def still_whole(counters: Integers, version: int) -> bool:
    """Return whether the place of a version, copied before, has not been written to meanwhile."""
    fence_acquire()  # or the look might come before the last bytes were read
    return load_acquire(counters, BEGUN) < version + PLACES


class Mailbox:
    """The newest version of one vector of numbers, for many processes.

    Pass it to processes as an argument. One process publishes.

    Example:
        >>> mailbox = Mailbox(3)
        >>> mailbox.pull(known_version=0) is None  # nothing has been published
        True
        >>> mailbox.publish(np.ones(3, np.float32))
        1
        >>> mailbox.pull(known_version=0)
        (1, array([1., 1., 1.], dtype=float32))
    """

    def __init__(self, length: int, dtype: npt.DTypeLike = np.float32) -> None:
        """Reserve room for two vectors.

        Args:
            length: The length of one, at least 1.
            dtype: Its dtype.

        Raises:
            ValueError: If the length is below 1.
        """
        if length < 1:
            raise ValueError(f"length must be at least 1, not {length}.")
        compile_now(begin, finish, newest, still_whole)  # the processes that pull them would, each for itself
        self._arrays = SharedArrays(
            {"places": ((PLACES, length), np.dtype(dtype)), "counters": ((16,), np.dtype(np.int64))}
        )

    @property
    def version(self) -> int:
        """The version of the newest vector; 0 before the first."""
        return int(self._arrays["counters"][VERSION])

    def publish(self, vector: npt.NDArray[Any]) -> int:
        """Put a new vector in the place of the one before the last.

        Args:
            vector: Of the mailbox's length and dtype.

        Returns:
            Its version, one more than the last.

        Raises:
            TypeError: If it is not an array.
            ValueError: If shape or dtype differ.
        """
        counters, places = self._arrays["counters"], self._arrays["places"]
        if not isinstance(vector, np.ndarray):
            raise TypeError(f"The mailbox takes an array of {places.dtype}, not a {type(vector).__name__}.")
        if vector.shape != places.shape[1:] or vector.dtype != places.dtype:
            raise ValueError(
                f"The mailbox holds {places.dtype}{places.shape[1:]}, not {vector.dtype}{vector.shape}."
            )
        version = int(begin(counters))
        places[version % PLACES] = vector
        finish(counters, version)
        return version

    def pull(self, known_version: int) -> tuple[int, npt.NDArray[Any]] | None:
        """Copy the newest vector, if it is not the known one.

        Args:
            known_version: The version that the caller has; 0 for none.

        Returns:
            The version and the vector; None if there is nothing new.
        """
        while self.version != known_version:
            version = int(newest(self._arrays["counters"]))
            vector = self._arrays["places"][version % PLACES].copy()
            if still_whole(self._arrays["counters"], version):
                return version, vector
        return None
