"""The uniform replay buffer: every stored transition is equally likely to be drawn.

    add:     fields ──▶ (frames) ──▶ (n-step window) ──▶ ring
    sample:  ring ──▶ (frames) ──▶ batch

`fields` checks the values; observations may be replaced by the numbers of their frames (`frames`), and steps
be summed to n-step rows (`n_step`); the `ring` keeps the rows. A sample draws slots, and takes the way back.

Left out: priorities (`prioritized`), and other processes (`shared`).

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
from replay_tutorial.buffers.base import BaseBuffer, CpprbKwargs, check_keywords
from replay_tutorial.buffers.fields import Batch, EnvDict, Fields, FiniteFields, Rows, as_bytes, field_names
from replay_tutorial.buffers.frame_layout import with_next
from replay_tutorial.buffers.frames import FrameStore
from replay_tutorial.buffers.gather import ArraySpec, Gather, Out, array_specs, check_out
from replay_tutorial.buffers.jit import Floats, Integers
from replay_tutorial.buffers.n_step_windows import Windows
from replay_tutorial.buffers.ring import Assignment, Ring
from replay_tutorial.buffers.rows import check_batch_size, checked_size


class ReplayBuffer(BaseBuffer):
    """The newest transitions of one process, drawn uniformly; its threads need a lock around the calls.

    The first lap of large rows is slower than the following; `touch_pages` takes that time beforehand.

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
    _beside: EnvDict = MappingProxyType({})  # waits in the window beside a step, and is no part of its row

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
        **cpprb_kwargs: Unpack[CpprbKwargs],
    ) -> None:
        """Reserve memory for `size` transitions; pages are handed out when they are first written.

        Args:
            size: Number of transitions kept; when it is reached, the oldest make room.
            env_dict: For each field a dict with `shape` (an int or a tuple; 1 if left out, which samples as
                `(batch, 1)`; `()` samples as `(batch,)`) and `dtype`. It is not changed.
            next_of: The observation, or several, whose next one is to be stored only once; `add` and `sample`
                then have a field `next_…` for each.
            stack_compress: The observation, or several, whose stacked frames are to be stored only once. The
                stack lies along the shorter of the first and the last axis; `{"obs": 0}` names another.
            default_dtype: The dtype of fields that name none.
            Nstep: `{"size": n, "rew": "rew", "gamma": 0.99, "next": "next_obs"}` stores n-step transitions,
                each with a field `discount`, so that the target is `rew + discount * Q(next_obs)`. What is
                named by "next" is that of the last step, and so are `terminated`, `truncated` and `done`.
                One of `terminated` and `done` must be there.
                There is one window, for one environment; an actor with several has an `NStep` instead.
            seed: Seeds the drawing; None takes fresh randomness from the operating system.
            check_finite: Whether `add` refuses NaN and infinity, which float fields can hold.
            **cpprb_kwargs: `backend`, `check_for_update` and `ctx`, as cpprb takes them; of no effect here.

        Raises:
            TypeError: If an argument is of the wrong kind.
            ValueError: If a value is out of range or names a field that does not exist.
        """
        check_keywords(type(self).__name__, cpprb_kwargs)
        capacity, next_of = checked_size(size), field_names(next_of)
        stored = self._fields = with_next(Fields(env_dict, default_dtype), next_of)
        if check_finite:
            stored = self._fields = FiniteFields(stored.env_dict)
        if next_of or stack_compress:
            self._frames = FrameStore(stored, next_of, stack_compress, capacity)
            stored = self._frames.fields
        if Nstep is not None and Nstep is not False:  # programs for cpprb say either
            self._window = Windows(stored, Nstep, given=self._fields, beside=self._beside)
            rows = self._window.env_dict
            stored = Fields({name: rows[name] for name in rows if name not in self._beside})
        self._stored_fields = stored
        self._ring = Ring(capacity, stored.dtype)
        self._gather = Gather(stored)
        # What a sample consists of: the observations in full, and the discount.
        self._sampled: dict[str, ArraySpec] = array_specs(
            Fields({**stored.env_dict, **self._fields.env_dict})
        )
        self._rng = np.random.default_rng(seed)
        self._episode_start = [0]  # of the steps that were added, the first of this episode
        self._layout = {
            "kind": type(self).__name__,
            "size": capacity,
            "fields": {f.name: [list(f.shape), f.dtype.str] for f in self._fields.fields.values()},
            "frames": self._frames.layout if self._frames else [],
            "Nstep": list(self._window.settings) if self._window else None,
            "check_finite": bool(check_finite),
        }

    def add(self, /, **fields: Any) -> int | None:
        """Add one transition, or a batch of consecutive ones along axis 0.

        A batch may be longer than the buffer: the last rows stay. O(batch).

        Args:
            **fields: A value for each field; nested dicts and tuples are joined by "/".

        Returns:
            The index of the first row that this call stored: its serial number, counted from 0 and never used
            again; its place in an array of the buffer's size is `index % size`. None if it stored none,
            because the n-step window is still filling.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape or a length does not fit, a value is lost in the field's dtype (NaN and
                infinity are not, in floats: see `check_finite`), or a step for the n-step window has an
                `obs` that is not the `next_obs` of the step before it. Nothing has changed then.
        """
        count, columns = self._checked(fields)
        return self._store(count, columns)

    def on_episode_end(self) -> None:
        """End the episode: n-step rows that still wait are stored with the rewards that were there.

        Call it whenever an episode ends, also by truncation; twice in a row is harmless.
        """
        steps = self._steps_added()
        if self._window is None:
            self._episode_start[0] = steps
        else:
            self._append_rows(*self._window.flush(), [(self._episode_start, 0, steps)])

    def sample(self, batch_size: int, *, out: Out | None = None, threads: int = 1) -> Batch:
        """Draw transitions uniformly, with replacement.

        O(batch_size); allocates the batch.

        Args:
            batch_size: Number of transitions.
            out: Arrays to copy fields into, by name; they are in the batch then, in the place of new ones.
                C-contiguous, of the field's dtype and shape (batch_size, *shape).
            threads: How many copy the rows; the batch is the same.

        Returns:
            For each field an array of shape (batch_size, *shape). The batch belongs to the caller: it may be
            written to, no later call changes it, and `torch.from_numpy` takes it without a copy. A field of
            4 KiB or more is contiguous; the others of a row lie side by side in memory, so that their arrays
            are strided, and do not hold the large ones.

        Raises:
            KeyError: If `out` names no field.
            TypeError: If batch_size is not an integer.
            ValueError: If it is below 1, the buffer is empty, or an array does not fit.
        """
        self._check_sample(batch_size, out, threads)
        return self._take(self._ring.draw(batch_size, self._rng), out, threads)

    def get_all_transitions(self, shuffle: bool = False) -> Batch:
        """Copy everything that is stored.

        Args:
            shuffle: In random order; else the oldest first.

        Returns:
            For each field an array of shape (stored, *shape).
        """
        slots = self._ring.slots_in_order()
        return self._take(self._rng.permutation(slots) if shuffle else slots)

    def clear(self) -> None:
        """Forget every transition and priority, also in the n-step window. Indexes go on counting."""
        self.__dict__.update(self._emptied())  # at once: an interrupt comes before it, or after

    def touch_pages(self) -> None:
        """Have the system hand out all memory now, and not page by page in the first lap of rows."""
        for memory in (self._ring.bytes, *(self._frames.memory if self._frames else [])):
            memory.reshape(-1)[:: mmap.PAGESIZE] |= 0

    def is_Nstep(self) -> bool:
        """Return whether n-step transitions are stored."""
        return self._window is not None

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        return self._ring.nbytes + (self._frames.nbytes if self._frames else 0)

    def _checked(self, values: Mapping[str, Any]) -> tuple[int, list[Any]]:
        """Check the arguments of `add`: return how many transitions, and the columns."""
        count, columns = self._fields.to_columns(values)
        if self._window is not None:
            self._window.refuse_mixed(
                count, columns, restore=self._frames.values_of if self._frames else None
            )
        return count, columns

    def _store(
        self,
        count: int,
        columns: list[Any],
        masses: Floats | float | None = None,
        also: Sequence[Assignment] = (),
    ) -> int | None:
        """Take checked transitions, with their masses if they have any, through frames and window."""
        if self._frames is None and self._window is None:
            return self._append(count, columns, masses, also)
        first_index = self._ring.next_index
        if self._frames is None:
            self._store_columns(count, columns, masses, also)
        else:
            for first in range(0, count, self._frames.rows_at_once):
                some = min(count - first, self._frames.rows_at_once)
                rows = first if some == 1 else slice(first, first + some)
                part = columns if some == count else [column[rows] for column in columns]
                numbered = self._frames.number(some, part, self._rows_kept)
                part_masses = masses[rows] if isinstance(masses, np.ndarray) else masses
                self._store_columns(some, numbered, part_masses, also)
        return first_index if first_index < self._ring.next_index else None

    def _store_columns(
        self, count: int, columns: list[Any], masses: Floats | float | None, also: Sequence[Assignment]
    ) -> None:
        if self._window is None:
            self._append(count, columns, masses, also)
        else:
            steps = self._window.steps.to_rows(count, columns if masses is None else [*columns, masses])
            self._append_rows(*self._window.push(steps, np.zeros(count, np.int64)), also)

    def _append_rows(self, batch: Batch | None, taken: Assignment, also: Sequence[Assignment]) -> None:
        """Append what comes out of the window, together with what changes in it."""
        columns, masses, count = list[Any](), 0.0, 0
        if batch is not None:
            count = len(batch["discount"])
            place = 0 if count == 1 else slice(None)
            columns = [batch[name][place] for name in self._stored_fields.fields]
            masses = batch["priorities"][place] if self._beside else 0.0
        self._append(count, columns, masses, [*also, taken])

    def _append(
        self, count: int, columns: list[Any], masses: Floats | float | None, also: Sequence[Assignment]
    ) -> int:
        """Append rows to the ring, together with what else changes; `PrioritizedReplayBuffer` adds masses."""
        return self._ring.append(count, columns, also)

    def _steps_added(self) -> int:
        """Count the steps that were added, those that wait among them."""
        return self._ring.next_index + (self._window.count() if self._window else 0)

    def get_current_episode_len(self) -> int:
        """Count the transitions that were added since the last `on_episode_end` or `clear`."""
        return self._steps_added() - self._episode_start[0]

    def _emptied(self) -> dict[str, Any]:
        """Make the attributes that differ in a buffer without transitions; these stay as they are."""
        window, start = self._window and self._window.emptied(), [self._ring.next_index]
        return {"_ring": self._ring.emptied(), "_window": window, "_episode_start": start}

    def _rows_kept(self) -> Iterator[Rows]:
        """Copy the rows in the ring and then in the window, the oldest first, some at a time, never none."""
        end = self._ring.next_index
        for first in range(self._ring.oldest_index, end, 1024):
            yield self._ring.take(self._ring.slot_numbers(first, min(first + 1024, end)))
        if self._window is not None and len(waiting := self._window.waiting()):
            yield waiting

    def _take(self, slots: Integers, out: Out | None = None, threads: int = 1) -> Batch:
        out = {} if out is None else out
        if self._frames is None:
            return self._gather.take(self._ring.bytes, slots, out, threads)
        stored = {name: array for name, array in out.items() if name not in self._frames.compressed}
        batch = self._gather.take(self._ring.bytes, slots, stored, threads)
        return self._frames.restore(batch, out, threads)

    def _check_sample(self, batch_size: int, out: Out | None, threads: int) -> None:
        check_batch_size(batch_size, threads)
        if out is not None:
            check_out(out, batch_size, self._sampled)
        if self._ring.stored == 0:
            raise ValueError(
                f"sample({batch_size}) needs at least 1 transition; the buffer is empty. Add some first."
            )

    def _state(self) -> tuple[dict[str, Any], archive.Arrays]:
        counters: dict[str, Any] = {
            "next_index": self._ring.next_index,
            "stored": self._ring.stored,
            "waiting": len(self._window.waiting()) if self._window else 0,
            "episode_len": self.get_current_episode_len(),
            "frames": [],
            "random_state": self._rng.bit_generator.state,
        }
        arrays: archive.Arrays = {"rows": self._ring.segments()}
        if self._window is not None:
            arrays["waiting"] = [as_bytes(self._window.waiting())]
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
            loaded._window = self._window.emptied()
            most = self._window.settings.size - 1
            count = archive.checked_count(counters, "waiting", most=most)
            waiting = np.zeros(count, self._window.steps.dtype)
            reader.read_into("waiting", [as_bytes(waiting)])
            loaded._window.put_back(waiting)
        if self._frames is not None:
            rows = [part.view(self._stored_fields.dtype) for part in loaded._ring.segments()]
            if loaded._window is not None:
                rows.append(loaded._window.waiting())
            loaded._frames = self._frames.from_state(counters, reader, rows)
        episode_len = archive.checked_count(counters, "episode_len")
        loaded._episode_start = [loaded._steps_added() - episode_len]
        return loaded
