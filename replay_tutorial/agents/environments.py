"""Environments: wrap them into forms that the networks take; refuse the others before a process starts.

gymnasium has many spaces, a network reads arrays of numbers. So every observation becomes a flat Box or an
image, and every action becomes 0, 1, 2, ... or a vector in [-1, 1]; the rest of the package sees only those.
What can't be wrapped is refused once, in the parent process, with one line for the reader instead of a
traceback from each actor.

Left out: Sequence and Graph observations, MultiDiscrete and MultiBinary actions, vector environments. (Actors
step a plain list of environments: none resets itself, so the observation after the last step is always the
true one.)
"""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import wrappers
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from replay_tutorial.agents import atari

# gymnasium's Env is generic over observation and action; `spaces_of` has checked both.
Environment = gym.Env[Any, Any]

MIN_SIDE = 36  # pixels: smaller images have no pixel left after the torso's three convolutions


class UnsupportedEnvironment(ValueError):
    """There is no such environment, or this agent can't learn in it; the message says why."""


class Spaces(NamedTuple):
    """The two spaces of an environment that `train` accepts, and what it declares beside them."""

    observation: Box  # of shape (size,), or an image: uint8 (channels, height, width)
    action: Discrete | Box  # 0, 1, 2, ..., or a Box of shape (size,) from -1 to 1
    stacked: bool = False  # whether an image's channels are the last few frames, not its colours
    time_limit: bool = True  # whether its episodes are cut after a number of steps
    solved_at: float | None = None  # the mean return at which gymnasium calls it solved, if it says so

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """`(size,)`, or an image's `(channels, height, width)`."""
        return tuple(self.observation.shape)

    @property
    def action_count(self) -> int:
        """Number of Discrete actions, or the size of a Box."""
        return int(self.action.n) if isinstance(self.action, Discrete) else int(self.action.shape[0])

    @property
    def is_continuous(self) -> bool:
        """Whether an action is a vector in [-1, 1]."""
        return isinstance(self.action, Box)


def make_environment(name: str, *, training: bool = False, render: bool = False) -> Environment:
    """Make one environment in the form that `Spaces` describes.

    Args:
        name: A registered gymnasium name, or `module:Name-v0`, which imports the module first.
        training: For an Atari game: whether rewards are clipped, and a lost life ends an episode.
        render: Whether `render` returns images.

    Raises:
        UnsupportedEnvironment: If there is no such environment, a package is missing, or its spaces aren't
            supported; the message names the cause and the remedy.
    """
    mode = "rgb_array" if render else None
    try:
        if name.startswith(atari.PREFIX):
            environment: Environment = atari.make(name, training, mode)
        else:
            # Not every environment takes the argument render_mode.
            environment = gym.make(name, render_mode=mode) if render else gym.make(name)
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise UnsupportedEnvironment(f"can't make the environment {name!r}: {reason_of(error)}") from error
    try:
        return with_plain_actions(with_plain_observations(environment))
    except UnsupportedEnvironment as error:
        environment.close()
        raise UnsupportedEnvironment(f"{name} has {error}") from None


def reason_of(error: Exception) -> str:
    """Return why an environment couldn't be made; for a missing package, the command that installs it."""
    text = f"{error} {getattr(error, 'name', '')}".lower()
    missing = isinstance(error, ModuleNotFoundError | gym.error.DependencyNotInstalled)
    for extra, packages in {"box2d": ["box2d"], "atari": ["ale_py", "opencv"]}.items():
        if missing and any(package in text for package in packages):
            return f'it needs the extra `{extra}`: pip install "replay_tutorial[{extra}]"'
    return str(error)


def with_plain_observations(environment: Environment) -> Environment:
    """Return an environment whose observations are a flat Box or an image (channels, height, width).

    Raises:
        UnsupportedEnvironment: If its observations have no fixed size.
    """
    space: Any = environment.observation_space
    if not space.is_np_flattenable:
        raise UnsupportedEnvironment(
            f"the observation space {space}, whose values have no fixed size. train needs Box, Discrete, "
            "MultiDiscrete, MultiBinary, or a Dict or Tuple of them."
        )
    if not isinstance(space, Box):
        return wrappers.FlattenObservation(environment)
    shape = space.shape
    if space.dtype == np.uint8 and len(shape) in (2, 3) and sorted(shape)[-2] >= MIN_SIDE:
        if len(shape) == 3 and shape[0] == min(shape):
            return environment
        images = Box(channels_first(space.low), channels_first(space.high), dtype=np.uint8)
        return wrappers.TransformObservation(environment, channels_first, images)
    return environment if len(shape) == 1 else wrappers.FlattenObservation(environment)


def channels_first(image: NDArray[Any]) -> NDArray[Any]:
    """Return an image (height, width[, channels]) as (channels, height, width); grey is one channel."""
    return np.ascontiguousarray(np.moveaxis(np.atleast_3d(image), 2, 0))


def with_plain_actions(environment: Environment) -> Environment:
    """Return an environment whose actions are 0, 1, 2, ... or a vector in [-1, 1].

    Raises:
        UnsupportedEnvironment: If its actions are of another kind, or unbounded.
    """
    space: Any = environment.action_space
    if isinstance(space, Discrete):
        if space.start == 0:
            return environment
        first = int(space.start)
        # The network's outputs are numbered from 0, so stored actions are too.
        return wrappers.TransformAction(environment, lambda action: action + first, Discrete(int(space.n)))
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise UnsupportedEnvironment(
            f"the action space {space}; train needs Discrete (for DQN) or a Box of floats (for DPG)."
        )
    if not space.is_bounded():
        raise UnsupportedEnvironment(
            f"the action space {space}, which has no bounds; DPG needs a minimum and a maximum action. "
            "gymnasium.wrappers.RescaleAction or ClipAction can set them."
        )
    low, high, shape = space.low, space.high, space.shape

    def rescaled(action: NDArray[Any]) -> NDArray[Any]:
        inner = low + (action.reshape(shape) + 1.0) / 2.0 * (high - low)
        # Rounding may lead out of the bounds.
        return np.clip(inner, low, high).astype(space.dtype)

    size = int(np.prod(shape))
    return wrappers.TransformAction(environment, rescaled, Box(-1.0, 1.0, (size,), np.float32))


def playable(actions: NDArray[Any]) -> list[Any]:
    """Return a batch of actions as a list of what `step` takes: ints, or arrays."""
    return actions.tolist() if actions.ndim == 1 else list(actions)


def spaces_of(name: str) -> Spaces:
    """Return what `train` has to know of an environment, as `make_environment` makes it.

    Raises:
        UnsupportedEnvironment: If there is no such environment, or the agent can't learn in it; the message
            names the space and what is supported.
    """
    environment = make_environment(name)
    environment.close()
    observation: Any = environment.observation_space
    action: Any = environment.action_space
    spec = environment.unwrapped.spec
    layers = [environment]
    while isinstance(layer := layers[-1], gym.Wrapper):
        layers.append(layer.env)
    # Only gymnasium's own wrappers declare what they do; the emulator of a game cuts episodes itself.
    stacks = [layer for layer in layers if isinstance(layer, wrappers.FrameStackObservation)]
    limits = [layer for layer in layers if isinstance(layer, wrappers.TimeLimit)]
    return Spaces(
        observation,
        action,
        stacked=any(stack.observation_space.shape == observation.shape for stack in stacks),
        time_limit=bool(limits) or name.startswith(atari.PREFIX),
        solved_at=None if spec is None else spec.reward_threshold,
    )
