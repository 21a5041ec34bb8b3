"""A server's file: everything that decides what the next calls return, taken apart and put together again.

Of each table the file holds the items by slot, the counts, and the order of each selector; of each column the
values; and the generator's state. Whatever follows from these is made again, so that it can't disagree: how
often a cell is named, which are free, sum trees and heaps. What the program decides is not in it: limiters,
max_times_sampled, capacity, hooks. Nor are writers: after loading, each begins anew.

Left out: how a file is written, and read without trusting it (`archive`).
"""

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.archive import Arrays, Damaged, Reader, checked_count
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.tables.core.cells import CellList, Cells
from replay_tutorial.tables.core.message import Layout, Part
from replay_tutorial.tables.core.table import Parts
from replay_tutorial.tables.core.table_state import TableState

COUNTS = ("inserts", "samples", "deletes", "unique_samples", "stale")


def layout_of(fields: Fields, tables: Mapping[str, TableState]) -> dict[str, Any]:
    """Describe what must be the same for a file to be loaded."""
    described = [contents.description for contents in tables.values()]
    return {
        "columns": {f.name: [f.dtype.str, list(f.shape)] for f in fields.fields.values()},
        "order": list(fields.fields),
        "tables": {t.name: [repr(t.sampler), repr(t.remover), t.max_size] for t in described},
    }


def save(
    path: str | PathLike[str],
    fields: Fields,
    cells: Cells,
    rng: np.random.Generator,
    tables: Mapping[str, TableState],
) -> None:
    """Write a file."""
    touched = cells.store.touched
    arrays: Arrays = {"touched": [touched]}
    arrays |= {f"column_{i}": [values[: touched[i]]] for i, values in enumerate(cells.values)}
    every: list[dict[str, Any]] = []
    for number, contents in enumerate(tables.values()):
        counters, parts = table_state(contents)
        every.append(counters)
        arrays |= {f"table_{number}_{name}": [array] for name, array in parts.items()}
    counters = {"random_state": rng.bit_generator.state, "tables": every}
    archive.save(path, layout_of(fields, tables), counters, arrays)


def table_state(contents: TableState) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a table's counters and arrays."""
    items, slots = contents.items, contents.items.used_slots()
    lengths, cells = items.lists()
    counters = {name: getattr(contents, name) for name in COUNTS}
    structure = [(name, column, length == "one") for name, (column, length) in contents.parts.items()]
    return {**counters, "structure": structure or None, "cells": len(cells)}, {
        "highest": np.array([contents.max_given]),
        "keys": items.keys,
        "free_slots": items.free_slots[: items.slots - items.size],
        "priorities": items.priorities[slots],
        "times_sampled": items.times_sampled[slots],
        "lengths": lengths.reshape(len(slots), len(structure)),
        "cells": cells,
        "sampler": contents.sampler.in_order(),
        "remover": contents.remover.in_order(),
    }


def load(
    path: str | PathLike[str], fields: Fields, capacity: int, old: Mapping[str, TableState]
) -> tuple[Cells, np.random.Generator, dict[str, TableState]]:
    """Read a file; what is there stays as it is.

    Raises:
        OSError: If it can't be read.
        ValueError: If it is damaged, or of a server with other columns or tables, or holds more than fits.
    """
    with archive.reading(path, layout_of(fields, old)) as (counters, reader):
        cells = Cells(fields, capacity)
        touched = np.zeros(len(cells.fields), np.int64)
        reader.read_into("touched", [touched])
        expect(touched.min() >= 0, "touched is below 0")
        if touched.max() > capacity:
            raise ValueError(
                f"{path} holds up to {touched.max():,} steps; this server has a capacity of {capacity:,}. "
                "Build it with more."
            )
        for i, values in enumerate(cells.values):
            reader.read_into(f"column_{i}", [values[: touched[i]]])
        rng = archive.checked_generator(counters)
        tables = {name: TableState(was.description, cells, rng) for name, was in old.items()}
        every = archive.checked_parts(counters, "tables", len(old))
        named: list[CellList] = []
        for number, (name, contents) in enumerate(tables.items()):
            contents.limiter = old[name].limiter
            read = partial(read_array, reader, f"table_{number}_")
            try:
                listed, layouts = fill(contents, every[number], read, cells, touched)
            except (TypeError, ValueError) as error:
                raise Damaged(str(error)) from error
            for layout in layouts:
                contents.check_layout(layout, contents.parts)
            named.append(listed)
        cells.recount(np.concatenate(named), touched)
        return cells, rng, tables


