"""A writer that makes items by patterns, and what it remembers of each of them.

Left out: when a pattern makes an item is said in `patterns`; here is how it is found out.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from replay_tutorial.tables.history import History, NamedCells
from replay_tutorial.tables.message import NewItems, Part
from replay_tutorial.tables.patterns import Pattern, StepState
from replay_tutorial.tables.writer import Cells, Receiver, TrajectoryWriter, as_priorities


class Newest(Mapping[str, Any]):
    """The values of the newest step; those left out, or still to come in an open step, are missing."""

    def __init__(self, history: History) -> None:
        """Look at a writer's history."""
        self._history = history

    def __getitem__(self, name: str) -> Any:
        column = self._history[name]
        step = self._history.end - 1
        if step not in column.values:
            raise KeyError(f"The newest step has no value in {name!r}.")
        return column.values_of((step,))[0]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._history if self._history.end - 1 in self._history[name].values)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Applied:
    """A pattern at work on one history."""

    def __init__(self, pattern: Pattern, history: History) -> None:
        """Begin before the first step.

        Raises:
            KeyError: If there is no such column.
            ValueError: If the pattern has no part.
        """
        if not pattern.trajectory:
            raise ValueError(f"The pattern for {pattern.table!r} has no part; an item needs at least 1.")
        self.pattern = pattern
        self.history = history
        parts = [
            (name, history[column], offsets, squeezed)
            for name, (column, offsets, squeezed) in pattern.trajectory.items()
        ]
        self._parts = parts
        self._layout = tuple(
            Part(name, column.name, len(offsets), is_one) for name, column, offsets, is_one in parts
        )
        self._offsets = np.array([[offset for _, _, offsets, _ in parts for offset in offsets]])
        self._steps_since_applied = 0
        self._looked_at = self._applied = -1  # numbers of steps

    def item(self, step_index: int, is_end_episode: bool) -> tuple[NewItems, list[Cells]] | None:
        """Return the item to make now and what it names, if there is one."""
        history, pattern = self.history, self.pattern
        end = history.end
        newest = end - 1
        if self._applied == newest:
            return None
        if self._looked_at != newest:
            self._looked_at = newest
            self._steps_since_applied += 1
        if pattern.when:
            state = StepState(step_index, self._steps_since_applied, is_end_episode, Newest(history))
            if not all(holds(state) for holds in pattern.when):
                return None
        cells: list[Cells] = []
        for _, column, offsets, _ in self._parts:
            steps = [end + offset for offset in offsets]
            if not all(map(column.values.__contains__, steps)):
                return None  # there are too few steps, or a value was left out
            cells.append((column, steps))
        priority = pattern.priority
        if callable(priority):
            named = zip(self._parts, cells, strict=True)
            priority = priority({name: NamedCells(*at, squeezed) for (name, _, _, squeezed), at in named})
        self._applied, self._steps_since_applied = newest, 0
        new = NewItems(pattern.table, as_priorities(priority), self._layout, self._offsets + end)
        return new, cells


class StructuredWriter:
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
        reach = [-min(part.offsets) for pattern in patterns for part in pattern.trajectory.values()]
        self._writer = TrajectoryWriter(server, max(reach, default=1))
        self._patterns = [Applied(pattern, self._writer.history) for pattern in patterns]

    def append(
        self, data: Mapping[str, Any], *, partial_step: bool = False, timeout: float | None = None
    ) -> None:
        """Take in a step, or a part of one, and make the items that are due.

        Args:
            data: As for `TrajectoryWriter.append`.
            partial_step: Whether the next call goes on with this step.
            timeout: Seconds to wait at most until the tables let the items in; None waits.

        Raises:
            RuntimeError: If items of an earlier step timed out: call `flush` first. This step is not in.
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
        looks = [applied.item(step_index, is_end_episode) for applied in self._patterns]
        new = [look[0] for look in looks if look is not None]
        writer.send_items(new, [cells for look in looks if look is not None for cells in look[1]], timeout)

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
