"""The uniform replay buffer that several processes share: any number of writers, one sampler.

The calls are those of `buffers.uniform.ReplayBuffer`; the rows lie in a shared ring (`ring`), which needs
no lock: nobody waits for anybody, and a process that is killed costs at most the rows that it was adding.

Left out: what belongs to one stream of steps (n-step windows, shared frames). That is the actor's: see `NStep`.
"""

import operator
import os
import threading
from os import PathLike
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Batch, EnvDict, Fields
from replay_tutorial.buffers.ring import checked_size
from replay_tutorial.shared.limiter import wait_until
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.ring import SharedRing, Statistics, ring_specs


class MPReplayBuffer:
    """The newest transitions of many processes, drawn uniformly by one of them.

    Pass it to processes as an argument, under fork, spawn or forkserver. Any process may add; the first that samples
    is the sampler from then on, for as long as it lives.

    Example:
        >>> buffer = MPReplayBuffer(1000, {"obs": {"shape": 4}, "rew": {}}, seed=0)
        >>> buffer.add(obs=np.zeros((10, 4)), rew=np.ones(10))
        0
        >>> buffer.sample(32)["obs"].shape, buffer.get_stored_size()
        ((32, 4), 10)
    """

    def __init__(
        self,
        size: int,
        env_dict: EnvDict,
        *,
        next_of: Any = None,
        stack_compress: Any = None,
        default_dtype: npt.DTypeLike = np.float32,
        Nstep: Any = None,
        seed: int | np.random.SeedSequence | None = None,
        ctx: Any = None,
        path: str | PathLike[str] | None = None,
    ) -> None:
        """Reserve shared memory for `size` transitions; pages are handed out when they are first written.

        Args:
            size: Number of transitions kept; when it is reached, the oldest make room.
            env_dict: As for `ReplayBuffer`.
            next_of: Not here: rows of several processes follow each other in no order.
            stack_compress: Not here, for the same reason.
            default_dtype: The dtype of fields that name none.
            Nstep: Not here; each actor folds its own steps with `NStep`.
            seed: Seeds the drawing; None takes fresh randomness from the operating system.
            ctx: A multiprocessing context, as cpprb takes it. It makes no difference: every start method works.
            path: A file on disk to keep everything in, so that it outlives the processes; a file that exists is
                opened with every row that was published in it, and priorities. None for memory.

        Raises:
            MemoryError: If there is less room than it may come to need.
            OSError: If the file can't be opened or made.
            TypeError: If an argument is of the wrong kind.
            ValueError: If a value is out of range, or an argument is not supported here.
        """
        for name, value in (("Nstep", Nstep), ("next_of", next_of), ("stack_compress", stack_compress)):
            if value is not None:
                raise ValueError(
                    f"{type(self).__name__} has no {name}: it belongs to one stream of steps, and many processes add "
                    "here. Do it in the actor: fold its steps with NStep, then add the rows, next_obs among them."
                )
        capacity = checked_size(size)
        self._fields = Fields(env_dict, default_dtype)
        self._arrays = SharedArrays(self._specs(capacity), self._layout(capacity), path)
        self._rng = np.random.default_rng(seed)
        self._episode_len = 0
        self._look_into_arrays()

    @classmethod
    def attach(
        cls, address: str | PathLike[str], *, seed: int | np.random.SeedSequence | None = None
    ) -> Self:
        """Use the buffer of an unrelated process of the same user.

        Args:
            address: Its `address`, or the path of its file.
            seed: Seeds the drawing, if this process is to sample.

        Returns:
            A buffer that shares everything with the other.

        Raises:
            OSError: If there is none.
            ValueError: If there is something else.
        """
        buffer = cls.__new__(cls)
        buffer._arrays = SharedArrays.attach(address)
        layout = buffer._arrays.layout
        if layout.get("kind") != cls.__name__:
            raise ValueError(f"{address} holds a {layout.get('kind')}, not a {cls.__name__}.")
        buffer._fields = Fields(
            {name: {"shape": tuple(n), "dtype": t} for name, (n, t) in layout["fields"].items()}
        )
        buffer._rng = np.random.default_rng(seed)
        buffer._episode_len = 0
        buffer._look_into_arrays()
        return buffer

    @property
    def address(self) -> str:
        """Where an unrelated process of the same user can `attach`, while this process lives or the file lies there.

        Raises:
            ValueError: If there is no file, and the system is not Linux.
        """
        return self._arrays.address

    def _layout(self, capacity: int) -> dict[str, Any]:
        fields = {f.name: [list(f.shape), f.dtype.str] for f in self._fields.fields.values()}
        return {"kind": type(self).__name__, "size": capacity, "fields": fields}

    def _specs(self, capacity: int) -> Specs:
        return ring_specs(capacity, self._fields.dtype)

    def _look_into_arrays(self) -> None:
        self._ring = SharedRing(self._arrays, self._fields.dtype)
        self._thread_lock = (0, threading.Lock())

    def _between_threads(self) -> threading.Lock:
        """Give the lock between the sampler's own threads: it dies with them, and a forked child has one anew."""
        if self._thread_lock[0] != os.getpid():
            self._thread_lock = (os.getpid(), threading.Lock())
        return self._thread_lock[1]

    def close(self) -> None:
        """Give up this process's share of the memory, which is free when the last process has.

        Another process may become the sampler then. Not needed at a process's end. Whatever is asked of the rows
        later raises ValueError; closing again is harmless.
        """
        if "_ring" in self.__dict__:
            self._ring.release()
        self.__dict__.pop("_arrays", None)
        self._forget_views()

    def _forget_views(self) -> None:
        self.__dict__.pop("_ring", None)

    def __enter__(self) -> Self:
        """Use the buffer in a `with` block, which closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in ("_arrays", "_ring", "_priorities", "_draw"):
            raise ValueError(f"This {type(self).__name__} is closed.")
        return object.__getattribute__(self, name)  # again: the error says what really is missing

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_ring", "_thread_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._look_into_arrays()

    def add(self, /, **fields: Any) -> int:
        """Add one transition, or a batch along axis 0, from any process.

        Args:
            **fields: A value for each field; nested dicts and tuples are joined by "/".

        Returns:
            The index of the first row: its serial number, counted from 0 over all processes and never used again.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape, a length or a value does not fit. Nothing has changed then.
        """
        rows = self._fields.to_rows(*self._fields.to_columns(fields))
        index = self._ring.append(rows, np.zeros(len(rows)))
        self._episode_len += len(rows)
        return index

    def on_episode_end(self) -> None:
        """End this process's episode: its length starts from 0. No row waits here."""
        self._episode_len = 0

    def wait_for(self, rows: int, timeout: float | None = None) -> bool:
        """Wait until so many rows are stored, asleep but for a look a millisecond.

        Args:
            rows: How many; at most the buffer's size.
            timeout: Seconds to wait at most; None waits for ever.

        Returns:
            Whether they are.

        Raises:
            ValueError: If so many never will be.
        """
        if rows > self._ring.capacity:
            raise ValueError(f"wait_for({rows}): the buffer holds {self._ring.capacity} rows at most.")
        return wait_until(lambda: self._ring.stored >= rows, timeout)

    def statistics(self) -> Statistics:
        """Count what has happened, in all processes together; any of them may ask."""
        return self._ring.statistics()

    def sample(self, batch_size: int) -> Batch:
        """Draw transitions uniformly, with replacement.

        Args:
            batch_size: Number of transitions.

        Returns:
            For each field an array of shape (batch_size, *shape), the caller's own.

        Raises:
            RuntimeError: If another living process is the sampler.
            TypeError: If batch_size is not an integer.
            ValueError: If it is below 1, or the buffer is empty.
        """
        with self._between_threads():
            self._check_sample(batch_size)
            return self._fields.to_batch(self._ring.draw(batch_size, self._rng))

    def get_all_transitions(self, shuffle: bool = False) -> Batch:
        """Copy everything that is stored.

        Args:
            shuffle: In random order; else the oldest first.

        Returns:
            For each field an array of shape (stored, *shape).
        """
        rows = self._ring.all_rows()
        return self._fields.to_batch(self._rng.permutation(rows) if shuffle else rows)

    def clear(self) -> None:
        """Forget every transition. Indexes go on counting.

        Raises:
            RuntimeError: If another living process is the sampler.
        """
        with self._between_threads():
            self._ring.claim_sampler()
            self._ring.clear()
        self._episode_len = 0

    def get_stored_size(self) -> int:
        """Count the transitions that are stored."""
        return self._ring.stored

    def __len__(self) -> int:
        """Count them."""
        return self._ring.stored

    def get_buffer_size(self) -> int:
        """Tell how many transitions can be stored."""
        return self._ring.capacity

    def get_next_index(self) -> int:
        """Tell the index that the next row will get."""
        return self._ring.next_index

    def get_current_episode_len(self) -> int:
        """Count the transitions that this process added since its last `on_episode_end` or `clear`."""
        return self._episode_len

    def is_Nstep(self) -> bool:
        """Tell whether n-step transitions are made here: never."""
        return False

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        return self._ring.nbytes

    @property
    def bytes_per_transition(self) -> float:
        """Bytes reserved for each transition that can be stored."""
        return self.nbytes / self._ring.capacity

    def _check_sample(self, batch_size: int) -> None:
        if operator.index(batch_size) < 1:
            raise ValueError(f"sample({batch_size}): a batch holds at least 1 transition.")
        if self._ring.stored == 0 and len(self._ring.published_slots()) == 0:
            raise ValueError(
                f"sample({batch_size}) needs at least 1 stored transition; the buffer is empty. Wait for one."
            )
        self._ring.claim_sampler()
