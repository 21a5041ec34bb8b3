"""N-step windows: what `Nstep` asks for, and the steps that wait, of one environment or of many.

All environments' steps lie in one array, so that one call of a kernel takes in a step of each of them.

Left out: what becomes of a step (`n_step`).
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Fields, Rows, as_bytes
from replay_tutorial.buffers.jit import Integers
from replay_tutorial.buffers.n_step import FloatRows, Waiting, find_jump, flush_steps, look_ahead, push_steps
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
        fields: The fields of the rows that come out: those that go in, and `discount`.
        environments: How many there are.
    """

    def __init__(
        self, fields: Fields, settings: Mapping[str, Any], environments: int = 1, given: Fields | None = None
    ) -> None:
        """Open an empty window over rows of `fields` for each environment.

        `given` are the fields as `add` takes them, if observations are kept as frames.
        """
        self.settings = read_settings(settings, fields)
        self.environments = environments
        self._rows_in = fields
        self._ends = [name for name in ENDS if name in fields.fields]
        self._given = fields if given is None else given
        self._links = links_of(self._given, self.settings.nexts)
        self._terminates = [name for name in ("terminated", "done") if name in fields.fields][:1]
        reward = fields.fields[self.settings.rewards[0]] if self.settings.rewards else None
        shape = (1,) if reward is None or reward.shape else ()
        discount = {"shape": shape, "dtype": reward.dtype if reward else np.float32}
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
        self.clear()

    def clear(self) -> None:
        """Forget the steps that wait."""
        self._make_room(min(4, self.settings.size))

    def emptied(self) -> "Windows":
        """Make windows alike in which no step waits; these stay as they are."""
        windows = copy.copy(self)
        windows.clear()
        return windows

    def waiting(self, environment: int = 0) -> Rows:
        """Copy the steps of an environment that wait, oldest first: at most n - 1 records."""
        return select(self._rows[environment], self._slots(environment, self._counts[environment]))

    def put_back(self, rows: Rows, environment: int = 0) -> None:
        """Let `rows` wait in the place of those that do.

        Raises:
            ValueError: If they are more than can wait.
        """
        if len(rows) >= self.settings.size:
            raise ValueError(f"At most {self.settings.size - 1} steps can wait, not {len(rows)}.")
        if len(rows) > self._room:
            self._grow(len(rows))
        self._counts[environment] = len(rows)
        slots = self._slots(environment, len(rows))
        as_bytes(self._rows[environment])[slots] = as_bytes(rows)
        self._rewards[environment][slots] = self._rewards_of(rows)

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
            if self._counts[environment]:
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
        if not self._links or find_jump(self._plain, environments, as_bytes(rows), *self._link_places) < 0:
            return
        waits = self._counts[environments] > 0
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
            "truncated one. Steps of several environments need a window each: NStep(..., environments=n)."
        )

    def push(self, rows: Rows, environments: Integers) -> Rows:
        """Take in steps, in order; return the rows that became whole, an environment's oldest first.

        Args:
            rows: Records, one per step.
            environments: int64[n], whose each of them is.
        """
        size, gamma = self.settings.size, self.settings.gamma
        ends, terminates = any_true(rows, self._ends), any_true(rows, self._terminates)
        count, most = look_ahead(self._counts, environments, ends, size)
        if most > self._room:
            self._grow(most)
        steps, rewards = as_bytes(rows), self._rewards_of(rows)
        whole, plain = self._whole(count)
        push_steps(
            self._plain, plain, environments, steps, rewards, ends, terminates, self._at_end, size, gamma
        )
        return self._rounded(whole, plain)

    def flush(self, environment: int = 0) -> Rows:
        """End an episode: return every step that waits, with the rewards that were there."""
        whole, plain = self._whole(self._counts[environment])
        flush_steps(self._plain, plain, environment, self._at_end, self.settings.gamma)
        return self._rounded(whole, plain)

    def _whole(self, count: int) -> tuple[Rows, tuple[Any, ...]]:
        """Make room for rows; return it as records, and as `Whole`."""
        rows = np.zeros(count, self.fields.dtype)
        returns = np.zeros((count, self._rewards.shape[2]))
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
        rewards = np.empty((len(rows), self._rewards.shape[2]))
        for name, numbers in self._numbers.items():
            rewards[:, numbers] = rows[name].reshape(len(rows), numbers.stop - numbers.start)
        return rewards

    def _slots(self, environment: int, count: int) -> Integers:
        """List the slots of an environment's ring from its oldest step on."""
        return (self._oldest[environment] + np.arange(count)) % self._room

    def _newest(self, name: str, environment: Any) -> Any:
        """Return a field's value in the newest step that waits, of one environment or of several."""
        slots = (self._oldest[environment] + self._counts[environment] - 1) % self._room
        return self._rows[name][environment, slots]

    def _grow(self, most: int) -> None:
        waiting = [self.waiting(environment) for environment in range(self.environments)]
        self._make_room(min(self.settings.size, 2 * most))
        for environment, rows in enumerate(waiting):
            self.put_back(rows, environment)

    def _make_room(self, room: int) -> None:
        """Begin with empty rings of `room` slots."""
        environments, numbers = self.environments, sum(n.stop - n.start for n in self._numbers.values())
        self._room = room
        self._rows: Rows = np.zeros((environments, room), self._rows_in.dtype)
        self._rewards = np.zeros((environments, room, numbers))
        self._oldest, self._counts = np.zeros(environments, np.int64), np.zeros(environments, np.int64)
        self._make_views()

    def _make_views(self) -> None:
        """Show the arrays to the kernels: as bytes, and one row per step."""
        steps, numbers = self._rows.reshape(-1), self._rewards.shape[2]
        rewards = self._rewards.reshape(len(steps), numbers)
        self._plain = tuple(Waiting(as_bytes(steps), rewards, self._oldest, self._counts))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_plain"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_views()


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
