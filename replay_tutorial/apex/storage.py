"""Storage of a run: its n-step rows, and the replay that stores them."""

from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial import MPPrioritizedReplayBuffer, NStepWindow, fields_from_spaces
from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config


def step_fields(spaces: Spaces) -> dict[str, dict[str, Any]]:
    """Return the fields of one step; floats have the environment's dtype."""
    return fields_from_spaces(spaces.observation, spaces.action, float_dtype=None)


def n_step_windows(config: Config, spaces: Spaces) -> NStepWindow:
    """Return one empty n-step window per environment of an actor; its `fields` are those of the replay."""
    return NStepWindow(
        step_fields(spaces), config.n_step, gamma=config.gamma, num_envs=config.environments_per_actor
    )


def frame_options(spaces: Spaces) -> dict[str, Any]:
    """Return the replay's arguments for storing observations as frames, or {} if they aren't images."""
    if len(spaces.observation_shape) != 3:
        return {}
    # A stack shares most of its images with the previous stack. Splitting colour images into their channels
    # would add three frames per step, but there is room for 1.25.
    return {"dedupe_next": ("obs",), "dedupe_frames": {"obs": 0} if spaces.stacked else None}


def frames_per_row(config: Config, stack: int) -> float:
    """Return the number of frames to reserve per row: 1.25, or more if the replay is small for its actors.

    A frame is used again n steps later, and by as many rows as a stack has frames. Meanwhile all environments
    add frames, one send at a time. At the start, each row adds two whole stacks.
    """
    meanwhile = config.environment_count * (config.n_step + 2 * stack + config.send_interval)
    return min(max(1.25, 1.2 + (meanwhile - 1024) / config.capacity), 2.0 * stack)


def make_replay(
    config: Config, spaces: Spaces, seed: np.random.SeedSequence, path: Path | None = None
) -> MPPrioritizedReplayBuffer:
    """Create the replay; image observations are stored as frames, each frame once.

    With `path`, the rows are in that file instead of in memory.

    Raises:
        MemoryError: If the replay doesn't fit into memory when it is full.
    """
    fields, frames = dict(n_step_windows(config, spaces).fields), frame_options(spaces)
    if frames:
        del fields["next_obs"]  # it is the observation of another row
        stack = spaces.observation_shape[0] if spaces.stacked else 1
        frames["frames_per_transition"] = frames_per_row(config, stack)
    return MPPrioritizedReplayBuffer(
        config.capacity, fields, alpha=config.alpha, seed=seed, path=path, **frames
    )
