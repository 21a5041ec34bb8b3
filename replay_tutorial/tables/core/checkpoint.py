"""The file of a saved server: everything that determines the results of later calls.

For each table it holds the items by slot, the counts, and the order of each selector. It also holds the
values of each column and the state of the random generator. Everything else is rebuilt on loading, so it
cannot be inconsistent: keys, reference counts, free lists, sum trees and heaps. Rate limiters,
max_times_sampled, capacity and hooks come from the program, and writers must be created again.

`archive` verifies shapes, dtypes and checksums. The checks here ensure that a forged file cannot cause access
outside the arrays; other values, such as counts of samples, are not verified.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.archive import Arrays, Damaged, Reader, checked_count
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.runtime.jit import Floats, Integers
from replay_tutorial.tables.core.arguments import ByTable
from replay_tutorial.tables.core.cells import CellList, Cells
from replay_tutorial.tables.core.message import Layout
from replay_tutorial.tables.core.table import PartTypes, item_layout
from replay_tutorial.tables.core.table_state import TableState

COUNTS = ("inserts", "samples", "deletes", "unique_samples", "stale")


def file_layout(fields: Fields, tables: Mapping[str, TableState]) -> dict[str, Any]:
    """Return the properties that must match for a file to be loaded."""
    configs = [table.config for table in tables.values()]
    return {
        "columns": {f.name: [f.dtype.str, list(f.shape)] for f in fields.fields.values()},
        "tables": {t.name: [repr(t.sampler), repr(t.remover), t.max_size] for t in configs},
    }


def save(
    path: str | PathLike[str],
    fields: Fields,
    cells: Cells,
    rng: np.random.Generator,
    tables: Mapping[str, TableState],
) -> None:
    """Save a server to a file."""
    high_water = cells.allocator.high_water
    arrays: Arrays = {"high_water": [high_water]}
    arrays |= {f"column_{i}": [values[: high_water[i]]] for i, values in enumerate(cells.values)}
    table_counters: list[dict[str, Any]] = []
    for number, table in enumerate(tables.values()):
        items, used = table.items, table.items.used_slots()
        lengths, all_cells = items.all_cells()
        known_parts = table.parts.items() if items.size else ()
        parts = {name: (column, length == "one") for name, (column, length) in known_parts}
        counts = {name: getattr(table, name) for name in COUNTS}
        table_counters.append(
            {**counts, "max_priority": table.max_priority, "parts": parts, "cells": len(all_cells)}
        )
        state = {
            "generations": np.where(items.keys < 0, ~items.keys, items.keys) // items.num_slots,
            "free_slots": items.free_slots[: items.num_slots - items.size],
            "priorities": items.priorities[used],
            "times_sampled": items.times_sampled[used],
            "lengths": lengths.reshape(len(used), len(parts)),
            "cells": all_cells,
            "sampler": table.sampler.in_order(),
            "remover": table.remover.in_order(),
        }
        arrays |= {f"table_{number}_{name}": [array] for name, array in state.items()}
    counters = {"random_state": rng.bit_generator.state, "tables": table_counters}
    archive.save(path, file_layout(fields, tables), counters, arrays)


def load(
    path: str | PathLike[str], fields: Fields, capacity: int, old: Mapping[str, TableState]
) -> tuple[Cells, np.random.Generator, ByTable[TableState]]:
    """Load a file and return its content; the server in memory is unchanged. See `Server.load`."""
    with archive.open_archive(path, file_layout(fields, old)) as (counters, reader):
        cells = Cells(fields, capacity)
        high_water = np.zeros(len(cells.fields), np.int64)
        reader.read_into("high_water", [high_water])
        if high_water.max() > capacity:
            raise ValueError(
                f"{path} holds up to {high_water.max():,} steps, but the capacity of this server is "
                f"{capacity:,}. Create it with a higher capacity."
            )
        expect(high_water.min() >= 0, "a step count is below 0")
        for i, values in enumerate(cells.values):
            reader.read_into(f"column_{i}", [values[: high_water[i]]])
        rng = archive.checked_generator(counters)
        table_counters = archive.checked_parts(counters, "tables", len(old))
        references: list[CellList] = []
        tables = ByTable[TableState]()
        try:
            for name, old_table in old.items():
                tables[name] = TableState(old_table.config, cells, rng, tables)
                tables[name].limiter = old_table.limiter
            for number, table in enumerate(tables.values()):
                read = partial(read_array, reader, f"table_{number}_")
                try:
                    all_cells, layouts = fill(table, table_counters[number], read, high_water)
                except (TypeError, ValueError, AttributeError) as error:
                    raise Damaged(str(error)) from error
                for layout in layouts:
                    table.check_layout(layout, table.parts)
                references.append(all_cells)
            cells.recount(np.concatenate(references), high_water)
        except BaseException:
            tables.clear()  # the tables refer to this dict, which would keep all content in memory
            raise
        return cells, rng, tables


def expect(condition: Any, message: str) -> None:
    """Raise Damaged unless a condition holds."""
    if not condition:
        raise Damaged(message)


def read_array(reader: Reader, table: str, name: str, dtype: Any, *shape: int) -> Any:
    """Read an array of one table."""
    reader.check(table + name, shape, dtype)  # before allocating memory for it
    array = np.zeros(shape, dtype)
    reader.read_into(table + name, [array])
    return array


def fill(
    table: TableState, counters: dict[str, Any], read: Callable[..., Any], high_water: Integers
) -> tuple[CellList, set[Layout]]:
    """Fill an empty table from a file; return the cells of its items and their distinct layouts."""
    items = table.items
    for name in COUNTS:
        setattr(table, name, checked_count(counters, name))
    size = table.inserts - table.deletes
    expect(0 <= size < items.num_slots, f"a table cannot have {size} items")
    parts: PartTypes = {
        name: (column, "one" if one else "any") for name, (column, one) in counters["parts"].items()
    }
    if parts and not table.config.parts:
        table.set_parts(parts)
    generations = read("generations", np.int64, items.num_slots)
    free = read("free_slots", np.int32, items.num_slots - size)
    sampler_order, remover_order = read("sampler", np.int64, size), read("remover", np.int64, size)
    used = np.sort(sampler_order)
    slots = np.arange(items.num_slots)
    slots_match = (np.sort([*sampler_order, *free]) == slots).all() and (np.sort(remover_order) == used).all()
    expect(
        slots_match and 0 <= generations.min() <= generations.max() <= archive.MAX_COUNT // items.num_slots,
        "its slots are inconsistent",
    )
    items.free_slots[: len(free)] = free
    items.keys[:] = ~(generations * items.num_slots + slots)
    items.keys[used] = ~items.keys[used]
    table.max_priority = float(counters["max_priority"])
    priorities: Floats = read("priorities", np.float64, size)
    table.check_priorities(np.append(priorities, [table.max_priority] * (table.max_priority != -math.inf)))
    times = read("times_sampled", np.int32, size).tolist()
    lengths: Integers = read("lengths", np.int64, size, len(parts))
    cells: CellList = read("cells", np.int32, checked_count(counters, "cells"))
    max_lengths = [1 if length == "one" else len(cells) for _, length in parts.values()]
    expect(
        ((lengths >= 1) & (lengths <= max_lengths)).all() and lengths.sum() == len(cells),
        "its lengths are inconsistent",
    )
    exist = (cells >= 0) & (cells // len(high_water) < high_water[cells % len(high_water)])
    expect(exist.all(), "an item references cells that do not exist")
    begin, by_slot = 0, dict(zip(used.tolist(), priorities.tolist(), strict=True))
    rows: list[list[int]] = lengths.tolist()
    for (slot, priority), row, count in zip(by_slot.items(), rows, times, strict=True):
        end = begin + sum(row)
        items.restore(slot, cells[begin:end], tuple(row), priority, count)
        begin = end
    for order, selector in (sampler_order, table.sampler), (remover_order, table.remover):
        for slot in order.tolist():
            selector.insert(slot, by_slot[slot])
    return cells, {item_layout(parts, row) for row in set(map(tuple, rows))}
