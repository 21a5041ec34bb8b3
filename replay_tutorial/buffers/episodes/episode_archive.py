"""The rings of episodes in a file: only occupied slots are written, and invalid files are rejected.

The file contains five counters per environment, the table entries of the episodes in occupied slots, and the
rows, kinds and masses of these slots, by environment and oldest first. All other values are computed.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.archive import MAX_COUNT, Arrays, Damaged, Reader
from replay_tutorial.buffers.episodes.episode_ring import (
    CROSS,
    ENTRY,
    NO_STEP,
    PAD,
    RUNNING,
    SHIFT,
    SLOT,
    START,
    STEP,
    EpisodeRing,
    WindowRule,
    entry_of,
    has_shifted_window,
)
from replay_tutorial.buffers.n_step.autoreset import EITHER, TRANSITION
from replay_tutorial.buffers.runtime.jit import Integers

# The arrays of a file that contain a field of the table's entries.
TABLE_ARRAYS = {
    "starts": "start",
    "ends": "end",
    "returns": "reward_sum",
    "tags": "tag",
    "evicted": "evicted",
}


def segments(ring: EpisodeRing, array: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return views of the occupied slots: two for each environment, split at the wrap-around."""
    views, rings = list[npt.NDArray[Any]](), ring.arrays.rings
    for environment, (oldest, end) in enumerate(
        zip(ring.oldest_positions, rings["head"] + rings["running"], strict=True)
    ):
        own = array[environment * ring.room : (environment + 1) * ring.room]
        first, count = oldest % ring.room, end - oldest
        until_wrap = min(count, ring.room - first)
        views += [own[first : first + until_wrap], own[: count - until_wrap]]
    return views


def state_of(ring: EpisodeRing, resets: bool) -> Arrays:
    """Return the arrays of a ring in the order in which they are written."""
    rings, found = ring.arrays.rings, ring.look_up(ring.all_episodes())
    used = found.running | (found.ends >= ring.oldest_positions[found.environments])
    by_environment = np.argsort(found.environments[used], kind="stable")
    table = ring.arrays.table[found.entries[used][by_environment]]
    counts = [
        *(rings[name].astype(np.int64) for name in ("head", "floor", "episodes", "running")),
        np.bincount(found.environments[used], minlength=ring.environments),
    ]
    return {
        "counts": [np.stack(counts)],
        **{name: [as_saved(table[field])] for name, field in TABLE_ARRAYS.items()},
        "rows": segments(ring, ring.arrays.rows),
        "kinds": segments(ring, ring.arrays.kinds),
        "masses": segments(ring, ring.tree.leaves),
        **({"resets": [rings["reset"]]} if resets else {}),
    }


