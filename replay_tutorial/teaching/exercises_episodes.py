"""Exercises of chapter 02: discounts, n-step returns, and a window with a bug."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.teaching.exercises import NotYet


def check_discounts(discounts: Sequence[Any]) -> None:
    """Check the discounts of the rows of a truncated episode of four steps, with n = 3 and γ = 0.5."""
    if len(discounts) != 4 or ... in discounts:
        raise NotYet("write four numbers: the discount of each row")
    for row, (given, steps) in enumerate(zip(discounts, (3, 3, 2, 1), strict=True)):
        if given == 0:
            raise NotYet(f"row {row}: truncation is not termination, so there is a value to bootstrap from")
        if given != 0.5**steps:
            raise NotYet(f"row {row} sums {steps} rewards, so its discount is not {given}")
    print("right: γ to the power of the number of rewards in the row")


def returns_by_definition(
    rewards: Sequence[float], terminated: bool, n: int, gamma: float
) -> list[tuple[float, float]]:
    """Return (return, discount) for each row of an episode, directly from the definition."""
    rows: list[tuple[float, float]] = []
    for start in range(len(rewards)):
        part = rewards[start : start + n]
        last_step_in = start + len(part) == len(rewards)
        value = sum(gamma**k * reward for k, reward in enumerate(part))
        rows.append((value, 0.0 if terminated and last_step_in else gamma ** len(part)))
    return rows


def check_n_step(n_step: Callable[..., Any]) -> None:
    """Check a function that computes the returns and discounts of the rows of one episode."""
    rng = np.random.default_rng(0)
    for length, n, terminated in [(5, 1, True), (5, 3, True), (5, 3, False), (2, 5, True), (1, 3, False)]:
        rewards = rng.integers(-3, 4, length).astype(float).tolist()
        expected = returns_by_definition(rewards, terminated, n, 0.5)
        rows = n_step(rewards, terminated, n, 0.5)
        ending = "terminated" if terminated else "truncated"
        where = f"rewards {rewards}, {ending}, n = {n}, γ = 0.5"
        if rows is None or len(rows) != length:
            raise NotYet(f"{where}: expected {length} rows, a pair (return, discount) for each step")
        for row, (given, right) in enumerate(zip(rows, expected, strict=True)):
            if not np.allclose(given, right):
                raise NotYet(f"{where}: row {row} is (return, discount) = {tuple(given)}, not {right}")
    print("right: also for tails, for episodes shorter than n, and for both endings")


def careless_row(rewards: Sequence[float], terminated: bool, n: int, gamma: float) -> tuple[float, float]:
    """Return (return, discount) of a window of at most n rewards. The function has one bug."""
    total = sum(gamma**k * reward for k, reward in enumerate(rewards))
    return total, 0.0 if terminated else gamma**n


def check_mended_row(fold: Callable[..., Any]) -> None:
    """Check a corrected version of `careless_row`."""
    for rewards, terminated in [([1.0, 2.0, 4.0], False), ([1.0, 2.0, 4.0], True), ([1.0, 2.0], False)]:
        part = returns_by_definition(rewards, terminated, len(rewards), 0.5)[0]
        given = fold(rewards, terminated, 3, 0.5)
        if given is None or not np.allclose(given, part):
            raise NotYet(
                f"rewards {rewards} in a window with n = 3, terminated {terminated}: (return, discount) = "
                f"{given}; how many steps is next_obs after obs?"
            )
    print("right: the next observation of a tail is fewer than n steps ahead")
