"""The exercises of chapter 08: diagnoses by curves, counted updates, a checkpoint that forgets."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.teaching.exercises import NotYet

# patient → (its sickness, where it is seen)
PATIENTS = {
    "A": ("target never renewed", "its Q-values never rise, though it is trained"),
    "B": ("steps too large", "its evaluations jump, and the same low number comes back"),
    "C": ("learner starved", "its rows are hardly ever sampled"),
}


def patients(runs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the records of three sick runs, without their names."""
    return {patient: runs[sickness] for patient, (sickness, _) in PATIENTS.items()}


def check_diagnoses(given: Mapping[str, Any]) -> None:
    """Check which sickness each patient has."""
    for patient, (sickness, sign) in PATIENTS.items():
        if given.get(patient, ...) is ...:
            names = ", ".join(sorted(name for name, _ in PATIENTS.values()))
            raise NotYet(f"patient {patient} has no diagnosis yet; one of: {names}")
        if given[patient] != sickness:
            raise NotYet(f"patient {patient} has not {given[patient]!r}: look again, {sign}")
    print("right: and their returns alone would not have told")


def count_updates(steps: int, batch_size: int, samples_per_insert: float, replay_start: int) -> int:
    """Let a run go by, a row at a time: an update is made as soon as its rows may be sampled."""
    updates = 0
    for rows in range(1, steps + 1):
        while (
            rows >= replay_start and (updates + 1) * batch_size <= (rows - replay_start) * samples_per_insert
        ):
            updates += 1
    return updates


def check_updates(updates: Callable[..., Any]) -> None:
    """Check a formula for the number of updates of a run."""
    for case in (
        (4_000, 64, 4.0, 1_000),
        (4_000, 128, 8.0, 1_000),
        (900, 64, 4.0, 1_000),
        (5_000, 32, 0.5, 100),
    ):
        given, wanted = updates(*case), count_updates(*case)
        if given is None or given is ...:
            raise NotYet("my_updates must return a number")
        if given != wanted:
            steps, batch_size, ratio, start = case
            told = (
                f"{steps:,} steps, batches of {batch_size}, {ratio:g} samples per insert, start at {start:,}"
            )
            raise NotYet(
                f"{told}: there are {wanted} updates, not {given}. How many samples may be drawn in all, "
                "and how many whole batches are that?"
            )
    print("right: and a run whose steps are too few makes none")


class SmallReplay:
    """A ring of numbers that draws some of them. Its `state` forgets something."""

    def __init__(self, capacity: int, seed: int) -> None:
        """Begin empty."""
        self.numbers: NDArray[np.float64] = np.zeros(capacity)
        self.added = 0
        self.rng = np.random.default_rng(seed)

    def add(self, number: float) -> None:
        """Add a number; the oldest makes room."""
        self.numbers[self.added % len(self.numbers)] = number
        self.added += 1

    def sample(self, size: int) -> NDArray[np.float64]:
        """Draw some of the numbers that are there."""
        return self.numbers[self.rng.integers(min(self.added, len(self.numbers)), size=size)]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        stored = min(self.added, len(self.numbers))
        return {"numbers": self.numbers.copy(), "added": stored}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.numbers[:] = state["numbers"]
        self.added = state["added"]
        if "rng" in state:
            self.rng.bit_generator.state = state["rng"]


def check_state(state: Callable[..., Any]) -> None:
    """Check a function `state(replay)`: what is restored from it must go on as if nothing had been."""
    for added in (0, 3, 8, 13):
        replay, restored = SmallReplay(8, seed=1), SmallReplay(8, seed=2)
        for number in range(added):
            replay.add(float(number))
        if added:
            replay.sample(5)
        kept = state(replay)
        if not isinstance(kept, dict):
            raise NotYet("my_state must return a dict, as `SmallReplay.state` does")
        if np.shares_memory(kept["numbers"], replay.numbers):
            raise NotYet("the state holds the replay's own array: what is added later changes the checkpoint")
        if not isinstance(kept.get("rng", {}), dict):
            raise NotYet("`restore` wants the state of the generator: `replay.rng.bit_generator.state`")
        restored.restore(kept)
        for number in (100.0, 101.0):
            replay.add(number)
            restored.add(number)
        if not np.array_equal(np.sort(replay.numbers), np.sort(restored.numbers)):
            lost = sorted(set(replay.numbers.tolist()) - set(restored.numbers.tolist()))
            raise NotYet(
                f"after {added} numbers and a restart, two more are added, and {lost} are not there any more"
            )
        if not np.array_equal(replay.numbers, restored.numbers):
            raise NotYet(f"after {added} numbers and a restart, the next ones lie in other slots")
        if not np.array_equal(replay.sample(20), restored.sample(20)):
            raise NotYet(
                f"after {added} numbers and a restart, other ones are drawn: what decides the drawing?"
            )
    print("right: rows, counter and random state")
