"""Playing: the GIF shows the whole episode of the policy that was chosen."""

import os

import numpy as np
import pytest
from PIL import Image

from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.agents.evaluation import evaluate
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.runs.gif import play


def policy_of(environment):
    policy = make_policy(preset(environment), spaces_of(environment))
    policy.set_parameters(np.random.default_rng(0).normal(size=policy.parameter_count).astype(np.float32))
    return policy


def pictures_of(path):
    with Image.open(path) as image:
        shown = []
        for number in range(image.n_frames):
            image.seek(number)
            shown.append(np.asarray(image.convert("RGB")))
        return shown


def test_episode_is_the_one_that_is_evaluated_and_every_step_is_a_picture(tmp_path):
    environment = "CartPole-v1"
    policy = policy_of(environment)
    played = play(policy, environment, 7, tmp_path / "play.gif", max_steps=200)
    assert played.ended
    assert played.total == evaluate(policy.act_greedily, environment, [7]).returns[0]
    shown = pictures_of(tmp_path / "play.gif")
    assert played.steps * 0.9 <= len(shown) <= played.steps + 1  # equal neighbours are one picture
    assert shown[0].shape[2] == 3
    assert not np.array_equal(shown[0], shown[-1])


def test_long_episode_is_cut_and_the_ending_may_be_in_capitals(tmp_path):
    played = play(policy_of("Pendulum-v1"), "Pendulum-v1", 7, tmp_path / "PLAY.GIF", max_steps=5)
    assert (played.steps, played.ended) == (5, False)
    assert len(pictures_of(tmp_path / "PLAY.GIF")) <= 6


def test_width_is_that_of_the_gif_and_no_window_is_asked_for(tmp_path, monkeypatch):
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        monkeypatch.delenv(name, raising=False)
    play(policy_of("CartPole-v1"), "CartPole-v1", 7, tmp_path / "play.gif", max_steps=2, width=150)
    shown = pictures_of(tmp_path / "play.gif")
    assert {picture.shape for picture in shown} == {(100, 150, 3)}  # 600 by 400 without it
    assert shown[0].min() < 100  # the cart is in the picture
    assert os.environ["SDL_VIDEODRIVER"] == os.environ["SDL_AUDIODRIVER"] == "dummy"


@pytest.mark.parametrize("name", ["play.mp4", "play"])
def test_name_of_no_gif_is_refused_before_an_episode_is_played(tmp_path, name):
    with pytest.raises(ValueError, match=r"only GIFs can be written.*ends in \.gif"):
        play(policy_of("CartPole-v1"), "CartPole-v1", 7, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_environment_without_pictures_is_refused(tmp_path):
    name = "small_environments:Counting-v0"
    with pytest.raises(ValueError, match="render mode rgb_array"):
        play(policy_of(name), name, 0, tmp_path / "play.gif")
    assert list(tmp_path.iterdir()) == []
