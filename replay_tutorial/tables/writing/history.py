"""The steps that a writer still holds: `history["obs"][-4:]` names cells.

A writer copies each step. A trajectory is put together by naming steps of each column: one (`[-1]`), a slice
with any stride (`[-5:-1]`, `[::2]`), or a list (`[[-4, -1]]`). What is named is a list of step numbers, one a
cell, and never only the first and the last: steps that are not neighbours can't come back as if they were.

Steps are counted as in a list: 0 is the episode's first, or that of an earlier one if the history went on at
its end; -1 is the newest. But nothing is clamped: where a list would return less than was asked for, a
history raises an IndexError.

Left out: masks and arrays as indexes.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Field, Fields
from replay_tutorial.buffers.spaces import flatten
from replay_tutorial.tables.core.message import Run

Index = int | slice | list[int] | tuple[int, ...]
SEVERAL = (slice, list, tuple)  # the kinds of index that leave a sample its axis of time


@dataclass(slots=True, eq=False)
class NamedCells:
    """Cells of one column: a part of a trajectory, as `history[name][...]` names it.

    Attributes:
        column: Whose cells they are.
        steps: The numbers of their steps, in the order in which a sample shows them.
        squeezed: Whether one step was named by an int, so that a sample has no axis of time.
    """

    column: "ColumnHistory"
    steps: Sequence[int]
    squeezed: bool

    def __len__(self) -> int:
        return len(self.steps)

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy of the values: shape (steps, *shape), or *shape if one step was named by an int.

        Raises:
            IndexError: If the writer does not hold them any more.
        """
        self.column.check(self.steps)
        values = np.array([self.column.values[step] for step in self.steps])
        return values[0] if self.squeezed else values


class ColumnHistory:
    """What a writer holds of one column: of each step with a value its number, and a copy of the value.

    Attributes:
        name: The column's.
        history: All columns, and which steps they hold.
        values: The values of steps that can be named.
        unsent: Of these, those that the server lacks.
        in_flight: What the next message brings. It stays, whatever the history forgets.
    """

    def __init__(self, field: Field, history: "History") -> None:
        """Begin without a step."""
        self.name = field.name
        self.history = history
        self.values: dict[int, npt.NDArray[Any]] = {}
        self.unsent: dict[int, npt.NDArray[Any]] = {}
        self.in_flight: dict[int, npt.NDArray[Any]] = {}
        self._dtype, self._ndim = field.dtype, len(field.shape)

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
        self.values[step] = self.unsent[step] = np.array(value, self._dtype, ndmin=self._ndim)

    def send(self, steps: Sequence[int]) -> None:
        """Let the next message bring those of these values that the server lacks."""
        for step in steps:
            if step in self.unsent:
                self.in_flight[step] = self.unsent[step]

    def runs(self) -> list[Run]:
        """Return what is in flight, in as few runs as there are gaps."""
        steps = sorted(self.in_flight)
        begins = [i for i, step in enumerate(steps) if not i or step != steps[i - 1] + 1]
        return [
            Run(self.name, steps[begin], np.array([self.in_flight[step] for step in steps[begin:end]]))
            for begin, end in pairwise([*begins, len(steps)])
        ]

    def arrive(self, refused: bool) -> None:
        """Note that the server has what was in flight; or that it refused it, so that it is still unsent."""
        if not refused:
            for step in self.in_flight:
                self.unsent.pop(step, None)
        self.in_flight.clear()

    def check(self, steps: Sequence[int]) -> None:
        """Refuse an empty list, and one with a step that is not there or has no value."""
        if steps and all(map(self.values.__contains__, steps)):
            return
        if not steps:
            raise IndexError(
                f"This names no step of {self.name!r}; every part of a trajectory needs at least 1."
            )
        first, oldest, end = self.history.first, self.history.oldest, self.history.end
        wrong = next(step for step in steps if step not in self.values)
        if not first <= wrong < end:
            where = f"{first - wrong} before the first" if wrong < first else f"number {wrong - first}"
            raise IndexError(
                f"{self.name!r} has {end - first} steps, and no step {where}. Nothing is clamped: wait until "
                "there are enough."
            )
        if wrong < oldest:
            raise IndexError(
                f"{self.name!r} does not hold step {wrong - first} of {end - first} any more: the writer "
                f"keeps the newest {self.history.keep}. Build it with a larger num_keep_alive_refs."
            )
        raise IndexError(f"{self.name!r} has no value in step {wrong - first}: it was left out of `append`.")


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

    def __init__(self, fields: Fields, keep: int) -> None:
        """Begin without a step, for these columns, to hold so many."""
        self.keep = keep
        self.first = self.oldest = self.end = 0
        self._env_dict = fields.env_dict
        # A step may leave columns out: of each set of names that has come, the check, and where values go.
        self._checks: dict[tuple[str, ...], tuple[Fields, list[ColumnHistory]]] = {}
        super().__init__((name, ColumnHistory(field, self)) for name, field in fields.fields.items())

    def __missing__(self, name: str) -> ColumnHistory:
        raise KeyError(f"There is no column {name!r}; there are {list(self)}.")

    def append(self, data: Mapping[str, Any], goes_on: bool) -> None:
        """Take in a step, or if it goes on, more of the newest one; see `TrajectoryWriter.append`."""
        if not data and goes_on:
            return
        if not (check := self._checks.get(tuple(data))):
            data = self._flat(data)
            check = self._check_for(tuple(data))
        fields, columns = check
        count, values = fields.to_columns(data)
        if count != 1:
            raise ValueError(f"`append` takes one step, and this is a batch of {count}. Append one by one.")
        if not goes_on:
            self._begin_step()
        elif known := [column.name for column in columns if self.end - 1 in column.values]:
            raise ValueError(
                f"The open step has a value in {known[0]!r} already. Close it first: the last part of a "
                "step comes without partial_step=True."
            )
        for column, value in zip(columns, values, strict=True):
            column.put(self.end - 1, value)

    def _flat(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Join the names of nested values by "/", unless all are columns as they are."""
        if data.keys() <= self.keys():
            return data
        pairs = list(flatten(data))
        if len(dict(pairs)) < len(pairs):
            raise KeyError(f"A column is given twice, nested and by its name: {sorted(dict(pairs))}.")
        return dict(pairs)

    def _check_for(self, names: tuple[str, ...]) -> tuple[Fields, list[ColumnHistory]]:
        """Return the check for a set of columns, which is the one that a buffer makes of its transitions."""
        if not names:
            raise ValueError("A step needs a value in at least one column.")
        if names not in self._checks:
            columns = [self[name] for name in names]
            self._checks[names] = Fields({name: self._env_dict[name] for name in names}), columns
        return self._checks[names]

    def _begin_step(self) -> None:
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
