"""Checks of chapter 08: an environment, faults found from curves, a number of updates, a wrong state."""

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from replay_course.answers import array_of, numbers
from replay_course.exercises import Hints, NotYet

corridor_hints = Hints(
    "Call super().reset(seed=seed) first, and keep the position as an int in self.position.",
    "Both methods return an observation, so write a third one: np.array([self.position / 5], np.float32).",
    "Move with max(-5, self.position + 1) or max(-5, self.position - 1).",
    "step returns (observation, -1.0, self.position == 5, False, {}).",
)
WALKS = {
    "two to the left": (0, 0),  # and then a reset in the middle of an episode
    "right": (1,) * 5,
    "left and right": (0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1),
    "left": (0,) * 60 + (1,) * 10,
    "left for a long time": (0,) * 240,
}


def check_corridor(kind: Callable[[], Any]) -> None:
    """Check an environment with gymnasium's own check, and with walks whose results are known."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on rendering and registration
            check_env(kind(), skip_render_check=True)
    except (AssertionError, gymnasium.error.Error) as error:
        raise NotYet(f"gymnasium's check_env says: {type(error).__name__}: {error}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise NotYet(
            f"gymnasium's check_env stopped with {type(error).__name__}: {error}. Does `reset` set what "
            "`step` uses, and do both return as many values as stated?"
        ) from None
    env = kind()
    for name, actions in WALKS.items():
        seen, positions = [env.reset(seed=0)[0]], [0]
        for step, action in enumerate(actions):
            obs, reward, terminated, truncated, _ = env.step(np.int64(action))
            seen.append(obs)
            positions.append(max(-5, positions[-1] + (1 if action else -1)))
            where = f"walk {name!r}, step {step + 1}, position {positions[-1]}"
            if reward != -1:
                raise NotYet(f"{where}: the reward should be -1, not {reward}")
            if terminated != (positions[-1] == 5):
                raise NotYet(f"{where}: terminated should be {positions[-1] == 5}, not {terminated}")
            if truncated:
                raise NotYet(f"{where}: truncated should be False: the registration sets the time limit")
            if getattr(obs, "dtype", None) != np.float32:
                raise NotYet(f"{where}: the observation should be an array of float32, not {obs!r:.60}")
            found = float(array_of(obs, (1,), where)[0])
            if not abs(found - positions[-1] / 5) <= 1e-6:
                raise NotYet(f"{where}: the observation should be {positions[-1] / 5:g}, not {found:g}")
        if not np.allclose(np.ravel(seen), np.array(positions) / 5):
            raise NotYet(
                f"walk {name!r}: the observations are {np.ravel(seen).round(1).tolist()}. Does `reset` start "
                "at 0? Does a later step change an observation that was returned? Then copy it"
            )
    print("right: gymnasium's check, and walks to the exit and against the wall")


# name of a run in the exercise → (its fault, the symptom)
FAULTS = {
    "A": ("steps too large", "its evaluations jump, while its Q-values stay low"),
    "B": ("healthy", "its Q-values rise, and so do its evaluations"),
    "C": ("too few updates", "its rows are rarely sampled"),
    "D": ("target never updated", "its Q-values never rise, although it is trained"),
}


def unknown_runs(runs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the records of four runs, named A to D."""
    return {name: runs[f"{fault}, seed 3"] for name, (fault, _) in FAULTS.items()}


def check_faults(given: Mapping[str, Any]) -> None:
    """Check the fault named for each run."""
    choices = sorted(fault for fault, _ in FAULTS.values())
    if not isinstance(given, Mapping):
        raise NotYet(f"write a dict with a fault for each of the runs {', '.join(FAULTS)}")
    for name, (fault, sign) in FAULTS.items():
        if given.get(name, ...) not in choices:
            raise NotYet(f"run {name}: choose one of {', '.join(choices)}")
        if given[name] != fault:
            raise NotYet(f"run {name}: the answer is not {given[name]!r}; note that {sign}")
    print("right: all four runs; the returns alone would not show the faults")


def count_updates(steps: int, batch_size: int, samples_per_insert: float, replay_start: int) -> int:
    """Simulate a run row by row, and make an update as soon as its batch may be sampled."""
    updates = 0
    for rows in range(1, steps + 1):
        while (
            rows >= replay_start and (updates + 1) * batch_size <= (rows - replay_start) * samples_per_insert
        ):
            updates += 1
    return updates


