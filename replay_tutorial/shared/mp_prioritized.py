"""The shared prioritized replay buffer: any number of processes add and sample, one updates priorities.

    add, in any process:      priority ──▶ mass ──▶ ring.masses[slot], beside the row (protocol.write_rows)
    sample, in any process:   new masses ──▶ leaves of its private sum tree (sampler.sync_tree), then the draw
    update_priorities:        priority ──▶ mass ──▶ leaf, a copy in shared memory, a log (sampler.update_rows)

Each process that samples has a sum tree of its own, so no process waits for another. The tree is built from
the masses beside the rows and the copies of updated masses. It then follows new rows and the log of updates.

Source: Horgan et al. 2018, "Distributed Prioritized Experience Replay", section 3.

Built in chapter 07, *Ape-X*.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.base import CpprbKwargs
from replay_tutorial.buffers.fields import Batch, EnvDict, Rows
from replay_tutorial.buffers.priorities import (
    NO_PRIORITY,
    Priorities,
    Prioritization,
    Weights,
    check_weight_options,
    check_weights,
    only_stored_count,
    power,
    write_masses,
    write_weights,
)
from replay_tutorial.buffers.rows import check_batch_size, checked_size
from replay_tutorial.buffers.runtime.jit import Floats, Integers
from replay_tutorial.buffers.schemes.scheme import Proportional, Scheme, check_scheme
from replay_tutorial.buffers.streams import restore_rng_on_error, state_before
from replay_tutorial.buffers.sum_tree import ROOT, SumTree
from replay_tutorial.shared.mp_uniform import MPReplayBuffer
from replay_tutorial.shared.protocol import SAMPLED, STALE, raise_max
from replay_tutorial.shared.sampler import draw_rows, sync_tree, update_rows
from replay_tutorial.shared.shared_frames import DrawAgain

# Seconds between two draws when no row has all its frames.
POLL_SECONDS = 0.001


class MPPrioritizedReplayBuffer(MPReplayBuffer):
    """A replay buffer in shared memory: any number of processes add and sample by priority, one updates.

    Pass the buffer to other processes as an argument; it works with fork, spawn and forkserver. Any process
    may add and sample. The first process that updates priorities becomes the updater and stays the updater
    until it exits or closes its handle. A sample considers all rows and updates that were complete when it
    was called; its weights are computed from the masses with which its rows were drawn.

    Built in chapter 07, *Ape-X*.

    Example:
        >>> buffer = MPPrioritizedReplayBuffer(1000, {"obs": {"shape": 4}, "rew": {"shape": ()}}, seed=0)
        >>> buffer.add(obs=np.zeros((10, 4)), rew=np.ones(10), priorities=np.arange(10))
        0
        >>> sample = buffer.sample(32, beta=0.4)
        >>> buffer.update_priorities(sample["indexes"], np.full(32, 0.5))
    """

    _reserved_names = frozenset({"indexes", "weights", "priorities"})
    _kernels: ClassVar[tuple[Any, ...]] = (
        *MPReplayBuffer._kernels,
        draw_rows,
        power,
        raise_max,
        sync_tree,
        update_rows,
        write_masses,
        write_weights,
    )

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
        count_samples: bool = False,
        path: str | PathLike[str] | None = None,
        alpha: float = 0.6,
        eps: float = 1e-4,
        initial_priority: Literal["max", "max_stored"] = "max",
        **cpprb_kwargs: Unpack[CpprbKwargs],
    ) -> None:
        """Reserve shared memory for `size` transitions.

        Args:
            size: Capacity in transitions; see `MPReplayBuffer`.
            env_dict: Shape and dtype of each field; see `PrioritizedReplayBuffer`.
            next_of: See `MPReplayBuffer`.
            stack_compress: See `MPReplayBuffer`.
            frames_per_transition: See `MPReplayBuffer`.
            default_dtype: See `MPReplayBuffer`.
            Nstep: Not supported: must be None or False. Use `NStep` in each actor instead.
            seed: See `MPReplayBuffer`.
            check_finite: See `ReplayBuffer`.
            count_samples: See `MPReplayBuffer`.
            path: See `MPReplayBuffer`.
            alpha: Exponent of the priorities, in [0, 1]; 0 samples uniformly.
            eps: Added to each priority; finite and at least 0.
            initial_priority: See `PrioritizedReplayBuffer`; "max_stored" takes effect when the updater calls
                `update_priorities`, and the 40 bytes per row are in its private memory.
            **cpprb_kwargs: See `MPReplayBuffer`.

        Raises:
            MemoryError: If the buffer is larger than the free memory, or than the free space on the disk.
            OSError: If the file cannot be opened or created.
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range or not supported.
        """
        rules = Prioritization(checked_size(size), np.full(1, NO_PRIORITY), alpha, eps)  # checks them
        self._priority_options = {"alpha": rules.alpha, "eps": rules.eps}
        if only_stored_count(initial_priority, rules.alpha):
            self._priority_options |= {"initial_priority": initial_priority}
        super().__init__(
            size,
            env_dict,
            next_of=next_of,
            stack_compress=stack_compress,
            frames_per_transition=frames_per_transition,
            default_dtype=default_dtype,
            Nstep=Nstep,
            seed=seed,
            check_finite=check_finite,
            count_samples=count_samples,
            path=path,
            **cpprb_kwargs,
        )

    @property
    def stale_updates(self) -> int:
        """Number of priority updates dropped because their row had been overwritten."""
        return int(self._ring.counters[STALE])

    def add(self, /, *, priorities: Any = None, **fields: Any) -> int:
        """Add one transition, or a batch along axis 0. Any process may call this.

        Args:
            priorities: |TD error| of each transition, or one value for all of them; finite and at least 0.
                None assigns the current maximum, `get_max_priority()`.
            **fields: One value or batch per field. Nested dicts and tuples are flattened; their keys are
                joined with "/".

        Returns:
            The index of the first row; see `MPReplayBuffer.add`.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape or length does not match, a priority is negative or not finite, a value
                cannot be represented in the field's dtype, or `check_finite` rejects it. The buffer is left
                unchanged.
        """
        mapped = self._mapped
        count, columns = mapped.fields.to_columns(fields)
        masses, max_priority = mapped.priorities.initial_masses(priorities, count)
        return self._append(count, columns, masses, max_priority)

    def sample(
        self,
        batch_size: int,
        beta: float = 0.4,
        *,
        normalize: str | None = None,
        scheme: Scheme | None = None,
    ) -> Batch:
        """Sample transitions with probability proportional to their mass, stratified, with replacement.

        Args:
            batch_size: Number of transitions.
            beta: Importance-sampling exponent in [0, 1]; 0 corrects none of the bias, 1 all of it.
            normalize: Divide the weights by the largest weight in the "buffer" or in the "batch". None means
                "batch" with a scheme, and otherwise "buffer".
            scheme: A scheme that chooses the transitions; see `buffers.schemes`. None samples in proportion
                to the masses. The object is used only in this process.

        Returns:
            The dict that `MPReplayBuffer.sample` returns, with two more arrays. `indexes`, int64[batch_size],
            are the serial numbers that `add` returns; pass them to `update_priorities`. (The position in an
            array of the buffer's size is `index % size`.) `weights`, float32[batch_size] in (0, 1], scale the
            losses. With a scheme, there is a third array, `probabilities`, and the weights are computed from
            it.

        Raises:
            RuntimeError: If no row has all its frames, or, with `count_samples`, another living process is
                the updater.
            TypeError: If `batch_size` is not an integer, or the scheme is not a scheme.
            ValueError: If an argument is out of range, the buffer is empty, every mass is 0, the scheme
                cannot draw from this buffer, or every weight is below 2^-24, so that nothing would be
                learned, which only normalize="buffer" can cause.
        """
        mapped = self._mapped
        check_batch_size(batch_size)
        if normalize is None:
            normalize = "buffer" if scheme is None else "batch"
        beta = check_weight_options(beta, normalize)
        if scheme is not None:
            check_scheme(scheme, mapped.fields.fields)
        by_buffer, counts = normalize == "buffer", mapped.counts is not None
        return mapped.lease.hold(self._draw_weighted, batch_size, beta, by_buffer, scheme, updates=counts)

    def _draw_weighted(self, batch_size: int, beta: float, by_buffer: bool, scheme: Scheme | None) -> Batch:
        if scheme is not None and type(scheme) is not Proportional:
            with restore_rng_on_error(self._rng):
                alpha = self._mapped.priorities.alpha
                batch, drawn = self._draw_by(scheme, batch_size, self._mapped.sampler.synced_tree, alpha)
                probabilities, least = drawn.probabilities, drawn.least
                batch["weights"] = self._weights(probabilities, beta, least, by_buffer)
            return self._counted(batch, drawn.indexes)
        mapped, sampler = self._mapped, self._mapped.sampler
        sampler.numbers_drawn = 0
        try:
            rows, indexes, masses = sampler.draw(batch_size, self._rng)
            if mapped.frames is None:
                batch = mapped.gather.to_batch(rows)
            else:
                again = self._replacement_draw(rows, indexes, masses)
                batch = mapped.frames.restore(rows, again)
            least = sampler.tree.minima.item(ROOT)
            batch["indexes"], batch["weights"] = indexes, self._weights(masses, beta, least, by_buffer)
        except (ValueError, RuntimeError):
            self._rng.bit_generator.state = state_before(self._rng, sampler.numbers_drawn)
            raise
        if scheme is not None:  # Proportional
            batch["probabilities"] = masses / sampler.tree.total
        return batch if mapped.counts is None else self._counted(batch, indexes)

    def _weights(self, masses: Floats, beta: float, least: float, by_buffer: bool) -> Weights:
        """Return the weights of rows that have been drawn with probabilities in proportion to `masses`."""
        weights = np.empty(len(masses), np.float32)
        write_weights(masses, beta, least, by_buffer, weights)
        try:
            check_weights(weights)
        except ValueError:
            self._ring.count(SAMPLED, -len(masses))
            raise
        return weights

    def _replacement_draw(self, rows: Rows, indexes: Integers, masses: Floats) -> DrawAgain:
        """Return a function that sets the mass of rows that lack a frame to 0, and draws other rows."""
        ring, sampler = self._ring, self._mapped.sampler

        def draw_again(positions: Integers) -> Rows:
            sampler.zero_mass(indexes[positions])
            try:
                drawn, indexes[positions], masses[positions] = sampler.draw(len(positions), self._rng)
            except (ValueError, RuntimeError):  # no row with mass is left; one may be added soon
                time.sleep(POLL_SECONDS)
                return rows[positions]
            ring.reject(len(positions))
            return drawn

        return draw_again

    def update_priorities(self, indexes: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Set the priorities of sampled rows.

        If an index is repeated, its last priority wins. An update for a row that has been overwritten is
        dropped and counted in `stale_updates`.

        Args:
            indexes: Integers[n], as returned by `sample`.
            priorities: |TD error| of each row, or one value for all of them; finite and at least 0.

        Raises:
            IndexError: If an index has not been assigned to any row yet.
            RuntimeError: If another living process is the updater.
            TypeError: If the indexes are not integers, or the priorities are not real numbers.
            ValueError: If the lengths differ, or a priority is negative or not finite. No priority is
                changed.
        """
        self._mapped.lease.hold(self._mapped.sampler.update, indexes, priorities, updates=True)

    def get_max_priority(self) -> float:
        """Return the priority of rows that are added without one; see `PrioritizedReplayBuffer`.

        With `initial_priority="max_stored"`, it includes changes up to the last `update_priorities`.
        """
        return self._mapped.priorities.max_priority

    @property
    def priorities(self) -> Priorities:
        """The priorities of the stored rows: `buffer.priorities[indexes]` is float64[n], in any process."""
        return Priorities(self._mapped.priorities, self._masses_of)

    def _masses_of(self, indexes: Integers) -> Floats:
        """Return the masses of stored rows."""
        self._check_indexes(indexes)
        slots = indexes % self._ring.capacity
        stored = self._ring.indexes(slots) == indexes
        masses = self._masses(slots)
        self._check_stored(indexes, stored & (self._ring.indexes(slots) == indexes))
        return masses

    @property
    def total_mass(self) -> float:
        """Sum of the masses of all rows that can be sampled; 0.0 if there are none.

        The mass of a row is (priority + eps) ** alpha.
        """
        return self._synced_tree().total

    @property
    def min_mass(self) -> float:
        """Smallest mass above 0 among the rows that can be sampled; 0.0 if there is none."""
        return float(self._synced_tree().minima[ROOT])

    def _synced_tree(self) -> SumTree:
        return self._mapped.lease.hold(self._mapped.sampler.synced_tree)

    def _masses(self, slots: Integers) -> Floats:
        """Return the masses of the rows in `slots`."""
        block, ring = self._block, self._ring
        updated = block["updated_indexes"][slots] == ring.indexes(slots) + 1
        return np.where(updated, block["updated_masses"][slots], ring.masses[slots])

    def _priority_arrays(self, slots: Integers) -> dict[str, Any]:
        return {"seen": [self._block["seen"]], "masses": lambda: [self._masses(slots)]}

    def _read(
        self, counters: dict[str, Any], reader: archive.Reader, masses: Floats | None = None
    ) -> Callable[[], None]:
        count = archive.checked_count(counters, "next_index")
        masses, seen = np.zeros(min(count, self._ring.capacity)), np.zeros(1)
        reader.read_into("masses", [masses])
        reader.read_into("seen", [seen])
        self._mapped.priorities.check_loaded(masses, float(seen[0]))
        fill_rings = super()._read(counters, reader, masses)

        def fill() -> None:
            fill_rings()
            raise_max(self._ring.max_given, float(seen[0]))

        return fill
