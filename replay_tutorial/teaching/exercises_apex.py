"""The exercises of chapter 07: a limiter that nobody holds, a ladder of epsilons, windows that mix."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.teaching.exercises import NotYet

# Of the first exercise.
ACTORS, ROWS, RATIO, BAND = 4, 32, 4, 512

Steps = list[tuple[int, float]]  # (environment, reward), as they come


def check_error(error: Any) -> None:
    """Check the greatest error that actors can bring about who all look before any of them counts."""
    one = ROWS * RATIO
    if error is ...:
        raise NotYet("write a number: the error after all have inserted")
    if error == BAND:
        raise NotYet(f"{BAND} is what one actor alone can reach; here {ACTORS} look at the same moment")
    if error == BAND + ACTORS * one:
        raise NotYet(f"{error} is too much: each has counted its own {one} before it said yes")
    if error != BAND + (ACTORS - 1) * one:
        raise NotYet(
            f"not {error}: a chunk of {ROWS} rows moves the error by {one}. How large may it be at most when "
            "they look, so that all of them say yes?"
        )
    print(f"right: {BAND - one} when they looked, and {ACTORS} · {one} more")


def check_epsilons(epsilons: Callable[[int], Any]) -> None:
    """Check a function that returns the ε of each actor, by the exponents that the paper gives them."""
    for actors in (8, 2, 360, 1):
        try:
            given = np.asarray(epsilons(actors), dtype=float)
        except ZeroDivisionError:
            raise NotYet(f"{actors} actor: a division by zero. It explores like the first of many") from None
        if given.shape != (actors,):
            raise NotYet(f"{actors} actors need {actors} numbers, not an array of shape {given.shape}")
        if not np.all(np.isfinite(given)):
            raise NotYet(f"{actors} actors: {given} is not finite")
        if np.any(given <= 0):
            raise NotYet(f"{actors} actors: {given.min()} is not above 0, and has no logarithm")
        # 0.4^x has the exponents 1 to 8 for the first to the last, at equal distances.
        exponents = np.log(given) / np.log(0.4)
        for place, wanted in ((0, 1.0), (actors - 1, 8.0 if actors > 1 else 1.0)):
            if abs(exponents[place] - wanted) > 1e-6:
                raise NotYet(
                    f"{actors} actors: actor {place} has ε = {given[place]:.5f}, 0.4 to the power of "
                    f"{exponents[place]:.2f}; its exponent should be {wanted:g}"
                )
        if actors > 2 and np.ptp(np.diff(exponents)) > 1e-6:
            raise NotYet(f"{actors} actors: first and last are right, but the exponents between are uneven")
    print("right: for 8, 2, 360 actors, and for one")


def sums_by_hand(steps: Sequence[tuple[int, float]], n: int) -> Steps:
    """Return the sum of each n-step window by its definition: look back from each step for n of its own."""
    sums: Steps = []
    for place, (environment, _) in enumerate(steps):
        own = [reward for other, reward in steps[: place + 1] if other == environment]
        if len(own) >= n:
            sums.append((environment, sum(own[-n:])))
    return sums


def check_sums(sums: Callable[..., Any]) -> None:
    """Check a function `sums(steps, n)`: the n-step sums of several environments, as they are complete."""
    for order in ([0] * 5, [0, 1] * 5, [0, 0, 1, 0, 2, 1, 1, 2, 0, 2, 2, 1]):
        for n in (3, 2, 1):
            # Environment e rewards each step by 10^e: a sum tells where its rewards come from.
            steps = [(environment, 10.0**environment) for environment in order]
            given, wanted = list(sums(list(steps), n)), sums_by_hand(steps, n)
            count = len(set(order))
            for (environment, reward), right in zip(given, wanted, strict=False):
                if (environment, reward) != right:
                    raise NotYet(
                        f"{count} environments, windows of {n}: ({environment}, {reward:g}), not {right}. "
                        f"All rewards of environment {environment} are {10**environment}: whose is the rest?"
                    )
            if len(given) != len(wanted):
                raise NotYet(
                    f"{count} environments, windows of {n}: {len(given)} sums, not {len(wanted)}. Each step "
                    f"whose environment has had {n} steps completes one"
                )
    print("right: with one environment, two and three, in any order")
