"""Pairs: the row of a step together with the next observations, which are in the slot after it.

A transition is copied as one record: a row, and the first bytes of the next row, up to its observations' end.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from replay_tutorial.buffers.fields import LARGE, Fields
from replay_tutorial.buffers.rows import copy_part
from replay_tutorial.buffers.runtime.jit import Bytes, Integers, jitable, kernel


@jitable
def next_slot(slot: int, count: int) -> int:
    """Return the next slot in its ring, one of several rings of `count` slots."""
    return slot + 1 if (slot + 1) % count else slot + 1 - count


def next_slots(slots: Integers, count: int) -> Integers:
    """Return the next slots in their rings."""
    following = slots + 1
    following -= count * (following % count == 0)
    return following


@kernel
def take_pairs(rows: Bytes, slots: Integers, lasts: Integers, count: int, copies: Bytes) -> None:
    """Copy the rows in `slots` to `copies`, each with the first bytes of the row after that in `lasts`."""
    length = rows.shape[1]
    for i in range(len(slots)):
        copy_part(copies, i, 0, rows, slots[i], 0, length)
        copy_part(copies, i, length, rows, next_slot(lasts[i], count), 0, copies.shape[1] - length)


def pair_dtype(fields: Fields, nexts: Mapping[str, str]) -> np.dtype[Any] | None:
    """Return the dtype of a row and the part of the next row that contains its next observations.

    `nexts` maps observations to their next observations. Return None if a field is large, and therefore
    copied to an array of its own.
    """
    if any(field.nbytes >= LARGE for field in fields.fields.values()):
        return None
    places: Any = fields.dtype.fields  # name → dtype and offset
    unit = math.lcm(8, *(field.dtype.itemsize for field in fields.fields.values()))
    end = max(places[name][1] + places[name][0].itemsize for name in nexts)
    offsets = [places[name][1] for name in fields.fields]
    return np.dtype(
        {
            "names": [*fields.fields, *nexts.values()],
            "formats": [places[name][0] for name in (*fields.fields, *nexts)],
            "offsets": offsets + [fields.dtype.itemsize + places[name][1] for name in nexts],
            "itemsize": fields.dtype.itemsize + -(-end // unit) * unit,
        }
    )
