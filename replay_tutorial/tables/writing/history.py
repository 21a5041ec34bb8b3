"""The steps that a writer still holds; indexing a column, as in `history["obs"][-4:]`, references its cells.

An index is an int (`[-1]`), a slice with any stride (`[-5:-1]`, `[::2]`) or a list (`[[-4, -1]]`). The result
lists every referenced step, never only the first one and a length, because the steps need not be consecutive.

Steps are numbered as in a list: 0 is the first step of the episode, and -1 the newest step. If `end_episode`
kept the history, 0 is the first step of the earlier episode. Unlike list slices, slices are not clipped: a
missing step raises IndexError.

Left out: masks and arrays as indices.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Field, Fields
from replay_tutorial.tables.core.arguments import ByColumn, check_mapping, flat_columns
from replay_tutorial.tables.core.message import ColumnSlice

Index = int | slice | list[int] | tuple[int, ...]
SEVERAL = (slice, list, tuple)  # types of index that keep the time axis


@dataclass(slots=True, eq=False)
class TrajectoryColumn:
    """Referenced cells of one column, the result of `history[name][...]`.

    Attributes:
        column: The column of the cells.
        steps: Step number of each cell, in the order of the sampled values.
        squeezed: Whether the index was an int, so that samples have no time axis.
    """

    column: "ColumnHistory"
    steps: Sequence[int]
    squeezed: bool

    def __len__(self) -> int:
        return len(self.steps)

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy of the values; shape (steps, *shape), without the first axis if squeezed.

        Raises:
            IndexError: If the history no longer holds one of the steps.
        """
        self.column.check(self.steps)
        values = np.array([self.column.values[step] for step in self.steps])
        return values[0] if self.squeezed else values


class ColumnHistory:
    """The values of one column that a writer holds, each keyed by its step number."""

    def __init__(self, field: Field, history: "History") -> None:
        """Create an empty column."""
        self.name = field.name
        self.history = history
        self.values: dict[int, npt.NDArray[Any]] = {}  # of all steps that can be referenced
        self.unsent: dict[int, npt.NDArray[Any]] = {}  # the subset of `values` that the server lacks
        # the values that the next message sends, whether or not `values` still holds them
        self.staged: dict[int, npt.NDArray[Any]] = {}
        self._dtype, self._ndim = field.dtype, len(field.shape)

    def __getitem__(self, index: "Index") -> TrajectoryColumn:
        """Reference steps of this column.

        Args:
            index: An int references one step, and samples have no time axis. A slice or a list of ints
                references any number of steps, and samples have a time axis. Indices count from the episode's
                first step (0, 1, …) or from the newest step (-1, -2, …).

        Raises:
            IndexError: If no step is referenced, or if a step does not exist, is no longer held, or has no
                value in this column.
            TypeError: If the index is not an int, a slice or a list of ints.
        """
        steps = resolve_steps(index, self.history.first, self.history.end)
        self.check(steps)
        return TrajectoryColumn(self, steps, not isinstance(index, SEVERAL))

    def store(self, step: int, value: Any) -> None:
        """Store a copy of a value that has been checked."""
        self.values[step] = self.unsent[step] = np.array(value, self._dtype, ndmin=self._ndim)

    def staged_slices(self) -> list[ColumnSlice]:
        """Return the staged values as slices of consecutive steps."""
        steps = sorted(self.staged)
        starts = [i for i, step in enumerate(steps) if not i or step != steps[i - 1] + 1]
        return [
            ColumnSlice(self.name, steps[begin], np.array([self.staged[step] for step in steps[begin:end]]))
            for begin, end in pairwise([*starts, len(steps)])
        ]

    def check(self, steps: Sequence[int]) -> None:
        """Raise IndexError unless there is at least one step and every step has a value."""
        if steps and all(map(self.values.__contains__, steps)):
            return
        if not steps:
            raise IndexError(
                f"The index selects no step of {self.name!r}; each part must have at least one step."
            )
        first, oldest, end = self.history.first, self.history.oldest, self.history.end
        missing = next(step for step in steps if step not in self.values)
        if not first <= missing < end:
            problem = (
                f"the index reaches {first - missing} steps before the first"
                if missing < first
                else f"step {missing - first} does not exist"
            )
            raise IndexError(
                f"{self.name!r} has {end - first} steps, but {problem}. Indices are not clipped; append more "
                "steps first."
            )
        if missing < oldest:
            raise IndexError(
                f"{self.name!r} no longer holds step {missing - first} of {end - first}, because the writer "
                f"keeps the newest {self.history.max_steps} steps. Create it with a larger "
                "num_keep_alive_refs."
            )
        raise IndexError(
            f"{self.name!r} has no value in step {missing - first}, because `append` omitted the column."
        )