def check_updates(updates: Callable[..., Any]) -> None:
    """Check a function that returns the number of updates of a run."""
    for case in (
        (4_000, 64, 4.0, 1_000),
        (4_000, 128, 8.0, 1_000),
        (900, 64, 4.0, 1_000),
        (5_000, 32, 0.5, 100),
        (1_000, 64, 4.0, 1_000),
        (1_040, 64, 1.0, 1_000),
        (9_000, 64, 3.0, 1_000),
    ):
        [given], wanted = (
            numbers([updates(*case)], 1, "my_updates must return a number"),
            count_updates(*case),
        )
        if given != wanted:
            steps, batch_size, ratio, start = case
            settings = (
                f"{steps:,} steps, batches of {batch_size}, {ratio:g} samples per insert, start at {start:,}"
            )
            raise NotYet(
                f"{settings}: expected {wanted} updates, not {given:g}. How many samples may be drawn in "
                "all, and how many complete batches is that?"
            )
    print("right: a run with fewer steps than replay_start also makes no updates")


class SmallReplay:
    """A ring of numbers with uniform sampling. Its `state` has two faults."""

    def __init__(self, capacity: int, seed: int) -> None:
        """Create an empty ring."""
        self.numbers: NDArray[np.float64] = np.zeros(capacity)
        self.added = 0
        self.rng = np.random.default_rng(seed)

    def add(self, number: float) -> None:
        """Add a number; a full ring overwrites the oldest."""
        self.numbers[self.added % len(self.numbers)] = number
        self.added += 1

    def sample(self, size: int) -> NDArray[np.float64]:
        """Sample numbers uniformly, with replacement."""
        return self.numbers[self.rng.integers(min(self.added, len(self.numbers)), size=size)]

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        stored = min(self.added, len(self.numbers))
        return {"numbers": self.numbers.copy(), "added": stored}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state from a checkpoint."""
        self.numbers[:] = state["numbers"]
        self.added = state["added"]
        if "rng" in state:
            self.rng.bit_generator.state = state["rng"]


def check_state(state: Callable[..., Any]) -> None:
    """Check that a replay restored from `state(replay)` behaves exactly like the original."""
    for added in (0, 3, 8, 13):
        replay, restored = SmallReplay(8, seed=1), SmallReplay(8, seed=2)
        for number in range(added):
            replay.add(float(number))
        if added:
            replay.sample(5)
        original = copy.deepcopy(replay)
        kept = state(replay)
        where = f"after {added} numbers"
        if not isinstance(kept, dict) or not {"numbers", "added"} <= kept.keys():
            raise NotYet(
                "my_state must return a dict with `numbers` and `added`, as `SmallReplay.state` does"
            )
        if not isinstance(kept.get("rng", {}), dict):
            raise NotYet("`restore` expects the generator's state: `replay.rng.bit_generator.state`")
        array_of(kept["numbers"], (8,), f"{where}, the numbers of the state")
        if not isinstance(kept["added"], int | np.integer):
            raise NotYet(f"{where}, `added` of the state must be an integer, not {kept['added']!r:.40}")
        if vars(replay)["added"] != original.added or not np.array_equal(replay.numbers, original.numbers):
            raise NotYet(f"{where}, my_state has changed the replay: only read from it")
        for number in range(5):  # the run continues after the checkpoint
            replay.add(-1.0 - number)
            replay.sample(3)
        restored.restore(kept)
        for number in (100.0, 101.0):
            original.add(number)
            restored.add(number)
        if (restored.numbers < 0).any():
            raise NotYet(
                "later additions have changed the checkpoint, which contains the replay's own array: copy it"
            )
        if not np.array_equal(np.sort(original.numbers), np.sort(restored.numbers)):
            lost = sorted(set(original.numbers.tolist()) - set(restored.numbers.tolist()))
            raise NotYet(f"{where}, a restore and two more numbers, {lost} are missing")
        if not np.array_equal(original.numbers, restored.numbers):
            raise NotYet(f"{where} and a restore, new numbers are written to different slots")
        if restored.added != original.added or not np.array_equal(original.sample(20), restored.sample(20)):
            raise NotYet(f"{where} and a restore, other numbers are sampled: what determines the draws?")
    print("right: the numbers, the counter and the random state")
