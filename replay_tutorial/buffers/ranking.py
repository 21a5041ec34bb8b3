"""Slots grouped by mass, to find the row with a given rank, or the largest mass, without sorting.

    mass in         slots       ranks
    [1.50, 1.52)    7 2         1 and 2: one of them at random
    [1.00, 1.02)    0 4 5       3 to 5

Positive doubles have the same order as their bits, read as integers. The first bits therefore number groups
of nearly equal masses in ascending order: each octave, [2^e, 2^(e+1)), has 64 groups. The ranks in a group
follow from the sizes of the groups with larger masses. Changing a mass takes O(1): the last slot of the old
group fills the gap, and the slot is appended to the new group.

The slots of all groups share one array. A full group moves to the end of the used part, where twice the room
is reserved for it. When the array is full, all slots are grouped again, in O(capacity).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.runtime.jit import Floats, Integers, kernel

# Kernels that use these are in this file, because Numba recompiles only the kernels of a changed file.
OCTAVES = 2048  # number of exponents of a double
GROUP_BITS = 6
GROUPS_PER_OCTAVE = 1 << GROUP_BITS
SHIFT = 52 - GROUP_BITS  # a double has 52 bits of fraction: group = bits >> SHIFT, and 0 if the mass is 0
LOW = 32  # an entry of `places` is group << LOW | position
LOWER_BITS = (1 << LOW) - 1


class Groups(NamedTuple):
    """The slots, group by group."""

    places: Integers  # [capacity], group << 32 | position in the group, of each slot; 0 if it is in no group
    members: Integers  # [4 * capacity + 64], the slots of each group, and room for more
    starts: Integers  # [groups], where in `members` each group begins
    counts: Integers  # [groups], its number of slots
    rooms: Integers  # [groups], how many slots it has room for
    octaves: Integers  # [OCTAVES], number of slots in the groups of an octave, to skip empty octaves
    used: Integers  # [1], where in `members` the unused part begins


Plain = Annotated[tuple[Any, ...], Groups]  # as passed from Python; see `jit.numba_type`


@kernel
def group_all(bits: Integers, plain: Plain) -> None:
    """Group all slots by the bits of their masses; everything but `members` must be 0."""
    places, members, starts, counts, rooms, octaves, used = plain
    for slot in range(places.shape[0]):
        group = bits[slot] >> SHIFT
        counts[group] += 1
        octaves[group >> GROUP_BITS] += 1
    octaves[0] -= counts[0]  # slots of mass 0
    counts[0] = 0
    for octave in range(OCTAVES):
        if octaves[octave] > 0:
            for group in range(octave << GROUP_BITS, (octave + 1) << GROUP_BITS):
                count = counts[group]
                starts[group], counts[group] = used[0], 0
                rooms[group] = count + (count + 1) // 2
                used[0] += rooms[group]
    for slot in range(places.shape[0]):
        group = bits[slot] >> SHIFT
        if group > 0:
            places[slot] = group << LOW | counts[group]
            members[starts[group] + counts[group]] = slot
            counts[group] += 1


@kernel
def regroup(bits: Integers, slots: Integers, plain: Plain) -> bool:
    """Move slots whose masses may have changed.

    Return False if `members` is full, so that all slots must be grouped again. A second call with the same
    slots, after an interrupt, has no effect.
    """
    places, members, starts, counts, rooms, octaves, used = plain
    # Two loops instead of one, so that the memory accesses of many slots overlap: twice as fast.
    for i in range(slots.shape[0]):
        place = places[slots[i]]
        group = place >> LOW
        if group > 0 and group != bits[slots[i]] >> SHIFT:
            counts[group] -= 1
            octaves[group >> GROUP_BITS] -= 1
            last = members[starts[group] + counts[group]]
            members[starts[group] + (place & LOWER_BITS)] = last
            places[last] = place
            places[slots[i]] = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        group = bits[slot] >> SHIFT
        if group > 0 and places[slot] == 0:
            count, start = counts[group], starts[group]
            if count == rooms[group]:
                room = max(4, 2 * count)
                if used[0] + room > members.shape[0]:
                    return False
                members[used[0] : used[0] + count] = members[start : start + count]
                starts[group], rooms[group], start = used[0], room, used[0]
                used[0] += room
            members[start + count] = slot
            places[slot] = group << LOW | count
            counts[group] += 1
            octaves[group >> GROUP_BITS] += 1
    return True


@kernel
def draw_by_rank(
    plain: Plain, cumulative: Floats, uniforms: Floats, slots: Integers, probabilities: Floats
) -> float:
    """Draw a row from each of n equal segments of the total, in random order; write the slots and P(row).

    `uniforms` are 2 n random numbers in [0, 1): n for the segments, and n for the order. Return the smallest
    P(row) of all rows.
    """
    _, members, starts, counts, _, octaves, _ = plain
    n = slots.shape[0]
    row_count = octaves.sum()
    total = cumulative[row_count]
    drawn, rank, low, probability = 0, 0, 0.0, 0.0
    query = uniforms[0] / n * total
    for octave in range(OCTAVES - 1, -1, -1):
        if octaves[octave] == 0:
            continue
        for group in range((octave + 1 << GROUP_BITS) - 1, (octave << GROUP_BITS) - 1, -1):
            count = counts[group]
            if count == 0:
                continue
            rank += count
            high = cumulative[rank]
            probability = (high - low) / count / total
            # Because of rounding, the last query may be the total.
            while drawn < n and (query < high or rank == row_count):
                position = min(int((query - low) / (high - low) * count), count - 1)
                slots[drawn] = starts[group] + position
                probabilities[drawn] = probability
                drawn += 1
                query = (drawn + uniforms[drawn]) / n * total
            low = high
    for i in range(n):  # in a separate loop, so that the accesses to `members` overlap
        slots[i] = members[slots[i]]
    for i in range(n - 1, 0, -1):  # shuffle: the rows are in the order of their ranks
        j = int(uniforms[n + i] * (i + 1))
        slots[i], slots[j] = slots[j], slots[i]
        probabilities[i], probabilities[j] = probabilities[j], probabilities[i]
    return probability


@kernel
def largest_mass(plain: Plain, masses: Floats, bound: float) -> float:
    """Return the largest mass, or 0 if there is none; stop at a mass of `bound`, which none should exceed."""
    _, members, starts, counts, _, octaves, _ = plain
    for octave in range(OCTAVES - 1, -1, -1):
        for group in range((octave + 1 << GROUP_BITS) - 1, (octave << GROUP_BITS) - 1, -1):
            if octaves[octave] == 0:
                break
            if counts[group] > 0:
                largest = 0.0
                for i in range(starts[group], starts[group] + counts[group]):
                    mass: Any = masses[members[i]]
                    largest = max(largest, mass)
                    if largest == bound:
                        break
                return largest
    return 0.0


class Ranking:
    """The slots of a sum tree, grouped by mass; uses about 40 bytes per slot.

    The owner of the masses reports changes with `mark`; `groups` then applies all of them.
    """

    def __init__(self, capacity: int) -> None:
        """Start with no slot grouped; the first call of `groups` groups all of them."""
        self._capacity = capacity
        self._limit = max(1024, capacity // 8)  # with more changed slots, grouping all is faster
        self._changed: list[Integers] = []
        self._changes = self._limit + 1
        self._groups: tuple[Any, ...] = ()

    def mark(self, slots: Integers) -> None:
        """Note that the masses of slots, int64[n], have changed or are about to change. O(1)."""
        self._changes += len(slots)
        if self._changes > self._limit:
            self._changed.clear()
        else:
            self._changed.append(slots)

    def groups(self, masses: Floats) -> tuple[Any, ...]:
        """Return the `Groups` of the current masses, float64[at least capacity]."""
        bits = masses.view(np.int64)
        if self._changes == 0:
            return self._groups
        if self._changes > self._limit or not regroup(bits, np.concatenate(self._changed), self._groups):
            self._groups = self._grouped(bits)
        self._changed, self._changes = [], 0  # after the kernel: an interrupted call starts over
        return self._groups

    def _grouped(self, bits: Integers) -> tuple[Any, ...]:
        groups, count = OCTAVES * GROUPS_PER_OCTAVE, self._capacity
        # The operating system allocates a page when it is first written, so most groups take no memory.
        per_group = (np.zeros(groups, np.int64) for _ in range(3))
        places, members = np.zeros(count, np.int64), np.empty(4 * count + 64, np.int64)
        arrays = places, members, *per_group, np.zeros(OCTAVES, np.int64), np.zeros(1, np.int64)
        group_all(bits, arrays)
        return arrays
