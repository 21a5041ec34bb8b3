"""What a run stores: n-step rows, the buffer that is made for them, and the files that it is saved in."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial import MPPrioritizedReplayBuffer, NStep, fields_from_spaces
from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.buffers.fields import Batch

ROWS_AT_ONCE = 50  # that are read from a saved replay, as many as actors send


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


def frame_options(spaces: Spaces) -> dict[str, Any]:
    """Return which observations are kept as frames, as a buffer's arguments; none unless they are images."""
    if len(spaces.observation_shape) != 3:
        return {}
    # A stack shares most of its images with the one before. Colour channels taken apart would be three new
    # frames per step, where there is room for one and a quarter.
    return {"next_of": ("obs",), "stack_compress": {"obs": 0} if spaces.stacked else None}


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
    return MPPrioritizedReplayBuffer(
        config.capacity, fields, alpha=config.alpha, seed=seed, path=path, **frames
    )


def place_of(path: Path, shard: int, shards: int) -> Path:
    """Return where a shard's file belongs, for a replay that belongs at `path`."""
    return path.with_name(f"{path.stem}_{shard}_of_{shards}{path.suffix}")


def numbers_beside(path: Path) -> list[tuple[int, int]]:
    """Return shard and number of shards of each file beside `path`."""
    name = re.compile(rf"{re.escape(path.stem)}_(\d+)_of_(\d+){re.escape(path.suffix)}")
    matches = (name.fullmatch(file.name) for file in path.parent.iterdir())
    return sorted((int(match[1]), int(match[2])) for match in matches if match)


def saved_rows(config: Config, spaces: Spaces, path: Path) -> Iterator[Batch]:
    """Yield the rows of a replay that was saved, in one file or by shards, with their priorities.

    They can be added to any other, however many shards that has. Each file takes its rows' memory meanwhile.

    Args:
        config: Of the run.
        spaces: Of its environment.
        path: Of the one file; those of shards lie beside it.

    Raises:
        MemoryError: If there is too little.
        OSError: If a file can't be read.
        ValueError: If one is damaged, or of another run.
    """
    places = [(path, 1)]
    if not path.exists():
        places = [(place_of(path, shard, shards), shards) for shard, shards in numbers_beside(path)]
    for place, shards in places:
        part = replace(config, capacity=-(-config.capacity // shards), replay_start=1)
        with make_replay(part, spaces, np.random.SeedSequence(0)) as buffer:
            buffer.load(place)
            yield from buffer.in_order(ROWS_AT_ONCE)
