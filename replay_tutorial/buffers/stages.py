"""The stages that a row passes before the ring: frames, and an n-step window.

    add:     fields ──▶ (frames) ──▶ (n-step window) ──▶ ring
    sample:  ring ──▶ (frames) ──▶ batch

Both are optional. `frames` replaces observations with frame numbers; `n_step` combines steps into rows, and
keeps those that aren't complete. A buffer without these options never loads this module.
"""

import copy
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Self

import numpy as np

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.fields import (
    Fields,
    FieldSpecs,
    Rows,
    as_bytes,
    as_records,
    expand_groups,
    field_names,
)
from replay_tutorial.buffers.images.frame_layout import CHECKED_AT, DedupeFrames, with_next
from replay_tutorial.buffers.images.frames import FrameStore
from replay_tutorial.buffers.n_step.autoreset import EITHER, TRANSITION, resets_at_next_step
from replay_tutorial.buffers.n_step.settings import NStep, optional_settings
from replay_tutorial.buffers.n_step.windows import Restore, Windows, joined
from replay_tutorial.buffers.ring import BYTES_AT_ONCE, Ring, parts_of
from replay_tutorial.buffers.rows import MAX_COUNT, check_memory
from replay_tutorial.buffers.runtime.jit import Bytes, Floats, Matrix

# The mass of a pending step. In a prioritized buffer, users can't declare a field of this name.
MASS: FieldSpecs = {"priorities": {"dtype": np.float64}}


