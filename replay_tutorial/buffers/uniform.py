"""The uniform replay buffer: every stored transition is equally likely to be sampled.

    add:     fields ──▶ (frames) ──▶ (n-step window) ──▶ ring
    sample:  ring ──▶ (frames) ──▶ batch

`fields` checks the values and the `ring` stores the rows. Optionally, observations are stored as frame
numbers (`frames`) and steps are combined into n-step rows (`n_step`).

Source: Lin 1992, "Self-improving reactive agents"; Mnih et al. 2015, "Human-level control", algorithm 1.
"""

import copy
import mmap
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.base import CpprbKwargs, check_keywords
from replay_tutorial.buffers.fields import (
    Batch,
    EnvDict,
    Fields,
    FiniteFields,
    Rows,
    as_bytes,
    expand_groups,
    field_names,
)
from replay_tutorial.buffers.gather import ArraySpec, Gather, array_specs
from replay_tutorial.buffers.images.frame_layout import CHECKED_AT, with_next
from replay_tutorial.buffers.images.frames import FrameStore
from replay_tutorial.buffers.n_step.windows import Windows
from replay_tutorial.buffers.private import PrivateBuffer
from replay_tutorial.buffers.ring import Assignment, Ring
from replay_tutorial.buffers.rows import check_batch_size, checked_size
from replay_tutorial.buffers.runtime.jit import Flags, Floats, Integers
from replay_tutorial.buffers.runtime.machine_memory import check_memory
from replay_tutorial.buffers.schemes.sample_counts import COUNT_SPECS, SampleCounts, check_times
from replay_tutorial.buffers.schemes.scheme import Drawn, Scheme, StoredRows, Uniform, check_scheme
from replay_tutorial.buffers.streams import Stream


