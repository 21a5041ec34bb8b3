"""Episodes in rings: each step is stored once, followed by the final observation of its episode.

Each environment has a ring of slots. An episode of T steps occupies T + 1 consecutive slots, the last of
which holds only the final observation. The next observation of a step is therefore the observation in the
next slot, and a terminated or truncated episode keeps its true final observation:

    position   40  41  42  43 | 44  45 | 46  47        an episode of 3 steps, one of 1 step,
    holds      s   s   s   f  | s   f  | s   f         and a running one of 1 step so far

While an episode is running, the slot after its newest step holds the newest observation. Positions are
counted from 0 for each environment and never reused. With P slots per environment, environment e stores
position p in slot `e * P + p % P`. The index of a step is `p * environments + e`, so it identifies both.

A sum tree has one leaf per slot. Only steps that can be sampled have a mass above 0: not final observations,
and not steps that have been overwritten or evicted. In a sequence buffer, only steps where a window starts
have one.

Built in chapter 09, *Sequences*.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Fields, Rows, as_bytes
from replay_tutorial.buffers.n_step.autoreset import ResetChange
from replay_tutorial.buffers.n_step.returns import Spans
from replay_tutorial.buffers.rows import bytes_differ, copy_row
from replay_tutorial.buffers.runtime.jit import Bytes, Flags, Floats, Integers, int64, jitable, kernel, types
from replay_tutorial.buffers.runtime.machine_memory import check_memory
from replay_tutorial.buffers.sum_tree import SumTree, first_leaf, recompute_above

Kinds = Annotated[npt.NDArray[np.uint8], types.uint8[::1]]

# What a slot holds: nothing or a final observation, a step, or a step where a window starts.
NO_STEP, STEP, START = 0, 1, 2
RUNNING = -1  # the end of an episode that has not ended
# What happens to the windows that the end of an episode cuts off.
PAD, SHIFT, DROP = 0, 1, 2


class RingArrays(NamedTuple):
    """The arrays that the kernels read and write.

    Environment e has P slots, from e * P on, and S entries in the table of episodes, from e * S on. The
    episodes of each environment have serial numbers, which are never reused; the episode with the number
    `serial` has the entry `e * S + serial % S`.
    """

    rows: Bytes  # [environments * P + 1, bytes]; the last row remains zero, for padding
    kinds: Kinds  # [environments * P], NO_STEP, STEP or START
    serials: Integers  # [environments * P], the serial number of the episode in each slot
    starts: Integers  # [environments * S], position of the first step
    ends: Integers  # [environments * S], position of the final observation, or RUNNING
    returns: Floats  # [environments * S], sum of the rewards
    tags: Integers  # [environments * S], set by the user, initially 0
    evicted: Flags  # [environments * S]
    heads: Integers  # [environments], the next position
    floors: Integers  # [environments], the first position that `clear` has not removed
    episodes: Integers  # [environments], number of episodes that have begun
    running: Flags  # [environments], whether an episode is running
    stored: Integers  # [environments], number of stored steps
    sums: Floats  # of the tree
    minima: Floats


# The same as a plain tuple, the form in which Python passes it: see `jit.numba_type`.
Plain = Annotated[tuple[Any, ...], RingArrays]

Windows = tuple[int, int, int]  # length, period, and PAD, SHIFT or DROP


@jitable
def oldest_position(arrays: Any, environment: int) -> int:
    """Return the oldest position that has not been overwritten or cleared."""
    count = arrays.kinds.shape[0] // arrays.heads.shape[0]
    return max(arrays.floors[environment], arrays.heads[environment] - count + 1)


@jitable
def vacate(arrays: Any, environment: int, position: int) -> int:
    """Remove the step in the slot of a position, and set the slot's leaf to 0; return the slot."""
    count = arrays.kinds.shape[0] // arrays.heads.shape[0]
    slot = environment * count + position % count
    if arrays.kinds[slot] != NO_STEP:
        arrays.stored[environment] -= 1
    arrays.kinds[slot] = NO_STEP
    arrays.sums[int64(first_leaf(arrays.sums)) + slot] = 0.0
    return slot


