"""Environments: convert observation and action spaces to the forms that the networks accept.

Every observation becomes a flat Box or an image, and every action becomes 0, 1, 2, ... or a vector in [-1,
1]. The rest of the package handles only these. Unsupported spaces are rejected once, in the parent process,
with a one-line message instead of a traceback from each actor. Values that can't be learned from, and calls
of `sys.exit`, are reported with the step at which they occur.

Left out: Sequence and Graph observations, MultiDiscrete and MultiBinary actions, and vector environments.
Actors step a list of single environments, because a vector environment may replace the last observation of an
episode with the first of the next.
"""

import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium import wrappers
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from replay_tutorial.agents import atari

# gymnasium's Env is generic over observation and action; `spaces_of` checks both at run time.
Environment = gym.Env[Any, Any]

GAMES = ("ale_py", "box2d", "minatar", "opencv")  # in the errors about a missing package of the extra `games`
MIN_SIDE = 36  # pixels; a smaller image vanishes in the torso's three convolutions
# Networks compute in float32. As float64, because NumPy would convert a Python float to float16 to compare.
LARGEST = np.float64(np.finfo(np.float32).max)


class UnsupportedEnvironment(ValueError):
    """The environment does not exist or the agent cannot learn in it; the message gives the reason."""


class EnvironmentFailed(RuntimeError):
    """An environment returned a value that can't be learned from, or called `sys.exit`."""


class Spaces(NamedTuple):
    """The spaces of an environment that `train` supports, and its other properties."""

    observation: Box  # of shape (size,), or an image: uint8 (channels, height, width)
    action: Discrete | Box  # 0, 1, 2, ..., or a Box of shape (size,) from -1 to 1
    stacked: bool = False  # whether an image's channels are stacked frames instead of colours
    time_limit: bool = True  # whether episodes are truncated after a number of steps
    solved_at: float | None = None  # gymnasium's reward threshold, if it declares one

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """`(size,)`, or `(channels, height, width)` for images."""
        return tuple(self.observation.shape)

    @property
    def action_count(self) -> int:
        """Number of discrete actions, or size of a continuous action."""
        return int(self.action.n) if isinstance(self.action, Discrete) else int(self.action.shape[0])

    @property
    def is_continuous(self) -> bool:
        """Whether an action is a vector in [-1, 1]."""
        return isinstance(self.action, Box)


class StepClock:
    """The environment whose step or reset is running in this process, and when the call began.

    The time is that of `time.monotonic`. An attribute of the class CheckedEnvironment would slow down each
    lookup of its methods, because Python caches them until the class changes.
    """

    running: "tuple[CheckedEnvironment, float] | None" = None


clock = StepClock()


