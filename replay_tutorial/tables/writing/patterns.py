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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.fields import EnvDict
from replay_tutorial.tables.remote.handle import RemoteServer
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.writing.history import SEVERAL, History, NamedCells, steps_named
from replay_tutorial.tables.writing.writer import TrajectoryWriter


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


@dataclass
class ReferenceColumn:
    """A column, by its name, whose steps are still to come."""

    name: str

    def __getitem__(self, index: Any) -> PastCells:
        """Name steps by an int below 0, or a slice or a list of such ints, as in a history."""
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
    """Return something to name steps with that are still to come, by the columns of a server's `env_dict`.

    Example:
        >>> step = reference({"obs": {"shape": 4}, "act": {}})
        >>> step["obs"][-3:]
        PastCells(column='obs', offsets=range(-3, 0), squeezed=False)
    """
    return Reference((name, ReferenceColumn(name)) for name in env_dict)


class StepState(NamedTuple):
    """What a condition is told.

    Attributes:
        step_index: The newest step's number within the episode, counted from 0.
        steps_since_applied: Steps since the pattern's last item, the newest one included; before its first
            item, since the writer's first step. A new episode does not begin it anew.
        is_end_episode: Whether this is the look at the end of an episode.
        data: The values of the newest step, as they are stored, and read-only; without those that were left
            out, or are still to come in an open step.
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
    """A pattern at work on one history."""

    def __init__(self, pattern: Pattern, history: History) -> None:
        """Begin before the first step."""
        if not pattern.trajectory:
            raise ValueError(f"The pattern for {pattern.table!r} has no part; an item needs at least 1.")
        self.pattern = pattern
        self._history = history
        self._parts = [(name, history[past.column], past) for name, past in pattern.trajectory.items()]
        self._applied = -1  # the number of the step that its last item was made of

    def trajectory(self, step_index: int, is_end_episode: bool) -> dict[str, NamedCells] | None:
        """Return what the item to make now names, if there is one."""
        history, newest = self._history, self._history.end - 1
        if self._applied == newest:
            return None
        if self.pattern.when:
            values = {name: held.values[newest] for name, held in history.items() if newest in held.values}
            for value in values.values():
                value.setflags(write=False)  # a condition looks at it
            data = {name: value[()] for name, value in values.items()}
            state = StepState(step_index, newest - self._applied, is_end_episode, data)
            if not all(holds(state) for holds in self.pattern.when):
                return None
        named: dict[str, NamedCells] = {}
        for name, column, (_, offsets, squeezed) in self._parts:
            steps = [newest + 1 + offset for offset in offsets]
            if not all(map(column.values.__contains__, steps)):
                return None  # there are too few steps, or a value was left out
            named[name] = NamedCells(column, steps, squeezed)
        self._applied = newest
        return named


class StructuredWriter(TrajectoryWriter):
    """A writer that makes items by patterns.

    Example:
        >>> from replay_tutorial.tables import Server, Table, reference
        >>> server, step = Server([Table.stack("t", 9)], {"obs": {"shape": ()}}, 9), reference({"obs": {}})
        >>> with StructuredWriter(server, [Pattern("t", {"pair": step["obs"][-2:]})]) as writer:
        ...     for obs in range(4):
        ...         writer.append({"obs": obs})
        >>> server.sample("t", batch_size=3).data["pair"].tolist()
        [[2.0, 3.0], [1.0, 2.0], [0.0, 1.0]]
    """

    def __init__(
        self, server: Server | RemoteServer, patterns: Sequence[Pattern], max_in_flight_items: int = 0
    ) -> None:
        """Begin an episode.

        Args:
            server: Where items go.
            patterns: Looked at in this order after every step; at least 1, and each with a part.
            max_in_flight_items: As of a `TrajectoryWriter`. The items of one step always travel together.
        """
        if not patterns:
            raise ValueError(
                "A StructuredWriter needs at least 1 pattern; without one it would store nothing."
            )
        reach = [-min(past.offsets) for pattern in patterns for past in pattern.trajectory.values()]
        super().__init__(server, max(reach, default=1), max_in_flight_items)
        self._patterns = [Applied(pattern, self.history) for pattern in patterns]

    def append(
        self, data: Mapping[str, Any], *, partial_step: bool = False, timeout: float | None = None
    ) -> None:
        """Take in a step, or a part of one, as `TrajectoryWriter.append`, and make the items that are due.

        Raises:
            RuntimeError: If items of an earlier step timed out: call `flush` first. This step is not in.
            TimeoutError: If the tables did not let all items in. The step is taken in, and its items are
                kept; `flush` waits on.
            Exception: What `TrajectoryWriter.append` raises: the step is not in. What a pattern's functions
                or `create_item` raise: it is in, without the items of a message that was refused, or of a
                pattern that failed and those after it. Don't append it again.
        """
        self._check_ready(timeout)
        super().append(data, partial_step=partial_step)
        self._apply(False, timeout)

    def end_episode(self, clear_buffers: bool = True, timeout: float | None = None) -> None:
        """Look at the patterns once more, and begin a new episode; see `TrajectoryWriter.end_episode`."""
        if self._unfinished is not None:
            self.flush(timeout)
        self._check_ready(timeout)
        if self.episode_steps or self.step_is_open:
            self._apply(True, timeout)
        super().end_episode(clear_buffers, timeout)

    def _apply(self, is_end_episode: bool, timeout: float | None) -> None:
        step_index = self.episode_steps - (not self.step_is_open)
        for applied in self._patterns:
            named = applied.trajectory(step_index, is_end_episode)
            if named is not None:
                table, _, _, priority = applied.pattern
                self._put(table, priority(named) if callable(priority) else priority, named)
        self._send_if_full(timeout)
