"""A view: one process's objects on a block that several processes share.

The block's text describes the buffer: its fields, which observations are kept as frames, its size. From the
description follow the arrays, and from the block alone everything that a process needs to work on it. So a
view is never passed on: whoever gets the block makes one.

Left out: the random numbers and the open episode, which are a handle's own.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from replay_tutorial.buffers.fields import Fields, FiniteFields
from replay_tutorial.buffers.frame_layout import FrameLayout, with_numbers
from replay_tutorial.buffers.gather import Gather, kinds_of
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.sampler import Claim, PrioritizedSampler
from replay_tutorial.shared.scratch import ScratchStore
from replay_tutorial.shared.shared_frames import SharedFrames, specs_of_frames
from replay_tutorial.shared.shared_priorities import FIRST_PRIORITIES, SharedPrioritization, priority_specs
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
    specs: Specs = ring_specs(capacity, with_numbers(fields, layouts).dtype)
    if layouts:
        specs = {**specs, **specs_of_frames(layouts, capacity, description["frames_per_transition"])}
    if "alpha" in description:
        specs = {**specs, **priority_specs(capacity)}
    return SharedArrays(specs, description, path, FIRST_PRIORITIES if "alpha" in description else {})


class View:
    """What one process has of a shared buffer.

    Attributes:
        fields: The fields of a transition.
        ring: The rows.
        frames: The frames of their observations; None if no observation is kept as frames.
        gather: Turns records into a batch.
        kinds: What a sample consists of.
        scratches: Where new rows are laid side by side.
        claim: Whether this process is the sampler.
        priorities: How priorities become masses, for every process that adds; a uniform buffer has none.
        sampler: Draws by priority, in the one process that is the sampler; a uniform buffer has none.
    """

    priorities: SharedPrioritization
    sampler: PrioritizedSampler

    def __init__(self, block: SharedArrays) -> None:
        """Look into a block."""
        self.fields, layouts = described_fields(block.layout)
        dtype: np.dtype[np.void] = with_numbers(self.fields, layouts).dtype
        max_given = block["seen"] if "alpha" in block.layout else None
        self.ring = SharedRing(block, dtype, max_given=max_given)
        self.frames = SharedFrames(block, self.fields, layouts, self.ring.capacity) if layouts else None
        self.gather, self.kinds = Gather(self.fields), kinds_of(self.fields)
        self.scratches = ScratchStore(dtype)
        self.claim = Claim(self.ring.counters, block.identity)
        if "alpha" in block.layout:
            self.priorities = SharedPrioritization(block)
            self.sampler = PrioritizedSampler(self.ring, self.claim, self.priorities, block)

    def release(self) -> None:
        """Stop being the sampler."""
        self.claim.seat.release(self.ring.counters, self.claim.number)
