"""The shared uniform replay buffer: any number of processes add and sample.

`MPReplayBuffer` has the methods of `buffers.uniform.ReplayBuffer`. Its rows lie in a lock-free ring in shared
memory (`shared_ring`), so a killed process never blocks another one. It loses at most the rows that it was
adding, and the old row in the slot that it was writing.

Rows, counters and stamps lie in one block of shared memory (`memory`), whose header describes the buffer: its
size, its fields, and which observations are stored as frames. Each process derives its own parts, views of
the block, when the buffer is constructed, unpickled, or attached by its address. So a buffer is a *handle* on
rows, and a copy of it is another handle on the same rows.

N-step windows belong to a single stream of steps, so each actor folds its own steps with `NStepWindow`.

Built in chapter 06, *Shared memory*.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from replay_tutorial.buffers.base import BaseBuffer
from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.cast import round_floats
from replay_tutorial.buffers.fields import Fields, FieldSpecs, FiniteFields, Rows, expand_groups, field_names
from replay_tutorial.buffers.gather import Gather
from replay_tutorial.buffers.priorities import Prioritization
from replay_tutorial.buffers.rows import checked_at_least, checked_flag, checked_number, checked_size
from replay_tutorial.buffers.runtime.jit import Flags, Integers, compile_now
from replay_tutorial.buffers.streams import Stream, restore_rng_on_error
from replay_tutorial.buffers.sum_tree import SumTree
from replay_tutorial.buffers.uniform import BufferOptions, ReplayBuffer
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.protocol import (
    STALE,
    add_to_counter,
    append_rows,
    clear_rows,
    load_indexes,
    read_slots,
    swap,
)
from replay_tutorial.shared.registry import WRITER_SPECS, WriterRegistry
from replay_tutorial.shared.sampler import INITIAL_VALUES, PrioritizedSampler, UpdaterLease, priority_specs
from replay_tutorial.shared.shared_ring import SharedRing, ring_specs

if TYPE_CHECKING:  # options are loaded when they are used
    from replay_tutorial.buffers import archive
    from replay_tutorial.buffers.images.frame_layout import FrameLayout
    from replay_tutorial.buffers.schemes.sample_counts import SampleCounts
    from replay_tutorial.buffers.schemes.scheme import Drawn, Scheme
    from replay_tutorial.shared.shared_frames import SharedFrames
    from replay_tutorial.shared.statistics import Statistics


class MPBufferOptions(BufferOptions, total=False):
    """The keyword arguments of `MPReplayBuffer`, which `MPPrioritizedReplayBuffer` accepts as well."""

    frames_per_transition: float
    path: str | PathLike[str] | None


def described_fields(description: dict[str, Any]) -> "tuple[Fields, Fields, list[FrameLayout]]":
    """Return the fields of a description, those of the stored rows, and the layouts of stored frames."""
    specs = {name: {"shape": tuple(n), "dtype": t} for name, (n, t) in description["fields"].items()}
    fields = FiniteFields(specs) if description.get("check_finite") else Fields(specs)
    if "frames" not in description:
        return fields, fields, []
    from replay_tutorial.buffers.images.frame_layout import FrameLayout, with_numbers

    frames = description["frames"]
    layouts = [FrameLayout(fields.fields[names[0]], tuple(names), axis) for *names, axis in frames]
    return fields, with_numbers(fields, layouts), layouts


def make_block(description: dict[str, Any], path: str | PathLike[str] | None) -> SharedArrays:
    """Reserve a block for a description, or open the file if the path exists."""
    _, stored, layouts = described_fields(description)
    capacity = description["size"]
    specs: Specs = {**WRITER_SPECS, **ring_specs(capacity, stored.dtype)}
    if layouts:
        from replay_tutorial.shared.shared_frames import frame_specs

        specs = {**specs, **frame_specs(layouts, capacity, description["frames_per_transition"])}
    if "alpha" in description:
        specs = {**specs, **priority_specs(capacity)}
    if "count_samples" in description:
        by_slot = ((capacity,), np.dtype(np.int64))
        specs = {**specs, "counted_indexes": by_slot, "sample_counts": by_slot}
    return SharedArrays(specs, description, path, INITIAL_VALUES if "alpha" in description else {})


class Closed:
    """Class attribute that raises ValueError where a closed buffer has deleted its own attribute."""

    def __get__(self, buffer: object, owner: type) -> Self:
        if buffer is None:  # read from the class, as by `inspect`
            return self
        raise ValueError(f"This {owner.__name__} is closed.")


# The parts of a handle, views of the block; not pickled, and deleted by `close`.
PARTS = ("_ring", "_fields", "_stages", "_gather", "_counts", "_sampler", "_lease")


class MPReplayBuffer(ReplayBuffer):
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

    _block: SharedArrays = Closed()  # pyright: ignore[reportAssignmentType]
    _ring: SharedRing = Closed()  # pyright: ignore[reportAssignmentType]
    _fields: Fields = Closed()  # pyright: ignore[reportAssignmentType]
    _gather: Gather = Closed()  # pyright: ignore[reportAssignmentType]
    # How many times each row was sampled, written by the updater only; None if not counted.
    _counts: "SampleCounts | None" = Closed()  # pyright: ignore[reportAssignmentType]
    _sampler: PrioritizedSampler = Closed()  # pyright: ignore[reportAssignmentType]
    # The right to update priorities and counts, held by one process at a time.
    _lease: UpdaterLease = Closed()  # pyright: ignore[reportAssignmentType]
    _stages: "SharedFrames | None" = Closed()  # pyright: ignore[reportAssignmentType, reportIncompatibleVariableOverride]
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

    def __new__(cls, *_: Any, **keywords: Any) -> Self:
        """Create a handle, which other processes may copy without a warning."""
        for name in ("n_step", "Nstep", "num_envs", "autoreset"):
            if keywords.get(name):
                raise TypeError(
                    f"{cls.__name__} has no argument {name!r}, because an n-step window belongs to one "
                    "stream of steps, and many processes add. Compute n-step rows in each actor with "
                    "NStepWindow, then add them, including next_obs."
                )
        return BaseBuffer.__new__(cls, **keywords)

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
        self._map(make_block(description, path), {"_rng": stream})

    def _map(self, block: SharedArrays, state: Mapping[str, Any], appended: int = 0) -> None:
        """Attach this handle to a block, and set its state; its current episode has `appended` rows."""
        layout, (fields, stored, layouts) = block.layout, described_fields(block.layout)
        capacity, is_prioritized = layout["size"], "alpha" in layout
        stamps = [block[name] for name in ("stamps", *(f"frames{i}/stamps" for i in range(len(layouts))))]
        writers = WriterRegistry(block["owners"], stamps, block.identity)
        ring = SharedRing(
            block, stored.dtype, writers, largest_priority=block["seen"] if is_prioritized else None
        )
        ring.handle_counts[0] = appended
        parts: dict[str, Any] = {"_block": block, "_ring": ring, "_fields": fields, "_gather": Gather(fields)}
        parts |= {"_stages": None, "_counts": None}
        if layouts:
            from replay_tutorial.shared import shared_frames

            parts["_stages"] = shared_frames.SharedFrames(block, writers, fields, layouts, capacity)
        if "count_samples" in layout:
            from replay_tutorial.buffers.schemes import sample_counts

            counts = block["counted_indexes"], block["sample_counts"]
            parts["_counts"] = sample_counts.SampleCounts(*counts)
        start = None
        if is_prioritized:
            ring.rules = Prioritization(capacity, block["seen"], layout["alpha"], layout["eps"])
            ring.rules.stale_updates = ring.counters[STALE : STALE + 1]
            only_stored = layout.get("initial_priority") == "max_stored"
            parts["_sampler"] = PrioritizedSampler(ring, block, only_stored_count=only_stored)
            start = parts["_sampler"].start
        parts["_lease"] = UpdaterLease(ring.counters, block.identity, start)
        self.__dict__.update({**state, **parts})

    @property
    def _layout(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._block.layout

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

    @classmethod
    def attach(
        cls, address: str | PathLike[str], *, seed: int | np.random.SeedSequence | None = None
    ) -> Self:
        """Open a buffer that was created by an unrelated process of the same user.

        Args:
            address: The buffer's `address`, or the path of its file.
            seed: Seed for sampling, if this process is going to sample.

        Returns:
            A buffer that shares all memory with the original.

        Raises:
            OSError: If the address does not exist or cannot be opened.
            ValueError: If the address holds something other than a buffer of this class.
        """
        block = SharedArrays.attach(address)
        if (kind := block.layout.get("kind")) != cls.__name__:
            raise ValueError(f"{address} holds a {kind}, not a {cls.__name__}.")
        buffer = cls.__new__(cls)
        buffer._map(block, {"_rng": Stream(seed)})
        return buffer

    @property
    def address(self) -> str:
        """Address that an unrelated process can pass to `attach`.

        It is valid while this process is alive, or, with `path`, while the file exists.

        Raises:
            ValueError: If the buffer has no file and the system is not Linux.
        """
        return self._block.address

    def close(self) -> None:
        """Release the memory mapping, and the role of updater if this handle holds it.

        The memory is freed when the last process has closed the buffer or exited; calling `close` before a
        process exits is optional. Methods that access rows raise ValueError afterwards. Closing twice is
        allowed.
        """
        if "_block" in self.__dict__:
            if "_ring" in self.__dict__:
                self._lease.release()
            for name in (*PARTS, "_block"):
                self.__dict__.pop(name, None)

    def __enter__(self) -> Self:
        """Return the buffer; leaving the `with` block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return super().__repr__() if "_ring" in self.__dict__ else f"<{type(self).__name__}: closed>"

    def __copy__(self) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return another handle on the same rows."""
        return self._with_shared_parts()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        kind = type(self).__name__
        raise TypeError(
            f"{kind} can't be copied deeply, because a copy is another handle to the same rows. For a "
            "second handle, use copy.copy. For independent rows, save this buffer, and load the file into a "
            f"new {kind} with the same arguments."
        )

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name not in (*PARTS, "_iterators")}
        return kept | {"appended": self._episode_len()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        others = {name: value for name, value in state.items() if name not in ("_block", "appended")}
        self._map(state["_block"], others, state["appended"])
        if self._rng.sender is not None:  # another process draws batches of its own
            self._loaded_ahead = ()

    def _episode_len(self) -> int:
        """Return how many transitions this process has added since its last `end_episode` or `clear`."""
        appended, before = self._ring.handle_counts.tolist()
        return appended - before

    def _flush(self, environment: int | None) -> None:
        self._ring.end_episode()

    @classmethod
    def _vector_options(cls, num_envs: int, autoreset: Any) -> dict[str, Any]:
        from replay_tutorial.buffers.n_step.autoreset import resets_at_next_step

        if resets_at_next_step(autoreset):
            raise ValueError(
                f'The environments have the autoreset mode "next_step", in which some steps only reset an '
                f"environment, but {cls.__name__} stores every row that is added. Leave these steps out in "
                "each actor with window = NStepWindow(fields_from_spaces(...), n, num_envs=..., "
                f"autoreset=...), where n is 1 for single steps, and construct {cls.__name__}(capacity, "
                "window.fields); or create the environments with another mode."
            )
        return {}

    def _source(self) -> tuple[Any, ...]:
        return *super()._source(), self._ring.cleared_before  # any process may clear

    def touch_pages(self) -> None:
        """Allocate the memory pages of rows and frames now; other processes may add meanwhile."""
        for ring in (self._ring, *(frames.ring for frames in (self._stages.rings if self._stages else []))):
            ring.touch_pages()

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        return self._ring.nbytes + (self._stages.nbytes if self._stages else 0)
