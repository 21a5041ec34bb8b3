"""The sequence buffer: samples windows of consecutive steps of one episode, for recurrent networks.

The learner unrolls its network over the burn-in, without a gradient, to obtain a recurrent state, and learns
from the steps after it. Padding gives all windows the same shape, and two masks distinguish their entries:

    time     0   1   2 | 3   4   5   6   7   8      burn_in = 3, length = 5: the window that starts at step 2
    obs      -   s0  s1  s2  s3  s4  s5  s6  -      of an episode of 6 steps; s6 is its final observation
    valid    0   1   1 | 1   1   1   1   0          real steps, as opposed to padding
    learn    0   0   0 | 1   1   1   1   0          steps to learn from

With boundary="cross", the window continues in the next episode instead, for models that reset their state:

    obs      -   s0  s1  s2  s3  s4  s5  s6  s0     `learn` as above, because no step was taken at s6
    is_first 0   1   0   0   0   0   0   0          the first step of an episode

A window *starts* at its first learned step. The leaf of this step contains the mass of the window, so that
windows are drawn, prioritized and overwritten like single steps.

Sources: Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2),
sections 2.3 and 3; for `online` and "cross", Hafner et al. 2023, "Mastering Diverse Domains through World
Models".

Built in chapter 09, *Sequences*.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, Unpack

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.cast import as_array, cast
from replay_tutorial.buffers.episodes.episode_replay import EpisodeOptions, EpisodeReplayBuffer, selected
from replay_tutorial.buffers.episodes.episode_returns import parse_returns, sum_rewards
from replay_tutorial.buffers.episodes.episode_ring import (
    CROSS,
    DROP,
    NO_STEP,
    PAD,
    RUNNING,
    SHIFT,
    START,
    ArraysTuple,
    EpisodeArrays,
    Episodes,
    WindowRule,
    entry_of,
    has_shifted_window,
    locate,
    oldest_position,
    slot_of,
)
from replay_tutorial.buffers.fields import FieldSpecs, field_names
from replay_tutorial.buffers.gather import ArraySpec, Gather, array_specs
from replay_tutorial.buffers.inherited_options import accepts_options_of
from replay_tutorial.buffers.n_step.settings import NStep, ParsedNStep
from replay_tutorial.buffers.priorities import check_weight_options
from replay_tutorial.buffers.rows import check_batch_size, checked_at_least, checked_flag, random_below
from replay_tutorial.buffers.runtime.jit import Flags, Floats, Integers, jitable, kernel, types

BOUNDARIES = {"pad": PAD, "shift": SHIFT, "drop": DROP, "cross": CROSS}
Boundary = Literal["pad", "shift", "drop", "cross"]
Lengths = tuple[int, int, int]  # burn_in, length, n
IntegerMatrix = Annotated[npt.NDArray[np.int64], types.int64[:, ::1]]
FlagMatrix = Annotated[npt.NDArray[np.bool_], types.boolean[:, ::1]]


class WindowEntries(NamedTuple):
    """Where the entries of n windows are."""

    slots: IntegerMatrix  # [n, total], that of the last row, which is zero, for padding
    valid: FlagMatrix  # [n, total], initially false
    learn: FlagMatrix  # [n, total], initially false
    # Time of the observation n steps later, or of the last observation of the episode.
    bootstraps: IntegerMatrix  # [n, total], or [n, 0] if they aren't needed
    indexes: Integers  # [n], indexes of the first learned steps


EntriesTuple = Annotated[tuple[Any, ...], WindowEntries]  # as `ArraysTuple`


@kernel
def locate_windows(
    arrays_tuple: ArraysTuple, starts: Integers, lengths: Lengths, crosses: bool, entries_tuple: EntriesTuple
) -> None:
    """Write the entries of the windows that start in the slots `starts`.

    With `crosses`, they continue in other episodes, whose ends `mark_ends` marks.
    """
    arrays, (slots, valid, learn, bootstraps, indexes) = EpisodeArrays(*arrays_tuple), entries_tuple
    burn_in, length, n = lengths
    room, padding = arrays.kinds.shape[0] // arrays.rings.shape[0], arrays.kinds.shape[0]
    total = burn_in + length + n
    positions, firsts, ends = np.empty_like(starts), np.empty_like(starts), np.empty_like(starts)
    locate(arrays_tuple, starts, positions, firsts, ends)
    for i in range(starts.shape[0]):
        environment, zero = starts[i] // room, positions[i] - burn_in  # the position of time 0
        if crosses:
            ring = arrays.rings[environment]
            firsts[i], ends[i] = oldest_position(arrays, environment), ring.head - (0 if ring.running else 1)
        first, stop = max(firsts[i] - zero, 0), ends[i] - zero  # times of first step and last observation
        indexes[i] = arrays.slots[starts[i]].index
        slots[i] = padding
        first_slot = slot_of(arrays, environment, zero + first)
        real, to_wrap = min(stop + 1, total) - first, room - first_slot % room
        for k in range(real):
            slots[i, first + k] = first_slot + k - (0 if k < to_wrap else room)
        valid[i, first : min(stop, total)] = True
        learn[i, burn_in : min(stop, total)] = True
        for time in range(bootstraps.shape[1]):
            bootstraps[i, time] = min(max(time, first) + n, stop)


@kernel
def mark_ends(
    arrays_tuple: ArraysTuple, lengths: Lengths, entries_tuple: EntriesTuple, is_first: FlagMatrix
) -> None:
    """Mark the steps that begin an episode, and correct the entries that are, or lead to, its end."""
    arrays, (slots, valid, learn, bootstraps, _) = EpisodeArrays(*arrays_tuple), entries_tuple
    environments, padding = arrays.rings.shape[0], arrays.kinds.shape[0]
    for i in range(slots.shape[0]):
        for time in range(slots.shape[1]):
            slot = slots[i, time]
            if slot == padding:
                continue
            is_step, index = arrays.kinds[slot] != NO_STEP, arrays.slots[slot].index
            entry, position = arrays.table[arrays.slots[slot].entry], index // environments
            valid[i, time] &= is_step
            learn[i, time] &= is_step
            is_first[i, time] = is_step and position == entry.start
            if time < bootstraps.shape[1]:
                end = arrays.rings[index % environments].head if entry.end == RUNNING else entry.end
                bootstraps[i, time] = time + min(lengths[2], end - position)


@jitable
def next_window(arrays: Any, environment: int, position: int, rule: WindowRule) -> int:
    """Return the first position, from `position` on, where a window starts or where one may start later."""
    ring, position = arrays.rings[environment], max(position, oldest_position(arrays, environment))
    length, _, boundary = rule
    undecided = ring.head - (length if boundary == CROSS else 0)
    if ring.running and boundary != CROSS:
        entry = entry_of(arrays, environment, ring.episodes - 1)
        undecided = max(ring.head - length, arrays.table[entry].start)
    while position < undecided and arrays.kinds[slot_of(arrays, environment, position)] != START:
        position += 1
    return position


@kernel
def serve_new_windows(arrays_tuple: ArraysTuple, rule: WindowRule, served: Integers, slots: Integers) -> int:
    """Write the slots of new windows, in the order of their indexes, and return their number.

    `served`, int64[environments], are the positions before which every window has already been sampled.
    """
    arrays, environments, count = EpisodeArrays(*arrays_tuple), served.shape[0], 0
    for environment in range(environments):
        served[environment] = next_window(arrays, environment, served[environment], rule)
    while count < slots.shape[0]:
        oldest = -1
        for environment in range(environments):
            slot = slot_of(arrays, environment, served[environment])
            if arrays.kinds[slot] == START and (oldest < 0 or served[environment] < served[oldest]):
                oldest = environment
        if oldest < 0:
            break
        slots[count] = slot_of(arrays, oldest, served[oldest])
        count += 1
        served[oldest] = next_window(arrays, oldest, served[oldest] + 1, rule)
    return count


class SequenceReplayBuffer(EpisodeReplayBuffer):
    """An episode buffer that samples windows of consecutive steps.

    A window consists of up to `burn_in` steps to unroll and up to `length` steps to learn from. In every
    episode, a window starts at step 0, period, 2·period and so on, which is its first step to learn from. It
    is available as soon as its last step has been added. `boundary` determines what happens to windows that
    would extend beyond the end of the episode:

    - "pad": they are padded and available, so that every step is learned if period ≤ length;
    - "shift": one window that ends with the last step replaces them, if there are any; it is padded only if
      the episode is shorter than `length`;
    - "drop": they are not available;
    - "cross": they continue in the next episode of the environment, so that no window is padded after its
      start. The final observation of an episode is an entry without a step, for which `valid` and `learn`
      are false. The mask `is_first` marks the steps at which a model must reset its state. With period 1,
      windows are drawn uniformly over all start positions, as DreamerV3 does. Episodes can't be evicted.

    A window is removed when its first learned step is overwritten; before that, its burn-in becomes shorter.
    Each priority belongs to a window: `add(priorities=…)` sets the priority of the window that the step
    completes, and `update_priorities` takes the `indexes` of a sample and the result of
    `sequence_priorities`.

    Built in chapter 09, *Sequences*.

    Example:
        >>> number, flag = {}, {"dtype": bool}
        >>> fields = {"obs": number, "reward": number, "next_obs": number, "terminated": flag}
        >>> buffer = SequenceReplayBuffer(1000, fields, 4, burn_in=2, period=2, seed=0)
        >>> for step in range(5):
        ...     index = buffer.add(obs=step, reward=1, next_obs=step + 1, terminated=step == 4)
        >>> sample = buffer.sample(3)  # the windows that start at steps 0, 2 and 4
        >>> sample["obs"].astype(int).tolist()  # 5 is the final observation
        [[0, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 0], [2, 3, 4, 5, 0, 0, 0]]
        >>> sample["learn"].astype(int).tolist()
        [[0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0], [0, 0, 1, 0, 0, 0]]
    """

    @accepts_options_of(EpisodeReplayBuffer.__init__)
    def __init__(
        self,
        capacity: int,
        fields: FieldSpecs,
        length: int,
        *,
        burn_in: int = 0,
        period: int = 1,
        boundary: Boundary = "pad",
        first_of: str | Sequence[str] = (),
        n_step: int | NStep | None = None,
        gamma: float | None = None,
        online: bool = False,
        **options: Unpack[EpisodeOptions],
    ) -> None:
        """Create an empty buffer.

        Args:
            capacity: Number of slots, divided equally among the environments, at least length + 2 for each.
                An episode of T steps occupies T + 1 slots, and one slot of each environment stays free.
            fields: The fields of a step: maps each name to a dict with `shape` (an int or a tuple, default
                `()`, a scalar) and `dtype` (default float32). If a field `next_x` has the same dtype and
                shape as a field `x`, it takes no memory. At least one such pair and `terminated` or `done`
                must be declared.
            length: Number of steps to learn from, at least 1.
            burn_in: Number of steps to unroll before them, at least 0. There are fewer at the start of an
                episode.
            period: Number of steps between the starts of consecutive windows. R2D2 uses length / 2.
            boundary: What happens to windows that would extend beyond the end of the episode; see above.
            first_of: Fields that a sample contains only for the first step to unroll, such as the recurrent
                state before this step.
            n_step: n, the number of rewards in a return, or None. A sample then contains n-step returns. Pass
                an `NStep` to sum another field than the reward.
            gamma: The discount factor of `n_step`, in [0, 1]; None means 0.99.
            online: Whether `sample` returns each new window once before it draws random windows. With
                period = length and boundary = "pad", every step is then learned at least once, in order,
                unless its window is overwritten before it is sampled. Requires alpha = 0.
            **options: The keyword arguments of `EpisodeReplayBuffer`, with the same meanings and defaults.

        Raises:
            KeyError: If `first_of` contains an unknown field.
            TypeError: If an argument has the wrong type.
            ValueError: If a value is out of range, or a field that is required is not declared.
        """
        length = checked_at_least("length", length, 1)
        burn_in = checked_at_least("burn_in", burn_in, 0)
        period = checked_at_least("period", period, 1)
        if boundary not in BOUNDARIES:
            raise ValueError(f'boundary must be "pad", "shift", "drop" or "cross", not {boundary!r}.')
        if online and (alpha := options.get("alpha", 0.0)) != 0.0:
            raise ValueError(f"online=True requires alpha=0, not {alpha}: it ignores priorities.")
        firsts = field_names(first_of)
        if isinstance(fields, Mapping):  # at the end of a row, because they aren't copied with the others
            fields = dict(sorted(fields.items(), key=lambda item: item[0] in firsts))
        super().__init__(capacity, fields, **options)
        steps, environments = self._ring.fields, self._ring.environments
        if self._ring.room < length + 2:
            raise ValueError(
                f"capacity must be at least {(length + 2) * environments} for windows of {length} steps, "
                f"length + 2 for each environment, not {capacity}."
            )
        self._n_step = parse_returns(n_step, gamma, self._layout["reward"], steps)
        returns = ("n_step_return", "discount", "bootstrap") if self._n_step else ()
        masks = ("valid", "learn", "is_first") if boundary == "cross" else ("valid", "learn")
        self._reserve_names(*masks, *returns)
        self._check_firsts(firsts)
        self._gather_windows = Gather(selected(steps, [name for name in steps.fields if name not in firsts]))
        self._gather_firsts = Gather(selected(steps, firsts)) if firsts else None
        self._lengths: Lengths = (burn_in, length, self._n_step.n if self._n_step else 1)
        self._window_rule = (length, period, BOUNDARIES[boundary])
        self._served = np.zeros(environments, np.int64)
        self._online = checked_flag("online", online)
        self._layout |= {
            "lengths": list(self._lengths),
            "windows": list(self._window_rule),
            "first_of": list(firsts),
            "n_step": self._n_step and [self._n_step.gamma, *self._n_step.rewards],
            "online": self._online,
        }

    def _check_firsts(self, firsts: Sequence[str]) -> None:
        """Raise an error if `first_of` contains an unknown field, or one that is needed for every step."""
        fields = self._ring.fields.fields
        if unknown := set(firsts) - fields.keys():
            raise KeyError(f"first_of can't contain {sorted(unknown)}; it accepts {list(fields)}")
        returns = (*self._n_step.rewards, self._roles.terminated) if self._n_step else ()
        if wrong := set(firsts) & {*self._roles.nexts, *returns}:
            raise ValueError(f"first_of can't contain {sorted(wrong)}, which a sample needs for every step.")

    @property
    def field_specs(self) -> dict[str, ArraySpec]:
        """The dtype and shape of each array of a sampled window, except `indexes` and `weights`."""
        burn_in, length, n = self._lengths
        firsts = self._layout["first_of"]
        flag, number = np.dtype(np.bool_), np.dtype(np.int64)
        steps, specs = (burn_in + length,), dict[str, ArraySpec]()
        for name, (dtype, shape) in array_specs(self._ring.fields).items():
            times = (burn_in + length + n,) if name in self._roles.nexts else steps
            specs[name] = dtype, shape if name in firsts else (*times, *shape)
        if self._n_step is not None:
            reward = specs[self._n_step.rewards[0]]
            specs |= {"n_step_return": reward, "discount": reward, "bootstrap": (number, steps)}
        masks = ("valid", "learn", "is_first") if self._window_rule[2] == CROSS else ("valid", "learn")
        return specs | dict.fromkeys(masks, (flag, steps))

    def sample(
        self,
        batch_size: int,
        beta: float = 0.4,
        *,
        normalize: str = "buffer",
        by: Literal["window", "episode"] = "window",
        time_major: bool = False,
    ) -> Batch:
        """Sample windows, with replacement.

        Allocates the batch; O(batch_size · (log capacity + burn_in + length)).

        Args:
            batch_size: Number of windows, n.
            beta: Exponent of the importance-sampling weights, in [0, 1]; 1 corrects the bias fully.
            normalize: "buffer" divides the weights by the largest weight in the buffer, "batch" by the
                largest weight in the batch.
            by: "window" draws windows in proportion to their masses, or uniformly if alpha is 0. "episode"
                draws an episode uniformly, then one of its windows, so that short and long episodes are drawn
                equally often; this requires alpha = 0 and windows that end with their episode.
            time_major: Whether time is the first axis, before the window. By default, it is the second axis.

        Returns:
            A `Batch` of arrays, where T is burn_in + length, and N is n with `n_step`, and otherwise 1.
            Padding is zero. With by="window", random windows are in ascending order of their slots.

            - Fields with a next observation, such as `obs`, have the shape (n, T + N, *shape), because they
              continue for N entries after the last step. The final observation of an episode is included.
              Their `next_` fields are omitted.
            - `first_of` fields have the shape (n, *shape).
            - All other fields have the shape (n, T, *shape).
            - `valid`, bool[n, T], is true for real steps, and false for padding.
            - `learn`, bool[n, T], is true for the steps to learn from. The first of them is always at time
              `burn_in`.
            - With boundary="cross", `is_first`, bool[n, T], is true for the first step of an episode. A model
              must reset its state before this step, and start with it at time 0 unless `first_of` contains
              the state.
            - With `n_step`, there are `n_step_return`, the discounted sum of the next N rewards; `discount`,
              γ to the power of their number, or 0 if the last of these steps terminated; and `bootstrap`,
              int64[n, T], the time of the observation after these steps. Fewer than N rewards are summed at
              the end of an episode and at the newest steps of a running episode. The first two arrays have
              the dtype of the reward.
            - `indexes`, int64[n], are the indexes of the first learned steps. The step at time t has the
              index `indexes + (t - burn_in) * environments`.
            - `weights`, float32[n], are importance-sampling weights.

        Raises:
            TypeError: If batch_size is not an integer.
            ValueError: If an argument is out of range, no window is available, or every mass is 0.
        """
        served = self._served
        try:
            drawn = self._draw(batch_size, beta, normalize=normalize, by=by, time_major=time_major)
            return self._copy(*drawn)
        except BaseException:
            self._served = served  # an interrupted or failed call has served no window
            raise

    def _draw(
        self,
        batch_size: int,
        beta: float = 0.4,
        *,
        normalize: str = "buffer",
        by: Literal["window", "episode"] = "window",
        time_major: bool = False,
    ) -> tuple[Any, dict[str, Any]]:
        """Draw windows; return where their steps are, and the arrays of the batch that are not fields."""
        check_batch_size(batch_size)
        beta = check_weight_options(beta, normalize)
        if by not in ("window", "episode"):
            raise ValueError(f'by must be "window" or "episode", not {by!r}.')
        if by == "episode" and (alpha := self._ring.rules.alpha) != 0.0:
            raise ValueError(f'by="episode" requires alpha=0, not {alpha}: it ignores priorities.')
        if by == "episode" and self._window_rule[2] == CROSS:
            raise ValueError('by="episode" requires windows of one episode, not boundary="cross".')
        starts, weights = np.empty(batch_size, np.int64), np.ones(batch_size, np.float32)
        new, served = 0, self._served.copy()
        if self._online:
            new = serve_new_windows(self._ring.arrays_tuple, self._window_rule, served, starts)
        if by == "episode":
            starts[new:] = self._draw_by_episode(batch_size - new)
        elif new < batch_size:
            starts[new:], _, weights[new:] = self._draw_weighted(batch_size - new, beta, normalize)
        entries, is_first = self._locate(starts)
        self._served = served
        return (entries, is_first, time_major), {"indexes": entries.indexes, "weights": weights}

    def _draw_by_episode(self, count: int) -> Integers:
        """Draw episodes uniformly among those with a window, and a window uniformly in each; return slots."""
        ring, rings = self._ring, self._ring.arrays.rings
        if ring.tree.total == 0.0:
            self._check_not_empty(count)
        oldest = ring.oldest_positions
        first = (
            ring.numbers_of(slot_of(ring.arrays, np.arange(ring.environments), oldest)) // ring.environments
        )
        ends = np.cumsum(np.where(oldest < rings["head"], rings["episodes"] - first, 0))
        slots, tries = np.empty(0, np.int64), count
        while len(slots) < count:  # reject episodes without a window
            if tries < 8 * count:
                drawn = random_below(int(ends[-1]), tries, self._rng)
                environments = np.searchsorted(ends, drawn, "right")
                serials = drawn + (rings["episodes"] - ends)[environments]
                found = ring.look_up(serials * ring.environments + environments)
            else:  # few episodes have a window: rejection would be slow
                one_of_each = self._draw_windows(ring.look_up(ring.all_episodes()))
                chosen = one_of_each[random_below(len(one_of_each), count, self._rng)]
                found = ring.look_up(ring.numbers_of(chosen))
            slots, tries = np.concatenate([slots, self._draw_windows(found)]), 2 * tries
        return slots[:count]

    def _draw_windows(self, found: Episodes) -> Integers:
        """Draw a window uniformly in each episode that has one; return their slots."""
        length, period, boundary = self._window_rule
        starts: Integers = self._ring.arrays.table["start"][found.entries]
        steps, first = found.ends - starts, found.firsts - starts
        stop = (steps - length) // period + 1  # window k starts at step k · period, for all k below this
        if boundary == PAD:
            stop = np.where(found.running, stop, (steps - 1) // period + 1)
        oldest = (first + period - 1) // period
        windows, last = np.maximum(stop - oldest, 0), np.maximum(steps - length, 0)
        if boundary == SHIFT:  # one more window ends with the last step
            windows += ~found.running & has_shifted_window(steps, length, period) & (last >= first)
        chosen = oldest + (self._rng.random(len(windows)) * windows).astype(np.int64)
        begins = np.where(chosen < stop, chosen * period, last) if boundary == SHIFT else chosen * period
        return slot_of(self._ring.arrays, found.environments, starts + begins)[found.stored & (windows > 0)]

    def _locate(self, starts: Integers) -> tuple[WindowEntries, Flags | None]:
        """Return the entries of the windows that start in these slots, and which begin an episode."""
        count, total = len(starts), sum(self._lengths)
        valid, learn = np.zeros((2, count, total), np.bool_)
        slots, indexes = np.empty((count, total), np.int64), np.empty(count, np.int64)
        bootstraps = np.empty((count, total if self._n_step else 0), np.int64)
        entries = WindowEntries(slots, valid, learn, bootstraps, indexes)
        arrays, crosses = self._ring.arrays_tuple, self._window_rule[2] == CROSS
        locate_windows(arrays, starts, self._lengths, crosses, tuple(entries))
        is_first = np.zeros_like(valid) if crosses else None
        if is_first is not None:
            mark_ends(arrays, self._lengths, tuple(entries), is_first)
        return entries, is_first

    def _copy(self, rows: tuple[WindowEntries, Flags | None, bool], others: Mapping[str, Any]) -> Batch:
        (slots, valid, learn, bootstraps, _), is_first, time_major = rows
        steps, memory = slots.shape[1] - self._lengths[2], self._ring.arrays.rows
        of_steps: dict[str, Any] = {"valid": valid[:, :steps], "learn": learn[:, :steps]}
        if is_first is not None:
            of_steps["is_first"] = is_first[:, :steps]
        if self._n_step is not None:
            of_steps |= self._returns(self._n_step, slots, of_steps["valid"], bootstraps[:, :steps])
        batch = Batch()
        if self._gather_firsts is not None:
            first_slots = slots[np.arange(len(slots)), valid.argmax(1)]
            batch = self._gather_firsts.take(memory, first_slots)
        if time_major:
            slots, without_last = slots.T, np.s_[:steps]
            of_steps = {name: np.ascontiguousarray(array.swapaxes(0, 1)) for name, array in of_steps.items()}
        else:
            without_last = np.s_[:, :steps]
        for name, array in self._gather_windows.take(memory, slots.ravel(), in_runs=not time_major).items():
            windows = array.reshape(*slots.shape, *array.shape[1:])
            batch[name] = windows if name in self._roles.nexts else windows[without_last]
        batch.update(of_steps)
        batch.update(others)
        return batch

    def _returns(self, n_step: ParsedNStep, slots: Integers, valid: Flags, bootstraps: Integers) -> Batch:
        """Compute the n-step returns, discounts and times of the bootstrap observations."""
        rows, name, (count, steps) = self._ring.rows, n_step.rewards[0], valid.shape
        rewards = rows[name][slots].ravel().astype(np.float64, copy=False)
        terminated = rows[self._roles.terminated][slots].ravel() != 0
        firsts = np.arange(slots.size).reshape(slots.shape)[:, :steps].ravel()
        counts = bootstraps - np.arange(steps, dtype=np.int64)
        counts[~valid] = 0
        returns, discounts = np.empty((2, len(firsts)))
        sum_rewards(
            *(rewards, terminated, firsts, counts.ravel(), n_step.gamma),
            *(returns, discounts, np.empty_like(firsts)),
        )
        field = self._ring.fields.fields[name]
        batch = Batch(bootstrap=np.ascontiguousarray(bootstraps))
        for name, column in (("n_step_return", returns), ("discount", discounts)):
            batch[name] = cast(name, column, field.dtype).reshape(count, steps, *field.shape)
        return batch

    def _state(self) -> tuple[dict[str, Any], archive.Arrays]:
        counters, arrays = super()._state()
        return counters, arrays | {"served": [self._served]}

    def _from_state(self, counters: dict[str, Any], reader: archive.Reader) -> Self:
        loaded = super()._from_state(counters, reader)
        loaded._served = np.zeros_like(self._served)
        reader.read_into("served", [loaded._served])
        if not ((loaded._served >= 0) & (loaded._served <= loaded._ring.arrays.rings["head"])).all():
            raise archive.Damaged("a window is served before its step is added")
        return loaded

    def _check_not_empty(self, batch_size: int) -> None:
        super()._check_not_empty(batch_size)
        if not (self._ring.arrays.kinds == START).any():
            raise ValueError(
                f"Can't sample {batch_size} windows: none is complete. Add more steps. With "
                f'boundary="drop", episodes of fewer than {self._lengths[1]} steps have no window.'
            )


def sequence_priorities(
    td_errors: npt.ArrayLike, learn: npt.ArrayLike, eta: float = 0.9, *, time_major: bool = False
) -> Floats:
    """Return the priority of each window: η · max |δ| + (1 - η) · mean |δ| over its learned steps.

    Example:
        >>> sequence_priorities([[9, 1, -2, 3, 9]], [[False, True, True, True, False]]).round(9).tolist()
        [2.9]

    Args:
        td_errors: TD errors δ, float[n, T]. Values where `learn` is false are ignored, even NaN.
        learn: The mask `learn` of the sample, bool[n, T].
        eta: Weight of the maximum, in [0, 1]; R2D2 uses 0.9.
        time_major: Whether both arrays have the shape [T, n].

    Returns:
        float64[n], the priorities to pass to `update_priorities`.

    Raises:
        ValueError: If the shapes differ, eta is out of range, or a window has no learned step.
    """
    errors = as_array("td_errors", td_errors).astype(np.float64, copy=False)
    mask = as_array("learn", learn).astype(np.bool_, copy=False)
    if errors.ndim != 2 or errors.shape != mask.shape:
        raise ValueError(
            "td_errors and learn must have the same shape (n, T), or (T, n) if time_major, not "
            f"{errors.shape} and {mask.shape}."
        )
    if not 0.0 <= eta <= 1.0:
        raise ValueError(f"eta must be in [0, 1], not {eta}.")
    axis = 0 if time_major else 1
    counts = mask.sum(axis)
    if not counts.all():
        raise ValueError(
            f"The windows {np.flatnonzero(counts == 0).tolist()} have no learned step: `learn` must be true "
            "for at least one step of each window."
        )
    magnitudes = np.where(mask, np.abs(errors), 0.0)
    return eta * magnitudes.max(axis) + (1.0 - eta) * magnitudes.sum(axis) / counts
