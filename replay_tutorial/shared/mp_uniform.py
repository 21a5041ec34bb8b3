"""The shared uniform replay buffer: any number of processes add and sample.

`MPReplayBuffer` has the methods of `buffers.uniform.ReplayBuffer`. Its rows lie in a lock-free ring in shared
memory (`shared_ring`), so a killed process never blocks another one. It loses at most the rows that it was
adding, and the old row in the slot that it was writing.

N-step windows belong to a single stream of steps, so each actor folds its own steps with `NStepWindow`.

Built in chapter 06, *Shared memory*.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.cast import round_floats
from replay_tutorial.buffers.fields import Fields, FieldSpecs, Rows, expand_groups, field_names
from replay_tutorial.buffers.rows import checked_at_least, checked_flag, checked_number, checked_size
from replay_tutorial.buffers.runtime.jit import Flags, Integers, compile_now
from replay_tutorial.buffers.streams import Stream, restore_rng_on_error
from replay_tutorial.buffers.sum_tree import SumTree
from replay_tutorial.buffers.uniform import BufferOptions
from replay_tutorial.shared.handle import Handle, make_block
from replay_tutorial.shared.protocol import (
    add_to_counter,
    append_rows,
    clear_rows,
    load_indexes,
    read_slots,
    swap,
)

if TYPE_CHECKING:  # options are loaded when they are used
    from replay_tutorial.buffers import archive
    from replay_tutorial.buffers.schemes.scheme import Drawn, Scheme
    from replay_tutorial.shared.statistics import Statistics


class MPBufferOptions(BufferOptions, total=False):
    """The keyword arguments of `MPReplayBuffer`, which `MPPrioritizedReplayBuffer` accepts as well."""

    frames_per_transition: float
    path: str | PathLike[str] | None


class MPReplayBuffer(Handle):
    """A replay buffer in shared memory: any number of processes add and sample uniformly.

    Pass the buffer to other processes as an argument; it works with fork, spawn and forkserver. Any process,
    and any of its threads, may add and sample at any time.

    An n-step window belongs to one stream of steps, so this class has no `n_step`, `num_envs` and
    `autoreset`: each actor combines its steps with `NStepWindow`, and adds the rows that this returns.
    `Mailbox` sends parameters to the actors, and `SamplesPerInsert` limits how far they run ahead.

    Adding large rows is slower until every slot has been written once, because the operating system allocates
    each page at its first write. Call `touch_pages` to allocate all pages in advance.

    Built in chapter 06, *Shared memory*.

    Example:
        >>> buffer = MPReplayBuffer(1000, {"obs": {"shape": 4}, "reward": {}}, seed=0)
        >>> buffer.add(obs=np.zeros((10, 4)), reward=np.ones(10))
        0
        >>> buffer.sample(32)["reward"].shape, len(buffer)
        ((32,), 10)
    """

    # Overridden by the prioritized buffer: the options of priorities for the layout, reserved field names.
    _priority_options: Mapping[str, Any] = MappingProxyType({})
    _reserved_names: frozenset[str] = frozenset()
    _kernels: ClassVar[tuple[Any, ...]] = (
        append_rows,
        clear_rows,
        load_indexes,
        read_slots,
        add_to_counter,
        round_floats,
        swap,
    )

    def __init__(
        self,
        capacity: int,
        fields: FieldSpecs,
        *,
        dedupe_next: str | Sequence[str] | None = None,
        dedupe_frames: str | Sequence[str] | Mapping[str, int] | None = None,
        frames_per_transition: float = 1.25,
        seed: int | np.random.SeedSequence | None = None,
        check_finite: bool = False,
        count_samples: bool = False,
        path: str | PathLike[str] | None = None,
    ) -> None:
        """Create an empty buffer in shared memory, whose pages are allocated when they are first written.

        Args:
            capacity: Maximum number of transitions; once it is reached, each new one replaces the oldest.
            fields: Maps each name to a dict with `shape` (an int or a tuple, default `()`, a scalar) and
                `dtype` (default float32). A scalar is sampled with shape `(batch,)`, a field of shape 4 with
                shape `(batch, 4)`. The dict is not modified.
            dedupe_next: Name or names of the observations that share memory with their next observations. For
                each name, `add` and `sample` have an additional field `next_…`. A frame is stored once for
                all rows of one process that contain it, if the rows are added close together, as an actor
                does. Several environments may alternate.
            dedupe_frames: Name or names of the observations that are stacks of frames; each frame is stored
                only once. With three axes, the stack axis is the shorter of the first and the last axis. If
                it isn't clear, as in colour stacks of shape (4, 64, 64, 3), pass a dict such as `{"obs": 0}`.
            frames_per_transition: Frames to reserve per transition if `dedupe_next` or `dedupe_frames` stores
                observations as frames; at least 1. Episodes of L steps need 1 + 4/(3 L), or 1 + 16/(3 L) if
                the first observation stacks four different frames. A transition whose frames have been
                overwritten counts as overwritten itself.
            seed: Seed for sampling; None uses entropy from the operating system. A copy of the buffer in
                another process draws other rows, which the seed determines as well.
            check_finite: Whether `add` raises ValueError for NaN and infinity in float fields, in every
                process.
            count_samples: Whether a sample contains `times_sampled`, the number of times that each row has
                been sampled. The counts take 16 bytes per transition of shared memory, and are saved. Only
                one process can then sample, until it exits or closes its handle.
            path: File on disk that holds the buffer, so that its contents outlive the processes. An existing
                file is opened with all its published rows and their priorities. None keeps the buffer in
                memory.

        Raises:
            MemoryError: If the buffer is larger than the free memory, or than the free space on the disk.
            OSError: If the file cannot be opened or created.
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range or not supported.
        """
        if not 1.0 <= checked_number("frames_per_transition", frames_per_transition) < math.inf:
            raise ValueError(
                f"frames_per_transition must be finite and at least 1, not {frames_per_transition}."
            )
        capacity, arguments = checked_size(capacity), Fields(fields)
        layouts: list[Any] = []
        if dedupe_next or dedupe_frames:
            from replay_tutorial.buffers.images.frame_layout import frame_layouts, with_next

            observations = expand_groups(field_names(dedupe_next), arguments.fields)
            arguments = with_next(arguments, observations)
            layouts = frame_layouts(arguments, observations, dedupe_frames)
        if taken := self._reserved_names & arguments.fields.keys():
            raise ValueError(
                f"The field names {sorted(taken)} are reserved in a prioritized buffer; rename the fields."
            )
        description: dict[str, Any] = {  # processes and saved files must agree on it
            "kind": type(self).__name__,
            "size": capacity,
            "fields": arguments.described,
            "check_finite": checked_flag("check_finite", check_finite),
            **self._priority_options,
        }
        if layouts:
            description["frames"] = [[*layout.names, layout.axis] for layout in layouts]
            description["frames_per_transition"] = float(frames_per_transition)
        if checked_flag("count_samples", count_samples):
            if "times_sampled" in arguments.fields:
                raise ValueError("With count_samples, the field name 'times_sampled' is reserved; rename it.")
            description["count_samples"] = True
        stream = Stream(seed)  # before memory is reserved, because it may reject the seed
        # Compiled now; otherwise each process that is started later would compile the kernels itself.
        compile_now(*self._kernels)
        if layouts:
            from replay_tutorial.shared.shared_frames import number_in_ring, read_frames

            compile_now(number_in_ring, read_frames)
        self._open(make_block(description, path), stream)

    @property
    def rows_dropped(self) -> int:
        """Rows that this handle could not write, because stopped processes held every slot it tried."""
        return self._ring.dropped

    def wait_for(self, rows: int, timeout: float | None = None) -> bool:
        """Block until `rows` rows are stored, or until `timeout` seconds have passed.

        Polls once per millisecond.

        Args:
            rows: Number of rows to wait for; at most the buffer's capacity.
            timeout: Maximum time to wait in seconds; None waits indefinitely.

        Returns:
            True if the rows are stored, False if the timeout expired.

        Raises:
            TypeError: If `rows` is not an integer.
            ValueError: If `rows` is negative or exceeds the buffer's capacity, or the timeout is NaN.
        """
        from replay_tutorial.shared.limiter import wait_until

        ring, rows = self._ring, checked_at_least("rows", rows, 0)
        if rows > ring.capacity:
            raise ValueError(
                f"wait_for({rows}): rows must be at most the buffer's capacity, {ring.capacity}."
            )
        return wait_until(lambda: ring.stored >= rows, timeout)

    def statistics(self) -> "Statistics":
        """Return counters that cover all processes. Any process may call this."""
        from replay_tutorial.shared.statistics import statistics_of

        return statistics_of(self._ring, self._stages)

    def _copy(self, rows: Any, others: Mapping[str, Any]) -> Batch:
        """Return a batch of the rows, which were copied when they were drawn, before they could be replaced.

        `rows` are records, or already a batch if observations are stored as frames.
        """
        batch = self._gather.to_batch(rows) if self._stages is None else rows
        batch.update(others)
        return batch

    def _draw_uniformly(self, batch_size: int) -> Any:
        if self._stages is None:
            return self._ring.draw(batch_size, self._rng)
        with restore_rng_on_error(self._rng):
            return self._stages.restore(self._ring.draw(batch_size, self._rng), self._draw_again)

    def _draw_and_count(self, batch_size: int, scheme: "Scheme | None") -> tuple[Any, dict[str, Any]]:
        if self._counts is None:
            return self._draw_in_lease(batch_size, scheme)
        return self._lease.hold(self._draw_in_lease, batch_size, scheme, updates=True)

    def _draw_in_lease(self, batch_size: int, scheme: "Scheme | None") -> tuple[Any, dict[str, Any]]:
        with restore_rng_on_error(self._rng):
            rows, others, drawn = self._draw_by(scheme, batch_size)
        return rows, self._counted(others, drawn.indexes)

    def _draw_by(self, scheme: "Scheme | None", batch_size: int) -> "tuple[Any, dict[str, Any], Drawn]":
        from replay_tutorial.buffers.schemes.scheme import Uniform
        from replay_tutorial.shared.scheme_draw import SchemeDraw

        draw = SchemeDraw(self._ring, scheme or Uniform(), batch_size, self._rng, *self._tree_and_alpha())
        rows = draw.rows if self._stages is None else self._stages.restore(draw.rows, draw.draw_again)
        return rows, draw.drawn.arrays if scheme else {}, draw.drawn

    def _tree_and_alpha(self) -> tuple[Callable[[], SumTree] | None, float]:
        """Return what a scheme needs to draw by mass; overridden by the prioritized buffer."""
        return None, 1.0

    def _draw_again(self, positions: Integers) -> Rows:
        """Draw one replacement row for each position whose row lacks a frame."""
        self._ring.reject(len(positions))
        return self._ring.draw(len(positions), self._rng)

    def _rows(self, indexes: Integers) -> tuple[Batch, Flags]:
        rows, stored = self._ring.take(indexes)
        if self._stages is None:
            return self._gather.to_batch(rows), stored
        batch, stored[stored] = self._stages.restore_available(rows)
        return batch, stored

    @property
    def indexes(self) -> Integers:
        """The indexes of all stored rows, oldest first: int64[n]; some rows may lack frames."""
        return self._ring.published_indexes()

    def clear(self) -> None:
        """Remove all transitions. Indexes continue to count up. Any process may call this."""
        self._loaded_ahead = ()
        self._ring.clear()

    def load(self, path: str | PathLike[str]) -> None:
        """Restore a file written by `save` into a new, empty buffer.

        This handle continues the saved random sequence.

        Args:
            path: A file saved from a buffer with the same arguments (except the seed), and with its fields in
                the same order.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If rows have already been added to this buffer, or the file is damaged or has another
                layout or version. The buffer is left unchanged.
        """
        from replay_tutorial.shared.snapshot import load

        load(self, path)

    def _state(self) -> "tuple[dict[str, Any], archive.Arrays]":
        from replay_tutorial.shared.snapshot import state_of

        return state_of(self)
