"""A handle on a shared buffer: what one process needs to use it.

Rows, counters and stamps lie in one block of shared memory (`memory`). The header of the block describes the
buffer: its size, its fields, and which observations are stored as frames. Each process derives its own parts,
views of the block, when the buffer is constructed, unpickled, or attached by its address. A copy of a handle
is another handle on the same rows.
"""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from replay_tutorial.buffers.base import BaseBuffer
from replay_tutorial.buffers.fields import Fields, FiniteFields
from replay_tutorial.buffers.gather import Gather
from replay_tutorial.buffers.priorities import Prioritization
from replay_tutorial.buffers.streams import Stream
from replay_tutorial.buffers.uniform import ReplayBuffer
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.protocol import STALE
from replay_tutorial.shared.registry import WRITER_SPECS, WriterRegistry
from replay_tutorial.shared.sampler import INITIAL_VALUES, PrioritizedSampler, UpdaterLease, priority_specs
from replay_tutorial.shared.shared_ring import SharedRing, ring_specs

if TYPE_CHECKING:  # options are loaded when they are used
    from replay_tutorial.buffers.images.frame_layout import FrameLayout
    from replay_tutorial.buffers.schemes.sample_counts import SampleCounts
    from replay_tutorial.shared.shared_frames import SharedFrames


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
    """Class attribute in place of an attribute that a closed buffer has deleted; raises ValueError."""

    def __get__(self, buffer: object, owner: type) -> Self:
        if buffer is None:  # read from the class, as by `inspect`
            return self
        raise ValueError(f"This {owner.__name__} is closed.")


# The parts of a handle, views of the block; not pickled, and deleted by `close`.
PARTS = ("_ring", "_fields", "_stages", "_gather", "_counts", "_sampler", "_lease")


class Handle(ReplayBuffer):
    """Methods of a shared buffer that concern its block: attaching, pickling, closing and sizes."""

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

    def _map(self, block: SharedArrays, state: Mapping[str, Any], appended: int = 0) -> None:
        """Attach this handle, with this state, to a block; it has appended rows in its episode."""
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
            parts["_sampler"] = PrioritizedSampler(ring, ring.rules, block, only_stored_count=only_stored)
            start = parts["_sampler"].start
        parts["_lease"] = UpdaterLease(ring.counters, block.identity, start)
        self.__dict__.update({**state, **parts})

    @property
    def _layout(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._block.layout

    def _open(self, block: SharedArrays, stream: Stream) -> None:
        """Attach this handle to a block."""
        self._map(block, {"_rng": stream})

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
        buffer._open(block, Stream(seed))
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
