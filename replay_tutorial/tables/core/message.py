"""Messages: the values and items that a writer passes to the server in one call.

A writer numbers its steps and never reuses a number. A message contains values of some steps, and
items that reference steps of this message or of an earlier one by number:

    values      obs     3 4 5      an item   obs     4 5      3 cells,
                action  3 4                  action  4        steps [4, 5, 4]

The server keeps the writer's values until `keep_from` releases them. A message records its own progress, so
passing it again after a timeout or Ctrl-C inserts only the remaining items.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.runtime.jit import Floats

Steps = npt.NDArray[np.int64]


class Part(NamedTuple):
    """One named array of a trajectory."""

    name: str
    column: str  # of its values
    length: int  # number of values, at least 1
    squeezed: bool = False  # whether samples of the part have no time axis; the length is then 1


Layout = tuple[Part, ...]  # the parts of a trajectory; names are unique


class NewItems(NamedTuple):
    """Items with the same layout for one table; usually a single item."""

    table: str
    priorities: Floats | None  # float64[items]; None stands for the table's highest priority so far
    layout: Layout
    steps: Steps  # int64[items, cells]; step number of each value, part after part, in any order or repeated


class ColumnSlice(NamedTuple):
    """Values of one column in consecutive steps."""

    column: str
    first_step: int
    values: npt.NDArray[Any]  # dtype[steps, *shape] of the column


@dataclass(slots=True, eq=False)
class Message:
    """The content of one call of `Server._insert`, and its progress.

    The columns of a step may be spread over several messages, but each value is sent once. Steps before
    `keep_from` are released when the last item of the message has been inserted.
    """

    slices: Sequence[ColumnSlice]  # cleared when the message is accepted
    items: Sequence[NewItems]  # in the order of insertion; cleared when the message is accepted
    keep_from: int  # the first step that later messages may reference
    sequence: int = 0  # number among the messages of a writer in another process, which may send it again
    accepted: Sequence[Any] = ()  # for each item, its table, cells, lengths and priority
    keys: list[int] | None = None  # of the items inserted so far; None until the message is accepted

    @property
    def is_finished(self) -> bool:
        """Whether all items have been inserted."""
        return self.keys is not None and len(self.keys) == len(self.accepted)
