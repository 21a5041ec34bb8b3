"""Environments: bring them to a form that the networks know, and refuse the others before any process starts.

gymnasium has many spaces, a network reads arrays of numbers. So whatever an environment shows becomes a flat Box or a
picture, and whatever it takes becomes 0, 1, 2, ... or numbers from -1 to 1; everything above this file sees only those.
What can't be brought to that form is refused once, in the parent, where an error is one line for the reader instead of
a traceback from each actor.

Left out: Sequence and Graph observations, MultiDiscrete and MultiBinary actions, vector environments. (Actors step
a plain list of environments: nothing resets them behind our back, so the observation after the last step is always the
true one.)
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (gymnasium's spaces are generic over types that are only known when the program runs)

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import (
    FlattenObservation,
    FrameStackObservation,
    TransformAction,
    TransformObservation,
)
from numpy.typing import NDArray

from replay_tutorial.agents import atari

# gymnasium's Env is generic over observation and action; `spaces_of` has checked both.
Environment = gym.Env[Any, Any]

LEAST_SIDE = 36  # pixels: the least that leaves something of a picture after the network's three convolutions


class UnsupportedEnvironment(ValueError):
    """There is no such environment, or this agent can't learn in it; the message says why."""


class Spaces(NamedTuple):
    """The two spaces of an environment that `train` accepts."""

    observation: Box  # of shape (size,), or a picture: uint8 (channels, height, width)
    action: Discrete | Box  # 0, 1, 2, ..., or a Box of shape (size,) from -1 to 1
    stacked: bool = False  # whether a picture's channels are the last few pictures, not its colours

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """One length: numbers in an observation. Three: a picture's channels, height and width."""
        return tuple(self.observation.shape)

    @property
    def action_count(self) -> int:
        """Number of Discrete actions, or numbers in one of a Box."""
        return int(self.action.n) if isinstance(self.action, Discrete) else int(self.action.shape[0])

    @property
    def is_continuous(self) -> bool:
        """Whether actions are numbers from -1 to 1."""
        return isinstance(self.action, Box)


def make_environment(name: str, *, training: bool = False, render: bool = False) -> Environment:
    """Make one environment in the form that `Spaces` describes.

    Args:
        name: A registered gymnasium name, or `module:Name-v0`, which imports the module first.
        training: Whether to learn from it: in an Atari game rewards are then clipped, and a lost life ends an episode.
        render: Whether `render` is to give pictures.

    Raises:
        UnsupportedEnvironment: If there is no such environment, a package is missing, or its spaces aren't supported;
            the message says which, and what helps.
    """
    mode = "rgb_array" if render else None
    try:
        if name.startswith(atari.PREFIX):
            environment: Environment = atari.make(name, training, mode)
        else:  # not every environment knows the argument
            environment = gym.make(name, render_mode=mode) if render else gym.make(name)
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise UnsupportedEnvironment(f"can't make the environment {name!r}: {reason_of(error)}") from error
    try:
        return with_plain_actions(with_plain_observations(environment))
    except UnsupportedEnvironment as error:
        environment.close()
        raise UnsupportedEnvironment(f"{name} has {error}") from None


def reason_of(error: Exception) -> str:
    """Return why an environment couldn't be made; a missing package with the command that brings it."""
    text = f"{error} {getattr(error, 'name', '')}".lower()
    missing = isinstance(error, ModuleNotFoundError | gym.error.DependencyNotInstalled)
    for extra, signs in {"box2d": ["box2d"], "atari": ["ale_py", "opencv"]}.items():
        if missing and any(sign in text for sign in signs):
            return f'it needs the extra `{extra}`: pip install "replay_tutorial[{extra}]"'
    return str(error)


def with_plain_observations(environment: Environment) -> Environment:
    """Return an environment that shows a flat Box or a picture (channels, height, width).

    Raises:
        UnsupportedEnvironment: If its values have no fixed size.
    """
    space: Any = environment.observation_space
    if not space.is_np_flattenable:
        raise UnsupportedEnvironment(
            f"the observation space {space}, whose values have no fixed size. train needs Box, Discrete, "
            "MultiDiscrete, MultiBinary, or a Dict or Tuple of them."
        )
    if not isinstance(space, Box):
        return FlattenObservation(environment)
    shape = space.shape
    if space.dtype == np.uint8 and len(shape) in (2, 3) and sorted(shape)[-2] >= LEAST_SIDE:
        if len(shape) == 3 and shape[0] == min(shape):
            return environment
        pictures = Box(channels_first(space.low), channels_first(space.high), dtype=np.uint8)
        return TransformObservation(environment, channels_first, pictures)
    return environment if len(shape) == 1 else FlattenObservation(environment)


def channels_first(picture: NDArray[Any]) -> NDArray[Any]:
    """Return a picture (height, width[, channels]) as (channels, height, width); a grey one has one channel."""
    return np.ascontiguousarray(np.moveaxis(np.atleast_3d(picture), 2, 0))


def with_plain_actions(environment: Environment) -> Environment:
    """Return an environment that takes 0, 1, 2, ... or numbers from -1 to 1.

    Raises:
        UnsupportedEnvironment: If its actions are of another kind, or have no bounds.
    """
    space: Any = environment.action_space
    if isinstance(space, Discrete):
        if space.start == 0:
            return environment
        first = int(space.start)
        # The network's outputs are counted from 0, so the stored actions are too.
        return TransformAction(environment, lambda action: action + first, Discrete(int(space.n)))
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise UnsupportedEnvironment(
            f"the action space {space}; train needs Discrete (for DQN) or a Box of floats (for DPG)."
        )
    if not space.is_bounded():
        raise UnsupportedEnvironment(
            f"the action space {space}, which has no bounds; DPG needs to know the least and the greatest "
            "action. gymnasium.wrappers.RescaleAction or ClipAction can set them."
        )
    low, high, shape = space.low, space.high, space.shape

    def scaled(action: NDArray[Any]) -> NDArray[Any]:
        """Return the action of the environment for one of ours; rounding leads to no value outside."""
        inner = low + (action.reshape(shape) + 1.0) / 2.0 * (high - low)
        return np.clip(inner, low, high).astype(space.dtype)

    size = int(np.prod(shape))
    return TransformAction(environment, scaled, Box(-1.0, 1.0, (size,), np.float32))


def playable(actions: NDArray[Any]) -> list[Any]:
    """Return a batch of actions as what `step` takes: whole numbers, or arrays."""
    return actions.tolist() if actions.ndim == 1 else list(actions)


def spaces_of(name: str) -> Spaces:
    """Return an environment's spaces, as `make_environment` makes it.

    Raises:
        UnsupportedEnvironment: If there is no such environment, or the agent can't learn in it; the message names
            the space and what is supported.
    """
    environment = make_environment(name)
    observation: Any = environment.observation_space
    action: Any = environment.action_space
    stacked = shows_a_stack(environment)
    environment.close()
    return Spaces(observation, action, stacked)


def shows_a_stack(environment: Environment) -> bool:
    """Tell whether observations are the last few pictures: gymnasium's own wrapper is the only one that says so."""
    shape = environment.observation_space.shape
    while isinstance(environment, gym.Wrapper):
        if isinstance(environment, FrameStackObservation):
            return environment.observation_space.shape == shape
        environment = environment.env
    return False


def solved_threshold(name: str) -> float | None:
    """Return the mean return above which gymnasium calls an environment solved; None if it doesn't say."""
    environment = make_environment(name)  # gymnasium.spec doesn't know `module:Name-v0`
    environment.close()
    spec = environment.unwrapped.spec
    return None if spec is None else spec.reward_threshold
