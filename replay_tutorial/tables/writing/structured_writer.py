"""A writer that makes items by patterns, and what it remembers of each of them.

Left out: when a pattern makes an item is said in `patterns`; here is how it is found out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from replay_tutorial.tables.remote.handle import RemoteServer
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.writing.history import History, NamedCells
from replay_tutorial.tables.writing.patterns import Pattern, StepState
from replay_tutorial.tables.writing.writer import TrajectoryWriter


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
