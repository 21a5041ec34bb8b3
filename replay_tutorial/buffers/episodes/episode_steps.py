"""Steps on their way into the rings: the roles of their fields, and the arrays that a kernel appends.

obs, action, reward, terminated  ──▶ row i        the step: obs is stored once, as the observation of its slot
next_obs                   ──▶ row n + i    only an observation, for the slot after the step
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from replay_tutorial.buffers.episodes.episode_ring import Steps, StepsTuple
from replay_tutorial.buffers.fields import Fields, as_bytes
from replay_tutorial.buffers.n_step.settings import END_FIELDS
from replay_tutorial.buffers.n_step.windows import byte_spans
from replay_tutorial.buffers.runtime.jit import Bytes, Flags, Floats, Integers


class StepFields:
    """The fields of a step, and their roles.

    Attributes:
        fields: The arguments of `add`.
        stored: The fields of a row in the rings, without next observations.
        nexts: Maps observations to their next observations, such as obs to next_obs.
        spans: int64[k, 2], the bytes of the observations in a row, from start to stop.
        ends: The flags that end an episode.
        terminated: The flag that says whether a step is terminal: `terminated` or else `done`.
        reward: The field that is summed to the return of an episode; None if it is not declared.
    """

    def __init__(self, fields: Fields, reward: str) -> None:
        """Find the roles; raise ValueError if a field that is required is not declared."""
        declared = fields.fields
        self.fields = fields
        self.nexts = {
            name: f"next_{name}"
            for name in declared
            if f"next_{name}" in declared
            and declared[name].same_values(declared[f"next_{name}"])
            and name.removeprefix("next_") not in declared.keys() - {name}
        }
        if not self.nexts:
            raise ValueError(
                "fields declares no pair such as obs and next_obs, with the same dtype and shape; the "
                f"fields are {list(declared)}."
            )
        self.ends = [name for name in END_FIELDS if name in declared]
        if not {"terminated", "done"} & declared.keys():
            raise ValueError(
                f"fields must declare 'terminated' or 'done'; the fields are {list(declared)}. If episodes "
                'never terminate, declare "terminated": {"dtype": bool} and store False.'
            )
        self.terminated = "terminated" if "terminated" in declared else "done"
        self.reward = reward if reward in declared else None
        for name in (*self.ends, *([self.reward] if self.reward else [])):
            if (shape := declared[name].shape) not in ((), (1,)):
                raise ValueError(f"The field {name!r} must have the shape () or (1,), not {shape}.")
        nexts = self.nexts.values()
        self.stored = Fields({name: spec for name, spec in fields.specs.items() if name not in nexts})
        self.spans = byte_spans(self.stored, self.nexts)


class StagedSteps:
    """Arrays of n steps that `append_steps` adds; they are reused, because creating them takes longer.

    Attributes:
        count: Number of steps, n.
        rows: Records [2, n]: the steps, and rows that contain only their next observations.
        arrays: The steps as arrays.
        arrays_tuple: The same as a plain tuple, which is passed to the kernel.
    """

    def __init__(self, count: int, fields: StepFields) -> None:
        """Reserve memory for `count` steps."""
        self.count, self._fields = count, fields
        self.rows = np.zeros((2, count), fields.stored.dtype)
        steps, following = self.rows
        observations = {next_name: name for name, next_name in fields.nexts.items()}
        self._targets: list[Any] = [
            following[observations[name]] if name in observations else steps[name]
            for name in fields.fields.fields
        ]
        self._flags: list[Any] = [steps[name].reshape(count) for name in fields.ends]
        self._reward: Any = steps[fields.reward].reshape(count) if fields.reward else None
        rows: Bytes = as_bytes(self.rows.reshape(-1))
        rewards: Floats = np.zeros(count)
        ends: Flags = np.zeros(count, np.bool_)
        self.arrays = Steps(np.zeros(count, np.int64), rows, rewards, ends, np.zeros(count))
        self.arrays_tuple: StepsTuple = tuple(self.arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        return StagedSteps, (
            self.count,
            self._fields,
        )  # copied views would no longer share memory with `rows`

    def selected(self, kept: Integers) -> "StagedSteps":
        """Return a copy of some of the steps."""
        copies = StagedSteps(len(kept), self._fields)
        copies.rows[...] = self.rows[:, kept]
        for name in ("environments", "rewards", "ends"):
            getattr(copies.arrays, name)[...] = getattr(self.arrays, name)[kept]
        return copies

    def write(self, environments: Integers | int, columns: Sequence[Any]) -> None:
        """Write steps, with the columns that `Fields.to_columns` returns."""
        for target, column in zip(self._targets, columns):  # noqa: B905 - strict=True takes 0.2 µs more
            target[...] = column
        arrays = self.arrays
        if self._reward is not None:
            arrays.rewards[...] = self._reward
        arrays.environments[...] = environments
        if self.count == 1:  # the same as below, but five times as fast
            arrays.ends[0] = any(map(np.ndarray.item, self._flags))
        else:
            np.logical_or.reduce(self._flags, out=arrays.ends)

    def observed(self, i: int) -> tuple[bytes, bytes, bool, bool]:
        """Return obs and next_obs of a step as bytes, whether it has a reward, and whether it terminates."""
        obs, next_obs = (
            b"".join(row[start:stop].tobytes() for start, stop in self._fields.spans.tolist())
            for row in (self.arrays.rows[i], self.arrays.rows[self.count + i])
        )
        terminates = bool(np.any(self.rows[0, i][self._fields.terminated]))
        return obs, next_obs, bool(self.arrays.rewards[i]), terminates
