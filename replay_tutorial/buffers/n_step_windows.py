"""N-step windows: what `Nstep` asks for, and the steps that wait, of one environment or of many.

All environments' steps lie in one array, so that one call of a kernel takes in a step of each of them.

Left out: what becomes of a step (`n_step`).
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import EnvDict, Fields, Rows, as_bytes
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.buffers.n_step import (
    FloatRows,
    PlainWaiting,
    find_jump,
    flush_steps,
    look_ahead,
    push_steps,
)
from replay_tutorial.buffers.ring import Assignment
from replay_tutorial.buffers.rows import checked_integer

# Restores what a stored field stands for, arrays of shape (n, ...): an observation may be kept as frames.
Restore = Callable[[str, npt.NDArray[Any]], npt.NDArray[Any]]

SMALL = 1 << 16  # bytes that are compared as a copy, for which the system needn't hand out new pages

ENDS = ("terminated", "truncated", "done")  # a step with any of these true is the last of its episode


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
    size, gamma = checked_integer("Nstep['size']", settings["size"]), float(settings.get("gamma", 0.99))
    if size < 1:
        raise ValueError(f"Nstep['size'] must be at least 1, not {size}.")
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"Nstep['gamma'] must lie in [0, 1], not {gamma}.")
    rewards, nexts = names_of(settings.get("rew")), names_of(settings.get("next"))
    following = [name for name in fields.fields if name.startswith("next_")]
    if following and settings.get("next") is None:
        raise ValueError(
            f"Nstep names no 'next', and there is {following[0]!r}, which would stay one step on: say "
            f'"next": {following[0]!r}, or "next": () if it is to.'
        )
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
    if not {"terminated", "done"} & fields.fields.keys():
        raise ValueError(
            "Nstep needs the field 'terminated' or 'done': without it no row has the discount 0, so that a "
            f"target bootstraps from terminal states. There are {list(fields.fields)}. Declare "
            '"terminated": {"dtype": bool}; where episodes never terminate, add it as False.'
        )
    if "discount" in fields.fields:
        raise ValueError("Nstep makes the field 'discount' itself; leave it out of env_dict.")
    return NStepSettings(size, gamma, rewards, nexts)


def names_of(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Read one name, several different ones, or none.

    Raises:
        TypeError: If a name is not a string.
        ValueError: If one is given twice.
    """
    one = isinstance(names, str) or not isinstance(names, Iterable)
    read: tuple[Any, ...] = () if names is None else (names,) if one else tuple(names)
    for name in read:
        if not isinstance(name, str):
            raise TypeError(f"A field is named by a string, not by {name!r:.60}.")
    if len(set(read)) < len(read):
        raise ValueError(f"Each field can be named once only, not as in {list(read)}.")
    return read


