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
from replay_tutorial.buffers.n_step.autoreset import EITHER, TRANSITION, ResetWatch, resets_at_next_step
from replay_tutorial.buffers.n_step.settings import NStep, optional_settings
from replay_tutorial.buffers.n_step.windows import Restore, Windows, joined
from replay_tutorial.buffers.ring import BYTES_AT_ONCE, Change, Ring, parts_of
from replay_tutorial.buffers.rows import MAX_COUNT, check_memory
from replay_tutorial.buffers.runtime.jit import Bytes, Floats, Integers

# The mass of a pending step. In a prioritized buffer, users can't declare a field of this name.
MASS: FieldSpecs = {"priorities": {"dtype": np.float64}}


class Stages:
    """The stages of one buffer.

    Attributes:
        fields: The fields that `add` expects, including those that `dedupe_next` adds.
        stored: The fields of the rows in the ring.
        frames: The store of frames; None if observations are stored as they are.
        window: The n-step windows of the environments; None if each step is a row.
        is_by_step: Whether each `add` has one step of every environment, some of which may only reset one.
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
        self._has_priorities = has_priorities
        self._restore: Restore | None = None
        if observations or dedupe_frames:
            self.frames = FrameStore(self.fields, observations, dedupe_frames, capacity)
            self.stored, self._restore = self.frames.fields, self.frames.values_of
            self._rows_at_once = self.frames.rows_at_once
        else:
            check_memory(capacity * self.stored.dtype.itemsize)
        settings = optional_settings(n_step, gamma)
        self._n_step = settings is not None
        next_step = resets_at_next_step(autoreset)
        self.is_by_step = num_envs > 1 or next_step
        self._watch: ResetWatch | None = None
        if settings is not None or self.is_by_step:
            masses: FieldSpecs = MASS if has_priorities else {}
            self.window = Windows(self.stored, settings, num_envs, self.fields, masses, next_step)
            if self.frames is not None and num_envs > 1:
                self.frames.expect_late_rows(self.window.settings.n * num_envs)
            if self.is_by_step and self.window.shows_resets:
                self._watch = ResetWatch.for_mode(autoreset, num_envs)
            rows = self.window.row_specs
            self.stored = Fields({name: rows[name] for name in rows if name not in masses})
            # the window and the ring move on together, so no part may be larger than what the ring appends
            self._rows_at_once = min(self._rows_at_once, max(1, BYTES_AT_ONCE // self.stored.dtype.itemsize))

    @property
    def layout(self) -> dict[str, Any]:
        """What must equal the layout in a loaded file, as JSON."""
        layout: dict[str, Any] = {"frames": self.frames.layout if self.frames else [], "n_step": None}
        if self.window is not None:
            if self._n_step:
                layout["n_step"] = list(self.window.settings)
            if self.is_by_step:
                layout |= {"num_envs": self.window.environments, "next_step": self.window.next_step}
        return layout

    @property
    def pending(self) -> Rows:
        """A copy of the steps that the window needs, oldest first for each environment.

        They are not in a complete row yet, or the last ones of environments that have yet to be reset.
        """
        if self.window is None:
            return np.zeros(0, self.stored.dtype)
        steps = [as_bytes(self.window.saved(environment)) for environment in range(self.window.environments)]
        return as_records(np.concatenate(steps), self.window.steps.dtype)

    @property
    def pending_count(self) -> int:
        """The number of steps that are not in a complete row yet."""
        return int(self.window.counts.sum()) if self.window else 0

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
        return self._first_appended(ring, first_index)

    def append_step(
        self,
        ring: Ring,
        count: int,
        columns: Sequence[Any],
        masses: Floats | float | None = None,
        max_priority: float | None = None,
        priorities: Floats | None = None,
    ) -> int | None:
        """Pass a checked step of every environment through the stages to the ring; see `append`.

        `priorities` are those of the steps; None if they have none.
        """
        window: Any = self.window
        if count != window.environments:
            raise ValueError(
                f"With num_envs={window.environments}, add expects one step of every environment: arrays of "
                f"length {window.environments}, not {count}."
            )
        first_index = ring.next_index
        if self.frames is not None:
            columns = self.frames.number(count, columns, lambda: self.rows_kept(ring))
        rows = window.steps.to_rows(count, columns if masses is None else [*columns, masses])
        environments: Integers = np.arange(count)
        resets = None
        if window.next_step:
            rows, environments, resets = window.without_resets(rows, environments, self._restore)
            if len(rows) < count:  # the priorities of the others don't count
                if not len(rows):
                    max_priority = None
                elif priorities is not None:
                    max_priority = float(priorities[environments].max())
        window.check_consecutive_step(rows, environments, self._restore)
        batch, state = window.push(rows, environments, resets)
        watch = window.watch_resets(self._watch, rows, environments, self._restore)
        self._append_completed(ring, batch, max_priority, (False, window.state, state))
        self._watch = watch
        return self._first_appended(ring, first_index)

    def _first_appended(self, ring: Ring, first_index: int) -> int | None:
        """Return `first_index` if rows have been appended since it was the next one, otherwise None."""
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

    def end_episode(self, ring: Ring, environment: int | None = None) -> None:
        """Append the pending steps, as rows of fewer than n rewards, and end the episode.

        None ends the episodes of all environments. If a return of one overflows, the others are still ended.
        """
        if self.window is None:
            ring.end_episode()
            return
        before = state = self.window.state
        batches, errors = list[Batch | None](), list[ValueError]()
        for each in range(self.window.environments) if environment is None else (environment,):
            if self._watch is not None:
                self._watch.episode_ended(each)
            batch, state, error = self.window.flush(each, state)
            batches.append(batch)
            errors += [error] if error is not None else []
        self._append_completed(ring, joined(batches), None, (environment is None, before, state))
        if errors:
            raise errors[0]

    def _append_completed(
        self, ring: Ring, batch: Batch | None, max_priority: float | None, change: Change
    ) -> None:
        """Append rows that the window has completed; it moves on together with the ring."""
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
        if self.window and self.is_by_step:
            arrays["windows"] = [np.stack([self.window.counts, self.window.resets])]
        if self.frames is not None:
            counters["frames"], frames = self.frames.state(lambda: self.rows_kept(ring))
            arrays |= frames
        return counters, arrays

    def from_state(self, counters: dict[str, Any], reader: archive.Reader, ring: Ring) -> Self:
        """Return new stages with the saved state, without changing these; `ring` has been loaded."""
        stages = copy.copy(self)
        if self.window is not None:
            stages.window = self.window.new()
            environments, most = self.window.environments, self.window.settings.n - 1
            if self.is_by_step:
                saved = np.zeros((2, environments), np.int64)
                reader.read_into("windows", [saved])
                steps, resets = np.where(saved[1] == TRANSITION, saved[0], 1), saved[1]
                last = EITHER if self.window.next_step else TRANSITION
                wrong = (resets < TRANSITION) | (resets > last) | (saved[0] < 0) | (saved[0] > most)
                if (wrong | ((resets != TRANSITION) & (saved[0] != 0))).any():
                    raise archive.Damaged("the numbers of pending steps are impossible")
                counts = steps.tolist()
            else:
                counts, resets = [archive.checked_count(counters, "waiting", most=most)], [TRANSITION]
            pending = np.zeros(sum(counts), self.window.steps.dtype)
            reader.read_into("waiting", [as_bytes(pending)])
            first = 0
            for environment, (count, reset) in enumerate(zip(counts, resets, strict=True)):
                stages.window.restore(pending[first : first + count], environment, int(reset))
                first += count
        if self.frames is not None:
            rows = [as_records(part, ring.dtype) for part in ring.segments()]
            stages.frames = self.frames.from_state(counters, reader, [*rows, stages.pending])
            stages._restore = stages.frames.values_of
        return stages
