"""What a run stores: n-step rows, and the buffer that is made for them."""

from typing import Any

import numpy as np

from replay_tutorial import MPPrioritizedReplayBuffer, NStep, fields_from_spaces
from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config


def step_fields(spaces: Spaces) -> dict[str, dict[str, Any]]:
    """Describe one step; floats as they are, because the replays of earlier runs hold them so."""
    return fields_from_spaces(spaces.observation, spaces.action, float_dtype=None)


def n_step_windows(config: Config, spaces: Spaces) -> NStep:
    """Return one empty window for each environment of an actor; its `env_dict` is that of the replay."""
    return NStep(
        step_fields(spaces),
        {"size": config.n_step, "gamma": config.gamma, "rew": "rew", "next": "next_obs"},
        environments=config.environments_per_actor,
    )


def make_replay(config: Config, spaces: Spaces, seed: np.random.SeedSequence) -> MPPrioritizedReplayBuffer:
    """Reserve the replay; images are stored as frames, each of them once.

    Raises:
        MemoryError: If there is less room than it may come to need.
    """
    fields = dict(n_step_windows(config, spaces).env_dict)
    frames: dict[str, Any] = {}
    if len(spaces.observation_shape) == 3:
        # The observation n steps later is that of another row.
        del fields["next_obs"]
        frames = {"next_of": "obs"}
        if spaces.stacked:
            # A stack shares most of its images with the one before. Colour channels taken apart would be
            # three new frames per step, where there is room for one and a quarter.
            frames["stack_compress"] = {"obs": 0}
    return MPPrioritizedReplayBuffer(config.capacity, fields, alpha=config.alpha, seed=seed, **frames)
