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
"""

import copy
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Fields, Rows, as_bytes
from replay_tutorial.buffers.jit import Bytes, Flags, Floats, Integers, int64, jitable, kernel, types
from replay_tutorial.buffers.n_step import Spans
from replay_tutorial.buffers.rows import bytes_differ, copy_row
from replay_tutorial.buffers.sum_tree import SumTree, first_leaf, recompute_above

Kinds = Annotated[npt.NDArray[np.uint8], types.uint8[::1]]

# What a slot holds: nothing or a final observation, a step, or a step where a window starts.
NO_STEP, STEP, START = 0, 1, 2
RUNNING = -1  # the end of an episode that has not ended
# What happens to the windows that the end of an episode cuts off.
PAD, SHIFT, DROP = 0, 1, 2


class Places(NamedTuple):
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
Plain = Annotated[tuple[Any, ...], Places]

Windows = tuple[int, int, int]  # length, period, and PAD, SHIFT or DROP


@jitable
def oldest_position(places: Any, environment: int) -> int:
    """Return the oldest position that has not been overwritten or cleared."""
    count = places.kinds.shape[0] // places.heads.shape[0]
    return max(places.floors[environment], places.heads[environment] - count + 1)


@jitable
def vacate(places: Any, environment: int, position: int) -> int:
    """Remove the step in the slot of a position, and set the slot's leaf to 0; return the slot."""
    count = places.kinds.shape[0] // places.heads.shape[0]
    slot = environment * count + position % count
    if places.kinds[slot] != NO_STEP:
        places.stored[environment] -= 1
    places.kinds[slot] = NO_STEP
    places.sums[int64(first_leaf(places.sums)) + slot] = 0.0
    return slot


@jitable
def start_window(places: Any, environment: int, position: int, mass: float) -> int:
    """Set the mass of a step where a window starts, if the step is still stored; return its slot."""
    count = places.kinds.shape[0] // places.heads.shape[0]
    slot = environment * count + position % count
    if position >= oldest_position(places, environment) and places.kinds[slot] == STEP:
        places.kinds[slot] = START
        places.sums[int64(first_leaf(places.sums)) + slot] = mass
    return slot


