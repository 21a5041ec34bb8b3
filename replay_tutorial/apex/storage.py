"""What a run stores: n-step rows, the buffer that is made for them, and the files that it is saved in."""

from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial import MPPrioritizedReplayBuffer, NStep, fields_from_spaces
from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config


def step_fields(spaces: Spaces) -> dict[str, dict[str, Any]]:
    """Describe one step; floats have the environment's dtype."""
    return fields_from_spaces(spaces.observation, spaces.action, float_dtype=None)


def n_step_windows(config: Config, spaces: Spaces) -> NStep:
    """Return one empty window for each environment of an actor; its `env_dict` is that of the replay."""
    return NStep(
        step_fields(spaces),
        {"size": config.n_step, "gamma": config.gamma, "rew": "rew", "next": "next_obs"},
        environments=config.environments_per_actor,
    )


def frame_options(spaces: Spaces) -> dict[str, Any]:
    """Return which observations are kept as frames, as a buffer's arguments; none unless they are images."""
    if len(spaces.observation_shape) != 3:
        return {}
    # A stack shares most of its images with the one before. Colour channels taken apart would be three new
    # frames per step, where there is room for one and a quarter.
    return {"next_of": ("obs",), "stack_compress": {"obs": 0} if spaces.stacked else None}


def frames_per_row(config: Config, stack: int) -> float:
    """Return for how many frames a replay needs room, for each row: 1.25, unless it is small for its actors.

    A frame comes again n steps later, and in as many rows as a stack has frames. All environments add theirs
    meanwhile, a send at once; and at the start, each row brings two whole stacks.
    """
    meanwhile = config.environment_count * (config.n_step + 2 * stack + config.send_interval)
    return min(max(1.25, 1.2 + (meanwhile - 1024) / config.capacity), 2.0 * stack)


def make_replay(
    config: Config, spaces: Spaces, seed: np.random.SeedSequence, path: Path | None = None
) -> MPPrioritizedReplayBuffer:
    """Reserve the replay; images are stored as frames, each of them once.

    Args:
        config: Of the run.
        spaces: Of its environment.
        seed: Of the drawing.
        path: A file to keep it in; None for memory.

    Raises:
        MemoryError: If there is less room than it may come to need.
    """
    fields, frames = dict(n_step_windows(config, spaces).env_dict), frame_options(spaces)
    if frames:
        del fields["next_obs"]  # the observation n steps later is that of another row
        stack = spaces.observation_shape[0] if spaces.stacked else 1
        frames["frames_per_transition"] = frames_per_row(config, stack)
    return MPPrioritizedReplayBuffer(
        config.capacity, fields, alpha=config.alpha, seed=seed, path=path, **frames
    )
