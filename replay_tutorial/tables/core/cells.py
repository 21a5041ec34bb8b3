"""Cells: where the values of steps lie, each once, for as long as anybody names it.

A *cell* holds one column's value of one step. Its number says where it is:

    cell = slot · columns + column          values[column][slot]

Whoever names a cell is counted: an item for each time that it does, and the writer that may still name it.
The moment nobody does, the cell is free, and its slot goes on the column's stack of free ones. There is no
other way for a cell to become free, and none to be written while it is named.

Left out: who names them (`writer_state` for writers, `items` for items).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Field, Fields
from replay_tutorial.buffers.jit import Integers, int64, kernel, types

# Numbers of cells, int32: most of what an item takes in memory is a list of them.
CellList = Annotated[npt.NDArray[np.int32], types.int32[::1]]
CellMatrix = Annotated[npt.NDArray[np.int32], types.int32[:, ::1]]
MOST_CELLS = 2**31 - 1


class CapacityError(MemoryError):
    """A column has no free cells for what is to be stored."""


class Store(NamedTuple):
    """Who is named, and who is free, as kernels take it.

    Attributes:
        references: int32[capacity * columns]; how often each cell is named, 0 if it is free.
        free: int32[columns, capacity]; of each column a stack of free slots.
        free_counts: int64[columns]; their heights.
        high_water: int64[columns]; slots that have ever been used, the first ones.
    """

    references: CellList
    free: CellMatrix
    free_counts: Integers
    high_water: Integers


Plain = Annotated[tuple[Any, ...], Store]


@kernel
def take(cells: CellList, plain: Plain) -> int:
    """Take free cells, named once from now on.

    Args:
        cells: ~column for each cell that is wanted; it becomes the cell's number.
        plain: The store.

    Returns:
        -1; or a column that has too few. Nothing has changed then.
    """
    store = Store(*plain)
    columns, capacity = store.free.shape
    wanted = np.zeros(columns, np.int64)
    for i in range(len(cells)):
        column = ~cells[i]
        wanted[column] += 1
        if wanted[column] > store.free_counts[column] + capacity - store.high_water[column]:
            return column
    for i in range(len(cells)):
        column = ~cells[i]
        if store.free_counts[column]:
            store.free_counts[column] -= 1
            slot = int64(store.free[column, store.free_counts[column]])
        else:  # none has come back: one that was never used
            slot = store.high_water[column]
            store.high_water[column] += 1
        cells[i] = slot * columns + column
        store.references[cells[i]] = 1
    return -1


@kernel
def retain(cells: CellList, references: CellList) -> None:
    """Count one more that names these cells."""
    for i in range(len(cells)):
        references[cells[i]] += 1


@kernel
def release(cells: CellList, plain: Plain) -> None:
    """Count one less that names these cells; those that nobody names any more become free."""
    store = Store(*plain)
    columns = store.free.shape[0]
    for cell in cells:
        store.references[cell] -= 1
        if store.references[cell] == 0:
            column = cell % columns
            store.free[column, store.free_counts[column]] = cell // columns
            store.free_counts[column] += 1


class Cells:
    """The cells of all columns, and how many name each.

    Attributes:
        fields: The columns, in order.
        capacity: Cells of each column.
        numbers: Of each column, by name, its number.
        values: For each column dtype[capacity, *shape].
        bytes: The same memory, uint8[capacity, bytes of a value].
        store: Who is named, and who is free.
        plain: The same, as kernels take it.
    """

    def __init__(self, fields: Fields, capacity: int) -> None:
        """Reserve memory; pages are handed out when they are first written.

        Raises:
            ValueError: If the capacity is below 1, or there would be too many cells to number.
        """
        columns = len(fields.fields)
        if not 1 <= capacity <= MOST_CELLS // columns:
            raise ValueError(
                f"capacity must be between 1 and {MOST_CELLS // columns:,} for {columns} columns, "
                f"not {capacity}."
            )
        self.fields: list[Field] = list(fields.fields.values())
        self.capacity = capacity
        self.numbers = {field.name: number for number, field in enumerate(self.fields)}
        try:
            self.values = [np.zeros((capacity, *field.shape), field.dtype) for field in self.fields]
        except MemoryError:
            step = sum(field.nbytes for field in self.fields)
            raise CapacityError(
                f"A capacity of {capacity:,} steps of {step:,} bytes takes {capacity * step / 2**30:,.0f} "
                "GiB, which this machine does not have. Build the server with a lower capacity."
            ) from None
        self.bytes = [values.reshape(capacity, -1).view(np.uint8) for values in self.values]
        self.store = Store(
            references=np.zeros(capacity * columns, np.int32),
            free=np.zeros((columns, capacity), np.int32),
            free_counts=np.zeros(columns, np.int64),
            high_water=np.zeros(columns, np.int64),
        )
        self.plain = tuple(self.store)

    def free_count(self, column: int) -> int:
        """Count the free cells of a column."""
        return int(self.capacity - self.store.high_water[column] + self.store.free_counts[column])

    def take(self, cells: CellList) -> None:
        """Take free cells, named once from now on: each ~column in `cells` becomes the number of one.

        Raises:
            CapacityError: If there are too few. Nothing has changed then.
        """
        full: int = take(cells, self.plain)
        if full >= 0:
            raise CapacityError(
                f"The column {self.fields[full].name!r} is full: {self.capacity:,} cells, "
                f"{self.free_count(full)} of them free. Build the server with a higher capacity, or tables "
                "with a lower max_size."
            )

    def recount(self, named: CellList, high_water: Integers) -> None:
        """Begin again: `named` lists all names, of the `high_water` first slots of each column."""
        columns = len(self.fields)
        self.store.high_water[:] = high_water
        self.store.references[:] = 0
        np.add.at(self.store.references, named, 1)
        for column in range(columns):
            unnamed = np.flatnonzero(self.store.references[column::columns][: high_water[column]] == 0)
            self.store.free[column, : len(unnamed)] = unnamed
            self.store.free_counts[column] = len(unnamed)
