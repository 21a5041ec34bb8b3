"""The exercises of chapter 03: who owns a point, weights, and a memory with a hidden fault."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial.steps.prioritized import LinearScan
from replay_tutorial.teaching.exercises import NotYet


def check_owners(slots: Sequence[Any]) -> None:
    """Check which slots the queries 0, 3, 3.9 and 4 find, among the masses 3, 1, 0 and 4."""
    if len(slots) != 4 or ... in slots:
        raise NotYet("write a slot for each of the four queries 0, 3, 3.9 and 4")
    ends = [3, 4, 4, 8]
    for query, given, owner in zip([0, 3, 3.9, 4], slots, [0, 1, 1, 3], strict=True):
        if given == 2:
            raise NotYet(f"the query {query} can't find slot 2: it has the mass 0, and owns no point")
        if given != owner:
            raise NotYet(
                f"the query {query} does not find slot {given}: the running sums are {ends}, and the first "
                f"that is greater than {query} is wanted"
            )
    print("right: where two slots meet, the point belongs to the second one, and a mass of 0 owns nothing")


def check_weights(weights_of: Callable[..., Any]) -> None:
    """Check a function `weights_of(priorities, alpha, eps, beta)` of the weights divided by the largest."""
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
            raise NotYet(f"{where}: the largest weight is {given.max():.3f}. Divide all by the largest")
        if abs(given.max() - 1) > 1e-9:
            raise NotYet(f"{where}: the largest weight is {given.max():.3f}, not 1")
        if not np.allclose(given, expected):
            row = int(np.argmax(np.abs(given - expected)))
            hint = "Are these the masses, (priority + eps) ** alpha?"
            if given[np.argmin(priorities)] < given[np.argmax(priorities)]:
                hint = "The row with the smallest mass must weigh most: it is drawn least"
            raise NotYet(
                f"{where}: the row with the priority {priorities[row]:.3f} weighs {given[row]:.4f}, not "
                f"{expected[row]:.4f}. {hint}"
            )
    print("right: the largest weight is 1, and N and the total have cancelled out")


class Memory:
    """Eight slots that are drawn by mass. `add` and `update` are the reader's.

    Attributes:
        masses: The mass of each slot.
        alpha: How much priorities count.
        eps: Added to each priority.
    """

    def __init__(self, alpha: float, eps: float) -> None:
        """Begin with masses of 0."""
        self.masses, self.alpha, self.eps = LinearScan(8), alpha, eps

    def probabilities(self) -> Any:
        """Return the probability of each slot, float64[8]."""
        return np.array(self.masses.masses) / self.masses.total


def check_mended_memory(kind: Callable[..., Any]) -> None:
    """Check a memory whose `add(slot, priority)` and `update(slots, priorities)` set masses."""
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
                    f"alpha {alpha}, eps {eps}: slot {slot} was given the priority {priorities[slot]:g} by "
                    f"{how}, and has the probability {given[slot]:.3f}, not {expected[slot]:.3f}"
                )
    print("right: a priority becomes the same mass, whichever way it comes in")
