"""The uniform replay buffer: every stored transition is equally likely to be sampled.

    add:     fields ──▶ (stages) ──▶ ring
    sample:  ring ──▶ (stages) ──▶ batch

`fields` checks the values, and the `ring` stores the rows. The options dedupe_next, dedupe_frames and n_step
put `stages` in between.

Source: Lin 1992, "Self-improving reactive agents"; Mnih et al. 2015, "Human-level control", algorithm 1.

Built in chapter 01, *Uniform replay*.
"""

import mmap
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TypedDict

import numpy as np

from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.fields import Fields, FieldSpecs, FiniteFields
from replay_tutorial.buffers.gather import ArraySpec, Gather, array_specs
from replay_tutorial.buffers.private import PrivateBuffer
from replay_tutorial.buffers.rows import (
    check_batch_size,
    check_memory,
    checked_at_least,
    checked_environment,
    checked_flag,
    checked_size,
)
from replay_tutorial.buffers.runtime.jit import Flags, Integers
from replay_tutorial.buffers.streams import Stream

if TYPE_CHECKING:  # options are loaded when they are used
    from replay_tutorial.buffers import archive
    from replay_tutorial.buffers.n_step.settings import NStep
    from replay_tutorial.buffers.ring import Ring
    from replay_tutorial.buffers.schemes.sample_counts import SampleCounts
    from replay_tutorial.buffers.schemes.scheme import Drawn, Scheme, StoredRows
    from replay_tutorial.buffers.stages import Stages


class BufferOptions(TypedDict, total=False):
    """The keyword arguments of `ReplayBuffer` that all buffers of transitions accept."""

    dedupe_next: str | Sequence[str] | None
    dedupe_frames: str | Sequence[str] | Mapping[str, int] | None
    seed: int | np.random.SeedSequence | None
    check_finite: bool
    count_samples: bool


class PrivateBufferOptions(BufferOptions, total=False):
    """The keyword arguments of `ReplayBuffer`, which `PrioritizedReplayBuffer` accepts as well."""

    n_step: "int | NStep | None"
    gamma: float | str | None
    num_envs: int
    autoreset: str | Enum | None


