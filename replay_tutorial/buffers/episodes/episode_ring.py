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
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Fields, Rows, as_bytes, as_records
from replay_tutorial.buffers.n_step.returns import Spans
from replay_tutorial.buffers.priorities import (
    BAD_PRIORITY,
    DONE,
    UNKNOWN_INDEX,
    Formula,
    Prioritization,
    Weights,
    masses_of,
    write_weights,
)
from replay_tutorial.buffers.rows import bytes_differ, check_memory, copy_row
from replay_tutorial.buffers.runtime.jit import (
    Bytes,
    Flags,
    Floats,
    Integers,
    from_dtype,
    int64,
    jitable,
    kernel,
    types,
)
from replay_tutorial.buffers.sum_tree import ROOT, SumTree, find_stratified, first_leaf, recompute_above

# What a slot holds: nothing or a final observation, a step, or a step where a window starts.
NO_STEP, STEP, START = 0, 1, 2
RUNNING = -1  # the end of an episode that has not ended
# What happens to the windows that the end of an episode cuts off; with CROSS, they continue in the next one.
PAD, SHIFT, DROP, CROSS = 0, 1, 2, 3
# Instead of the slot of a step: it was overwritten or evicted, its index belongs to a final observation, or
# no step has had the index.
GONE, FINAL, UNKNOWN = -1, -2, -3

WindowRule = tuple[int, int, int]  # length, period, and PAD, SHIFT, DROP or CROSS

# The state of the ring of one environment.
RING = np.dtype(
    [
        ("head", np.int64),  # the next position
        ("floor", np.int64),  # the first position that `clear` has not removed
        ("episodes", np.int64),  # number of episodes that have begun
        ("stored", np.int64),  # number of stored steps
        ("windows", np.int64),  # number of windows that start at them
        ("running", np.bool_),  # whether an episode is running
        ("reset", np.uint8),  # what the next step is, see `autoreset`
        ("next_reset", np.uint8),  # what it will be after the steps that are being added
    ],
    align=True,
)
# The index of the row in a slot, and the entry of its episode in the table of episodes.
SLOT = np.dtype([("index", np.int64), ("entry", np.int64)])
# An entry of the table of episodes.
ENTRY = np.dtype(
    [
        ("number", np.int64),  # of the episode
        ("start", np.int64),  # position of the first step
        ("end", np.int64),  # position of the final observation, or RUNNING
        ("reward_sum", np.float64),
        ("tag", np.int64),  # set by the user, initially 0
        ("evicted", np.bool_),
    ],
    align=True,
)


class EpisodeArrays(NamedTuple):
    """The arrays that the kernels read and write.

    Environment e has P slots, from e * P on, and S entries in the table of episodes, from e * S on. Its
    episodes have serial numbers from 0; the episode with the number `serial * environments + e` has the entry
    `e * S + serial % S`.
    """

    rows: Bytes  # [environments * P + 1, bytes]; the last row remains zero, for padding
    kinds: Annotated[npt.NDArray[np.uint8], types.uint8[::1]]  # [environments * P], NO_STEP, STEP or START
    slots: Annotated[Any, from_dtype(SLOT)[::1]]  # [environments * P]
    rings: Annotated[Any, from_dtype(RING)[::1]]  # [environments]
    table: Annotated[Any, from_dtype(ENTRY)[::1]]  # [environments * S]
    sums: Floats  # of the tree
    minima: Floats


class Steps(NamedTuple):
    """Steps to be added: arrays of n entries."""

    environments: Integers
    rows: Bytes  # [2 * n, bytes]: the steps, then rows that contain only their next observations
    rewards: Floats  # zeros if no reward is declared
    ends: Flags  # whether the episode ends
    masses: Floats


# The same as plain tuples, the form in which Python passes them: see `jit.numba_type`.
ArraysTuple = Annotated[tuple[Any, ...], EpisodeArrays]
StepsTuple = Annotated[tuple[Any, ...], Steps]


@jitable
def slot_of(arrays: Any, environment: Any, position: Any) -> Any:
    """Return the slot of a position, for numbers or arrays."""
    room = arrays.kinds.shape[0] // arrays.rings.shape[0]
    return environment * room + position % room


@jitable
def entry_of(arrays: Any, environment: Any, serial: Any) -> Any:
    """Return the entry of an episode in the table, for numbers or arrays."""
    room = arrays.table.shape[0] // arrays.rings.shape[0]
    return environment * room + serial % room


