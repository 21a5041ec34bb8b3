"""The prioritized replay buffer: transitions with a high TD error are sampled more often.

    add:                row in the ring, priority ──▶ mass in its leaf
    sample:             leaves drawn by mass ──▶ slots, their rows, indexes and weights
    update_priorities:  index ──▶ slot ──▶ the same leaf, unless the row has been replaced

A row is sampled with probability proportional to its mass, (priority + eps) ** alpha. Importance-sampling
weights correct the bias: with beta = 1 the expected gradient is that of the uniform buffer, times a constant.
The equations are in `priorities`, the tree is in `sum_tree`: leaf i holds the mass of the row in slot i.
`add` writes only leaves; `sample` first recomputes the nodes above them.

Source: Schaul et al. 2016, "Prioritized Experience Replay", algorithm 1.

Built in chapter 05, *Prioritized replay*.
"""

from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np

from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.fields import FieldSpecs
from replay_tutorial.buffers.inherited_options import accepts_options_of
from replay_tutorial.buffers.priorities import (
    NO_PRIORITY,
    Prioritization,
    Prioritized,
    check_weight_options,
    check_weights,
    only_stored_count,
    write_weights,
)
from replay_tutorial.buffers.rows import check_batch_size, checked_share
from replay_tutorial.buffers.runtime.jit import Floats, Integers
from replay_tutorial.buffers.streams import restore_rng_on_error
from replay_tutorial.buffers.sum_tree import ROOT, SumTree
from replay_tutorial.buffers.uniform import PrivateBufferOptions, ReplayBuffer

if TYPE_CHECKING:  # options are loaded when they are used
    from replay_tutorial.buffers import archive
    from replay_tutorial.buffers.prioritized_ring import PrioritizedRing
    from replay_tutorial.buffers.schemes.scheme import Scheme, StoredRows