class ReplayBuffer(PrivateBuffer):
    """A replay buffer that samples uniformly.

    The buffer is not thread-safe: protect it with a lock if several threads use it. Memory pages are
    allocated when they are first written, so adding large rows is slower until the buffer is full. Call
    `touch_pages` to allocate all pages in advance.

    Example:
        >>> buffer = ReplayBuffer(1000, {"obs": {"shape": 4}, "rew": {"shape": ()}}, seed=0)
        >>> buffer.add(obs=np.zeros(4), rew=0.5)
        0
        >>> buffer.add(obs=np.ones((9, 4)), rew=np.ones(9))
        1
        >>> sample = buffer.sample(32)
        >>> sample["obs"].shape, sample["rew"].shape, len(buffer)
        ((32, 4), (32,), 10)
    """

    _frames: FrameStore | None = None
    _window: Windows | None = None
    _counts: SampleCounts | None = None
    # Fields that are stored with a pending step in the window, but not in its row.
    _window_fields: EnvDict = MappingProxyType({})

    def __init__(
        self,
        size: int,
        env_dict: EnvDict,
        *,
        next_of: str | Sequence[str] | None = None,
        stack_compress: str | Sequence[str] | Mapping[str, int] | None = None,
        default_dtype: npt.DTypeLike = np.float32,
        Nstep: Mapping[str, Any] | Literal[False] | None = None,
        seed: int | np.random.SeedSequence | None = None,
        check_finite: bool = False,
        count_samples: bool = False,
        **cpprb_kwargs: Unpack[CpprbKwargs],
    ) -> None:
        """Create an empty buffer.

        Args:
            size: Maximum number of transitions; once it is reached, each new one replaces the oldest.
            env_dict: The fields: maps each name to a dict with `shape` (an int or a tuple, default 1) and
                `dtype`. A field of shape 1 is sampled with shape `(batch, 1)`, a field of shape `()` with
                shape `(batch,)`. The dict is not modified.
            next_of: Name or names of the observations that share memory with their next observations, because
                the next observation of a row is usually the observation of the following row. For each name,
                `add` and `sample` have an additional field `next_…`. The name of a nested observation, such
                as "obs" for the fields `obs/image` and `obs/goal`, means all its fields.
            stack_compress: Name or names of the observations that are stacks of frames; each frame is stored
                only once. With three axes, the stack axis is the shorter of the first and the last axis. If
                it isn't clear, as in colour stacks of shape (4, 64, 64, 3), pass a dict such as `{"obs": 0}`.
                After 1,000 transitions, a warning reports if they share hardly any frames.
            default_dtype: dtype of the fields that don't declare one.
            Nstep: Settings of n-step transitions, such as `{"size": n, "gamma": 0.99}`; see `NStep` for the
                keys. Rows then have an additional field `discount`, and the target is
                `rew + discount * Q(next_obs)`. The `next_` fields, and `terminated`, `truncated` and `done`,
                are taken from the last of the n steps. A field `terminated` or `done` is required. The buffer
                has a single window, for one environment; for several environments, use `NStep`.
            seed: Seed for sampling; None uses entropy from the operating system. A copy of the buffer in
                another process draws other rows, which the seed determines as well.
            check_finite: Whether `add` raises ValueError for NaN and infinity in float fields.
            count_samples: Whether a sample contains `times_sampled`, the number of times that each row has
                been sampled. The counts take 16 bytes per transition, and are saved. If Ctrl-C interrupts
                `sample`, its rows may not be counted.
            **cpprb_kwargs: `backend`, `check_for_update` and `ctx` are accepted for compatibility with cpprb,
                and ignored.

        Raises:
            MemoryError: If the full buffer would be larger than the memory of the machine or container.
            TypeError: If an argument has the wrong type.
            ValueError: If a value is out of range or refers to a field that does not exist.

        Warns:
            UserWarning: If the full buffer would be larger than the free memory (on Linux only).
        """
        check_keywords(type(self).__name__, cpprb_kwargs)
        capacity, stored = checked_size(size), Fields(env_dict, default_dtype)
        next_of = expand_groups(field_names(next_of), stored.fields)
        stored = self._fields = with_next(stored, next_of)
        if check_finite:
            stored = self._fields = FiniteFields(stored.env_dict)
        if next_of or stack_compress:
            self._frames = FrameStore(stored, next_of, stack_compress, capacity)
            stored = self._frames.fields
        else:
            check_memory(capacity * stored.dtype.itemsize)
        if Nstep is not None and Nstep is not False:  # cpprb accepts both
            self._window = Windows(
                stored, Nstep, argument_fields=self._fields, extra_fields=self._window_fields
            )
            rows = self._window.env_dict
            stored = Fields({name: rows[name] for name in rows if name not in self._window_fields})
        self._stored_fields = stored
        self._ring = Ring(capacity, stored.dtype)
        self._gather = Gather(stored)
        # The arrays of a sample: whole observations instead of frame numbers, and `discount`.
        self._sampled: dict[str, ArraySpec] = array_specs(
            Fields({**stored.env_dict, **self._fields.env_dict})
        )
        self._rng = Stream(seed)
        self._episode_start = [0]  # number of steps added before the current episode
        self._layout = {
            "kind": type(self).__name__,
            "size": capacity,
            "fields": self._fields.described,
            "frames": self._frames.layout if self._frames else [],
            "Nstep": list(self._window.settings) if self._window else None,
            "check_finite": bool(check_finite),
        }
        if count_samples:
            if "times_sampled" in self._fields.fields:
                raise ValueError("With count_samples, the field name 'times_sampled' is reserved; rename it.")
            self._counts = SampleCounts.zeros(capacity)
            self._sampled |= COUNT_SPECS
            self._layout["count_samples"] = True

    def add(self, /, **fields: Any) -> int | None:
        """Add one transition, or a batch of consecutive transitions along axis 0.

        If a batch is longer than the buffer, only its last rows are kept. O(batch).

        Args:
            **fields: One value per field. Nested dicts and tuples are flattened, for example
                `obs={"image": …}` to the field `obs/image`.

        Returns:
            The index of the first row that was added, or None if no row was added because the n-step window
            is not full yet. Indexes count rows from 0 and are never reused, so the rows of a batch have
            consecutive ones; a row is stored in slot `index % size`. Of a batch that is longer than the
            buffer, the first rows, including that of the returned index, are not stored.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape or length doesn't match, if the dtype of a field can't represent a value
                (NaN and infinity are valid floats unless `check_finite` is set), or, with `Nstep`, if the
                `obs` of a step differs from the `next_obs` of the step before it. The buffer is then
                unchanged.
        """
        count, columns = self._fields.to_columns(fields)
        if self._window is not None:
            self._check_consecutive(self._window, count, columns)
        return self._store(count, columns)

    def on_episode_end(self) -> None:
        """End the episode, and store the rows that are still pending in the n-step window.

        The returns of these rows have fewer than n rewards. Call this method at the end of every episode,
        including truncated episodes. Repeated calls have no effect.

        Raises:
            ValueError: If an n-step return is too large for the dtype of its reward. The pending rows are
                then discarded.
        """
        steps = self._steps_added()
        if self._window is None:
            self._episode_start[0] = steps
            return
        try:
            flushed = self._window.flush()
        except ValueError:
            self._episode_start[0] = self._steps_added()  # without those that were discarded
            raise
        self._append_rows(*flushed, [(self._episode_start, 0, steps)])

    def sample(self, batch_size: int, *, scheme: Scheme | None = None) -> Batch:
        """Sample transitions uniformly with replacement, or by a scheme.

        O(batch_size); allocates the batch.

        Args:
            batch_size: Number of transitions.
            scheme: A scheme that chooses the transitions, such as `Geometric(...)`; see `buffers.schemes`.
                None samples uniformly.

        Returns:
            A dict with one array per field, of shape (batch_size, *shape). The arrays are writable and are
            not changed by later calls; `torch.from_numpy` converts them without a copy. Fields of at least
            4 KiB per transition are contiguous. Smaller fields are strided views of a common block, which
            doesn't include the large fields. With a scheme, there are two further arrays: `indexes`,
            int64[batch_size], and `probabilities`, float64[batch_size], with which the rows were drawn. With
            `count_samples`, there is `times_sampled`, int64[batch_size], the number of times that each row
            has been sampled, including all its draws in this sample.

        Raises:
            TypeError: If batch_size is not an integer, or the scheme is not a scheme.
            ValueError: If batch_size is below 1, the buffer is empty, or the scheme can't draw from this
                buffer.
        """
        self._check_sample(batch_size, scheme)
        if scheme is None and self._counts is None:
            return self._take(self._ring.draw(batch_size, self._rng))
        batch, drawn = self._sample_by(scheme, batch_size)
        return self._counted(batch, drawn.indexes)

    def clear(self) -> None:
        """Remove all transitions and priorities, including pending n-step rows; indexes continue to count."""
        self.__dict__.update(self._cleared())  # atomic: Ctrl-C can only interrupt before or after

    def touch_pages(self) -> None:
        """Allocate all memory pages now instead of at the first write to each."""
        for memory in (self._ring.bytes, *(self._frames.memory if self._frames else [])):
            memory.reshape(-1)[:: mmap.PAGESIZE] |= 0

    def is_Nstep(self) -> bool:
        """Return whether the buffer stores n-step transitions."""
        return self._window is not None

    @property
    def field_specs(self) -> dict[str, ArraySpec]:
        """The dtype and shape of each field of a sampled transition, and of `times_sampled` if counted."""
        return dict(self._sampled)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        return self._ring.nbytes + (self._frames.nbytes if self._frames else 0)

    def _check_consecutive(self, window: Windows, count: int, columns: list[Any]) -> None:
        """Raise NotConsecutive if steps don't continue those in the window."""
        restore = self._frames.values_of if self._frames else None
        window.check_consecutive(count, columns, restore=restore)

    def _store(
        self,
        count: int,
        columns: list[Any],
        masses: Floats | float | None = None,
        assignments: Sequence[Assignment] = (),
    ) -> int | None:
        """Store checked transitions, and their masses if prioritized, through frames and window."""
        if self._frames is None and self._window is None:
            return self._append(count, columns, masses, assignments)
        first_index = self._ring.next_index
        if self._frames is None:
            self._store_columns(count, columns, masses, assignments)
        else:
            if self._window is not None and count > self._frames.rows_at_once:
                self._window.check_returns(count, columns)  # before the first part is stored
            for first in range(0, count, self._frames.rows_at_once):
                some = min(count - first, self._frames.rows_at_once)
                rows = first if some == 1 else slice(first, first + some)
                part = columns if some == count else [column[rows] for column in columns]
                numbered = self._frames.number(some, part, self._rows_kept)
                part_masses = masses[rows] if isinstance(masses, np.ndarray) else masses
                self._store_columns(some, numbered, part_masses, assignments)
            if first_index < CHECKED_AT <= self._ring.next_index:
                self._frames.check_sharing(self._ring.next_index)
        return first_index if first_index < self._ring.next_index else None

    def _store_columns(
        self, count: int, columns: list[Any], masses: Floats | float | None, assignments: Sequence[Assignment]
    ) -> None:
        if self._window is None:
            self._append(count, columns, masses, assignments)
        else:
            steps = self._window.steps.to_rows(count, columns if masses is None else [*columns, masses])
            self._append_rows(*self._window.push(steps, np.zeros(count, np.int64)), assignments)

    def _append_rows(self, batch: Batch | None, taken: Assignment, assignments: Sequence[Assignment]) -> None:
        """Append completed rows, and update the window in the same assignment."""
        columns, masses, count = list[Any](), 0.0, 0
        if batch is not None:
            count = len(batch["discount"])
            place = 0 if count == 1 else slice(None)
            columns = [batch[name][place] for name in self._stored_fields.fields]
            masses = batch["priorities"][place] if self._window_fields else 0.0
        self._append(count, columns, masses, [*assignments, taken])

    def _append(
        self, count: int, columns: list[Any], masses: Floats | float | None, assignments: Sequence[Assignment]
    ) -> int:
        """Append rows and make the assignments, atomically; overridden to set masses as well."""
        return self._ring.append(count, columns, assignments)

    def _steps_added(self) -> int:
        """Return the number of steps added, including those pending in the window."""
        return self._ring.next_index + (self._window.count() if self._window else 0)

    def get_current_episode_len(self) -> int:
        """Return the number of transitions added since the last `on_episode_end` or `clear`."""
        return self._steps_added() - self._episode_start[0]

    def _cleared(self) -> dict[str, Any]:
        """Return new values of the attributes that `clear` replaces."""
        window, start = self._window and self._window.cleared(), [self._ring.next_index]
        return {"_ring": self._ring.cleared(), "_window": window, "_episode_start": start}

    def _rows_kept(self) -> Iterator[Rows]:
        """Yield copies of all rows, oldest first: the ring in non-empty chunks, then the pending steps."""
        end = self._ring.next_index
        for first in range(self._ring.oldest_index, end, 1024):
            yield self._ring.take(self._ring.slot_numbers(first, min(first + 1024, end)))
        if self._window is not None and len(pending := self._window.pending()):
            yield pending

    def _take(self, slots: Integers) -> Batch:
        batch = self._gather.take(self._ring.bytes, slots)
        return batch if self._frames is None else self._frames.restore(batch)

    def _sample_by(self, scheme: Scheme | None, batch_size: int) -> tuple[Batch, Drawn]:
        """Sample with a scheme; None is uniform. Return the batch, and what was drawn, uncounted."""
        drawn = (scheme or Uniform()).draw(self._stored_rows(), batch_size, self._rng)
        batch = self._take(drawn.indexes % self._ring.capacity)
        if scheme is not None:
            batch |= {"indexes": drawn.indexes, "probabilities": drawn.probabilities}
        return batch, drawn

    def _counted(self, batch: Batch, indexes: Integers) -> Batch:
        """Count the rows of a batch, if the buffer counts, and add `times_sampled` to it."""
        if self._counts is not None:
            batch["times_sampled"] = self._counts.count(indexes)
        return batch

    def _rows(self, indexes: Integers) -> tuple[Batch, Flags]:
        # `load` during an epoch may have removed the newest rows.
        stored = (indexes >= self._ring.oldest_index) & (indexes < self._ring.next_index)
        return self._take(indexes[stored] % self._ring.capacity), stored

    def _indexes_in_order(self) -> Integers:
        return np.arange(int(self._ring.oldest_index), int(self._ring.next_index))

    def _stored_rows(self) -> StoredRows:
        """Return what a scheme sees of the buffer."""
        ring = self._ring
        return StoredRows(ring.oldest_index, ring.next_index, ring.capacity, None)

    def _check_sample(self, batch_size: int, scheme: Scheme | None) -> None:
        check_batch_size(batch_size)
        if scheme is not None:
            check_scheme(scheme, self._fields.fields)
        if self._ring.stored == 0:
            raise ValueError(f"Can't sample {batch_size} transitions: the buffer is empty. Add some first.")

    def _state(self) -> tuple[dict[str, Any], archive.Arrays]:
        counters: dict[str, Any] = {
            "next_index": self._ring.next_index,
            "stored": self._ring.stored,
            "waiting": len(self._window.pending()) if self._window else 0,
            "episode_len": self.get_current_episode_len(),
            "frames": [],
            "random_state": self._rng.state,
        }
        arrays: archive.Arrays = {"rows": self._ring.segments()}
        if self._window is not None:
            arrays["waiting"] = [as_bytes(self._window.pending())]
        if self._counts is not None:
            arrays["times_sampled"] = [self._counts.of(self._indexes_in_order())]
        if self._frames is not None:
            counters["frames"], frames = self._frames.state(self._rows_kept)
            arrays |= frames
        return counters, arrays

    def _from_state(self, counters: dict[str, Any], reader: archive.Reader) -> Self:
        loaded = copy.copy(self)
        next_index = archive.checked_count(counters, "next_index")
        stored = archive.checked_count(counters, "stored", most=min(next_index, self._ring.capacity))
        loaded._ring = Ring(self._ring.capacity, self._stored_fields.dtype, next_index, stored)
        loaded._rng = archive.checked_generator(counters)
        reader.read_into("rows", loaded._ring.segments())
        if self._window is not None:
            loaded._window = self._window.cleared()
            most = self._window.settings.size - 1
            count = archive.checked_count(counters, "waiting", most=most)
            pending = np.zeros(count, self._window.steps.dtype)
            reader.read_into("waiting", [as_bytes(pending)])
            loaded._window.restore(pending)
        if self._frames is not None:
            rows = [part.view(self._stored_fields.dtype) for part in loaded._ring.segments()]
            if loaded._window is not None:
                rows.append(loaded._window.pending())
            loaded._frames = self._frames.from_state(counters, reader, rows)
        if self._counts is not None:
            times, loaded._counts = np.zeros(stored, np.int64), SampleCounts.zeros(self._ring.capacity)
            reader.read_into("times_sampled", [times])
            check_times(times)
            loaded._counts.restore(loaded._indexes_in_order(), times)
        episode_len = archive.checked_count(counters, "episode_len")
        loaded._episode_start = [loaded._steps_added() - episode_len]
        return loaded
