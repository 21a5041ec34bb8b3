"""Patterns: items that a writer makes by itself after every step.

A pattern says which steps an item consists of, counted backwards from the newest one, into which table it
goes, and when. A transition of n steps is a pattern:

    step = reference(env_dict)
    parts = {"obs": step["obs"][-n - 1], "rew": step["rew"][-n - 1 : -1], "next_obs": step["obs"][-1]}
    Pattern("replay", parts)

After every `append` each pattern is looked at, in order. It makes an item if it has made none of this step so
far, if all its conditions hold, if there are enough steps, and if none of the values that it names was left
out. When the episode ends they are looked at once more. All items of a step travel in one message.

Left out: a language of conditions that could be sent elsewhere. A condition is a function.

Source: Reverb's StructuredWriter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from replay_tutorial.buffers.fields import EnvDict
from replay_tutorial.tables.history import SEVERAL, History, NamedCells, steps_named
from replay_tutorial.tables.writer import NewItem, Receiver, TrajectoryWriter


class PastCells(NamedTuple):
    """Cells of one column, their steps counted backwards from the newest one.

    Attributes:
        column: The column's name.
        offsets: Which steps: -1 is the newest, -2 the one before.
        squeezed: Whether one step was named by an int, so that a sample has no axis of time.
    """

    column: str
    offsets: Sequence[int]
    squeezed: bool


class ReferenceColumn:
    """A column whose steps are still to come."""

    def __init__(self, name: str) -> None:
        """Stand for a column."""
        self.name = name

    def __getitem__(self, index: Any) -> PastCells:
        """Name steps, as in a history, but all of them counted backwards.

        Args:
            index: An int below 0, or a slice or a list of such ints.

        Raises:
            IndexError: If it names no step, or one that is not counted backwards from the newest.
        """
        # There is no first step to count from: to count forwards leads to 0 or above, or to no step.
        offsets = steps_named(index, first=1, end=0)
        if not offsets or max(offsets) >= 0:
            raise IndexError(
                f"{index!r} of {self.name!r} names no steps counted backwards from the newest: write [-1] "
                "for it, and [-4:] for the newest four."
            )
        return PastCells(self.name, offsets, squeezed=not isinstance(index, SEVERAL))


class Reference(dict[str, ReferenceColumn]):
    """The columns of a server, by name."""

    def __missing__(self, name: str) -> ReferenceColumn:
        raise KeyError(f"There is no column {name!r}; there are {list(self)}.")


def reference(env_dict: EnvDict) -> Reference:
    """Return something to name steps with that are still to come.

    Args:
        env_dict: The server's.

    Example:
        >>> step = reference({"obs": {"shape": 4}, "rew": {}})
        >>> step["obs"][-3:]
        PastCells(column='obs', offsets=range(-3, 0), squeezed=False)
    """
    return Reference((name, ReferenceColumn(name)) for name in env_dict)


class Newest(Mapping[str, Any]):
    """The values of the newest step; those left out, or still to come in an open step, are missing."""

    def __init__(self, history: History) -> None:
        """Look at a writer's history."""
        self._history = history

    def __getitem__(self, name: str) -> Any:
        column = self._history[name]
        step = self._history.end - 1
        if step not in column.unsent:
            raise KeyError(f"The newest step has no value in {name!r}.")
        return column.values_of((step,))[0]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._history if self._history.end - 1 in self._history[name].unsent)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class StepState(NamedTuple):
    """What a condition is told.

    Attributes:
        step_index: The newest step's number within the episode, counted from 0.
        steps_since_applied: Steps since the pattern's last item, the newest one included; before its first
            item, since the writer's first step. A new episode does not begin it anew.
        is_end_episode: Whether this is the look at the end of an episode.
        data: The values of the newest step, as they are stored.
    """

    step_index: int
    steps_since_applied: int
    is_end_episode: bool
    data: Mapping[str, Any]


Condition = Callable[[StepState], bool]
PriorityOf = Callable[[Mapping[str, NamedCells]], float]


def td_error(part: str, max_weight: float = 0.9) -> PriorityOf:
    """Return the priority of a sequence by its TD errors: η max|δ| + (1 − η) mean|δ|.

    Args:
        part: The part of the trajectory that holds them.
        max_weight: η, in [0, 1].

    Raises:
        ValueError: If max_weight is out of range.

    Source: Kapturowski et al. 2019, section 2.3.
    """
    if not 0.0 <= max_weight <= 1.0:
        raise ValueError(f"max_weight must lie in [0, 1], not {max_weight}.")

    def priority(trajectory: Mapping[str, NamedCells]) -> float:
        errors = np.abs(trajectory[part].numpy().astype(np.float64))
        return float(max_weight * errors.max() + (1.0 - max_weight) * errors.mean())

    return priority


