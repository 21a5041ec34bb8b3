"""Patterns: rules by which a writer creates items automatically after each step.

A pattern declares a table, conditions, and the steps of an item relative to the newest step. For n-step
transitions:

    step = reference(columns)
    parts = {"obs": step["obs"][-n - 1], "reward": step["reward"][-n - 1 : -1], "next_obs": step["obs"][-1]}
    Pattern("replay", parts)

The writer checks all patterns in order after every `append`, and once more when the episode ends. A pattern
creates an item if all its conditions hold, all referenced values exist, and it has not created an item for
this step yet. All items that one call creates are sent in one message.

Source: Reverb's StructuredWriter. Unlike in Reverb, conditions are Python functions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.fields import FieldSpecs
from replay_tutorial.tables.core.arguments import ByColumn, explain_reverb_arguments
from replay_tutorial.tables.core.waiting import deadline_of, seconds_until
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.writing.history import SEVERAL, History, TrajectoryColumn, resolve_steps
from replay_tutorial.tables.writing.writer import TrajectoryWriter

if TYPE_CHECKING:
    from replay_tutorial.tables.remote.handle import RemoteServer


class ColumnReference(NamedTuple):
    """References to cells of one column, relative to the newest step."""

    column: str
    offsets: Sequence[int]  # -1 is the newest step, -2 the one before it
    squeezed: bool  # whether the index was an int, so that samples have no time axis


@dataclass
class PatternColumn:
    """A column of a pattern; negative indices reference steps relative to the newest one."""

    name: str

    def __getitem__(self, index: Any) -> ColumnReference:
        """Reference steps by a negative int, or by a slice or list of negative ints, as in a history."""
        # Offset -1 is the newest step. With first=1, an index that counts from the start becomes positive, or
        # its slice empty, and is rejected.
        offsets = resolve_steps(index, first=1, end=0)
        if not offsets or max(offsets) >= 0:
            raise IndexError(
                f"The index {index!r} of {self.name!r} must select steps relative to the newest one: use "
                "[-1] for the newest step and [-4:] for the newest four."
            )
        return ColumnReference(self.name, offsets, squeezed=not isinstance(index, SEVERAL))


def reference(columns: FieldSpecs) -> ByColumn[PatternColumn]:
    """Return an object that references future steps of some columns, for use in patterns.

    Example:
        >>> step = reference({"obs": {"shape": 4}, "action": {}})
        >>> step["obs"][-3:]
        ColumnReference(column='obs', offsets=range(-3, 0), squeezed=False)
    """
    return ByColumn((name, PatternColumn(name)) for name in columns)


class StepState(NamedTuple):
    """The argument of a condition.

    Attributes:
        step_index: Number of the newest step within the episode, starting at 0.
        steps_since_applied: Number of steps since the pattern last created an item, including the newest
            step. Before the first item, steps are counted from the first step of the writer. The count is not
            reset between episodes.
        is_end_episode: Whether the patterns are checked because the episode ends.
        data: Values of the newest step as stored, read-only. Columns that were omitted, or that an open step
            does not have yet, are missing.
    """

    step_index: int
    steps_since_applied: int
    is_end_episode: bool
    data: Mapping[str, Any]


Condition = Callable[[StepState], bool]
PriorityFunction = Callable[[Mapping[str, TrajectoryColumn]], float]


def td_error(part: str, max_weight: float = 0.9) -> PriorityFunction:
    """Return a priority function for sequences of TD errors δ: η max|δ| + (1 − η) mean|δ|.

    Args:
        part: The part of the trajectory that holds the TD errors.
        max_weight: η, in [0, 1].

    Raises:
        ValueError: If `max_weight` is outside [0, 1].

    Source: Kapturowski et al. 2019, section 2.3.
    """
    if not 0.0 <= max_weight <= 1.0:
        raise ValueError(f"max_weight must be in [0, 1], not {max_weight}.")

    def priority(trajectory: Mapping[str, TrajectoryColumn]) -> float:
        errors = np.abs(trajectory[part].numpy().astype(np.float64))
        return float(max_weight * errors.max() + (1.0 - max_weight) * errors.mean())

    return priority


class Pattern(NamedTuple):
    """A rule for creating items after a step.

    Attributes:
        table: Name of the table.
        trajectory: The parts of the trajectory, keyed by name.
        when: Conditions that must all hold.
        priority: Priority of the items, or a function that computes it from an item's parts, such as
            `td_error("errors")`. None stands for the table's highest priority so far.
    """

    table: str
    trajectory: Mapping[str, ColumnReference]
    when: Sequence[Condition] = ()
    priority: float | PriorityFunction | None = 1.0


class PatternState:
    """A pattern and the last step for which it created an item."""

    def __init__(self, pattern: Pattern, history: History) -> None:
        """Bind a pattern to a history."""
        if not pattern.trajectory:
            raise ValueError(f"The pattern for {pattern.table!r} has no parts; it must have at least one.")
        self.pattern = pattern
        self._history = history
        self._parts = [(name, history[cells.column], cells) for name, cells in pattern.trajectory.items()]
        self._applied = -1  # newest step of the last item
        self._failed: int = -1  # newest step when a condition failed

    def apply(self, step_index: int, is_end_episode: bool) -> dict[str, TrajectoryColumn] | None:
        """Return the trajectory of the item to create now, or None; a step is returned only once.

        If a condition fails, or the priority function of the item, the item is lost. Otherwise the failure
        would recur in `end_episode`, and the episode could not be ended.
        """
        history, newest = self._history, self._history.end - 1
        if newest == self._applied or (is_end_episode and newest == self._failed):
            return None
        if self.pattern.when:
            values = {name: held.values[newest] for name, held in history.items() if newest in held.values}
            for value in values.values():
                value.setflags(write=False)  # conditions must not change the stored values
            data = {name: value[()] for name, value in values.items()}
            state = StepState(step_index, newest - self._applied, is_end_episode, data)
            try:
                if not all(holds(state) for holds in self.pattern.when):
                    return None
            except Exception:
                self._failed = newest
                raise
        trajectory: dict[str, TrajectoryColumn] = {}
        for name, column, (_, offsets, squeezed) in self._parts:
            steps = [newest + 1 + offset for offset in offsets]
            if not all(map(column.values.__contains__, steps)):
                return None  # too few steps, or a value was omitted
            trajectory[name] = TrajectoryColumn(column, steps, squeezed)
        self._applied = newest
        return trajectory


class StructuredWriter(TrajectoryWriter):
    """A writer that creates items from patterns.

    Example:
        >>> from replay_tutorial.tables import Server, Table, reference
        >>> server, step = Server([Table.stack("t", 9)], {"obs": {}}, 9), reference({"obs": {}})
        >>> with StructuredWriter(server, [Pattern("t", {"pair": step["obs"][-2:]})]) as writer:
        ...     for obs in range(4):
        ...         writer.append({"obs": obs})
        >>> server.sample("t", batch_size=3).data["pair"].tolist()
        [[2.0, 3.0], [1.0, 2.0], [0.0, 1.0]]
    """

    def __init__(
        self, server: "Server | RemoteServer", patterns: Sequence[Pattern], items_per_message: int = 1
    ) -> None:
        """Start an episode.

        Args:
            server: The server that stores the items.
            patterns: Patterns to check after every step, in this order; at least one.
            items_per_message: As for `TrajectoryWriter`. All items that one call creates are sent together.
        """
        if not patterns:
            raise ValueError(
                "A StructuredWriter requires at least one pattern; without patterns it creates no items."
            )
        reach = [-min(cells.offsets) for pattern in patterns for cells in pattern.trajectory.values()]
        super().__init__(server, max(reach, default=1), items_per_message)
        self._patterns = [PatternState(pattern, self.history) for pattern in patterns]

    def append(
        self, data: Mapping[str, Any], *, partial_step: bool = False, timeout: float | None = None
    ) -> None:
        """Append a step, or add columns to an open step, and create the items of all matching patterns.

        Raises:
            RuntimeError: If items of an earlier step timed out. Call `flush` first; this step was not
                appended.
            TimeoutError: If some items were not inserted in time. The step was appended and its items are
                kept; call `flush`.
            Exception: Errors of `TrajectoryWriter.append`; the step was not appended. Errors of `create_item`
                or of a pattern's functions; the step was appended, so don't append it again. The items of a
                rejected message, or of the failed pattern and those after it, are missing.
        """
        self._check_ready(timeout)
        super().append(data, partial_step=partial_step)
        self._apply(False, timeout)

    @explain_reverb_arguments(timeout_ms="use timeout, in seconds.")
    def end_episode(self, clear_buffers: bool = True, timeout: float | None = None) -> None:
        """Check the patterns once more and start a new episode; see `TrajectoryWriter.end_episode`."""
        deadline = deadline_of(timeout)
        if self._unfinished is not None:
            self.flush(timeout)
        self._check_ready(timeout)
        if self.episode_steps or self.step_is_open:
            self._apply(True, seconds_until(deadline))
        super().end_episode(clear_buffers, seconds_until(deadline))

    def _apply(self, is_end_episode: bool, timeout: float | None) -> None:
        step_index = self.episode_steps - (not self.step_is_open)
        for state in self._patterns:
            trajectory = state.apply(step_index, is_end_episode)
            if trajectory is not None:
                table, _, _, priority = state.pattern
                self._add_item(table, priority(trajectory) if callable(priority) else priority, trajectory)
        if len(self._pending) >= self._items_per_message:
            self._send(timeout)
