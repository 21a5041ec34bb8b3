"""Environments: make them, and refuse the ones this agent can't learn before any process starts.

Everything that has to be known about an environment is in its two spaces. They are looked at once, in the parent, where
an error is one line for the reader, instead of a traceback from each actor.

Left out: pictures, nested observations, continuous actions, vector environments. (Actors step a plain list of
environments: nothing resets them behind our back, so the observation after the last step is always the true one.)
"""

from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TransformAction
from numpy.typing import NDArray

# gymnasium's Env is generic over observation and action; `spaces_of` has checked both.
Environment = gym.Env[Any, Any]


class UnsupportedEnvironment(ValueError):
    """There is no such environment, or this agent can't learn in it; the message says why."""


class Spaces(NamedTuple):
    """The two spaces of an environment that `train` accepts."""

    observation: Box
    action: Discrete

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        return int(self.observation.shape[0])

    @property
    def action_count(self) -> int:
        """Number of actions."""
        return int(self.action.n)


def make_environment(name: str) -> Environment:
    """Make one environment whose actions are 0, 1, 2, ...

    Args:
        name: A registered gymnasium name, or `module:Name-v0`, which imports the module first.

    Raises:
        UnsupportedEnvironment: If there is no such environment; the message carries gymnasium's reason.
    """
    try:
        environment: Environment = gym.make(name)
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise UnsupportedEnvironment(f"can't make the environment {name!r}: {error}") from error
    actions = environment.action_space
    if isinstance(actions, Discrete) and actions.start != 0:
        first = int(actions.start)
        # The network's outputs are counted from 0, so the stored actions are too.
        environment = TransformAction(environment, lambda action: action + first, Discrete(int(actions.n)))
    return environment


def playable(actions: NDArray[Any]) -> list[Any]:
    """Return a batch of actions as what `step` takes: whole numbers, or arrays."""
    return actions.tolist() if actions.ndim == 1 else list(actions)


def spaces_of(name: str) -> Spaces:
    """Return an environment's spaces.

    Raises:
        UnsupportedEnvironment: If there is no such environment, or the agent can't learn in it; the message names
            the space and what is supported.
    """
    environment = make_environment(name)
    try:
        observation, action = environment.observation_space, environment.action_space
    finally:
        environment.close()
    if not isinstance(observation, Box) or len(observation.shape) != 1:
        raise UnsupportedEnvironment(
            f"{name} has the observation space {observation}; train needs a flat Box, of shape (size,). "
            "gymnasium.wrappers.FlattenObservation makes one from most spaces."
        )
    if not isinstance(action, Discrete):
        raise UnsupportedEnvironment(
            f"{name} has the action space {action}; DQN takes the greatest of a few Q-values and needs Discrete."
        )
    return Spaces(observation, action)


def solved_threshold(name: str) -> float | None:
    """Return the mean return above which gymnasium calls an environment solved; None if it doesn't say."""
    environment = make_environment(name)  # gymnasium.spec doesn't know `module:Name-v0`
    environment.close()
    return None if environment.spec is None else environment.spec.reward_threshold
