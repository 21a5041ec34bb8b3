"""The values of one step: which columns have one, and whether they fit.

A step may leave columns out. So there is a check for each set of columns that has come so far; it is the one
that a buffer makes of its transitions.
"""

from collections.abc import Mapping
from typing import Any

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.spaces import flatten
from replay_tutorial.tables.history import ColumnHistory, History


class StepValues:
    """Checks what comes into a history, before anything in it changes."""

    def __init__(self, fields: Fields, history: History) -> None:
        """Begin with no check."""
        self._env_dict = fields.env_dict
        self._history = history
        # By the names in a step: the check, and where the values go.
        self._known: dict[tuple[str, ...], tuple[Fields, list[ColumnHistory]]] = {}

    def checked(
        self, data: Mapping[str, Any], open_step: int | None
    ) -> tuple[list[ColumnHistory], list[Any]]:
        """Check a step, or a part of one.

        Args:
            data: As for `TrajectoryWriter.append`.
            open_step: The number of the step that it goes on with; None if it begins one.

        Returns:
            The columns that have a value, and their values, which may be the caller's own arrays.

        Raises:
            KeyError: If there is no such column.
            TypeError: If a value is not numeric.
            ValueError: If a shape or a value does not fit, or the open step has the column already.
        """
        known = self._known.get(tuple(data))
        if known is None:
            if not data and open_step is not None:
                return [], []
            if not data.keys() <= self._history.keys():
                data = flat(data)
            known = self._known.get(tuple(data)) or self._learn(tuple(data))
        fields, columns = known
        count, values = fields.to_columns(data)
        if count != 1:
            raise ValueError(f"`append` takes one step, and this is a batch of {count}. Append one by one.")
        if open_step is not None:
            for column in columns:
                if open_step in column.values:
                    raise ValueError(
                        f"The open step has a value in {column.name!r} already. Close it first: the last "
                        "part of a step comes without partial_step=True."
                    )
        return columns, values

    def _learn(self, names: tuple[str, ...]) -> tuple[Fields, list[ColumnHistory]]:
        """Make the check for a set of columns."""
        if not names:
            raise ValueError("A step needs a value in at least one column.")
        columns = [self._history[name] for name in names]
        known = self._known[names] = Fields({name: self._env_dict[name] for name in names}), columns
        return known


def flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """Join the names of nested values by "/"."""
    pairs = list(flatten(data))
    values = dict(pairs)
    if len(values) < len(pairs):
        raise KeyError(f"A column is given twice, nested and by its name: {sorted(values)}.")
    return values
