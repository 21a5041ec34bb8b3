"""Messages: the values and items that a writer passes to the server in one call.

A writer numbers its steps from 0 and never reuses a number. A message contains values of some steps, and
items that reference steps of this message or of an earlier one by number:

    values      obs   3 4 5      an item   obs     4 5      3 cells,
                act   3 4                  action  4        steps [4, 5, 4]

The server keeps the writer's values until `keep_from` releases them. A message records its own progress, so
passing it again after a timeout or Ctrl-C inserts only the remaining items.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Floats

Steps = npt.NDArray[np.int64]


class Part(NamedTuple):
    """One named array of a trajectory.

    Attributes:
        name: Name of the part in a sample.
        column: Column of its values.
        length: Number of values, at least 1.
        squeezed: Whether samples of the part have no time axis; the length is then 1.
    """

    name: str
    column: str
    length: int
    squeezed: bool = False


Layout = tuple[Part, ...]  # the parts of a trajectory; names are unique


class NewItems(NamedTuple):
    """Items with the same layout for one table; usually a single item.

    Attributes:
        table: Name of the table.
        priorities: float64[items]; None stands for the table's highest priority so far.
        layout: Layout of each item's trajectory.
        steps: int64[items, cells]; step number of each value, part after part. Steps may be in any order and
            may be repeated.
    """

    table: str
    priorities: Floats | None
    layout: Layout
    steps: Steps


class ColumnSlice(NamedTuple):
    """Values of one column in consecutive steps.

    Attributes:
        column: Name of the column.
        first_step: Number of the first step.
        values: Array of the column's dtype, of shape (steps, *shape of the column).
    """

    column: str
    first_step: int
    values: npt.NDArray[Any]


@dataclass(slots=True, eq=False)
class Message:
    """The content of one call of `Server._insert`, and its progress.

    Attributes:
        slices: Values that the writer has not sent before. The columns of a step may be spread over several
            messages, but each value is sent once. Cleared when the message is accepted.
        items: Items in the order of insertion. Cleared when the message is accepted.
        keep_from: The first step that later messages may reference. Earlier steps are released when the last
            item of this message has been inserted.
        number: Sequence number of a message from another process, which identifies a repetition.
        accepted: For each item, its table, cells, lengths and priority; set when the message is accepted.
        keys: Keys of the items inserted so far; None until the message is accepted.
    """

    slices: Sequence[ColumnSlice]
    items: Sequence[NewItems]
    keep_from: int
    number: int = 0
    accepted: Sequence[Any] = ()
    keys: list[int] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether all items have been inserted."""
        return self.keys is not None and len(self.keys) == len(self.accepted)
