"""Chapter 09: the check of windows of one episode, and the exercises: counting windows, priorities, a bug."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_course.answers import array_of, call, expect_independent, numbers
from replay_course.chi_square import fairness
from replay_course.exercises import CheckFailed, Hints, NotYet, expect

FIELDS: dict[str, Any] = {
    "obs": {"shape": (2,), "dtype": np.float32},  # (episode, step), the episodes counted from 1
    "reward": {"dtype": np.float32},
}
EPISODES = (1, 5, 1, 9, 2, 60, 4, 7)  # numbers of steps; the last episode is still running
WINDOWS = 1_000

windows_hints = Hints(
    "add: write the row to slot added % capacity, and self.first to the same slot of self.firsts. Increase "
    "added. After the last step of an episode, the next step begins a new one: self.first = self.added.",
    "sample: draw the index of each first row, starts = self.rng.integers(oldest, self.added, batch_size), "
    "where oldest is max(self.added - self.capacity, 0).",
    "sample: starts[:, np.newaxis] + np.arange(self.length) are the indexes of all entries, [n, length], and "
    "their remainders by the capacity are the slots. self.rows.take(slots) copies the rows.",
    "sample: an entry is real if its row has the same `first` as the first row of the window, and if its "
    "index is below self.added. Set the others to zero: batch[~valid] = 0.",
)


def check_windows(kind: Callable[..., Any]) -> None:
    """Check a buffer that samples padded windows of one episode.

    Args:
        kind: Called as `kind(capacity, fields, length, seed=0)`; its instances have `add(*, ends, **step)`
            and `sample(batch_size)`, which returns the fields and `valid`, bool[batch_size, length].

    Raises:
        CheckFailed: If a window has a wrong entry or mask, or if windows aren't drawn uniformly.
    """
    for capacity, length in ((37, 4), (37, 1), (10, 8), (100, 3)):
        buffer, steps = kind(capacity, FIELDS, length, seed=0), list[tuple[int, int]]()
        for episode, count in enumerate(EPISODES, start=1):
            for step in range(count):
                last = step == count - 1 and episode < len(EPISODES)
                buffer.add(obs=np.array([episode, step], np.float32), reward=100 * episode + step, ends=last)
                steps.append((episode, step))
            where = f"capacity {capacity}, length {length}, episodes of {EPISODES[:episode]} steps"
            check_sample(buffer, steps, capacity, length, where)
    check_seeds(kind)
    print("right: windows that end with their episode, zeros after it, also after wrap-around, in an episode")
    print("that is still running, and in an episode that is longer than the ring")


def check_sample(buffer: Any, steps: list[tuple[int, int]], capacity: int, length: int, where: str) -> None:
    """Raise CheckFailed if the sampled windows aren't those of the newest `capacity` steps."""
    sample = buffer.sample(WINDOWS)
    expect(isinstance(sample, dict), f"{where}: sample must return a dict, not {sample!r:.40}")
    shapes = {"obs": (WINDOWS, length, 2), "reward": (WINDOWS, length), "valid": (WINDOWS, length)}
    for name, shape in shapes.items():
        array_of(sample.get(name), shape, f"{where}: {name!r}")
        dtype = FIELDS[name]["dtype"] if name in FIELDS else bool
        found = np.asarray(sample[name]).dtype
        expect(found == dtype, f"{where}: {name!r} must have the dtype {np.dtype(dtype)}, not {found}")
    stored = {step: place for place, step in enumerate(steps[-capacity:])}
    last_steps = dict(steps)  # episode → its last step so far
    starts = list[int]()
    for obs, reward, valid in zip(*(np.asarray(sample[name]) for name in shapes), strict=True):
        episode, first = map(int, obs[0])
        if (episode, first) not in stored:
            raise CheckFailed(f"{where}: a window starts at (episode, step) = {episode, first}, not stored")
        starts.append(stored[episode, first])
        real = min(length, last_steps[episode] - first + 1)
        wanted = [(episode, first + time) for time in range(real)]
        window, text = [tuple(map(int, entry)) for entry in obs], f"the window from {episode, first}"
        mask = [time < len(wanted) for time in range(length)]
        if valid.tolist() != mask:
            raise CheckFailed(
                f"{where}: {text} must have the mask {list(map(int, mask))}, not "
                f"{valid.astype(int).tolist()}; its entries are {window}"
            )
        if window[: len(wanted)] != wanted:
            raise CheckFailed(f"{where}: {text} must contain {wanted}, not {window[: len(wanted)]}")
        rewards = [100 * each + step for each, step in wanted]
        if reward[: len(wanted)].tolist() != rewards:
            raise CheckFailed(
                f"{where}: {text} must have the rewards {rewards}, not {reward[: len(wanted)].tolist()}. "
                "Do all fields come from the same slots?"
            )
        if obs[len(wanted) :].any() or reward[len(wanted) :].any():
            raise CheckFailed(f"{where}: in {text}, padding must be 0 in every field; its obs are {window}")
    counts = np.bincount(starts, minlength=len(stored))
    result = fairness(counts, np.ones(len(stored)))
    expect(
        result.is_fair,
        f"{where}: every stored step must start a window equally often, but {list(stored)[result.worst]} "
        f"starts {counts[result.worst]} of {WINDOWS:,}",
    )
    expect_independent(np.array(starts), len(stored), where, "first step", CheckFailed)


