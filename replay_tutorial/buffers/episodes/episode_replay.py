"""The episode buffer: stores the episodes of one or several environments, and each observation once.

    add_step:  fields ──▶ a step in the ring of its environment, followed by its next observation
    sample:    leaves drawn by mass ──▶ slots ──▶ rows, and the observations in the slots after them

The rings, the table of episodes and the masses are in `episode_ring`. There are two subclasses:
`SequenceReplayBuffer` samples windows of consecutive steps, and `HindsightReplayBuffer` relabels goals.

Built in chapter 09, *Sequences*.
"""

import copy
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import repeat
from operator import setitem
from typing import Any, Self, TypedDict

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.cast import as_array
from replay_tutorial.buffers.episodes.episode_archive import ring_from_state, state_of
from replay_tutorial.buffers.episodes.episode_ring import (
    CROSS,
    DROP,
    GONE,
    NO_STEP,
    START,
    EpisodeRing,
    Episodes,
    WindowRule,
    append_steps,
    end_running_episode,
    evict_episodes,
    slot_of,
)
from replay_tutorial.buffers.episodes.episode_steps import StagedSteps, StepFields
from replay_tutorial.buffers.episodes.pairs import next_slots, pair_dtype, take_pairs
from replay_tutorial.buffers.fields import Fields, FieldSpecs, FiniteFields, flatten
from replay_tutorial.buffers.gather import Gather
from replay_tutorial.buffers.n_step.autoreset import (
    TRANSITION,
    NotConsecutive,
    ResetWatch,
    episode_ended,
    find_resets,
    resets_at_next_step,
)
from replay_tutorial.buffers.n_step.windows import check_one_of_each, differ
from replay_tutorial.buffers.priorities import (
    NO_PRIORITY,
    Prioritization,
    Prioritized,
    check_weight_options,
    check_weights,
)
from replay_tutorial.buffers.private import PrivateBuffer
from replay_tutorial.buffers.rows import (
    as_integers,
    check_batch_size,
    checked_at_least,
    checked_environment,
    checked_flag,
    checked_integer,
    checked_size,
    chosen_environments,
)
from replay_tutorial.buffers.runtime.jit import Flags, Floats, Integers
from replay_tutorial.buffers.streams import Stream


class EpisodeOptions(TypedDict, total=False):
    """The keyword arguments of `EpisodeReplayBuffer`, which its subclasses accept as well."""

    num_envs: int
    autoreset: str | Enum | None
    reward: str
    seed: int | np.random.SeedSequence | None
    check_finite: bool
    alpha: float
    eps: float


