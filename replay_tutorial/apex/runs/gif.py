"""Records an episode of a policy as a GIF.

Other formats aren't supported: a video would need an encoder, a package of tens of megabytes.
"""

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from replay_tutorial.agents.agent import Policy
from replay_tutorial.agents.environments import make_environment, to_step_actions
from replay_tutorial.buffers.runtime.atomic_file import replace_file

MIN_FRAME_MS = 20  # milliseconds per frame: players slow faster GIFs down to a tenth of their speed


class PlayedEpisode(NamedTuple):
    """An episode, possibly cut off before its end."""

    total: float  # sum of the rewards
    steps: int
    ended: bool  # whether the environment ended it


def play(
    policy: Policy,
    environment: str,
    seed: int,
    output: Path,
    max_steps: int = 1_000,
    width: int | None = None,
) -> PlayedEpisode:
    """Play a greedy episode of at most `max_steps`, write it as a GIF, and return its return and length.

    `environment` is an ID, and `output` must end in .gif. With `width`, the frames of the environment are
    scaled to this number of pixels.

    Raises:
        OSError: If the file can't be written.
        UnsupportedEnvironment: If there is no such environment.
        ValueError: If the environment can't be rendered, or the path doesn't end in .gif.
    """
    if output.suffix.lower() != ".gif":
        raise ValueError(
            f"{output}: only GIFs can be written. Use a name that ends in .gif, and convert the file "
            "with `ffmpeg -i play.gif play.mp4`."
        )
    # SDL's dummy drivers need neither a display nor a sound device.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    plain = make_environment(environment)
    metadata = plain.metadata
    plain.close()
    if "rgb_array" not in metadata.get("render_modes", []):
        raise ValueError(f"{environment} can't be rendered: it doesn't support the render mode rgb_array.")
    env = make_environment(environment, render=True)
    played = PlayedEpisode(0.0, 0, False)

    def frames() -> Generator[Image.Image]:
        nonlocal played
        observation, _ = env.reset(seed=seed)
        yield image_of(env.render(), width)
        while not played.ended and played.steps < max_steps:
            action = to_step_actions(policy.act_greedily(observation[np.newaxis]))[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            played = PlayedEpisode(played.total + float(reward), played.steps + 1, terminated or truncated)
            yield image_of(env.render(), width)

    try:
        duration = max(MIN_FRAME_MS, round(1_000 / metadata.get("render_fps", 30)))
        # A generator, so that the frames of a long episode are never all in memory.
        rest = frames()
        first = next(rest)
        how: dict[str, Any] = {"save_all": True, "append_images": rest, "duration": duration, "loop": 0}
        replace_file(output, lambda unfinished: first.save(unfinished, format="GIF", **how))
    finally:
        env.close()
    return played


def image_of(pixels: Any, width: int | None) -> Image.Image:
    """Return a frame, uint8 (height, width, 3), as an image of at most 64 colours."""
    array: NDArray[np.uint8] = np.ascontiguousarray(pixels)
    image = Image.fromarray(array)
    if width is not None:
        image = image.resize((width, max(1, round(image.height * width / image.width))))
    return image.quantize(64, Image.Quantize.FASTOCTREE)
