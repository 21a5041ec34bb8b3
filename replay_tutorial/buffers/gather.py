"""From rows to a batch: which arrays a sample consists of, and whose they are.

Small fields are copied a whole record at a time, one visit to memory per row, and so lie side by side in the
batch, too. A large field is contiguous, and lies apart from the small ones: it costs as much, and a reward
that is kept does not hold the pictures of its rows. The caller may give arrays to copy into, again and again:
new memory costs a page fault for every 4 KiB, which is more than the copying.

Left out: where the rows lie (`ring`), and pictures that are stored as frames (`frames`).
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import LARGE, Batch, Fields, Rows, as_bytes
from replay_tutorial.buffers.jit import Bytes, Integers
from replay_tutorial.buffers.rows import take_parts, take_rows

Out = Mapping[str, npt.NDArray[Any]]

ArraySpec = tuple[np.dtype[Any], tuple[int, ...]]  # of a field: dtype and shape

DRAW_SPECS: dict[str, ArraySpec] = {
    "indexes": (np.dtype(np.int64), ()),
    "weights": (np.dtype(np.float32), ()),
}

LINE = 64  # bytes, of the cache


class Gather:
    """Takes rows of certain fields out of a ring."""

    def __init__(self, fields: Fields) -> None:
        """Find the small fields, with which a row begins, and the large ones behind them."""
        places: Any = fields.dtype.fields  # name → dtype and offset
        self._names = list(fields.fields)
        self._large = [(f, places[f.name][1]) for f in fields.fields.values() if f.nbytes >= LARGE]
        self._small_bytes: int = min((start for _, start in self._large), default=fields.dtype.itemsize)
        small = [f for f in fields.fields.values() if f.nbytes < LARGE]
        self._small = np.dtype(
            {
                "names": [f.name for f in small],
                "formats": [(f.dtype, f.shape) for f in small],
                "offsets": [places[f.name][1] for f in small],
                "itemsize": self._small_bytes or 1,
            }
        )

    def take(self, rows: Bytes, slots: Integers, out: Out, threads: int = 1) -> Batch:
        """Copy the rows in slots, int64[n]: each field to a new array, (n, *shape), or to that in `out`."""
        count = len(slots)
        small = np.empty((count, self._small.itemsize), np.uint8)
        records = small.view(self._small).reshape(-1)
        if not self._large and threads == 1 and not out:
            take_rows(rows, slots, small)
            return {name: records[name] for name in self._names}
        specs: dict[str, ArraySpec] = {
            f.name: (f.dtype, f.shape) for f, _ in self._large if f.name not in out
        }
        batch = {**out, **new_arrays(count, specs)}
        parts = [(0, small, self._small_bytes)]
        for field, start in self._large:
            flat = batch[field.name].reshape(count, math.prod(field.shape)).view(np.uint8)
            parts.append((start, flat, field.nbytes))

        def copy(some: slice) -> None:
            for start, copies, length in parts:
                take_parts(rows, slots[some], start, copies[some], length)

        in_threads(copy, count, threads)
        write_to_out(batch, out, **{name: records[name] for name in self._small.names or ()})
        return {name: batch[name] for name in self._names}

    def to_batch(self, records: Rows, out: Out) -> Batch:
        """Return copies of rows as a batch: their small fields in place."""
        if not (self._large or out):
            return {name: records[name] for name in self._names}
        return self.take(as_bytes(records), np.arange(len(records)), out)


def new_arrays(count: int, specs: Mapping[str, ArraySpec]) -> Batch:
    """Make an array of shape (count, *shape) for each large field.

    In one block: the system's allocator gives two large ones back each time they are freed, and with them
    all their pages.
    """
    arrays: Batch = {}
    sizes = {name: count * dtype.itemsize * math.prod(shape) for name, (dtype, shape) in specs.items()}
    block, start = np.empty(sum(size + LINE for size in sizes.values()), np.uint8), 0
    for name, (dtype, shape) in specs.items():
        arrays[name] = block[start : start + sizes[name]].view(dtype).reshape(count, *shape)
        start += -(-sizes[name] // LINE) * LINE
    return arrays


def write_to_out(batch: Batch, out: Out, **arrays: npt.NDArray[Any]) -> Batch:
    """Put arrays into a batch, or what they hold into the caller's."""
    for name, array in arrays.items():
        batch[name] = out.get(name, array)
        if name in out and not np.may_share_memory(array, out[name]):  # else it was made there
            out[name][...] = array
    return batch


def in_threads(copy: Callable[[slice], None], count: int, threads: int) -> None:
    """Let each thread copy an equal number of `count` rows: kernels release the GIL."""
    threads = max(1, min(threads, count))
    first, *others = [slice(count * k // threads, count * (k + 1) // threads) for k in range(threads)]
    if not others:
        return copy(first)
    with ThreadPoolExecutor(len(others)) as pool:
        copies = [pool.submit(copy, share) for share in others]
        copy(first)
        for each in copies:
            each.result()  # raises what went wrong there


def check_out(out: Out, batch_size: int, expected: Mapping[str, ArraySpec]) -> Out:
    """Refuse arrays for a sample that are not of its fields, shapes and dtypes, or can't be written to."""
    if not isinstance(out, Mapping):
        raise TypeError(f"out must be a dict of arrays by field's name, not {out!r:.60}.")
    for name, array in out.items():
        if name not in expected:
            raise KeyError(f"out names {name!r}; a sample has {list(expected)}.")
        if not isinstance(array, np.ndarray):
            raise TypeError(f"out[{name!r}] must be a NumPy array, not {type(array).__name__}.")
        dtype, shape = expected[name][0], (batch_size, *expected[name][1])
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(
                f"out[{name!r}] must be {dtype} of shape {shape}, not {array.dtype} of shape {array.shape}."
            )
        if not array.flags.carray:
            raise ValueError(f"out[{name!r}] must be C-contiguous, aligned and writable.")
    if any(np.may_share_memory(one, other) for one, other in combinations(out.values(), 2)):
        raise ValueError(f"out has the same memory under two names, of {list(out)}: give each its own array.")
    return out


def array_specs(fields: Fields) -> dict[str, ArraySpec]:
    """Describe the arrays of a sample."""
    return {field.name: (field.dtype, field.shape) for field in fields.fields.values()}
