"""Evaluation: reproducible, the same alone and together, on episodes apart from those of the selection."""

import numpy as np
import pytest
import torch

from replay_tutorial.agents.dqn import DQNPolicy
from replay_tutorial.agents.environments import make_environment
from replay_tutorial.agents.evaluation import Evaluation, draw_seeds, evaluate
from replay_tutorial.agents.networks import DuelingNetwork
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.seeds import RunSeeds


def policy_of(seed):
    torch.manual_seed(seed)
    return DQNPolicy(DuelingNetwork((4,), 2, (16,))).act_greedily


def leaning_policy(observations):
    """Push to the side where the pole leans: 30 to 60 steps."""
    return (observations[:, -2] > 0).astype(np.int64)


def test_same_policy_and_seeds_bring_the_same_returns():
    first = evaluate(leaning_policy, "CartPole-v1", range(10))
    second = evaluate(leaning_policy, "CartPole-v1", range(10))
    np.testing.assert_array_equal(first.returns, second.returns)
    other = evaluate(leaning_policy, "CartPole-v1", range(10, 20))
    assert not np.array_equal(first.returns, other.returns)


def test_few_environments_play_all_episodes_and_are_closed(monkeypatch):
    made, closed = [], []

    def counting(name):
        environment = make_environment(name)
        monkeypatch.setattr(environment, "close", lambda: closed.append(environment))
        made.append(environment)
        return environment

    policy = policy_of(3)
    alone = [evaluate(policy, "CartPole-v1", [seed]).returns[0] for seed in range(20)]
    monkeypatch.setattr("replay_tutorial.agents.evaluation.make_environment", counting)
    few = evaluate(policy, "CartPole-v1", range(20))
    assert 1 < len(made) <= 8 and closed == made[::-1]
    others = [evaluate(policy, "CartPole-v1", range(20), num_envs=most) for most in (1, 99)]
    for evaluation in (few, *others):
        np.testing.assert_array_equal(evaluation.returns, alone)
    with pytest.raises(ZeroDivisionError):
        evaluate(lambda observations: 1 / 0, "CartPole-v1", range(20), num_envs=3)
    assert len(closed) == len(made)


def test_summary_of_an_evaluation():
    evaluation = Evaluation(np.array([1.0, 2.0, 3.0]))
    assert evaluation.mean == 2.0
    assert evaluation.standard_error == pytest.approx(1 / np.sqrt(3))
    assert evaluation.lower_bound == pytest.approx(2.0 - np.sqrt(3))
    assert str(evaluation).startswith("mean 2.0 ± 0.6 ")
    assert Evaluation(np.array([500.0])).lower_bound == -np.inf
    single = Evaluation(np.array([500.0]), num_truncated=1)
    assert str(single) == "return 500.0 (1 episode, 1 cut at the step limit)"


def test_evaluation_without_seeds_or_environments_is_refused():
    with pytest.raises(ValueError, match="at least one seed"):
        evaluate(leaning_policy, "CartPole-v1", [])
    with pytest.raises(ValueError, match="num_envs must be at least 1, not 0"):
        evaluate(leaning_policy, "CartPole-v1", [1, 2], num_envs=0)


def test_episode_that_does_not_end_is_cut_at_the_step_limit_and_counted():
    evaluation = evaluate(leaning_policy, "small_environments:Endless-v0", [0, 1], step_limit=30)
    assert (evaluation.returns.tolist(), evaluation.num_truncated) == ([30.0, 30.0], 2)
    assert "2 cut at the step limit" in str(evaluation)
    more = evaluate(leaning_policy, "small_environments:Endless-v0", range(5), step_limit=30, num_envs=2)
    assert (more.returns.tolist(), more.num_truncated) == ([30.0] * 5, 5)
    whole = evaluate(leaning_policy, "small_environments:Counting-v0", [0, 1], step_limit=5)
    assert (whole.returns.tolist(), whole.num_truncated) == ([5.0, 5.0], 0)
    assert "cut" not in str(whole)


def test_seeds_of_the_final_episodes_played_no_part_in_the_selection():
    for seed in range(20):
        seeds = RunSeeds(Config(seed=seed))
        every = [*seeds.evaluation, *seeds.confirmation, *seeds.final]
        assert (len(seeds.evaluation), len(seeds.confirmation), len(seeds.final)) == (20, 100, 100)
        assert len(set(every)) == 220


def test_seeds_follow_from_one_seed():
    assert draw_seeds(np.random.SeedSequence(1), 5) == draw_seeds(np.random.SeedSequence(1), 5)
    assert draw_seeds(np.random.SeedSequence(1), 5) != draw_seeds(np.random.SeedSequence(2), 5)
