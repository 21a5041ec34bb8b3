"""What chapters 00 and 08 rest on: their records, the order of data, the environment of one's own."""

import itertools

import gymnasium
import numpy as np
import pytest
import runs
import why_replay

from replay_course.exercises_training import FAULTS
from replay_course.order_of_data import correlation, learn_a_sine, play_at_random
from replay_course.steps.learning.q_learning_with_replay import FIELDS


def test_a_curve_is_the_mean_of_the_episodes_that_ended_there() -> None:
    episodes = [(500, 10.0), (1_000, 20.0), (1_001, 30.0), (3_999, 7.0)]
    assert why_replay.curve_of(episodes, 4_000) == [15.0, 30.0, None, 7.0]


def test_the_newest_tuples_come_in_order_and_nothing_else() -> None:
    memory = why_replay.NewestTuples(100, FIELDS)
    for step, transition in enumerate(play_at_random(30)):
        transition.pop("truncated")
        memory.add(**{**transition, "reward": step})
    assert memory.sample(8)["reward"].tolist() == [22, 23, 24, 25, 26, 27, 28, 29]


@pytest.mark.learns
def test_a_network_forgets_what_it_saw_first() -> None:
    halves, mixed = learn_a_sine(by_halves=True), learn_a_sine(by_halves=False)
    assert halves.left_error_halfway < 0.05, "it has learned the left half first"
    assert halves.left_error > 2 * max(halves.left_error_halfway, mixed.left_error)
    assert np.abs(halves.y - np.sin(halves.x))[halves.x > 0].mean() < 0.05, "it knows where it has just been"


def test_neighbours_are_alike_and_shuffled_ones_are_not() -> None:
    angles = np.array([step["obs"][2] for step in play_at_random(3_000)])
    assert correlation(angles, 1) > 0.8
    assert abs(correlation(np.random.default_rng(0).permutation(angles), 1)) < 0.1


def test_no_transition_of_the_random_player_leads_into_another_episode() -> None:
    steps = play_at_random(500)
    for step, after in itertools.pairwise(steps):
        ended = step["terminated"] or step["truncated"]
        assert np.array_equal(step["next_obs"], after["obs"]) != ended


def test_gymnasium_finds_the_corridor_by_its_module() -> None:
    env = gymnasium.make("replay_course.environments:Corridor-v0")
    env.reset()
    ends = [env.step(np.int64(1))[2] for _ in range(5)]
    assert ends == [False, False, False, False, True]


def test_every_run_of_the_exercise_was_recorded() -> None:
    assert {f"{fault}, seed 3" for fault, _ in FAULTS.values()} < runs.RUNS.keys()
    for changes in runs.RUNS.values():
        assert len(changes.keys() - {"seed"}) <= 2