def as_saved(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of a column of the table, with flags as uint8."""
    return column.astype(np.uint8 if column.dtype == np.bool_ else column.dtype)


def ring_from_state(reader: Reader, like: EpisodeRing, rule: WindowRule, has_resets: bool) -> EpisodeRing:
    """Return a new ring with the saved state; raise Damaged if it contradicts itself."""
    ring = EpisodeRing(like.rules, like.room, like.environments, like.fields)
    counts, rings = np.zeros((5, ring.environments), np.int64), ring.arrays.rings
    reader.read_into("counts", [counts])
    heads, floors, episodes, running, entries = counts
    check("a counter is negative", counts >= 0)
    check("a position is too large", heads <= MAX_COUNT // ring.environments)
    check("a counter is larger than another allows", (floors <= heads) & (episodes <= heads) & (running <= 1))
    most = len(ring.arrays.table) // ring.environments
    check("there are more entries than episodes", entries <= np.minimum(episodes, most))
    check("occupied slots have no episode", (entries > 0) | ((floors == heads) & (running == 0)))
    rings["head"], rings["floor"], rings["episodes"], rings["running"] = heads, floors, episodes, running
    steps = read_table(reader, ring, entries)
    reader.read_into("rows", segments(ring, ring.arrays.rows))
    reader.read_into("kinds", segments(ring, ring.arrays.kinds))
    reader.read_into("masses", segments(ring, ring.tree.leaves))
    kinds = np.concatenate(segments(ring, ring.arrays.kinds))
    check("a slot has the wrong kind", ((kinds != NO_STEP) == steps) & (kinds <= START))
    check_windows(ring, rule)
    masses = np.concatenate(segments(ring, ring.tree.leaves))
    check("a slot that can't be drawn has a mass", (masses == 0.0) | (kinds == START))
    by_environment = ring.arrays.kinds.reshape(ring.environments, -1)
    rings["stored"], rings["windows"] = ((by_environment >= kind).sum(axis=1) for kind in (STEP, START))
    ring.tree.recompute(np.arange(ring.capacity))
    if has_resets:
        resets = np.zeros(ring.environments, np.uint8)
        reader.read_into("resets", [resets])
        known = (resets <= EITHER) & ((resets == TRANSITION) | (running == 0))
        check("an environment waits for its reset during an episode", known)
        rings["reset"] = resets
    return ring


def read_table(reader: Reader, ring: EpisodeRing, counts: Integers) -> npt.NDArray[np.bool_]:
    """Read the entries of the table, so many of each environment; return which occupied slots hold steps."""
    rings, table = ring.arrays.rings, np.zeros(int(counts.sum()), ENTRY)
    for name, field in TABLE_ARRAYS.items():
        column = as_saved(table[field])
        reader.read_into(name, [column])
        check(f"a flag in `{name}` is not 0 or 1", (field != "evicted") | (column <= 1))
        table[field] = column
    environments = np.repeat(np.arange(ring.environments), counts)
    oldest, heads = ring.oldest_positions[environments], rings["head"][environments]
    first = np.append(True, environments[1:] != environments[:-1])[: len(table)]  # of its environment
    newest = np.append(first[1:], True)[: len(table)]
    running, starts, evicted = newest & rings["running"][environments], table["start"], table["evicted"]
    final = np.where(running, heads, table["end"])  # positions of the final observations
    check("an episode has no step", (starts >= 0) & (starts < final))
    check("the running episode has ended or is evicted", ~running | ((table["end"] == RUNNING) & ~evicted))
    check("episodes have a gap", first[1:] | (starts[1:] == final[:-1] + 1))
    check("the oldest episode doesn't match the counters", ~first | ((starts <= oldest) & (oldest <= final)))
    check("the newest episode doesn't match the counters", ~newest | (final == heads - 1 + running))
    serials = np.arange(len(table)) + np.repeat(rings["episodes"] - np.cumsum(counts), counts)
    table["number"] = serials * ring.environments + environments
    places = entry_of(ring.arrays, environments, serials)
    ring.arrays.table[places] = table
    firsts = np.maximum(starts, oldest)
    slots = final - firsts + 1  # number of each episode's slots
    occupied = np.zeros(int(slots.sum()), SLOT)
    positions = np.arange(len(occupied)) + np.repeat(firsts - np.cumsum(slots) + slots, slots)
    occupied["index"] = positions * ring.environments + np.repeat(environments, slots)
    occupied["entry"] = np.repeat(places, slots)
    for segment in segments(ring, ring.arrays.slots):
        segment[:], occupied = occupied[: len(segment)], occupied[len(segment) :]
    steps = np.repeat(~evicted, slots)
    steps[np.cumsum(slots) - 1] = False
    return steps


def check_windows(ring: EpisodeRing, rule: WindowRule) -> None:
    """Raise Damaged unless windows start at exactly the steps that the kernels of `episode_ring` choose."""
    length, period, boundary = rule
    is_step = ring.arrays.kinds != NO_STEP
    slots, kinds = ring.arrays.slots[is_step], ring.arrays.kinds[is_step]
    table, positions = ring.arrays.table[slots["entry"]], slots["index"] // ring.environments
    running, heads = table["end"] == RUNNING, ring.arrays.rings["head"][slots["index"] % ring.environments]
    number = positions - table["start"]  # of the step in its episode
    ends: Integers = table["end"]
    steps = np.where(running | (boundary == CROSS), heads, ends) - table["start"]
    begins = (number % period == 0) & ((number + length <= steps) | (boundary == PAD) & ~running)
    if boundary == SHIFT:
        shifted = ~running & has_shifted_window(steps, length, period)
        begins |= shifted & (number == np.maximum(steps - length, 0))
    check("a window starts at a wrong step", begins == (kinds == START))


def check(fault: str, valid: npt.NDArray[np.bool_]) -> None:
    """Raise Damaged if a condition does not hold everywhere."""
    if not valid.all():
        raise Damaged(fault)
