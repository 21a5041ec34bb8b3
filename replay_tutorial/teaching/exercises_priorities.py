"""Exercises of chapter 03: the slots that queries find, weights, and a buffer with a bug."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.steps.prioritized import LinearScan
from replay_tutorial.teaching.exercises import NotYet


def check_owners(slots: Sequence[Any]) -> None:
    """Check the slots that the queries 0, 3, 3.9 and 4 find, with the masses 3, 1, 0 and 4."""
    if len(slots) != 4 or ... in slots:
        raise NotYet("write a slot for each of the four queries 0, 3, 3.9 and 4")
    ends = [3, 4, 4, 8]
    for query, given, owner in zip([0, 3, 3.9, 4], slots, [0, 1, 1, 3], strict=True):
        if given == 2:
            raise NotYet(f"the query {query} can't find slot 2, because its mass is 0")
        if given != owner:
            raise NotYet(
                f"the query {query} does not find slot {given}: the running sums are {ends}, and the first "
                f"one greater than {query} is the right one"
            )
    print("right: a boundary belongs to the slot that begins there, and a slot of mass 0 is never found")


def check_weights(weights_of: Callable[..., Any]) -> None:
    """Check a function `(priorities, alpha, eps, beta)` that returns weights divided by the largest."""
    rng = np.random.default_rng(0)
    for alpha, eps, beta in [
        (1.0, 0.0, 1.0),
        (1.0, 0.0, 0.5),
        (0.6, 0.0, 0.4),
        (0.6, 0.5, 0.4),
        (0.0, 0.1, 1.0),
    ]:
        priorities = rng.random(8) * 5 + 0.1
        where = f"alpha {alpha}, eps {eps}, beta {beta}"
        given = weights_of(priorities.copy(), alpha, eps, beta)
        if given is None or np.shape(given) != (8,):
            raise NotYet(f"my_weights must return one weight for each of 8 rows, not {given!r:.40}")
        given = np.asarray(given, np.float64)
        masses = [(float(p) + eps) ** alpha for p in priorities]
        unscaled = [(sum(masses) / (8 * mass)) ** beta for mass in masses]
        expected = np.array([weight / max(unscaled) for weight in unscaled])
        if np.allclose(given, unscaled) and not np.allclose(given, expected):
            raise NotYet(f"{where}: the largest weight is {given.max():.3f}. Divide all weights by it")
        if abs(given.max() - 1) > 1e-9:
            raise NotYet(f"{where}: the largest weight is {given.max():.3f}, not 1")
        if not np.allclose(given, expected):
            row = int(np.argmax(np.abs(given - expected)))
            hint = "Are these the masses, (priority + eps) ** alpha?"
            if given[np.argmin(priorities)] < given[np.argmax(priorities)]:
                hint = "The row with the smallest mass is sampled least, so it must have the largest weight"
            raise NotYet(
                f"{where}: the row with priority {priorities[row]:.3f} has the weight {given[row]:.4f}, not "
                f"{expected[row]:.4f}. {hint}"
            )
    print("right: the largest weight is 1, and N and the total cancel")


class Memory:
    """Eight slots that are sampled by mass; the exercise adds `add` and `update`.

    Attributes:
        masses: Mass of each slot.
        alpha: Exponent of the priorities.
        eps: Constant added to each priority.
    """

    def __init__(self, alpha: float, eps: float) -> None:
        """Initialise all masses to 0."""
        self.masses, self.alpha, self.eps = LinearScan(8), alpha, eps

    def probabilities(self) -> Any:
        """Return the sampling probability of each slot, float64[8]."""
        return np.array(self.masses.masses) / self.masses.total


def check_mended_memory(kind: Callable[..., Any]) -> None:
    """Check the methods `add(slot, priority)` and `update(slots, priorities)` of a corrected `Memory`."""
    priorities = np.array([1.0, 4.0, 9.0, 16.0, 0.0, 25.0, 1.0, 4.0])
    for alpha, eps in [(0.5, 0.0), (0.5, 0.25), (1.0, 0.1), (0.0, 0.1)]:
        expected = (priorities + eps) ** alpha / ((priorities + eps) ** alpha).sum()
        added, updated = kind(alpha, eps), kind(alpha, eps)
        for slot, priority in enumerate(priorities.tolist()):
            added.add(slot, priority)
            updated.add(slot, 1.0)
        updated.update(np.arange(8), priorities)
        for how, memory in [("update", updated), ("add", added)]:
            given = memory.probabilities()
            if not np.allclose(given, expected):
                slot = int(np.argmax(np.abs(given - expected)))
                raise NotYet(
                    f"alpha {alpha}, eps {eps}: after {how} with priority {priorities[slot]:g}, slot {slot} "
                    f"has the probability {given[slot]:.3f}, not {expected[slot]:.3f}"
                )
    print("right: add and update give the same mass for the same priority")