@jitable
def end_episode(places: Any, environment: int, windows: Windows, mass: float, changed: Any) -> int:
    """End the running episode, and start the windows that its end cuts off.

    The slots whose leaves have changed are written to `changed`, int64[length + 2]. Return their number.
    """
    length, period, boundary = windows
    table = places.starts.shape[0] // places.heads.shape[0]
    entry = environment * table + (places.episodes[environment] - 1) % table
    end = places.heads[environment]
    places.ends[entry], places.running[environment] = end, False
    places.heads[environment] = end + 1
    changed[0], changes = vacate(places, environment, end + 1), 1  # the slot of the head never holds a step
    steps = end - places.starts[entry]
    if boundary == PAD:
        first = max(0, steps - length + 1)  # the first start whose window is cut off
        for step in range(-(-first // period) * period, steps, period):
            changed[changes] = start_window(places, environment, places.starts[entry] + step, mass)
            changes += 1
    elif boundary == SHIFT and (steps < length or (steps - length) % period):
        start = places.starts[entry] + max(0, steps - length)
        changed[changes] = start_window(places, environment, start, mass)
        changes += 1
    return changes


@jitable
def continue_episodes(places: Any, environments: Any, rows: Any, ends: Any, spans: Any) -> bool:
    """Return whether the bytes `spans` of each step equal those of the row before it in its episode."""
    count, steps = places.kinds.shape[0] // places.heads.shape[0], environments.shape[0]
    for i in range(steps):
        environment = environments[i]
        if i > 0 and environments[i - 1] == environment:  # a batch of one environment
            follows, before, last = not ends[i - 1], rows, steps + i - 1
        else:
            head = environment * count + places.heads[environment] % count
            follows, before, last = places.running[environment], places.rows, head
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
) -> int:
    """Append steps in order, set the maximum priority, and return the index of the first step.

    `rows` are the n steps, followed by n rows whose observations are the next observations of the steps. A
    window that becomes complete gets the mass of the step that completes it.

    Return -1, and change nothing, if the bytes `spans` of a step, its observations, differ from those of the
    row before it in its episode.
    """
    places = Places(*plain)
    if not continue_episodes(places, environments, rows, ends, spans):
        return -1
    length, period, _ = windows
    index = places.heads[environments[0]] * places.heads.shape[0] + environments[0]
    table = places.starts.shape[0] // places.heads.shape[0]
    changed = np.empty(length + 5, np.int64)
    for i in range(environments.shape[0]):
        environment = environments[i]
        position = places.heads[environment]
        if not places.running[environment]:
            entry = environment * table + places.episodes[environment] % table
            places.starts[entry], places.ends[entry] = position, RUNNING
            places.returns[entry], places.tags[entry], places.evicted[entry] = 0.0, 0, False
            places.episodes[environment] += 1
            places.running[environment] = True
        serial = places.episodes[environment] - 1
        entry = environment * table + serial % table
        slot, next_slot = vacate(places, environment, position), vacate(places, environment, position + 1)
        copy_row(places.rows, slot, rows, i)
        copy_row(places.rows, next_slot, rows, i + environments.shape[0])
        places.serials[slot] = places.serials[next_slot] = serial
        places.kinds[slot] = STEP
        places.stored[environment] += 1
        places.returns[entry] += rewards[i]
        places.heads[environment] = position + 1
        changed[0], changed[1], changes = slot, next_slot, 2
        first = position - places.starts[entry] - length + 1  # of the window that this step completes
        if first >= 0 and first % period == 0:
            changed[2] = start_window(places, environment, places.starts[entry] + first, masses[i])
            changes = 3
        if ends[i]:
            changes += end_episode(places, environment, windows, masses[i], changed[changes:])
        recompute_above(places.sums, places.minima, changed[:changes])
    max_given[0] = max_priority
    return index


@kernel
def end_running_episode(plain: Plain, environment: int, windows: Windows, mass: float) -> None:
    """End the running episode of an environment, if any."""
    places = Places(*plain)
    if places.running[environment]:
        changed = np.empty(windows[0] + 2, np.int64)
        changes = end_episode(places, environment, windows, mass, changed)
        recompute_above(places.sums, places.minima, changed[:changes])


@kernel
def evict_episodes(plain: Plain, environments: Integers, serials: Integers) -> None:
    """Remove the stored steps of episodes that have ended; their slots are reused when the ring wraps."""
    places = Places(*plain)
    table = places.starts.shape[0] // places.heads.shape[0]
    for i in range(environments.shape[0]):
        environment = environments[i]
        entry = environment * table + serials[i] % table
        first = max(places.starts[entry], oldest_position(places, environment))
        changed = np.empty(places.ends[entry] - first, np.int64)
        for k in range(changed.shape[0]):
            changed[k] = vacate(places, environment, first + k)
        places.evicted[entry] = True
        recompute_above(places.sums, places.minima, changed)


@kernel
def locate(plain: Plain, slots: Integers, positions: Integers, starts: Integers, ends: Integers) -> None:
    """Write the position of each slot's step, and where its stored episode starts and ends.

    The start is at least the oldest position. The end is the position of the final observation or, in a
    running episode, of the newest observation.
    """
    places = Places(*plain)
    environments = places.heads.shape[0]
    count, table = places.kinds.shape[0] // environments, places.starts.shape[0] // environments
    for i in range(slots.shape[0]):  # only this, so that the cache misses overlap
        positions[i] = places.serials[slots[i]]  # for now, the number of the episode
    # Not a function of one slot: passing it `places` would count references to 15 arrays at each call.
    for i in range(slots.shape[0]):
        environment = slots[i] // count
        head = places.heads[environment]
        entry = environment * table + positions[i] % table
        positions[i] = head - (head - (slots[i] - environment * count)) % count
        starts[i] = max(places.starts[entry], oldest_position(places, environment))
        ends[i] = head if places.ends[entry] == RUNNING else places.ends[entry]


@kernel
def indexes_of(heads: Integers, slots: Integers, count: int) -> Integers:
    """Return the indexes of the steps in slots; each environment has `count` slots."""
    indexes = np.empty_like(slots)
    for i in range(slots.shape[0]):
        environment = slots[i] // count
        head = heads[environment]
        position = head - (head - (slots[i] - environment * count)) % count
        indexes[i] = position * heads.shape[0] + environment
    return indexes


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
        places: Number of slots of each environment.
        environments: Number of environments.
        fields: The stored fields, without next observations.
        tree: The masses of all slots.
        arrays: The arrays that the kernels read and write.
        plain: The same as a plain tuple, which is passed to the kernels.
    """

    def __init__(self, places: int, environments: int, fields: Fields) -> None:
        """Reserve memory; pages are allocated when they are first written."""
        self.places, self.environments, self.fields = places, environments, fields
        slots, table = environments * places, environments * (places // 2 + 2)  # 2 slots per episode
        self.tree = SumTree(slots)
        each = np.zeros((4, environments), np.int64)
        self.arrays = Places(
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
        return self.environments * self.places

    @property
    def stored(self) -> int:
        """Number of stored steps."""
        return int(self.arrays.stored.sum())

    @property
    def oldest_positions(self) -> Integers:
        """The oldest position of each environment that has not been overwritten or cleared."""
        return np.maximum(self.arrays.floors, self.arrays.heads - self.places + 1)

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
        return environments * self.places + positions % self.places

    def find(self, indexes: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the slot of each index, and whether its step is still stored."""
        environments, positions = indexes % self.environments, indexes // self.environments
        slots, heads = self.slots_of(environments, positions), self.arrays.heads[environments]
        overwritten = positions <= heads - self.places
        return slots, ~overwritten & (self.arrays.kinds[slots] != NO_STEP)
