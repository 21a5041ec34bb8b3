"""A handle: one process's hold on a buffer that several processes share.

The rows, counters and stamps lie in one block of shared memory (`memory`). The block's text describes the
buffer: its fields, which observations are kept as frames, its size. From the description follow the arrays,
and from the block alone everything that a process needs to work on it: its `MappedBuffer`. So this is never
passed on: each process has its own, made when the buffer is made, passed to it, or attached by address. A
copy of a handle, also a deep one, is another handle on the same rows.

Left out: what lies in the block.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np

from replay_tutorial.buffers.base import BaseBuffer
from replay_tutorial.buffers.fields import Fields, FiniteFields
from replay_tutorial.buffers.frame_layout import FrameLayout, with_numbers
from replay_tutorial.buffers.gather import Gather, array_specs
from replay_tutorial.buffers.priorities import Prioritization
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.registry import WRITER_SPECS, WriterRegistry
from replay_tutorial.shared.sampler import FIRST_PRIORITIES, PrioritizedSampler, SamplerLease, priority_specs
from replay_tutorial.shared.shared_frames import SharedFrames, frame_specs
from replay_tutorial.shared.shared_ring import SharedRing, ring_specs


def describe(
    kind: str, capacity: int, fields: Fields, layouts: Sequence[FrameLayout], frames_per_transition: float
) -> dict[str, Any]:
    """Return what another process, or a file, must agree with; a prioritized buffer adds alpha and eps."""
    described = {f.name: [list(f.shape), f.dtype.str] for f in fields.fields.values()}
    description = {"kind": kind, "size": capacity, "fields": described}
    if not layouts:
        return description
    frames = [[*layout.names, layout.axis] for layout in layouts]
    return description | {"frames": frames, "frames_per_transition": frames_per_transition}


def described_fields(description: dict[str, Any]) -> tuple[Fields, list[FrameLayout]]:
    """Return the fields of a description, and the layouts of observations kept as frames."""
    env_dict = {name: {"shape": tuple(n), "dtype": t} for name, (n, t) in description["fields"].items()}
    fields = FiniteFields(env_dict) if description.get("check_finite") else Fields(env_dict)
    frames = description.get("frames", [])
    return fields, [FrameLayout(fields.fields[names[0]], tuple(names), axis) for *names, axis in frames]


def make_block(description: dict[str, Any], path: str | PathLike[str] | None) -> SharedArrays:
    """Reserve a block for a description, or open the file that lies at the path already."""
    fields, layouts = described_fields(description)
    capacity = description["size"]
    specs: Specs = {**WRITER_SPECS, **ring_specs(capacity, with_numbers(fields, layouts).dtype)}
    if layouts:
        specs = {**specs, **frame_specs(layouts, capacity, description["frames_per_transition"])}
    if "alpha" in description:
        specs = {**specs, **priority_specs(capacity)}
    return SharedArrays(specs, description, path, FIRST_PRIORITIES if "alpha" in description else {})


class MappedBuffer:
    """What one process has of a shared buffer.

    Attributes:
        fields: The fields of a transition.
        ring: The rows.
        frames: The frames of their observations; None if no observation is kept as frames.
        gather: Turns records into a batch.
        kinds: What a sample consists of.
        lease: The right to sample.
        priorities: How priorities become masses, for every process that adds; a uniform buffer has none.
        sampler: Draws by priority, in the one process that is the sampler; a uniform buffer has none.
    """

    priorities: Prioritization
    sampler: PrioritizedSampler

    def __init__(self, block: SharedArrays) -> None:
        """Look into a block."""
        layout, (self.fields, layouts) = block.layout, described_fields(block.layout)
        capacity, is_prioritized = layout["size"], "alpha" in layout
        stamps = [block[name] for name in ("stamps", *(f"frames{i}/stamps" for i in range(len(layouts))))]
        writers = WriterRegistry(block["owners"], stamps, block.identity)
        dtype: np.dtype[np.void] = with_numbers(self.fields, layouts).dtype
        max_given = block["seen"] if is_prioritized else None
        self.ring = SharedRing(block, dtype, writers, max_given=max_given)
        self.frames = SharedFrames(block, writers, self.fields, layouts, capacity) if layouts else None
        self.gather, self.specs = Gather(self.fields), array_specs(self.fields)
        self.lease = SamplerLease(self.ring.counters, block.identity)
        if is_prioritized:
            self.priorities = Prioritization(capacity, block["seen"], layout["alpha"], layout["eps"])
            self.sampler = PrioritizedSampler(self.ring, self.lease, self.priorities, block)


class Handle(BaseBuffer):
    """What every shared buffer can do with its block: pass it on, attach to it, close it, count its rows."""

    _block: SharedArrays
    # This process's own, not passed on.
    _mapped: MappedBuffer
    _rng: np.random.Generator

    @property
    def _ring(self) -> SharedRing:
        return self._mapped.ring

    @property
    def _fields(self) -> Fields:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._mapped.fields

    @property
    def _layout(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._block.layout

    def _open(self, block: SharedArrays, generator: np.random.Generator) -> None:
        """Begin to work on a block."""
        self._block, self._mapped = block, MappedBuffer(block)
        self._rng = generator

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
        block = SharedArrays.attach(address)
        if (kind := block.layout.get("kind")) != cls.__name__:
            raise ValueError(f"{address} holds a {kind}, not a {cls.__name__}.")
        buffer = cls.__new__(cls)
        buffer._open(block, np.random.default_rng(seed))
        return buffer

    @property
    def address(self) -> str:
        """Where an unrelated process can `attach`, while this process lives or the file exists.

        Raises:
            ValueError: If there is no file, and the system is not Linux.
        """
        return self._block.address

    def close(self) -> None:
        """Release this process's share of the memory, which is free when the last process has done so.

        Another process may become the sampler then. Not needed at a process's end. Whatever is asked of the
        rows later raises ValueError; closing again is harmless.
        """
        if "_block" in self.__dict__:
            if "_mapped" in self.__dict__:
                self._mapped.lease.release()
                del self._mapped
            del self._block

    def __enter__(self) -> Self:
        """Use the buffer in a `with` block, which closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in ("_block", "_mapped"):
            raise ValueError(f"This {type(self).__name__} is closed.")
        return object.__getattribute__(self, name)  # again: the error says what really is missing

    def __repr__(self) -> str:
        return super().__repr__() if "_mapped" in self.__dict__ else f"<{type(self).__name__}: closed>"

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name != "_mapped"}
        return kept | {"_mapped": self.get_current_episode_len()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        mapped = MappedBuffer(state["_block"])
        mapped.ring.own[0] = state["_mapped"]
        self.__dict__.update(state | {"_mapped": mapped})

    def get_current_episode_len(self) -> int:
        """Count the transitions that this process added since its last `on_episode_end` or `clear`."""
        appended, before = self._ring.own.tolist()
        return appended - before

    def is_Nstep(self) -> bool:
        """Return whether n-step transitions are made here: never."""
        return False

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        return self._ring.nbytes + (self._mapped.frames.nbytes if self._mapped.frames else 0)
