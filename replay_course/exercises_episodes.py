"""Chapter 02: the check of an n-step stream, and the exercises: discounts, returns, a window with a bug."""

from collections.abc import Callable, Sequence, Sized
from numbers import Real
from typing import Any

import numpy as np

from replay_course.answers import array_of, call, numbers
from replay_course.exercises import CheckFailed, Hints, NotYet
from replay_course.steps.learning.n_step_list import Row, Step

stream_hints = Hints(
    "A row is complete when n steps are pending, or when the episode ends: no later step can change it.",
    "Append the new step first. Then, while a row is complete: fold all pending steps into a row, and remove "
    "the oldest step, `self.pending.popleft()`.",
    "In the middle of an episode, the loop runs at most once. After the last step, it runs until nothing is "
    "pending, and each row is one step shorter than the one before: these are the tails.",
    "With `ended = step.terminated or step.truncated`, the loop is `while self.pending and (ended or "
    "len(self.pending) == self.n):`.",
)


def check_discounts(discounts: Sequence[Any]) -> None:
    """Check the discounts of the rows of a truncated episode of four steps, with n = 3 and γ = 0.5."""
    discounts = numbers(discounts, 4, "write four numbers: the discount of each row")
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
    for length, n, terminated, gamma in [
        (5, 1, True, 0.5),
        (5, 3, True, 0.5),
        (5, 3, False, 0.9),
        (2, 5, True, 0.9),
        (1, 3, False, 0.5),
        (4, 4, False, 1.0),
        (6, 2, True, 1.0),
    ]:
        rewards = rng.integers(-3, 4, length).astype(float).tolist()
        expected = returns_by_definition(rewards, terminated, n, gamma)
        where = f"rewards {rewards}, {'terminated' if terminated else 'truncated'}, n = {n}, γ = {gamma}"
        given = call(n_step, rewards, terminated, n, gamma)
        rows = array_of(
            given, (length, 2), f"{where}: a pair (return, discount) for each of the {length} steps"
        )
        for row, (pair, right) in enumerate(zip(rows, expected, strict=True)):
            if not np.allclose(pair, right):
                raise NotYet(
                    f"{where}: row {row} is (return, discount) = {tuple(pair.tolist())}, not {right}"
                )
    print("right: also for tails, for episodes shorter than n, and for both endings")


def check_n_step_stream(kind: Callable[..., Any]) -> None:
    """Check a class that turns a stream of steps into n-step rows.

    Args:
        kind: Called as `kind(n, gamma)`; its instances have `add(step)`, which returns the completed rows,
            and may have `pending`, the steps without a row.

    Raises:
        CheckFailed: If a call returns rows other than those that its step completes, or keeps too many steps.
    """
    rng = np.random.default_rng(0)
    for n, gamma in ((1, 0.5), (2, 0.9), (3, 0.5), (5, 1.0)):
        stream, first = kind(n, gamma), 0
        for length, terminated in [(7, True), (2, False), (1, True), (5, False), (3, True), (8, False)]:
            rewards = rng.integers(1, 9, length).astype(float).tolist()
            rows = returns_by_definition(rewards, terminated, n, gamma)
            ending = "terminated" if terminated else "truncated"
            for step in range(length):
                last, number = step == length - 1, first + step
                where = f"n = {n}, step {step} of a {ending} episode of {length} steps (0 to {length - 1})"
                ends = (last and terminated, last and not terminated)
                given = stream.add(Step(number, number % 3, rewards[step], number + 1, *ends))
                oldest = step - n + 1  # the row that is complete because it has n rewards
                completed = range(max(0, oldest), length if last else oldest + 1)
                wanted = [
                    Row(first + row, (first + row) % 3, rows[row][0], number + 1, rows[row][1])
                    for row in completed
                ]
                check_completed(given, wanted, where)
                kept = max(
                    (len(each) for each in vars(stream).values() if isinstance(each, Sized)), default=0
                )
                if kept >= (1 if last else n):
                    raise CheckFailed(
                        f"{where}: {kept} steps are still pending after it; keep only the steps whose row "
                        "isn't complete"
                    )
            first += 100
    print("right: n = 1, 2, 3, 5; episodes of 1 to 8 steps, with tails, and both endings")


def check_completed(given: Any, wanted: Sequence[Row], where: str) -> None:
    """Raise CheckFailed if the rows that a step has completed are not those wanted."""
    if not isinstance(given, list):
        raise CheckFailed(f"{where}: add() must return a list of rows, not {given!r}")
    if len(given) != len(wanted):
        text = ", ".join(f"{row.obs} → {row.next_obs}" for row in wanted) or "none"
        raise CheckFailed(
            f"{where}: add() returned {len(given)} rows; the step completes {len(wanted)}: {text}"
        )
    for row, right in zip(given, wanted, strict=True):
        for name, value in right._asdict().items():
            own = getattr(row, name, "missing")
            if not isinstance(own, Real) or not np.isclose(float(own), value):
                raise CheckFailed(
                    f"{where}: row {right.obs} → {right.next_obs} has {name} {own}, not {value}"
                )


def check_mended_row(fold: Callable[..., Any]) -> None:
    """Check a corrected function that computes a row."""
    for rewards in ([1.0, 2.0, 4.0], [1.0, 2.0], [3.0]):
        for terminated, gamma in ((False, 0.5), (True, 0.5), (False, 0.9)):
            wanted = returns_by_definition(rewards, terminated, len(rewards), gamma)[0]
            where = f"rewards {rewards} in a window with n = 3, γ = {gamma}, terminated {terminated}"
            given = array_of(
                call(fold, rewards, terminated, 3, gamma), (2,), f"{where}: a pair (return, discount)"
            )
            if not np.allclose(given, wanted):
                raise NotYet(
                    f"{where}: (return, discount) = {tuple(given.tolist())}; how many steps lie between obs "
                    "and next_obs?"
                )
    print("right: the next observation of a tail is fewer than n steps ahead")
