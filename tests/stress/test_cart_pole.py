"""Learning: the whole of it, on a real environment, to the bar that gymnasium sets."""

from dataclasses import replace

from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.run import train


def test_cart_pole_is_solved(tmp_path):
    result = train(replace(preset("CartPole-v1"), seed=0, runs=tmp_path, progress=False))
    assert result.end == "solved"
    assert len(result.evaluation.returns) == 100
    assert result.evaluation.mean >= 475.0
