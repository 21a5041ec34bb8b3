"""A server's file: everything that decides what the next calls return, taken apart and put together again.

Of each table the file holds the items by slot, the counts, and the order of each selector; of each column the
values; and the generator's state. Whatever follows from these is made again, so that it can't disagree: how
often a cell is named, which are free, sum trees and heaps. What the program decides is not in it: limiters,
max_times_sampled, capacity, hooks. Nor are writers: after loading, each begins anew.

Left out: how a file is written, and read without trusting it (`archive`).
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.archive import Arrays, Damaged, Reader, checked_count
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.tables.cells import Cells
from replay_tutorial.tables.contents import Contents
from replay_tutorial.tables.message import Part
from replay_tutorial.tables.selection import Selector
from replay_tutorial.tables.trajectories import Plan, Plans

COUNTS = ("inserts", "samples", "deletes", "unique_samples", "stale")


class State(NamedTuple):
    """What a server goes on from.

    Attributes:
        cells: The cells.
        plans: The layouts known.
        rng: The generator.
        tables: By name.
    """

    cells: Cells
    plans: Plans
    rng: np.random.Generator
    tables: dict[str, Contents]


def layout_of(fields: Fields, tables: Mapping[str, Contents]) -> dict[str, Any]:
    """Describe what must be the same for a file to be loaded."""
    described = [contents.description for contents in tables.values()]
    return {
        "columns": {f.name: [f.dtype.str, list(f.shape)] for f in fields.fields.values()},
        "order": list(fields.fields),
        "tables": {t.name: [repr(t.sampler), repr(t.remover), t.max_size] for t in described},
    }


def save(path: str | PathLike[str], fields: Fields, state: State) -> None:
    """Write a file."""
    touched = state.cells.store.touched
    arrays: Arrays = {"touched": [touched]}
    arrays |= {f"column_{i}": [values[: touched[i]]] for i, values in enumerate(state.cells.values)}
    every: list[dict[str, Any]] = []
    for number, contents in enumerate(state.tables.values()):
        known, parts = table_state(contents)
        every.append(known)
        arrays |= {f"table_{number}_{name}": [array] for name, array in parts.items()}
    counters = {"random_state": state.rng.bit_generator.state, "tables": every}
    archive.save(path, layout_of(fields, state.tables), counters, arrays)


def table_state(contents: Contents) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a table's counters and arrays."""
    items, slots = contents.items, contents.items.used_slots()
    lists = [items.cells_of(int(slot)) for slot in slots]
    counters = {name: getattr(contents, name) for name in COUNTS}
    counters["structure"] = contents.structure
    counters["cells"] = sum(map(len, lists))
    lengths = [[part.length for part in items.plan_of(int(slot)).layout] for slot in slots]
    return counters, {
        "highest": np.array([contents.max_given]),
        "keys": items.keys,
        "free_slots": items.free_slots[: items.slots - items.size],
        "priorities": items.priorities[slots],
        "times_sampled": items.times_sampled[slots],
        "lengths": np.array(lengths, np.int64).reshape(len(slots), len(contents.structure or ())),
        "cells": np.concatenate([np.zeros(0, np.int32), *lists]),
        "sampler": contents.sampler.in_order(),
        "remover": contents.remover.in_order(),
    }


def load(path: str | PathLike[str], fields: Fields, old: State) -> State:
    """Read a file; what is there stays as it is.

    Raises:
        OSError: If it can't be read.
        ValueError: If it is damaged, or of a server with other columns or tables, or holds more than fits.
    """
    with archive.reading(path, layout_of(fields, old.tables)) as (counters, reader):
        cells = Cells(fields, old.cells.capacity)
        counted = np.zeros(len(cells.fields), np.int64)
        reader.read_into("touched", [counted])
        touched: list[int] = counted.tolist()
        if min(touched) < 0:
            raise Damaged("touched is below 0")
        if max(touched) > cells.capacity:
            raise ValueError(
                f"{path} holds up to {max(touched):,} steps; this server has a capacity of "
                f"{cells.capacity:,}. Build it with more."
            )
        for i, values in enumerate(cells.values):
            reader.read_into(f"column_{i}", [values[: touched[i]]])
        new = State(cells, Plans(cells), archive.checked_generator(counters), {})
        named: list[Any] = [np.zeros(0, np.int32)]
        every = archive.checked_parts(counters, "tables", len(old.tables))
        for number, (name, was) in enumerate(old.tables.items()):
            contents = Contents(was.description, cells, new.plans, new.rng)
            contents.limiter = was.limiter
            named.append(fill(contents, every[number], TableReader(reader, number), new, touched))
            new.tables[name] = contents
        cells.recount(np.concatenate(named), counted)
        return new