class Stages:
    """The stages of one buffer.

    Attributes:
        fields: The fields that `add` expects, including those that `dedupe_next` adds.
        stored: The fields of the rows in the ring.
        frames: The store of frames; None if observations are stored as they are.
        window: The n-step windows of the environments; None if each step is a row.
    """

    def __init__(
        self,
        fields: Fields,
        capacity: int,
        dedupe_next: str | Sequence[str] | None,
        dedupe_frames: DedupeFrames,
        n_step: int | NStep | None,
        gamma: float | str | None,
        num_envs: int,
        autoreset: str | Enum | None,
        has_priorities: bool,
    ) -> None:
        """Create the stages that the arguments of `ReplayBuffer` describe.

        With priorities, the window keeps the mass of each step as well, in a field that isn't in the row.
        """
        observations = expand_groups(field_names(dedupe_next), fields.fields)
        self.fields = self.stored = with_next(fields, observations)
        self.frames: FrameStore | None = None
        self.window: Windows | None = None
        self._rows_at_once = MAX_COUNT
        self._has_priorities, self._num_envs = has_priorities, num_envs
        self._restore: Restore | None = None
        if observations or dedupe_frames:
            self.frames = FrameStore(self.fields, observations, dedupe_frames, capacity)
            self.stored, self._restore = self.frames.fields, self.frames.values_of
            self._rows_at_once = self.frames.rows_at_once
        else:
            check_memory(capacity * self.stored.dtype.itemsize)
        settings = optional_settings(n_step, gamma)
        self._n_step = settings is not None
        self._is_by_step = num_envs > 1 or resets_at_next_step(autoreset)
        if settings is not None or self._is_by_step:
            masses: FieldSpecs = MASS if has_priorities else {}
            self.window = Windows(self.stored, settings, num_envs, autoreset, self.fields, masses)
            if self.frames is not None and num_envs > 1:
                self.frames.expect_late_rows(self.window.settings.n * num_envs)
            rows = self.window.row_specs
            self.stored = Fields({name: rows[name] for name in rows if name not in masses})
            # the window and the ring move on together, so no part may be larger than what the ring appends
            self._rows_at_once = min(self._rows_at_once, max(1, BYTES_AT_ONCE // self.stored.dtype.itemsize))
            if self._is_by_step:
                self._rows_at_once = MAX_COUNT
            else:
                self.window.watch = None

    @property
    def layout(self) -> dict[str, Any]:
        """What must equal the layout in a loaded file, as JSON."""
        layout: dict[str, Any] = {"frames": self.frames.layout if self.frames else [], "n_step": None}
        if self.window is not None:
            if self._n_step:
                layout["n_step"] = list(self.window.settings)
            if self._is_by_step:
                layout |= {"num_envs": self._num_envs, "next_step": self.window.next_step}
        return layout

    @property
    def pending(self) -> Rows:
        """A copy of the steps that the window needs, oldest first for each environment.

        They are not in a complete row yet, or the last ones of environments that have yet to be reset.
        """
        if self.window is None:
            return np.zeros(0, self.stored.dtype)
        steps = [as_bytes(self.window.saved(environment)) for environment in range(self._num_envs)]
        return as_records(np.concatenate(steps), self.window.steps.dtype)

    @property
    def pending_count(self) -> int:
        """The number of steps that are not in a complete row yet."""
        return int(self.window.state[1].sum()) if self.window else 0

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
        ring: Any,
        count: int,
        columns: Sequence[Any],
        masses: Floats | float | None = None,
        max_priority: float | None = None,
        priorities: Any = None,
    ) -> int | None:
        """Pass checked steps through the stages to the ring; see `Ring.append`.

        Their environments are those of `num_envs`, or the only one. `priorities` are those that were passed
        for them. Return the index of the first row, or None if no row has been completed.

        Raises:
            ValueError: If steps aren't consecutive, or a return is too large; nothing is changed.
        """
        if self._is_by_step and count != self._num_envs:
            raise ValueError(
                f"With num_envs={self._num_envs}, add expects one step of every environment: arrays of "
                f"length {self._num_envs}, not {count}."
            )
        first_index, is_large = ring.next_index, count > self._rows_at_once
        # before a frame is stored, and the first part of a large batch
        if self.window is not None and (is_large or (self.frames is not None and not self._is_by_step)):
            self.window.check_columns(count, columns, self._restore)
        if not is_large:
            self._append_part(ring, count, columns, masses, max_priority, priorities)
        else:
            if self.window is not None:
                self.window.check_returns(count, columns)
            for part in parts_of(count, columns, masses, self._rows_at_once):
                self._append_part(ring, *part, max_priority)
        next_index = ring.next_index
        if self.frames is not None and first_index < CHECKED_AT <= next_index:
            self.frames.check_sharing(next_index)
        return first_index if first_index < next_index else None

    def _append_part(
        self,
        ring: Any,
        count: int,
        columns: Sequence[Any],
        masses: Floats | float | None,
        max_priority: float | None,
        priorities: Any = None,
    ) -> None:
        """Append at most as many rows as may be added before the frames of replaced rows are released."""
        if self.frames is not None:
            columns = self.frames.number(count, columns, lambda: self.rows_kept(ring))
        if self.window is None:
            ring.append(count, columns, masses, max_priority)
            return
        # the mass is the last field of a pending step
        steps = self.window.steps.to_rows(count, columns if masses is None else [*columns, masses])
        environments = np.arange(count) if self._is_by_step else np.zeros(count, np.int64)
        is_checked = self.frames is not None and not self._is_by_step
        completed, state, watch, kept = self.window.step(steps, environments, self._restore, is_checked)
        if len(kept) < count and max_priority is not None:  # the priorities of the others don't count
            used = None if priorities is None else ring.rules.as_floats(priorities, count)[kept]
            max_priority = None if not len(kept) else max_priority if used is None else float(used.max())
        self._append_completed(ring, completed, max_priority, state)
        self.window.watch = watch

    def end_episode(self, ring: Ring, environment: int | None = None) -> None:
        """Append the pending steps, as rows of fewer than n rewards, and end the episode.

        None ends the episodes of all environments. If a return of one overflows, the others are still ended.
        """
        if self.window is None:
            return
        state, batches, errors = self.window.state, list[Batch | None](), list[ValueError]()
        for each in range(self._num_envs) if environment is None else (environment,):
            if self.window.watch is not None:
                self.window.watch.episode_ended(each)
            batch, state, error = self.window.flush(each, state)
            batches.append(batch)
            errors += [error] if error is not None else []
        self._append_completed(ring, joined(batches), None, state)
        if errors:
            raise errors[0]

    def _append_completed(
        self, ring: Ring, batch: Batch | None, max_priority: float | None, state: Matrix
    ) -> None:
        """Append rows that the window has completed; it moves on together with the ring."""
        window: Any = self.window
        change = window.state, state
        if batch is None:
            ring.append(0, [0] * len(self.stored.fields), 0.0, max_priority, change)
            return
        count = len(next(iter(batch.values())))
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
        """Return stages without pending steps; the frames are freed when they are overwritten.

        An environment that has yet to be reset still has.
        """
        stages = copy.copy(self)
        stages.window = self.window and self.window.cleared()
        return stages

    def state(self, ring: Ring) -> tuple[dict[str, Any], archive.Arrays]:
        """Return counters, as JSON, and arrays to be saved."""
        counters: dict[str, Any] = {"waiting": len(self.pending), "frames": []}
        arrays: archive.Arrays = {"waiting": [as_bytes(self.pending)]} if self.window else {}
        if self.window and self._is_by_step:
            arrays["windows"] = [self.window.state[1:]]
        if self.frames is not None:
            counters["frames"], frames = self.frames.state(lambda: self.rows_kept(ring))
            arrays |= frames
        return counters, arrays

    def from_state(self, counters: dict[str, Any], reader: archive.Reader, ring: Ring) -> Self:
        """Return new stages with the saved state, without changing these; `ring` has been loaded."""
        stages = copy.copy(self)
        if self.window is not None:
            stages.window = self.window.new()
            counts, resets = np.zeros((2, self._num_envs), np.int64)
            most = self.window.settings.n - 1
            if self._is_by_step:
                reader.read_into("windows", [saved := np.zeros((2, self._num_envs), np.int64)])
                counts, resets = saved
                last = EITHER if self.window.next_step else TRANSITION
                wrong = (resets < TRANSITION) | (resets > last) | (counts < 0) | (counts > most)
                if (wrong | ((resets != TRANSITION) & (counts != 0))).any():
                    raise archive.Damaged("the numbers of pending steps are impossible")
            else:
                counts[0] = archive.checked_count(counters, "waiting", most=most)
            ends = np.cumsum(np.where(resets == TRANSITION, counts, 1))
            pending = np.zeros(ends[-1], self.window.steps.dtype)
            reader.read_into("waiting", [as_bytes(pending)])
            for environment, steps in enumerate(np.split(pending, ends[:-1])):
                stages.window.restore(steps, environment, int(resets[environment]))
        if self.frames is not None:
            rows = [as_records(part, ring.dtype) for part in ring.segments()]
            stages.frames = self.frames.from_state(counters, reader, [*rows, stages.pending])
            stages._restore = stages.frames.values_of
        return stages
