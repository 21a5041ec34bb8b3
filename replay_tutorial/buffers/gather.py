"""Gathering rows into a batch.

Small fields are copied together as one record, with one memory access per row, so that their arrays are
strided views of one block. Each large field is copied to a contiguous array of its own, at the same cost;
keeping the rewards of a batch therefore doesn't keep its images alive.

Read in chapter 05b, *Reading the real buffer*.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from replay_tutorial.buffers.batch import KNOWN_TO_JAX, Batch, empty
from replay_tutorial.buffers.fields import LARGE, Fields, Rows, as_bytes
from replay_tutorial.buffers.rows import take_parts, take_rows, take_runs
from replay_tutorial.buffers.runtime.jit import Bytes, Integers

ArraySpec = tuple[np.dtype[Any], tuple[int, ...]]  # dtype and shape of a field

DRAW_SPECS: dict[str, ArraySpec] = {
    "indexes": (np.dtype(np.int64), ()),
    "weights": (np.dtype(np.float32), ()),
}

LINE = 64  # bytes of a cache line


class Gather:
    """Copies rows out of a ring into a batch."""

    def __init__(self, fields: Fields) -> None:
        """Locate the small fields at the start of a row and the large ones after them.

        `fields.fields` may be some of the fields in `fields.dtype`: only those are copied, and the small ones
        before them.
        """
        places: Any = fields.dtype.fields  # name → dtype and offset
        self.fields, self._names = fields, list(fields.fields)
        self._large = [(f, places[f.name][1]) for f in fields.fields.values() if f.nbytes >= LARGE]
        self._large_types = {field.name: value_type(field.dtype, field.shape) for field, _ in self._large}
        small = [f for f in fields.fields.values() if f.nbytes < LARGE]
        end = max((places[f.name][1] + f.nbytes for f in small), default=0)
        unit = math.lcm(8, *(f.dtype.itemsize for f in fields.fields.values()))
        self._small_bytes: int = -(-end // unit) * unit
        self._small = np.dtype(
            {
                "names": [f.name for f in small],
                "formats": [(f.dtype, f.shape) for f in small],
                "offsets": [places[f.name][1] for f in small],
                "itemsize": self._small_bytes or 1,
            }
        )

    def take(self, rows: Bytes, slots: Integers, in_runs: bool = False) -> Batch:
        """Copy the rows in slots, int64[n], to new arrays of shape (n, *shape).

        `in_runs` says that most slots follow the one before, so that they are copied faster together.
        """
        count = len(slots)
        small = np.empty((count, self._small.itemsize), np.uint8)
        records = np.ndarray(count, self._small, small)
        if not self._large:
            if self._small_bytes < rows.shape[1]:
                take_parts(rows, slots, 0, small, self._small_bytes)
            else:
                (take_runs if in_runs else take_rows)(rows, slots, small)
            return self.to_batch(records)
        take_parts(rows, slots, 0, small, self._small_bytes)
        large = new_arrays(count, self._large_types)
        for field, start in self._large:
            flat = np.ndarray((count, field.nbytes), np.uint8, large[field.name])
            take_parts(rows, slots, start, flat, field.nbytes)
        return Batch({name: large[name] if name in large else records[name] for name in self._names})

    def to_batch(self, records: Rows) -> Batch:
        """Convert copied rows to a batch; small fields remain views of `records`."""
        if self._large:
            return self.take(as_bytes(records), np.arange(len(records)))
        # once JAX has been imported, `Batch()` registers the class
        batch = Batch() if "jax" in sys.modules and not KNOWN_TO_JAX else empty(Batch)
        for name in self._names:
            batch[name] = records[name]
        return batch


def value_type(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.dtype[Any]:
    """Return the dtype of one value of a field as a whole, for `new_arrays`."""
    return np.dtype((dtype, shape))


def new_arrays(count: int, types: Mapping[str, np.dtype[Any]]) -> dict[str, Any]:
    """Allocate an array of shape (count, *shape) for each `value_type`, all in one block.

    The C allocator returns the pages of several large blocks to the operating system whenever they are freed;
    those of a single block can be reused.
    """
    arrays: dict[str, Any] = {}  # `dict[str, Any]()` takes as long as two arrays
    start, size = 0, 0
    for value in types.values():
        size += count * value.itemsize + LINE
    block = np.empty(size, np.uint8)
    for name, value in types.items():
        arrays[name] = np.ndarray(count, value, block, start)
        start += -(-count * value.itemsize // LINE) * LINE
    return arrays


def array_specs(fields: Fields) -> dict[str, ArraySpec]:
    """Return the dtype and shape of each field."""
    return {field.name: (field.dtype, field.shape) for field in fields.fields.values()}
