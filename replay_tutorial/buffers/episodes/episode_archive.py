"""The rings of episodes in a file: only occupied slots are written, and invalid files are rejected.

The file contains five counters per environment, the table entries of the episodes in occupied slots, and the
rows, kinds and masses of these slots, by environment and oldest first. All other values are computed.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.archive import MAX_COUNT, Arrays, Damaged, Reader
from replay_tutorial.buffers.episodes.episode_ring import (
    NO_STEP,
    PAD,
    RUNNING,
    SHIFT,
    START,
    EpisodeRing,
    Windows,
    has_shifted_window,
)
from replay_tutorial.buffers.n_step.autoreset import EITHER, TRANSITION
from replay_tutorial.buffers.runtime.jit import Integers


def segments(ring: EpisodeRing, array: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return views of the occupied slots: two for each environment, split at the wrap-around."""
    views, ends = list[npt.NDArray[Any]](), ring.arrays.heads + ring.arrays.running
    for environment, (oldest, end) in enumerate(zip(ring.oldest_positions, ends, strict=True)):
        own = array[environment * ring.room : (environment + 1) * ring.room]
        first, count = oldest % ring.room, end - oldest
        until_wrap = min(count, ring.room - first)
        views += [own[first : first + until_wrap], own[: count - until_wrap]]
    return views


def state_of(ring: EpisodeRing) -> Arrays:
    """Return the arrays of a ring in the order in which they are written."""
    arrays, found = ring.arrays, ring.look_up(ring.all_episodes())
    used = found.running | (found.ends >= ring.oldest_positions[found.environments])
    by_environment = np.argsort(found.environments[used], kind="stable")
    entries = found.entries[used][by_environment]
    number_used = np.bincount(found.environments[used], minlength=ring.environments)
    counts = np.stack([arrays.heads, arrays.floors, arrays.episodes, arrays.running, number_used])
    return {
        "counts": [counts],
        "starts": [arrays.starts[entries]],
        "ends": [arrays.ends[entries]],
        "returns": [arrays.returns[entries]],
        "tags": [arrays.tags[entries]],
        "evicted": [arrays.evicted[entries].view(np.uint8)],
        "rows": segments(ring, arrays.rows),
        "kinds": segments(ring, arrays.kinds),
        "masses": segments(ring, ring.tree.leaves),
        **({"resets": [ring.resets[0]]} if ring.resets.size else {}),
    }


