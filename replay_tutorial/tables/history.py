"""The steps that a writer still holds: `history["obs"][-4:]` names cells.

A writer copies each step. A trajectory is put together by naming steps of each
column: one (`[-1]`), a slice with any stride (`[-5:-1]`, `[::2]`), or a list (`[[-4, -1]]`). What is named is
a list of step numbers, one a cell, and never only the first and the last: steps that are not neighbours can't
come back as if they were.

Steps are counted as in a list of the episode's steps: 0 is the first, -1 the newest. But nothing is clamped:
where a list would return less than was asked for, a history raises an IndexError.

Left out: masks and arrays as indexes.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Field
from replay_tutorial.tables.message import Run

Index = int | slice | list[int] | tuple[int, ...]
SEVERAL = (slice, list, tuple)  # the kinds of index that leave a sample its axis of time


class NamedCells:
    """Cells of one column: a part of a trajectory, as `history[name][...]` names it.

    Attributes:
        column: Whose cells they are.
        steps: The numbers of their steps, in the order in which a sample shows them.
        squeezed: Whether one step was named by an int, so that a sample has no axis of time.
    """

    __slots__ = ("column", "squeezed", "steps")

    def __init__(self, column: "ColumnHistory", steps: Sequence[int], squeezed: bool) -> None:
        """Name steps that are there."""
        self.column = column
        self.steps = steps
        self.squeezed = squeezed

    def __len__(self) -> int:
        return len(self.steps)

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy of the values: shape (steps, *shape), or *shape if one step was named by an int.

        Raises:
            IndexError: If the writer does not hold them any more.
        """
        self.column.check(self.steps)
        values = self.column.values_of(self.steps)
        return values[0] if self.squeezed else values


class ColumnHistory:
    """What a writer holds of one column.

    Attributes:
        name: The column's.
        history: All columns, and which steps they hold.
        values: Of each step that is held and has a value, by its number: the value, of shape (1, *shape).
        unsent: Of these, those that the server lacks.
    """

    def __init__(self, field: Field, history: "History") -> None:
        """Begin without a step."""
        self.name = field.name
        self.history = history
        self.values: dict[int, npt.NDArray[Any]] = {}
        self.unsent: dict[int, npt.NDArray[Any]] = {}
        self._shape = (1, *field.shape)
        self._dtype = field.dtype

    def __getitem__(self, index: "Index") -> NamedCells:
        """Name steps.

        Args:
            index: An int names one step, and a sample has no axis of time; a slice or a list of ints names
                any number, and it has. From 0 on they count from the episode's first step, from -1 on
                backwards from the newest.

        Raises:
            IndexError: If a step is not there, is not held any more, or has no value in this column; or if no
                step is named.
            TypeError: If it is neither an int, a slice nor a list of ints.
        """
        steps = steps_named(index, self.history.first, self.history.end)
        self.check(steps)
        return NamedCells(self, steps, not isinstance(index, SEVERAL))

    def put(self, step: int, value: Any) -> None:
        """Hold a copy of a step's value, which has been checked."""
        values = np.empty(self._shape, self._dtype)
        values[0] = value
        self.values[step] = self.unsent[step] = values

    def values_of(self, steps: Sequence[int]) -> npt.NDArray[Any]:
        """Return a copy of the values of steps that are held."""
        return np.concatenate([self.values[step] for step in steps])

    def check(self, steps: Sequence[int]) -> None:
        """Refuse an empty list, and one with a step that is not there or has no value."""
        if not (steps and all(map(self.values.__contains__, steps))):
            raise self._refusal(steps)

    def take_unsent(self, steps: Sequence[int], runs: list[Run]) -> None:
        """Take those values of steps that the server lacks: it is to have them now.

        Args:
            steps: Numbers of steps that are held and have values, in any order.
            runs: Gets as few more as there are gaps.
        """
        unsent = self.unsent
        taken = {step: unsent.pop(step) for step in steps if step in unsent}
        if len(taken) == 1:  # nearly always
            runs.append(Run(self.name, *taken.popitem()))
            return
        begin = 0
        ordered = sorted(taken)
        for i in range(1, len(ordered) + 1):
            if i == len(ordered) or ordered[i] != ordered[i - 1] + 1:
                run = [taken[step] for step in ordered[begin:i]]
                runs.append(Run(self.name, ordered[begin], np.concatenate(run)))
                begin = i

    def give_back(self, run: Run) -> None:
        """Take it back that the server has these values: it refused them."""
        for step in range(run.first_step, run.first_step + len(run.values)):
            if step in self.values:
                self.unsent[step] = self.values[step]

    def _refusal(self, steps: Sequence[int]) -> IndexError:
        first, oldest, end = self.history.first, self.history.oldest, self.history.end
        if not steps:
            return IndexError(
                f"This names no step of {self.name!r}; every part of a trajectory needs at least 1."
            )
        wrong = next(step for step in steps if step not in self.values)
        if not first <= wrong < end:
            where = f"{first - wrong} before the first" if wrong < first else f"number {wrong - first}"
            return IndexError(
                f"{self.name!r} has {end - first} steps, and no step {where}. Nothing is clamped: wait until "
                "there are enough."
            )
        if wrong < oldest:
            return IndexError(
                f"{self.name!r} does not hold step {wrong - first} of {end - first} any more: the writer "
                f"keeps the newest {self.history.keep}. Build it with a larger num_keep_alive_refs."
            )
        return IndexError(f"{self.name!r} has no value in step {wrong - first}: it was left out of `append`.")


