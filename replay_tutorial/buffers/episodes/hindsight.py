"""Hindsight experience replay: sampled steps are relabelled with goals that the agent has achieved.

A step (s, a, s', g) of an episode that missed its goal g shows how to reach each of the following states.
With probability `relabel`, a sampled step receives a new goal g* that was achieved later; otherwise, it keeps
its goal:

    draw steps ──▶ draw a goal g* for each ──▶ reward and terminated of its n steps for g* ──▶ n-step return

The goal is drawn first, and the return is summed afterwards. Every sample draws new goals, which therefore
take no memory. The achieved goal of a step is the goal achieved after its action, a part of the next
observation.

Source: Andrychowicz et al. 2017, "Hindsight Experience Replay", algorithm 1 and section 4.5.

Built in chapter 10, *Goals*.
"""

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import numpy as np

from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.cast import as_array, cast
from replay_tutorial.buffers.episodes.episode_replay import EpisodeOptions, EpisodeReplayBuffer
from replay_tutorial.buffers.episodes.episode_returns import parse_returns, sum_rewards
from replay_tutorial.buffers.episodes.episode_ring import NO_STEP, ArraysTuple, EpisodeArrays, locate, slot_of
from replay_tutorial.buffers.episodes.pairs import next_slots
from replay_tutorial.buffers.fields import FieldSpecs
from replay_tutorial.buffers.gather import ArraySpec
from replay_tutorial.buffers.inherited_options import accepts_options_of
from replay_tutorial.buffers.n_step.settings import NStep, ParsedNStep
from replay_tutorial.buffers.rows import checked_number, checked_share, random_below, take_parts
from replay_tutorial.buffers.runtime.jit import Flags, Floats, Integers, int64, kernel
from replay_tutorial.buffers.streams import restore_rng_on_error

STRATEGIES = ("future", "final", "episode", "random")
FUTURE, FINAL, EPISODE, RANDOM = range(4)

# compute_reward and compute_terminated: achieved goals, goals, and the stored fields of the steps
Compute = Callable[[Any, Any, Batch], Any]


@kernel
def choose_goals(
    arrays_tuple: ArraysTuple,
    slots: Integers,
    uniforms: Floats,
    relabel: float,
    strategy: int,
    goal_slots: Integers,
    relabelled: Flags,
) -> None:
    """Choose whether each of n rows is relabelled, and the slot of the observation that contains its goal.

    `uniforms` are two random numbers per row: first n for the choice, then n for the step. For RANDOM, the
    caller has drawn the slots of the goals.
    """
    arrays, count = EpisodeArrays(*arrays_tuple), slots.shape[0]
    room = arrays.kinds.shape[0] // arrays.rings.shape[0]
    positions, starts, ends = np.empty_like(slots), np.empty_like(slots), np.empty_like(slots)
    locate(arrays_tuple, slots, positions, starts, ends)
    ring, head = -room, 0
    for i in range(count):
        if not ring <= slots[i] < ring + room:
            environment = slots[i] // room
            ring, head = environment * room, arrays.rings[environment].head
        if strategy != RANDOM:
            low = starts[i] if strategy == EPISODE else positions[i] if strategy == FUTURE else ends[i] - 1
            step = low + int64(uniforms[count + i] * (ends[i] - low))
            slot = slots[i] + step - positions[i] + 1  # after its action
            goal_slots[i] = slot + room if slot < ring else slot - room if slot >= ring + room else slot
        has_goal = strategy != FINAL or ends[i] != head  # a running episode has no final step yet
        relabelled[i] = has_goal and uniforms[i] < relabel


