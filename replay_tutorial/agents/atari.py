"""Atari games: what the papers do to a game before an agent sees it.

A game runs at 60 pictures a second, of 210 x 160 pixels in colour. The agent acts on every fourth, sees them grey and
small, and four of them at once, because a single one doesn't tell which way the ball flies. While it learns, rewards
are clipped, so that one learning rate fits all games, and a lost life ends an episode, so that it is felt at once. The
result is still the score of whole games; it travels in `info`.

Left out: pressing FIRE at the start (the network finds that out), ale-py's own vector environment (a step is faster there,
but the network's pass costs more, and it begins a new game, or keeps old pictures, after a lost life).

Papers: Mnih et al. 2015, methods; Horgan et al. 2018, appendix C.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

PREFIX = "ALE/"
# `info` is the environment's: these names are ours, so that a score or a game of its own is never taken for them.
SCORE, GAME_OVER = "replay_tutorial/score", "replay_tutorial/game_over"
STACK = 4  # pictures in an observation

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
    import ale_py  # here, because other environments do without it

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner from each process
    gym.register_envs(ale_py)
    # Sticky actions off, as in the paper, which starts a game with a random number of no-ops instead.
    environment: gym.Env[Any, Any] = gym.make(
        name, frameskip=1, repeat_action_probability=0.0, render_mode=render_mode
    )
    environment = AtariPreprocessing(environment, noop_max=30, frame_skip=4, screen_size=84)
    if training:
        environment = Lives(environment)
    # Outside of Lives, so that a stack never reaches back into the life before.
    return FrameStackObservation(environment, STACK)


class Lives(gym.Wrapper[Any, Any, Any, Any]):
    """A game to learn from: each life is an episode, rewards are -1, 0 or 1.

    Only the agent sees it so: the game goes on after a lost life, so that it also learns what comes later in the game.
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
        # At the end of some games lives are 0 for a while before the game is over.
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
