"""The actor: its ε, its rows at the ends of episodes, and what it sends."""

from dataclasses import replace

import numpy as np
import pytest
from run_parts import context_of

from replay_tutorial.agents.dqn import epsilon_schedule
from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.seeds import RunSeeds

COUNTING = "small_environments:Counting-v0"


def actor_of(environment=COUNTING, number=0, **changes):
    """An actor whose parameters are published, its context, and what it tells."""
    settings = {"environments_per_actor": 2, "send_interval": 12, "n_step": 3, "gamma": 0.5}
    config, told = replace(preset(environment), **(settings | {"replay_start": 50} | changes)), []
    context = replace(context_of(config), send_message=told.append)
    actor = Actor(context, number, RunSeeds(config).actor(number, 0, 0))
    parameters = np.random.default_rng(0).normal(size=actor.policy.parameter_count)
    context.parameters.publish(parameters.astype(np.float32), 0)
    return actor, context, told


def test_schedule_is_dealt_out_and_episodes_are_reported_with_their_environment_in_the_run():
    actor, *_ = actor_of(number=1, actors=2, environments_per_actor=3)
    episodes = actor.play()  # 12 steps: two whole episodes of each environment
    schedule = epsilon_schedule(6)
    assert sorted(episodes.environments) == [1, 1, 3, 3, 5, 5]
    assert schedule[episodes.environments[:3]].tolist() == actor.exploration.tolist()


def played_rows(actor, rounds=5):
    parts = []
    for _ in range(rounds):
        actor.play()
        if (rows := actor.fold()) is not None:
            parts.append(rows)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_every_step_is_in_a_row_and_no_reset_observation_and_both_kinds_of_ends_are_told_apart():
    actor, *_ = actor_of()
    rows = played_rows(actor, rounds=5)
    # 60 steps of each of two environments: 12 episodes of 5, all ended, so that no step waits in a window
    places, counts = np.unique(rows["obs"], axis=0, return_counts=True)
    assert (len(places), set(counts.tolist())) == (60, {2})

    episodes, steps = rows["obs"].T
    next_episodes, next_steps = rows["next_obs"].T
    np.testing.assert_array_equal(next_episodes, episodes)
    # three steps on, or at the episode's last observation, which is number 5
    np.testing.assert_array_equal(next_steps, np.minimum(steps + 3, 5))

    rewards_there, at_end = np.minimum(3, 5 - steps), steps + 3 >= 5
    np.testing.assert_allclose(rows["reward"], 2.0 - 0.5 ** (rewards_there - 1))
    terminated = at_end & (episodes % 2 == 1)
    np.testing.assert_allclose(rows["discount"], np.where(terminated, 0.0, 0.5**rewards_there))
    np.testing.assert_array_equal(rows["terminated"], terminated)
    np.testing.assert_array_equal(rows["truncated"], at_end & (episodes % 2 == 0))


def test_score_that_an_environment_reports_is_its_own_affair():
    actor, *_ = actor_of("small_environments:Scoring-v0")
    episodes = actor.play()  # 12 steps: two whole episodes of each environment
    assert (episodes.returns, episodes.lengths) == ([5.0] * 4, [5] * 4)


def test_age_of_the_parameters_is_counted_in_updates():
    actor, context, _ = actor_of(publish_interval=25)
    assert actor.pull_parameters()
    assert not actor.pull_parameters()
    context.counters.count_updates(30)
    assert actor.play().parameters_age == 30
    context.parameters.publish(np.zeros(actor.policy.parameter_count, np.float32), 25)
    assert actor.pull_parameters()
    assert actor.play().parameters_age == 5


def test_rows_arrive_in_the_replay_with_the_actors_priorities():
    actor, context, _ = actor_of()
    actor.play()
    rows = actor.fold()
    actor.send(rows)
    buffer = context.replay.buffer
    stored = buffer[:]
    for name, values in rows.items():
        np.testing.assert_array_equal(stored[name], values)
    assert context.counters.steps == len(rows["reward"])
    assert buffer.max_priority == pytest.approx(actor.policy.priorities(rows).max())


def test_actor_takes_the_newest_parameters():
    actor, context, _ = actor_of()
    actor.play()
    rows = actor.fold()
    other = make_policy(context.config, context.spaces)
    for version in (1, 2):
        before = actor.policy.priorities(rows)
        actor.pull_parameters()
        assert actor.version == version
        other.set_parameters(context.parameters.pull().parameters)
        np.testing.assert_array_equal(actor.policy.priorities(rows), other.priorities(rows))
        assert not np.array_equal(actor.policy.priorities(rows), before)
        newer = np.random.default_rng(1).normal(size=other.parameter_count).astype(np.float32)
        context.parameters.publish(newer, version)


def test_actor_that_is_told_to_stop_does_not_wait_for_the_learner():
    actor, context, _ = actor_of(replay_start=1, slack=1, samples_per_insert=1.0)
    context.replay.limiter.inserted(10_000)  # far ahead of the learner
    context.stop.request()
    actor.play()
    actor.send(actor.fold())
    assert len(context.replay.buffer) == 0
    actor.run()  # ends at once


def test_every_actor_and_every_life_has_a_stream_of_its_own():
    seeds = RunSeeds(Config(seed=1))
    streams = [seeds.actor(*which) for which in [(0, 0, 0), (1, 0, 0), (0, 250, 0), (0, 0, 1)]]
    streams += [np.random.SeedSequence(1).spawn(1)[0], seeds.replay, RunSeeds(Config(seed=2)).actor(0, 0, 0)]
    assert len({tuple(stream.generate_state(4).tolist()) for stream in streams}) == len(streams)


def played(actor, rounds):
    """What an actor does from now on, all of it."""
    for _ in range(rounds):
        actor.play()
        rows = actor.fold()
        yield {name: values.tolist() for name, values in rows.items()}


@pytest.mark.parametrize("before", [0, 1, 2, 5])
def test_restored_actor_goes_on_as_the_one_whose_state_was_copied(before):
    actor, context, told = actor_of("CartPole-v1", send_interval=7, actors=0)
    actor.pull_parameters()
    list(played(actor, before))
    state = actor.state()
    other = Actor(context, 0, RunSeeds(context.config).actor(0, 0, 9))
    other.pull_parameters()
    other.restore(state)
    assert list(played(other, 4)) == list(played(actor, 4))
    assert other.state()["seeds"] == actor.state()["seeds"]
    assert other.state()["returns"] == actor.state()["returns"]
    assert other.lengths == actor.lengths == [len(actions) for actions in actor.actions]
    assert told == []


def test_actor_beside_others_keeps_no_actions_of_an_episode_without_end():
    actor, *_ = actor_of("small_environments:Endless-v0", actors=1)
    list(played(actor, 3))
    assert (actor.lengths, actor.actions) == ([36, 36], [[], []])


def test_environment_that_does_not_repeat_itself_begins_a_new_episode():
    actor, context, told = actor_of(send_interval=12, actors=0)
    list(played(actor, 1))  # 2 whole episodes and 2 steps of a third, which knows that it is the third
    state = actor.state()
    other = Actor(context, 0, RunSeeds(context.config).actor(0, 0, 9))
    other.restore(state)
    assert ["environment 0" in told[0].text, "environment 1" in told[1].text, len(told)] == [True, True, 2]
    rows = next(played(other, 1))
    assert len(rows["obs"]) == 2 * 10  # two whole episodes each: nothing has waited from before
    assert rows["obs"][0][1] == 0.0
    assert other.observations[0, 1] == 2.0