class HindsightReplayBuffer(EpisodeReplayBuffer):
    """An episode buffer that relabels sampled steps with achieved goals (HER).

    The stored steps don't change. In a sample, a relabelled row contains the new goal, and the reward and
    `terminated` for this goal; `truncated` and all other fields are as stored. Goals are drawn only from
    stored steps, including the remaining steps of a partly overwritten episode.

    A saved file can only be loaded into a buffer with the same `strategy`, `relabel` and `n_step`, so that a
    run can't resume with other goals by mistake. The two functions are not compared: pass the same ones.

    Built in chapter 10, *Goals*.

    Example:
        >>> def reached(achieved, goals, rows):
        ...     return achieved == goals
        >>> number, flag = {"dtype": int}, {"dtype": bool}
        >>> fields = {name: number for name in ("at", "goal", "next_at")} | {"reward": {}}
        >>> buffer = HindsightReplayBuffer(
        ...     *(100, fields | {"terminated": flag}, reached, reached),
        ...     **{"strategy": "final", "relabel": 1.0, "goal": "goal", "achieved_goal": "at"},
        ... )
        >>> for at in range(3):
        ...     index = buffer.add(at=at, goal=50, next_at=at + 1, reward=0, terminated=False)
        >>> buffer.end_episode()
        >>> sample = buffer.sample(32)
        >>> set(sample["goal"].tolist()), np.array_equal(sample["reward"], sample["next_at"] == 3)
        ({3}, True)
    """

    @accepts_options_of(EpisodeReplayBuffer.__init__)
    def __init__(
        self,
        capacity: int,
        fields: FieldSpecs,
        compute_reward: Compute,
        compute_terminated: Compute,
        *,
        strategy: str = "future",
        relabel: float = 0.8,
        goal: str = "obs/desired_goal",
        achieved_goal: str = "obs/achieved_goal",
        n_step: int | NStep | None = None,
        gamma: float | None = None,
        **options: Unpack[EpisodeOptions],
    ) -> None:
        """Create an empty buffer.

        Args:
            capacity: Number of slots, divided equally among the environments. An episode of T steps occupies
                T + 1 slots, and one slot of each environment stays free.
            fields: The fields of a step: maps each name to a dict with `shape` (an int or a tuple, default
                `()`, a scalar) and `dtype` (default float32). If a field `next_x` has the same dtype and
                shape as a field `x`, it takes no memory. The reward, `terminated` or `done`, and the fields
                `achieved_goal` and `next_` + `achieved_goal` must be declared, with the dtype and shape of
                the field `goal`.
            compute_reward: A function that returns the rewards of n steps, n finite numbers. Its arguments
                are the goals achieved after the actions, shape (n, *shape); the goals, shape (n, *shape); and
                a dict of the steps' stored fields, including the `next_` fields, of shape (n, *shape).
                `sample` calls it once, with all steps of all relabelled rows.
            compute_terminated: A function of the same arguments that returns whether each step terminates the
                episode, bool[n]. If an episode can also terminate for another reason than its goal, store the
                reason in a field, and include this field of `rows`, the third argument. Don't include
                `rows["terminated"]`: it is also true where the original goal was reached.
            strategy: The step after which a new goal was achieved. "future": this step or a later step of its
                episode. "final": the last step of the episode; rows of running episodes are not relabelled.
                "episode": any stored step of the episode. "random": any stored step of any episode.
            relabel: The probability that a row is relabelled, in [0, 1]. For k relabelled rows per original
                row (Andrychowicz et al. 2017), pass k / (k + 1).
            goal: Name of the field that contains the goal. If a field `next_` + `goal` is declared, it is
                relabelled, too. The default names are those of gymnasium's GoalEnv; see `fields_from_spaces`.
            achieved_goal: Name of the field that contains the achieved goal.
            n_step: n, the number of rewards in a return, or None. In a sample, the reward is then the n-step
                return, and the `next_` fields and the flags are those of the last step. `discount` is γ^k for
                k rewards, or 0 if the last step terminated.
            gamma: The discount factor of `n_step`, in [0, 1]; None means 0.99.
            **options: The keyword arguments of `EpisodeReplayBuffer`, with the same meanings and defaults.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If a value is out of range, or a field that is required is not declared.
        """
        super().__init__(capacity, fields, **options)
        self._reserve_names("relabelled")
        for compute in (compute_reward, compute_terminated):
            if not callable(compute):
                raise TypeError(
                    f"compute_reward and compute_terminated must be functions, not {compute!r:.60}."
                )
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {list(STRATEGIES)}, not {strategy!r}.")
        self._compute_reward, self._compute_terminated = compute_reward, compute_terminated
        self._strategy, self._relabel = STRATEGIES.index(strategy), checked_number("relabel", relabel)
        if not 0.0 <= self._relabel <= 1.0:
            raise ValueError(
                f"relabel must be in [0, 1], not {relabel}. For k relabelled rows per original row, pass "
                "k / (k + 1)."
            )
        self._goal, self._achieved = goal, achieved_goal
        self._check_fields()
        stored: Any = self._roles.stored
        self._goal_field = (
            stored.fields[achieved_goal],
            stored.dtype.fields[achieved_goal][1],
        )  # and its offset
        self._n_step = self._parse(n_step, gamma)
        self._layout |= {
            "goals": [goal, achieved_goal],
            "strategy": strategy,
            "relabel": self._relabel,
            "n_step": self._n_step and [self._n_step.n, self._n_step.gamma],
        }

    def _check_fields(self) -> None:
        """Raise ValueError if the reward, the goal or an achieved goal is missing, or of another type."""
        declared, achieved_goal = self._fields.fields, self._achieved
        needed = {
            "goal": self._goal,
            "achieved_goal": achieved_goal,
            "next_ + achieved_goal": f"next_{achieved_goal}",
        }
        for argument, name in {**needed, "reward": self._layout["reward"]}.items():
            if name not in declared:
                raise ValueError(
                    f"{argument} is {name!r}, which is not declared; the fields are {list(declared)}. "
                    "Declare it, or pass the names of your fields as goal=, achieved_goal= and reward=."
                )
        goals = [*needed.values(), *({f"next_{self._goal}"} & declared.keys())]
        specs = {name: (str(declared[name].dtype), declared[name].shape) for name in goals}
        if len(set(specs.values())) > 1:
            raise ValueError(
                f"The goal and the achieved goals must have the same dtype and shape, not {specs}."
            )
        if achieved_goal not in self._roles.nexts:
            raise ValueError(
                f"achieved_goal is {achieved_goal!r}, a next observation. Pass its name without "
                "`next_`; the achieved goals are always those after the actions."
            )
        if {"terminated", "done"} <= declared.keys():
            raise ValueError("Declare 'terminated' or 'done', not both: only one of them is recomputed.")

    def _parse(self, n_step: int | NStep | None, gamma: float | None) -> ParsedNStep | None:
        """Check `n_step` and `gamma`; the reward is the one that is recomputed."""
        reward = self._layout["reward"]
        parsed = parse_returns(n_step, gamma, reward, self._fields)
        if parsed is not None and parsed.rewards != (reward,):
            raise ValueError(
                f"n_step: the reward must be {reward!r}, the argument reward, not {parsed.rewards[0]!r}."
            )
        return parsed

    @property
    def field_specs(self) -> dict[str, ArraySpec]:
        """The dtype and shape of each field of a sampled step, and of `relabelled` and `discount`."""
        specs = super().field_specs
        specs["relabelled"] = np.dtype(np.bool_), ()
        if self._n_step is not None:
            specs["discount"] = specs[self._layout["reward"]]
        return specs

    def set_gamma(self, gamma: float) -> None:
        """Change the discount factor of `n_step`, from the next sample on; the stored steps don't change.

        Args:
            gamma: The discount factor per step, in [0, 1].

        Raises:
            ValueError: If the buffer was created without `n_step`, or gamma is out of range.
        """
        if self._n_step is None:
            raise ValueError("The buffer has no gamma, because it was created without n_step.")
        self._n_step = self._n_step._replace(gamma=checked_share("gamma", gamma))
        self._layout["n_step"] = [self._n_step.n, self._n_step.gamma]

    def sample(self, batch_size: int, beta: float = 0.4, *, normalize: str = "buffer") -> Batch:
        """Sample steps as `EpisodeReplayBuffer.sample` does, and relabel some of them.

        The weights correct only for the probabilities of the steps, because the relabelled goals are part of
        the distribution to learn from. Each step has a single priority, so if you pass the |TD error| of
        every row to `update_priorities`, the priorities mix errors for different goals. To use only errors
        for the original goals, select `sample["indexes"][~sample["relabelled"]]` and their errors.

        Args:
            batch_size: Number of rows.
            beta: Exponent of the importance-sampling weights, in [0, 1]; 1 corrects the bias fully.
            normalize: "buffer" divides the weights by the largest weight in the buffer, "batch" by the
                largest weight in the batch.

        Returns:
            The batch that `EpisodeReplayBuffer.sample` returns, and `relabelled`, bool[batch_size]. With
            `n_step`, there is also `discount`, with the dtype and shape of the reward.

        Raises:
            TypeError: If batch_size is not an integer, or a function returns the wrong dtype.
            ValueError: If an argument is out of range, the buffer is empty, every mass is 0, or a function
                returns the wrong shape, NaN or infinity.
        """
        return self._copy(*self._draw(batch_size, beta, normalize=normalize))

    def _draw(
        self, batch_size: int, beta: float = 0.4, *, normalize: str = "buffer"
    ) -> tuple[Any, dict[str, Any]]:
        """Draw rows, and return their batch, because the functions that relabel belong to this thread."""
        with restore_rng_on_error(self._rng):
            batch = self._relabelled(batch_size, beta, normalize)
        return batch, {"indexes": batch["indexes"]}

    def _copy(self, rows: Any, others: Mapping[str, Any]) -> Batch:
        return rows

    def _relabelled(self, batch_size: int, beta: float, normalize: str) -> Batch:
        """Draw rows, and relabel some of them."""
        ring = self._ring
        if self._strategy == RANDOM:
            self._check_draw(batch_size, beta, normalize)
            goal_slots = next_slots(self._random_steps(batch_size), ring.room)
        else:
            goal_slots = np.empty(batch_size, np.int64)
        slots, indexes, weights = self._draw_weighted(batch_size, beta, normalize)
        relabelled, uniforms = np.empty(batch_size, np.bool_), self._rng.random(2 * batch_size)
        choose_goals(
            ring.arrays_tuple, slots, uniforms, self._relabel, self._strategy, goal_slots, relabelled
        )
        (rows,) = relabelled.nonzero()
        goal, start = self._goal_field
        goals: Any = np.empty((len(rows), goal.nbytes), np.uint8)
        take_parts(ring.arrays.rows, goal_slots[rows], start, goals, goal.nbytes)
        goals = goals.view(goal.dtype).reshape(-1, *goal.shape)
        if self._n_step is None:
            batch = self._transitions(slots, slots)
            self._write(batch, rows, self._outcomes(slots[rows], goals))
        else:
            batch = self._sum_windows(self._n_step, slots, relabelled, goals)
        for name in {self._goal, self._roles.nexts.get(self._goal, self._goal)}:
            batch[name][rows] = goals
        batch["indexes"], batch["weights"], batch["relabelled"] = indexes, weights, relabelled
        return batch

    def _sum_windows(self, n_step: ParsedNStep, slots: Integers, relabelled: Flags, goals: Any) -> Batch:
        """Return the n-step rows of steps; `goals` are those of the relabelled rows."""
        ring, reward, flag = self._ring, self._layout["reward"], self._roles.terminated
        rows = ring.rows
        positions, starts, ends = np.empty((3, len(slots)), np.int64)
        locate(ring.arrays_tuple, slots, positions, starts, ends)
        counts = np.minimum(ends - positions, n_step.n)
        steps = np.arange(int(counts.max()))
        environments = slots[:, None] // ring.room
        window = slot_of(ring.arrays, environments, positions[:, None] + steps)  # [batch, steps]
        rewards = rows[reward][window].reshape(window.shape).astype(np.float64)
        terminated = rows[flag][window].reshape(window.shape) != 0
        changed = relabelled[:, None] & (steps < counts[:, None])
        outcomes = self._outcomes(window[changed], goals.repeat(counts[relabelled], 0))
        rewards[changed], terminated[changed] = outcomes.values()
        firsts, lasts = np.arange(len(slots)), np.empty(len(slots), np.int64)
        firsts *= len(steps)
        returns, discounts = np.empty((2, len(slots)))
        sum_rewards(
            *(rewards.ravel(), terminated.ravel(), firsts, counts, n_step.gamma), *(returns, discounts, lasts)
        )
        last_slots, flags = window.ravel()[lasts], terminated.ravel()[lasts]
        batch = self._transitions(slots, last_slots)
        for name in ring.fields.fields:  # stored fields that a row takes from its last step
            if name in self._roles.ends or name.startswith("next_"):
                batch[name] = rows[name][last_slots]
        batch["discount"] = np.empty_like(batch[reward])
        self._write(batch, np.s_[:], {reward: returns, flag: flags, "discount": discounts})
        return batch

    def _write(self, batch: Batch, rows: Any, columns: Mapping[str, Any]) -> None:
        """Write columns of shape (n,) to some rows of a batch, if the dtypes of the fields can hold them."""
        for name, column in columns.items():
            field = batch[name]
            field[rows] = cast(name, column, field.dtype).reshape(-1, *field.shape[1:])

    def _random_steps(self, count: int) -> Integers:
        """Draw stored steps uniformly, from all environments; return their slots, int64[count]."""
        ring, arrays = self._ring, self._ring.arrays
        limits = np.cumsum(arrays.rings["head"] - ring.oldest_positions)
        if ring.stored * 8 < limits[-1]:  # most steps have been evicted: rejection would be slow
            stored = np.flatnonzero(arrays.kinds != NO_STEP)
            return stored[random_below(len(stored), count, self._rng)]
        slots, missing = np.empty(count, np.int64), np.arange(count)
        while len(missing):
            drawn = random_below(int(limits[-1]), len(missing), self._rng)
            environments = np.searchsorted(limits, drawn, "right")
            positions = arrays.rings["head"][environments] - limits[environments] + drawn
            slots[missing] = slot_of(arrays, environments, positions)
            missing = missing[arrays.kinds[slots[missing]] == NO_STEP]
        return slots

    def _outcomes(self, slots: Integers, goals: Any) -> Batch:
        """Return the rewards of the steps in slots for new goals, and whether the steps terminate."""
        outcomes = Batch()
        for field, name, compute, kinds in (
            (self._layout["reward"], "compute_reward", self._compute_reward, "biuf"),
            (self._roles.terminated, "compute_terminated", self._compute_terminated, "b"),
        ):
            if not len(slots):
                outcomes[field] = np.empty(0, np.bool_)
                continue
            rows = self._transitions(slots, slots)  # for each, because a function may change its arguments
            outcome = compute(rows[f"next_{self._achieved}"], goals.copy(), rows)
            outcomes[field] = checked_result(name, outcome, len(slots), kinds)
        return outcomes


def checked_result(name: str, result: Any, count: int, kinds: str) -> Any:
    """Return the result of a user's function as an array of shape (count,), if it is valid."""
    array = as_array(f"The result of {name}", result)
    if array.shape not in ((count,), (count, 1)):
        raise ValueError(
            f"{name} must return one value per step, an array of shape ({count},), not {array.shape}."
        )
    if array.dtype.kind not in kinds:
        wanted = "bool" if kinds == "b" else "real numbers"
        raise TypeError(f"{name} must return {wanted}, not {array.dtype}.")
    if kinds != "b" and not np.isfinite(array).all():
        raise ValueError(f"{name} returned {array[~np.isfinite(array)].flat[0]}; rewards must be finite.")
    return array.reshape(count)