class Windows:
    """The steps of environments that still wait for the rewards that follow them.

    Attributes:
        settings: What was asked for.
        steps: The fields of the steps that go in.
        fields: The fields of the rows that come out: those that go in, and `discount`.
        environments: How many there are.
    """

    def __init__(
        self,
        fields: Fields,
        settings: Mapping[str, Any],
        environments: int = 1,
        given: Fields | None = None,
        beside: EnvDict = MappingProxyType({}),
    ) -> None:
        """Open an empty window over rows of `fields` for each environment.

        `given` are the fields as `add` takes them, if observations are kept as frames; `beside` are further
        fields of a step, which its row keeps.
        """
        self.settings = read_settings(settings, fields)
        self.environments = environments
        self._ends = [name for name in ENDS if name in fields.fields]
        self._given = fields if given is None else given
        self._links = links_of(self._given, self.settings.nexts)
        self._terminates = [name for name in ("terminated", "done") if name in fields.fields][:1]
        reward = fields.fields[self.settings.rewards[0]] if self.settings.rewards else None
        shape = (1,) if reward is None or reward.shape else ()
        discount = {"shape": shape, "dtype": reward.dtype if reward else np.float32}
        fields = self.steps = Fields({**fields.env_dict, **beside})
        # `discount` comes last: a row that goes in is the beginning of the one that comes out.
        self.fields = Fields({**fields.env_dict, "discount": discount})
        places: Any = fields.dtype.fields  # name → dtype and offset
        moved = dict.fromkeys((*self.settings.nexts, *self._ends))
        spans = [(places[name][1], places[name][1] + places[name][0].itemsize) for name in moved]
        self._at_end = np.array(spans, np.int64).reshape(len(spans), 2)
        self._link_places = (
            np.array([places[there][1] for there, _, _ in self._links], np.int64),
            np.array(
                [
                    [places[here][1], places[here][1] + fields.fields[here].nbytes]
                    for _, here, _ in self._links
                ],
                np.int64,
            ).reshape(-1, 2),
        )
        sizes = [math.prod(fields.fields[name].shape) for name in self.settings.rewards]
        ends = np.cumsum([0, *sizes]).tolist()
        self._numbers = {  # which of the numbers in `Waiting.rewards` are whose
            name: slice(*span) for name, span in zip(self.settings.rewards, pairwise(ends), strict=True)
        }
        self._number_count = ends[-1]
        self._now = [self._empty(min(4, self.settings.size))]  # in a list, to be the target of an assignment

    def emptied(self) -> "Windows":
        """Make windows alike in which no step waits; these stay as they are."""
        windows = copy.copy(self)
        windows._now = [self._empty(min(4, self.settings.size))]
        return windows

    def count(self, environment: int = 0) -> int:
        """Count the steps of an environment that wait."""
        return int(self._now[0][3][environment])

    def waiting(self, environment: int = 0) -> Rows:
        """Copy the steps of an environment that wait, oldest first: at most n - 1 records."""
        steps, _, oldest, _ = self._now[0]
        room = len(steps) // self.environments
        slots: Any = environment * room + (oldest[environment] + np.arange(self.count(environment))) % room
        return steps[slots].view(self.steps.dtype).reshape(-1)

    def put_back(self, rows: Rows, environment: int = 0) -> None:
        """Let `rows` wait in new windows.

        Raises:
            ValueError: If they are more than can wait.
        """
        if len(rows) >= self.settings.size:
            raise ValueError(f"At most {self.settings.size - 1} steps can wait, not {len(rows)}.")
        if len(rows) * self.environments > len(self._now[0][0]):
            self._now[0] = self._copied(len(rows))
        steps, rewards, oldest, counts = self._now[0]
        first = len(steps) // self.environments * environment
        oldest[environment], counts[environment] = 0, len(rows)
        steps[first : first + len(rows)] = as_bytes(rows)
        rewards[first : first + len(rows)] = self._rewards_of(rows)

    def refuse_mixed(
        self, count: int, columns: Sequence[Any], environment: int = 0, restore: Restore | None = None
    ) -> None:
        """Refuse steps that can't be the next ones of an environment.

        A step that does not end its episode leads to where the next one begins. Only a `next_obs`
        that has an `obs` beside it can tell.

        Args:
            count: How many steps.
            columns: The values of each field, as `Fields.to_columns` returns them.
            environment: Whose they are.
            restore: Restores what the fields of the steps that wait stand for; None if they are the values.

        Raises:
            ValueError: If a step leads elsewhere.
        """
        for there, here, place in self._links:
            if count > 1:
                steps = dict(zip(self._given.fields, columns, strict=True))
                broken = differ(steps[there][:-1], steps[here][1:])
                for end in self._ends:
                    broken &= np.ravel(steps[end][:-1]) == 0
                if broken.any():
                    step = int(broken.argmax())
                    raise ValueError(
                        f"Step {step} leads to a {there!r} that is not the {here!r} of step {step + 1}, and "
                        "no episode ended there: a batch holds consecutive steps of one environment. Fold "
                        "those of several with NStep(environments=n), a step of all of them in one call of "
                        "add_step."
                    )
            if self.count(environment):
                last = self._newest(there, environment)
                led_to = last if restore is None else restore(there, last[np.newaxis])[0]
                began = np.asarray(columns[place] if count == 1 else columns[place][0], led_to.dtype)
                if differ(led_to[np.newaxis], began[np.newaxis])[0]:
                    raise self._refusal(there, here, environment)

    def refuse_mixed_step(self, rows: Rows, environments: Integers) -> None:
        """Refuse steps, no two of one environment, if one of them can't be the next of its environment.

        Raises:
            ValueError: If the step before it led elsewhere.
        """
        if not self._links or find_jump(self._now[0], environments, as_bytes(rows), *self._link_places) < 0:
            return
        waits = self._now[0][3][environments] > 0
        whose = environments[waits]
        for there, here, _ in self._links:  # as values: a NaN may have other bytes
            broken = differ(self._newest(there, whose), rows[here][waits])
            if broken.any():
                raise self._refusal(there, here, int(whose[broken.argmax()]))

    def _refusal(self, there: str, here: str, environment: int) -> ValueError:
        whose = f" in environment {environment}" * (self.environments > 1)
        return ValueError(
            f"The {here!r} of the step is not the {there!r} of the step before it{whose}, and no episode "
            "ended there. Call on_episode_end() after an episode that no field marks as ended, for example a "
            "truncated one. Steps of several environments need a window each: NStep(..., environments=n). "
            "Observations normalized by statistics that change between two calls: add them unnormalized, and "
            "normalize what sample() returns."
        )

    def push(self, rows: Rows, environments: Integers) -> tuple[Rows, Assignment]:
        """Find the rows that become whole when steps are taken in, in order, an environment's oldest first.

        Args:
            rows: Records, one per step.
            environments: int64[n], whose each of them is: steps of one environment, or one step of each.

        Returns:
            The rows, and the assignment with which the steps are taken in; before it, nothing has changed.
        """
        size, gamma = self.settings.size, self.settings.gamma
        ends, terminates = any_true(rows, self._ends), any_true(rows, self._terminates)
        waiting = self._now[0]
        count, most = look_ahead(waiting[3], environments, ends, size)
        if most * self.environments > len(waiting[0]):
            waiting = self._copied(min(size, 2 * most))
        elif len(rows) > 1 and environments[0] == environments[1]:
            waiting = self._copied(most)
        else:  # a step goes into a slot in which none waits, where it is not seen before the assignment
            waiting = (*waiting[:2], waiting[2].copy(), waiting[3].copy())
        whole, plain = self._whole(count)
        steps, rewards = as_bytes(rows), self._rewards_of(rows)
        push_steps(waiting, plain, environments, steps, rewards, ends, terminates, self._at_end, size, gamma)
        return self._rounded(whole, plain), (self._now, 0, waiting)

    def flush(self, environment: int = 0) -> tuple[Rows, Assignment]:
        """Find the rows of all steps that wait, as at an episode's end, with the rewards that were there.

        Returns:
            The rows, and the assignment with which the steps wait no more; before it, nothing has changed.
        """
        steps, rewards, oldest, counts = self._now[0]
        waiting = (steps, rewards, oldest.copy(), counts.copy())
        whole, plain = self._whole(counts[environment])
        flush_steps(waiting, plain, environment, self._at_end, self.settings.gamma)
        return self._rounded(whole, plain), (self._now, 0, waiting)

    def _whole(self, count: int) -> tuple[Rows, tuple[Any, ...]]:
        """Make room for rows; return it as records, and as `Whole`."""
        rows = np.zeros(count, self.fields.dtype)
        returns = np.zeros((count, self._number_count))
        return rows, (as_bytes(rows), returns, np.empty(count))

    def _rounded(self, rows: Rows, plain: tuple[Any, ...]) -> Rows:
        """Round the float64 sums to the fields' dtypes."""
        if len(rows):
            with np.errstate(over="ignore"):  # a return beyond the dtype is stored as infinite
                for name, numbers in self._numbers.items():
                    rows[name] = plain[1][:, numbers].reshape(rows[name].shape)
                rows["discount"] = plain[2].reshape(rows["discount"].shape)
        return rows

    def _rewards_of(self, rows: Rows) -> FloatRows:
        """Copy the rewards of steps: float64[n, numbers]."""
        rewards = np.empty((len(rows), self._number_count))
        for name, numbers in self._numbers.items():
            rewards[:, numbers] = rows[name].reshape(len(rows), numbers.stop - numbers.start)
        return rewards

    def _empty(self, room: int) -> PlainWaiting:
        """Make `Waiting` with empty rings of `room` slots."""
        slots, integers = self.environments * room, np.zeros((2, self.environments), np.int64)
        steps = np.zeros((slots, self.steps.dtype.itemsize), np.uint8)
        return steps, np.zeros((slots, self._number_count)), integers[0], integers[1]

    def _newest(self, name: str, environment: Any) -> Any:
        """Return a field's value in the newest step that waits, of one environment or of several."""
        steps, _, oldest, counts = self._now[0]
        room = len(steps) // self.environments
        slots = environment * room + (oldest[environment] + counts[environment] - 1) % room
        return steps.view(self.steps.dtype).reshape(-1)[name][slots]

    def _copied(self, room: int) -> PlainWaiting:
        """Copy `Waiting`, with room for at least as many steps of each environment."""
        steps, rewards, oldest, counts = self._now[0]
        before, environments = len(steps) // self.environments, np.arange(self.environments)[:, None]
        made = self._empty(max(room, before))
        places = environments * before + (oldest[:, None] + np.arange(before)) % before
        for array, copies in ((steps, made[0]), (rewards, made[1])):
            copies.reshape(self.environments, -1, array.shape[1])[:, :before] = array[places]
        made[3][:] = counts
        return made


