"""N-step transitions: sum the discounted rewards of n steps into one row.

A step (s_t, a_t, r_t, s_t+1) becomes the row (s_t, a_t, R, s_t+k) with the k-step return

    R = r_t + γ r_t+1 + … + γ^(k-1) r_t+k-1        discount = γ^k, or 0 if the last of these steps terminated

so that the Q-learning target is `R + discount * Q(s_t+k)` for every k. Normally k = n; k is smaller only if
the episode ends within the window. A truncated episode bootstraps from its last observation; a terminated
episode doesn't bootstrap. If each step has its own discount γ_t, the products of the first ones replace the
powers of γ. As in Ape-X, there is no off-policy correction.

Source: Sutton and Barto 2018, section 7.1; Horgan et al. 2018, section 3.1.

Built in chapter 02, *Episodes and n-step returns*.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.rows import bytes_differ, copy_part, copy_row
from replay_tutorial.buffers.runtime.jit import Bytes, Flags, Floats, Integers, Matrix, jitable, kernel, types

FloatRows = Annotated[npt.NDArray[np.float64], types.float64[:, ::1]]  # [steps or rows, reward elements]
StepBytes = Annotated[npt.NDArray[np.uint8], types.uint8[:, :, ::1]]
StepRewards = Annotated[npt.NDArray[np.float64], types.float64[:, :, ::1]]
Spans = Annotated[npt.NDArray[np.int64], types.int64[:, ::1]]  # [k, 2], byte offsets in a record: start, stop


class PendingSteps(NamedTuple):
    """Steps whose rows are not complete yet; each environment has a ring of `room` slots."""

    steps: StepBytes  # [environments, room, bytes]
    rewards: StepRewards  # [environments, room, reward elements + 1]; the last column is γ
    state: Matrix  # [3, environments], position of the oldest step in each ring, number of steps, reset


class CompletedRows(NamedTuple):
    """Output arrays of the kernels, one entry per row that is completed."""

    rows: Bytes
    returns: FloatRows
    discounts: Floats


# The same as plain tuples, the form in which Python passes them: see `jit.numba_type`.
PlainPending = Annotated[tuple[Any, ...], PendingSteps]
PlainCompleted = Annotated[tuple[Any, ...], CompletedRows]


@kernel
def count_completed(counts: Integers, environments: Integers, ends: Flags, n: int) -> int:
    """Return the number of rows that the steps will complete."""
    counts = counts.copy()
    completed = 0
    for i in range(len(environments)):
        environment = environments[i]
        count = int(counts[environment]) + 1
        out = count if ends[i] else count // n
        counts[environment] = count - out
        completed += out
    return completed


@kernel
def is_broken(
    plain_pending: PlainPending,
    environments: Integers,
    steps: Bytes,
    ends: Flags,
    next_starts: Integers,
    spans: Spans,
) -> bool:
    """Return whether a step's `obs` is not the `next_obs` of the step before it, in the same episode.

    The bytes `spans[k]` (start, stop) of a step are compared with those that begin at `next_starts[k]` in the
    previous step of `steps`, if it is of the same environment, or else in the newest pending one.
    """
    pending, _, state = plain_pending
    for i in range(len(steps)):
        environment = environments[i]
        if i > 0 and environments[i - 1] == environment:
            before, follows = steps[i - 1], not ends[i - 1]
        else:
            newest = state[0, environment] + state[1, environment] - 1
            before, follows = pending[environment, newest % pending.shape[1]], state[1, environment] > 0
        if follows:
            for k in range(len(spans)):
                start, stop = spans[k]
                next_obs = before[next_starts[k] : next_starts[k] + stop - start]
                if bytes_differ(steps[i, start:stop], next_obs):
                    return True
    return False


@jitable
def emit_rows(
    pending: PendingSteps,
    completed: CompletedRows,
    first_row: int,
    environment: int,
    number: int,
    terminated: bool,
    at_end: Spans,
    limits: Floats,
) -> int:
    """Convert the oldest `number` pending steps of an environment to rows that end at its newest step.

    `limits` are the smallest numbers that overflow the dtypes of the rewards, one per element. Return -1, or
    the position of a return that overflows, in `completed.returns` as one sequence.
    """
    overflow, elements = -1, completed.returns.shape[1]
    steps, rewards = pending.steps[environment], pending.rewards[environment]
    oldest, counts, room = pending.state[0], pending.state[1], len(steps)
    last = (oldest[environment] + counts[environment] - 1) % room
    for row in range(first_row, first_row + number):
        first = oldest[environment]
        copy_part(completed.rows, row, 0, steps, first, 0, steps.shape[1])
        for k in range(len(at_end)):
            start, stop = at_end[k]
            copy_part(completed.rows, row, start, steps, last, start, stop - start)
        discount = 1.0
        for step in range(counts[environment]):
            slot = (first + step) % room
            for i in range(elements):
                completed.returns[row, i] += discount * rewards[slot, i]
            discount *= rewards[slot, elements]  # once per reward, hence γ^k even if k < n
        completed.discounts[row] = 0.0 if terminated else discount
        for i in range(elements):
            if not abs(completed.returns[row, i]) < limits[i]:
                finite = True
                for step in range(counts[environment]):
                    finite &= np.isfinite(rewards[(first + step) % room, i])
                overflow = row * elements + i if finite else overflow
        oldest[environment] = (first + 1) % room
        counts[environment] -= 1
    return overflow


@kernel
def push_steps(
    plain_pending: PlainPending,
    plain_completed: PlainCompleted,
    environments: Integers,
    steps: Bytes,
    rewards: FloatRows,
    ends: Flags,
    terminates: Flags,
    at_end: Spans,
    n: int,
    limits: Floats,
) -> int:
    """Add steps to the pending ones, and write the rows that they complete; return as `emit_rows`."""
    pending, completed = PendingSteps(*plain_pending), CompletedRows(*plain_completed)
    oldest, counts = pending.state[0], pending.state[1]
    row, overflow = 0, -1
    for i in range(len(steps)):
        environment = environments[i]
        slot = (oldest[environment] + counts[environment]) % pending.steps.shape[1]
        copy_row(pending.steps[environment], slot, steps, i)
        for k in range(rewards.shape[1]):
            pending.rewards[environment, slot, k] = rewards[i, k]
        counts[environment] += 1
        out = counts[environment] if ends[i] else counts[environment] // n
        found = emit_rows(pending, completed, row, environment, out, terminates[i], at_end, limits)
        overflow = max(overflow, found)
        row += out
    return overflow


@kernel
def flush_steps(
    plain_pending: PlainPending,
    plain_completed: PlainCompleted,
    environment: int,
    at_end: Spans,
    limits: Floats,
) -> int:
    """Convert all pending steps of an environment to rows of fewer than n rewards; return as `emit_rows`."""
    pending, completed = PendingSteps(*plain_pending), CompletedRows(*plain_completed)
    count = pending.state[1, environment]
    return emit_rows(pending, completed, 0, environment, count, False, at_end, limits)