class PrioritizedReplayBuffer(Prioritized, ReplayBuffer):
    """A replay buffer that samples transitions in proportion to their priorities.

    A learner multiplies the loss of each transition by its importance-sampling weight, and then sets new
    priorities, the absolute TD errors. Like `ReplayBuffer`, the buffer is not thread-safe.

    Built in chapter 05, *Prioritized replay*.

    Example:
        >>> fields = {"obs": {"shape": 4}, "action": {"dtype": int}, "reward": {}}
        >>> buffer = PrioritizedReplayBuffer(1000, fields, seed=0)
        >>> for step in range(100):  # or for_env, which reads the fields from an environment
        ...     index = buffer.add(obs=np.ones(4), action=step % 2, reward=1.0)
        >>> batch = buffer.sample(32, beta=0.4)
        >>> td_error = batch.reward - 0.5  # of the learner's network
        >>> loss = (batch.weights * td_error**2).mean()
        >>> buffer.update_priorities(batch.indexes, np.abs(td_error))
        >>> list(batch)
        ['obs', 'action', 'reward', 'indexes', 'weights']
    """

    _ring: "PrioritizedRing"
    # Defaults for the shared buffer, which doesn't call this class's constructor.
    _has_priorities = True
    _only_stored_count = False

    @accepts_options_of(ReplayBuffer.__init__)
    def __init__(
        self,
        capacity: int,
        fields: FieldSpecs,
        *,
        alpha: float = 0.6,
        eps: float = 1e-4,
        initial_priority: Literal["max", "max_stored"] = "max",
        **options: Unpack[PrivateBufferOptions],
    ) -> None:
        """Create an empty buffer.

        Args:
            capacity: Maximum number of transitions; once it is reached, each new one replaces the oldest.
            fields: Maps each name to a dict with `shape` (an int or a tuple, default `()`, a scalar) and
                `dtype` (default float32). A scalar is sampled with shape `(batch,)`, a field of shape 4 with
                shape `(batch, 4)`. The names `indexes`, `weights` and `priorities` are reserved.
            alpha: Exponent of the priorities, in [0, 1]; 0 samples uniformly.
            eps: Added to each priority so that rows of priority 0 can be sampled; finite and at least 0.
            initial_priority: Priority of rows that are added without one: "max" is the largest priority that
                has been set so far; "max_stored" is the largest of the stored rows, so that an outlier that
                has been updated or replaced no longer counts. "max_stored" takes 40 bytes per row.
            **options: The keyword arguments of `ReplayBuffer`, with the same meanings and defaults.

        Raises:
            MemoryError: If the full buffer would be larger than the memory of the machine or container.
            TypeError: If an argument has the wrong type.
            ValueError: If a value is out of range or refers to a field that does not exist.

        Warns:
            UserWarning: If the full buffer would be larger than the free memory (on Linux only).
        """
        self._alpha, self._eps = checked_share("alpha", alpha), eps
        self._only_stored_count = only_stored_count(initial_priority, self._alpha)
        super().__init__(capacity, fields, **options)
        if taken := {"indexes", "weights", "priorities"} & self._fields.fields.keys():
            raise ValueError(
                f"The field names {sorted(taken)} are reserved in a prioritized buffer; rename the fields."
            )
        self._layout |= {"alpha": self._alpha, "eps": self._ring.rules.eps}
        if self._only_stored_count:
            self._layout["initial_priority"] = initial_priority

    def _new_ring(self, capacity: int, *arguments: Any) -> "PrioritizedRing":
        from replay_tutorial.buffers.prioritized_ring import PrioritizedRing  # not used by a shared buffer

        rules = Prioritization(capacity, np.full(1, NO_PRIORITY), self._alpha, self._eps)
        return PrioritizedRing(rules, capacity, *arguments)

    def add(self, /, *, priorities: Any = None, **fields: Any) -> int | None:
        """Add one transition, or a batch of consecutive transitions along axis 0.

        With `num_envs`, add one step of every environment. (Shared buffers have neither `num_envs` nor
        `n_step`.) O(batch); the next `sample` updates the sum tree.

        Args:
            priorities: |TD error|, one per transition or one for all, finite and at least 0. None means
                `max_priority`, so that new transitions are likely to be sampled soon. With
                `n_step`, it is the priority of the row that begins with this step.
            **fields: One value per field, or with `num_envs` one array of shape (num_envs, …). Nested dicts
                and tuples are flattened, for example `obs={"image": …}` to the field `obs/image`.

        Returns:
            The index of the first row that was added; with `n_step`, None if no row was added because the
            n-step window is not full yet. The step that ends an episode also adds the remaining rows of its
            window, whose returns have fewer rewards. With `num_envs`, the rows of environment 0 come first,
            and those of each environment from oldest to newest. Indexes count rows from 0 and are never
            reused; a row is stored in slot `index % capacity`.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape or length doesn't match, if the dtype of a field can't represent a value,
                if a priority is negative, infinite or NaN, or, with `n_step`, if the `obs` of a step differs
                from the `next_obs` of the step before it. The buffer is then unchanged.
        """
        if self._iterators:
            self._finish_copies()
        count, columns = self._fields.to_columns(fields)
        if self._only_stored_count and priorities is None:
            self._ring.rules.lower_max(self._ring.tree(), self._ring.capacity)
        masses, max_priority = self._ring.rules.initial_masses(priorities, count)
        if self._stages is None:
            return self._ring.append(count, columns, masses, max_priority)
        return self._stages.append(self._ring, count, columns, masses, max_priority, priorities)

    def sample(
        self,
        batch_size: int,
        beta: float = 0.4,
        *,
        normalize: str | None = None,
        scheme: "Scheme | None" = None,
    ) -> Batch:
        """Sample transitions in proportion to their masses, (priority + eps) ** alpha, with replacement.

        Sampling is stratified: the total mass is divided into batch_size equal segments, and one transition
        is sampled from each (Schaul et al. 2016, appendix B.2.1). O(batch_size · log capacity); allocates
        the batch.

        Args:
            batch_size: Number of transitions.
            beta: Exponent of the importance-sampling weights, (N * P) ** -beta, in [0, 1], where P is the
                probability of the row, its mass divided by `total_mass`, and N is `len(buffer)`. 1 corrects
                the bias fully.
            normalize: "buffer" divides the weights by the largest weight in the buffer (of the rows whose
                mass isn't 0), "batch" by the largest weight in the batch. None means "batch" with a scheme,
                and otherwise "buffer".
            scheme: A scheme that chooses the transitions; see `buffers.schemes`. None samples in proportion
                to the masses.

        Returns:
            A `Batch`: one array per field, of shape (batch_size, *shape), as `batch.obs` or, if nested,
            `batch.obs["image"]`, and two further arrays: `indexes`,
            int64[batch_size], the argument of `update_priorities`, and `weights`, float32[batch_size] in
            (0, 1], importance-sampling weights by which the losses must be multiplied. Rows are in ascending
            order of their slots. With a scheme, there is a third array, `probabilities`,
            float64[batch_size], and the weights are computed from it.

        Raises:
            RuntimeError: In shared memory: if no row has all its frames, or, with `count_samples`, another
                process updates priorities.
            TypeError: If batch_size is not an integer, or the scheme is not a scheme.
            ValueError: If an argument is out of range, the buffer is empty, every mass is 0, the scheme can't
                draw from this buffer, or every weight is below 2^-24, so that nothing would be learned, which
                only normalize="buffer" can cause.
        """
        return self._copy(*self._draw(batch_size, beta, normalize=normalize, scheme=scheme))

    def _draw(
        self,
        batch_size: int,
        beta: float = 0.4,
        *,
        normalize: str | None = None,
        scheme: "Scheme | None" = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Draw rows; return their slots, and the arrays of the batch that are not fields."""
        check_batch_size(batch_size)
        if scheme is not None:
            self._check_scheme(scheme)
        if normalize is None:
            normalize = "buffer" if scheme is None else "batch"
        beta = check_weight_options(beta, normalize)
        return self._draw_weighted(batch_size, beta, normalize == "buffer", scheme)

    def _draw_weighted(
        self, batch_size: int, beta: float, by_buffer: bool, scheme: "Scheme | None"
    ) -> tuple[Any, dict[str, Any]]:
        """Draw rows in proportion to the masses or by a scheme, with weights; see `_draw`."""
        if scheme is not None:
            with restore_rng_on_error(self._rng):
                slots, others, drawn = self._draw_by(scheme, batch_size)
                others["weights"] = np.empty(batch_size, np.float32)
                write_weights(drawn.probabilities, beta, drawn.least, by_buffer, others["weights"])
                check_weights(others["weights"])
            return slots, self._counted(others, drawn.indexes)
        slots, indexes, weights = self._ring.draw_by_mass(batch_size, self._rng, beta, by_buffer)
        check_weights(weights, self._rng, batch_size)
        others = {"indexes": indexes, "weights": weights}
        return slots, others if self._counts is None else self._counted(others, indexes)

    @property
    def max_priority(self) -> float:
        """The priority of rows that are added without one.

        It is 1.0 until a priority has been set, and after `clear`. Afterwards, it is the largest priority
        that any row has had, even if the row has been updated or replaced since. This includes the 1.0 of
        rows that were added before, and all priorities of an index that is repeated in one update. With
        `initial_priority="max_stored"`, it is the largest priority of the stored rows, or 1.0 if they have no
        mass; in shared memory, as of the last `update_priorities`.
        """
        if self._only_stored_count:
            self._ring.rules.lower_max(self._ring.tree(), self._ring.capacity)
        return self._ring.rules.max_priority

    @property
    def alpha(self) -> float:
        """Exponent of the priorities."""
        return self._ring.rules.alpha

    @property
    def eps(self) -> float:
        """Added to each priority."""
        return self._ring.rules.eps

    def _masses_of(self, indexes: Integers) -> Floats:
        """Return the masses of stored rows."""
        self._check_indexes(indexes)
        self._check_stored(indexes, indexes >= self._ring.oldest_index)
        return self._ring.leaves[indexes % self._ring.capacity]

    @property
    def total_mass(self) -> float:
        """Sum of the masses, (priority + eps) ** alpha, of all stored rows; 0.0 if the buffer is empty."""
        return self._synced_tree().total

    @property
    def min_mass(self) -> float:
        """Smallest nonzero mass of a stored row; 0.0 if there is none."""
        return float(self._synced_tree().minima[ROOT])

    def _synced_tree(self) -> SumTree:
        return self._ring.tree()

    def _stored_rows(self) -> "StoredRows":
        return super()._stored_rows()._replace(tree=self._ring.tree(), alpha=self._ring.rules.alpha)

    def _state(self) -> "tuple[dict[str, Any], archive.Arrays]":
        counters, arrays = super()._state()
        counters["stale_updates"] = self.stale_updates
        self._ring.restart_ranking()
        arrays["masses"] = [self._ring.leaves[self._ring.slots_in_order()]]
        arrays["seen"] = [self._ring.rules.largest_priority]
        return counters, arrays

    def _from_state(self, counters: dict[str, Any], reader: "archive.Reader") -> Self:
        from replay_tutorial.buffers.archive import checked_count

        loaded = super()._from_state(counters, reader)
        ring = loaded._ring
        masses, largest_priority = np.zeros(ring.stored), np.zeros(1)
        reader.read_into("masses", [masses])
        reader.read_into("seen", [largest_priority])
        pending = loaded._stages.pending_masses if loaded._stages else np.zeros(0)
        ring.rules.check_loaded(np.append(masses, pending), largest_priority[0])
        ring.rules = ring.rules.with_max(largest_priority[0])
        ring.leaves[ring.slots_in_order()] = masses
        ring.rules.stale_updates[0] = checked_count(counters, "stale_updates")
        return loaded