def ring_from_state(reader: Reader, like: EpisodeRing, windows: Windows) -> EpisodeRing:
    """Return a new ring with the saved state; raise Damaged if it contradicts itself."""
    ring = EpisodeRing(like.room, like.environments, like.fields, like.resets.size > 0)
    counts = np.zeros((5, ring.environments), np.int64)
    reader.read_into("counts", [counts])
    heads, floors, episodes, running, entries = counts
    table = len(ring.arrays.starts) // ring.environments
    check("a counter is negative", counts >= 0)
    check("a position is too large", heads <= MAX_COUNT // ring.environments)
    check("a counter is larger than another allows", (floors <= heads) & (episodes <= heads) & (running <= 1))
    check("there are more entries than episodes", entries <= np.minimum(episodes, table))
    check("occupied slots have no episode", (entries > 0) | ((floors == heads) & (running == 0)))
    ring.arrays.heads[:], ring.arrays.floors[:], ring.arrays.episodes[:] = heads, floors, episodes
    ring.arrays.running[:] = running != 0
    steps = read_table(reader, ring, entries)
    for name, array in (
        ("rows", ring.arrays.rows),
        ("kinds", ring.arrays.kinds),
        ("masses", ring.tree.leaves),
    ):
        reader.read_into(name, segments(ring, array))
    kinds = np.concatenate(segments(ring, ring.arrays.kinds))
    check("a slot has the wrong kind", ((kinds != NO_STEP) == steps) & (kinds <= START))
    check_windows(ring, windows)
    masses = np.concatenate(segments(ring, ring.tree.leaves))
    check("a slot that can't be drawn has a mass", (masses == 0.0) | (kinds == START))
    ring.arrays.stored[:] = (ring.arrays.kinds.reshape(ring.environments, -1) != NO_STEP).sum(axis=1)
    ring.tree.recompute(np.arange(ring.capacity))
    if ring.resets.size:
        reader.read_into("resets", [ring.resets[0]])
        known = (ring.resets[0] <= EITHER) & ((ring.resets[0] == TRANSITION) | (running == 0))
        check("an environment waits for its reset during an episode", known)
    return ring


def read_table(reader: Reader, ring: EpisodeRing, entries: Integers) -> npt.NDArray[np.bool_]:
    """Read the entries of the table; return which of the occupied slots must hold steps."""
    arrays, count = ring.arrays, int(entries.sum())
    starts, ends, tags = np.zeros((3, count), np.int64)
    returns, evicted = np.zeros(count), np.zeros(count, np.uint8)
    for name, array in (("starts", starts), ("ends", ends), ("returns", returns), ("tags", tags)):
        reader.read_into(name, [array])
    reader.read_into("evicted", [evicted])
    environments = np.repeat(np.arange(ring.environments), entries)
    oldest, heads = ring.oldest_positions[environments], arrays.heads[environments]
    first = np.append(True, environments[1:] != environments[:-1])[:count]  # of its environment
    newest = np.append(first[1:], True)[:count]
    running = newest & arrays.running[environments]
    final = np.where(running, heads, ends)  # positions of the final observations
    check("an episode has no step", (starts >= 0) & (starts < final))
    check("the running episode has ended or is evicted", ~running | ((ends == RUNNING) & (evicted == 0)))
    check("the flag `evicted` of an episode is not 0 or 1", evicted <= 1)
    check("episodes have a gap", first[1:] | (starts[1:] == final[:-1] + 1))
    check("the oldest episode doesn't match the counters", ~first | ((starts <= oldest) & (oldest <= final)))
    check("the newest episode doesn't match the counters", ~newest | (final == heads - 1 + running))
    serials = np.arange(count) + np.repeat(arrays.episodes - np.cumsum(entries), entries)
    table = len(arrays.starts) // ring.environments
    slots = environments * table + serials % table
    arrays.starts[slots], arrays.ends[slots], arrays.returns[slots] = starts, ends, returns
    arrays.tags[slots], arrays.evicted[slots] = tags, evicted != 0
    counts = final - np.maximum(starts, oldest) + 1
    serials_of_slots = np.repeat(serials, counts)
    for segment in segments(ring, arrays.serials):
        segment[:], serials_of_slots = serials_of_slots[: len(segment)], serials_of_slots[len(segment) :]
    steps = np.repeat(evicted == 0, counts)
    steps[np.cumsum(counts) - 1] = False
    return steps


def check_windows(ring: EpisodeRing, windows: Windows) -> None:
    """Raise Damaged unless windows start at exactly the steps that the kernels of `episode_ring` choose."""
    length, period, boundary = windows
    slots = np.flatnonzero(ring.arrays.kinds != NO_STEP)
    environments = slots // ring.room
    found = ring.look_up(ring.arrays.serials[slots] * ring.environments + environments)
    heads, starts = ring.arrays.heads[environments], ring.arrays.starts[found.entries]
    number, steps = heads - (heads - slots) % ring.room - starts, found.ends - starts  # in the episode
    begins = (number % period == 0) & ((number + length <= steps) | (boundary == PAD) & ~found.running)
    if boundary == SHIFT:
        shifted = ~found.running & has_shifted_window(steps, length, period)
        begins |= shifted & (number == np.maximum(steps - length, 0))
    check("a window starts at a wrong step", begins == (ring.arrays.kinds[slots] == START))


def check(fault: str, valid: npt.NDArray[np.bool_]) -> None:
    """Raise Damaged if a condition does not hold everywhere."""
    if not valid.all():
        raise Damaged(fault)
