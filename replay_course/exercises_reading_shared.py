"""Checks of chapter 06b: the parts of a stamp, who may claim a slot, and a log that is followed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from replay_course.exercises import NotYet
from replay_course.source import random_lines
from replay_tutorial.shared import (
    atomics,
    memory,
    mp_prioritized,
    mp_uniform,
    protocol,
    registry,
    sampler,
    shared_ring,
)
from replay_tutorial.shared.protocol import abandoned, held_stamp, index_of, owner_of, published_stamp

STAMPS = [published_stamp(6), held_stamp(9, 3), abandoned(held_stamp(11, 5)), 0]
STATES = ["published", "held by process 3", "held by a process that has died", "never written"]

ten_lines = partial(
    random_lines, [atomics, memory, mp_prioritized, mp_uniform, protocol, registry, sampler, shared_ring]
)


def check_stamps(indexes: Sequence[Any], owners: Sequence[Any]) -> None:
    """Check the index and the owner in each of `STAMPS`."""
    if ... in (*indexes, *owners):
        raise NotYet("write an index and an owner for each stamp")
    if (len(indexes), len(owners)) != (4, 4):
        raise NotYet(f"there are 4 stamps, but {len(indexes)} indexes and {len(owners)} owners")
    for stamp, index, owner in zip(STAMPS, indexes, owners, strict=True):
        if index != index_of(stamp):
            raise NotYet(
                f"{stamp} doesn't contain the index {index}: without its lowest 11 bits, it is index + 1"
            )
        if owner != owner_of(stamp):
            raise NotYet(f"{stamp} doesn't contain the owner {owner}: the owner is in bits 1 to 10")
    print(f"right: the slots are {', '.join(STATES)}")


def check_claim(can_claim: Callable[[int, int], Any]) -> None:
    """Check a function that says whether the writer of a row may claim a slot with a stamp."""
    for index in (4, 12, 20):
        for other in (-1, index - 1, 4, 12, 20):  # in rings of one slot and of eight
            for state, stamp in {
                "complete": published_stamp(other),
                "held by process 1": held_stamp(other, 1),
                "held by process 512": held_stamp(other, 512),
                "held by process 1023": held_stamp(other, 1023),
                "held by a dead process": abandoned(held_stamp(other, 7)),
            }.items():
                if other < 0 and stamp != 0:
                    continue
                where = "of a slot that was never written" if other < 0 else f"of row {other}, {state}"
                right = other < index and (not stamp & 1 or owner_of(stamp) == 0)
                given = can_claim(stamp, index)
                if not isinstance(given, int | np.bool_):
                    raise NotYet(f"my_can_claim must return True or False, not {given!r:.40}")
                if bool(given) != right:
                    raise NotYet(
                        f"the writer of row {index} may {'' if right else 'not '}claim the stamp {stamp}, "
                        f"{where}, but my_can_claim returned {given!r}"
                    )
    print("right: a slot may be claimed for a newer row, unless a living process may be writing to it")


def check_follow(follow: Callable[[list[int], int, int, int], Any]) -> None:
    """Check a function that returns the entries of a log that is a ring, or None if some are lost."""
    for length in (4, 8):
        for followed in range(2 * length):
            for end in range(followed, followed + 2 * length):
                for begun in (end, end + 1, end + length, end + 2 * length):
                    log = [0] * length
                    for number in range(begun - length, begun):
                        log[number % length] = 100 + number
                    lost = begun - followed > length and followed < end
                    right = None if lost else [100 + number for number in range(followed, end)]
                    given = follow(log, begun, followed, end)
                    if given is not None and not isinstance(given, list | tuple | np.ndarray):
                        raise NotYet(f"my_follow must return a list or None, not {given!r:.40}")
                    if (None if given is None else list(given)) != right:
                        entries = f"entries {followed} to {end - 1} are" if followed < end else "no entry is"
                        raise NotYet(
                            f"length {length}, {entries} new, and the updater is "
                            f"overwriting up to {begun - 1}: my_follow returned {given}, not {right}"
                        )
    print("right: all new entries are returned, or None if one may have been overwritten")
