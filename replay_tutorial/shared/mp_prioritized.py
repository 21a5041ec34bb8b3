"""The shared prioritized replay buffer: any number of processes add and sample, one updates priorities.

    add, in any process:      priority ──▶ mass ──▶ ring.masses[slot], beside the row (protocol.write_rows)
    sample, in any process:   new masses ──▶ leaves of its private sum tree (sampler.sync_tree), then the draw
    update_priorities:        priority ──▶ mass ──▶ leaf, a copy in shared memory, a log (sampler.update_rows)

Each handle that samples has a sum tree of its own, so no process waits for another. The tree is built from
the masses beside the rows and the copies of updated masses. It then follows new rows and the log of updates.

Source: Horgan et al. 2018, "Distributed Prioritized Experience Replay", section 3.

Built in chapter 07, *Ape-X*.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import FieldSpecs, Rows
from replay_tutorial.buffers.inherited_options import accepts_options_of
from replay_tutorial.buffers.priorities import (
    NO_PRIORITY,
    Prioritization,
    Weights,
    check_weights,
    only_stored_count,
    power,
    write_masses,
    write_weights,
)
from replay_tutorial.buffers.prioritized import PrioritizedReplayBuffer
from replay_tutorial.buffers.rows import checked_size
from replay_tutorial.buffers.runtime.jit import Floats, Integers
from replay_tutorial.buffers.streams import restore_rng_on_error, state_before
from replay_tutorial.buffers.sum_tree import ROOT, SumTree
from replay_tutorial.shared.mp_uniform import MPBufferOptions, MPReplayBuffer
from replay_tutorial.shared.protocol import SAMPLED, raise_max
from replay_tutorial.shared.sampler import draw_rows, sync_tree, update_rows

if TYPE_CHECKING:  # options are loaded when they are used
    from replay_tutorial.buffers.schemes.scheme import Scheme
    from replay_tutorial.shared.shared_frames import DrawAgain

# Seconds between two draws when no row has all its frames.
POLL_SECONDS = 0.001


def is_proportional(scheme: "Scheme") -> bool:
    """Return whether a scheme draws as the buffer does without one."""
    from replay_tutorial.buffers.schemes.scheme import Proportional

    return type(scheme) is Proportional


class MPPrioritizedReplayBuffer(  # pyright: ignore[reportIncompatibleVariableOverride]
    MPReplayBuffer, PrioritizedReplayBuffer
):
    """A replay buffer in shared memory: any number of processes add and sample by priority, one updates.

    Pass the buffer to other processes as an argument; it works with fork, spawn and forkserver. Any process
    may add and sample. The first process that updates priorities becomes the updater and stays the updater
    until it exits or closes its handle. A sample considers all rows and updates that were complete when it
    was called; its weights are computed from the masses with which its rows were drawn.

    An n-step window belongs to one stream of steps, so this class has no `n_step`, `num_envs` and
    `autoreset`: each actor combines its steps with `NStepWindow`, and adds the rows that this returns.
    `Mailbox` sends parameters to the actors, and `SamplesPerInsert` limits how far they run ahead.

    Built in chapter 07, *Ape-X*.

    Example:
        >>> buffer = MPPrioritizedReplayBuffer(1000, {"obs": {"shape": 4}, "reward": {}}, seed=0)
        >>> buffer.add(obs=np.zeros((10, 4)), reward=np.ones(10), priorities=np.arange(10))
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

    @accepts_options_of(MPReplayBuffer.__init__)
    def __init__(
        self,
        capacity: int,
        fields: FieldSpecs,
        *,
        alpha: float = 0.6,
        eps: float = 1e-4,
        initial_priority: Literal["max", "max_stored"] = "max",
        **options: Unpack[MPBufferOptions],
    ) -> None:
        """Create an empty buffer in shared memory, whose pages are allocated when they are first written.

        Args:
            capacity: Maximum number of transitions; once it is reached, each new one replaces the oldest.
            fields: Maps each name to a dict with `shape` (an int or a tuple, default `()`, a scalar) and
                `dtype` (default float32). A scalar is sampled with shape `(batch,)`, a field of shape 4 with
                shape `(batch, 4)`. The names `indexes`, `weights` and `priorities` are reserved.
            alpha: Exponent of the priorities, in [0, 1]; 0 samples uniformly.
            eps: Added to each priority so that rows of priority 0 can be sampled; finite and at least 0.
            initial_priority: Priority of rows that are added without one: "max" is the largest priority that
                has been set so far; "max_stored" is the largest of the stored rows. It takes effect when the
                updater calls `update_priorities`, and takes 40 bytes per row of its private memory.
            **options: The keyword arguments of `MPReplayBuffer`, with the same meanings and defaults.

        Raises:
            MemoryError: If the buffer is larger than the free memory, or than the free space on the disk.
            OSError: If the file cannot be opened or created.
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range or not supported.
        """
        rules = Prioritization(checked_size(capacity), np.full(1, NO_PRIORITY), alpha, eps)  # checks them
        self._priority_options = {"alpha": rules.alpha, "eps": rules.eps}
        if only_stored_count(initial_priority, rules.alpha):
            self._priority_options |= {"initial_priority": initial_priority}
        MPReplayBuffer.__init__(self, capacity, fields, **options)

    def _draw_weighted(
        self, batch_size: int, beta: float, by_buffer: bool, scheme: "Scheme | None"
    ) -> tuple[Any, dict[str, Any]]:
        arguments = batch_size, beta, by_buffer, scheme
        return self._lease.hold(self._draw_weighted_in_lease, *arguments, updates=self._counts is not None)

    def _draw_weighted_in_lease(
        self, batch_size: int, beta: float, by_buffer: bool, scheme: "Scheme | None"
    ) -> tuple[Any, dict[str, Any]]:
        if scheme is not None and not is_proportional(scheme):
            with restore_rng_on_error(self._rng):
                rows, others, drawn = self._draw_by(scheme, batch_size)
                others["weights"] = self._weights(drawn.probabilities, beta, drawn.least, by_buffer)
            return rows, self._counted(others, drawn.indexes)
        sampler = self._sampler
        sampler.numbers_drawn = 0
        try:
            rows, indexes, masses = sampler.draw(batch_size, self._rng)
            if self._stages is not None:
                rows = self._stages.restore(rows, self._replacement_draw(rows, indexes, masses))
            weights = self._weights(masses, beta, sampler.tree.minima.item(ROOT), by_buffer)
        except (ValueError, RuntimeError):
            self._rng.bit_generator.state = state_before(self._rng, sampler.numbers_drawn)
            raise
        others: dict[str, Any] = {"indexes": indexes, "weights": weights}
        if scheme is not None:  # Proportional
            others["probabilities"] = masses / sampler.tree.total
        return rows, others if self._counts is None else self._counted(others, indexes)

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

    def _replacement_draw(self, rows: Rows, indexes: Integers, masses: Floats) -> "DrawAgain":
        """Return a function that sets the mass of rows that lack a frame to 0, and draws other rows."""
        ring, sampler = self._ring, self._sampler

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

    def _tree_and_alpha(self) -> tuple[Callable[[], SumTree], float]:
        return self._sampler.synced_tree, self._ring.rules.alpha

    def _update(self, indexes: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        self._lease.hold(self._sampler.update, indexes, priorities, updates=True)

    def _masses_of(self, indexes: Integers) -> Floats:
        """Return the masses of stored rows."""
        self._check_indexes(indexes)
        slots = indexes % self._ring.capacity
        stored = self._ring.indexes(slots) == indexes
        masses = self._masses(slots)
        self._check_stored(indexes, stored & (self._ring.indexes(slots) == indexes))
        return masses

    def _synced_tree(self) -> SumTree:
        return self._lease.hold(self._sampler.synced_tree)

    def _masses(self, slots: Integers) -> Floats:
        """Return the masses of the rows in `slots`."""
        block, ring = self._block, self._ring
        updated = block["updated_indexes"][slots] == ring.indexes(slots) + 1
        return np.where(updated, block["updated_masses"][slots], ring.masses[slots])
