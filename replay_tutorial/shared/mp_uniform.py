"""The uniform replay buffer that several processes share: any number of writers, one sampler.

The calls are those of `buffers.uniform.ReplayBuffer`; the rows lie in a shared ring (`shared_ring`), which
needs no lock: nobody waits, and a process that is killed costs at most the rows that it was adding, and the
old row in the one slot that it was writing.

Left out: what belongs to one stream of steps: n-step windows. They are the actor's: see `NStep`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.base import CpprbKwargs, check_keywords
from replay_tutorial.buffers.cast import round_floats
from replay_tutorial.buffers.fields import Batch, EnvDict, Fields, Rows, field_names
from replay_tutorial.buffers.frame_layout import frame_layouts, with_next
from replay_tutorial.buffers.gather import Out, check_out
from replay_tutorial.buffers.interrupts import run_in_thread
from replay_tutorial.buffers.jit import Floats, Integers, compile_now
from replay_tutorial.buffers.priorities import NO_PRIORITY
from replay_tutorial.buffers.rows import check_batch_size, checked_size
from replay_tutorial.shared import snapshot
from replay_tutorial.shared.handle import Handle, describe, make_block
from replay_tutorial.shared.limiter import wait_until
from replay_tutorial.shared.protocol import append_rows, look, read_slots, reserve, swap
from replay_tutorial.shared.shared_frames import number_in_ring, read_frames, unmoved_if_refused
from replay_tutorial.shared.shared_ring import Statistics


class MPReplayBuffer(Handle):
    """The newest transitions of many processes, drawn uniformly by one of them.

    Pass it to processes as an argument, under fork, spawn or forkserver. Any process may add; the first that
    samples is the sampler from then on, for as long as it lives. The first lap of large rows is slower than
    the following; there is no `touch_pages` as in `ReplayBuffer`, because others may be writing already.

    Example:
        >>> buffer = MPReplayBuffer(1000, {"obs": {"shape": 4}, "rew": {"shape": ()}}, seed=0)
        >>> buffer.add(obs=np.zeros((10, 4)), rew=np.ones(10))
        0
        >>> buffer.sample(32)["rew"].shape, buffer.get_stored_size()
        ((32,), 10)
    """

    # What a prioritized buffer has beside the rest: alpha and eps in its description, and names of its own.
    _exponents: Mapping[str, float] = MappingProxyType({})
    _taken: frozenset[str] = frozenset()
    _kernels: ClassVar[tuple[Any, ...]] = (append_rows, look, read_slots, reserve, round_floats, swap)

    def __init__(
        self,
        size: int,
        env_dict: EnvDict,
        *,
        next_of: str | Sequence[str] | None = None,
        stack_compress: str | Sequence[str] | Mapping[str, int] | None = None,
        frames_per_transition: float = 1.25,
        default_dtype: npt.DTypeLike = np.float32,
        Nstep: Any = None,
        seed: int | np.random.SeedSequence | None = None,
        check_finite: bool = False,
        path: str | PathLike[str] | None = None,
        **cpprb_kwargs: Unpack[CpprbKwargs],
    ) -> None:
        """Reserve shared memory for `size` transitions; pages are handed out when they are first written.

        Args:
            size: Number of transitions kept; when it is reached, the oldest make room.
            env_dict: As for `ReplayBuffer`.
            next_of: As for `ReplayBuffer`. A frame is stored once for all rows of one process that show it,
                if they follow each other closely, as an actor's do; several environments may take turns.
            stack_compress: As for `ReplayBuffer`.
            frames_per_transition: Frames that there is room for, for each transition, if next_of or
                stack_compress says that observations are kept as frames; at least 1. An actor's episodes of L
                steps need 1 + 4/(3 L), or 1 + 16/(3 L) if the first frame doesn't fill its stack. A
                transition whose frames have been replaced before it counts as replaced.
            default_dtype: The dtype of fields that name none.
            Nstep: Not here; each actor folds its own steps with `NStep`.
            seed: Seeds the drawing; None takes fresh randomness from the operating system.
            check_finite: As for `ReplayBuffer`, in every process that adds.
            path: A file on disk to keep everything in, so that it outlives the processes; a file that exists
                is opened with every row that was published in it, and priorities. None for memory.
            **cpprb_kwargs: `backend`, `check_for_update` and `ctx`, as cpprb takes them; of no effect here.

        Raises:
            MemoryError: If there is less room than it may come to need.
            OSError: If the file can't be opened or made.
            TypeError: If an argument is of the wrong kind.
            ValueError: If a value is out of range, or an argument is not supported here.
        """
        check_keywords(type(self).__name__, cpprb_kwargs)
        if Nstep is not None and Nstep is not False:
            raise ValueError(
                f"{type(self).__name__} has no Nstep: it belongs to one stream of steps, and many processes "
                "add here. Do it in the actor: fold its steps with NStep, then add the rows, with next_obs."
            )
        if not 1.0 <= frames_per_transition < math.inf:
            raise ValueError(
                f"frames_per_transition must be finite and at least 1, not {frames_per_transition}."
            )
        capacity = checked_size(size)
        fields = with_next(Fields(env_dict, default_dtype), field_names(next_of))
        if taken := self._taken & fields.fields.keys():
            raise ValueError(f"{sorted(taken)} can't be fields: a prioritized buffer uses the names itself.")
        layouts = frame_layouts(fields, field_names(next_of), stack_compress)
        description = describe(type(self).__name__, capacity, fields, layouts, float(frames_per_transition))
        description["check_finite"] = bool(check_finite)
        generator = np.random.default_rng(seed)  # before anything is made: it may refuse the seed
        # Before there are other processes, each of which would compile them as well.
        compile_now(*self._kernels, *((number_in_ring, read_frames) if layouts else ()))
        self._open(make_block({**description, **self._exponents}, path), generator)

    def add(self, /, **fields: Any) -> int:
        """Add one transition, or a batch along axis 0, from any process.

        Args:
            **fields: A value for each field; nested dicts and tuples are joined by "/".

        Returns:
            The index of the first row: its serial number over all processes, from 0 and never used again.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape or a length does not fit, or a value is lost in the field's dtype or
                refused by `check_finite`. Nothing has changed then.
        """
        count, columns = self._mapped.fields.to_columns(fields)
        return self._append(count, columns, None)

    def _append(self, count: int, columns: list[Any], masses: Any, max_priority: float = NO_PRIORITY) -> int:
        mapped = self._mapped
        if mapped.frames is not None:
            columns = mapped.frames.number(count, columns)
        staged = mapped.ring.stage(count, columns, masses)
        index = mapped.ring.append(staged.words, staged.masses, max_priority)
        mapped.ring.unused.append(staged)
        return index

    @property
    def rows_dropped(self) -> int:
        """Rows that this handle was given and could not write: stopped processes held all slots offered."""
        return self._ring.dropped

    def on_episode_end(self) -> None:
        """End this process's episode: its length starts from 0. No row waits here."""
        own = self._ring.own
        own[1] = own[0]

    def wait_for(self, rows: int, timeout: float | None = None) -> bool:
        """Wait until this many rows are stored, asleep except for one look per millisecond.

        Args:
            rows: How many; at most the buffer's size.
            timeout: Seconds to wait at most; None waits forever.

        Returns:
            Whether they are.

        Raises:
            ValueError: If the buffer can never hold that many, or the timeout is NaN.
        """
        ring = self._ring
        if rows > ring.capacity:
            raise ValueError(f"wait_for({rows}): the buffer holds {ring.capacity} rows at most.")
        return wait_until(lambda: ring.stored >= rows, timeout)

    def statistics(self) -> Statistics:
        """Count what has happened, in all processes together; any of them may ask."""
        statistics, frames = self._ring.statistics(), self._mapped.frames
        return statistics._replace(frames_added=frames.added) if frames else statistics

    def sample(self, batch_size: int, *, out: Out | None = None) -> Batch:
        """Draw transitions uniformly, with replacement.

        Args:
            batch_size: Number of transitions.
            out: Arrays to copy fields into, as for `ReplayBuffer.sample`.

        Returns:
            For each field an array of shape (batch_size, *shape), the caller's own.

        Raises:
            KeyError: If `out` names no field.
            RuntimeError: If another living process is the sampler, or no row has all its frames.
            TypeError: If batch_size is not an integer.
            ValueError: If it is below 1, the buffer is empty, or an array does not fit.
        """
        mapped = self._mapped
        check_batch_size(batch_size)
        given: Out = {} if out is None else check_out(out, batch_size, mapped.specs)
        return mapped.lease.hold(self._draw, batch_size, given)

    def _draw(self, batch_size: int, given: Out) -> Batch:
        mapped = self._mapped
        if mapped.frames is None:
            return mapped.gather.to_batch(mapped.ring.draw(batch_size, self._rng), given)
        with unmoved_if_refused(self._rng):
            rows = mapped.ring.draw(batch_size, self._rng)
            return mapped.frames.restore(rows, self._draw_again, given)

    def _draw_again(self, positions: Integers) -> Rows:
        """Draw as many rows as there are positions, in the place of those that lack a frame."""
        self._ring.reject(len(positions))
        return self._ring.draw(len(positions), self._rng)

    def get_all_transitions(self, shuffle: bool = False) -> Batch:
        """Copy everything that is stored.

        Args:
            shuffle: In random order; else the oldest first.

        Returns:
            For each field an array of shape (stored, *shape).
        """
        mapped = self._mapped
        rows = mapped.ring.all_rows()
        rows = rows[self._rng.permutation(len(rows))] if shuffle else rows
        if mapped.frames is None:
            return mapped.gather.to_batch(rows, {})
        return mapped.frames.restore_those_there(rows)

    def clear(self) -> None:
        """Forget every transition. Indexes go on counting.

        Raises:
            RuntimeError: If another living process is the sampler.
        """
        self._mapped.lease.hold(self._clear)

    def _clear(self) -> None:
        self._ring.clear()

    def load(self, path: str | PathLike[str]) -> None:
        """Fill a new buffer with what `save` wrote; this process becomes the sampler, and draws on.

        Args:
            path: A file written by a buffer that was built with the same arguments (except the seed).

        Raises:
            OSError: If it can't be read.
            RuntimeError: If another living process is the sampler.
            ValueError: If rows have been added to this buffer, or the file is damaged, or of another layout
                or version. Nothing has changed then.
        """
        with archive.open_archive(path, self._layout) as (counters, reader):
            fill = self._read(counters, reader)
        self._mapped.lease.hold(run_in_thread, fill)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the counters and the arrays of an archive; the indexes must be written last."""
        counters, arrays = snapshot.state_of(self._ring)
        if self._mapped.frames is not None:
            indexes = arrays.pop("indexes")
            counters["frames"], frames = self._mapped.frames.state()
            arrays |= frames | {"indexes": indexes}
        own = {"episode_len": self.get_current_episode_len(), "random_state": self._rng.bit_generator.state}
        return counters | own, arrays

    def _read(
        self, counters: dict[str, Any], reader: archive.Reader, masses: Floats | None = None
    ) -> Callable[[], None]:
        """Read an archive, and change nothing; return what fills the rings, which must be new ones."""
        mapped = self._mapped
        generator = archive.checked_generator(counters)
        episode_len = archive.checked_count(counters, "episode_len")
        rows = snapshot.read(mapped.ring, counters, reader)
        frames = (
            mapped.frames.read_snapshots(counters, reader, mapped.ring.as_rows(rows.words))
            if mapped.frames
            else []
        )

        def fill() -> None:
            snapshot.begin([(mapped.ring, rows), *frames])
            for ring, read in frames:
                snapshot.write(ring, read)
            snapshot.write(mapped.ring, rows, masses)
            self._rng, mapped.ring.own[1] = generator, mapped.ring.own[0] - episode_len

        return fill
