"""Atari games with the standard preprocessing of the papers.

Games run at 60 frames per second, with frames of 210 x 160 pixels in colour. The agent acts on every fourth
frame and observes the last four of these, converted to grey and downscaled: a single frame does not show in
which direction the ball moves. During training, rewards are clipped so that one learning rate suits all
games. The loss of a life ends an episode, so that the agent learns to avoid it. `info` still contains the
score of the whole game.

Left out: pressing FIRE at the start, which the network learns, and ale-py's own vector environment. Its steps
are faster, but the forward pass dominates; after a lost life it starts a new game or keeps old frames.

Papers: Mnih et al. 2015, methods; Horgan et al. 2018, appendix C.
"""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

# Family of the environment IDs → height and width of the images; the small ones are for learning on a CPU.
SIZES = {"ALE": 84, "SmallALE": 42}
# Prefixed, because other environments may use the key `score` in `info`.
SCORE, GAME_OVER = "replay_tutorial/score", "replay_tutorial/game_over"
STACK = 4  # frames in an observation

NO_OP = 0


def make(name: str, training: bool, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Create a game with the standard preprocessing; observations are uint8 (4, 84, 84).

    Args:
        name: Environment ID, such as `ALE/Pong-v5`, or `SmallALE/Pong-v5` for observations (4, 42, 42).
        training: Whether to clip rewards and to end an episode when a life is lost.
        render_mode: See `gymnasium.make`.

    Raises:
        ModuleNotFoundError: If ale-py is not installed.
        gymnasium.error.Error: If the game does not exist, or OpenCV is not installed.
    """
    import ale_py  # imported here, because other environments do not need it

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner from each process
    gym.register_envs(ale_py)
    family, _, game = name.partition("/")
    # As in the paper: no sticky actions; instead, a game starts with a random number of no-ops.
    environment: gym.Env[Any, Any] = gym.make(
        f"ALE/{game}", frameskip=1, repeat_action_probability=0.0, render_mode=render_mode
    )
    environment = AtariPreprocessing(environment, noop_max=30, frame_skip=4, screen_size=SIZES[family])
    if training:
        environment = EpisodicLife(environment)
    # Outside EpisodicLife, so that a stack never contains frames of the previous life.
    return FrameStackObservation(environment, STACK)


class EpisodicLife(gym.Wrapper[Any, Any, Any, Any]):
    """Training wrapper: each life is an episode, and rewards are -1, 0 or 1.

    The game continues after a lost life, so the agent also learns its later stages. `info` contains the
    unclipped reward (`SCORE`) and whether the game is over (`GAME_OVER`).
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.lives = 0
        self.game_over = True

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the game; report a lost life as `terminated`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.game_over = terminated or truncated
        lives = int(info.get("lives", 0))
        # Some games report 0 lives for some frames before the game is over.
        life_lost = 0 < lives < self.lives
        self.lives = lives
        info = {**info, SCORE: float(reward), GAME_OVER: self.game_over}
        return observation, float(np.sign(float(reward))), terminated or life_lost, truncated, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start the next life; start a new game if the last one is over or a seed is passed."""
        if not self.game_over and seed is None:
            observation, _, terminated, truncated, info = self.env.step(NO_OP)
            if not (terminated or truncated):
                self.lives = int(info.get("lives", 0))
                return observation, info
        observation, info = self.env.reset(seed=seed, options=options)
        self.game_over = False
        self.lives = int(info.get("lives", 0))
        return observation, info
