"""Cells: reference-counted storage for the values of steps, each stored once.

A *cell* holds the value of one column in one step. Its number encodes its position:

    cell = slot · columns + column          values[column][slot]

Every reference to a cell is counted: one for each occurrence in an item, and one for the writer that may
still reference it. When the count reaches 0, the cell is freed and its slot is pushed onto the column's stack
of free slots. A referenced cell is never written to.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.fields import Field, Fields
from replay_tutorial.buffers.runtime.jit import Int32Matrix, Int32s, Integers, int64, kernel
from replay_tutorial.tables.core.arguments import ByColumn

CellList = Int32s  # of cell numbers; int32, because these lists account for most of an item's memory
MAX_CELLS = 2**31 - 1


class CapacityError(MemoryError):
    """A column has too few free cells."""


class AllocatorState(NamedTuple):
    """Reference counts and free lists, as arrays for the kernels."""

    references: Int32s  # int32[capacity * columns]; reference count of each cell, 0 if it is free
    free: Int32Matrix  # int32[columns, capacity]; for each column, a stack of free slots
    free_counts: Integers  # int64[columns]; height of each stack
    high_water: Integers  # int64[columns]; number of slots that have ever been used, the lowest ones


AllocatorTuple = Annotated[tuple[Any, ...], AllocatorState]


@kernel
def allocate_cells(cells: CellList, allocator_tuple: AllocatorTuple) -> int:
    """Allocate the cells requested by `cells`: replace each ~column with a free cell, whose count becomes 1.

    Returns -1 on success. Otherwise returns a column with too few free cells, and nothing has changed.
    """
    allocator = AllocatorState(*allocator_tuple)
    columns, capacity = allocator.free.shape
    requested = np.zeros(columns, np.int64)
    for i in range(len(cells)):
        column = ~cells[i]
        requested[column] += 1
        if requested[column] > allocator.free_counts[column] + capacity - allocator.high_water[column]:
            return column
    for i in range(len(cells)):
        column = ~cells[i]
        if allocator.free_counts[column]:
            allocator.free_counts[column] -= 1
            slot = int64(allocator.free[column, allocator.free_counts[column]])
        else:  # no slot has been freed: use the next one that was never used
            slot = allocator.high_water[column]
            allocator.high_water[column] += 1
        cells[i] = slot * columns + column
        allocator.references[cells[i]] = 1
    return -1


@kernel
def retain_cells(cells: CellList, references: Int32s) -> None:
    """Increment the reference counts of the given cells."""
    for i in range(len(cells)):
        references[cells[i]] += 1


@kernel
def release_cells(cells: CellList, allocator_tuple: AllocatorTuple) -> None:
    """Decrement the reference counts of the given cells and free those that reach 0."""
    allocator = AllocatorState(*allocator_tuple)
    columns = allocator.free.shape[0]
    for cell in cells:
        allocator.references[cell] -= 1
        if allocator.references[cell] == 0:
            column = cell % columns
            allocator.free[column, allocator.free_counts[column]] = cell // columns
            allocator.free_counts[column] += 1


class Cells:
    """The cells of all columns and their reference counts."""

    def __init__(self, fields: Fields, capacity: int) -> None:
        """Reserve memory, which the operating system allocates page by page on the first write.

        Raises:
            CapacityError: If the memory cannot be reserved.
            ValueError: If the capacity is below 1, or cell numbers would exceed int32.
        """
        columns = len(fields.fields)
        if not 1 <= capacity <= MAX_CELLS // columns:
            raise ValueError(
                f"capacity must be between 1 and {MAX_CELLS // columns:,} for {columns} columns, "
                f"not {capacity}."
            )
        self.fields: list[Field] = list(fields.fields.values())  # the columns, in order
        self.capacity = capacity  # cells per column
        # column name → column number
        self.column_numbers = ByColumn((field.name, number) for number, field in enumerate(self.fields))
        try:
            # for each column, dtype[capacity, *shape]
            self.values = [np.zeros((capacity, *field.shape), field.dtype) for field in self.fields]
        except MemoryError:
            step = sum(field.nbytes for field in self.fields)
            raise CapacityError(
                f"A capacity of {capacity:,} steps of {step:,} bytes requires {capacity * step / 2**30:,.0f} "
                "GiB, which exceeds the available memory. Create the server with a lower capacity."
            ) from None
        # the same memory, as uint8[capacity, bytes per value]
        self.bytes = [values.reshape(capacity, -1).view(np.uint8) for values in self.values]
        self.allocator = AllocatorState(
            references=np.zeros(capacity * columns, np.int32),
            free=np.zeros((columns, capacity), np.int32),
            free_counts=np.zeros(columns, np.int64),
            high_water=np.zeros(columns, np.int64),
        )
        self.allocator_tuple = tuple(self.allocator)  # for the kernels

    def free_count(self, column: int) -> int:
        """Return the number of free cells of a column."""
        return int(self.capacity - self.allocator.high_water[column] + self.allocator.free_counts[column])

    def allocate(self, cells: CellList) -> None:
        """Allocate cells as `allocate_cells` does, or raise CapacityError without changing anything."""
        full: int = allocate_cells(cells, self.allocator_tuple)
        if full >= 0:
            raise CapacityError(
                f"The column {self.fields[full].name!r} is full: of its {self.capacity:,} cells, "
                f"{self.free_count(full)} are free. Create the server with a higher capacity, or its tables "
                "with a lower max_size."
            )

    def recount(self, references: CellList, high_water: Integers) -> None:
        """Rebuild all counts and free lists from `references`, which lists the cell of each reference."""
        columns = len(self.fields)
        self.allocator.high_water[:] = high_water
        self.allocator.references[:] = 0
        np.add.at(self.allocator.references, references, 1)
        for column in range(columns):
            unreferenced = np.flatnonzero(
                self.allocator.references[column::columns][: high_water[column]] == 0
            )
            self.allocator.free[column, : len(unreferenced)] = unreferenced
            self.allocator.free_counts[column] = len(unreferenced)
