"""The actor: its ladder of ε, its rows at the ends of episodes, and what it sends."""

from dataclasses import replace

import numpy as np
import pytest

from replay_tutorial.apex.actor import Actor, epsilon_ladder, first_priorities
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.networks import DuelingNetwork, get_weights, set_weights
from replay_tutorial.apex.run import Run
from replay_tutorial.shared.memory import SharedArrays

COUNTING = "test_apex_environments:Counting-v0"


def test_ladder_has_the_papers_rungs():
    ladder = epsilon_ladder(8)
    assert ladder[0] == pytest.approx(0.4)
    assert ladder[1] == pytest.approx(0.4**2)
    assert ladder[-1] == pytest.approx(0.4**8)
    assert epsilon_ladder(3).tolist() == pytest.approx([0.4, 0.4**4.5, 0.4**8])


def test_ladder_of_one_rung_is_the_base():
    assert epsilon_ladder(1).tolist() == [0.4]
    assert epsilon_ladder(1, base=0.3, exponent=5.0).tolist() == [0.3]


def actor_of(tmp_path, environment=COUNTING, number=0, **changes):
    settings = {
        "environments_per_actor": 2,
        "send_interval": 12,
        "n_step": 3,
        "gamma": 0.5,
        "replay_start": 50,
    }
    config = replace(preset(environment), runs=tmp_path, progress=False, **(settings | changes))
    run = Run(config)
    stop = SharedArrays({"flag": ((1,), np.dtype(np.bool_))})
    return Actor(run.actor_task(number, stop, None)), run


def test_rungs_are_dealt_out_to_the_actors(tmp_path):
    first, _ = actor_of(tmp_path, actors=2, environments_per_actor=4)
    second, _ = actor_of(tmp_path, number=1, actors=2, environments_per_actor=4)
    ladder = epsilon_ladder(8)
    np.testing.assert_array_equal(first.epsilons, ladder[::2])
    np.testing.assert_array_equal(second.epsilons, ladder[1::2])


def test_epsilon_of_one_acts_at_random_and_of_zero_greedily(tmp_path):
    actor, _ = actor_of(tmp_path)
    with_bias = get_weights(actor.network) * 0.0
    with_bias[-1] = 1.0  # the last action is always the best
    set_weights(actor.network, with_bias)
    actor.epsilons = np.array([0.0, 1.0])
    actions = np.array([actor.choose_actions() for _ in range(400)])
    assert set(actions[:, 0].tolist()) == {1}
    # Binomial(400, 1/2): six standard deviations to each side
    assert 140 < actions[:, 1].sum() < 260


def played_rows(actor, rounds=5):
    parts = []
    for _ in range(rounds):
        actor.play()
        if (rows := actor.fold()) is not None:
            parts.append(rows)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_no_reset_observation_is_ever_stored_as_next_obs(tmp_path):
    actor, _ = actor_of(tmp_path)
    rows = played_rows(actor)
    episodes, steps = rows["obs"].T
    next_episodes, next_steps = rows["next_obs"].T
    np.testing.assert_array_equal(next_episodes, episodes)
    # three steps on, or at the episode's last observation, which is number 5
    np.testing.assert_array_equal(next_steps, np.minimum(steps + 3, 5))


def test_returns_and_discounts_at_both_kinds_of_ends(tmp_path):
    actor, _ = actor_of(tmp_path)
    rows = played_rows(actor)
    episodes, steps = rows["obs"].T
    rewards_there = np.minimum(3, 5 - steps)
    np.testing.assert_allclose(rows["rew"], 2.0 - 0.5 ** (rewards_there - 1))
    at_end = steps + 3 >= 5
    terminated = at_end & (episodes % 2 == 1)
    np.testing.assert_allclose(rows["discount"], np.where(terminated, 0.0, 0.5**rewards_there))
    np.testing.assert_array_equal(rows["terminated"], terminated)
    np.testing.assert_array_equal(rows["truncated"], at_end & (episodes % 2 == 0))


def test_no_step_is_lost_between_two_sends(tmp_path):
    actor, _ = actor_of(tmp_path)
    rows = played_rows(actor, rounds=5)
    # 60 steps of each of two environments: 12 episodes of 5, all ended, so that no step waits in a window
    assert len(rows["obs"]) == 2 * 60
    places, counts = np.unique(rows["obs"], axis=0, return_counts=True)
    assert len(places) == 60
    assert set(counts.tolist()) == {2}


def test_finished_episodes_are_reported(tmp_path):
    actor, _ = actor_of(tmp_path)
    reports = [actor.play() for _ in range(5)]
    assert [value for report in reports for value in report.returns] == [5.0] * 24
    assert [value for report in reports for value in report.lengths] == [5] * 24


def test_rows_arrive_in_the_replay_with_the_actors_priorities(tmp_path):
    actor, run = actor_of(tmp_path)
    actor.play()
    rows = actor.fold()
    actor.send(rows)
    stored = run.replay.get_all_transitions()
    for name, values in rows.items():
        np.testing.assert_array_equal(stored[name], values)
    assert run.limiter.inserts == len(rows["rew"])
    assert run.replay.get_max_priority() == pytest.approx(first_priorities(actor.network, rows).max())


def test_actor_takes_the_learners_weights(tmp_path):
    actor, run = actor_of(tmp_path)
    network = run.learner.agent.online
    assert not np.array_equal(get_weights(actor.network), get_weights(network))
    actor.pull_weights()
    np.testing.assert_array_equal(get_weights(actor.network), get_weights(network))
    other = DuelingNetwork(2, 2, run.config.hidden_sizes)
    run.mailbox.publish(get_weights(other))
    actor.pull_weights()
    np.testing.assert_array_equal(get_weights(actor.network), get_weights(other))


def test_actor_that_is_told_to_stop_does_not_wait_for_the_learner(tmp_path):
    actor, run = actor_of(tmp_path, replay_start=1, slack=1, samples_per_insert=1.0)
    run.limiter.inserted(10_000)  # far ahead of the learner
    actor.task.stop["flag"][0] = True
    actor.play()
    actor.send(actor.fold())
    assert run.replay.get_stored_size() == 0
    actor.run()  # ends at once
