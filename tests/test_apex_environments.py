"""Environments that can't be learned are refused; and a few environments for the other tests, some of them evil.

Other tests name them as `test_apex_environments:Counting-v0`, which works in spawned processes, too.
"""

import multiprocessing
import os
import signal

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary

from replay_tutorial.apex.environments import (
    UnsupportedEnvironment,
    make_environment,
    solved_threshold,
    spaces_of,
)

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


class FromTen(Counting):
    """Its actions are 10 and 11."""

    action_space = Discrete(2, start=10)

    def step(self, action):
        if not self.action_space.contains(np.int64(action)):
            raise ValueError(action)
        return super().step(action)


class Pictures(Counting):
    observation_space = Box(0, 255, (4, 4), np.uint8)


class Buttons(Counting):
    action_space = MultiBinary(3)


for made in (Counting, Crashing, Dying, FromTen, Pictures, Buttons):
    name = f"{made.__name__}-v0"
    if name not in gym.registry:
        gym.register(name, entry_point=f"{__name__}:{made.__name__}")


def test_spaces_of_cart_pole():
    spaces = spaces_of("CartPole-v1")
    assert (spaces.observation_size, spaces.action_count) == (4, 2)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ("NoSuchThing-v0", "NoSuchThing"),
        ("no_such_module:Thing-v0", "no_such_module"),
        ("Pendulum-v1", "needs Discrete"),
        ("Buttons-v0", "needs Discrete"),
        ("Pictures-v0", "flat Box"),
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