@jitable
def oldest_position(arrays: Any, environment: int) -> int:
    """Return the oldest position that has not been overwritten or cleared."""
    room = arrays.kinds.shape[0] // arrays.rings.shape[0]
    return max(arrays.rings[environment].floor, arrays.rings[environment].head - room + 1)


@kernel
def find_steps(arrays_tuple: ArraysTuple, indexes: Integers, slots: Integers) -> None:
    """Write the slots of the steps with these indexes, or GONE, FINAL or UNKNOWN."""
    arrays = EpisodeArrays(*arrays_tuple)
    environments = arrays.rings.shape[0]
    room = arrays.kinds.shape[0] // environments
    for i in range(indexes.shape[0]):
        environment, position = indexes[i] % environments, indexes[i] // environments
        ring, slot = arrays.rings[environment], environment * room + position % room
        if not 0 <= position < ring.head:
            slots[i] = UNKNOWN
        elif position <= ring.head - room or position < ring.floor:
            slots[i] = GONE
        elif arrays.kinds[slot] != NO_STEP:
            slots[i] = slot
        else:
            slots[i] = FINAL if arrays.table[arrays.slots[slot].entry].end == position else GONE


@jitable
def vacate(arrays: Any, environment: int, position: int) -> int:
    """Remove the step in the slot of a position, and set the slot's leaf to 0; return the slot."""
    slot = slot_of(arrays, environment, position)
    if arrays.kinds[slot] != NO_STEP:
        arrays.rings[environment].stored -= 1
        arrays.rings[environment].windows -= arrays.kinds[slot] == START
    arrays.kinds[slot] = NO_STEP
    arrays.sums[int64(first_leaf(arrays.sums)) + slot] = 0.0
    return slot


@jitable
def completed_window(arrays: Any, environment: int, last: int, rule: WindowRule) -> int:
    """Return the position where the window whose last entry has this position starts, or -1 if none does."""
    length, period, boundary = rule
    ring, start = arrays.rings[environment], last - length + 1
    place = entry_of(arrays, environment, ring.episodes - 1)
    if boundary == CROSS and start >= oldest_position(arrays, environment):
        place = arrays.slots[slot_of(arrays, environment, start)].entry
    step = start - arrays.table[place].start  # its number in its episode
    return start if step >= 0 and step % period == 0 else -1


