"""A few environments for the tests, some of them evil.

Tests name them as `small_environments:Counting-v0`, which works in spawned processes, too.
"""

import multiprocessing
import sys
import threading
from functools import partial

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Sequence, Tuple
from gymnasium.wrappers import FrameStackObservation, TransformObservation

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
        if self.episode == 8 and (multiprocessing.parent_process() or "default_worker" in sys.argv[0]):
            raise ArithmeticError("the pole is broken")
        return super().step(action)


hang_ends = threading.Event()  # set by a test that has seen the report of the hang


class Faulty(Counting):
    """Does something wrong in its third episode: at its reset, or in the second of its steps."""

    def __init__(self, fault):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        if self.fault == "exit at reset" and self.episode == 2:
            sys.exit(0)
        return observation, info

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.episode != 2 or self.step_number != 2:
            return observation, reward, *rest
        if self.fault == "exit":
            sys.exit(0)
        if self.fault == "hang":
            hang_ends.wait(60)
        wrong = {"nan observation": ([2, np.nan], 1.0), "infinite reward": (observation, -np.inf)}
        wrong |= {"large reward": (observation, 1e39), "no reward": (observation, None)}
        observation, reward = wrong.get(self.fault, (observation, reward))
        return np.array(observation, np.float32), reward, *rest


FAULTS = {
    "nan observation": r"step 2 of an episode of .* returned nan in element \[1\] of the observation",
    "infinite reward": r"step 2 of an episode of .* returned -inf as the reward",
    "large reward": r"step 2 of an episode of .* returned 1e\+39 as the reward; .* float32 can hold",
    "no reward": r"step 2 of an episode of .* returned None as the reward",
    "exit": r"step 2 of an episode of .* called sys.exit\(0\), in .*small_environments.py, line \d+",
    "exit at reset": r"reset of .* called sys.exit\(0\), in .*small_environments.py, line \d+",
}


class ExitingAtItsEnd(Counting):
    """Ends the process when it is closed."""

    def close(self):
        sys.exit(0)


class Exiting(Counting):
    """Ends the process as soon as it is made."""

    def __init__(self):
        sys.exit(0)


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
    """Shows whatever its observation space has at first."""

    def __init__(self, observation_space):
        self.observation_space = observation_space

    def observation(self):
        self.observation_space.seed(self.step_number)
        return self.observation_space.sample()


GREY = Box(0, 255, (40, 60), np.uint8)
SPACES = {
    "SmallPictures": Box(0, 255, (4, 4), np.uint8),
    "GreyPictures": GREY,
    "ColourPictures": Box(0, 255, (40, 60, 3), np.uint8),
    "StackedPictures": Box(0, 255, (4, 40, 60), np.uint8),
    "Grid": Box(-1, 1, (2, 3), np.float64),
    "Rooms": Discrete(5),
    "Nested": Dict({"goal": Tuple((Discrete(3), Box(0, 1, (2,)))), "bits": MultiBinary(4)}),
    "Sentences": Sequence(Discrete(5)),
}


def last_pictures():
    """As `StackedPictures`, by the wrapper that says so; the picture is a negative in it and after it."""
    negative = (lambda seen: 255 - seen, None)
    stack = FrameStackObservation(TransformObservation(Showing(GREY), *negative), 4)
    return TransformObservation(stack, *negative)


class Film(gym.Env):
    """Pictures that follow from the seed and the actions of an episode, so that it can be repeated."""

    observation_space = Box(0, 255, (36, 36), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 12))
        return self.picture(), {}

    def step(self, action):
        self.left -= 1
        ends = self.left == 0 and self.np_random.random() < 0.5
        return self.picture(), float(action), ends, self.left == 0 and not ends, {}

    def picture(self):
        return self.np_random.integers(0, 256, (36, 36), np.uint8)


class Tiles(Counting):
    """As MinAtar shows its games: a bit per square and kind of thing, and the kinds are the last axis."""

    observation_space = Box(0, 1, (10, 10, 10), bool)

    def observation(self):
        return np.random.default_rng(self.step_number).random((10, 10, 10)) < 0.5


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


COUNTING = [kind.__name__ for kind in [Counting, *Counting.__subclasses__()] if kind is not Faulty]
ENVIRONMENTS = {
    "MinAtar/Tiles-v0": Tiles,
    "Film-v0": lambda: FrameStackObservation(Film(), 4),
    "LastPictures-v0": last_pictures,
    **{f"{name}-v0": f"{__name__}:{name}" for name in COUNTING},
    **{f"{name}-v0": partial(Showing, space) for name, space in SPACES.items()},
    **{f"{fault.title().replace(' ', '')}-v0": partial(Faulty, fault) for fault in [*FAULTS, "hang"]},
}
for name, entry_point in ENVIRONMENTS.items():
    if name not in gym.registry:
        gym.register(name, entry_point=entry_point)
