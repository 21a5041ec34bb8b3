"""N-step transitions: sum the rewards of n steps into one row.

A row (s_t, a_t, r_t, s_t+1) becomes (s_t, a_t, R, s_t+k), with the return of the k steps that follow

    R = r_t + γ r_t+1 + … + γ^(k-1) r_t+k-1        discount = γ^k, or 0 if the last of these steps terminated

so that the target of Q-learning is `R + discount * Q(s_t+k)`, whatever k was. k is n, and less only where the
episode ends inside the window. A truncated episode has a last observation, and bootstraps from it; only a
terminated one has no future.

Left out: off-policy corrections. As in Ape-X, the n-step return is used as it is.

Source: Sutton and Barto 2018, section 7.1; Horgan et al. 2018, section 3.1.
"""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Fields, Rows
from replay_tutorial.buffers.jit import Flags, Floats, Integers, kernel, types

FloatRows = Annotated[npt.NDArray[np.float64], types.float64[:, ::1]]  # [steps, numbers of a reward]

ENDS = ("terminated", "truncated", "done")  # a step with any of these true is the last of its episode


@kernel
def find_windows(
    ends: Flags, terminates: Flags, n: int, gamma: float, flush: bool
) -> tuple[Integers, Floats]:
    """Find the last step and the discount of each whole row; row i begins at step i."""
    last_steps, discounts = np.zeros(len(ends), np.int64), np.zeros(len(ends))
    for first in range(len(ends)):
        step, discount = first, gamma
        while step + 1 < min(first + n, len(ends)) and not ends[step]:
            step += 1
            discount *= gamma  # once per reward: γ^k for the k rewards that are really there
        if not (step - first + 1 == n or ends[step] or flush):
            return last_steps[:first], discounts[:first]  # it waits for more steps, and so do all after it
        last_steps[first] = step
        discounts[first] = 0.0 if terminates[step] else discount
    return last_steps, discounts


@kernel
def sum_rewards(rewards: FloatRows, last_steps: Integers, gamma: float) -> FloatRows:
    """Sum the discounted rewards of each row's steps."""
    returns = np.zeros((len(last_steps), rewards.shape[1]))
    for first in range(len(last_steps)):
        discount = 1.0
        for step in range(first, last_steps[first] + 1):
            for i in range(rewards.shape[1]):
                returns[first, i] += discount * rewards[step, i]
            discount *= gamma
    return returns


class NStepSettings(NamedTuple):
    """What `Nstep` asks for.

    Attributes:
        size: n, the number of rewards in a return.
        gamma: The discount of one step, in [0, 1].
        rewards: The fields that are summed.
        nexts: The fields that move to the end of the window; `terminated`, `truncated` and `done` do so by
            themselves.
    """

    size: int
    gamma: float
    rewards: tuple[str, ...]
    nexts: tuple[str, ...]


def read_settings(settings: Mapping[str, Any], fields: Fields) -> NStepSettings:
    """Check `Nstep` against the fields.

    Raises:
        TypeError: If it is not a dict, or its size not an integer.
        ValueError: If a value is out of range, or names a field that is missing or unfit.
    """
    if not isinstance(settings, Mapping):
        raise TypeError(
            f'Nstep must be a dict such as {{"size": 3, "rew": "rew", "next": "next_obs"}}, not {settings!r}.'
        )
    if unknown := set(settings) - {"size", "gamma", "rew", "next"}:
        raise ValueError(f"Nstep knows 'size', 'gamma', 'rew' and 'next', not {sorted(map(str, unknown))}.")
    if "size" not in settings:
        raise ValueError("Nstep needs 'size', the number of rewards in a return.")
    size, gamma = operator.index(settings["size"]), float(settings.get("gamma", 0.99))
    if size < 1:
        raise ValueError(f"Nstep['size'] must be at least 1, not {size}.")
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"Nstep['gamma'] must lie in [0, 1], not {gamma}.")
    rewards, nexts = names_of(settings.get("rew")), names_of(settings.get("next"))
    for name in (*rewards, *nexts):
        if name not in fields.fields:
            raise ValueError(f"Nstep names the field {name!r}; there are {list(fields.fields)}.")
    for name in rewards:
        if fields.fields[name].dtype.kind != "f":
            raise ValueError(
                f"Nstep needs a float dtype for {name!r}, not {fields.fields[name].dtype}: γ r is no integer."
            )
    for name in ENDS:
        if name in fields.fields and fields.fields[name].shape not in ((), (1,)):
            raise ValueError(
                f"Nstep needs one {name!r} per transition, not the shape {fields.fields[name].shape}."
            )
    if "discount" in fields.fields:
        raise ValueError("Nstep makes the field 'discount' itself; leave it out of env_dict.")
    return NStepSettings(size, gamma, rewards, nexts)