def check_seeds(kind: Callable[..., Any]) -> None:
    """Raise CheckFailed unless the seed, and nothing else, determines which windows are drawn."""
    drawn: list[list[float]] = []
    for seed in (0, 0, 1):
        buffer = kind(50, FIELDS, 2, seed=seed)
        for step in range(50):
            buffer.add(obs=np.array([1, step], np.float32), reward=step, ends=False)
        before = buffer.sample(8)["obs"][:, 0, 1]
        drawn += [before.tolist(), buffer.sample(8)["obs"][:, 0, 1].tolist()]
        expect(before.tolist() == drawn[-2], "a batch changed when the next one was sampled: return copies")
    expect(drawn[0] != drawn[1], "two batches in a row contain the same windows: draw anew each time")
    expect(drawn[0] == drawn[2], "buffers with the same seed draw different windows: draw with self.rng")
    expect(drawn[0] != drawn[4], "buffers with different seeds draw the same windows: draw with self.rng")


def check_counts(windows: Any, padding: Any, learned: Any) -> None:
    """Check the windows of an episode of 10 steps with length 4, period 2 and burn-in 3."""
    missing = "write three numbers: windows, padded entries of the last one, windows that learn step 5"
    windows, padding, learned = numbers([windows, padding, learned], 3, missing)
    if windows != 5:
        raise NotYet(
            f"{windows:g} windows: one starts at each of the steps 0, 2, 4 and so on, the last at step 8"
        )
    if padding != 2:
        raise NotYet(
            f"{padding:g}: the last window starts at step 8; its burn-in are the real steps 5, 6 and 7"
        )
    if learned != 2:
        raise NotYet(f"{learned:g}: a window learns the 4 steps from its start on, not those of its burn-in")
    print("right: windows overlap, so that each step from 2 on is learned twice")


def check_priorities(priorities: Callable[..., Any]) -> None:
    """Check a function `priorities(td_errors, learn, eta)` that returns the priority of each window."""
    rng = np.random.default_rng(0)
    for count, length, eta, other in (
        (1, 5, 0.9, 99.0),
        (4, 8, 0.9, np.nan),
        (3, 6, 0.0, 0.0),
        (3, 6, 1.0, np.nan),
    ):
        starts, stops = rng.integers(length // 2, size=count), rng.integers(length // 2, length, count) + 1
        learn = (np.arange(length) >= starts[:, np.newaxis]) & (np.arange(length) < stops[:, np.newaxis])
        errors = np.where(learn, rng.integers(-9, 10, (count, length)), other)
        given = call(priorities, errors, learn, eta)
        given = array_of(given, (count,), f"{count} priorities, one for each window, η = {eta}")
        for own, row, mask in zip(given, errors, learn, strict=True):
            learned = [abs(error) for error, flag in zip(row.tolist(), mask.tolist(), strict=True) if flag]
            wanted = eta * max(learned) + (1 - eta) * sum(learned) / len(learned)
            if not np.isclose(own, wanted):
                raise NotYet(
                    f"TD errors {row.tolist()}, of which {len(learned)} are learned, η = {eta}: the priority "
                    f"is {wanted:.4g}, not {own:.4g}"
                )
    print("right: η times the largest plus 1 - η times the mean |TD error|, of the learned steps only")


def check_rows(rows: Callable[..., Any]) -> None:
    """Check a function `rows(cell, steps)` that returns each observation with the state before its step."""
    rng = np.random.default_rng(0)
    matrix, bias = rng.normal(size=(5, 3)), rng.normal(size=3)

    def cell(obs: npt.NDArray[Any], state: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.tanh(np.concatenate([obs, state]) @ matrix + bias)

    for ends in ((2, 3), (), (0, 4), (5,)):
        steps = [(rng.normal(size=2), step in ends) for step in range(6)]
        given, state = call(rows, cell, steps), np.zeros(3)
        if not isinstance(given, list | tuple) or len(given) != len(steps):
            raise NotYet(f"return {len(steps)} pairs (obs, state), one for each step, not {given!r:.40}")
        for number, ((obs, last), pair) in enumerate(zip(steps, given, strict=True)):
            where = f"step {number}, if episodes end with the steps {[*ends]}"
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise NotYet(f"{where}: return a pair (obs, state), not {pair!r:.40}")
            seen, own = array_of(pair[0], (2,), f"{where}: obs"), array_of(pair[1], (3,), f"{where}: state")
            if not np.array_equal(seen, obs):
                raise NotYet(f"{where}: the observation of the pair must be that of the step, not {seen}")
            if np.allclose(own, cell(obs, state)):
                raise NotYet(
                    f"{where}: the stored state is the one after the step, so that a learner that starts "
                    "with it would apply the step a second time"
                )
            if not np.allclose(own, state):
                raise NotYet(f"{where}: the stored state is {np.round(own, 3)}, not {state.round(3)}")
            state = np.zeros(3) if last else cell(obs, state)
    print("right: the state before each step, and zeros at the start of each episode")