def expect(is_so: Any, fault: str) -> None:
    """Refuse a file in which something is not so."""
    if not is_so:
        raise Damaged(fault)


def read_array(reader: Reader, table: str, name: str, dtype: Any, *shape: int) -> Any:
    """Read an array of one table."""
    reader.check(table + name, shape, dtype)  # before there is memory for it
    array = np.zeros(shape, dtype)
    reader.read_into(table + name, [array])
    return array


def fill(
    contents: TableState, counters: dict[str, Any], read: Callable[..., Any], store: Cells, touched: Integers
) -> tuple[CellList, list[Layout]]:
    """Fill an empty table with what a file says of it; return its items' cells, and their layouts."""
    items = contents.items
    for name in COUNTS:
        setattr(contents, name, checked_count(counters, name))
    size = contents.inserts - contents.deletes
    expect(0 <= size <= contents.description.max_size, f"a table of {size} items can't be")
    structure = tuple((str(name), str(column), bool(s)) for name, column, s in counters["structure"] or ())
    expect([*map(list, structure)] == (counters["structure"] or []), "structure is none")
    numbers = [store.numbers.get(column, -1) for _, column, _ in structure]
    parts: Parts = {name: (column, "one" if squeezed else "any") for name, column, squeezed in structure}
    expect(len(parts) == len(structure) and -1 not in numbers and (parts or not size), "structure is none")
    if size and not contents.description.parts:
        contents.settle(parts)
    keys: Integers = read("keys", np.int64, items.slots)
    at_home = np.where(keys < 0, ~keys, keys) % items.slots == np.arange(items.slots)
    used, free = np.flatnonzero(keys >= 0), np.flatnonzero(keys < 0)
    in_range = (keys >= -archive.MOST) & (keys <= archive.MOST)
    expect(len(used) == size and (at_home & in_range).all(), "keys are none")
    items.keys[:] = keys
    items.free_slots[: len(free)] = in_some_order(read("free_slots", np.int32, len(free)), free)
    priorities, highest = read("priorities", np.float64, size), read("highest", np.float64, 1)
    contents.check_priorities(priorities)
    contents.check_priorities(highest[highest != -np.inf])
    contents.max_given = float(highest[0])
    times = read("times_sampled", np.int32, size)
    lengths: Integers = read("lengths", np.int64, size, len(structure))
    cells: CellList = read("cells", np.int32, checked_count(counters, "cells"))
    expect((times >= 0).all() and (lengths >= 1).all(), "times_sampled or lengths are none")
    is_one = np.array([squeezed for _, _, squeezed in structure], np.bool_)
    expect((lengths <= np.where(is_one, 1, len(cells))).all(), "lengths are none")
    ends = np.cumsum(lengths.sum(axis=1)).tolist()
    expect(sum(ends[-1:]) == len(cells), "lengths are none")
    columns = np.repeat(np.tile(np.array(numbers, np.int64), size), lengths.reshape(-1))
    there = (cells >= 0) & (cells % len(touched) == columns) & (cells // len(touched) < touched[columns])
    expect(there.all(), "an item names cells that are not there")
    begin = 0
    for slot, each, end, priority, count in zip(
        used.tolist(), lengths.tolist(), ends, priorities.tolist(), times.tolist(), strict=True
    ):
        items.put_back(slot, cells[begin:end], tuple(each), priority, count)
        begin = end
    by_slot = dict(zip(used.tolist(), priorities.tolist(), strict=True))
    for name, selector in ("sampler", contents.sampler), ("remover", contents.remover):
        for slot in in_some_order(read(name, np.int64, size), used).tolist():
            selector.insert(slot, by_slot[slot])
    different: list[list[int]] = np.unique(lengths, axis=0).tolist() if size else []
    return cells, [
        tuple(Part(*part[:2], length, part[2]) for part, length in zip(structure, row, strict=True))
        for row in different
    ]


def in_some_order(slots: Integers, expected: Integers) -> Integers:
    """Return slots; refuse others than the ones expected."""
    expect(np.sort(slots).tolist() == expected.tolist(), "an order of slots is none")
    return slots