def names_of(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Read one name, several different ones, or none."""
    read = () if names is None else (names,) if isinstance(names, str) else tuple(names)
    if len(set(read)) < len(read):
        raise ValueError(f"Each field can be named once only, not as in {list(read)}.")
    return read


class Window:
    """The steps of one environment that still wait for the rewards that follow them.

    Attributes:
        settings: What was asked for.
        fields: The fields of the rows that come out: those that go in, and `discount`.
        waiting: The steps that wait, at most n - 1 records.
    """

    def __init__(self, fields: Fields, settings: Mapping[str, Any]) -> None:
        """Open an empty window over rows of `fields`."""
        self.settings = read_settings(settings, fields)
        self._rows_in = fields
        self._ends = [name for name in ENDS if name in fields.fields]
        self._terminates = [name for name in ("terminated", "done") if name in fields.fields][:1]
        reward = fields.fields[self.settings.rewards[0]] if self.settings.rewards else None
        shape = (1,) if reward is None or reward.shape else ()
        discount = {"shape": shape, "dtype": reward.dtype if reward else np.float32}
        self.fields = Fields({**fields.env_dict, "discount": discount})
        self.clear()

    def clear(self) -> None:
        """Forget the steps that wait."""
        self.waiting: Rows = np.zeros(0, self._rows_in.dtype)

    def refuse_mixed(self, fields: Fields, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Refuse a batch that can't be consecutive steps of one environment.

        A step that does not end its episode leads to where the next one begins. Only a `next_obs`
        that has an `obs` beside it can tell.

        Args:
            fields: The fields of the steps, as `add` takes them.
            columns: The values of each.

        Raises:
            ValueError: If a step leads elsewhere.
        """
        steps = dict(zip(fields.fields, columns, strict=True))
        for name in self.settings.nexts:
            here = name.removeprefix("next_")
            there, start = fields.fields[name], fields.fields.get(here)
            if here == name or start is None or (start.shape, start.dtype) != (there.shape, there.dtype):
                continue
            led_to, began = steps[name][:-1], steps[here][1:]
            differ = led_to != began
            if there.dtype.kind in "fc":
                differ &= ~(np.isnan(led_to) & np.isnan(began))
            broken = differ.reshape(len(differ), -1).any(axis=1)
            for end in self._ends:
                broken &= np.ravel(steps[end][:-1]) == 0
            if broken.any():
                step = int(broken.argmax())
                raise ValueError(
                    f"Step {step} leads to a {name!r} that is not the {here!r} of step {step + 1}, and no "
                    "episode ended there: a batch holds consecutive steps of one environment. Fold those of "
                    "several with NStep(environments=n), each environment's by themselves."
                )

    def push(self, rows: Rows) -> Rows:
        """Take in consecutive steps; return the rows that became whole, oldest first, perhaps none."""
        # not np.concatenate: it would lay the fields out anew
        steps = np.zeros(len(self.waiting) + len(rows), self._rows_in.dtype)
        steps[: len(self.waiting)] = self.waiting
        steps[len(self.waiting) :] = rows
        return self._whole_rows(steps, flush=False)

    def flush(self) -> Rows:
        """End the episode: return every step that waits, with the rewards that were there."""
        return self._whole_rows(self.waiting, flush=True)

    def _whole_rows(self, steps: Rows, flush: bool) -> Rows:
        size, gamma, rewards, nexts = self.settings
        ends, terminates = any_true(steps, self._ends), any_true(steps, self._terminates)
        last_steps, discounts = find_windows(ends, terminates, size, gamma, flush)
        rows = np.zeros(len(last_steps), self.fields.dtype)
        for name, field in self._rows_in.fields.items():
            if name in rewards:
                values = steps[name].reshape(len(steps), math.prod(field.shape)).astype(np.float64)
                with np.errstate(over="ignore"):  # a return beyond the dtype is stored as infinite
                    rows[name] = sum_rewards(values, last_steps, gamma).reshape(rows[name].shape)
            elif name in nexts or name in self._ends:
                rows[name] = steps[name][last_steps]
            else:
                rows[name] = steps[name][: len(rows)]
        rows["discount"] = discounts.reshape(rows["discount"].shape)
        self.waiting = steps[len(rows) :].copy()
        return rows


def any_true(steps: Rows, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return for each step whether any of its fields `names` is true: bool[n]."""
    flags = np.zeros(len(steps), np.bool_)
    for name in names:
        flags |= steps[name].reshape(len(steps)) != 0
    return flags
