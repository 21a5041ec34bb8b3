"""The stages that a row passes before the ring: frames, and an n-step window.

    add:     fields ──▶ (frames) ──▶ (n-step window) ──▶ ring
    sample:  ring ──▶ (frames) ──▶ batch

Both are optional. `frames` replaces observations with frame numbers; `n_step` combines steps into rows, and
keeps those that aren't complete. A buffer without these options never loads this module.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.fields import Batch, EnvDict, Fields, Rows, as_bytes, expand_groups, field_names
from replay_tutorial.buffers.images.frame_layout import CHECKED_AT, StackCompress, with_next
from replay_tutorial.buffers.images.frames import FrameStore
from replay_tutorial.buffers.n_step.windows import Restore, Windows
from replay_tutorial.buffers.ring import BYTES_AT_ONCE, Change, Ring, parts_of
from replay_tutorial.buffers.runtime.jit import Bytes, Floats
from replay_tutorial.buffers.runtime.machine_memory import check_memory

# The mass of a pending step. In a prioritized buffer, users can't declare a field of this name.
MASS: EnvDict = {"priorities": {"shape": (), "dtype": np.float64}}


class Stages:
    """The stages of one buffer.

    Attributes:
        fields: The fields that `add` expects, including those that `next_of` adds.
        stored: The fields of the rows in the ring.
        frames: The store of frames; None if observations are stored as they are.
        window: The n-step window; None if each step is a row.
    """

    def __init__(
        self,
        fields: Fields,
        capacity: int,
        next_of: str | Sequence[str] | None,
        stack_compress: StackCompress,
        Nstep: Mapping[str, Any] | None,
        has_priorities: bool,
    ) -> None:
        """Create the stages that the arguments of `ReplayBuffer` describe.

        With priorities, the window keeps the mass of each step as well, in a field that isn't in the row.
        """
        observations = expand_groups(field_names(next_of), fields.fields)
        self.fields = self.stored = with_next(fields, observations)
        self.frames: FrameStore | None = None
        self.window: Windows | None = None
        self._rows_at_once = 1 << 48  # no limit
        self._has_priorities = has_priorities
        self._restore: Restore | None = None
        if observations or stack_compress:
            self.frames = FrameStore(self.fields, observations, stack_compress, capacity)
            self.stored, self._restore = self.frames.fields, self.frames.values_of
            self._rows_at_once = self.frames.rows_at_once
        else:
            check_memory(capacity * self.stored.dtype.itemsize)
        if Nstep is not None:
            masses: EnvDict = MASS if has_priorities else {}
            self.window = Windows(self.stored, Nstep, argument_fields=self.fields, extra_fields=masses)
            rows = self.window.env_dict
            self.stored = Fields({name: rows[name] for name in rows if name not in masses})
            # the window and the ring move on together, so no part may be larger than what the ring appends
            self._rows_at_once = min(self._rows_at_once, max(1, BYTES_AT_ONCE // self.stored.dtype.itemsize))

    @property
    def layout(self) -> dict[str, Any]:
        """What must equal the layout in a loaded file, as JSON."""
        return {
            "frames": self.frames.layout if self.frames else [],
            "Nstep": list(self.window.settings) if self.window else None,
        }

    @property
    def pending(self) -> Rows:
        """A copy of the steps that are not in a complete row yet, oldest first."""
        return self.window.pending() if self.window else np.zeros(0, self.stored.dtype)

    @property
    def memory(self) -> list[Bytes]:
        """The memory of the frames."""
        return self.frames.memory if self.frames else []

    @property
    def pending_masses(self) -> Floats:
        """The masses of the pending steps in a prioritized buffer."""
        return self.pending["priorities"] if self.window else np.zeros(0)

    def append(
        self,
        ring: Ring,
        count: int,
        columns: Sequence[Any],
        masses: Floats | float | None = None,
        max_priority: float | None = None,
    ) -> int | None:
        """Pass checked steps through the stages to the ring; see `Ring.append`.

        Return the index of the first row, or None if no row has been completed.

        Raises:
            ValueError: If steps aren't consecutive, or a return is too large; nothing is changed.
        """
        if self.window is not None:
            self.window.check_consecutive(count, columns, restore=self._restore)
            if count > self._rows_at_once:  # otherwise, a later part could be refused after the first ones
                self.window.check_returns(count, columns)
        first_index = ring.next_index
        if count <= self._rows_at_once:
            self._append_part(ring, count, columns, masses, max_priority)
        else:
            for part in parts_of(count, columns, masses, self._rows_at_once):
                self._append_part(ring, *part, max_priority)
        next_index = ring.next_index
        if self.frames is not None and first_index < CHECKED_AT <= next_index:
            self.frames.check_sharing(next_index)
        return first_index if first_index < next_index else None

    def _append_part(
        self,
        ring: Ring,
        count: int,
        columns: Sequence[Any],
        masses: Floats | float | None,
        max_priority: float | None,
    ) -> None:
        """Append at most as many rows as may be added before the frames of replaced rows are released."""
        if self.frames is not None:
            columns = self.frames.number(count, columns, lambda: self.rows_kept(ring))
        if self.window is None:
            ring.append(count, columns, masses, max_priority)
        else:
            # the mass is the last field of a pending step
            steps = self.window.steps.to_rows(count, columns if masses is None else [*columns, masses])
            environment = np.zeros(count, np.int64)  # all steps are of environment 0
            batch, state = self.window.push(steps, environment)
            self._append_completed(ring, batch, max_priority, (False, self.window.state, state))

    def end_episode(self, ring: Ring) -> None:
        """Append the pending steps, as rows of fewer than n rewards, and end the episode."""
        if self.window is None:
            ring.end_episode()
            return
        try:
            batch, state = self.window.flush()
        except ValueError:
            ring.end_episode()
            raise
        self._append_completed(ring, batch, None, (True, self.window.state, state))

    def _append_completed(
        self, ring: Ring, batch: Batch | None, max_priority: float | None, change: Change
    ) -> None:
        """Append rows that the window has completed; it moves on together with the ring."""
        if batch is None:
            ring.append(0, [], None, max_priority, change)
            return
        count = len(batch["discount"])
        place = 0 if count == 1 else slice(None)
        columns = [batch[name][place] for name in self.stored.fields]
        masses = batch["priorities"][place] if self._has_priorities else None
        ring.append(count, columns, masses, max_priority, change)

    def restore(self, batch: Batch) -> Batch:
        """Replace frame numbers in a batch with observations."""
        return batch if self.frames is None else self.frames.restore(batch)

    def rows_kept(self, ring: Ring) -> Iterator[Rows]:
        """Yield copies of all rows, oldest first: the ring in non-empty chunks, then the pending steps."""
        end = ring.next_index
        for first in range(ring.oldest_index, end, 1024):
            yield ring.take(ring.slot_numbers(first, min(first + 1024, end)))
        if len(pending := self.pending):
            yield pending

    def cleared(self) -> Self:
        """Return stages without pending steps; the frames are freed when they are overwritten."""
        stages = copy.copy(self)
        stages.window = self.window and self.window.cleared()
        return stages

    def state(self, ring: Ring) -> tuple[dict[str, Any], archive.Arrays]:
        """Return counters, as JSON, and arrays to be saved."""
        counters: dict[str, Any] = {"waiting": len(self.pending), "frames": []}
        arrays: archive.Arrays = {"waiting": [as_bytes(self.pending)]} if self.window else {}
        if self.frames is not None:
            counters["frames"], frames = self.frames.state(lambda: self.rows_kept(ring))
            arrays |= frames
        return counters, arrays

    def from_state(self, counters: dict[str, Any], reader: archive.Reader, ring: Ring) -> Self:
        """Return new stages with the saved state, without changing these; `ring` has been loaded."""
        stages = copy.copy(self)
        if self.window is not None:
            stages.window = self.window.cleared()
            count = archive.checked_count(counters, "waiting", most=self.window.settings.size - 1)
            pending = np.zeros(count, self.window.steps.dtype)
            reader.read_into("waiting", [as_bytes(pending)])
            stages.window.restore(pending)
        if self.frames is not None:
            rows = [part.view(ring.dtype).reshape(-1) for part in ring.segments()]
            stages.frames = self.frames.from_state(counters, reader, [*rows, stages.pending])
            stages._restore = stages.frames.values_of
        return stages
