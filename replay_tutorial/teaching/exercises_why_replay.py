"""Exercises of chapter 00: TD errors by hand, targets of a batch, and a loop that stores wrong rows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.teaching.exercises import NotYet

GAMMA = 0.9
# (predicted value, reward, values of the next state, terminated)
ROWS = ((5.0, 1.0, (4.0, 6.0), False), (5.0, 1.0, (4.0, 6.0), True), (2.0, 1.0, (0.0, 0.0), False))


def check_td_errors(given: Sequence[Any]) -> None:
    """Check the TD errors of the three transitions of `ROWS`."""
    if len(given) != len(ROWS) or ... in given:
        raise NotYet("write a number for each of the three transitions: target minus prediction")
    for number, (value, (predicted, rew, next_values, terminated)) in enumerate(
        zip(given, ROWS, strict=True), start=1
    ):
        target = rew + GAMMA * max(next_values) * (not terminated)
        if abs(value - (target - predicted)) > 1e-9:
            hint = "after a fall there is no future" if terminated else "add 0.9 times the best next value"
            if abs(value + (target - predicted)) < 1e-9:
                hint = "target minus prediction, not the other way round"
            raise NotYet(f"transition {number}: {value:g} plus {predicted:g} is not its target; {hint}")
    print("right: the second transition has the largest TD error")


def check_targets(targets: Callable[..., Any]) -> None:
    """Check a function that computes the targets of a batch."""
    rng = np.random.default_rng(0)
    for count in (1, 2, 64):
        rew, next_values = rng.random(count), rng.normal(size=(count, 2)) - 3.0
        terminated = rng.random(count) < 0.4
        given = targets(rew, next_values, terminated, GAMMA)
        if given is None or given is ...:
            raise NotYet("my_targets must return an array with a target for each row")
        given = np.asarray(given)
        if given.shape != (count,):
            raise NotYet(f"the targets of {count} rows must have the shape ({count},), not {given.shape}")
        for place in range(count):
            wanted = rew[place] + (0.0 if terminated[place] else GAMMA * max(next_values[place]))
            if abs(given[place] - wanted) > 1e-9:
                row = f"r = {rew[place]:.2f}, next values {next_values[place].round(2).tolist()}"
                row += f", terminated {bool(terminated[place])}"
                raise NotYet(f"{row}: your target is {given[place]:.3f}, but should be {wanted:.3f}")
    print("right: for 1, 2 and 64 rows, also with negative values")


class Corridor:
    """An environment whose observation is a counter: episode e starts at 100·e, and each step adds 1."""

    def __init__(self) -> None:
        """Initialise the counter; `reset` starts episode 0."""
        self.episode = -1

    def reset(self) -> int:
        """Start the next episode."""
        self.episode += 1
        self.place = 100 * self.episode
        return self.place

    def step(self) -> tuple[int, bool]:
        """Take a step; an episode ends after three."""
        self.place += 1
        return self.place, self.place % 100 == 3


def store_across(env: Corridor, steps: int) -> list[tuple[int, int]]:
    """Return (obs, next_obs) of each step. The function has one bug."""
    rows: list[tuple[int, int]] = []
    obs = env.reset()
    for _ in range(steps):
        next_obs, ended = env.step()
        if ended:
            next_obs = env.reset()
        rows.append((obs, next_obs))
        obs = next_obs
    return rows


def check_store(store: Callable[..., Any]) -> None:
    """Check a corrected version of `store_across`."""
    rows = store(Corridor(), 8)
    if len(rows) != 8:
        raise NotYet(f"8 steps must give 8 rows, not {len(rows)}")
    for number, (obs, next_obs) in enumerate(rows):
        wanted = (100 * (number // 3) + number % 3, 100 * (number // 3) + number % 3 + 1)
        if next_obs // 100 != obs // 100:
            raise NotYet(f"row {number} leads from {obs} to {next_obs}, which is in another episode")
        if (obs, next_obs) != wanted:
            raise NotYet(f"row {number} is {(obs, next_obs)}, not {wanted}")
    print("right: no row leads from one episode into the next")
