"""An episode of a policy as a GIF: it shows what a mean return doesn't.

Left out: sound, formats other than GIF (a video needs an encoder, a package of tens of megabytes).
"""

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from replay_tutorial.agents.agent import Policy
from replay_tutorial.agents.environments import make_environment, playable
from replay_tutorial.buffers.atomic_file import replace_file

MIN_FRAME_MS = 20  # milliseconds per frame: players show faster GIFs at a tenth of their speed


class PlayedEpisode(NamedTuple):
    """An episode, or its first part."""

    total: float  # sum of the rewards
    steps: int
    over: bool  # whether it ended by itself


def play(policy: Policy, environment: str, seed: int, output: Path, max_steps: int = 1_000) -> PlayedEpisode:
    """Play a greedy episode and write it as a GIF.

    Args:
        policy: The policy that plays.
        environment: The environment's name.
        seed: Of the episode.
        output: The file; its name ends in .gif.
        max_steps: Steps after which the episode is cut.

    Raises:
        OSError: If the file can't be written.
        UnsupportedEnvironment: If there is no such environment.
        ValueError: If the environment can't be rendered, or the file's name doesn't end in .gif.
    """
    if output.suffix.lower() != ".gif":
        raise ValueError(
            f"{output}: only GIFs are written, because a video needs an encoder. Use a name that ends in "
            ".gif; `ffmpeg -i play.gif play.mp4` converts it."
        )
    # No window and no sound: where there is no desktop, SDL would complain.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    plain = make_environment(environment)
    metadata = plain.metadata
    plain.close()
    if "rgb_array" not in metadata.get("render_modes", []):
        raise ValueError(f"{environment} can't be drawn: it has no render mode rgb_array.")
    env = make_environment(environment, render=True)
    played = PlayedEpisode(0.0, 0, False)

    def frames() -> Generator[Image.Image]:
        nonlocal played
        observation, _ = env.reset(seed=seed)
        yield image_of(env.render())
        while not played.over and played.steps < max_steps:
            action = playable(policy.act_greedily(observation[np.newaxis]))[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            played = PlayedEpisode(played.total + float(reward), played.steps + 1, terminated or truncated)
            yield image_of(env.render())

    try:
        duration = max(MIN_FRAME_MS, round(1_000 / metadata.get("render_fps", 30)))
        # A generator: a long episode is never in memory as a whole.
        rest = frames()
        first = next(rest)
        how: dict[str, Any] = {"save_all": True, "append_images": rest, "duration": duration, "loop": 0}
        replace_file(output, lambda unfinished: first.save(unfinished, format="GIF", **how))
    finally:
        env.close()
    return played


def image_of(pixels: Any) -> Image.Image:
    """Return the image of what `render` returned: uint8 (height, width, 3)."""
    array: NDArray[np.uint8] = np.ascontiguousarray(pixels)
    return Image.fromarray(array).quantize(64, Image.Quantize.FASTOCTREE)
