"""A mailbox for the newest weights: the learner publishes, every actor pulls when it likes.

Only the newest weights are of use, so there is one place for them and no queue: a slow actor skips versions instead
of falling behind.

Left out: doing without the lock, which makes an actor wait while the learner publishes.
"""

import multiprocessing
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.shared.memory import SharedArrays


class Mailbox:
    """The newest version of one vector of numbers, for many processes.

    Pass it to processes as an argument.

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
        """Reserve room for one vector.

        Args:
            length: Its length, at least 1.
            dtype: Its dtype.

        Raises:
            ValueError: If the length is below 1.
        """
        if length < 1:
            raise ValueError(f"length must be at least 1, not {length}.")
        self._arrays = SharedArrays(
            {"vector": ((length,), np.dtype(dtype)), "version": ((1,), np.dtype(np.int64))}
        )
        self._lock = multiprocessing.get_context("spawn").Lock()

    @property
    def version(self) -> int:
        """The version of the newest vector; 0 before the first."""
        return int(self._arrays["version"][0])

    def publish(self, vector: npt.NDArray[Any]) -> int:
        """Put a new vector in the place of the last one.

        Args:
            vector: Of the mailbox's length and dtype.

        Returns:
            Its version, one more than the last.

        Raises:
            ValueError: If shape or dtype differ.
        """
        place = self._arrays["vector"]
        if vector.shape != place.shape or vector.dtype != place.dtype:
            raise ValueError(
                f"The mailbox holds {place.dtype}{place.shape}, not {vector.dtype}{vector.shape}."
            )
        with self._lock:
            place[:] = vector
            self._arrays["version"][0] += 1
            return self.version

    def pull(self, known_version: int) -> tuple[int, npt.NDArray[Any]] | None:
        """Copy the newest vector, if it is not the known one.

        Args:
            known_version: The version that the caller has; 0 for none.

        Returns:
            The version and the vector; None if there is nothing new.
        """
        if self.version == known_version:
            return None
        with self._lock:
            return self.version, self._arrays["vector"].copy()