@jitable
def start_window(arrays: Any, environment: int, position: int, mass: float) -> int:
    """Set the mass of a step where a window starts, if the step is still stored; return its slot."""
    count = arrays.kinds.shape[0] // arrays.heads.shape[0]
    slot = environment * count + position % count
    if position >= oldest_position(arrays, environment) and arrays.kinds[slot] == STEP:
        arrays.kinds[slot] = START
        arrays.sums[int64(first_leaf(arrays.sums)) + slot] = mass
    return slot


@jitable
def has_shifted_window(steps: Any, length: int, period: int) -> Any:
    """Return whether SHIFT adds a window to a finished episode, for one number of steps or an array of them.

    It does if the episode's end cuts off a window, unless a complete one already ends with the last step.
    """
    is_cut_off = (steps - 1) // period * period + length > steps
    return is_cut_off & ((steps < length) | ((steps - length) % period > 0))


@jitable
def end_episode(arrays: Any, environment: int, windows: Windows, mass: float, changed: Any) -> int:
    """End the running episode, and start the windows that its end cuts off.

    The slots whose leaves have changed are written to `changed`, int64[length + 2]. Return their number.
    """
    length, period, boundary = windows
    table = arrays.starts.shape[0] // arrays.heads.shape[0]
    entry = environment * table + (arrays.episodes[environment] - 1) % table
    end = arrays.heads[environment]
    arrays.ends[entry], arrays.running[environment] = end, False
    arrays.heads[environment] = end + 1
    changed[0], changes = vacate(arrays, environment, end + 1), 1  # the slot of the head never holds a step
    steps = end - arrays.starts[entry]
    if boundary == PAD:
        first = max(0, steps - length + 1)  # the first start whose window is cut off
        for step in range(-(-first // period) * period, steps, period):
            changed[changes] = start_window(arrays, environment, arrays.starts[entry] + step, mass)
            changes += 1
    elif boundary == SHIFT and has_shifted_window(steps, length, period):
        start = arrays.starts[entry] + max(0, steps - length)
        changed[changes] = start_window(arrays, environment, start, mass)
        changes += 1
    return changes


@jitable
def continue_episodes(arrays: Any, environments: Any, rows: Any, ends: Any, spans: Any) -> bool:
    """Return whether the bytes `spans` of each step equal those of the row before it in its episode."""
    count, steps = arrays.kinds.shape[0] // arrays.heads.shape[0], environments.shape[0]
    for i in range(steps):
        environment = environments[i]
        if i > 0 and environments[i - 1] == environment:  # a batch of one environment
            follows, before, last = not ends[i - 1], rows, steps + i - 1
        else:
            head = environment * count + arrays.heads[environment] % count
            follows, before, last = arrays.running[environment], arrays.rows, head
        for k in range(spans.shape[0] if follows else 0):
            start, stop = spans[k]
            if bytes_differ(rows[i, start:stop], before[last, start:stop]):
                return False
    return True


@kernel
def append_steps(
    plain: Plain,
    environments: Integers,
    rows: Bytes,
    rewards: Floats,
    ends: Flags,
    masses: Floats,
    spans: Spans,
    max_given: Floats,
    max_priority: float,
    windows: Windows,
    resets: ResetChange,
) -> int:
    """Append steps in order, set the maximum priority, and return the index of the first step.

    `rows` are the n steps, followed by n rows whose observations are the next observations of the steps. A
    window that becomes complete gets the mass of the step that completes it. `resets` are
    the current ones, and those after the steps.

    Return -1, and change nothing, if the bytes `spans` of a step, its observations, differ from those of the
    row before it in its episode.
    """
    arrays = RingArrays(*plain)
    if not continue_episodes(arrays, environments, rows, ends, spans):
        return -1
    length, period, _ = windows
    index = arrays.heads[environments[0]] * arrays.heads.shape[0] + environments[0]
    table = arrays.starts.shape[0] // arrays.heads.shape[0]
    changed = np.empty(length + 5, np.int64)
    for i in range(environments.shape[0]):
        environment = environments[i]
        position = arrays.heads[environment]
        if not arrays.running[environment]:
            entry = environment * table + arrays.episodes[environment] % table
            arrays.starts[entry], arrays.ends[entry] = position, RUNNING
            arrays.returns[entry], arrays.tags[entry], arrays.evicted[entry] = 0.0, 0, False
            arrays.episodes[environment] += 1
            arrays.running[environment] = True
        serial = arrays.episodes[environment] - 1
        entry = environment * table + serial % table
        slot, next_slot = vacate(arrays, environment, position), vacate(arrays, environment, position + 1)
        copy_row(arrays.rows, slot, rows, i)
        copy_row(arrays.rows, next_slot, rows, i + environments.shape[0])
        arrays.serials[slot] = arrays.serials[next_slot] = serial
        arrays.kinds[slot] = STEP
        arrays.stored[environment] += 1
        arrays.returns[entry] += rewards[i]
        arrays.heads[environment] = position + 1
        changed[0], changed[1], changes = slot, next_slot, 2
        first = position - arrays.starts[entry] - length + 1  # of the window that this step completes
        if first >= 0 and first % period == 0:
            changed[2] = start_window(arrays, environment, arrays.starts[entry] + first, masses[i])
            changes = 3
        if ends[i]:
            changes += end_episode(arrays, environment, windows, masses[i], changed[changes:])
        recompute_above(arrays.sums, arrays.minima, changed[:changes])
    max_given[0] = max_priority
    for environment in range(resets.shape[1]):
        resets[0, environment] = resets[1, environment]
    return index


@kernel
def end_running_episode(plain: Plain, environment: int, windows: Windows, mass: float) -> None:
    """End the running episode of an environment, if any."""
    arrays = RingArrays(*plain)
    if arrays.running[environment]:
        changed = np.empty(windows[0] + 2, np.int64)
        changes = end_episode(arrays, environment, windows, mass, changed)
        recompute_above(arrays.sums, arrays.minima, changed[:changes])


@kernel
def evict_episodes(plain: Plain, environments: Integers, serials: Integers) -> None:
    """Remove the stored steps of episodes that have ended; their slots are reused when the ring wraps."""
    arrays = RingArrays(*plain)
    table = arrays.starts.shape[0] // arrays.heads.shape[0]
    for i in range(environments.shape[0]):
        environment = environments[i]
        entry = environment * table + serials[i] % table
        first = max(arrays.starts[entry], oldest_position(arrays, environment))
        changed = np.empty(arrays.ends[entry] - first, np.int64)
        for k in range(changed.shape[0]):
            changed[k] = vacate(arrays, environment, first + k)
        arrays.evicted[entry] = True
        recompute_above(arrays.sums, arrays.minima, changed)


@kernel
def locate(plain: Plain, slots: Integers, positions: Integers, starts: Integers, ends: Integers) -> None:
    """Write the position of each slot's step, and where its stored episode starts and ends.

    The start is at least the oldest position. The end is the position of the final observation or, in a
    running episode, of the newest observation.
    """
    arrays = RingArrays(*plain)
    environments = arrays.heads.shape[0]
    count, table = arrays.kinds.shape[0] // environments, arrays.starts.shape[0] // environments
    for i in range(slots.shape[0]):  # only this, so that the cache misses overlap
        positions[i] = arrays.serials[slots[i]]  # for now, the number of the episode
    ring, entries, head, head_slot, oldest, begun, next_entry = -count, 0, 0, 0, 0, 0, 0
    for i in range(slots.shape[0]):
        # rarely true, because slots are usually in order; divisions are slow
        if not ring <= slots[i] < ring + count:
            environment = slots[i] // count
            ring, entries = environment * count, environment * table
            head, begun = arrays.heads[environment], arrays.episodes[environment]
            head_slot, next_entry = ring + head % count, entries + begun % table
            oldest = oldest_position(arrays, environment)
        entry = next_entry - begun + positions[i]
        entry += table if entry < entries else 0
        positions[i] = head - head_slot + slots[i] - (count if slots[i] > head_slot else 0)
        starts[i] = max(arrays.starts[entry], oldest)
        ends[i] = head if arrays.ends[entry] == RUNNING else arrays.ends[entry]


class Episodes(NamedTuple):
    """The entries of episodes in the table."""

    entries: Integers  # [n]
    environments: Integers  # [n]
    firsts: Integers  # [n], position of the first step that has not been overwritten
    ends: Integers  # [n], position of the final observation or, in a running episode, of the newest one
    running: Flags  # [n]
    stored: Flags  # [n], whether steps are stored; otherwise, all of them were overwritten or evicted


class EpisodeRing:
    """The memory of the episodes: the rings, a table of episodes, and the sum tree.

    Attributes:
        room: Number of slots of each environment.
        environments: Number of environments.
        fields: The stored fields, without next observations.
        tree: The masses of all slots.
        arrays: The arrays that the kernels read and write.
        plain: The same as a plain tuple, which is passed to the kernels.
        resets: uint8[2, environments], what the next step of each environment is (see `autoreset`), and what
            it will be after the steps that are being added; uint8[2, 0] if environments don't reset
            themselves.
    """

    def __init__(self, room: int, environments: int, fields: Fields, autoreset: bool = False) -> None:
        """Reserve memory; pages are allocated when they are first written."""
        self.room, self.environments, self.fields = room, environments, fields
        self.resets: ResetChange = np.zeros((2, environments if autoreset else 0), np.uint8)
        slots, table = environments * room, environments * (room // 2 + 2)  # 2 slots per episode
        check_memory((slots + 1) * fields.dtype.itemsize)
        self.tree = SumTree(slots)
        each = np.zeros((4, environments), np.int64)
        self.arrays = RingArrays(
            rows=as_bytes(np.zeros(slots + 1, fields.dtype)),
            kinds=np.zeros(slots, np.uint8),
            serials=np.zeros(slots, np.int64),
            starts=np.zeros(table, np.int64),
            ends=np.zeros(table, np.int64),
            returns=np.zeros(table),
            tags=np.zeros(table, np.int64),
            evicted=np.zeros(table, np.bool_),
            heads=each[0],
            floors=each[1],
            episodes=each[2],
            running=np.zeros(environments, np.bool_),
            stored=each[3],
            sums=self.tree.sums,
            minima=self.tree.minima,
        )
        self._make_views()

    def _make_views(self) -> None:
        self.plain = tuple(self.arrays)
        self.rows: Rows = self.arrays.rows.view(self.fields.dtype).reshape(-1)  # the same memory as records

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("plain", "rows")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_views()

    def cleared(self) -> "EpisodeRing":
        """Return an empty ring that uses the same memory and continues to count positions and episodes."""
        ring, arrays = copy.copy(self), self.arrays
        ring.tree = SumTree(self.capacity)
        ring.arrays = arrays._replace(
            kinds=np.zeros_like(arrays.kinds),
            floors=arrays.heads.copy(),
            running=np.zeros_like(arrays.running),
            stored=np.zeros_like(arrays.stored),
            sums=ring.tree.sums,
            minima=ring.tree.minima,
        )
        ring._make_views()
        return ring

    @property
    def capacity(self) -> int:
        """Number of slots of all environments."""
        return self.environments * self.room

    @property
    def stored(self) -> int:
        """Number of stored steps."""
        return int(self.arrays.stored.sum())

    @property
    def oldest_positions(self) -> Integers:
        """The oldest position of each environment that has not been overwritten or cleared."""
        return np.maximum(self.arrays.floors, self.arrays.heads - self.room + 1)

    def all_episodes(self) -> Integers:
        """Return the numbers of the episodes in the table, in ascending order."""
        newest = self.arrays.episodes[:, None] - 1
        serials = newest - np.arange(len(self.arrays.starts) // self.environments)
        numbers = serials * self.environments + np.arange(self.environments)[:, None]
        return np.sort(numbers[serials >= 0])

    def look_up(self, numbers: Integers) -> Episodes:
        """Return the entries of the episodes with these numbers, int64[n], which must have begun."""
        arrays, table = self.arrays, len(self.arrays.starts) // self.environments
        environments, serials = numbers % self.environments, numbers // self.environments
        entries, heads = environments * table + serials % table, arrays.heads[environments]
        age = arrays.episodes[environments] - serials  # 1 is the newest
        running = arrays.running[environments] & (age == 1)
        firsts = np.maximum(arrays.starts[entries], self.oldest_positions[environments])
        ends = np.where(running, heads, arrays.ends[entries])
        stored = (age <= table) & (firsts < ends) & ~arrays.evicted[entries]
        return Episodes(entries, environments, firsts, ends, running, stored)

    def slots_of(self, environments: Any, positions: Any) -> Any:
        """Return the slots of positions."""
        return environments * self.room + positions % self.room

    def find(self, indexes: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the slot of each index, and whether its step is still stored."""
        environments, positions = indexes % self.environments, indexes // self.environments
        slots, heads = self.slots_of(environments, positions), self.arrays.heads[environments]
        overwritten = positions <= heads - self.room
        return slots, ~overwritten & (self.arrays.kinds[slots] != NO_STEP)


class StagedSteps:
    """Arrays of n steps that `append_steps` adds; they are reused, because creating them takes longer.

    Attributes:
        rows: Records [2, n]: the steps, and rows that contain only their next observations.
        bytes: The same memory, uint8[2 * n, bytes].
        environments: int64[n].
        rewards: float64[n]; zeros if no reward is declared.
        ends: bool[n], whether the episode ends.
        masses: float64[n].
    """

    def __init__(
        self,
        count: int,
        fields: Fields,
        stored: Fields,
        nexts: Mapping[str, str],
        ends: Sequence[str],
        rewards: Sequence[str],
    ) -> None:
        """Reserve memory for `count` steps with the arguments `fields`, in rows of the fields `stored`.

        `nexts` maps observations to their next observations. `ends` are the flags that end an episode, and
        `rewards` is the reward, or nothing.
        """
        self._arguments = count, fields, stored, nexts, ends, rewards
        self.rows = np.zeros((2, count), stored.dtype)
        steps, following = self.rows
        observations = {next_name: name for name, next_name in nexts.items()}
        self._targets: list[Any] = [
            following[observations[name]] if name in observations else steps[name] for name in fields.fields
        ]
        self._flags: list[Any] = [steps[name].reshape(count) for name in ends]
        self._rewards: list[Any] = [steps[name].reshape(count) for name in rewards]
        self.bytes: Bytes = as_bytes(self.rows.reshape(-1))
        self.environments: Integers = np.zeros(count, np.int64)
        self.rewards: Floats = np.zeros(count)
        self.ends: Flags = np.zeros(count, np.bool_)
        self.masses: Floats = np.zeros(count)
        # The first arguments of `append_steps` after the ring.
        self.arrays = self.environments, self.bytes, self.rewards, self.ends, self.masses

    def __reduce__(self) -> tuple[Any, ...]:
        return StagedSteps, self._arguments  # copied views would no longer share memory with `rows`

    def __len__(self) -> int:
        return len(self.ends)

    def write(self, environments: Integers | int, columns: Sequence[Any], masses: Floats | float) -> None:
        """Write steps, with the columns that `Fields.to_columns` returns."""
        for target, column in zip(self._targets, columns):  # noqa: B905 - strict=True takes 0.2 µs more
            target[...] = column
        for rewards in self._rewards:
            self.rewards[...] = rewards
        if len(self.ends) == 1:  # the same as below, but five times as fast
            self.environments[0], self.masses[0] = environments, masses
            self.ends[0] = any(map(np.ndarray.item, self._flags))
        else:
            self.environments[...], self.masses[...] = environments, masses
            np.logical_or.reduce(self._flags, out=self.ends)
