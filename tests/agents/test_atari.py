"""Atari games: what is seen, how a life and a game end, and which reward is the score's."""

from dataclasses import replace

import numpy as np
import pytest

from replay_tutorial.agents.atari import GAME_OVER, SCORE
from replay_tutorial.agents.environments import UnsupportedEnvironment, make_environment, spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.parts import make_agent, make_policy
from replay_tutorial.apex.storage import make_replay, n_step_windows

pytest.importorskip("ale_py", reason="needs the extra `games`")
pytest.importorskip("cv2", reason="needs the extra `games`")


def played(environment, steps, seed=0):
    """Observation before, and what each random step brought."""
    generator = np.random.default_rng(seed)
    observation, _ = environment.reset(seed=seed)
    for _ in range(steps):
        step = environment.step(int(generator.integers(environment.action_space.n)))
        yield observation, step
        observation = step[0]
        if step[2] or step[3]:
            observation, _ = environment.reset()


def test_four_grey_pictures_are_seen_and_the_newest_is_the_last():
    environment = make_environment("ALE/Breakout-v5")
    spaces = spaces_of("ALE/Breakout-v5")
    assert spaces.observation_shape == (4, 84, 84)
    assert spaces.observation.dtype == np.uint8
    assert spaces.stacked
    for before, (after, *_) in played(environment, 50):
        np.testing.assert_array_equal(after[:3], before[1:])
    assert after.max() > 100
    assert not np.array_equal(after[0], after[3])


def test_small_pictures_show_the_same_game():
    usual, small = make_environment("ALE/Pong-v5"), make_environment("SmallALE/Pong-v5")
    spaces = spaces_of("SmallALE/Pong-v5")
    assert (spaces.observation_shape, spaces.stacked, spaces.time_limit) == ((4, 42, 42), True, True)
    for (large, (_, reward, *_)), (seen, (_, same, *_)) in zip(
        played(usual, 200), played(small, 200), strict=True
    ):
        halved = large.reshape(4, 42, 2, 42, 2).mean((2, 4))
        assert np.abs(halved - seen).mean() < 2.0
        assert reward == same


def test_each_life_is_an_episode_to_learn_from_and_the_score_is_that_of_the_whole_game():
    environment = make_environment("ALE/Breakout-v5", training=True)
    steps = [step for _, step in played(environment, 700)]
    ends = [(info["lives"], info[GAME_OVER]) for _, _, terminated, _, info in steps if terminated]
    # Five lives a game, and the next game begins only after the fifth.
    expected = [(4, False), (3, False), (2, False), (1, False), (0, True)] * len(ends)
    assert ends == expected[: len(ends)]
    assert len(ends) > 5
    rewards, scores = [float(step[1]) for step in steps], [step[4][SCORE] for step in steps]
    assert rewards == np.sign(scores).tolist()
    assert sum(rewards) > 0


def test_rewards_to_learn_from_are_clipped_and_the_score_is_kept():
    environment = make_environment("ALE/MsPacman-v5", training=True)
    steps = [step for _, step in played(environment, 200)]
    assert {float(reward) for _, reward, *_ in steps} == {0.0, 1.0}
    assert max(info[SCORE] for *_, info in steps) >= 10.0


def test_evaluated_game_goes_on_after_a_lost_life_and_pays_in_full():
    environment = make_environment("ALE/MsPacman-v5")
    rewards, lives = [], set()
    for _, (_, reward, terminated, truncated, info) in played(environment, 1_000):
        rewards.append(float(reward))
        lives.add(info["lives"])
        if terminated or truncated:
            break
    assert lives == {3, 2, 1, 0}
    assert max(rewards) >= 10.0


def test_stack_of_a_new_life_does_not_reach_into_the_last_one():
    environment = make_environment("ALE/Breakout-v5", training=True)
    environment.reset(seed=0)
    while not environment.step(1)[2]:
        pass
    observation, _ = environment.reset()
    assert (observation == observation[3]).all()


def test_unknown_game_is_refused_with_the_reason():
    with pytest.raises(UnsupportedEnvironment, match="`NoSuchGame` doesn't exist"):
        spaces_of("ALE/NoSuchGame-v5")


@pytest.mark.learns
def test_agent_of_the_papers_preset_learns_from_pictures():
    config = preset("ALE/Pong-v5")
    spaces = spaces_of("ALE/Pong-v5")
    agent, policy = make_agent(config, spaces), make_policy(config, spaces)
    policy.set_parameters(agent.parameters())
    generator = np.random.default_rng(0)
    rows = {
        "obs": generator.integers(256, size=(4, 4, 84, 84), dtype=np.uint8),
        "action": generator.integers(6, size=4),
        "reward": generator.normal(size=4).astype(np.float32),
        "next_obs": generator.integers(256, size=(4, 4, 84, 84), dtype=np.uint8),
        "discount": generator.random(4).astype(np.float32),
    }
    by_actor = policy.priorities(rows)
    losses = [agent.update(rows, np.ones(4, np.float32)) for _ in range(20)]
    np.testing.assert_allclose(by_actor, losses[0].priorities, rtol=1e-3, atol=1e-4)
    assert losses[-1].metrics["td_loss"] < losses[0].metrics["td_loss"] / 2


def test_the_papers_replay_of_two_million_rows_keeps_each_picture_once():
    """Reserved, not touched: 17 GB, where observations side by side would take 113 GB."""
    config = preset("ALE/Breakout-v5")
    small = make_replay(
        replace(config, capacity=50_000), spaces_of("ALE/Breakout-v5"), np.random.SeedSequence(0)
    )
    assert config.capacity == 2_000_000
    assert small.bytes_per_transition * config.capacity < 20e9


def test_what_an_actor_sends_comes_back_from_the_replay_as_it_was():
    config = replace(
        preset("ALE/Breakout-v5"), capacity=1_000, replay_start=1, n_step=3, environments_per_actor=1
    )
    spaces = spaces_of("ALE/Breakout-v5")
    windows, memory = n_step_windows(config, spaces), make_replay(config, spaces, np.random.SeedSequence(0))
    sent = []
    steps = {name: [] for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated")}
    for before, (after, reward, terminated, truncated, _) in played(
        make_environment("ALE/Breakout-v5", training=True), 400
    ):
        for name, value in zip(steps, (before, 0, reward, after, terminated, truncated), strict=True):
            steps[name].append(value)
        if len(steps["obs"]) == 50:
            rows = windows.add(0, **{name: np.asarray(values) for name, values in steps.items()})
            memory.add(**rows, priorities=np.ones(len(rows["obs"])))
            sent.append(rows)
            steps = {name: [] for name in steps}
    sample = memory.sample(500)
    for name in ("obs", "next_obs", "reward", "discount"):
        np.testing.assert_array_equal(
            sample[name], np.concatenate([rows[name] for rows in sent])[sample["indexes"]]
        )
    assert memory.statistics().frames_added < 1.25 * len(memory)