def resolve_steps(index: "Index", first: int, end: int) -> Sequence[int]:
    """Return the step numbers that an index references, whether or not they exist.

    Index 0 is the step `first`, and index -1 the step `end` - 1.

    Example:
        >>> list(resolve_steps(slice(-4, None, 2), first=10, end=13))  # steps 10 to 12 exist, step 9 does not
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


class History(ByColumn[ColumnHistory]):
    """The newest steps of all columns; a step has the same number in every column.

    `first` is the number of the episode's first step, `oldest` that of the oldest step that is held, and
    `end` that of the newest step, plus 1.
    """

    def __init__(self, fields: Fields, max_steps: int) -> None:
        """Create an empty history of at most `max_steps` steps."""
        self.max_steps = max_steps
        self.first = self.oldest = self.end = 0
        self._specs = fields.specs
        # Steps may omit columns: for each set of names seen so far, its fields and columns.
        self._checks: dict[tuple[str, ...], tuple[Fields, list[ColumnHistory]]] = {}
        super().__init__((name, ColumnHistory(field, self)) for name, field in fields.fields.items())

    def append(self, data: Mapping[str, Any], continues_step: bool) -> None:
        """Append a step, or add columns to the newest one; see `TrajectoryWriter.append`."""
        if not isinstance(data, dict):
            check_mapping(data, self)
        if not data and continues_step:
            return
        if not (check := self._checks.get(tuple(data))):
            data = flat_columns(data, self)
            check = self._check_for(tuple(data))
        fields, columns = check
        count, values = fields.to_columns(data)
        if count != 1:
            raise ValueError(f"`append` takes one step, not a batch of {count}. Append the steps one by one.")
        if not continues_step:
            self._begin_step()
        elif known := [column.name for column in columns if self.end - 1 in column.values]:
            raise ValueError(
                f"The open step already has a value in {known[0]!r}. Close the step first: pass its last "
                "columns without partial_step=True."
            )
        step = self.end - 1
        for column, value in zip(columns, values):  # noqa: B905 - strict=True takes 0.1 µs more
            column.store(step, value)

    def _check_for(self, names: tuple[str, ...]) -> tuple[Fields, list[ColumnHistory]]:
        """Return the `Fields` and the column histories for steps with these columns."""
        if not names:
            raise ValueError("A step must have a value in at least one column.")
        if names not in self._checks:
            columns = [self[name] for name in names]
            self._checks[names] = Fields({name: self._specs[name] for name in names}), columns
        return self._checks[names]

    def _begin_step(self) -> None:
        """Start a step without values, and drop the oldest step if the history is full."""
        self.end += 1
        oldest = self.oldest
        if self.end - oldest > self.max_steps:
            for column in self.values():
                column.values.pop(oldest, None)
                column.unsent.pop(oldest, None)
            self.oldest += 1

    def clear_steps(self) -> None:
        """Drop all steps and keep the columns; the next step gets index 0, but step numbers continue."""
        self.first = self.oldest = self.end
        for column in self.values():
            column.values.clear()
            column.unsent.clear()