@jitable
def start_window(arrays: Any, environment: int, position: int, mass: float) -> int:
    """Set the mass of a step where a window starts, if the step is still stored; return its slot."""
    slot = slot_of(arrays, environment, position)
    if position >= oldest_position(arrays, environment) and arrays.kinds[slot] == STEP:
        arrays.kinds[slot] = START
        arrays.rings[environment].windows += 1
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
def end_episode(arrays: Any, environment: int, rule: WindowRule, mass: float, changed: Any) -> int:
    """End the running episode, and start the windows that its end cuts off.

    The slots whose leaves have changed are written to `changed`, int64[length + 2]. Return their number.
    """
    length, period, boundary = rule
    ring = arrays.rings[environment]
    entry = arrays.table[entry_of(arrays, environment, ring.episodes - 1)]
    start, end = entry.start, ring.head
    entry.end, ring.running, ring.head = end, False, end + 1
    changed[0], changes = vacate(arrays, environment, end + 1), 1  # the slot of the head never holds a step
    steps = end - start
    if boundary == PAD:
        first = max(0, steps - length + 1)  # the first start whose window is cut off
        for step in range(-(-first // period) * period, steps, period):
            changed[changes] = start_window(arrays, environment, start + step, mass)
            changes += 1
    elif boundary == SHIFT and has_shifted_window(steps, length, period):
        changed[changes] = start_window(arrays, environment, start + max(0, steps - length), mass)
        changes += 1
    elif boundary == CROSS:
        first = completed_window(arrays, environment, end, rule)
        if first >= 0:
            changed[changes] = start_window(arrays, environment, first, mass)
            changes += 1
    return changes


@jitable
def continue_episodes(arrays: Any, steps: Any, spans: Any) -> bool:
    """Return whether the bytes `spans` of each step equal those of the row before it in its episode."""
    count = steps.environments.shape[0]
    for i in range(count):
        environment = steps.environments[i]
        if i > 0 and steps.environments[i - 1] == environment:  # a batch of one environment
            follows, before, last = not steps.ends[i - 1], steps.rows, count + i - 1
        else:
            ring = arrays.rings[environment]
            follows, before, last = ring.running, arrays.rows, slot_of(arrays, environment, ring.head)
        for k in range(spans.shape[0] if follows else 0):
            start, stop = spans[k]
            if bytes_differ(steps.rows[i, start:stop], before[last, start:stop]):
                return False
    return True


@kernel
def append_steps(
    arrays_tuple: ArraysTuple,
    steps_tuple: StepsTuple,
    spans: Spans,
    largest_priority: Floats,
    new_largest: float,
    rule: WindowRule,
) -> int:
    """Append steps in order, set the largest priority, and return the index of the first step.

    A window that becomes complete gets the mass of the step that completes it.

    Return -1, and change nothing, if the bytes `spans` of a step, its observations, differ from those of the
    row before it in its episode.
    """
    arrays, steps = EpisodeArrays(*arrays_tuple), Steps(*steps_tuple)
    if not continue_episodes(arrays, steps, spans):
        return -1
    first_environment, count = steps.environments[0], steps.environments.shape[0]
    environments = arrays.rings.shape[0]
    index = arrays.rings[first_environment].head * environments + first_environment
    changed = np.empty(rule[0] + 5, np.int64)
    for i in range(count):
        environment = steps.environments[i]
        ring = arrays.rings[environment]
        position = ring.head
        if not ring.running:
            entry = arrays.table[entry_of(arrays, environment, ring.episodes)]
            entry.number = ring.episodes * environments + environment
            entry.start, entry.end, entry.reward_sum = position, RUNNING, 0.0
            entry.tag, entry.evicted = 0, False
            ring.episodes += 1
            ring.running = True
        place = entry_of(arrays, environment, ring.episodes - 1)
        entry = arrays.table[place]
        slot, next_slot = vacate(arrays, environment, position), vacate(arrays, environment, position + 1)
        copy_row(arrays.rows, slot, steps.rows, i)
        copy_row(arrays.rows, next_slot, steps.rows, count + i)
        arrays.slots[slot].entry = arrays.slots[next_slot].entry = place
        arrays.slots[slot].index = position * environments + environment
        arrays.slots[next_slot].index = (position + 1) * environments + environment
        arrays.kinds[slot] = STEP
        ring.stored += 1
        ring.head = position + 1
        entry.reward_sum += steps.rewards[i]
        changed[0], changed[1], changes = slot, next_slot, 2
        first = completed_window(arrays, environment, position, rule)
        if first >= 0:
            changed[2] = start_window(arrays, environment, first, steps.masses[i])
            changes = 3
        if steps.ends[i]:
            changes += end_episode(arrays, environment, rule, steps.masses[i], changed[changes:])
        recompute_above(arrays.sums, arrays.minima, changed[:changes])
    largest_priority[0] = new_largest
    for environment in range(arrays.rings.shape[0]):
        ring = arrays.rings[environment]
        ring.reset = ring.next_reset
    return index


@kernel
def end_running_episode(arrays_tuple: ArraysTuple, environment: int, rule: WindowRule, mass: float) -> None:
    """End the running episode of an environment, if any."""
    arrays = EpisodeArrays(*arrays_tuple)
    if arrays.rings[environment].running:
        changed = np.empty(rule[0] + 2, np.int64)
        changes = end_episode(arrays, environment, rule, mass, changed)
        recompute_above(arrays.sums, arrays.minima, changed[:changes])


@kernel
def evict_episodes(arrays_tuple: ArraysTuple, entries: Integers) -> None:
    """Remove the stored steps of episodes that have ended; their slots are reused when the ring wraps."""
    arrays = EpisodeArrays(*arrays_tuple)
    for i in range(entries.shape[0]):
        entry = arrays.table[entries[i]]
        environment = entry.number % arrays.rings.shape[0]
        first = max(entry.start, oldest_position(arrays, environment))
        changed = np.empty(entry.end - first, np.int64)
        for k in range(changed.shape[0]):
            changed[k] = vacate(arrays, environment, first + k)
        entry.evicted = True
        recompute_above(arrays.sums, arrays.minima, changed)


@kernel
def locate(
    arrays_tuple: ArraysTuple, slots: Integers, positions: Integers, starts: Integers, ends: Integers
) -> None:
    """Write the position of each slot's step, and where its stored episode starts and ends.

    The start is at least the oldest position. The end is the position of the final observation or, in a
    running episode, of the newest observation.
    """
    arrays = EpisodeArrays(*arrays_tuple)
    environments, count = arrays.rings.shape[0], slots.shape[0]
    for i in range(count):  # only this, so that the cache misses overlap
        positions[i], starts[i] = arrays.slots[slots[i]].index, arrays.slots[slots[i]].entry
    for i in range(count):
        index, entry = positions[i], arrays.table[starts[i]]
        positions[i], environment = index // environments, index % environments
        starts[i] = max(entry.start, oldest_position(arrays, environment))
        ends[i] = arrays.rings[environment].head if entry.end == RUNNING else entry.end


@kernel
def update_masses(
    arrays_tuple: ArraysTuple,
    indexes: Integers,
    priorities: Floats,
    formula: Formula,
    largest_priority: Floats,
    stale_updates: Integers,
) -> int:
    """Set the masses of steps, update the largest priority, and count updates of steps no longer stored.

    Return DONE, UNKNOWN_INDEX or BAD_PRIORITY; if it is not DONE, nothing has changed.
    """
    arrays, (alpha, eps, priority_limit) = EpisodeArrays(*arrays_tuple), formula
    slots, count, new_largest = np.empty_like(indexes), 0, largest_priority[0]
    find_steps(arrays_tuple, indexes, slots)
    for i in range(indexes.shape[0]):
        if slots[i] in (UNKNOWN, FINAL):
            return UNKNOWN_INDEX
        if not 0.0 <= priorities[i] <= priority_limit:  # this form also rejects NaN
            return BAD_PRIORITY
    masses, first_node = masses_of(priorities, alpha, eps), int64(first_leaf(arrays.sums))
    for i in range(indexes.shape[0]):
        if slots[i] != GONE and arrays.kinds[slots[i]] == START:
            arrays.sums[first_node + slots[i]] = masses[i]  # the last priority of a repeated index counts
            new_largest = max(new_largest, priorities[i])
            slots[count] = slots[i]
            count += 1
    recompute_above(arrays.sums, arrays.minima, slots[:count])
    largest_priority[0] = new_largest
    stale_updates[0] += indexes.shape[0] - count
    return DONE


@kernel
def draw_steps(
    arrays_tuple: ArraysTuple,
    uniforms: Floats,
    beta: float,
    by_buffer: bool,
    slots: Integers,
    indexes: Integers,
    weights: Weights,
) -> None:
    """Draw a step for each uniform random number; write the slots, indexes and weights of the steps."""
    arrays = EpisodeArrays(*arrays_tuple)
    environments = arrays.rings.shape[0]
    room = arrays.kinds.shape[0] // environments
    found, masses = find_stratified(arrays.sums, uniforms)
    write_weights(masses, beta, arrays.minima[ROOT], by_buffer, weights)
    end, head_index, head_slot = -1, 0, 0
    for i in range(found.shape[0]):
        if found[i] >= end:  # of the ring, once per environment, because the slots are in ascending order
            environment = found[i] // room
            end, head = (environment + 1) * room, arrays.rings[environment].head
            head_index = head * environments + environment
            head_slot = end - room + head % room
        lap = room if found[i] > head_slot else 0  # slots after the head hold rows of the previous lap
        slots[i], indexes[i] = found[i], head_index + (found[i] - head_slot - lap) * environments


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
        rules: Conversion of priorities to masses, and the largest priority so far.
        room: Number of slots of each environment.
        environments: Number of environments.
        fields: The stored fields, without next observations.
        tree: The masses of all slots.
        arrays: The arrays that the kernels read and write.
        arrays_tuple: The same as a plain tuple, which is passed to the kernels.
    """

    def __init__(self, rules: Prioritization, room: int, environments: int, fields: Fields) -> None:
        """Reserve memory; pages are allocated when they are first written."""
        self.rules, self.room, self.environments, self.fields = rules, room, environments, fields
        slots, entries = environments * room, environments * (room // 2 + 2)  # 2 slots per episode
        check_memory((slots + 1) * fields.dtype.itemsize)
        self.tree = SumTree(slots)
        self._set_arrays(
            EpisodeArrays(
                rows=as_bytes(np.zeros(slots + 1, fields.dtype)),
                kinds=np.zeros(slots, np.uint8),
                slots=np.zeros(slots, SLOT),
                rings=np.zeros(environments, RING),
                table=np.zeros(entries, ENTRY),
                sums=self.tree.sums,
                minima=self.tree.minima,
            )
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Unpickled trees have new memory, which is aligned.
        self._set_arrays(self.arrays._replace(sums=self.tree.sums, minima=self.tree.minima))

    def _set_arrays(self, arrays: EpisodeArrays) -> None:
        self.arrays, self.arrays_tuple = arrays, tuple(arrays)

    def cleared(self) -> "EpisodeRing":
        """Return an empty ring that uses the same memory and continues to count positions and episodes."""
        ring, rings, tree = copy.copy(self), self.arrays.rings.copy(), SumTree(self.capacity)
        rings["floor"], rings["running"] = rings["head"], False
        rings["stored"] = rings["windows"] = 0
        ring.rules, ring.tree, kinds = self.rules.with_max(), tree, np.zeros_like(self.arrays.kinds)
        ring._set_arrays(self.arrays._replace(kinds=kinds, rings=rings, sums=tree.sums, minima=tree.minima))
        return ring

    @property
    def rows(self) -> Rows:
        """The rows as records, [environments * P + 1]."""
        return as_records(self.arrays.rows, self.fields.dtype)

    @property
    def capacity(self) -> int:
        """Number of slots of all environments."""
        return self.environments * self.room

    @property
    def stored(self) -> int:
        """Number of stored steps."""
        return int(self.arrays.rings["stored"].sum())

    @property
    def oldest_positions(self) -> Integers:
        """The oldest position of each environment that has not been overwritten or cleared."""
        return np.maximum(self.arrays.rings["floor"], self.arrays.rings["head"] - self.room + 1)

    def next_index(self, environment: int) -> int:
        """Return the index of the next step of an environment."""
        return int(self.arrays.rings["head"][environment]) * self.environments + environment

    def all_episodes(self) -> Integers:
        """Return the numbers of the episodes in the table, in ascending order."""
        table = self.arrays.table
        return np.sort(table["number"][table["end"] != 0])

    def numbers_of(self, slots: Integers) -> Integers:
        """Return the numbers of the episodes in occupied slots."""
        return self.arrays.table["number"][self.arrays.slots["entry"][slots]]

    def look_up(self, numbers: Integers) -> Episodes:
        """Return the entries of the episodes with these numbers, int64[n], which must have begun."""
        rings, table = self.arrays.rings, self.arrays.table
        environments, serials = numbers % self.environments, numbers // self.environments
        entries: Integers = entry_of(self.arrays, environments, serials)
        is_newest: Flags = rings["episodes"][environments] == serials + 1
        running: Flags = rings["running"][environments] & is_newest
        starts: Integers = table["start"][entries]
        ends: Integers = table["end"][entries]
        heads: Integers = rings["head"][environments]
        firsts = np.maximum(starts, self.oldest_positions[environments])
        ends = np.where(running, heads, ends)
        in_table: Flags = table["number"][entries] == numbers
        stored = in_table & (firsts < ends) & ~table["evicted"][entries]
        return Episodes(entries, environments, firsts, ends, running, stored)

    def draw(self, uniforms: Floats, beta: float, by_buffer: bool) -> tuple[Integers, Integers, Weights]:
        """Draw a step by its mass for each number in [0, 1); return the slots, indexes and weights."""
        slots, indexes = np.empty((2, len(uniforms)), np.int64)
        weights = np.empty(len(uniforms), np.float32)
        draw_steps(self.arrays_tuple, uniforms, beta, by_buffer, slots, indexes, weights)
        return slots, indexes, weights

    def update(self, indexes: Any, priorities: Any) -> None:
        """Set the priorities of steps; see `update_priorities`."""
        rules, (checked, floats) = self.rules, self.rules.as_update(indexes, priorities)
        arguments = rules.formula, rules.largest_priority, rules.stale_updates
        status = update_masses(self.arrays_tuple, checked, floats, *arguments)
        if status == UNKNOWN_INDEX:
            self.find(checked)  # raises the error
        if status == BAD_PRIORITY:
            raise rules.priority_error(floats)

    def find(self, indexes: Integers) -> Integers:
        """Return the slot of each step, or GONE if it is no longer stored.

        Raise IndexError if an index has not been assigned to a step, or belongs to a final observation.
        """
        slots = np.empty(len(indexes), np.int64)
        find_steps(self.arrays_tuple, indexes, slots)
        if len(wrong := indexes[slots == UNKNOWN]):
            environment = int(wrong[0] % self.environments)
            raise IndexError(
                f"No step with index {wrong[0]} has been added; the next index of environment "
                f"{environment} is {self.next_index(environment)}."
            )
        if len(wrong := indexes[slots == FINAL]):
            raise IndexError(
                f"Index {wrong[0]} belongs to the final observation of an episode, which is not a step. Pass "
                "the indexes of a sample, or those that `get_episode` returns."
            )
        return slots
