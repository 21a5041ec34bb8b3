"""Hindsight on flipped bits: the task, the two memories, and an agent that learns from relabelled steps."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from replay_course.exercises_goals import numbered_episode
from replay_course.steps.goals.bit_flip import OneGoal, flips_until_goal, play
from replay_course.steps.goals.goal_q_learning import GoalQLearning, success_rate, train
from replay_course.steps.goals.relabel_at_the_end import RelabelAtTheEnd
from replay_course.steps.goals.relabel_when_sampled import RelabelWhenSampled


def test_an_episode_ends_at_its_goal_or_after_as_many_flips_as_there_are_bits() -> None:
    start, goal = np.array([0, 0, 0, 0]), np.array([0, 1, 1, 0])
    actions = iter([0, 1, 0, 2, 3])
    steps = play(start, goal, lambda obs, goal: next(actions))
    assert [step.next_obs.tolist() for step in steps] == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 0, 0],
        [0, 1, 1, 0],
    ]
    assert [(step.reward, step.terminated) for step in steps] == [(-1.0, False)] * 3 + [(0.0, True)]
    failed = play(start, goal, lambda obs, goal: 3)
    assert [(step.reward, step.terminated) for step in failed] == [(-1.0, False)] * 4
    assert start.tolist() == [0, 0, 0, 0]


def test_a_random_player_waits_as_long_as_the_chain_of_its_states_predicts() -> None:
    # The expected time to hit a state, from a random one: the sum of 1 / (1 - λ) over the eigenvalues below 1
    # of the walk on the cube, and 1 for the walks that start at the goal and have to return to it.
    flips = np.array([[(a ^ b).bit_count() == 1 for b in range(16)] for a in range(16)]) / 4
    eigenvalues = np.sort(np.linalg.eigvalsh(flips))[:-1]
    expected = 1 + np.sum(1 / (1 - eigenvalues))
    rng = np.random.default_rng(0)
    assert np.mean([flips_until_goal(4, rng) for _ in range(4_000)]) == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("kind", [RelabelAtTheEnd, RelabelWhenSampled])
def test_goals_are_uniform_over_the_states_after_the_step(kind: type[OneGoal]) -> None:
    seen: dict[tuple[int, int], Counter[int]] = {}
    for seed in range(300):
        memory = kind(seed)
        for number, length in enumerate([1, 4, 6]):
            memory.add_episode(numbered_episode(number, length))
        rows = memory.sample(8)
        for obs, goal in zip(rows["obs"].tolist(), rows["goal"].tolist(), strict=True):
            if goal != [-1, -1]:
                assert goal[0] == obs[0]
                seen.setdefault(tuple(obs), Counter())[goal[1]] += 1
    statistic, freedom = 0.0, 0
    for (number, step), counts in seen.items():
        allowed = range(step + 1, [1, 4, 6][number] + 1)
        assert set(counts) <= set(allowed)
        expected = counts.total() / len(allowed)
        statistic += sum((counts[goal] - expected) ** 2 / expected for goal in allowed)
        freedom += len(allowed) - 1
    assert len(seen) == 11
    assert chi2.sf(statistic, freedom) > 1e-6


@pytest.mark.parametrize("kind", [OneGoal, RelabelAtTheEnd, RelabelWhenSampled])
def test_reward_and_terminated_belong_to_the_goal_of_the_row(kind: type[OneGoal]) -> None:
    memory = kind(0)
    memory.add_episode(numbered_episode(0, 5))
    rows: dict[str, Any] = memory.sample(200)
    goals, following = rows["goal"].tolist(), rows["next_obs"].tolist()
    at_goal = [goal == achieved for goal, achieved in zip(goals, following, strict=True)]
    assert rows["terminated"].tolist() == at_goal
    assert rows["reward"].tolist() == [0.0 if wanted else -1.0 for wanted in at_goal]
    assert any(at_goal) == (kind is not OneGoal)


@pytest.mark.learns
def test_an_agent_learns_with_relabelled_steps_and_hardly_without() -> None:
    def rates(kind: type[OneGoal]) -> Iterator[float]:
        for seed in range(4):
            agent = GoalQLearning(bits=8, seed=seed)
            train(agent, kind(seed), episodes=150)
            yield success_rate(agent, 100)

    # Eight seeds had rates of 44 to 64% with relabelled steps, and of at most 3% without.
    assert any(rate > 0.3 for rate in rates(RelabelAtTheEnd))
    assert any(rate < 0.1 for rate in rates(OneGoal))
