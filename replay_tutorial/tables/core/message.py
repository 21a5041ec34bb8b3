"""Messages: what a writer hands to the server, here or far away.

A writer counts its steps from 0 and never gives a number twice, over all of its episodes. A message brings
values of some steps, and items that name steps by these numbers, of this message or of an earlier one:

    values      obs   3 4 5      an item   obs     4 5      3 cells,
                act   3 4                  action  4        steps [4, 5, 4]

The server keeps what a writer has sent until `keep_from` says that it will not be named again. Messages of a
writer are numbered as well, so that one whose answer was lost can be sent again: what has been done is not
done twice.

Left out: who waits for whom (`server`), and where the values lie (`cells`).
"""

from collections.abc import Sequence
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


class Run(NamedTuple):
    """Values of one column in consecutive steps.

    Attributes:
        column: The column's name.
        first_step: The number of the first of these steps.
        values: The column's dtype, shape (steps, *shape of the column).
    """

    column: str
    first_step: int
    values: npt.NDArray[Any]


class Message(NamedTuple):
    """What one call of `Server.insert` hands over.

    Attributes:
        writer: A number that no other writer has, such as `secrets.randbits(63)`.
        sequence: Messages of this writer before this one. The server takes the next one, or the last one
            again.
        runs: Values that it has not sent yet. A step may come in parts, column by column, but each of its
            values once.
        items: Items, in the order in which they are to be inserted.
        keep_from: The writer will not name steps before this one in any later message. They are forgotten
            when the last item of this message has been inserted.
    """

    writer: int
    sequence: int
    runs: Sequence[Run]
    items: Sequence[NewItems]
    keep_from: int


class UnknownWriter(LookupError):
    """The server does not know what this writer has sent: it has been loaded, or the writer was closed.

    The remedy is a new writer, and so a new episode.
    """
