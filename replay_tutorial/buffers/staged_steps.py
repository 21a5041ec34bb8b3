"""New steps in the form in which they are appended to the rings of `episode_ring`.

Creating the arrays takes longer than writing a step, so they are reused by the next call.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from replay_tutorial.buffers.fields import Fields, as_bytes
from replay_tutorial.buffers.jit import Bytes, Flags, Floats, Integers
from replay_tutorial.buffers.n_step_windows import any_true


class StagedSteps:
    """Arrays of n steps, which one call adds.

    Attributes:
        rows: Records [2, n]: the steps, and rows that contain only their next observations.
        bytes: The same memory, uint8[2 * n, bytes].
        environments: int64[n].
        rewards: float64[n]; zeros if no reward is declared.
        ends: bool[n], whether the episode ends.
        masses: float64[n].
    """

    def __init__(
        self,
        count: int,
        fields: Fields,
        stored: Fields,
        nexts: Mapping[str, str],
        ends: Sequence[str],
        rewards: Sequence[str],
    ) -> None:
        """Reserve memory for `count` steps.

        Args:
            count: Number of steps, n.
            fields: The arguments of `add`.
            stored: The fields of a row.
            nexts: The next observation of each observation.
            ends: The flags that end an episode.
            rewards: The reward, or nothing.
        """
        self._arguments = count, fields, stored, nexts, ends, rewards
        self.rows = np.zeros((2, count), stored.dtype)
        steps, following = self.rows
        observations = {next_name: name for name, next_name in nexts.items()}
        self._targets: list[Any] = [
            following[observations[name]] if name in observations else steps[name] for name in fields.fields
        ]
        self._flags: list[Any] = [steps[name].reshape(count) for name in ends]
        self._rewards: list[Any] = [steps[name].reshape(count) for name in rewards]
        self.bytes: Bytes = as_bytes(self.rows.reshape(-1))
        self.environments: Integers = np.zeros(count, np.int64)
        self.rewards: Floats = np.zeros(count)
        self.ends: Flags = np.zeros(count, np.bool_)
        self.masses: Floats = np.zeros(count)
        # The first arguments of `append_steps` after the ring.
        self.arrays = self.environments, self.bytes, self.rewards, self.ends, self.masses

    def __reduce__(self) -> tuple[Any, ...]:
        return StagedSteps, self._arguments  # copied views would no longer share memory with `rows`

    def __len__(self) -> int:
        return len(self.ends)

    def write(self, environments: Integers | int, columns: Sequence[Any], masses: Floats | float) -> None:
        """Write steps, with the columns that `Fields.to_columns` returns."""
        for target, column in zip(self._targets, columns):  # noqa: B905 - strict=True takes 0.2 µs more
            target[...] = column
        for rewards in self._rewards:
            self.rewards[...] = rewards
        if len(self.ends) == 1:  # the same as below, but five times as fast
            self.environments[0], self.masses[0] = environments, masses
            self.ends[0] = any(map(np.ndarray.item, self._flags))
        else:
            self.environments[...], self.masses[...] = environments, masses
            self.ends[...] = any_true(self.rows[0], self._arguments[4])
