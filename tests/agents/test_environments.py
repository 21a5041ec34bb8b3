"""Environments that can't be learned are refused; and a few environments for the other tests, some of them evil.

Other tests name them as `test_apex_environments:Counting-v0`, which works in spawned processes, too.
"""

import multiprocessing
import os
import signal
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Sequence, Tuple
from gymnasium.wrappers import FrameStackObservation, TransformObservation

from replay_tutorial.agents.agent import agent_name
from replay_tutorial.agents.environments import (
    UnsupportedEnvironment,
    make_environment,
    playable,
    solved_threshold,
    spaces_of,
)
from replay_tutorial.apex.config import Config

EPISODE_LENGTH = 5


class Counting(gym.Env):
    """Shows the number of the episode and of the step; even episodes are truncated, odd ones terminate."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Discrete(2)
    episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.step_number = 0
        return self.observation(), {}

    def step(self, action):
        self.step_number += 1
        over = self.step_number == EPISODE_LENGTH
        odd = bool(self.episode % 2)
        return self.observation(), 1.0, over and odd, over and not odd, {}

    def observation(self):
        return np.array([self.episode, self.step_number], np.float32)


class Crashing(Counting):
    """Fails in the middle of its ninth episode, but only in a process of its own."""

    def step(self, action):
        if self.episode == 8 and multiprocessing.parent_process() is not None:
            self.fall()
        return super().step(action)

    def fall(self):
        raise ArithmeticError("the pole is broken")


class Dying(Crashing):
    """As `Crashing`, but the whole process is killed."""

    def fall(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Scoring(Counting):
    """Reports its score so far, and a game that goes on, in words that others use, too."""

    def step(self, action):
        *step, _ = super().step(action)
        return *step, {"score": 10.0 * self.step_number, "game_over": False}


class FromTen(Counting):
    """Its actions are 10 and 11."""

    action_space = Discrete(2, start=10)

    def step(self, action):
        if not self.action_space.contains(np.int64(action)):
            raise ValueError(action)
        return super().step(action)


class Endless(Counting):
    """Never ends, and has no time limit."""

    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, False, False, {}


class Showing(Counting):
    """Shows whatever `observation_space` has at first."""

    def observation(self):
        self.observation_space.seed(self.step_number)
        return self.observation_space.sample()


class SmallPictures(Showing):
    observation_space = Box(0, 255, (4, 4), np.uint8)


class GreyPictures(Showing):
    observation_space = Box(0, 255, (40, 60), np.uint8)


class ColourPictures(Showing):
    observation_space = Box(0, 255, (40, 60, 3), np.uint8)


class StackedPictures(Showing):
    observation_space = Box(0, 255, (4, 40, 60), np.uint8)


def last_pictures():
    """As `StackedPictures`, but by the wrapper that says so; the picture comes into it and out of it as a negative."""
    negative = (lambda seen: 255 - seen, None)
    stack = FrameStackObservation(TransformObservation(GreyPictures(), *negative), 4)
    return TransformObservation(stack, *negative)


if "LastPictures-v0" not in gym.registry:
    gym.register("LastPictures-v0", entry_point=f"{__name__}:last_pictures")


class Grid(Showing):
    observation_space = Box(-1, 1, (2, 3), np.float64)


class Rooms(Showing):
    observation_space = Discrete(5)


class Nested(Showing):
    observation_space = Dict({"goal": Tuple((Discrete(3), Box(0, 1, (2,)))), "bits": MultiBinary(4)})


class Sentences(Showing):
    observation_space = Sequence(Discrete(5))


class Buttons(Counting):
    action_space = MultiBinary(3)


class Boundless(Counting):
    action_space = Box(-np.inf, np.inf, (2,))


class Levers(Counting):
    """Tells what it was given, and refuses what lies outside."""

    action_space = Box(np.float16([[0.0], [-10.0]]), np.float16([[1.0], [30.0]]), dtype=np.float16)

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(action)
        return self.observation(), 0.0, False, False, {"given": action.ravel().tolist()}


class NeedsBox2D(Counting):
    def __init__(self):
        raise gym.error.DependencyNotInstalled("Box2D is not installed")


for made in [Counting, *Counting.__subclasses__(), *Crashing.__subclasses__(), *Showing.__subclasses__()]:
    name = f"{made.__name__}-v0"
    if name not in gym.registry:
        gym.register(name, entry_point=f"{__name__}:{made.__name__}")


def test_spaces_of_cart_pole():
    spaces = spaces_of("CartPole-v1")
    assert (spaces.observation_shape, spaces.action_count, spaces.is_continuous) == ((4,), 2, False)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ("NoSuchThing-v0", "NoSuchThing"),
        ("no_such_module:Thing-v0", "no_such_module"),
        ("NoBox2DHere-v0", "doesn't exist"),
        ("Sentences-v0", "no fixed size"),
        ("Buttons-v0", "needs Discrete"),
        ("Boundless-v0", "no bounds"),
        ("NeedsBox2D-v0", r'pip install "replay_tutorial\[box2d\]"'),
    ],
)
def test_environment_that_cannot_be_learned_is_refused_with_the_reason(environment, reason):
    with pytest.raises(UnsupportedEnvironment, match=reason):
        spaces_of(environment)


def test_actions_are_counted_from_zero_whatever_the_environment_counts_from():
    environment = make_environment("FromTen-v0")
    assert environment.action_space == Discrete(2)
    environment.reset(seed=0)
    for action in range(2):
        environment.step(action)


def test_threshold_is_gymnasiums():
    assert solved_threshold("CartPole-v1") == 475.0
    assert solved_threshold("test_apex_environments:Counting-v0") is None


@pytest.mark.parametrize(
    ("environment", "shape"),
    [
        ("SmallPictures-v0", (16,)),
        ("GreyPictures-v0", (1, 40, 60)),
        ("ColourPictures-v0", (3, 40, 60)),
        ("StackedPictures-v0", (4, 40, 60)),
        ("Grid-v0", (6,)),
        ("Rooms-v0", (5,)),
        ("Nested-v0", (3 + 2 + 4,)),
    ],
)
def test_observations_become_flat_or_pictures(environment, shape):
    assert spaces_of(environment).observation_shape == shape
    made = make_environment(environment)
    for observation in (made.reset(seed=0)[0], made.step(0)[0]):
        assert made.observation_space.contains(observation)
        assert observation.shape == shape
        assert observation.any()


def test_colours_are_the_first_axis_of_a_picture():
    made = make_environment("ColourPictures-v0")
    observation, _ = made.reset(seed=0)
    shown = made.unwrapped.observation()
    np.testing.assert_array_equal(observation[0], shown[:, :, 0])
    grey = make_environment("GreyPictures-v0")
    observation, _ = grey.reset(seed=0)
    np.testing.assert_array_equal(observation[0], grey.unwrapped.observation())


@pytest.mark.parametrize(
    ("environment", "stacked"),
    [
        ("LastPictures-v0", True),
        ("StackedPictures-v0", False),
        ("ColourPictures-v0", False),
        ("Grid-v0", False),
    ],
)
def test_pictures_are_a_stack_where_gymnasiums_wrapper_says_so(environment, stacked):
    assert spaces_of(environment).stacked == stacked


def test_actions_from_minus_one_to_one_reach_all_of_the_box():
    made = make_environment("Levers-v0")
    spaces = spaces_of("Levers-v0")
    assert spaces.is_continuous
    assert spaces.action == Box(-1.0, 1.0, (2,), np.float32)
    made.reset(seed=0)
    batch = np.array([[-1, -1], [1, 1], [0, -0.5]], np.float32)
    given = [made.step(action)[4]["given"] for action in playable(batch)]
    assert given == [[0.0, -10.0], [1.0, 30.0], [0.5, 0.0]]


def test_batch_of_actions_is_dealt_out():
    assert playable(np.array([2, 0])) == [2, 0]
    first, second = playable(np.array([[0.5], [1.0]], np.float32))
    assert (first.shape, second.tolist()) == ((1,), [1.0])


@pytest.mark.parametrize(
    ("environment", "asked", "name"),
    [
        ("CartPole-v1", None, "dqn"),
        ("CartPole-v1", "dqn", "dqn"),
        ("Pendulum-v1", None, "dpg"),
        ("Pendulum-v1", "dpg", "dpg"),
    ],
)
def test_actions_decide_the_agent(environment, asked, name):
    assert agent_name(Config(environment=environment, agent=asked), spaces_of(environment)) == name


@pytest.mark.parametrize(("environment", "asked"), [("CartPole-v1", "dpg"), ("Pendulum-v1", "dqn")])
def test_agent_that_does_not_fit_the_actions_is_refused(environment, asked):
    with pytest.raises(UnsupportedEnvironment, match=f"agent is {asked}"):
        agent_name(Config(environment=environment, agent=asked), spaces_of(environment))


@pytest.mark.parametrize(
    ("blocked", "environment", "extra"),
    [("ale_py", "ALE/Pong-v5", "atari"), ("Box2D", "LunarLander-v3", "box2d")],
)
def test_missing_package_is_told_with_the_command_that_brings_it(blocked, environment, extra):
    code = f"""
import sys
sys.modules[{blocked!r}] = None
from replay_tutorial.agents.environments import spaces_of
spaces_of({environment!r})
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert f'pip install "replay_tutorial[{extra}]"' in last


def test_lunar_lander_can_be_made():
    pytest.importorskip("Box2D", reason="needs the extra `box2d`")
    spaces = spaces_of("LunarLander-v3")
    assert (spaces.observation_shape, spaces.action_count) == ((8,), 4)