class ReplayBuffer(PrivateBuffer):
    """A replay buffer that samples uniformly. `MPReplayBuffer` is the same in shared memory.

    The buffer is not thread-safe: protect it with a lock if several threads use it. Memory pages are
    allocated when they are first written, so adding large rows is slower until the buffer is full. Call
    `touch_pages` to allocate all pages in advance.

    Built in chapter 01, *Uniform replay*.

    Example:
        >>> buffer = ReplayBuffer(1000, {"obs": {"shape": 4}, "reward": {}}, seed=0)
        >>> buffer.add(obs=np.zeros(4), reward=0.5)
        0
        >>> buffer.add(obs=np.ones((9, 4)), reward=np.ones(9))
        1
        >>> batch = buffer.sample(32)
        >>> batch.obs.shape, batch.reward.shape, len(buffer)
        ((32, 4), (32,), 10)
    """

    # Options that are not used.
    _stages: "Stages | None" = None
    _counts: "SampleCounts | None" = None
    _has_priorities = False
    _num_envs = 1

    def __init__(
        self,
        capacity: int,
        fields: FieldSpecs,
        *,
        dedupe_next: str | Sequence[str] | None = None,
        dedupe_frames: str | Sequence[str] | Mapping[str, int] | None = None,
        n_step: "int | NStep | None" = None,
        gamma: float | str | None = None,
        num_envs: int = 1,
        autoreset: str | Enum | None = None,
        seed: int | np.random.SeedSequence | None = None,
        check_finite: bool = False,
        count_samples: bool = False,
    ) -> None:
        """Create an empty buffer.

        Args:
            capacity: Maximum number of transitions; once it is reached, each new one replaces the oldest.
            fields: Maps each name to a dict with `shape` (an int or a tuple, default `()`, a scalar) and
                `dtype` (default float32). A scalar is sampled with shape `(batch,)`, a field of shape 4 with
                shape `(batch, 4)`. The dict is not modified.
            dedupe_next: Name or names of the observations that share memory with their next observations,
                because the next observation of a row is usually the observation of the following row. For
                each name, `add` and `sample` have an additional field `next_…`. The name of a nested
                observation, such as "obs" for the fields `obs/image` and `obs/goal`, means all its fields.
            dedupe_frames: Name or names of the observations that are stacks of frames; each frame is stored
                only once. With three axes, the stack axis is the shorter of the first and the last axis. If
                it isn't clear, as in colour stacks of shape (4, 64, 64, 3), pass a dict such as `{"obs": 0}`.
                After 1,000 transitions, a warning reports if they share hardly any frames.
            n_step: n, the number of rewards in a return. The reward of a row is then the sum of γ^j · r_j of
                n steps, or of fewer at the end of an episode. Rows have an additional field `discount`, and
                the target is `reward + discount * Q(next_obs)`. `discount` is γ^k for a return of k rewards,
                and 0 if the last of these steps terminated (`terminated` or `done`). An episode that is
                truncated is bootstrapped, from its last observation. Returns are summed in float64. The
                `next_` fields, and `terminated`, `truncated` and `done`, are taken from the last of the n
                steps. A field `terminated` or `done` is required. Pass an `NStep` if the reward is not called
                `reward`.
            gamma: The discount factor of `n_step`, in [0, 1], or the name of a field that contains the
                discount of each step. None means 0.99.
            num_envs: Number of environments whose steps are added. With more than one, each call of `add` has
                one step of every environment, and each has its own n-step window. A field `terminated` or
                `done` is required.
            autoreset: The mode in which the environments start the next episode: "next_step", "same_step",
                "disabled" or gymnasium's `AutoresetMode`, such as `envs.metadata["autoreset_mode"]`.

                - "next_step", the default of gymnasium's vector environments: the step after the end of an
                  episode only resets its environment, and is ignored. Each call of `add` has one step of
                  every environment, even if there is only one.
                - "same_step": the step that ends an episode returns the first observation of the next one.
                  Pass the final observation as its next observation; call
                  `replay_tutorial.with_final_obs(next_obs, infos)`.
                - "disabled": environments don't reset themselves. Every step is a transition, as with
                  "same_step".

                None means "disabled". With several environments, it warns if the steps look like those of
                "next_step"; "same_step" warns if the final observations seem not to be passed.
            seed: Seed for sampling; None uses entropy from the operating system. A copy of the buffer in
                another process draws other rows, which the seed determines as well.
            check_finite: Whether `add` raises ValueError for NaN and infinity in float fields.
            count_samples: Whether a sample contains `times_sampled`, the number of times that each row has
                been sampled. The counts take 16 bytes per transition, and are saved. If Ctrl-C interrupts
                `sample`, its rows may not be counted.

        Raises:
            MemoryError: If the full buffer would be larger than the memory of the machine or container.
            TypeError: If an argument has the wrong type.
            ValueError: If a value is out of range or refers to a field that does not exist.

        Warns:
            UserWarning: If the full buffer would be larger than the free memory (on Linux only).
        """
        capacity, arguments = checked_size(capacity), Fields(fields)
        stored, layout = arguments, dict[str, Any](frames=[], n_step=None)
        self._num_envs = checked_at_least("num_envs", num_envs, 1)
        used = (option is not None for option in (n_step, gamma, autoreset))
        if dedupe_next or dedupe_frames or num_envs != 1 or any(used):
            from replay_tutorial.buffers.stages import Stages

            options = dedupe_next, dedupe_frames, n_step, gamma, self._num_envs, autoreset
            stages = self._stages = Stages(arguments, capacity, *options, self._has_priorities)
            arguments, stored, layout = stages.fields, stages.stored, stages.layout
        else:
            check_memory(capacity * stored.dtype.itemsize)
        check_finite = checked_flag("check_finite", check_finite)
        self._fields = FiniteFields(arguments.specs) if check_finite else arguments
        self._ring = self._new_ring(capacity, stored.dtype)
        self._gather = Gather(stored)
        self._rng = Stream(seed)
        self._layout = {
            "kind": type(self).__name__,
            "size": capacity,
            "fields": arguments.described,
            **layout,
            "check_finite": check_finite,
        }
        if checked_flag("count_samples", count_samples):
            from replay_tutorial.buffers.schemes.sample_counts import SampleCounts

            if "times_sampled" in arguments.fields:
                raise ValueError("With count_samples, the field name 'times_sampled' is reserved; rename it.")
            self._counts = SampleCounts.zeros(capacity)
            self._layout["count_samples"] = True

    def _new_ring(self, capacity: int, *arguments: Any) -> "Ring":
        """Create the ring; overridden by the prioritized buffer, whose ring stores masses as well."""
        from replay_tutorial.buffers.ring import Ring  # not used by a shared buffer

        return Ring(capacity, *arguments)

    def add(self, /, **fields: Any) -> int | None:
        """Add one transition, or a batch of consecutive transitions along axis 0.

        With `num_envs`, add one step of every environment. (Shared buffers have neither `num_envs` nor
        `n_step`.) If a batch is longer than the buffer, only its last rows are kept. O(batch).

        Args:
            **fields: One value per field, or with `num_envs` one array of shape (num_envs, …). Nested dicts
                and tuples are flattened, for example `obs={"image": …}` to the field `obs/image`.

        Returns:
            The index of the first row that was added; with `n_step`, None if no row was added because the
            n-step window is not full yet. The step that ends an episode also adds the remaining rows of its
            window, whose returns have fewer rewards. With `num_envs`, the rows of environment 0 come first,
            and those of each environment from oldest to newest. Indexes count rows from 0 and are never
            reused, so the rows of a batch have consecutive ones; a row is stored in
            slot `index % capacity`. Of a batch that is longer than the buffer, the first rows, including that
            of the returned index, are not stored.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape or length doesn't match, if the dtype of a field can't represent a value
                (NaN and infinity are valid floats unless `check_finite` is set), or, with `n_step`, if the
                `obs` of a step differs from the `next_obs` of the step before it. The buffer is then
                unchanged.
        """
        if self._iterators:
            self._finish_copies()
        count, columns = self._fields.to_columns(fields)
        if self._stages is None:
            return self._ring.append(count, columns)
        return self._stages.append(self._ring, count, columns)

    def end_episode(self, environment: int | None = None, /) -> None:
        """End the episode; with `n_step`, store the rows that are still pending in the n-step window.

        The returns of these rows have fewer than n rewards. With `n_step`, call this method at the end of
        every episode, including truncated episodes, unless `terminated`, `truncated` or `done` is true in its
        last step. Repeated calls have no effect.

        Args:
            environment: Number of the environment, from 0; None ends the episodes of all environments, whose
                rows are added in this order. A shared buffer has one environment for each handle. With
                autoreset="next_step", call this method if you reset an environment yourself. After an end
                that the flags reported, the next step is still ignored if its observation is the final one.

        Raises:
            IndexError: If the environment does not exist.
            ValueError: If an n-step return is too large for the dtype of its reward. The pending rows of the
                environment are then discarded.
        """
        if self._iterators:
            self._finish_copies()
        if environment is not None:
            environment = checked_environment(environment, self._num_envs)
        self._flush(environment)

    def _flush(self, environment: int | None) -> None:
        """Store the pending rows of an environment, or of all."""
        if self._stages is not None:
            self._stages.end_episode(self._ring, environment)

    def sample(self, batch_size: int, *, scheme: "Scheme | None" = None) -> Batch:
        """Sample transitions uniformly with replacement, or by a scheme.

        O(batch_size); allocates the batch.

        Args:
            batch_size: Number of transitions.
            scheme: A scheme that chooses the transitions, such as `Geometric(...)`; see `buffers.schemes`.
                None samples uniformly.

        Returns:
            A `Batch`: one array per field, of shape (batch_size, *shape), as `batch.obs` or, if nested,
            `batch.obs["image"]`. The arrays are writable and are
            not changed by later calls; `batch.to_torch()` converts them without a copy. Fields of at least
            4 KiB per transition are contiguous. Smaller fields are strided views of a common block, which
            doesn't include the large fields. With a scheme, there are two further arrays: `indexes`,
            int64[batch_size], and `probabilities`, float64[batch_size], with which the rows were drawn. With
            `count_samples`, there is `times_sampled`, int64[batch_size], the number of times that each row
            has been sampled, including all its draws in this sample.

        Raises:
            RuntimeError: In shared memory: if no row has all its frames, or, with `count_samples`, another
                process samples.
            TypeError: If batch_size is not an integer, or the scheme is not a scheme.
            ValueError: If batch_size is below 1, the buffer is empty, or the scheme can't draw from this
                buffer.
        """
        return self._copy(*self._draw(batch_size, scheme=scheme))

    def _draw(self, batch_size: int, *, scheme: "Scheme | None" = None) -> tuple[Any, dict[str, Any]]:
        """Draw rows; return their slots, and the arrays of the batch that are not fields."""
        check_batch_size(batch_size)
        if scheme is None and self._counts is None:
            return self._draw_uniformly(batch_size), {}
        if scheme is not None:
            self._check_scheme(scheme)
        return self._draw_and_count(batch_size, scheme)

    def _copy(self, rows: Any, others: Mapping[str, Any]) -> Batch:
        """Return a batch of copies of the rows that have been drawn, and the other arrays.

        `rows` are slots. Another thread may call this while no rows are added.
        """
        batch = self._gather.take(self._ring.bytes, rows)
        if self._stages is not None:
            self._stages.restore(batch)
        batch.update(others)
        return batch

    def clear(self) -> None:
        """Remove all transitions and priorities, including pending n-step rows; indexes continue to count.

        With autoreset="next_step", the next step of an environment whose episode has ended is still ignored.
        """
        self.__dict__.update(self._cleared())  # atomic: Ctrl-C can only interrupt before or after

    def touch_pages(self) -> None:
        """Allocate the memory pages of rows and frames now instead of at the first write to each."""
        for memory in (self._ring.bytes, *(self._stages.memory if self._stages else [])):
            memory.reshape(-1)[:: mmap.PAGESIZE] |= 0

    @property
    def next_index(self) -> int:
        """The index of the next row to be added."""
        return self._ring.next_index

    @property
    def field_specs(self) -> dict[str, ArraySpec]:
        """The dtype and shape of each field of a sampled transition, and of `times_sampled` if counted."""
        # `discount` is only in the rows; observations are whole, even if the rows contain frame numbers
        specs = array_specs(self._gather.fields) | array_specs(self._fields)
        if self._counts is None:
            return specs
        from replay_tutorial.buffers.schemes.sample_counts import COUNT_SPECS

        return specs | COUNT_SPECS

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        frames = self._stages.memory if self._stages else []
        return self._ring.nbytes + sum(memory.nbytes for memory in frames)

    def _cleared(self) -> dict[str, Any]:
        """Return new values of the attributes that `clear` replaces."""
        stages = None if self._stages is None else self._stages.cleared()
        return {"_ring": self._ring.cleared(), "_stages": stages, "_loaded_ahead": ()}

    def _draw_uniformly(self, batch_size: int) -> Any:
        """Draw rows uniformly; return their slots."""
        return self._ring.draw(batch_size, self._rng)

    def _draw_and_count(self, batch_size: int, scheme: "Scheme | None") -> tuple[Any, dict[str, Any]]:
        """Draw rows by a scheme, or uniformly, and count them if the buffer counts; see `_draw`."""
        rows, others, drawn = self._draw_by(scheme, batch_size)
        return rows, self._counted(others, drawn.indexes)

    def _draw_by(self, scheme: "Scheme | None", batch_size: int) -> "tuple[Any, dict[str, Any], Drawn]":
        """Draw rows by a scheme; None is uniform. Return as `_draw`, and what the scheme has drawn."""
        from replay_tutorial.buffers.schemes.scheme import Uniform

        self._ring.check_not_empty(batch_size)
        drawn = (scheme or Uniform()).draw(self._stored_rows(), batch_size, self._rng)
        return drawn.indexes % self._ring.capacity, drawn.arrays if scheme else {}, drawn

    def _counted(self, others: dict[str, Any], indexes: Integers) -> dict[str, Any]:
        """Count the rows that have been drawn, if the buffer counts, and add `times_sampled`."""
        if self._counts is not None:
            others["times_sampled"] = self._counts.count(indexes)
        return others

    def _rows(self, indexes: Integers) -> tuple[Batch, Flags]:
        # `load` during an epoch may have removed the newest rows.
        stored = (indexes >= self._ring.oldest_index) & (indexes < self._ring.next_index)
        return self._copy(indexes[stored] % self._ring.capacity, {}), stored

    @property
    def indexes(self) -> Integers:
        """The indexes of all stored rows, oldest first: int64[len(buffer)], a new array."""
        return np.arange(int(self._ring.oldest_index), int(self._ring.next_index))

    def _stored_rows(self) -> "StoredRows":
        """Return what a scheme sees of the buffer."""
        from replay_tutorial.buffers.schemes.scheme import StoredRows

        ring = self._ring
        return StoredRows(ring.oldest_index, ring.next_index, ring.capacity, None)

    def _check_scheme(self, scheme: "Scheme") -> None:
        from replay_tutorial.buffers.schemes.scheme import check_scheme

        check_scheme(scheme, self._fields.fields)

    def _state(self) -> "tuple[dict[str, Any], archive.Arrays]":
        ring = self._ring
        counters: dict[str, Any] = {
            "next_index": ring.next_index,
            "stored": ring.stored,
            "waiting": 0,
            "frames": [],
            "random_state": self._rng.state,
        }
        arrays: archive.Arrays = {"rows": ring.segments()}
        if self._counts is not None:
            arrays["times_sampled"] = [self._counts.of(self.indexes)]
        if self._stages is not None:
            counted, parts = self._stages.state(ring)
            return counters | counted, arrays | parts
        return counters, arrays

    def _from_state(self, counters: dict[str, Any], reader: "archive.Reader") -> Self:
        from replay_tutorial.buffers import archive

        loaded = self._with_shared_parts()
        next_index = archive.checked_count(counters, "next_index")
        stored = archive.checked_count(counters, "stored", most=min(next_index, self._ring.capacity))
        ring = loaded._ring = self._new_ring(self._ring.capacity, self._ring.dtype, next_index, stored)
        loaded._rng = archive.checked_generator(counters)
        reader.read_into("rows", ring.segments())
        if self._stages is not None:
            loaded._stages = self._stages.from_state(counters, reader, ring)
        if self._counts is not None:
            loaded._counts = self._counts.from_state(reader, loaded.indexes)
        return loaded