def steps_named(index: "Index", first: int, end: int) -> Sequence[int]:
    """Return the numbers of the steps that an index names, whether they are there or not.

    Args:
        index: An int, a slice or a list of ints.
        first: The number of step 0.
        end: One more than the number of step -1.

    Example:
        >>> list(steps_named(slice(-4, None, 2), first=10, end=13))  # there are 3 steps; 9 is none of them
        [9, 11]
    """
    if isinstance(index, slice):
        stride = 1 if index.step is None else index.step
        start, stop = index.start, index.stop
        if start is None:
            start = first if stride > 0 else end - 1
        else:
            start += end if start < 0 else first
        if stop is None:
            stop = end if stride > 0 else first - 1
        else:
            stop += end if stop < 0 else first
        return range(start, stop, stride)
    steps = index if isinstance(index, list | tuple) else (operator.index(index),)
    return [operator.index(step) + (end if step < 0 else first) for step in steps]


class History(dict[str, ColumnHistory]):
    """The newest steps, column by column; a number means the same step in each of them.

    Attributes:
        keep: Steps that are held at most.
        first: The number of step 0 of the episode.
        oldest: The number of the oldest step that is held.
        end: One more than the number of the newest step.
    """

    def __init__(self, fields: Mapping[str, Field], keep: int) -> None:
        """Begin without a step.

        Args:
            fields: The server's columns.
            keep: Steps to hold; at least 1.
        """
        self.keep = keep
        self.first = self.oldest = self.end = 0
        super().__init__((name, ColumnHistory(field, self)) for name, field in fields.items())

    def __missing__(self, name: str) -> ColumnHistory:
        raise KeyError(f"There is no column {name!r}; there are {list(self)}.")

    def begin_step(self) -> None:
        """Add a step, the newest one now, without any value."""
        self.end += 1
        if self.end - self.oldest > self.keep:
            for column in self.values():
                column.values.pop(self.oldest, None)
                column.unsent.pop(self.oldest, None)
            self.oldest += 1

    def forget_all(self) -> None:
        """Forget all steps, and no column; the next one is step 0."""
        self.first = self.oldest = self.end
        for column in self.values():
            column.values.clear()
            column.unsent.clear()
