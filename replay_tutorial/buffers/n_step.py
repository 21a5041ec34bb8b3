"""N-step transitions: sum the rewards of n steps into one row.

A row (s_t, a_t, r_t, s_t+1) becomes (s_t, a_t, R, s_t+k), with the return of the k steps that follow

    R = r_t + γ r_t+1 + … + γ^(k-1) r_t+k-1        discount = γ^k, or 0 if the last of these steps terminated

so that the target of Q-learning is `R + discount * Q(s_t+k)`, whatever k was. k is n, and less only where the
episode ends inside the window. A truncated episode has a last observation, and bootstraps from it; only a
terminated one has no future.

Left out: off-policy corrections. As in Ape-X, the n-step return is used as it is.

Source: Sutton and Barto 2018, section 7.1; Horgan et al. 2018, section 3.1.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Fields, field_names
from replay_tutorial.buffers.jit import Bytes, Flags, Floats, Integers, jitable, kernel, types
from replay_tutorial.buffers.rows import checked_integer, copy_part, copy_row

FloatRows = Annotated[npt.NDArray[np.float64], types.float64[:, ::1]]  # [steps or rows, numbers of a reward]
Spans = Annotated[npt.NDArray[np.int64], types.int64[:, ::1]]  # [k, 2], where in a record, from and to


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
    """Check `Nstep` against the fields."""
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
    rewards, nexts = field_names(settings.get("rew")), field_names(settings.get("next"))
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


class Waiting(NamedTuple):
    """The steps that wait, each environment's in a small ring of its own: the slots from number * room on."""

    steps: Bytes  # [environments * room, bytes]
    rewards: FloatRows  # [environments * room, numbers]
    oldest: Integers  # [environments], where in its ring the oldest one is
    counts: Integers  # [environments], how many wait


class Whole(NamedTuple):
    """The rows that become whole: room for exactly as many as there will be."""

    rows: Bytes
    returns: FloatRows
    discounts: Floats


# As they come from Python: see `jit.numba_type`.
PlainWaiting = Annotated[tuple[Any, ...], Waiting]
PlainWhole = Annotated[tuple[Any, ...], Whole]


@kernel
def look_ahead(counts: Integers, environments: Integers, ends: Flags, n: int) -> tuple[int, int]:
    """Count the rows that steps will make whole, and the most that will wait in one environment."""
    counts = counts.copy()
    whole, most = 0, 0
    for i in range(len(environments)):
        environment = environments[i]
        count = int(counts[environment]) + 1
        most = max(most, count)
        out = count if ends[i] else count // n
        counts[environment] = count - out
        whole += out
    return whole, most


@kernel
def find_jump(
    plain_waiting: PlainWaiting, environments: Integers, steps: Bytes, there: Integers, here: Spans
) -> int:
    """Find a step that does not begin where the step that waits before it led to; -1 if there is none.

    No two steps are of one environment. The bytes from `there[k]` on of the step that waits are compared with
    those of the new step from `here[k]`, from and to.
    """
    waiting, oldest, counts = plain_waiting[0], plain_waiting[2], plain_waiting[3]
    room = len(waiting) // len(counts)
    for i in range(len(steps)):
        environment = environments[i]
        if counts[environment] > 0:
            last = environment * room + (oldest[environment] + counts[environment] - 1) % room
            for k in range(len(here)):
                start, stop = here[k]
                began, led_to = steps[i, start:stop], waiting[last, there[k] : there[k] + stop - start]
                different = np.uint8(0)
                for byte in range(len(began)):  # nothing else in this loop, so that it is vectorized
                    different |= began[byte] ^ led_to[byte]
                if different:
                    return i
    return -1


@jitable
def give_out(
    waiting: Waiting,
    whole: Whole,
    first_row: int,
    environment: int,
    number: int,
    terminated: bool,
    at_end: Spans,
    gamma: float,
) -> None:
    """Make whole rows of the oldest steps of an environment; the newest is the last step of each of them."""
    steps, rewards, oldest, counts = waiting
    room = len(steps) // len(counts)
    base = environment * room
    last = base + (oldest[environment] + counts[environment] - 1) % room
    for row in range(first_row, first_row + number):
        first = base + oldest[environment]
        copy_part(whole.rows, row, 0, steps, first, 0, steps.shape[1])
        for k in range(len(at_end)):
            start, stop = at_end[k]
            copy_part(whole.rows, row, start, steps, last, start, stop - start)
        discount = 1.0
        for step in range(counts[environment]):
            slot = base + (oldest[environment] + step) % room
            for i in range(rewards.shape[1]):
                whole.returns[row, i] += discount * rewards[slot, i]
            discount *= gamma  # once per reward: γ^k for the k rewards that are really there
        whole.discounts[row] = 0.0 if terminated else discount
        oldest[environment] = (oldest[environment] + 1) % room
        counts[environment] -= 1


@kernel
def push_steps(
    plain_waiting: PlainWaiting,
    plain_whole: PlainWhole,
    environments: Integers,
    steps: Bytes,
    rewards: FloatRows,
    ends: Flags,
    terminates: Flags,
    at_end: Spans,
    n: int,
    gamma: float,
) -> None:
    """Let steps wait, and give out the rows that they make whole."""
    waiting, whole = Waiting(*plain_waiting), Whole(*plain_whole)
    oldest, counts = waiting.oldest, waiting.counts
    room = len(waiting.steps) // len(counts)
    row = 0
    for i in range(len(steps)):
        environment = environments[i]
        slot = environment * room + (oldest[environment] + counts[environment]) % room
        copy_row(waiting.steps, slot, steps, i)
        for k in range(rewards.shape[1]):
            waiting.rewards[slot, k] = rewards[i, k]
        counts[environment] += 1
        out = counts[environment] if ends[i] else counts[environment] // n
        give_out(waiting, whole, row, environment, out, terminates[i], at_end, gamma)
        row += out


@kernel
def flush_steps(
    plain_waiting: PlainWaiting, plain_whole: PlainWhole, environment: int, at_end: Spans, gamma: float
) -> None:
    """Give out all rows of an environment, with the rewards that were there."""
    waiting, whole = Waiting(*plain_waiting), Whole(*plain_whole)
    give_out(waiting, whole, 0, environment, waiting.counts[environment], False, at_end, gamma)