class Pattern(NamedTuple):
    """Which items to make after a step.

    Attributes:
        table: Where they go.
        trajectory: Their parts, by name.
        when: Conditions that must all hold.
        priority: Their priority; or a function of an item's parts, such as `td_error("errors")`.
    """

    table: str
    trajectory: Mapping[str, PastCells]
    when: Sequence[Condition] = ()
    priority: float | PriorityOf | None = 1.0


class Applied:
    """A pattern at work: when it was looked at, and when it made an item."""

    def __init__(self, pattern: Pattern) -> None:
        """Begin before the first step."""
        if not pattern.trajectory:
            raise ValueError(f"The pattern for {pattern.table!r} has no part; an item needs at least 1.")
        self.pattern = pattern
        self.steps = max(-min(part.offsets) for part in pattern.trajectory.values())
        self.steps_since_applied = 0
        self._looked_at = self._applied = -1  # numbers of steps

    def item(self, history: History, step_index: int, is_end_episode: bool) -> NewItem | None:
        """Return the item to make now, if there is one."""
        newest, pattern = history.end - 1, self.pattern
        if self._applied == newest:
            return None
        if self._looked_at != newest:
            self._looked_at = newest
            self.steps_since_applied += 1
        state = StepState(step_index, self.steps_since_applied, is_end_episode, Newest(history))
        if history.end - history.oldest < self.steps or not all(holds(state) for holds in pattern.when):
            return None
        trajectory: dict[str, NamedCells] = {}
        for name, (column_name, offsets, squeezed) in pattern.trajectory.items():
            column = history[column_name]
            steps = [history.end + offset for offset in offsets]
            if not all(map(column.unsent.__contains__, steps)):
                return None
            trajectory[name] = NamedCells(column, steps, squeezed)
        priority = pattern.priority(trajectory) if callable(pattern.priority) else pattern.priority
        self._applied, self.steps_since_applied = newest, 0
        return NewItem(pattern.table, priority, trajectory)


class StructuredWriter:
    """A writer that makes items by patterns.

    Example:
        >>> step = reference(env_dict)
        >>> pairs = Pattern("replay", {"obs": step["obs"][-2], "next_obs": step["obs"][-1]})
        >>> with StructuredWriter(server, [pairs]) as writer:
        ...     for obs in range(3):
        ...         writer.append({"obs": obs})
        >>> server.info()["replay"].size
        2
    """

    def __init__(self, server: Receiver, patterns: Sequence[Pattern]) -> None:
        """Begin an episode.

        Args:
            server: A server, or a handle with the same methods.
            patterns: Looked at in this order after every step.

        Raises:
            KeyError: If a table or column is not there.
            ValueError: If there is no pattern, or one without parts.
        """
        if not patterns:
            raise ValueError(
                "A StructuredWriter needs at least 1 pattern; without one it would store nothing."
            )
        self._patterns = [Applied(pattern) for pattern in patterns]
        self._writer = TrajectoryWriter(server, max(applied.steps for applied in self._patterns))
        for applied in self._patterns:
            for part in applied.pattern.trajectory.values():
                self._writer.history[part.column]  # a KeyError now, and not at the first step

    def append(
        self, data: Mapping[str, Any], *, partial_step: bool = False, timeout: float | None = None
    ) -> None:
        """Take in a step, or a part of one, and make the items that are due.

        Args:
            data: As for `TrajectoryWriter.append`.
            partial_step: Whether the next call goes on with this step.
            timeout: Seconds to wait at most until the tables let the items in; None waits.

        Raises:
            RuntimeError: If items of an earlier step timed out: call `flush` first. This step is not taken in.
            TimeoutError: If the tables did not let all items in. The step is taken in, and its items are
                kept; `flush` waits on.
            Exception: What `TrajectoryWriter.append` and `create_item` raise.
        """
        self._writer.check_ready()
        self._writer.append(data, partial_step=partial_step)
        self._apply(False, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait for items that timed out, as `TrajectoryWriter.flush` does."""
        self._writer.flush(timeout=timeout)

    def end_episode(self, clear_buffers: bool = True, timeout: float | None = None) -> None:
        """Look at the patterns once more, and begin a new episode.

        Args:
            clear_buffers: Whether no item may reach back beyond here.
            timeout: Seconds to wait at most; None waits.

        Raises:
            TimeoutError: If not all items are in; the episode goes on. Call it again.
        """
        self._writer.flush(timeout)
        if self._writer.episode_steps or self._writer.step_is_open:
            self._apply(True, timeout)
        self._writer.end_episode(clear_buffers, timeout)

    def _apply(self, is_end_episode: bool, timeout: float | None) -> None:
        writer = self._writer
        step_index = writer.episode_steps - (not writer.step_is_open)
        looks = (applied.item(writer.history, step_index, is_end_episode) for applied in self._patterns)
        writer.create_items([item for item in looks if item is not None], timeout)

    @property
    def step_is_open(self) -> bool:
        """Whether the last `append` left the step open."""
        return self._writer.step_is_open

    def close(self) -> None:
        """Let the server forget the steps."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)
