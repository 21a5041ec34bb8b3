"""The base class of all buffers: sizes, reading rows by index, saving and loading.

Read in chapter 05b, *Reading the real buffer*.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.gather import ArraySpec, array_specs
from replay_tutorial.buffers.rows import (
    as_integers,
    check_batch_size,
    checked_at_least,
    indexes_of,
    unknown_index_error,
)
from replay_tutorial.buffers.runtime.jit import Flags, Integers
from replay_tutorial.buffers.streams import Stream

if TYPE_CHECKING:  # loaded when they are used
    from weakref import WeakSet

    from replay_tutorial.buffers import archive
    from replay_tutorial.buffers.tensors.batches import Batches


# Keyword arguments of cpprb, and what to use instead; `replay_tutorial.cpprb` accepts them.
CPPRB_KEYWORDS = {
    "size": "use capacity= instead",
    "env_dict": "use fields= instead",
    "next_of": "use dedupe_next= instead",
    "stack_compress": "use dedupe_frames= instead",
    "Nstep": "use n_step=3, gamma=0.99 instead",
    "default_dtype": "declare the dtype of each field instead",
    "backend": "omit it",
    "check_for_update": "omit it",
    "ctx": "omit it",
    "mmap_prefix": "use MPReplayBuffer or MPPrioritizedReplayBuffer with path= instead",
}


class Sampled:
    """What `batches` needs: a buffer, or a mixture of buffers."""

    # `sample(…)` is `_copy(*_draw(…))`: a draw uses random numbers, and a copy may be done by another thread.
    _draw: Callable[..., tuple[Any, ...]]
    _copy: Callable[..., Batch]
    _buffers: "Callable[[], list[BaseBuffer]]"  # those whose rows are drawn
    _source: Callable[[], tuple[Any, ...]]  # objects that `clear`, `load` and `reseed` replace
    _loaded_ahead: "Sequence[list[Batch]]" = ()  # batches that had been drawn ahead when the file was saved

    def batches(
        self,
        batch_size: int,
        *,
        device: Any = None,
        beta: float | Callable[[int], float] | None = None,
        prefetch: int = 0,
        start: int = 0,
        **options: Any,
    ) -> "Batches":
        """Iterate over batches of PyTorch tensors without end; each is sampled as by `sample`.

        With `prefetch`, each batch is drawn that many batches in advance, so it doesn't reflect the rows and
        priorities of the meantime, and another thread copies its rows to new arrays and to the device, while
        you use the batches before it. It pays off for a GPU or for large rows. A seed determines the batches
        in any case. `save` stores those that have been drawn, and after `load`, the next iterator returns
        them first, so that a loop resumes exactly. After `clear` or `reseed`, new batches are drawn.
        PyTorch's `DataLoader(buffer.batches(256), batch_size=None)` yields these batches.

        Args:
            batch_size: Number of rows.
            device: Device of the tensors, such as "cuda"; None leaves them on the CPU, in the memory of the
                sampled arrays. Pinned memory and a CUDA stream of its own are used with `prefetch`.
            beta: The argument of `sample`, or a function that computes it from the number of the batch,
                start, start + 1, …; None uses the default of `sample`.
            prefetch: Number of batches to draw in advance; 0 samples in `next`, without a thread.
            start: Number of the first batch, for `beta`: in a resumed loop, how many batches it has used.
            **options: Further arguments of `sample`, such as `scheme`.

        Returns:
            An endless iterator with a method `close`, which ends the thread; it is also called at the end of
            a `with` statement, and the thread ends if the iterator is deleted. Each batch is a `Batch`.

        Raises:
            TypeError: If batch_size, prefetch or start is not an integer.
            ValueError: If batch_size is below 1, or prefetch or start is negative. The iterator raises the
                errors of `sample`, for example while the buffer is empty, and can be used again afterwards.

        Example:
            >>> from replay_tutorial import PrioritizedReplayBuffer
            >>> fields = {"obs": {"shape": 4}, "reward": {}}
            >>> buffer = PrioritizedReplayBuffer(1000, fields, seed=0)
            >>> buffer.add(obs=np.ones((100, 4)), reward=np.ones(100))
            0
            >>> for number, batch in enumerate(buffer.batches(32, beta=lambda number: min(1.0, number / 10))):
            ...     td_error = batch.reward - batch.obs.mean(1)
            ...     buffer.update_priorities(batch.indexes, td_error.abs())
            ...     if number == 10:
            ...         break
            >>> batch.obs.shape, batch.weights.dtype
            (torch.Size([32, 4]), torch.float32)
        """
        from replay_tutorial.buffers.tensors.batches import Batches

        check_batch_size(batch_size)
        prefetch, start = checked_at_least("prefetch", prefetch, 0), checked_at_least("start", start, 0)
        return Batches(self, batch_size, device, beta, prefetch, start, options)

    def _draw_batch(
        self, batch_size: int, arguments: Mapping[str, Any]
    ) -> tuple[Callable[[], Batch], Mapping[str, Any]]:
        """Draw a batch; return a function that copies its rows, and arrays that are known before."""
        sampling = next(each for each in type(self).__mro__ if "sample" in vars(each))
        if "_draw" in vars(sampling):
            rows, others = self._draw(batch_size, **arguments)
            return partial(self._copy, rows, others), others
        buffer: Any = self  # of a subclass that overrides `sample`
        batch = buffer.sample(batch_size, **arguments)
        return partial(Batch, batch), batch


class BaseBuffer(Sampled):
    """Base class of the buffers; rows are stored in a ring."""

    _ring: Any  # has capacity, stored and next_index
    _fields: Fields  # the arguments of `add`
    _layout: dict[str, Any]  # must equal the layout in a loaded file
    _rng: Stream
    # Returns copies of the rows that are still stored, and whether each row is: bool[n].
    _rows: Callable[[Integers], tuple[Batch, Flags]]
    # Returns the counters, which must be JSON, and the arrays in the order in which they are written.
    _state: "Callable[[], tuple[dict[str, Any], archive.Arrays]]"
    # Returns a new buffer with the saved state, without changing this one.
    _from_state: "Callable[[dict[str, Any], archive.Reader], Any]"
    _renamed: Mapping[str, str] = CPPRB_KEYWORDS  # keyword arguments that are refused with a remedy
    _iterators: "WeakSet[Batches] | None" = None  # those that may have drawn its rows ahead

    def __new__(cls, *_: Any, **keywords: Any) -> Self:
        """Raise TypeError for a keyword argument of cpprb; it names the argument to use."""
        for name in keywords:
            if name in cls._renamed:
                raise TypeError(
                    f"{cls.__name__} has no argument {name!r}; {cls._renamed[name]}. The buffers of "
                    "replay_tutorial.cpprb accept the arguments of cpprb."
                )
        return super().__new__(cls)

    @classmethod
    def for_env(cls, env: Any, capacity: int, **options: Any) -> Self:
        """Create an empty buffer for the transitions of an environment.

        The fields are those of `fields_from_spaces`: `obs`, `action`, `reward`, `next_obs`, `terminated` and
        `truncated`. For a vector environment, the number of environments and the autoreset mode,
        `env.metadata["autoreset_mode"]`, are read as well. In the default mode,
        "next_step", the steps that only reset an environment are not stored. If the mode is "same_step", pass
        `next_obs=replay_tutorial.with_final_obs(next_obs, infos)` to `add`, because `next_obs` begins the
        next episode where one has ended.

        Args:
            env: An environment or a vector environment of gymnasium, which may be wrapped.
            capacity: Maximum number of transitions; the first argument of the constructor.
            **options: Further arguments of the constructor. They override what was read.

        Raises:
            TypeError: If `env` is not an environment, or a space is not supported.
            ValueError: As for the constructor. Also, in shared memory, if the environments reset themselves
                in the next step, because each actor must leave out these steps by itself, with `NStepWindow`.

        Example:
            >>> import gymnasium
            >>> from replay_tutorial import PrioritizedReplayBuffer
            >>> envs = gymnasium.make_vec("CartPole-v1", 8)
            >>> buffer = PrioritizedReplayBuffer.for_env(envs, 1000, n_step=3, gamma=0.99)
            >>> obs, _ = envs.reset(seed=0)
            >>> for _ in range(100):
            ...     action = envs.action_space.sample()
            ...     next_obs, reward, terminated, truncated, _ = envs.step(action)
            ...     flags = {"terminated": terminated, "truncated": truncated}
            ...     index = buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **flags)
            ...     obs = next_obs
            >>> buffer.sample(32)["discount"].shape
            (32,)
        """
        from replay_tutorial.buffers.spaces import fields_of_environment

        read: dict[str, Any] = {"fields": fields_of_environment(env, options.get("dedupe_next"))}
        if hasattr(env, "single_observation_space"):
            if not hasattr(env, "num_envs"):
                raise TypeError(
                    f"env must have num_envs, because it has single_observation_space: {env!r:.60}."
                )
            metadata: Any = getattr(env, "metadata", None) or {}
            read |= cls._vector_options(env.num_envs, metadata.get("autoreset_mode"))
        construct: Any = cls
        return construct(capacity, **(read | options))

    @classmethod
    def _vector_options(cls, num_envs: int, autoreset: Any) -> dict[str, Any]:
        """Return the arguments of the constructor for a vector environment."""
        return {"num_envs": num_envs, "autoreset": autoreset}

    def __repr__(self) -> str:
        stored, size = self._ring.stored, self._ring.capacity
        fields = (f"{name} {dtype}{list(shape) or ''}" for name, (dtype, shape) in self.field_specs.items())
        return f"<{type(self).__name__}: {stored:,} of {size:,} transitions of {', '.join(fields)}>"

    def __len__(self) -> int:
        """Return the number of stored transitions."""
        return self._ring.stored

    @property
    def capacity(self) -> int:
        """The maximum number of stored transitions."""
        return self._ring.capacity

    def __getitem__(self, indexes: "npt.ArrayLike | slice") -> Batch:
        """Return copies of stored rows, by index.

        `buffer[:]` returns all rows, oldest first, in the order of `indexes`, and `buffer[-100:]` the rows
        among the last 100 indexes; `epoch` returns them in batches.

        Args:
            indexes: The `indexes` of a sample, int[n], or one index, or a slice of indexes, of which the
                stored ones are returned.

        Returns:
            A `Batch`: one array per field, of shape (n, *shape), or (*shape) for a single index.

        Raises:
            IndexError: If a row is not stored: it has not been added, has been replaced, or was removed.
            TypeError: If the indexes are not integers.
            ValueError: If the step of a slice is not 1.
        """
        if isinstance(indexes, slice):
            return self._rows(indexes_of(indexes, self.indexes))[0]
        checked = as_integers("indexes", indexes)
        self._check_indexes(checked)
        batch, stored = self._rows(checked)
        self._check_stored(checked, stored)
        return Batch({name: array[0] for name, array in batch.items()}) if np.ndim(indexes) == 0 else batch

    def __iter__(self) -> NoReturn:  # otherwise, Python would count the indexes up from 0
        raise TypeError(
            f"A {type(self).__name__} is not iterable. Iterate over epoch(batch_size) or batches(batch_size)."
        )

    def epoch(self, batch_size: int, shuffle: bool = True) -> Generator[Batch]:
        """Iterate once over all rows that are stored now, without replacement.

        Rows that are replaced or removed before their turn are left out. Memory is allocated for one index
        per row, and for one batch at a time.

        Args:
            batch_size: Number of rows in a batch; the last batch may have fewer.
            shuffle: Whether the rows are in random order instead of oldest first.

        Returns:
            An iterator over batches: one array per field, and `indexes`, int64.

        Raises:
            TypeError: If batch_size is not an integer.
            ValueError: If batch_size is below 1, the buffer is empty, or a field is called `indexes`.
        """
        check_batch_size(batch_size)
        if not len(self):
            raise ValueError("Can't iterate over an epoch: the buffer is empty. Add some rows first.")
        if "indexes" in self._fields.fields:
            raise ValueError("The batches contain an array `indexes`; rename the field of this name.")
        indexes = self._rng.permutation(self.indexes) if shuffle else self.indexes
        return self._batches(indexes, batch_size)

    def _batches(self, indexes: Integers, batch_size: int) -> Generator[Batch]:
        for first in range(0, len(indexes), batch_size):
            some = indexes[first : first + batch_size]
            batch, stored = self._rows(some)
            if stored.any():
                yield batch | {"indexes": some[stored]}

    def _buffers(self) -> "list[BaseBuffer]":
        return [self]

    def _source(self) -> tuple[Any, ...]:
        return self._ring, self._rng

    def _finish_copies(self) -> None:
        """Wait for the threads that copy rows, before rows are replaced."""
        for batches in self._iterators or ():
            batches.finish_copies()

    @property
    def indexes(self) -> Integers:
        """The indexes of all stored rows, oldest first: int64[len(buffer)], a new array."""
        raise NotImplementedError

    def _check_indexes(self, indexes: Integers) -> None:
        """Raise IndexError if an index has not been assigned to any row."""
        next_index = self._ring.next_index
        if ((indexes < 0) | (indexes >= next_index)).any():
            raise unknown_index_error(indexes, next_index)

    def _check_stored(self, indexes: Integers, stored: Flags) -> None:
        """Raise IndexError if a row is not stored."""
        if not stored.all():
            raise IndexError(
                f"The row with index {indexes[~stored][0]} is not stored: it has been replaced or "
                "removed. The indexes of the stored rows are those that `epoch` returns."
            )

    def reseed(self, seed: int | np.random.SeedSequence | None = None) -> None:
        """Restart the random numbers with which rows are drawn, as if the buffer were new.

        A buffer that is copied to another process, by a fork or by `multiprocessing`, draws other rows there
        without this call. A copy made by `pickle`, `copy.deepcopy` or `save` draws the same rows.

        Args:
            seed: Seed for sampling; None uses entropy from the operating system.

        Raises:
            TypeError: If the seed is not an integer.
            ValueError: If the seed is negative.
        """
        self.__dict__.update(_rng=Stream(seed), _loaded_ahead=())

    @property
    def field_specs(self) -> dict[str, ArraySpec]:
        """The dtype and shape of each field of a sampled transition."""
        return array_specs(self._fields)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        raise NotImplementedError

    @property
    def bytes_per_transition(self) -> float:
        """Bytes reserved per transition: `nbytes` divided by the capacity."""
        return self.nbytes / self._ring.capacity

    def save(self, path: str | PathLike[str]) -> None:
        """Save the buffer to a file: rows, counters, the random state, and unfinished n-step windows if any.

        Other processes may keep adding to a shared buffer; rows that they replace during the call are not
        saved. The file is a zip archive of `.npy` arrays and JSON. It contains no pickles, and `numpy.load`
        can open it. An existing file is replaced atomically. Temporary files `.name.….part`, left by a `save`
        that was killed, are removed (except on Windows).

        Args:
            path: Path of the file; no suffix is added.

        Raises:
            OSError: If the file can't be written. An existing file is then unchanged.
        """
        from replay_tutorial.buffers import archive

        counters, arrays = self._state()
        if self._iterators or self._loaded_ahead:
            from replay_tutorial.buffers.tensors.batches import state_ahead

            counters["ahead"], drawn = state_ahead(self)
            arrays |= drawn
        archive.save(path, self._layout, counters, arrays)

    def load(self, path: str | PathLike[str]) -> None:
        """Replace the contents of the buffer with the exact state that `save` wrote, with its random state.

        The old contents are freed only after the whole file has been read, so loading into a buffer in use
        temporarily needs twice its memory.

        Args:
            path: A file saved by a buffer that was constructed with the same arguments (except the seed), and
                with its fields in the same order.

        Raises:
            OSError: If the file can't be read.
            ValueError: If the file is damaged, or its layout or version differs. The buffer is then
                unchanged.
        """
        from replay_tutorial.buffers import archive

        with archive.open_archive(path, self._layout) as (counters, reader):
            loaded: Any = self._from_state(counters, reader)
            loaded._loaded_ahead = self._read_ahead(counters, reader)
        self.__dict__.update(loaded.__getstate__())

    def _read_ahead(self, counters: dict[str, Any], reader: "archive.Reader") -> Sequence[list[Batch]]:
        """Read the batches that had been drawn ahead; most files contain none."""
        if "ahead" not in counters:
            return ()
        from replay_tutorial.buffers.tensors.batches import read_ahead

        return read_ahead(self, counters["ahead"], reader)
