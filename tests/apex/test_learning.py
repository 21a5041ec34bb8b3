"""Learning: on a real environment, by processes, to a bar that chance does not reach."""

from dataclasses import replace

import pytest

from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.run import train

pytestmark = [pytest.mark.learns, pytest.mark.trains]


def test_cart_pole_is_learned(tmp_path):
    """That it is solved, as gymnasium means it, is tested by `make stress`."""
    quick = {"evaluation_episodes": 10, "confirmation_episodes": 30, "final_episodes": 30, "solved_at": 150.0}
    quick |= {"total_steps": 100_000, "runs": tmp_path, "progress": False}
    runs = (train(replace(preset("CartPole-v1"), seed=seed, **quick)) for seed in range(5))
    # A random policy has 22. Luck in the confirmation can bring a policy here whose mean is below 150.
    assert any(run.end == "solved" and run.evaluation.mean >= 90.0 for run in runs)
