"""Checks of chapter 03: the reader's weights, slots found by queries, a search, and a buffer with a bug."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_course.answers import CountedList, Tally, array_of, call, lines_run, numbers
from replay_course.exercises import Hints, NotYet
from replay_course.steps.prioritized import LinearScan
from replay_tutorial import PrioritizedReplayBuffer

weights_hints = Hints(
    "What is the probability P(i) of row i? A draw is uniform with the probability `uniform`, and by mass "
    "otherwise.",
    "A uniform draw finds row i with the probability 1 / N; a draw by mass, with mass i divided by the "
    "total.",
    "The weight of row i is (1 / (N P(i))) ** beta, divided by the largest of all rows. What cancels now?",
    "Take the smallest probability of the whole buffer: the row with weight 1 need not be in the batch.",
)


def check_owners(slots: Sequence[Any]) -> None:
    """Check the slots that the queries 0, 3, 3.9 and 4 find, with the masses 3, 1, 0 and 4."""
    given_slots = numbers(slots, 4, "write a slot for each of the four queries 0, 3, 3.9 and 4")
    ends = [3, 4, 4, 8]
    for query, given, owner in zip([0, 3, 3.9, 4], given_slots, [0, 1, 1, 3], strict=True):
        if given == 2:
            raise NotYet(f"the query {query} can't find slot 2, because its mass is 0")
        if given != owner:
            raise NotYet(
                f"the query {query} does not find slot {given:g}: the running sums are {ends}, and the first "
                f"one greater than {query} is the right one"
            )
    print("right: a boundary belongs to the slot that begins there, and a slot of mass 0 is never found")


def check_weights(weights_of: Callable[..., Any]) -> None:
    """Check a function `(priorities, drawn, alpha, eps, beta, uniform)` that returns the weights of a batch.

    Without uniform draws, they must be those of the package's buffer.
    """
    rng = np.random.default_rng(0)
    for alpha, eps, beta, uniform in [
        (1.0, 0.0, 1.0, 0.0),
        (1.0, 0.0, 0.5, 0.0),
        (0.6, 0.0, 0.4, 0.0),
        (0.6, 0.5, 0.4, 0.0),
        (0.0, 0.1, 1.0, 0.0),
        (0.6, 0.5, 0.0, 0.5),
        (1.0, 0.5, 1.0, 0.5),
        (0.6, 0.1, 0.4, 0.1),
        (0.6, 0.1, 1.0, 1.0),
    ]:
        priorities = rng.random(100) * 5 + 0.1
        masses = (priorities + eps) ** alpha
        buffer = PrioritizedReplayBuffer(100, {"reward": {}}, alpha=alpha, eps=eps, seed=0)
        buffer.add(reward=np.zeros(100), priorities=priorities)
        batch = buffer.sample(8, beta=beta)
        drawn, right = batch["indexes"], batch["weights"]
        if uniform:
            chances = uniform / 100 + (1 - uniform) * masses / masses.sum()
            right = (chances.min() / chances[drawn]) ** beta
        where = f"alpha {alpha}, eps {eps}, beta {beta}, uniform {uniform}"
        given = call(weights_of, priorities, drawn, alpha, eps, beta, uniform)
        given = array_of(given, (8,), f"{where}: one weight for each of the 8 drawn rows")
        if not np.allclose(given, right, rtol=1e-4):
            row = int(np.argmax(np.abs(given - right)))
            raise NotYet(
                f"{where}: row {drawn[row]} with priority {priorities[drawn[row]]:.3f} has the weight "
                f"{given[row]:.4f}, but should have {right[row]:.4f}. "
                f"{hint_on(given, priorities, drawn, (alpha, eps, beta, uniform))}"
            )
    print(
        "right: eight of 100 rows, with nine settings; without uniform draws, the weights are the package's"
    )


def hint_on(given: Any, priorities: Any, drawn: Any, setting: tuple[float, float, float, float]) -> str:
    """Return a hint about the mistake that may have led to the given weights."""
    alpha, eps, beta, uniform = setting
    masses = (priorities + eps) ** alpha
    added_late, without_eps = priorities**alpha + eps, priorities**alpha
    chances = uniform / len(masses) + (1 - uniform) * masses / masses.sum()
    mistakes = {"Some draws are uniform: N and the total don't cancel": masses.min() / masses[drawn]}
    mistakes |= {
        "Divide by the largest weight": 1 / (len(chances) * chances[drawn]),
        "Take the smallest value of the whole buffer, not of the batch": chances[drawn].min()
        / chances[drawn],
        "Add eps before the power": added_late.min() / added_late[drawn],
        "Add eps to the priorities": without_eps.min() / without_eps[drawn],
        "These are not the masses, (priority + eps) ** alpha": priorities.min() / priorities[drawn],
    }
    for hint, mistaken in mistakes.items():
        if np.allclose(given, mistaken**beta, rtol=1e-4):
            return hint
    return "The row with the smallest probability in the buffer has weight 1, and no row has more"


def check_search(search: Callable[..., Any]) -> None:
    """Check a function `(running_sums, query)` that finds the first sum above the query by binary search."""
    rng, most = np.random.default_rng(0), 0
    for size in (1, 2, 3, 8, 100, 1000):
        masses = rng.integers(0, 4, size).astype(np.float64) * (rng.random(size) < 0.6)
        masses[rng.integers(size)] = 3.0
        sums, most = masses.cumsum(), 0
        for query in [*np.arange(int(sums[-1])).tolist(), *(rng.random(50) * sums[-1]).tolist()]:
            listed = CountedList(sums.tolist(), tally := Tally())
            given, owner = search(listed, float(query)), int(np.searchsorted(sums, query, side="right"))
            most = max(most, tally.touched)
            if isinstance(given, bool) or not isinstance(given, int | np.integer):
                raise NotYet(f"my_search must return a position, an int, not {given!r}")
            if given != owner:
                raise NotYet(
                    f"{size} running sums: the query {query:.6g} found position {given} (its sum is "
                    f"{sums[given] if 0 <= given < size else 'missing'}). Expected position {owner}, whose "
                    f"sum, {sums[owner]:g}, is the first one greater than the query"
                )
    if most > 32:
        raise NotYet(
            f"the positions are right, but the search reads up to {most:,} of 1,000 sums; halve the range "
            "each time, which takes about 10 comparisons"
        )
    listed = list(range(1, 1001))
    if lines_run(lambda: search(listed, 500.5)) < 10:  # fewer than comparisons
        raise NotYet("the positions are right, but a library finds them: write the loop yourself")
    print(f"right: the first sum above each query, with at most {most} of 1,000 sums read")


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


def check_mended_memory(kind: Callable[[float, float], Any]) -> None:
    """Check the methods `add(slot, priority)` and `update(slots, priorities)` of a corrected `Memory`."""
    priorities = np.array([1.0, 4.0, 9.0, 16.0, 0.0, 25.0, 1.0, 4.0])
    for alpha, eps in [(0.5, 0.0), (0.5, 0.25), (1.0, 0.1), (0.0, 0.1)]:
        masses = (priorities + eps) ** alpha
        added, updated, partly = kind(alpha, eps), kind(alpha, eps), kind(alpha, eps)
        for slot, priority in enumerate(priorities.tolist()):
            added.add(slot, priority)
            updated.add(slot, 1.0)
            partly.add(slot, priority)
        call(updated.update, np.arange(8), priorities)
        call(partly.update, np.array([5, 3, 5]), np.array([9.0, 2.0, 7.0]))
        changed = priorities.copy()
        changed[[5, 3]] = 7.0, 2.0
        for how, memory, wanted in [
            ("update with", updated, masses),
            ("add with", added, masses),
            ("update of slots 5, 3 and 5 to 9, 2 and 7, which leaves", partly, (changed + eps) ** alpha),
        ]:
            given, expected = Memory.probabilities(memory), wanted / wanted.sum()
            if not np.allclose(given, expected):
                slot = int(np.argmax(~np.isclose(given, expected)))
                priority = changed[slot] if memory is partly else priorities[slot]
                raise NotYet(
                    f"alpha {alpha}, eps {eps}: after {how} priority {priority:g}, slot {slot} has the "
                    f"probability {given[slot]:.3f}, not {expected[slot]:.3f}. Both methods need the mass "
                    "(priority + eps) ** alpha"
                )
    print("right: add and update compute the same mass for the same priority")
