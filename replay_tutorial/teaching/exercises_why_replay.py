"""The exercises of chapter 00: TD errors by hand, targets of a batch, and a loop that stores a wrong row."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.teaching.exercises import NotYet

GAMMA = 0.9
# (what was predicted, reward, the next state's values, terminated)
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
            hint = (
                "after a fall there is no future" if terminated else "the best next value counts, 0.9 times"
            )
            if abs(value + (target - predicted)) < 1e-9:
                hint = "target minus prediction, not the other way round"
            raise NotYet(f"transition {number}: {value:g} plus {predicted:g} is not its target; {hint}")
    print("right: the second one is the surprise")


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
            raise NotYet(f"{count} rows need targets of the shape ({count},), not {given.shape}")
        for place in range(count):
            wanted = rew[place] + (0.0 if terminated[place] else GAMMA * max(next_values[place]))
            if abs(given[place] - wanted) > 1e-9:
                row = f"r = {rew[place]:.2f}, next values {next_values[place].round(2).tolist()}"
                row += f", terminated {bool(terminated[place])}"
                raise NotYet(f"{row}: your target is {given[place]:.3f}, and should be {wanted:.3f}")
    print("right: for 1, 2 and 64 rows, with values below zero, too")


class Corridor:
    """An environment that counts: episode e begins at 100·e, and a step goes to the next number."""

    def __init__(self) -> None:
        """Begin before the first episode."""
        self.episode = -1

    def reset(self) -> int:
        """Begin the next episode."""
        self.episode += 1
        self.place = 100 * self.episode
        return self.place

    def step(self) -> tuple[int, bool]:
        """Go on; the episode ends after three steps."""
        self.place += 1
        return self.place, self.place % 100 == 3


def store_across(env: Corridor, steps: int) -> list[tuple[int, int]]:
    """Play, and return (obs, next_obs) of each step. It has one fault."""
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
    """Check a function that is to take the place of `store_across`."""
    rows = store(Corridor(), 8)
    if len(rows) != 8:
        raise NotYet(f"8 steps are 8 rows, not {len(rows)}")
    for number, (obs, next_obs) in enumerate(rows):
        wanted = (100 * (number // 3) + number % 3, 100 * (number // 3) + number % 3 + 1)
        if next_obs // 100 != obs // 100:
            raise NotYet(f"row {number} leads from {obs} to {next_obs}: in one step into another episode")
        if (obs, next_obs) != wanted:
            raise NotYet(f"row {number} is {(obs, next_obs)}, not {wanted}")
    print("right: no row leads from one episode into the next")
