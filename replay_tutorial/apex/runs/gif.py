"""A policy at play, as a moving picture: what the mean return doesn't tell.

Left out: sound, formats other than GIF (a video needs an encoder, a package of tens of megabytes).
"""

from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from replay_tutorial.agents.agent import Policy
from replay_tutorial.agents.environments import make_environment, playable

SHORTEST = 20  # milliseconds a picture: players show GIFs that want less at a tenth of the speed


class Played(NamedTuple):
    """An episode, or its beginning."""

    total: float  # the rewards
    steps: int
    over: bool  # whether it came to its end


def play(policy: Policy, environment: str, seed: int, output: Path, most_steps: int = 1_000) -> Played:
    """Play a greedy episode and write it as a GIF.

    Args:
        policy: Who plays.
        environment: The environment's name.
        seed: Of the episode.
        output: The file; its name ends in .gif.
        most_steps: Where a long episode is cut.

    Raises:
        OSError: If the file can't be written.
        UnsupportedEnvironment: If there is no such environment.
        ValueError: If the environment draws no pictures, or the file's name says that it is no GIF.
    """
    if output.suffix.lower() != ".gif":
        raise ValueError(
            f"{output}: only GIFs are written, because a video needs an encoder. Let the name end in .gif; "
            "`ffmpeg -i play.gif play.mp4` makes a video of it."
        )
    plain = make_environment(environment)
    metadata = plain.metadata
    plain.close()
    if "rgb_array" not in metadata.get("render_modes", []):
        raise ValueError(f"{environment} draws no pictures: it has no render mode rgb_array.")
    env = make_environment(environment, render=True)
    played = Played(0.0, 0, False)

    def pictures() -> Generator[Image.Image]:
        nonlocal played
        observation, _ = env.reset(seed=seed)
        yield picture_of(env.render())
        while not played.over and played.steps < most_steps:
            action = playable(policy.act_greedily(observation[np.newaxis]))[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            played = Played(played.total + float(reward), played.steps + 1, terminated or truncated)
            yield picture_of(env.render())

    try:
        milliseconds = max(SHORTEST, round(1_000 / metadata.get("render_fps", 30)))
        frames = pictures()
        # A generator: a long episode is never in memory as a whole.
        next(frames).save(
            output, format="GIF", save_all=True, append_images=frames, duration=milliseconds, loop=0
        )
    finally:
        env.close()
    return played


def picture_of(pixels: Any) -> Image.Image:
    """Return a picture of what `render` gave: uint8 (height, width, 3)."""
    array: NDArray[np.uint8] = np.ascontiguousarray(pixels)
    return Image.fromarray(array).quantize(64, Image.Quantize.FASTOCTREE)
