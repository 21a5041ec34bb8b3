"""N-step windows: store the steps of one or several environments until their n-step returns are complete.

The steps of all environments are stored in one array, so that one kernel call adds a step of each. A buffer
has a window for one environment; an actor computes the n-step rows of all its environments with
`NStepWindow`. The kernels are in `n_step`.

Built in chapter 02, *Episodes and n-step returns*.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.fields import Fields, FieldSpecs, FiniteFields, Rows, as_bytes, as_records
from replay_tutorial.buffers.n_step.autoreset import (
    EITHER,
    TRANSITION,
    NotConsecutive,
    ResetWatch,
    episode_ended,
    find_resets,
    resets_at_next_step,
)
from replay_tutorial.buffers.n_step.returns import (
    FloatRows,
    PlainCompleted,
    Spans,
    StepBytes,
    StepRewards,
    count_completed,
    flush_steps,
    is_broken,
    push_steps,
)
from replay_tutorial.buffers.n_step.settings import (
    END_FIELDS,
    NStep,
    as_settings,
    parse_settings,
    single_steps,
)
from replay_tutorial.buffers.rows import (
    checked_at_least,
    checked_environment,
    checked_flag,
    chosen_environments,
)
from replay_tutorial.buffers.runtime.jit import Flags, Integers, Matrix, compile_now

# Converts stored values of a field, an array of shape (n, ...), to observations if they are frame numbers.
Restore = Callable[[str, npt.NDArray[Any]], npt.NDArray[Any]]

SMALL = 1 << 16  # bytes; smaller arrays are compared as copies, for which no new pages are allocated


class Windows:
    """The n-step windows of one or several environments.

    Attributes:
        settings: The settings of the returns.
        steps: The fields of a step.
        environments: Number of environments.
        next_step: Whether the step after the end of an episode only resets its environment.
        state: int64[3, environments]; the position of each environment's oldest pending step in its ring,
            its number of pending steps, and what its next step is (see `autoreset`).
        watch: Detects environments that don't reset as `autoreset` says; None if the fields can't show it.

    If an environment has no pending step, the slot before that of its oldest one still holds its last step.
    """

    def __init__(
        self,
        fields: Fields,
        settings: NStep | None,
        environments: int = 1,
        autoreset: str | Enum | None = None,
        argument_fields: Fields | None = None,
        extra_fields: FieldSpecs = MappingProxyType({}),
    ) -> None:
        """Create an empty window for each environment, for steps with these fields, as stored.

        With `settings` of None, each step is a row, unchanged. `argument_fields` are the fields as passed to
        `add`, which differ if observations are stored as frames; `extra_fields` are copied from a step to its
        row.
        """
        self.settings = single_steps(fields) if settings is None else parse_settings(settings, fields)
        self._has_discount = settings is not None
        self.environments, self.next_step = environments, resets_at_next_step(autoreset)
        self._ends = [name for name in END_FIELDS if name in fields.fields]
        self._argument_fields = argument_fields or fields
        rewards = [fields.fields[name] for name in self.settings.rewards]
        self._discount = self._discount_dtype(fields)
        self.steps = Fields({**fields.specs, **extra_fields})
        self._at_end = byte_spans(self.steps, dict.fromkeys((*self.settings.nexts, *self._ends)))
        known, stored = self._argument_fields.fields, self.steps.fields
        pairs = [(name, name.removeprefix("next_")) for name in self.settings.nexts]
        self._links = [  # `next_obs` and `obs`
            (next_name, name)
            for next_name, name in pairs
            if name != next_name and name in known and known[name].same_values(known[next_name])
        ]
        self._link_starts = byte_spans(self.steps, [next_name for next_name, _ in self._links])[:, 0].copy()
        self._link_spans = byte_spans(self.steps, [name for _, name in self._links])
        # of a pair, only one field may be stored as frames
        self._same_bytes = all(stored[one].same_values(stored[other]) for one, other in self._links)
        self._watched = self.settings.rewards or tuple({"reward"} & set(stored))
        is_visible = self._links and self._watched
        self.watch = ResetWatch.for_mode(autoreset, environments) if is_visible else None
        ends = np.cumsum([0, *(math.prod(field.shape) for field in rewards)]).tolist()
        self._reward_slices = {  # the columns of `PendingSteps.rewards` for each reward field
            field.name: slice(*span) for field, span in zip(rewards, pairwise(ends), strict=True)
        }
        # The smallest number that overflows the dtype of each element.
        limits = [np.repeat(overflow_limit(field.dtype), math.prod(field.shape)) for field in rewards]
        self._limits = np.concatenate([np.empty(0), *limits])
        self._most = self.settings.n + self.next_step  # slots of a ring: its last step remains
        self._start()

    def _start(self) -> None:
        """Begin without pending steps."""
        self.state: Matrix = np.zeros((3, self.environments), np.int64)
        self._steps, self._rewards = self._empty(min(4, self._most))

    @property
    def row_specs(self) -> dict[str, dict[str, Any]]:
        """The fields of completed rows: those of a step, and `discount`."""
        if not self._has_discount:
            return self.steps.specs
        discount = {"shape": self._discount.shape, "dtype": self._discount.base}
        return {**self.steps.specs, "discount": discount}

    def _discount_dtype(self, fields: Fields) -> np.dtype[Any]:
        """Return the dtype and shape of `discount`; `reward + discount * Q` must have the reward's shape."""
        if self.settings.gamma == "discount":
            field = fields.fields["discount"]
            return np.dtype((field.dtype, field.shape))
        like = fields.fields[(*self.settings.rewards, *self._ends)[0]]
        return np.dtype((like.dtype if self.settings.rewards else np.float32, (1,) * len(like.shape)))

    def new(self) -> "Windows":
        """Return equivalent windows, in which no step has been added."""
        windows = copy.copy(self)
        windows._start()
        return windows

    def cleared(self) -> "Windows":
        """Return the windows without pending steps. An environment that has yet to be reset still has."""
        windows, (oldest, counts, resets) = copy.copy(self), self.state
        windows.state = np.stack([(oldest + counts) % self._steps.shape[1], np.zeros_like(counts), resets])
        return windows

    def saved(self, environment: int) -> Rows:
        """Return the steps to be passed to `restore`: the pending ones, or the last one before a reset."""
        oldest, count, reset = self.state[:, environment].tolist()
        kept = count if reset == TRANSITION else 1
        slots = (oldest + count - kept + np.arange(kept)) % self._steps.shape[1]
        return as_records(self._steps[environment, slots], self.steps.dtype)

    def restore(self, rows: Rows, environment: int, reset: int) -> None:
        """Set the steps that `saved` has returned for an environment, which has none yet."""
        self._reserve(len(rows))
        count = len(rows) if reset == TRANSITION else 0
        self.state[:, environment] = len(rows) - count, count, reset
        self._steps[environment, : len(rows)] = as_bytes(rows)
        self._rewards[environment, : len(rows)] = self._rewards_of(rows)

    def step(
        self, rows: Rows, environments: Integers, restore: Restore | None = None, is_checked: bool = False
    ) -> tuple[Batch | None, Matrix, ResetWatch | None, Integers]:
        """Compute the result of new steps, as stored. Steps are written only to free slots.

        Their environments are all the same, so that the steps are consecutive, or all different. `restore`
        converts stored values to observations; None if they are stored as passed. `is_checked` says that
        `check_columns` has been called.

        Returns:
            The rows that the steps complete, or None; `state` and `watch` after them, which the caller sets;
            and the environments of the steps, without those that only reset an environment.

        Raises:
            ValueError: If a step doesn't continue its episode, a discount is not in [0, 1], or a return is
                too large for its dtype.
        """
        (terminates, ends), resets, watch = self._flags(rows), None, self.watch
        if self.next_step and (ends.any() or self.state[2].any()):
            broken = [differs for _, _, differs in self._differences(rows, environments, restore)]
            continues = ~np.logical_or.reduce(broken) if broken else np.ones(len(rows), np.bool_)
            kept, resets = find_resets(self.state[2], environments, ends, continues.item)
            # as bytes, because NumPy doesn't copy the padding between fields
            rows, environments = as_records(as_bytes(rows)[kept], rows.dtype), environments[kept]
            terminates, ends = terminates[kept], ends[kept]
        if self._links and not is_checked:
            self._check_consecutive(rows, environments, ends, restore)
        completed, state = self._push(rows, environments, terminates, ends)
        if resets is not None:
            state[2] = resets
        if watch is not None:

            def observed(i: int) -> tuple[bytes, bytes, bool, bool]:
                next_obs, obs = (
                    b"".join(values(restore, name, rows[name][i : i + 1]).tobytes() for name in names)
                    for names in zip(*self._links, strict=True)
                )
                return obs, next_obs, any(np.any(rows[name][i]) for name in self._watched), terminates[i]

            watch = watch.see(environments, ends, observed)
        return completed, state, watch, environments

    def _flags(self, steps: Any) -> tuple[Flags, Flags]:
        """Return whether each step terminates, and whether it ends its episode."""
        terminates, *others = (steps[name].reshape(-1) != 0 for name in self._ends)
        return terminates, functools.reduce(np.logical_or, others, terminates)

    def _newest(self, environments: Integers) -> Rows:
        """Return copies of the last steps of environments, even if they are not pending."""
        slots = (self.state[0] + self.state[1] - 1)[environments] % self._steps.shape[1]
        return as_records(self._steps[environments, slots], self.steps.dtype)

    def _differences(
        self, rows: Rows, environments: Integers, restore: Restore | None
    ) -> Iterator[tuple[str, str, Flags]]:
        """Yield each link, and in which steps `obs` differs from `next_obs` of the step before."""
        before = self._newest(environments)
        if are_consecutive(environments):
            before[1:] = rows[:-1]
        for next_name, name in self._links:
            differs = differ(before[next_name], rows[name]) if self._same_bytes else np.ones(1, np.bool_)
            if restore is not None and differs.any():  # equal frames may have different numbers
                differs = differ(restore(next_name, before[next_name]), restore(name, rows[name]))
            yield next_name, name, differs

    def _check_consecutive(
        self, rows: Rows, environments: Integers, ends: Flags, restore: Restore | None
    ) -> None:
        """Raise NotConsecutive if a step doesn't continue the episode of its environment.

        Within an episode, the `obs` of a step must equal the `next_obs` of the step before it. This is
        checked for every field in "next" whose counterpart without `next_` exists.
        """
        pending, links = (self._steps, self._rewards, self.state), (self._link_starts, self._link_spans)
        if self._same_bytes and not is_broken(pending, environments, as_bytes(rows), ends, *links):
            return
        # Compare values, because two NaN may differ in their bytes.
        follows = self.state[1, environments] > 0
        if are_consecutive(environments):
            follows[1:] = ~ends[:-1]
        for next_name, name, differs in self._differences(rows, environments, restore):
            if (broken := follows & differs).any():
                if are_consecutive(environments) and broken[1:].any():
                    raise in_batch_error(next_name, name, int(broken[1:].argmax()))
                raise self._discontinuity_error(next_name, name, environments.item(broken.argmax()))

    def _discontinuity_error(self, next_name: str, name: str, environment: int) -> NotConsecutive:
        where = f" in environment {environment}" * (self.environments > 1)
        return NotConsecutive(
            f"The {name!r} of this step differs from the {next_name!r} of the step before it{where}, but no "
            "episode ended in between. After each step, the next observation becomes the observation. Call "
            "end_episode() if an episode ended without terminated, truncated or done being set. For several "
            "environments, pass num_envs=n. If observations are normalized by running statistics, add them "
            "unnormalized and normalize the sampled batch."
        )

    def check_columns(self, count: int, columns: Sequence[Any], restore: Restore | None) -> None:
        """Raise NotConsecutive if these arguments of `add` are not consecutive steps of one environment."""
        given = dict(zip(self._argument_fields.fields, columns, strict=True))
        last = self._newest(np.zeros(1, np.int64))
        for next_name, name in self._links:
            if count > 1:
                broken = differ(given[next_name][:-1], given[name][1:]) & ~self._flags(given)[1][:-1]
                if broken.any():
                    raise in_batch_error(next_name, name, int(broken.argmax()))
            next_obs = values(restore, next_name, last[next_name])
            obs = np.asarray(given[name], next_obs.dtype).reshape(count, *next_obs.shape[1:])
            if self.state.item(1, 0) and differ(next_obs, obs[:1])[0]:
                raise self._discontinuity_error(next_name, name, 0)

    def check_returns(self, count: int, columns: Sequence[Any]) -> None:
        """Raise the error that `step` would raise for the rewards in these arguments of `add`."""
        given = dict(zip(self._argument_fields.fields, columns, strict=True))
        steps = np.zeros(count, self.steps.dtype)
        gammas = [self.settings.gamma] if isinstance(self.settings.gamma, str) else []
        for name in (*self.settings.rewards, *self._ends, *gammas):
            steps[name] = given[name]
        trial = copy.copy(self)  # so that these windows don't grow
        trial._push(steps, np.zeros(count, np.int64), *self._flags(steps))

    def _push(
        self, rows: Rows, environments: Integers, terminates: Flags, ends: Flags
    ) -> tuple[Batch | None, Matrix]:
        """Compute the rows that steps complete; return them, or None, and the new `state`."""
        consecutive = are_consecutive(environments)
        if consecutive or self._steps.shape[1] < self._most:
            self._reserve(int(self.state[1].max()) + (len(rows) if consecutive else 1) + self.next_step)
        state = self.state.copy()
        completed = self._new_rows(count_completed(state[1], environments, ends, self.settings.n))
        rewards = self._rewards_of(rows)
        if isinstance(name := self.settings.gamma, str):
            wrong = rewards[~((rewards[:, -1] >= 0) & (rewards[:, -1] <= 1)), -1]
            if len(wrong):
                raise ValueError(f"{name!r} is the discount of a step; it must be in [0, 1], not {wrong[0]}.")
        overflow = push_steps(
            *((self._steps, self._rewards, state), completed, environments, as_bytes(rows), rewards),
            *(ends, terminates, self._at_end, self.settings.n, self._limits),
        )
        if overflow >= 0:
            raise self._overflow_error(completed, overflow)
        return self._batch(completed), state

    def flush(self, environment: int, state: Matrix) -> tuple[Batch | None, Matrix, ValueError | None]:
        """Compute the rows of all pending steps of an environment, at the end of an episode.

        `state` is the present state, or the new one of another environment's flush. If a return overflows,
        the error is returned instead of rows, and the steps are not in the new state, because they could
        never be flushed.
        """
        state = state.copy()
        state[2] = episode_ended(state[2], environment)
        completed = self._new_rows(self.state.item(1, environment))
        pending = self._steps, self._rewards, state
        overflow = flush_steps(pending, completed, environment, self._at_end, self._limits)
        if overflow >= 0:
            error = self._overflow_error(completed, overflow)
            discarded = f"The {len(completed[0])} pending steps of the episode have been discarded."
            return None, state, ValueError(f"{error} {discarded}")
        return self._batch(completed), state, None

    def _new_rows(self, count: int) -> PlainCompleted:
        """Allocate `CompletedRows`."""
        rows = np.empty((count, self.steps.dtype.itemsize), np.uint8)
        return rows, np.zeros((count, len(self._limits))), np.empty(count)

    def _overflow_error(self, completed: PlainCompleted, position: int) -> ValueError:
        _, returns, _ = completed
        column = position % returns.shape[1]
        (name,) = [name for name, part in self._reward_slices.items() if part.start <= column < part.stop]
        return ValueError(
            f"The n-step return {returns.flat[position]:.6g} of {name!r} is too large for its dtype, "
            f"{self.steps.fields[name].dtype}. Declare a wider dtype, or scale the rewards."
        )

    def _batch(self, completed: PlainCompleted) -> Batch | None:
        """Return completed rows as a batch; the float64 sums are rounded to the fields' dtypes."""
        rows, returns, discounts = completed
        if not len(rows):
            return None
        batch = self.steps.to_batch(as_records(rows, self.steps.dtype))
        for name, elements in self._reward_slices.items():
            batch[name][...] = returns[:, elements].reshape(batch[name].shape)
        if self._has_discount:
            batch["discount"] = discounts.astype(self._discount.base).reshape(-1, *self._discount.shape)
        return batch

    def _rewards_of(self, rows: Rows) -> FloatRows:
        """Return a copy of the rewards and γ of steps: float64[n, reward elements + 1]."""
        rewards, gamma = np.empty((len(rows), len(self._limits) + 1)), self.settings.gamma
        rewards[:, -1] = rows[gamma].reshape(len(rows)) if isinstance(gamma, str) else gamma
        for name, elements in self._reward_slices.items():
            rewards[:, elements] = rows[name].reshape(len(rows), elements.stop - elements.start)
        return rewards

    def _empty(self, room: int) -> tuple[StepBytes, StepRewards]:
        """Allocate steps and rewards of `PendingSteps`, in empty rings of `room` slots."""
        shape = self.environments, room
        steps = np.zeros((*shape, self.steps.dtype.itemsize), np.uint8)
        return steps, np.zeros((*shape, len(self._limits) + 1))

    def _reserve(self, room: int) -> None:
        """Make room for at least `room` steps of each environment."""
        before: int = self._steps.shape[1]
        if room <= before:
            return
        oldest, counts, resets = self.state
        environments, slots = np.arange(self.environments)[:, None], oldest[:, None] + np.arange(before)
        steps, rewards = self._empty(max(room, min(self._most, 2 * before)))
        for array, copies in ((self._steps, steps), (self._rewards, rewards)):
            copies[:, :before] = array[environments, slots % before]
            copies[:, -1] = copies[:, before - 1]  # the last step, if none is pending
        state = np.stack([np.zeros_like(oldest), counts, resets])
        self._steps, self._rewards, self.state = steps, rewards, state  # Ctrl-C can't come between


