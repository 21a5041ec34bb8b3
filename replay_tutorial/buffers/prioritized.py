"""The prioritized replay buffer: what surprised the agent most is drawn most.

    add:                row in the ring, priority ──▶ mass in its leaf
    sample:             leaves drawn by mass ──▶ slots, their rows, indexes and weights
    update_priorities:  index ──▶ slot ──▶ the same leaf, unless the row has been replaced

A row is drawn in proportion to its mass, (priority + eps) ** alpha, and weighs less in the loss the likelier
it was to be drawn, so that with beta 1 the expected gradient is the uniform buffer's, times one factor. The
equations are in `priorities`, the tree in `sum_tree`: leaf i holds the mass of the row in slot i. `add`
writes a leaf, `sample` all that lies above.

Source: Schaul et al. 2016, "Prioritized Experience Replay", algorithm 1.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.base import CpprbKwargs
from replay_tutorial.buffers.fields import Batch, EnvDict
from replay_tutorial.buffers.gather import DRAW_SPECS, Out, write_to_out
from replay_tutorial.buffers.jit import Floats, Integers, int64, kernel
from replay_tutorial.buffers.priorities import (
    DONE,
    NO_PRIORITY,
    Formula,
    Prioritization,
    Weights,
    check_update,
    check_weight_options,
    masses_of,
    write_weights,
)
from replay_tutorial.buffers.ring import Assignment
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, find_stratified, first_leaf, recompute_above
from replay_tutorial.buffers.uniform import ReplayBuffer


@kernel
def draw(
    sums: Floats,
    minima: Floats,
    uniforms: Floats,
    next_index: int,
    capacity: int,
    beta: float,
    by_buffer: bool,
    slots: Integers,
    indexes: Integers,
    weights: Weights,
) -> None:
    """Draw for n numbers in [0, 1) as many slots; write them, and the indexes and weights of their rows."""
    found, masses = find_stratified(sums, uniforms)
    next_slot = next_index % capacity
    for i in range(found.shape[0]):
        slots[i] = found[i]
        indexes[i] = found[i] + next_index - next_slot
        if found[i] >= next_slot:
            indexes[i] -= capacity  # the slots from next_slot on still hold rows of the lap before
    write_weights(masses, beta, minima[ROOT], by_buffer, weights)


@kernel
def update_leaves(
    indexes: Integers,
    priorities: Floats,
    oldest_index: int,
    next_index: int,
    capacity: int,
    formula: Formula,
    sums: Floats,
    minima: Floats,
    max_given: Floats,
    stale_updates: Integers,
) -> int:
    """Give rows that are still there new masses, note the largest of their priorities, and count the others.

    Returns what `check_update` returns; if not DONE, nothing has changed.
    """
    alpha, eps, priority_limit = formula
    status = check_update(indexes, priorities, next_index, priority_limit)
    if status != DONE:
        return status
    masses = masses_of(priorities, alpha, eps)
    first_node, first_of_lap = int64(first_leaf(sums)), next_index - next_index % capacity
    slots = np.empty(indexes.shape[0], np.int64)
    count, max_priority = 0, max_given[0]
    for i in range(indexes.shape[0]):
        index = indexes[i]
        if index >= oldest_index:  # else the row has been replaced, and its slot holds another one
            slot = index - first_of_lap if index >= first_of_lap else index - first_of_lap + capacity
            sums[first_node + slot] = masses[i]  # of a repeated index the last one stays
            max_priority = max(max_priority, priorities[i])
            slots[count] = slot
            count += 1
    recompute_above(sums, minima, slots[:count])
    max_given[0] = max_priority
    stale_updates[0] += indexes.shape[0] - count
    return DONE


class PrioritizedReplayBuffer(ReplayBuffer):
    """The newest transitions of one process, drawn in proportion to their priority.

    Example:
        >>> buffer = PrioritizedReplayBuffer(1000, {"obs": {"shape": 4}, "rew": {"shape": ()}}, seed=0)
        >>> buffer.add(obs=np.zeros((100, 4)), rew=np.zeros(100), priorities=np.ones(100))
        0
        >>> sample = buffer.sample(32, beta=0.4)
        >>> sample["indexes"].shape, sample["weights"].dtype
        ((32,), dtype('float32'))
        >>> buffer.update_priorities(sample["indexes"], np.full(32, 0.5))
    """

    # The mass of a step that waits in the window; named so because no field of the user's can be.
    _beside = MappingProxyType({"priorities": {"shape": (), "dtype": np.float64}})

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
        alpha: float = 0.6,
        eps: float = 1e-4,
        **cpprb_kwargs: Unpack[CpprbKwargs],
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
            check_finite: As for `ReplayBuffer`.
            alpha: How much priorities count, in [0, 1]; 0 is uniform.
            eps: Added to each priority, finite and at least 0, so that a row of priority 0 is drawn too.
            **cpprb_kwargs: As for `ReplayBuffer`.

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
            check_finite=check_finite,
            **cpprb_kwargs,
        )
        if taken := {"indexes", "weights", "priorities"} & self._fields.fields.keys():
            raise ValueError(f"{sorted(taken)} can't be fields: a prioritized buffer uses the names itself.")
        self._sampled |= DRAW_SPECS
        self._prioritization = Prioritization(self._ring.capacity, np.full(1, NO_PRIORITY), alpha, eps)
        self._tree = SumTree(self._ring.capacity)
        self._tree_index = 0  # above the leaves, the tree knows the rows before this index
        self._stale_updates = np.zeros(1, np.int64)
        self._layout |= {"alpha": self._prioritization.alpha, "eps": self._prioritization.eps}

    def add(self, /, *, priorities: Any = None, **fields: Any) -> int | None:
        """Add one transition, or a batch of consecutive ones along axis 0.

        O(batch); `sample` brings the sum tree up to date.

        Args:
            priorities: |TD error|, one for each transition or one for all, finite and at least 0; None gives
                all of them the largest priority that any row has been given, so that each is soon drawn. An
                n-step row keeps the priority given with its first step.
            **fields: A value for each field.

        Returns:
            The index of the first row that this call stored, None if it stored none.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape, a length or a priority does not fit, or a value is lost in the field's
                dtype or refused by `check_finite`. Nothing has changed then.
        """
        count, columns = self._checked(fields)
        rules = self._prioritization
        masses, max_given = rules.initial_masses(priorities, count)
        return self._store(count, columns, masses, ((rules.max_given, 0, max_given),))

    def _append(
        self, count: int, columns: list[Any], masses: Floats | float | None, also: Sequence[Assignment]
    ) -> int:
        ring = self._ring
        first_index = ring.next_index
        slots = first_index % ring.capacity if count == 1 else ring.slots_of(first_index, count)
        return ring.append(count, columns, (*also, (self._tree.leaves, slots, masses)))

    def sample(
        self,
        batch_size: int,
        beta: float = 0.4,
        *,
        normalize: str = "buffer",
        out: Out | None = None,
        threads: int = 1,
    ) -> Batch:
        """Draw transitions in proportion to their masses, stratified (appendix B.2.1), with replacement.

        O(batch_size · log capacity); allocates the batch.

        Args:
            batch_size: Number of transitions.
            beta: How much of the bias the weights correct, in [0, 1].
            normalize: Weights are divided by the largest weight of the "buffer", or of the "batch".
            out: As for `ReplayBuffer.sample`; `indexes` and `weights` may be among them.
            threads: As for `ReplayBuffer.sample`.

        Returns:
            As from `ReplayBuffer.sample`, `indexes`, int64[batch_size], serial numbers as `add` returns, and
            `weights`, float32[batch_size] in (0, 1], to scale losses by. Rows come by slot, `index % size`.

        Raises:
            KeyError: If `out` names no field.
            TypeError: If batch_size is not an integer.
            ValueError: If an argument is out of range or unfit, the buffer is empty, or every mass is 0.
        """
        self._check_sample(batch_size, out, threads)
        beta = check_weight_options(beta, normalize)
        tree, ring = self._synced_tree(), self._ring
        tree.check_total()
        uniforms, by_buffer = self._rng.random(batch_size), normalize == "buffer"
        slots, indexes = np.empty(batch_size, np.int64), np.empty(batch_size, np.int64)
        weights = np.empty(batch_size, np.float32)  # arrays that a kernel returned would let Ctrl-C in
        draw(
            *(tree.sums, tree.minima, uniforms, ring.next_index, ring.capacity),
            *(beta, by_buffer, slots, indexes, weights),
        )
        batch = self._take(slots, out, threads)
        batch["indexes"], batch["weights"] = indexes, weights
        return write_to_out(batch, out, indexes=indexes, weights=weights) if out else batch

    def update_priorities(self, indexes: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Set the priorities of rows.

        Of a repeated index the last priority stays. An update for a row that has been replaced since it was
        drawn is dropped and counted in `stale_updates`. O(n log capacity).

        Args:
            indexes: Integers[n], as `sample` gave them.
            priorities: |TD error|[n], or one for all of them, finite and at least 0.

        Raises:
            IndexError: If an index was never given out.
            TypeError: If indexes are not integers or priorities not real numbers.
            ValueError: If the lengths differ or a priority is negative, infinite or NaN. Nothing has changed.
        """
        rules, ring, tree = self._prioritization, self._ring, self._tree
        checked, given = rules.as_update(indexes, priorities)
        oldest_index, next_index = ring.oldest_index, ring.next_index
        status = update_leaves(
            *(checked, given, oldest_index, next_index, ring.capacity, rules.formula),
            *(tree.sums, tree.minima, rules.max_given, self._stale_updates),
        )
        if status != DONE:
            raise rules.update_refusal(status, checked, given, next_index)

    @property
    def stale_updates(self) -> int:
        """Priorities dropped because their row had been replaced."""
        return int(self._stale_updates[0])

    def get_max_priority(self) -> float:
        """Return the largest priority that any row has been given; 1.0 before the first."""
        return self._prioritization.max_priority

    @property
    def total_mass(self) -> float:
        """The sum of the masses, (priority + eps) ** alpha, of all rows that are stored; 0.0 of none."""
        return self._synced_tree().total

    @property
    def min_mass(self) -> float:
        """The smallest mass above 0 of a row that is stored; 0.0 if there is none."""
        return float(self._synced_tree().minima[ROOT])

    def _synced_tree(self) -> SumTree:
        """Return the tree, once it is up to date: `add` has written leaves, and nothing above them."""
        tree, ring = self._tree, self._ring
        first_new = max(self._tree_index, ring.oldest_index)
        if first_new < ring.next_index:
            tree.recompute(ring.slot_numbers(first_new, ring.next_index))
            self._tree_index = ring.next_index
        return tree

    def _emptied(self) -> dict[str, Any]:
        capacity, rules = self._ring.capacity, self._prioritization
        return super()._emptied() | {
            "_prioritization": Prioritization(capacity, np.full(1, NO_PRIORITY), rules.alpha, rules.eps),
            "_tree": SumTree(capacity),
            "_tree_index": self._ring.next_index,
        }

    def _state(self) -> tuple[dict[str, Any], archive.Arrays]:
        counters, arrays = super()._state()
        counters["stale_updates"] = self.stale_updates
        arrays["masses"] = [self._tree.leaves[self._ring.slots_in_order()]]
        arrays["seen"] = [self._prioritization.max_given]
        return counters, arrays

    def _from_state(self, counters: dict[str, Any], reader: archive.Reader) -> Self:
        loaded = super()._from_state(counters, reader)
        masses, seen = np.zeros(loaded.get_stored_size()), np.zeros(1)
        reader.read_into("masses", [masses])
        reader.read_into("seen", [seen])
        waiting = loaded._window.waiting()["priorities"] if loaded._window else np.zeros(0)
        rules = self._prioritization
        rules.check_loaded(np.append(masses, waiting), float(seen[0]))
        loaded._prioritization = Prioritization(self._ring.capacity, seen, rules.alpha, rules.eps)
        loaded._tree, loaded._tree_index = SumTree(self._ring.capacity), 0
        loaded._tree.leaves[loaded._ring.slots_in_order()] = masses
        loaded._stale_updates = np.full(1, archive.checked_count(counters, "stale_updates"))
        return loaded
