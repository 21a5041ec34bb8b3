"""The random numbers of a buffer: an independent stream in every process.

A copy of a buffer in another process must not draw the rows that the original draws. A stream therefore
changes when its process is forked and when `multiprocessing` sends it to another process, as an argument or
through a queue. Copies by `pickle`, `copy` and `save` keep the stream, so that they resume exactly.

The stream of a copy depends on the state of the original and on the number of copies made before, so a
program with a seed remains reproducible.
"""

import copy
import hashlib
import os
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np


class Stream(np.random.Generator):
    """A random generator whose copies in other processes are independent of it.

    Example:
        >>> import copy
        >>> stream = Stream(0)
        >>> twin = copy.deepcopy(stream)  # the same stream
        >>> stream.random() == twin.random()
        True

    Attributes:
        copies: Number of copies in other processes so far.
        sender: PID of the process that sent this copy through `multiprocessing`; None for an original.
    """

    def __init__(self, seed: int | np.random.SeedSequence | np.random.Generator | None = None) -> None:
        """Start a stream; if the seed is a generator, share its state."""
        if isinstance(seed, bool):
            raise TypeError(f"seed must be an integer or None, not {seed}.")
        super().__init__(np.random.default_rng(seed).bit_generator)
        self.copies = 0
        self.sender: int | None = None
        _streams.add(self)

    @property
    def state(self) -> dict[str, Any]:
        """The state that `save` writes: that of the bit generator, and `copies`."""
        return {**self.bit_generator.state, "copies": self.copies}

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (self.bit_generator, self.copies)

    def state_of_copy(self) -> Any:
        """Return the initial state of the newest copy in another process."""
        origin = repr((self.bit_generator.state, self.copies)).encode()
        return type(self.bit_generator)(int.from_bytes(hashlib.sha256(origin).digest())).state


def restored(bit_generator: np.random.BitGenerator, copies: int = 0, sender: int | None = None) -> Stream:
    """Return a stream in the state of a bit generator."""
    stream = Stream(np.random.Generator(bit_generator))
    stream.copies, stream.sender = copies, sender
    return stream


def reduce_for_process(stream: Stream) -> tuple[Any, ...]:
    """Return what `multiprocessing` pickles: a new stream."""
    stream.copies += 1
    bit_generator = type(stream.bit_generator)()
    bit_generator.state = stream.state_of_copy()
    return restored, (bit_generator, 0, os.getpid())


@contextmanager
def restore_rng_on_error(*rngs: np.random.Generator) -> Generator[None]:
    """Restore the states of generators if the block raises ValueError or RuntimeError.

    This takes 2 µs for each. If the block only calls `random`, `state_before` costs nothing without an error.
    """
    states = [rng.bit_generator.state for rng in rngs]
    try:
        yield
    except (ValueError, RuntimeError):
        for rng, state in zip(rngs, states, strict=True):
            rng.bit_generator.state = state
        raise


def state_before(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Return the state that a generator had before it drew its last `count` numbers, by `random`."""
    now: Any = rng.bit_generator.state
    earlier: Any = copy.deepcopy(rng.bit_generator)
    earlier.advance(-count)
    return {**earlier.state, "has_uint32": now["has_uint32"], "uinteger": now["uinteger"]}


_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


def count_copies() -> None:
    """Count, before a fork, the copies that the child will have."""
    for stream in list(_streams):
        stream.copies += 1


def start_new_streams() -> None:
    """Give each stream that a forked child inherited another state."""
    for stream in list(_streams):
        stream.bit_generator.state = stream.state_of_copy()


ForkingPickler.register(Stream, reduce_for_process)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=count_copies, after_in_child=start_new_streams)