class NStepWindow:
    """Combines steps of one or several environments into n-step transitions.

    Use it in actors that add to a shared buffer; other buffers have the argument `n_step`. Each environment
    has its own window. A returned row begins with `obs` and `action` of a step. Its `reward` is the sum of
    γ^j · r_j of the next n steps, or of fewer at the end of an episode; its `next_` fields, `terminated` and
    `truncated` are those of the last of these steps. The target is `reward + discount * Q(next_obs)`, where
    `discount` is γ^k for k rewards, and 0 if the episode terminated. Pass `autoreset`, the mode in which a
    vector environment starts the next episode. Create a window in each actor, and call `end_episode` for each
    environment before the actor exits.

    Built in chapter 02, *Episodes and n-step returns*.

    Example:
        >>> number, flag = {}, {"dtype": bool}
        >>> fields = {"obs": number, "reward": number, "next_obs": number, "terminated": flag}
        >>> n_step = NStepWindow(fields, 3, gamma=0.5)
        >>> n_step.add(obs=0, reward=1, next_obs=1, terminated=False) is None
        True
        >>> rows = n_step.add(obs=1, reward=1, next_obs=2, terminated=True)  # episode ends: two rows
        >>> rows["reward"].tolist(), rows["next_obs"].tolist(), rows["discount"].tolist()
        ([1.5, 1.0], [2.0, 2.0], [0.0, 0.0])
        >>> from replay_tutorial import MPReplayBuffer
        >>> buffer = MPReplayBuffer(1000, n_step.fields)  # passed to the actors
        >>> buffer.add(**rows)
        0
    """

    def __init__(
        self,
        fields: FieldSpecs,
        n_step: int | NStep,
        *,
        gamma: float | str | None = None,
        num_envs: int = 1,
        autoreset: str | Enum | None = None,
        check_finite: bool = False,
    ) -> None:
        """Create an empty window for each environment.

        Args:
            fields: The fields of a step, as for `ReplayBuffer`.
            n_step: n, the number of rewards in a return, or an `NStep` if the reward is not called `reward`.
            gamma: The discount factor, in [0, 1], or the name of a field that contains the discount of each
                step. None means 0.99.
            num_envs: Number of environments.
            autoreset: The mode in which the environments start the next episode: "next_step", "same_step",
                "disabled" or gymnasium's `AutoresetMode`, such as `envs.metadata["autoreset_mode"]`.

                - "next_step", the default of gymnasium's vector environments: the step after the end of an
                  episode only resets its environment, and is ignored.
                - "same_step": the step that ends an episode returns the first observation of the next one.
                  Pass the final observation, `infos["final_obs"]`, as its next observation.
                - "disabled": environments don't reset themselves. Every step is a transition, as with
                  "same_step".

                None means "disabled", and warns if the steps look like those of "next_step". With
                "same_step", it warns if the final observations seem not to be passed.
            check_finite: Whether `add` and `add_step` raise ValueError for NaN and infinity in float fields.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If a value is out of range or refers to a field that does not exist.
        """
        num_envs = checked_at_least("num_envs", num_envs, 1)
        compile_now(count_completed, flush_steps, push_steps)
        self._fields = (FiniteFields if checked_flag("check_finite", check_finite) else Fields)(fields)
        self._windows = Windows(self._fields, as_settings(n_step, gamma), num_envs, autoreset)

    def __copy__(self) -> NoReturn:
        raise TypeError(
            "An NStepWindow can't be copied by copy.copy, because the copy would share the pending steps. "
            "Use copy.deepcopy."
        )

    @property
    def fields(self) -> dict[str, dict[str, Any]]:
        """The fields for a buffer that stores the returned rows; includes the field `discount`."""
        return self._windows.row_specs

    def add(self, environment: int = 0, /, **fields: Any) -> Batch | None:
        """Add one step of an environment, or several consecutive steps along axis 0.

        If `terminated`, `truncated` or `done` is true, the episode ends, and its remaining rows are returned.

        Args:
            environment: Number of the environment, from 0.
            **fields: One value per field.

        Returns:
            The completed rows, oldest first, as arrays of shape (rows, …), or None if no row was completed.

        Raises:
            IndexError: If the environment does not exist.
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: If a shape, length or value doesn't match its field, or the `obs` of a step differs
                from the `next_obs` of the step before it. The windows are then unchanged.
        """
        environment = checked_environment(environment, self._windows.environments)
        count, columns = self._fields.to_columns(fields)
        return self._push(count, columns, np.full(count, environment, np.int64))

    def add_step(self, /, **fields: Any) -> Batch | None:
        """Add one step of every environment, as returned by a vector environment.

        Args:
            **fields: One array per field, of shape (environments, …).

        Returns:
            The completed rows as arrays of shape (rows, …), or None if no row was completed. Rows of the same
            environment are ordered from oldest to newest.

        Raises:
            KeyError: If a field is missing or unknown.
            TypeError: If a value is not numeric.
            ValueError: As for `add`. The windows are then unchanged.
        """
        count, columns = self._fields.to_columns(fields)
        check_one_of_each(self._windows.environments, count)
        return self._push(count, columns, np.arange(count))

    def _push(self, count: int, columns: Sequence[Any], environments: Integers) -> Batch | None:
        windows = self._windows
        completed, state, watch, _ = windows.step(self._fields.to_rows(count, columns), environments)
        windows.state, windows.watch = state, watch  # Ctrl-C can't come between
        return completed

    def end_episode(self, environment: int | None = None, /) -> Batch | None:
        """End the episode of an environment.

        This call is necessary only if `terminated`, `truncated` and `done` are all false in the last step, or
        with autoreset="next_step" if you reset the environment yourself. Repeated calls have no effect. After
        an end that the flags reported, the next step is still ignored if its observation is the final one.

        Args:
            environment: Number of the environment whose episode ended; None ends the episodes of all
                environments.

        Returns:
            The remaining rows, which have fewer than n rewards, or None if there are none.

        Raises:
            IndexError: If the environment does not exist.
            ValueError: If a return is too large for the dtype of its reward. The pending steps of this
                environment are then discarded, and the episodes of the others have not ended.
        """
        windows = self._windows
        state, batches = windows.state, list[Batch | None]()
        environments = chosen_environments(environment, windows.environments)
        for each in environments:
            rows, state, error = windows.flush(each, state)
            if error is not None:
                _, windows.state, _ = windows.flush(each, windows.state)
                raise error
            batches.append(rows)
        windows.state = state
        if windows.watch is not None:
            for each in environments:
                windows.watch.episode_ended(each)
        return joined(batches)

    def state(self) -> list[Rows]:
        """Return a copy of the pending steps, to be passed to `restore`.

        The list contains one structured array per environment, with at most n - 1 records, oldest first. With
        autoreset="next_step", an environment that has yet to be reset has one record, its last step. The
        records have no padding, and their fields are in the order of `fields`, so `np.save` can store them.
        """
        environments = range(self._windows.environments)
        return [self._windows.saved(environment).astype(self._packed) for environment in environments]

    def restore(self, state: Sequence[Rows]) -> None:
        """Replace the pending steps with saved ones.

        Args:
            state: The result of `state`, called on an `NStepWindow` with the same arguments.

        Raises:
            ValueError: If the arguments were different. The windows are then unchanged.
        """
        if len(state) != self._windows.environments:
            raise ValueError(
                f"The state was saved with {len(state)} environments; this NStepWindow has "
                f"{self._windows.environments}. Create it with num_envs={len(state)}."
            )
        most = max(self._windows.settings.n - 1, self._windows.next_step)
        windows = self._windows.new()
        for environment, pending in enumerate(state):
            dtype = getattr(pending, "dtype", type(pending).__name__)
            if dtype != self._packed or pending.ndim != 1:
                raise ValueError(
                    f"The state was saved with the fields {dtype}; this NStepWindow has {self._packed}."
                )
            if len(pending) > most:
                raise ValueError(
                    f"The state contains {len(pending)} pending steps of environment {environment}; with "
                    f"n_step={self._windows.settings.n}, at most {most} can be pending. Create the "
                    f"NStepWindow with the n_step that saved the state, at least {len(pending) + 1}."
                )
            rows = pending.astype(self._fields.dtype)
            waits = any(np.any(rows[name]) for name in END_FIELDS if name in self._fields.fields)
            if waits and not (windows.next_step and len(rows) == 1):
                raise ValueError(
                    'The state was saved by an NStepWindow with autoreset="next_step"; pass the same.'
                )
            # EITHER, because `end_episode` may have been called
            windows.restore(rows, environment, EITHER if waits else TRANSITION)
        self._windows = windows

    @property
    def _packed(self) -> np.dtype[Any]:
        """The dtype of the records in `state`."""
        return np.dtype([(field.name, field.dtype, field.shape) for field in self._fields.fields.values()])


