"""Checks of chapter 03: the reader's weights, slots found by queries, a search, and a buffer with a bug."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_tutorial import PrioritizedReplayBuffer
from replay_tutorial.steps.prioritized import LinearScan
from replay_tutorial.teaching.exercises import CheckFailed, Hints, NotYet

weights_hints = Hints(
    "First compute the mass of every row from its priority, as in the section on alpha and eps.",
    "N and the total cancel, so you need neither: only the masses of the drawn rows, and the smallest mass.",
    "The smallest mass of the whole buffer, not of the batch: the row with weight 1 need not be drawn.",
    "masses = (priorities + eps) ** alpha, and the masses of the batch are masses[drawn].",
    "return (masses.min() / masses[drawn]) ** beta",
)


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
    """Check a function `(priorities, drawn, alpha, eps, beta)` against the weights of the package's buffer.

    Raises:
        CheckFailed: On the first wrong weight.
    """
    rng = np.random.default_rng(0)
    for alpha, eps, beta in [
        (1.0, 0.0, 1.0),
        (1.0, 0.0, 0.5),
        (0.6, 0.0, 0.4),
        (0.6, 0.5, 0.4),
        (0.0, 0.1, 1.0),
        (0.6, 0.5, 0.0),
    ]:
        priorities = rng.random(100) * 5 + 0.1
        buffer = PrioritizedReplayBuffer(100, {"reward": {}}, alpha=alpha, eps=eps, seed=0)
        buffer.add(reward=np.zeros(100), priorities=priorities)
        batch = buffer.sample(8, beta=beta)
        where = f"alpha {alpha}, eps {eps}, beta {beta}"
        given = weights_of(priorities.copy(), batch["indexes"], alpha, eps, beta)
        if np.shape(given) != (8,):
            raise CheckFailed(
                f"my_weights must return one weight for each of the 8 drawn rows, not {given!r:.40}"
            )
        given = np.asarray(given, np.float64)
        if not np.allclose(given, batch["weights"], rtol=1e-4):
            row = int(np.argmax(np.abs(given - batch["weights"])))
            raise CheckFailed(
                f"{where}: row {batch['indexes'][row]} with priority {priorities[batch['indexes'][row]]:.3f} "
                f"has the weight {given[row]:.4f}, but the package's is {batch['weights'][row]:.4f}. "
                f"{hint_on(given, priorities, batch['indexes'], (alpha, eps, beta))}"
            )
    print("right: the weights of eight rows out of 100 are those of the package's buffer, with six settings")


def hint_on(given: Any, priorities: Any, drawn: Any, setting: tuple[float, float, float]) -> str:
    """Return a hint about the mistake that may have led to the given weights."""
    alpha, eps, beta = setting
    masses = (priorities + eps) ** alpha
    added_late, without_eps = priorities**alpha + eps, priorities**alpha
    mistakes = {
        "Divide by the largest weight": masses.sum() / (len(masses) * masses[drawn]),
        "Take the smallest mass of the whole buffer, not of the batch": masses[drawn].min() / masses[drawn],
        "Add eps before the power": added_late.min() / added_late[drawn],
        "Add eps to the priorities": without_eps.min() / without_eps[drawn],
        "These are not the masses, (priority + eps) ** alpha": priorities.min() / priorities[drawn],
    }
    for hint, mistaken in mistakes.items():
        if np.allclose(given, mistaken**beta):
            return hint
    return "The row with the smallest mass in the buffer has weight 1, and no row has more"


class CountedList(list[float]):
    """A list that counts how many of its elements are read."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        self.reads += 1
        return super().__getitem__(place)


def check_search(search: Callable[..., Any]) -> None:
    """Check a function `(running_sums, query)` that finds the first sum above the query by binary search."""
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 8, 100, 1000):
        masses = rng.integers(0, 4, size).astype(np.float64) * (rng.random(size) < 0.6)
        masses[rng.integers(size)] = 3.0
        sums, reads = masses.cumsum(), 0
        for query in [*np.arange(int(sums[-1])).tolist(), *(rng.random(50) * sums[-1]).tolist()]:
            listed = CountedList(sums.tolist())
            given, owner = search(listed, float(query)), int(np.searchsorted(sums, query, side="right"))
            reads = max(reads, listed.reads)
            if given is None:
                raise NotYet("my_search must return a position")
            if given != owner:
                raise NotYet(
                    f"{size} running sums: the query {query:.6g} found position {given} (its sum is "
                    f"{sums[given] if 0 <= given < size else 'missing'}). Expected position {owner}, whose "
                    f"sum, {sums[owner]:g}, is the first one greater than the query"
                )
        if size == 1000 and (reads == 0 or reads > 32):
            raise NotYet(
                f"the positions are right, but the search reads up to {reads or 'all'} of 1,000 sums; "
                "halve the range each time, which takes about 10 comparisons"
            )
    print(f"right: the first sum above each query, with at most {reads} of 1,000 sums read")


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
    print("right: add and update compute the same mass for the same priority")