class CheckedEnvironment(gym.Wrapper[Any, Any, Any, Any]):
    """Checks what an environment returns.

    Raise EnvironmentFailed for NaN, for a number that float32 can't hold, and for SystemExit, which would end
    the process without a message.
    """

    def __init__(self, environment: Environment, name: str) -> None:
        super().__init__(environment)
        self.name, self.steps = name, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Reset the environment, and check the observation."""
        self.steps = 0
        clock.running = self, time.monotonic()
        try:
            observation, info = self.env.reset(seed=seed, options=options)
        except SystemExit as error:
            self._exit(self.call, error)
        finally:
            clock.running = None
        self._check(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment, and check observation and reward."""
        self.steps += 1
        clock.running = self, time.monotonic()
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        except SystemExit as error:
            self._exit(self.call, error)
        finally:
            clock.running = None
        self._check(observation, reward)
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Close the environment."""
        try:
            self.env.close()
        except SystemExit as error:
            self._exit(f"close of {self.name}", error)

    @property
    def call(self) -> str:
        """The newest call of the environment, for a message."""
        return f"step {self.steps} of an episode of {self.name}" if self.steps else f"reset of {self.name}"

    def _check(self, observation: Any, reward: Any = 0.0) -> None:
        seen = np.asarray(observation)
        # If the sum of all squares is in range, every element is, too; one call checks all of them.
        if seen.dtype.kind == "f" and not np.vdot(seen, seen) <= LARGEST:
            for element in np.argwhere(~(np.abs(seen) <= LARGEST)).tolist():
                self._refuse(f"{seen[tuple(element)]} in element {element} of the observation")
        try:
            is_number = -LARGEST <= reward <= LARGEST
        except (TypeError, ValueError):  # None, or several numbers
            is_number = False
        if not is_number:
            self._refuse(f"{reward} as the reward")

    def _refuse(self, what: str) -> NoReturn:
        raise EnvironmentFailed(
            f"{self.call} returned {what}; every value must be a number that float32 can hold. Correct the "
            "environment, or replace such values in a wrapper."
        )

    def _exit(self, call: str, error: SystemExit) -> NoReturn:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise EnvironmentFailed(
            f"{call} called sys.exit({error.code!r}), in {last.filename}, line {last.lineno}. Raise "
            "another exception instead, or end the episode."
        ) from error


@contextmanager
def slow_steps_reported(report: Callable[[str], object], limit: float) -> Generator[None]:
    """Report each step or reset in this process that takes longer than `limit` seconds.

    While the context lasts, a thread calls `report` with one line per step. The thread can't run during a
    step that holds the interpreter's lock, as extensions in C may.
    """
    has_ended = threading.Event()

    def watch() -> None:
        reported = None
        while not has_ended.wait(min(1.0, limit / 4)):
            running = clock.running
            if running is None or running is reported or time.monotonic() - running[1] < limit:
                continue
            reported = running
            report(f"{running[0].call} has taken {limit:g} s so far and may hang; still waiting for it")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def make_environment(
    name: str, *, training: bool = False, render: bool = False, label: str | None = None
) -> Environment:
    """Create an environment with spaces as described by `Spaces`.

    Args:
        name: ID of a registered gymnasium environment, or `module:Name-v0`, which imports the module first.
        training: For Atari games: whether to clip rewards and to end an episode when a life is lost.
        render: Whether `render` returns images.
        label: The environment's name in error messages; None means `name`.

    Raises:
        UnsupportedEnvironment: If the environment does not exist, a package is missing, or its spaces are not
            supported. The message states the cause and the remedy.
    """
    mode = "rgb_array" if render else None
    try:
        if family_of(name) in atari.SIZES:
            environment: Environment = atari.make(name, training, mode)
        else:
            if family_of(name) == "MinAtar" and name not in gym.registry:
                import_module("minatar.gym").register_envs()
            # Some environments do not accept render_mode.
            environment = gym.make(name, render_mode=mode) if render else gym.make(name)
    except SystemExit as error:
        raise UnsupportedEnvironment(f"creating {name!r} called sys.exit({error.code!r})") from error
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise UnsupportedEnvironment(
            f"cannot create the environment {name!r}: {failure_reason(error)}"
        ) from error
    try:
        is_grid = family_of(name) == "MinAtar"
        plain = with_plain_actions(with_plain_observations(environment, is_grid))
        return CheckedEnvironment(plain, label or name)
    except UnsupportedEnvironment as error:
        environment.close()
        raise UnsupportedEnvironment(f"{name} has {error}") from None


def family_of(name: str) -> str:
    """Return the part of an ID before the slash, or the whole ID if there is none."""
    return name.partition("/")[0]


def failure_reason(error: Exception) -> str:
    """Return the reason why an environment could not be created and, for a missing package, the remedy."""
    text = f"{error} {getattr(error, 'name', '')}".lower()
    missing = isinstance(error, ModuleNotFoundError | gym.error.DependencyNotInstalled)
    if missing and any(package in text for package in GAMES):
        limit = ", with Python 3.13 or older" if "box2d" in text else ""  # no wheel for Python 3.14
        return f'it needs the extra `games`: pip install "replay_tutorial[games]"{limit}'
    return str(error)


def with_plain_observations(environment: Environment, is_grid: bool = False) -> Environment:
    """Wrap an environment so that its observations are a flat Box or an image (channels, height, width).

    With `is_grid`, its observations are small images (height, width, channels), as in MinAtar. Raise
    UnsupportedEnvironment if they have no fixed size.
    """
    space: Any = environment.observation_space
    if not space.is_np_flattenable:
        raise UnsupportedEnvironment(
            f"the observation space {space}, whose values have no fixed size. train supports Box, Discrete, "
            "MultiDiscrete, MultiBinary, and Dict or Tuple of these."
        )
    if not isinstance(space, Box):
        return wrappers.FlattenObservation(environment)
    shape = space.shape
    is_image = space.dtype == np.uint8 and len(shape) in (2, 3) and sorted(shape)[-2] >= MIN_SIDE
    if is_grid or is_image:
        if not is_grid and len(shape) == 3 and shape[0] == min(shape):
            return environment
        images = Box(channels_first(space.low), channels_first(space.high), dtype=space.dtype)
        return wrappers.TransformObservation(environment, channels_first, images)
    return environment if len(shape) == 1 else wrappers.FlattenObservation(environment)


def channels_first(image: NDArray[Any]) -> NDArray[Any]:
    """Convert an image (height, width[, channels]) to (channels, height, width); grey has one channel."""
    return np.ascontiguousarray(np.moveaxis(np.atleast_3d(image), 2, 0))


def with_plain_actions(environment: Environment) -> Environment:
    """Wrap an environment so that its actions are 0, 1, 2, ... or a vector in [-1, 1].

    Raise UnsupportedEnvironment if its actions are of another type, or unbounded.
    """
    space: Any = environment.action_space
    if isinstance(space, Discrete):
        if space.start == 0:
            return environment
        first = int(space.start)
        # Stored actions index the network's outputs, which start at 0.
        return wrappers.TransformAction(environment, lambda action: action + first, Discrete(int(space.n)))
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise UnsupportedEnvironment(
            f"the action space {space}; train supports Discrete (with DQN) and Box of floats (with DPG)."
        )
    if not space.is_bounded():
        raise UnsupportedEnvironment(
            f"the action space {space}, which is unbounded; DPG needs finite bounds. Set them with "
            "gymnasium.wrappers.TransformAction(environment, lambda action: action, Box(low, high, shape))."
        )
    low, high, shape = space.low, space.high, space.shape

    def rescaled(action: NDArray[Any]) -> NDArray[Any]:
        inner = low + (action.reshape(shape) + 1.0) / 2.0 * (high - low)
        # Rounding can exceed the bounds.
        return np.clip(inner, low, high).astype(space.dtype)

    size = int(np.prod(shape))
    return wrappers.TransformAction(environment, rescaled, Box(-1.0, 1.0, (size,), np.float32))


def to_step_actions(actions: NDArray[Any]) -> list[Any]:
    """Convert a batch of actions to a list of arguments for `step`: ints or arrays."""
    return actions.tolist() if actions.ndim == 1 else list(actions)


def spaces_of(name: str) -> Spaces:
    """Return the spaces and properties of an environment, as `make_environment` creates it.

    Raises:
        UnsupportedEnvironment: If the environment does not exist, or the agent cannot learn in it. The
            message names the space and lists the supported ones.
    """
    environment = make_environment(name)
    environment.close()
    observation: Any = environment.observation_space
    action: Any = environment.action_space
    spec = environment.unwrapped.spec
    layers = [environment]
    while isinstance(layer := layers[-1], gym.Wrapper):
        layers.append(layer.env)
    # Only gymnasium's own wrappers can be recognised; Atari's emulator truncates episodes itself.
    stacks = [layer for layer in layers if isinstance(layer, wrappers.FrameStackObservation)]
    limits = [layer for layer in layers if isinstance(layer, wrappers.TimeLimit)]
    return Spaces(
        observation,
        action,
        stacked=any(stack.observation_space.shape == observation.shape for stack in stacks),
        time_limit=bool(limits) or family_of(name) in atari.SIZES,
        solved_at=None if spec is None else spec.reward_threshold,
    )