def joined(batches: Iterable[Batch | None]) -> Batch | None:
    """Return the rows of all batches; None if there are none."""
    parts = [batch for batch in batches if batch is not None]
    if len(parts) < 2:
        return parts[0] if parts else None
    return Batch({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def overflow_limit(dtype: np.dtype[Any]) -> float:
    """Return the smallest float64 that a float dtype rounds to infinity."""
    if dtype.itemsize >= 8:
        return math.inf
    largest: Any = np.finfo(dtype).max
    unit = float(largest) - float(np.nextafter(largest, largest * 0))
    return float(largest) + unit / 2


def check_one_of_each(environments: int, count: int) -> None:
    """Raise ValueError unless `add_step` has one step of each environment."""
    if count != environments:
        raise ValueError(
            f"add_step expects {environments} steps, one of each environment, not {count}. To add "
            "consecutive steps of one environment, use add(environment, …)."
        )


def are_consecutive(environments: Integers) -> bool:
    """Return whether these are the environments of consecutive steps of one environment."""
    return len(environments) > 1 and environments[0] == environments[1]


def in_batch_error(next_name: str, name: str, step: int) -> NotConsecutive:
    """Return the error for a step of a batch that the next step doesn't continue."""
    return NotConsecutive(
        f"The {next_name!r} of step {step} differs from the {name!r} of step {step + 1}, but no episode "
        "ended in between. A batch must hold consecutive steps of one environment; for several environments, "
        "use NStepWindow(num_envs=n) and pass one step of each to add_step."
    )


def values(restore: Restore | None, name: str, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return stored values of a field as observations."""
    return stored if restore is None else restore(name, stored)


def differ(next_obs: npt.NDArray[Any], obs: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return elementwise whether values differ, for arrays of shape (n, ...): bool[n]. NaN equals NaN."""
    if next_obs.nbytes <= SMALL and next_obs.tobytes() == obs.tobytes():  # the usual case, 10 times as fast
        return np.zeros(len(next_obs), np.bool_)
    differences = next_obs != obs
    if next_obs.dtype.kind in "fc":
        differences &= ~(np.isnan(next_obs) & np.isnan(obs))
    return differences.any(axis=tuple(range(1, differences.ndim)))


def byte_spans(fields: Fields, names: Iterable[str]) -> Spans:
    """Return the byte offsets of fields in a record, start and stop: int64[fields, 2]."""
    places: Any = fields.dtype.fields  # name → dtype and offset
    spans = [(places[name][1], places[name][1] + places[name][0].itemsize) for name in names]
    return np.array(spans, np.int64).reshape(len(spans), 2)
