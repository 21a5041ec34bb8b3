"""N-step windows for an actor: it folds the steps of its environments before it adds them to a shared buffer.

Left out: what a window does (`n_step`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Batch, EnvDict, Fields, Rows
from replay_tutorial.buffers.jit import compile_now
from replay_tutorial.buffers.n_step import flush_steps, look_ahead, push_steps
from replay_tutorial.buffers.n_step_windows import Windows, select
from replay_tutorial.buffers.ring import Assignment
from replay_tutorial.buffers.rows import checked_integer


class NStep:
    """N-step windows for an actor that has no buffer: one for each of its environments.

    Example:
        >>> number, flag = {"shape": ()}, {"shape": (), "dtype": bool}
        >>> env_dict = {"obs": number, "rew": number, "next_obs": number, "terminated": flag}
        >>> n_step = NStep(env_dict, {"size": 3, "gamma": 0.5, "rew": "rew", "next": "next_obs"})
        >>> n_step.add(obs=0, rew=1, next_obs=1, terminated=False) is None
        True
        >>> rows = n_step.add(obs=1, rew=1, next_obs=2, terminated=True)  # it ends: both rows are whole
        >>> rows["rew"].tolist(), rows["next_obs"].tolist(), rows["discount"].tolist()
        ([1.5, 1.0], [2.0, 2.0], [0.0, 0.0])
    """

    def __init__(
        self,
        env_dict: EnvDict,
        Nstep: Mapping[str, Any],
        *,
        environments: int = 1,
        default_dtype: npt.DTypeLike = np.float32,
    ) -> None:
        """Open one empty window for each environment.

        Args:
            env_dict: The fields of one step, as for `ReplayBuffer`.
            Nstep: `size`, the number n of rewards in a return; `gamma`, the discount of one step (0.99 if
                left out); `rew`, the field or fields summed; `next`, the field or fields that move to the
                window's end.
            environments: How many environments step side by side.
            default_dtype: The dtype of fields that name none.

        Raises:
            TypeError: If an argument is of the wrong kind.
            ValueError: If a value is out of range or names a field that does not exist.
        """
        if checked_integer("environments", environments) < 1:
            raise ValueError(f"environments must be at least 1, not {environments}.")
        compile_now(flush_steps, look_ahead, push_steps)
        self._fields = Fields(env_dict, default_dtype)
        self._windows = Windows(self._fields, Nstep, environments)

    @property
    def env_dict(self) -> dict[str, dict[str, Any]]:
        """The fields of the rows that come out, `discount` among them, for the buffer that takes them."""
        return self._windows.fields.env_dict

    def add(self, environment: int = 0, /, **fields: Any) -> Batch | None:
        """Take in one step of one environment, or several consecutive ones along axis 0.

        A step with `terminated`, `truncated` or `done` true ends the episode, and its tail comes out at once.

        Args:
            environment: Which environment stepped, from 0.
            **fields: A value for each field.

        Returns:
            The rows that became whole, oldest first, arrays of shape (n, …); None if there is none.

        Raises:
            IndexError: If there is no such environment.
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape, a length or a value does not fit, or a step has an `obs` that is not the
                `next_obs` of the step before it. Nothing has changed then.
        """
        self._check(environment)
        count, columns = self._fields.to_columns(fields)
        self._windows.refuse_mixed(count, columns, environment)
        whose = np.full(count, environment)
        return self._batch(*self._windows.push(self._fields.to_rows(count, columns), whose))

    def add_step(self, skip: npt.ArrayLike | None = None, /, **fields: Any) -> Batch | None:
        """Take in one step of every environment, as a vector environment returns it.

        Args:
            skip: bool[environments], whose step is to be left out: with gymnasium's
                `AutoresetMode.NEXT_STEP` of those whose episode ended in the step before, because this one
                only resets them. None leaves out none.
            **fields: For each field an array of shape (environments, …).

        Returns:
            The rows that became whole, an environment's oldest first, arrays of shape (n, …); None if there
            is none.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric, or `skip` not bool.
            ValueError: As from `add`. Nothing has changed then.
        """
        environments = self._windows.environments
        count, columns = self._fields.to_columns(fields)
        if count != environments:
            raise ValueError(
                f"add_step takes one step of each environment: {environments}, not {count}. A step of one of "
                "them, or several consecutive ones, go to add(environment, …)."
            )
        rows, whose = self._fields.to_rows(count, columns), np.arange(count)
        if skip is not None:
            left_out = np.asarray(skip)
            if left_out.dtype != np.bool_:
                raise TypeError(f"skip is bool[{environments}], not of {left_out.dtype}.")
            if left_out.shape != (environments,):
                raise ValueError(f"skip is bool[{environments}], not of shape {left_out.shape}.")
            rows, whose = select(rows, ~left_out), whose[~left_out]
        self._windows.refuse_mixed_step(rows, whose)
        return self._batch(*self._windows.push(rows, whose))

    def on_episode_end(self, environment: int = 0, /) -> Batch | None:
        """End an episode that no field marked as ended; call it twice and nothing more happens.

        Args:
            environment: Whose episode ended.

        Returns:
            The rows that still waited, None if there is none.

        Raises:
            IndexError: If there is no such environment.
        """
        self._check(environment)
        return self._batch(*self._windows.flush(environment))

    def state(self) -> list[Rows]:
        """Copy the steps that wait, for `restore`: per environment at most n - 1 records, oldest first."""
        return [self._windows.waiting(environment) for environment in range(self._windows.environments)]

    def restore(self, state: Sequence[Rows]) -> None:
        """Put waiting steps in the place of those there are now.

        Args:
            state: What `state` gave, of an `NStep` with the same arguments.

        Raises:
            ValueError: If the arguments were others. Nothing has changed then.
        """
        dtype, most = self._fields.dtype, self._windows.settings.size - 1
        fit = [isinstance(rows, np.ndarray) and rows.dtype == dtype and rows.ndim == 1 for rows in state]
        fit += [len(rows) <= most for rows in state] if all(fit) else []
        if len(state) != self._windows.environments or not all(fit):
            raise ValueError("The state is that of an NStep with other fields, window or environments.")
        windows = self._windows.emptied()
        for environment, waiting in enumerate(state):
            windows.put_back(np.ascontiguousarray(waiting), environment)
        self._windows = windows

    def _check(self, environment: int) -> None:
        if not 0 <= checked_integer("environment", environment) < self._windows.environments:
            raise IndexError(f"No environment {environment}; they are 0 to {self._windows.environments - 1}.")

    def _batch(self, rows: Rows, change: Assignment) -> Batch | None:
        batch = self._windows.fields.to_batch(rows) if len(rows) else None
        target, key, waiting = change
        target[key] = waiting
        return batch