class TableReader:
    """Reads the arrays of one table."""

    def __init__(self, reader: Reader, number: int) -> None:
        """Read nothing yet."""
        self._reader = reader
        self._number = number

    def read(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Read an array of this shape and dtype; there is no memory for it before the file has it."""
        whole = f"table_{self._number}_{name}"
        self._reader.check(whole, shape, dtype)
        array = np.zeros(shape, dtype)
        self._reader.read_into(whole, [array])
        return array


def fill(
    contents: Contents, counters: dict[str, Any], reader: TableReader, new: State, touched: list[int]
) -> Any:
    """Fill an empty table with what a file says of it; return the cells that its items name."""
    items = contents.items
    for name in COUNTS:
        setattr(contents, name, checked_count(counters, name))
    size = contents.inserts - contents.deletes
    if not 0 <= size <= contents.description.max_size:
        raise Damaged(f"{contents.inserts} inserts and {contents.deletes} deletes can't be")
    contents.structure = checked_structure(counters["structure"])
    keys: Integers = reader.read("keys", (items.slots,), np.int64)
    at_home = np.where(keys < 0, ~keys, keys) % items.slots == np.arange(items.slots)
    used, free = np.flatnonzero(keys >= 0), np.flatnonzero(keys < 0)
    if not at_home.all() or len(used) != size or (keys > archive.MOST).any() or (keys < -archive.MOST).any():
        raise Damaged("keys are none")
    items.keys[:] = keys
    items.free_slots[: len(free)] = checked_order(reader.read("free_slots", (len(free),), np.int32), free)
    priorities, highest = (
        reader.read("priorities", (size,), np.float64),
        reader.read("highest", (1,), np.float64),
    )
    try:
        contents.check_priorities(priorities)
        contents.check_priorities(highest[highest != -np.inf])
    except ValueError as error:
        raise Damaged(str(error)) from error
    contents.max_given = float(highest[0])
    times = reader.read("times_sampled", (size,), np.int32)
    lengths = reader.read("lengths", (size, len(contents.structure or ())), np.int64)
    cells = reader.read("cells", (checked_count(counters, "cells"),), np.int32)
    if (times < 0).any() or lengths.sum() != len(cells) or (lengths < 1).any():
        raise Damaged("times_sampled or lengths are none")
    end, plans = 0, dict[tuple[int, ...], Plan]()
    for i, slot in enumerate(used.tolist()):
        of_item = tuple(lengths[i].tolist())
        if of_item not in plans:
            plans[of_item] = plan_of(contents, of_item, new.plans)
        plan, begin = plans[of_item], end
        end += len(plan.columns)
        part = cells[begin:end]
        if len(part) < len(plan.columns) or not named_by(part, plan, touched):
            raise Damaged("an item names cells that are not there")
        items.put_back(slot, plan, part, priorities[i], times[i])
    by_slot = dict(zip(used.tolist(), priorities.tolist(), strict=True))
    put_in_order(contents.sampler, checked_order(reader.read("sampler", (size,), np.int64), used), by_slot)
    put_in_order(contents.remover, checked_order(reader.read("remover", (size,), np.int64), used), by_slot)
    return cells


def put_in_order(selection: Selector, slots: Integers, priorities: dict[int, float]) -> None:
    """Insert slots in the order in which they lead to the saved selector."""
    for slot in slots.tolist():
        selection.insert(slot, priorities[slot])


def checked_order(slots: Integers, expected: Integers) -> Integers:
    """Return slots in some order; refuse others than the ones expected."""
    if np.sort(slots).tolist() != expected.tolist():
        raise Damaged("an order of slots is none")
    return slots


def checked_structure(structure: Any) -> Any:
    """Return what all items of a table have in common: of each part its name, column, and squeezed."""
    if structure is None:
        return None
    try:
        parts = tuple(tuple(part) for part in structure)
    except TypeError:
        parts = ((),)
    if any(list(map(type, part)) != [str, str, bool] for part in parts):
        raise Damaged(f"structure is {structure!r:.60}")
    return parts


def plan_of(contents: Contents, lengths: tuple[int, ...], plans: Plans) -> Plan:
    """Find the layout of an item with these lengths."""
    parts = zip(contents.structure or (), lengths, strict=True)
    try:
        return plans.of(tuple(Part(name, column, n, squeezed) for (name, column, squeezed), n in parts))
    except ValueError as error:
        raise Damaged(str(error)) from error


def named_by(cells: Any, plan: Plan, touched: list[int]) -> bool:
    """Return whether a list of cells fits a layout, and all of them have been written."""
    columns = len(touched)
    limits = np.array(touched)[plan.columns]
    return bool(((cells >= 0) & (cells % columns == plan.columns) & (cells // columns < limits)).all())
