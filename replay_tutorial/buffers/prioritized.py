"""The prioritized replay buffer: what surprised the agent most is drawn most.

A row is drawn in proportion to its mass, (priority + eps) ** alpha, and weighs less in the loss the likelier it
was to be drawn, so that with beta 1 the expected gradient is the uniform buffer's, times one factor for all rows. Floats are the business of
`priorities`, drawing that of `proportional`, rows that of `uniform`.

Source: Schaul et al. 2016, "Prioritized Experience Replay", algorithm 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.fields import Batch, EnvDict
from replay_tutorial.buffers.jit import Floats
from replay_tutorial.buffers.priorities import NO_PRIORITY, Priorities
from replay_tutorial.buffers.proportional import ProportionalDraw
from replay_tutorial.buffers.sum_tree import SumTree
from replay_tutorial.buffers.uniform import ReplayBuffer


class PrioritizedReplayBuffer(ReplayBuffer):
    """The newest transitions of one process, drawn in proportion to their priority.

    Example:
        >>> buffer = PrioritizedReplayBuffer(1000, {"obs": {"shape": 4}, "rew": {}}, alpha=0.6, seed=0)
        >>> buffer.add(obs=np.zeros((100, 4)), rew=np.zeros(100), priorities=np.ones(100))
        0
        >>> sample = buffer.sample(32, beta=0.4)
        >>> sample["indexes"].shape, sample["weights"].dtype
        ((32,), dtype('float32'))
        >>> buffer.update_priorities(sample["indexes"], np.full(32, 0.5))

    Attributes:
        stale_updates: Priorities dropped because their row had been replaced.
    """

    def __init__(
        self,
        size: int,
        env_dict: EnvDict,
        *,
        next_of: str | Sequence[str] | None = None,
        stack_compress: str | Sequence[str] | Mapping[str, int] | None = None,
        default_dtype: npt.DTypeLike = np.float32,
        Nstep: Mapping[str, Any] | None = None,
        seed: int | np.random.SeedSequence | None = None,
        alpha: float = 0.6,
        eps: float = 1e-4,
    ) -> None:
        """Reserve memory for `size` transitions.

        Args:
            size: As for `ReplayBuffer`.
            env_dict: As for `ReplayBuffer`; the names `indexes`, `weights` and `priorities` are taken.
            next_of: As for `ReplayBuffer`.
            stack_compress: As for `ReplayBuffer`.
            default_dtype: As for `ReplayBuffer`.
            Nstep: As for `ReplayBuffer`.
            seed: As for `ReplayBuffer`.
            alpha: How much priorities count, in [0, 1]; 0 is uniform.
            eps: Added to each priority, finite and at least 0, so that a row of priority 0 is drawn too.

        Raises:
            TypeError: If an argument is of the wrong kind.
            ValueError: If a value is out of range or names a field that does not exist.
        """
        super().__init__(
            size,
            env_dict,
            next_of=next_of,
            stack_compress=stack_compress,
            default_dtype=default_dtype,
            Nstep=Nstep,
            seed=seed,
        )
        if taken := {"indexes", "weights", "priorities"} & self._stored_fields.fields.keys():
            raise ValueError(
                f"{sorted(taken)} can't be fields of a prioritized buffer: it uses the names itself."
            )
        self._priorities, self._draw = self._empty_priorities(alpha, eps)
        self._waiting_masses = np.zeros(0)  # float64[n], of the steps in the n-step window
        self._layout |= {"alpha": self._priorities.alpha, "eps": self._priorities.eps}

    def _empty_priorities(self, alpha: float, eps: float) -> tuple[Priorities, ProportionalDraw]:
        tree = SumTree(self._ring.capacity)
        masses = tree.leaves[
            : self._ring.capacity
        ]  # in one process, the tree's leaves are where the masses lie
        priorities = Priorities(masses, np.full(1, NO_PRIORITY), alpha, eps)
        return priorities, ProportionalDraw(priorities, tree)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._priorities.masses = self._draw.tree.leaves[
            : self._ring.capacity
        ]  # unpickled, they were two arrays

    @property
    def stale_updates(self) -> int:
        """Priorities dropped because their row had been replaced."""
        return self._draw.stale_updates

    def add(self, /, *, priorities: Any = None, **fields: Any) -> int | None:
        """Add one transition, or a batch of consecutive ones along axis 0.

        O(batch); the sum tree takes the new masses in at the next `sample`.

        Args:
            priorities: |TD error|, one for each transition, finite and at least 0; None gives all of them the
                highest priority that any row has been given, so that each is soon drawn. An n-step row keeps the
                priority given with its first step.
            **fields: A value for each field.

        Returns:
            The index of the first row that this call stored, None if it stored none.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape, a length, a value or a priority does not fit. Nothing has changed then.
        """
        count, columns = self._fields.to_columns(fields)
        masses = self._priorities.masses_of_new(priorities, count)
        if self._window is not None:
            self._waiting_masses = np.append(self._waiting_masses, np.broadcast_to(masses, count))
        first_index = self._ring.next_index
        index = self._store(count, columns)
        self._give_masses(first_index, masses)
        return index

    def on_episode_end(self) -> None:
        """End the episode: n-step rows that still wait are stored, with their priorities.

        Call it whenever an episode ends, also by truncation; twice in a row is harmless.
        """
        first_index = self._ring.next_index
        super().on_episode_end()
        self._give_masses(first_index, self._waiting_masses)

    def sample(self, batch_size: int, beta: float = 0.4, *, normalize: str = "buffer") -> Batch:
        """Draw transitions in proportion to their masses, stratified (appendix B.2.1), with replacement.

        O(batch_size · log capacity); allocates the batch.

        Args:
            batch_size: Number of transitions.
            beta: How much of the bias is made good by the weights, in [0, 1].
            normalize: Weights are divided by the greatest weight of the "buffer", or of the "batch".

        Returns:
            As from `ReplayBuffer.sample`, and `indexes`, int64[batch_size], to give to `update_priorities`, and
            `weights`, float32[batch_size] in (0, 1], to multiply the losses by. Rows come in the order of slots.

        Raises:
            TypeError: If batch_size is not an integer.
            ValueError: If an argument is out of range, the buffer is empty, or every mass is 0.
        """
        self._check_sample(batch_size)
        self._draw.take_in(self._ring.oldest_index, self._ring.next_index)
        slots, indexes, weights = self._draw.draw(batch_size, beta, normalize, self._rng)
        batch = self._take(slots)
        batch["indexes"], batch["weights"] = indexes, weights
        return batch

    def update_priorities(self, indexes: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give rows new priorities.

        Of a repeated index the last priority stays. A row that has been replaced since it was drawn keeps its
        successor's priority: the update is dropped and counted in `stale_updates`. O(n log capacity).

        Args:
            indexes: Integers[n], as `sample` gave them.
            priorities: |TD error|[n], finite and at least 0.

        Raises:
            IndexError: If an index was never given out.
            TypeError: If indexes are not integers or priorities not real numbers.
            ValueError: If the lengths differ or a priority is negative, infinite or NaN. Nothing has changed then.
        """
        self._draw.update(indexes, priorities, self._ring.oldest_index, self._ring.next_index)

    def get_max_priority(self) -> float:
        """Tell the highest priority that any row has been given; 1.0 before the first."""
        return self._priorities.highest

    def clear(self) -> None:
        """Forget every transition and priority. Indexes go on counting."""
        self._draw.forget(self._ring.slots_in_order(), self._ring.next_index)
        self._waiting_masses = np.zeros(0)
        super().clear()

    def _give_masses(self, first_index: int, masses: Floats | float) -> None:
        """Give the rows stored since `first_index` their masses; those of a window come first in, first out."""
        count = self._ring.next_index - first_index
        if self._window is not None:
            masses, self._waiting_masses = self._waiting_masses[:count], self._waiting_masses[count:]
        self._priorities.put(first_index, count, masses)

    def _taken_apart(self) -> tuple[dict[str, Any], dict[str, Any]]:
        counters, arrays = super()._taken_apart()
        masses = self._priorities.masses[self._ring.slots_in_order()]
        mine = {"masses": masses, "seen": self._priorities.seen, "waiting_masses": self._waiting_masses}
        return counters | {"stale_updates": self.stale_updates}, arrays | {
            name: [array] for name, array in mine.items()
        }

    def _loaded(self, counters: dict[str, Any], read_into: archive.ReadInto) -> Self:
        loaded = super()._loaded(counters, read_into)
        masses, seen = np.zeros(loaded.get_stored_size()), np.zeros(1)
        loaded._waiting_masses = np.zeros(archive.checked_count(counters, "waiting"))
        for name, array in (("masses", masses), ("seen", seen), ("waiting_masses", loaded._waiting_masses)):
            read_into(name, [array])
            if not (np.isfinite(array).all() and (array >= (NO_PRIORITY if name == "seen" else 0.0)).all()):
                raise ValueError(f"The file is damaged: {name!r} holds what can't be a priority.")
        loaded._priorities, loaded._draw = loaded._empty_priorities(
            self._priorities.alpha, self._priorities.eps
        )
        loaded._priorities.masses[loaded._ring.slots_in_order()] = masses
        loaded._priorities.seen = seen
        loaded._draw.stale_updates = archive.checked_count(counters, "stale_updates")
        return loaded
