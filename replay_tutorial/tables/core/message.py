"""Messages: what a writer passes to the server.

A writer counts its steps from 0 and never gives a number twice. A message brings values of some steps, and
items that name steps by these numbers, of this message or of an earlier one:

    values      obs   3 4 5      an item   obs     4 5      3 cells,
                act   3 4                  action  4        steps [4, 5, 4]

The server keeps what a writer has sent until `keep_from` says that it will not be named again. A message
knows how far it has come: passed again after a timeout or Ctrl-C, it goes on where it stopped.

Left out: who waits for whom (`server`), and where the values lie (`cells`).
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
        name: What it is called in a sample.
        column: The column that its values come from.
        length: How many values, at least 1.
        squeezed: Whether a sample of it has no axis of time; its length is 1 then.
    """

    name: str
    column: str
    length: int
    squeezed: bool = False


Layout = tuple[Part, ...]  # of a trajectory; no name twice


class NewItems(NamedTuple):
    """Items of one layout for one table; nearly always a single one.

    Attributes:
        table: The table's name.
        priorities: float64[items]; None stands for the highest priority that the table has seen.
        layout: Of each item's trajectory.
        steps: int64[items, cells]: for each value that the layout names, part after part, the number of its
            step. Any steps in any order, also one step twice.
    """

    table: str
    priorities: Floats | None
    layout: Layout
    steps: Steps


class ColumnSlice(NamedTuple):
    """Values of one column in consecutive steps.

    Attributes:
        column: The column's name.
        first_step: The number of the first of these steps.
        values: The column's dtype, shape (steps, *shape of the column).
    """

    column: str
    first_step: int
    values: npt.NDArray[Any]


@dataclass(slots=True, eq=False)
class Message:
    """What one call of `Server.insert` brings, and how far it has come.

    Attributes:
        runs: Values that the writer has not sent yet. A step may come in parts, column by column, but each of
            its values once. Empty once the server has them.
        items: Items, in the order in which they are to be inserted. Empty once the server has accepted them.
        keep_from: The writer will not name steps before this one in any later message. They are forgotten
            when the last item of this message has been inserted.
        number: Of a message from another process, which may come again as an equal object.
        accepted: Of each item the table, the cells, the lengths of its parts, and the priority.
        keys: Of the items that have been inserted, the first ones; None until the message is accepted.
    """

    slices: Sequence[ColumnSlice]
    items: Sequence[NewItems]
    keep_from: int
    number: int = 0
    accepted: Sequence[Any] = ()
    keys: list[int] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether all its items have been inserted."""
        return self.keys is not None and len(self.keys) == len(self.accepted)


class UnknownWriter(LookupError):
    """The server does not know what this writer has sent: it has been loaded, or the writer was closed.

    The remedy is a new writer, and so a new episode.
    """
