"""Learning: on a real environment, by processes, to a bar that chance does not reach."""

from dataclasses import replace

from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.run import train


def test_cart_pole_is_learned(tmp_path):
    """That it is solved, as gymnasium means it, is tested by `make stress`."""
    quick = {"evaluation_episodes": 10, "confirmation_episodes": 30, "final_episodes": 30, "solved_at": 150.0}
    result = train(replace(preset("CartPole-v1"), seed=0, runs=tmp_path, progress=False, **quick))
    assert result.end == "solved"
    assert len(result.evaluation.returns) == 30
    assert result.evaluation.mean >= 120.0  # a random policy has 22
