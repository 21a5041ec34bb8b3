"""The actor: its ladder of ε, its rows at the ends of episodes, and what it sends."""

from dataclasses import replace

import numpy as np
import pytest

from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.dqn import epsilon_ladder
from replay_tutorial.apex.run import Run
from replay_tutorial.shared.memory import SharedArrays

COUNTING = "test_apex_environments:Counting-v0"


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
    np.testing.assert_array_equal(first.exploration, ladder[::2])
    np.testing.assert_array_equal(second.exploration, ladder[1::2])


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
    assert run.replay.get_max_priority() == pytest.approx(actor.policy.priorities(rows).max())


def test_actor_takes_the_learners_weights(tmp_path):
    actor, run = actor_of(tmp_path)
    actor.play()
    rows = actor.fold()
    before = actor.policy.priorities(rows)
    actor.pull_weights()
    run.policy.set_weights(run.learner.agent.weights())
    np.testing.assert_array_equal(actor.policy.priorities(rows), run.policy.priorities(rows))
    assert not np.array_equal(actor.policy.priorities(rows), before)
    other = np.random.default_rng(0).normal(size=run.policy.weight_count).astype(np.float32)
    run.mailbox.publish(other)
    actor.pull_weights()
    run.policy.set_weights(other)
    np.testing.assert_array_equal(actor.policy.priorities(rows), run.policy.priorities(rows))


def test_actor_that_is_told_to_stop_does_not_wait_for_the_learner(tmp_path):
    actor, run = actor_of(tmp_path, replay_start=1, slack=1, samples_per_insert=1.0)
    run.limiter.inserted(10_000)  # far ahead of the learner
    actor.task.stop["flag"][0] = True
    actor.play()
    actor.send(actor.fold())
    assert run.replay.get_stored_size() == 0
    actor.run()  # ends at once
