"""Atari games: the standard preprocessing of the papers.

A game runs at 60 frames per second, of 210 x 160 pixels in colour. The agent acts on every fourth and
observes the last four of those, grey and scaled down: a single frame doesn't show which way the ball flies.
In training, rewards are clipped, so that one learning rate fits all games, and a lost life ends an episode,
so that losing one has a cost. The result is still the score of the whole game; `info` carries it.

Left out: pressing FIRE at the start (the network finds that out), ale-py's own vector environment (its steps
are faster, but the forward pass costs more, and after a lost life it begins a new game, or keeps old frames).

Papers: Mnih et al. 2015, methods; Horgan et al. 2018, appendix C.
"""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

PREFIX = "ALE/"
# With a prefix, because other environments may put a `score` of their own into `info`.
SCORE, GAME_OVER = "replay_tutorial/score", "replay_tutorial/game_over"
STACK = 4  # frames in an observation

NO_OP = 0


def make(name: str, training: bool, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Make a game with the standard preprocessing; observations are uint8 (4, 84, 84).

    Args:
        name: As `ALE/Pong-v5`.
        training: Whether rewards are clipped and a lost life ends an episode.
        render_mode: As for `gymnasium.make`.

    Raises:
        ModuleNotFoundError: If ale-py isn't installed.
        gymnasium.error.Error: If there is no such game, or OpenCV isn't installed.
    """
    import ale_py  # here, because other environments don't need it

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner from each process
    gym.register_envs(ale_py)
    # No sticky actions, as in the paper, which begins a game with a random number of no-ops instead.
    environment: gym.Env[Any, Any] = gym.make(
        name, frameskip=1, repeat_action_probability=0.0, render_mode=render_mode
    )
    environment = AtariPreprocessing(environment, noop_max=30, frame_skip=4, screen_size=84)
    if training:
        environment = Lives(environment)
    # Outside of Lives, so that a stack never reaches back into the previous life.
    return FrameStackObservation(environment, STACK)


class Lives(gym.Wrapper[Any, Any, Any, Any]):
    """A game to train on: each life is an episode, rewards are -1, 0 or 1.

    The game itself continues after a lost life, so that the agent also learns what comes later in the game.
    `info` has the true reward as `SCORE`, and whether the game is over as `GAME_OVER`.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.lives = 0
        self.game_over = True

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the game; a lost life is reported as `terminated`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.game_over = terminated or truncated
        lives = int(info.get("lives", 0))
        # In some games lives are 0 for a while before the game is over.
        life_lost = 0 < lives < self.lives
        self.lives = lives
        info = {**info, SCORE: float(reward), GAME_OVER: self.game_over}
        return observation, float(np.sign(float(reward))), terminated or life_lost, truncated, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start the next life, or a new game if the last one is over or a seed is given."""
        if not self.game_over and seed is None:
            observation, _, terminated, truncated, info = self.env.step(NO_OP)
            if not (terminated or truncated):
                self.lives = int(info.get("lives", 0))
                return observation, info
        observation, info = self.env.reset(seed=seed, options=options)
        self.game_over = False
        self.lives = int(info.get("lives", 0))
        return observation, info
