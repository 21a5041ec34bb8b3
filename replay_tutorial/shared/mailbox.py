"""A mailbox for parameters: the learner publishes the newest version, and actors pull it without locks.

Actors need only the newest parameters, so there is no queue, and a slow actor skips versions. The mailbox
holds two vectors. Version v is written to vector v mod 2, so the newest complete version stays intact while
the next one is written. A reader copies a vector and then checks whether it was overwritten meanwhile. If it
was, a newer version exists, and the reader copies that one.

If the learner is killed while it publishes, the last complete version remains, and a new learner can continue
from it. Only one process may publish at a time.

Built in chapter 07, *Ape-X*.
"""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.rows import checked_at_least
from replay_tutorial.buffers.runtime.jit import Integers, compile_now, kernel
from replay_tutorial.buffers.tensors.module_vector import load_vector, shapes_of, vector_of
from replay_tutorial.shared.atomics import fence_acquire, fence_release, load_acquire, store_release
from replay_tutorial.shared.memory import SharedArrays

# Positions in the counters, int64[16], one cache line each: newest complete version, newest version begun.
VERSION, BEGUN = 0, 8
NUM_VECTORS = 2


@kernel
def begin_version(counters: Integers) -> int:
    """Announce that the next version is about to be written, and return its number."""
    version = load_acquire(counters, VERSION) + 1
    store_release(counters, BEGUN, version)
    fence_release()  # otherwise a reader could see new data before the announcement
    return version


@kernel
def publish_version(counters: Integers, version: int) -> None:
    """Publish a version: a reader that sees its number also sees its data."""
    store_release(counters, VERSION, version)


@kernel
def newest_version(counters: Integers) -> int:
    """Return the newest complete version."""
    return load_acquire(counters, VERSION)


@kernel
def is_intact(counters: Integers, version: int) -> bool:
    """Return whether the data of `version` were intact while the caller copied them."""
    fence_acquire()  # otherwise the check could run before the copy is complete
    return load_acquire(counters, BEGUN) < version + NUM_VECTORS


class Mailbox:
    """The newest version of a parameter vector, shared between processes.

    Pass the mailbox to other processes as an argument. One process publishes; any number of processes pull.

    Built in chapter 07, *Ape-X*.

    Example:
        >>> mailbox = Mailbox(3)
        >>> mailbox.pull(known_version=0) is None  # nothing has been published
        True
        >>> mailbox.publish(np.ones(3, np.float32))
        1
        >>> mailbox.pull(known_version=0)
        (1, array([1., 1., 1.], dtype=float32))

        With PyTorch, in the learner and in an actor:

        >>> import torch
        >>> learners, actors = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
        >>> mailbox = Mailbox.for_module(learners)
        >>> mailbox.publish(learners)
        1
        >>> version = mailbox.load_into(actors, known_version=0)
        >>> version, torch.equal(actors.weight, learners.weight)
        (1, True)
    """

    def __init__(self, length: int, dtype: npt.DTypeLike = np.float32) -> None:
        """Reserve shared memory for two vectors.

        Args:
            length: Number of elements of a vector; at least 1.
            dtype: Dtype of a vector.

        Raises:
            TypeError: If `length` is not an integer, or `dtype` contains Python objects.
            ValueError: If `length` is below 1.
        """
        length = checked_at_least("length", length, 1)
        if np.dtype(dtype).hasobject:
            raise TypeError(f"dtype must not contain Python objects, as {dtype!r:.60} does; pass np.float32.")
        self._shapes: list[tuple[int, ...]] | None = None  # of a module's parameters, if they are known
        # Compiled once here, instead of in each process that pulls.
        compile_now(begin_version, publish_version, newest_version, is_intact)
        self._arrays = SharedArrays(
            {"vectors": ((NUM_VECTORS, length), np.dtype(dtype)), "counters": ((16,), np.dtype(np.int64))}
        )

    @classmethod
    def for_module(cls, module: Any) -> Self:
        """Create a mailbox for the parameters of a PyTorch module; see `publish` and `load_into`.

        Args:
            module: A `torch.nn.Module`, on any device. Its floating-point buffers, such as the statistics of
                batch normalization, are published with the parameters.
        """
        vector = vector_of(module)
        mailbox = cls(len(vector), vector.dtype)
        mailbox._shapes = shapes_of(module)
        return mailbox

    @property
    def version(self) -> int:
        """Version of the newest vector; 0 before the first."""
        return int(self._arrays["counters"][VERSION])

    def publish(self, vector: Any) -> int:
        """Publish a copy of a vector as the next version. It overwrites the version before the newest one.

        Args:
            vector: Array of the mailbox's length and dtype, or a PyTorch module.

        Returns:
            The new version, one above the previous one.

        Raises:
            TypeError: If `vector` is neither a NumPy array nor a module.
            ValueError: If its shape or dtype does not match, or it has masked elements.
        """
        counters, vectors = self._arrays["counters"], self._arrays["vectors"]
        array: npt.NDArray[Any] = vector_of(vector) if hasattr(vector, "parameters") else vector
        if not isinstance(array, np.ndarray):
            raise TypeError(f"vector must be an array of {vectors.dtype}, not a {type(vector).__name__}.")
        if array.shape != vectors.shape[1:] or array.dtype != vectors.dtype:
            raise ValueError(
                f"vector must be {vectors.dtype}{vectors.shape[1:]}, not {array.dtype}{array.shape}."
            )
        if np.ma.is_masked(array):
            raise ValueError("vector has masked elements. Pass vector.filled(value).")
        version = int(begin_version(counters))
        vectors[version % NUM_VECTORS] = array
        publish_version(counters, version)
        return version

    def pull(self, known_version: int) -> tuple[int, npt.NDArray[Any]] | None:
        """Return a copy of the newest vector, unless the caller already has it.

        Args:
            known_version: Version that the caller has; 0 if it has none.

        Returns:
            The version and the vector, or None if `known_version` is the newest, or none has been published.

        Raises:
            TypeError: If `known_version` is not an integer.
            ValueError: If `known_version` is negative.
        """
        known_version = checked_at_least("known_version", known_version, 0)
        while self.version not in (0, known_version):
            version = int(newest_version(self._arrays["counters"]))
            vector = self._arrays["vectors"][version % NUM_VECTORS].copy()
            if is_intact(self._arrays["counters"], version):
                return version, vector
        return None

    def load_into(self, module: Any, known_version: int) -> int:
        """Overwrite the parameters of a PyTorch module with the newest ones, unless it already has them.

        Args:
            module: A module whose parameters have the same shapes, in the same order, as the published ones.
            known_version: Version that the module has; 0 if it has none.

        Returns:
            The version that the module has now; `known_version` if there is no other.

        Raises:
            TypeError: If `known_version` is not an integer.
            ValueError: If `known_version` is negative, or the module has another number of parameters. Also
                if their shapes differ from those passed to `for_module`; other mailboxes know no shapes.
        """
        pulled = self.pull(known_version)
        if pulled is None:
            return known_version
        version, vector = pulled
        load_vector(module, vector, self._shapes)
        return version