def links_of(fields: Fields, nexts: Sequence[str]) -> list[tuple[str, str, int]]:
    """Find the pairs such as `next_obs` and `obs`: both names, and the place of the second field."""
    links: list[tuple[str, str, int]] = []
    for name in nexts:
        there, here = fields.fields[name], fields.fields.get(name.removeprefix("next_"))
        if here not in (None, there) and (here.shape, here.dtype) == (there.shape, there.dtype):
            links.append((name, here.name, list(fields.fields).index(here.name)))
    return links


def differ(led_to: npt.NDArray[Any], began: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which of n values differ, arrays of shape (n, ...): bool[n]. NaN is equal to itself."""
    if led_to.nbytes <= SMALL and led_to.tobytes() == began.tobytes():  # as a rule, in a tenth of the time
        return np.zeros(len(led_to), np.bool_)
    differences = led_to != began
    if led_to.dtype.kind in "fc":
        differences &= ~(np.isnan(led_to) & np.isnan(began))
    return differences.any(axis=tuple(range(1, differences.ndim)))


def any_true(steps: Rows, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return for each step whether any of its fields `names` is true: bool[n]."""
    flags = np.zeros(len(steps), np.bool_)
    for name in names:
        flags |= steps[name].reshape(len(steps)) != 0
    return flags


def select(rows: Rows, places: npt.NDArray[Any]) -> Rows:
    """Copy some records whole: NumPy would leave the bytes between two fields as they happen to be."""
    return as_bytes(rows)[places].view(rows.dtype).reshape(-1)