class EpisodeReplayBuffer(Prioritized, PrivateBuffer):
    """A replay buffer that stores the episodes of one or several environments.

    Each observation is stored once, although a sample contains both `obs` and `next_obs`, and the final
    observation of every episode is kept. When the ring of an environment is full, new steps overwrite the
    oldest steps one by one; the remaining steps of a partly overwritten episode can still be sampled. The
    buffer is not thread-safe.

    Built in chapter 09, *Sequences*.

    Example:
        >>> number, flag = {}, {"dtype": bool}
        >>> buffer = EpisodeReplayBuffer(
        ...     1000, {"obs": number, "reward": number, "next_obs": number, "terminated": flag}, seed=0
        ... )
        >>> for step in range(3):
        ...     index = buffer.add(obs=step, reward=1, next_obs=step + 1, terminated=step == 2)
        >>> sample = buffer.sample(32)
        >>> np.array_equal(sample["next_obs"], sample["obs"] + 1), len(buffer)
        (True, 3)
    """

    _ring: EpisodeRing
    _window_rule: WindowRule = (1, 1, DROP)  # every step is a window

    def __init__(
        self,
        capacity: int,
        fields: FieldSpecs,
        *,
        num_envs: int = 1,
        autoreset: str | Enum | None = None,
        reward: str = "reward",
        seed: int | np.random.SeedSequence | None = None,
        check_finite: bool = False,
        alpha: float = 0.0,
        eps: float = 1e-4,
    ) -> None:
        """Create an empty buffer.

        Args:
            capacity: Number of slots, divided equally among the environments. An episode of T steps occupies
                T + 1 slots, and one slot of each environment stays free. To store n such episodes of one
                environment, pass n · (T + 1) + 1.
            fields: The fields of a step: maps each name to a dict with `shape` (an int or a tuple, default
                `()`, a scalar) and `dtype` (default float32). If a field `next_x` has the same dtype and
                shape as a field `x`, it takes no memory. At least one such pair and `terminated` or `done`
                must be declared.
            num_envs: Number of environments. Each has its own ring.
            autoreset: The mode in which the environments start the next episode: gymnasium's
                `AutoresetMode`, "next_step", "same_step" or "disabled". With "next_step", the step after the
                end of an episode only resets its environment, and is ignored by `add` and `add_step`. None
                means "disabled", and warns once if environments seem to reset in the next step.
            reward: Name of the reward field, whose sum is the return of an episode. The field may be omitted.
            seed: Seed for sampling; None uses entropy from the operating system. A copy of the buffer in
                another process draws other rows, which the seed determines as well.
            check_finite: Whether `add` raises ValueError for NaN and infinity in float fields.
            alpha: Exponent of the priorities, in [0, 1]; 0 samples uniformly.
            eps: Added to each priority, so that steps of priority 0 can be sampled; finite and at least 0.

        Raises:
            MemoryError: If the full buffer would be larger than the memory of the machine or container.
            TypeError: If an argument has the wrong type.
            ValueError: If a value is out of range, or a field that is required is not declared.

        Warns:
            UserWarning: If the full buffer would be larger than the free memory (on Linux only).
        """
        num_envs = checked_at_least("num_envs", num_envs, 1)
        room = checked_size(capacity) // num_envs
        if room < 3:
            raise ValueError(
                f"capacity must be at least {3 * num_envs}, 3 for each environment, not {capacity}: a step, "
                "its final observation and a free slot."
            )
        self._fields = (FiniteFields if checked_flag("check_finite", check_finite) else Fields)(fields)
        self._roles = roles = StepFields(self._fields, reward)
        self._reserve_names("indexes", "weights", "priorities")
        self._next_step = resets_at_next_step(autoreset)
        rules = Prioritization(room * num_envs, np.full(1, NO_PRIORITY), alpha, eps)
        self._ring = EpisodeRing(rules, room, num_envs, roles.stored)
        self._gather, self._gather_nexts = Gather(roles.stored), Gather(selected(roles.stored, roles.nexts))
        self._pair = pair_dtype(roles.stored, roles.nexts)
        self._staged = StagedSteps(1, roles)
        self._rng = Stream(seed)
        self._watch = ResetWatch.for_mode(autoreset, num_envs) if roles.reward else None
        self._layout = {
            "kind": type(self).__name__,
            "size": self._ring.capacity,
            "environments": num_envs,
            "fields": self._fields.described,
            "reward": reward,
            "check_finite": check_finite,
            "alpha": rules.alpha,
            "eps": rules.eps,
            **({"autoreset": "next_step"} if self._next_step else {}),
        }

    def _reserve_names(self, *names: str) -> None:
        """Raise ValueError if a field has the name of another array of a sample, or of an argument."""
        if taken := self._fields.fields.keys() & set(names):
            raise ValueError(
                f"The field names {sorted(taken)} are reserved in {type(self).__name__}; rename the fields."
            )

    def add(self, environment: int = 0, /, *, priorities: Any = None, **fields: Any) -> int | None:
        """Add one step of an environment, or several consecutive steps along axis 0.

        An episode ends with a step whose `terminated`, `truncated` or `done` is true.

        Args:
            environment: Number of the environment, from 0.
            priorities: |TD error|, one per step or one for all steps; None means `max_priority`.
            **fields: One value per field, including the `next_` fields.

        Returns:
            The index of the first step that was added, or None if the only step resets the environment (see
            `autoreset`). Within an episode, the index increases by the number of environments from step to
            step. Indexes are never reused.

        Raises:
            IndexError: If the environment does not exist.
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape, length or value doesn't match its field, a priority is negative or not
                finite, or the `obs` of a step differs from the `next_obs` of the step before it. The buffer
                is then unchanged.
        """
        environment = checked_environment(environment, self._ring.environments)
        count, columns = self._fields.to_columns(fields)
        return self._append(environment, count, columns, priorities)[0]

    def add_step(self, /, *, priorities: Any = None, **fields: Any) -> Integers:
        """Add one step of every environment, as returned by a vector environment.

        Args:
            priorities: |TD error|, one per environment or one for all; None means `max_priority`.
            **fields: One array per field, of shape (environments, …), including the `next_` fields.

        Returns:
            The indexes of the stored steps, int64[n]: one per environment, except those that the step resets
            (see `autoreset`).

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape, length or value doesn't match its field, there isn't one step of each
                environment, a priority is negative or not finite, or the `obs` of a step differs from the
                `next_obs` of the step before it. The buffer is then unchanged.
        """
        count, columns = self._fields.to_columns(fields)
        check_one_of_each(self._ring.environments, count)
        environments = np.arange(count)
        indexes: Integers = self._ring.arrays.rings["head"] * count + environments
        return indexes[self._append(environments, count, columns, priorities)[1]]

    def _append(
        self, environments: Integers | int, count: int, columns: list[Any], priorities: Any
    ) -> tuple[int | None, Any]:
        """Append the steps that don't only reset their environment.

        Return the index of the first one, or None if there is none, and which steps they are.
        """
        if self._iterators:
            self._finish_copies()
        staged, kept = self._staged, ...
        if staged.count != count:
            staged = StagedSteps(count, self._roles)
            if count <= self._ring.environments:  # for the next step of each; a larger batch is freed
                self._staged = staged
        staged.write(environments, columns)
        if self._next_step:
            kept = self._find_transitions(staged)
            if not len(kept):
                return None, kept
            if len(kept) < count:
                staged = staged.selected(kept)
                if priorities is not None and (array := as_array("priorities", priorities)).size == count:
                    priorities = array.reshape(-1)[kept]
        masses, max_priority = self._ring.rules.initial_masses(priorities, staged.count)
        staged.arrays.masses[...] = masses
        arrays, spans = (self._ring.arrays_tuple, staged.arrays_tuple), self._roles.spans
        largest_priority = self._ring.rules.largest_priority
        changes = largest_priority, max(largest_priority.item(0), max_priority), self._window_rule
        index = append_steps(*arrays, spans, *changes)
        if index < 0:
            self._check_consecutive(staged)
            # The bytes differ, but not the values: one is NaN, or 0.0 and the other -0.0.
            index = append_steps(*arrays, spans[:0], *changes)
        if self._watch is not None:
            self._watch = self._watch.see(staged.arrays.environments, staged.arrays.ends, staged.observed)
        return index, kept

    def _find_transitions(self, staged: StagedSteps) -> Integers:
        """Return which steps don't only reset their environment, and prepare the resets after them."""
        rings, environments, ends = self._ring.arrays.rings, staged.arrays.environments, staged.arrays.ends
        if not rings["reset"].any() and not ends.any():  # the usual case
            rings["next_reset"] = TRANSITION
            return np.arange(len(ends))
        continues = ~np.logical_or.reduce([*self._differences(staged).values()])
        kept, resets = find_resets(rings["reset"], environments, ends, continues.item)
        rings["next_reset" if len(kept) else "reset"] = resets
        return kept

    def _differences(self, staged: StagedSteps) -> dict[str, Flags]:
        """Return, for each observation, in which steps it differs from that of the row before the step.

        Before the first step of an episode is the final observation of the last one, unless it was cleared.
        """
        ring, environments, (steps, nexts) = self._ring, staged.arrays.environments, staged.rows
        is_batch = len(steps) > 1 and environments[0] == environments[1]  # consecutive, of one environment
        first = environments[:1] if is_batch else environments
        newest = ring.arrays.rings["head"][first] - ~ring.arrays.rings["running"][first]
        rows, known = ring.rows[slot_of(ring.arrays, first, newest)], newest >= ring.oldest_positions[first]
        differences: dict[str, Flags] = {}
        for name in self._roles.nexts:
            before = np.concatenate([rows[name], nexts[name][:-1]]) if is_batch else rows[name]
            differences[name] = differ(before, steps[name])
            differences[name][: len(first)] &= known
        return differences

    def _check_consecutive(self, staged: StagedSteps) -> None:
        """Raise NotConsecutive if a step does not continue the running episode of its environment."""
        environments, ends = staged.arrays.environments, staged.arrays.ends
        follows = self._ring.arrays.rings["running"][environments]
        if len(ends) > 1 and environments[0] == environments[1]:
            follows[1:] = ~ends[:-1]
        for name, differs in self._differences(staged).items():
            if len(broken := np.flatnonzero(follows & differs)):
                raise NotConsecutive(
                    f"The {name!r} of step {broken[0]} differs from the {self._roles.nexts[name]!r} of the "
                    f"step before it, in environment {environments[broken[0]]}, but no episode ended in "
                    "between. If an episode was cut off, call end_episode(environment)."
                )

    def end_episode(self, environment: int | None = None, /) -> None:
        """End the running episode of an environment, as if its newest step had been truncated.

        This call is necessary only if `terminated`, `truncated` and `done` are all false in the last step, or
        with autoreset="next_step" if you reset the environment yourself. Repeated calls have no effect. After
        an end that the flags reported, the next step is still ignored if its observation is the final one.

        Args:
            environment: Number of the environment; None ends the episodes of all environments.

        Raises:
            IndexError: If the environment does not exist.
        """
        rings, mass = self._ring.arrays.rings, float(self._ring.rules.initial_masses(None, 1)[0])
        for each in chosen_environments(environment, self._ring.environments):
            end_running_episode(self._ring.arrays_tuple, each, self._window_rule, mass)
            if self._watch is not None:
                self._watch.episode_ended(each)
            if self._next_step:
                rings["reset"] = episode_ended(rings["reset"], each)

    def sample(self, batch_size: int, beta: float = 0.4, *, normalize: str = "buffer") -> Batch:
        """Sample steps in proportion to their masses, with replacement; uniformly if alpha is 0.

        O(batch_size · log capacity); allocates the batch.

        Args:
            batch_size: Number of steps.
            beta: Exponent of the importance-sampling weights, in [0, 1]; 1 corrects the bias fully.
            normalize: "buffer" divides the weights by the largest weight in the buffer, "batch" by the
                largest weight in the batch.

        Returns:
            A `Batch`: one array per field, of shape (batch_size, *shape), and two further arrays:
            `indexes`, int64[batch_size], and the importance-sampling `weights`, float32[batch_size]. Rows are
            in ascending order of their slots.

        Raises:
            TypeError: If batch_size is not an integer.
            ValueError: If an argument is out of range, the buffer is empty, or every mass is 0.
        """
        return self._copy(*self._draw(batch_size, beta, normalize=normalize))

    def _draw(
        self, batch_size: int, beta: float = 0.4, *, normalize: str = "buffer"
    ) -> tuple[Any, dict[str, Any]]:
        """Draw steps; return their slots, and the arrays of the batch that are not fields."""
        slots, indexes, weights = self._draw_weighted(batch_size, beta, normalize)
        return slots, {"indexes": indexes, "weights": weights}

    def _copy(self, rows: Any, others: Mapping[str, Any]) -> Batch:
        """Return a batch of copies of the steps that have been drawn, and the other arrays.

        Another thread may call this while no steps are added or changed.
        """
        batch = self._transitions(rows, rows)
        batch.update(others)
        return batch

    def _transitions(self, slots: Integers, lasts: Integers) -> Batch:
        """Return the fields of the steps in slots, with the `next_` fields of the steps in `lasts`."""
        rows, room = self._ring.arrays.rows, self._ring.room
        if self._pair is not None:
            copies = np.empty((len(slots), self._pair.itemsize), np.uint8)
            take_pairs(rows, slots, lasts, room, copies)
            batch: Any = copies.view(self._pair).reshape(-1)
        else:
            batch = self._gather.take(rows, slots)
            nexts = self._gather_nexts.take(rows, next_slots(lasts, room))
            batch |= {next_name: nexts[name] for name, next_name in self._roles.nexts.items()}
        return Batch({name: batch[name] for name in self._fields.fields})

    def _draw_weighted(self, batch_size: int, beta: float, normalize: str) -> tuple[Integers, Integers, Any]:
        """Draw steps by their masses; return their slots, indexes and weights."""
        beta = self._check_draw(batch_size, beta, normalize)
        slots, indexes, weights = self._ring.draw(self._rng.random(batch_size), beta, normalize == "buffer")
        check_weights(weights, self._rng, batch_size)
        return slots, indexes, weights

    def _check_draw(self, batch_size: int, beta: float, normalize: str) -> float:
        """Check the arguments of `sample`, and that a step can be drawn; return beta."""
        check_batch_size(batch_size)
        beta = check_weight_options(beta, normalize)
        if self._ring.tree.total == 0.0:
            self._check_not_empty(batch_size)
            self._ring.tree.check_total()
        return beta

    def _check_not_empty(self, batch_size: int) -> None:
        if self._ring.stored == 0:
            raise ValueError(f"Can't sample {batch_size} steps: the buffer is empty. Add some first.")

    def _masses_of(self, indexes: Integers) -> Floats:
        """Return the masses of steps, each of which must be stored and be the start of a window."""
        slots = self._ring.find(indexes)
        self._check_stored(indexes, slots != GONE)
        if len(wrong := indexes[self._ring.arrays.kinds[slots] != START]):
            raise IndexError(f"The step with index {wrong[0]} has no priority: no window begins there.")
        return self._ring.tree.leaves[slots]

    def probabilities(self, indexes: npt.ArrayLike) -> Floats:
        """Return the probability with which `sample` draws each row; not by episode, and not with `online`.

        Args:
            indexes: The `indexes` of a sample, int[n].

        Returns:
            float64[n], the mass of each row divided by the total mass.

        Raises:
            IndexError: If a row is not stored, or is not the start of a window.
            TypeError: If the indexes are not integers.
            ValueError: If every mass is 0.
        """
        self._ring.tree.check_total()
        return self._masses_of(as_integers("indexes", indexes)) / self._ring.tree.total

    @property
    def num_windows(self) -> int:
        """Number of rows that can be drawn: steps or, in a `SequenceReplayBuffer`, windows."""
        return int(self._ring.arrays.rings["windows"].sum())

    def update_fields(self, indexes: npt.ArrayLike, /, **fields: Any) -> npt.NDArray[np.bool_]:
        """Overwrite fields of steps, for example to store new targets or recurrent states.

        The `next_obs` of a step is the `obs` in the next slot, so new values of `obs` also change the
        `next_obs` of the previous steps. New rewards don't change the returns that `episodes` lists.

        Args:
            indexes: The `indexes` of a sample or an episode, int[n]. If an index is repeated, its last value
                counts.
            **fields: New values of shape (n, *shape), for any fields except `terminated`, `truncated`, `done`
                and `next_` fields such as `next_obs`.

        Returns:
            Whether each step is still stored, bool[n]; steps that have been overwritten or evicted are
            ignored.

        Raises:
            IndexError: If an index has not been assigned to any step, or belongs to a final observation.
            KeyError: If a field is unknown, or can't be changed.
            TypeError: If the indexes are not integers, or a value is not numeric.
            ValueError: If a shape, length or value doesn't match its field. The buffer is then unchanged.
        """
        checked = as_integers("indexes", indexes)
        slots, values = self._ring.find(checked), dict(flatten(fields))
        ends, stored = self._roles.ends, slots != GONE
        allowed = {name: spec for name, spec in self._ring.fields.specs.items() if name not in ends}
        if unknown := values.keys() - allowed.keys():
            raise KeyError(f"can't update {sorted(unknown)}; update_fields accepts {list(allowed)}")
        if not len(checked) or not values:
            return stored
        changed = type(self._fields)({name: allowed[name] for name in values})
        count, columns = changed.to_columns(values)
        if count != len(checked):
            raise ValueError(
                f"There are {len(checked)} indexes, but the fields have {count} values; pass one per index."
            )
        self._finish_copies()
        rows, records = self._ring.rows, changed.to_rows(count, columns)[stored]
        targets: list[Any] = [rows[name] for name in values]
        sources: list[Any] = [records[name] for name in values]
        list(map(setitem, targets, repeat(slots[stored]), sources))  # atomic: Ctrl-C can't interrupt one call
        return stored

    def _rows(self, indexes: Integers) -> tuple[Batch, Flags]:
        slots = self._ring.find(indexes)
        stored = slots != GONE
        return self._transitions(slots[stored], slots[stored]), stored

    @property
    def indexes(self) -> Integers:
        """The indexes of all stored steps, oldest first: int64[len(buffer)], a new array."""
        arrays = self._ring.arrays
        return np.sort(arrays.slots["index"][arrays.kinds != NO_STEP])

    def episodes(self) -> Batch:
        """List the stored episodes, in the order of their numbers. O(capacity).

        Overwritten and evicted episodes are not listed. A partly overwritten episode is listed with its
        remaining steps.

        Returns:
            A `Batch` with one entry per episode: `episode`, its number, int64, which is never reused;
            `environment`, int64; `start`, the index of its first stored step, int64; `length`, its number of
            stored steps, int64; `return`, the sum of all its rewards, float64; `tag`, int64; `finished`,
            whether it has ended, bool; `whole`, whether all its steps are stored, bool.
        """
        ring, numbers = self._ring, self._ring.all_episodes()
        found = ring.look_up(numbers)
        entries, firsts = found.entries[found.stored], found.firsts[found.stored]
        environments = found.environments[found.stored]
        return Batch(
            {
                "episode": numbers[found.stored],
                "environment": environments,
                "start": firsts * ring.environments + environments,
                "length": found.ends[found.stored] - firsts,
                "return": ring.arrays.table["reward_sum"][entries],
                "tag": ring.arrays.table["tag"][entries],
                "finished": ~found.running[found.stored],
                "whole": ring.arrays.table["start"][entries] == firsts,
            }
        )

    def get_episode(self, episode: int) -> Batch:
        """Return a copy of one stored episode.

        Args:
            episode: The number of the episode, from `episodes`. It can be running or partly overwritten.

        Returns:
            A `Batch`: one array per field, of shape (T, *shape) for T stored steps. Observations, such as
            `obs`, have the shape (T + 1, *shape), because the final observation is included; their `next_`
            fields are omitted. `indexes` are the indexes of the steps, int64[T].

        Raises:
            IndexError: If the episode has not begun, or is no longer stored.
            TypeError: If `episode` is not an integer.
        """
        found = self._look_up(as_integers("episode", checked_integer("episode", episode)))
        if not found.stored[0]:
            raise IndexError(
                f"Episode {episode} is no longer stored: it was overwritten or evicted. `episodes` lists the "
                "stored episodes."
            )
        environment, first, end = int(found.environments[0]), int(found.firsts[0]), int(found.ends[0])
        positions = np.arange(first, end + 1)
        rows = self._gather.take(self._ring.arrays.rows, slot_of(self._ring.arrays, environment, positions))
        batch = Batch({name: rows[name] if name in self._roles.nexts else rows[name][:-1] for name in rows})
        batch["indexes"] = positions[:-1] * self._ring.environments + environment
        return batch

    def tag(self, episodes: npt.ArrayLike, tag: npt.ArrayLike) -> None:
        """Tag episodes with integers, which `episodes` lists; the initial tag is 0.

        Args:
            episodes: Numbers of episodes, int or int[n]. Episodes that are no longer stored are ignored.
            tag: One integer for all episodes, or int[n].

        Raises:
            IndexError: If an episode has not begun.
            TypeError: If the numbers or the tags are not integers.
            ValueError: If the lengths differ.
        """
        found, tags = self._look_up(as_integers("episodes", episodes)), as_integers("tag", tag, ValueError)
        if len(tags) not in (1, len(found.entries)):
            raise ValueError(
                f"There are {len(found.entries)} episodes, but {len(tags)} tags; pass one for each, or one."
            )
        entries, tags = found.entries[found.stored], np.broadcast_to(tags, found.stored.shape)[found.stored]
        self._ring.arrays.table["tag"][entries] = tags

    def evict(self, episodes: npt.ArrayLike) -> None:
        """Remove episodes. Their memory is reused when the ring of their environment reaches it.

        Args:
            episodes: Numbers of episodes, int or int[n]. Episodes that are no longer stored are ignored.

        Raises:
            IndexError: If an episode has not begun.
            TypeError: If the numbers are not integers.
            ValueError: If an episode is running, or windows cross the ends of episodes. The buffer is then
                unchanged.
        """
        if self._window_rule[2] == CROSS:
            raise ValueError(
                'With boundary="cross", no episode can be evicted: windows of other episodes continue in it.'
            )
        numbers = as_integers("episodes", episodes)
        found = self._look_up(numbers)
        if (found.stored & found.running).any():
            raise ValueError(
                f"Episode {numbers[found.stored & found.running][0]} is running and can't be evicted. Wait "
                "until it ends, or call end_episode(environment)."
            )
        evict_episodes(self._ring.arrays_tuple, found.entries[found.stored])

    def keep_best(self, n: int, by: str = "return") -> None:
        """Evict all finished episodes except the best n. Running episodes are kept, in addition to these.

        Args:
            n: Number of finished episodes to keep, at least 0. Of equally good episodes of an environment,
                the newest are kept.
            by: The array of `episodes` by which episodes are compared, such as "return", "length" or "tag".
                The largest values are the best, and NaN is the worst.

        Raises:
            KeyError: If `episodes` has no array `by`.
            TypeError: If n is not an integer.
            ValueError: If n is negative.
        """
        if checked_integer("n", n) < 0:
            raise ValueError(f"n must be at least 0, not {n}.")
        table = self.episodes()
        if not isinstance(by, str) or by not in table:
            raise KeyError(f"by is {by!r}, which `episodes` doesn't list; it lists {list(table)}")
        finished, score = table["episode"][table["finished"]], table[by][table["finished"]]
        best_last = finished[np.lexsort((score, ~np.isnan(score)))]  # stable; NaN first
        self.evict(best_last[: max(0, len(best_last) - n)])

    def clear(self) -> None:
        """Remove all episodes and priorities. Indexes and episode numbers continue to increase."""
        self.__dict__.update(self._cleared())  # atomic: Ctrl-C can only interrupt before or after

    def _cleared(self) -> dict[str, Any]:
        """Return new values of the attributes that `clear` replaces."""
        return {"_ring": self._ring.cleared(), "_loaded_ahead": ()}

    def _state(self) -> tuple[dict[str, Any], archive.Arrays]:
        counters = {"stale_updates": self.stale_updates, "random_state": self._rng.state}
        arrays = state_of(self._ring, self._next_step)
        return counters, arrays | {"seen": [self._ring.rules.largest_priority]}

    def _from_state(self, counters: dict[str, Any], reader: archive.Reader) -> Self:
        loaded, largest = self._with_shared_parts(), np.zeros(1)
        loaded._rng = archive.checked_generator(counters)
        ring = loaded._ring = ring_from_state(reader, self._ring, self._window_rule, self._next_step)
        reader.read_into("seen", [largest])
        ring.rules.check_loaded(ring.tree.leaves, largest[0])
        ring.rules = ring.rules.with_max(largest[0])
        ring.rules.stale_updates[0] = archive.checked_count(counters, "stale_updates")
        return loaded

    def _look_up(self, numbers: Integers) -> Episodes:
        """Return the entries of episodes, which must have begun."""
        begun = self._ring.arrays.rings["episodes"][numbers % self._ring.environments]
        unknown = (numbers < 0) | (numbers // self._ring.environments >= begun)
        if unknown.any():
            raise IndexError(
                f"There is no episode {numbers[unknown][0]}; `episodes` lists the stored episodes."
            )
        return self._ring.look_up(numbers)

    def _check_indexes(self, indexes: Integers) -> None:
        """Raise IndexError if an index has not been assigned to a step, or belongs to a final observation."""
        self._ring.find(indexes)

    @property
    def max_priority(self) -> float:
        """The priority of steps that are added without one: the largest that any step has had.

        It is 1.0 until a priority has been set, and this 1.0 counts if steps have been added with it. All
        priorities of an index that is repeated in one update count.
        """
        return self._ring.rules.max_priority

    def next_index_of(self, environment: int = 0, /) -> int:
        """Return the index of the next step of an environment.

        Args:
            environment: Number of the environment.

        Returns:
            The index. If the running episode ends before the step is added, the index increases, because
            the final observation occupies one more slot.

        Raises:
            IndexError: If the environment does not exist.
        """
        return self._ring.next_index(checked_environment(environment, self._ring.environments))

    @property
    def nbytes(self) -> int:
        """Bytes reserved for steps."""
        return self._ring.arrays.rows.nbytes


def selected(fields: Fields, names: Iterable[str]) -> Fields:
    """Return some of the fields, with their offsets in the whole record."""
    selection = copy.copy(fields)
    selection.fields = {name: fields.fields[name] for name in names}
    return selection
